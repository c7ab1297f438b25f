"""Validation of settings files by pydantic models, with faults as `key.path: expected …, got …`.

An unknown key is reported together with the nearest valid one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lab.base.errors import UsageError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path, place: str, example: str) -> dict[str, Any]:
    """Read a TOML file and return its content.

    Args:
        path: The file.
        place: The name of the file in error messages.
        example: A file or folder that shows the form; the remedy of an error names it.

    Raises:
        FileNotFoundError: The file does not exist.
        UsageError: The file cannot be read, or is not TOML.

    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except tomllib.TOMLDecodeError as error:
        raise UsageError(place, f"not TOML: {error}", f"see {example} for the form") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(place, f"cannot be read: {error}", "make it a readable text file") from None


def validate_table(
    model: type[Model],
    table: object,
    place: str,
    schema: str,
    *parts: type[BaseModel],
    context: Mapping[str, Any] | None = None,
) -> Model:
    """Validate the decoded content of a settings file, and return it as an instance of a pydantic model.

    Args:
        model: The model of the whole file.
        table: The decoded content of the file.
        place: The name of the file in the error message.
        schema: The file that lists every key; the error's remedy names it.
        parts: The models nested in `model`. For an unknown key, the error suggests the nearest key of all these models.
        context: The validation context that is passed to pydantic.

    Raises:
        UsageError: The content does not fit the model; the error lists every fault.

    """
    try:
        return model.model_validate(table, context=context)
    except ValidationError as error:
        raise UsageError(place, "; ".join(format_faults(error, model, *parts)), f"{schema} lists every key") from None


def refuse_broken_rules(*rules: tuple[bool, str]) -> None:
    """Raise ValueError for the first broken rule; validators of pydantic models call this function.

    Args:
        rules: Pairs (whether the rule is broken, message for that case).

    Raises:
        ValueError: A rule is broken; the message is that of the first broken rule.

    """
    for broken, message in rules:
        if broken:
            raise ValueError(message)


class Record(BaseModel):
    """The base class of the pydantic models for everything that is read from or written to a file.

    Unknown keys are refused, and instances are immutable.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


def format_faults(error: ValidationError, *models: type[BaseModel], tags: Collection[str] = ()) -> list[str]:
    """Return the faults of a pydantic validation error as texts `key.path: message, got value`, each fault once.

    Args:
        error: The error.
        models: The models whose keys are suggested for an unknown key.
        tags: The names of a union's members. Pydantic puts such a name into the path of a key; the texts leave it out.

    """
    names = {field.alias or name for model in models for name, field in model.model_fields.items()}
    messages = []
    for item in error.errors():
        path = ".".join(
            str(part)
            for part in item["loc"]
            if not str(part).startswith(("constrained", "list[", "literal", "float", "int")) and part not in tags
        )
        if item["type"] == "extra_forbidden":
            key = str(item["loc"][-1])
            nearest = "it is a key of another part of the file" if key in names else did_you_mean(key, names)
            messages.append(f"{path}: unknown key: {nearest}")
        elif item["type"] == "value_error":
            messages.append(item["msg"].removeprefix("Value error, "))
        else:
            messages.append(
                f"{path}: {item['msg'][0].lower()}{item['msg'][1:]}, got {item['input']!r}".removeprefix(": ")
            )
    return list(dict.fromkeys(messages))
