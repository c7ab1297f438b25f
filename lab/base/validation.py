"""What every model of a file has, and pydantic's complaints in our words: `key.path: expected …, got …`, unknown keys with the nearest known one."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel, ConfigDict, ValidationError

from lab.base.errors import did_you_mean


class Record(BaseModel):
    """What is read from a file, or written into one: refuses keys that it does not know, and is not changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def faults(error: ValidationError, *models: type[BaseModel], tags: Collection[str] = ()) -> list[str]:
    """One text per fault; the nearest key is looked for among those of `models`. `tags` of a union are no part of a key's path."""
    known = {field.alias or name for model in models for name, field in model.model_fields.items()}
    found = []
    for item in error.errors():
        where = ".".join(
            str(part)
            for part in item["loc"]
            if not str(part).startswith(("constrained", "list[", "literal", "float", "int")) and part not in tags
        )
        if item["type"] == "extra_forbidden":
            key = str(item["loc"][-1])
            found.append(f"{where}: unknown key: {did_you_mean(key, known)}")
        elif item["type"] == "value_error":
            found.append(item["msg"].removeprefix("Value error, "))
        else:
            found.append(
                f"{where}: {item['msg'][0].lower()}{item['msg'][1:]}, got {item['input']!r}".removeprefix(": ")
            )
    return list(dict.fromkeys(found))
