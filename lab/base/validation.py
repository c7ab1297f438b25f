"""Files of settings as models, what every model of a file has, and pydantic's complaints in our words: `key.path: expected …, got …`, unknown keys with the nearest known one."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lab.base.errors import UsageError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path, place: str, example: str) -> dict[str, Any]:
    """FileNotFoundError where it is not there; UsageError where it cannot be read, or is not TOML: `example` shows the form."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except tomllib.TOMLDecodeError as error:
        raise UsageError(place, f"not TOML: {error}", f"see {example} for the form") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(place, f"cannot be read: {error}", "make it a readable text file") from None


def validated(
    model: type[Model],
    table: object,
    place: str,
    schema: str,
    *parts: type[BaseModel],
    context: Mapping[str, Any] | None = None,
) -> Model:
    """A table as its model; UsageError with every fault. `schema`: the file that lists every key; `parts`: the models in it."""
    try:
        return model.model_validate(table, context=context)
    except ValidationError as error:
        raise UsageError(place, "; ".join(faults(error, model, *parts)), f"{schema} lists every key") from None


def refuse(*rules: tuple[bool, str]) -> None:
    """For a model's own validator: ValueError with what the first broken rule says, as (whether it is broken, what to say)."""
    for broken, said in rules:
        if broken:
            raise ValueError(said)


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
            nearest = "it is a key of another part of the file" if key in known else did_you_mean(key, known)
            found.append(f"{where}: unknown key: {nearest}")
        elif item["type"] == "value_error":
            found.append(item["msg"].removeprefix("Value error, "))
        else:
            found.append(
                f"{where}: {item['msg'][0].lower()}{item['msg'][1:]}, got {item['input']!r}".removeprefix(": ")
            )
    return list(dict.fromkeys(found))
