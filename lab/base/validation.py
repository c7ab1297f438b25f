"""Models that refuse unknown keys, and pydantic's complaints in our words: `key.path: expected …, got …`, with the nearest known key."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from lab.base.errors import did_you_mean


class Strict(BaseModel):
    """What is written down and read again: unknown keys are refused, and no value changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def faults(error: ValidationError, *models: type[BaseModel]) -> list[str]:
    """One text per fault; the nearest key is looked for among those of `models`."""
    known = {name for model in models for name in model.model_fields}
    found = []
    for item in error.errors():
        where = ".".join(
            str(part)
            for part in item["loc"]
            if not str(part).startswith(("constrained", "list[", "literal", "float", "int"))
        )
        if item["type"] == "extra_forbidden":
            key = str(item["loc"][-1])
            found.append(f"{where}: unknown key: {did_you_mean(key, known)}")
        elif item["type"] == "value_error":
            found.append(item["msg"].removeprefix("Value error, "))
        else:
            found.append(f"{where}: {item['msg'][0].lower()}{item['msg'][1:]}, got {item['input']!r}")
    return list(dict.fromkeys(found))
