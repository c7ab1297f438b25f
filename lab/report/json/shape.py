"""The conversion of objects to JSON, and the JSON schemas. A `JsonShape` lists the keys with which a type is printed.

    JsonShape("Side", CellStats, "run arm median=level.value", JsonKey("blocks", lambda side: len(side.values), int))

A key that is written as a word reads the attribute of this name. A key with a path (`median=level.value`) reads the attribute at
the end of the path, and is null if anything on the path is None. Either key has the type of its attribute. A pydantic model is
made from the keys. It converts the object, and gives the schema. Values of types without a shape are printed as pydantic prints
them. The meanings of the keys are in meanings.toml. Numbers are neither scaled nor rounded. A value that is not known is null;
`JsonShape.left_out` has the exceptions.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model, model_validator

DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
MEANINGS = Path(__file__).with_name("meanings.toml")


@dataclass(frozen=True, slots=True)
class JsonKey:
    """One key of a JSON shape (a description of printed JSON), and how to read its value from the object to print.

    Attributes:
        name: The key.
        read: A path of attributes (`level.value`), or a function of the object. None: the value does not come from the object, but is
            passed as an argument when JSON is printed.
        kind: The type of the value. None: the type of the attribute at the end of the path.
        then: A function that is applied to a value read by a path, unless the value is None.

    """

    name: str
    read: str | Callable[[Any], Any] | None = None
    kind: Any = None
    then: Callable[[Any], Any] | None = None

    def value(self, source: Any) -> Any:
        """Return the value of this JSON key for an object; None for a key whose value does not come from the object."""
        if not isinstance(self.read, str):
            return self.read and self.read(source)
        value = reduce(_get_attribute, self.read.split("."), source)
        return value if self.then is None or value is None else self.then(value)


class JsonShape:
    """The description of how one type is printed as JSON: which keys it gets, and where their values come from.

    Without any keys, all fields of the type are printed.
    """

    def __init__(
        self,
        name: str,
        source: Any,
        *keys: str | JsonKey,
        parts: Sequence[JsonShape] = (),
        title: str = "",
        left_out: Sequence[str] = (),
    ) -> None:
        """Describe a shape. Its pydantic model is created when it is first used.

        Args:
            name: The name of the model, and of the shape's table in meanings.toml.
            source: The type to print; None if no value comes from an object, so that all are passed as arguments when JSON is printed.
            *keys: The keys in their order. A text has one key or several, separated by spaces, each as `key` or `key=path`.
            parts: The shapes of the types that the type contains.
            title: The title of the JSON schema, for the shape of an entire output.
            left_out: The keys of an entire output that are left out if their value is None.

        """
        self.name, self.source, self.parts, self.title, self.left_out = name, source, parts, title, left_out
        self.keys: list[JsonKey] = []
        for key in keys or [field.name for field in fields(source)]:
            if isinstance(key, JsonKey):
                self.keys.append(key)
            else:
                names_and_paths = (text.partition("=") for text in key.split())
                self.keys += [JsonKey(name, path or name) for name, _, path in names_and_paths]

    @cached_property
    def model(self) -> type[Printed]:
        """The pydantic model that this JSON shape creates from its keys; it converts an object to JSON."""
        views = {part.source: part for part in self.parts}
        descriptions = read_meanings()["shared"] | read_meanings().get(self.name, {})
        definitions: dict[str, Any] = {}
        for key in self.keys:
            default = None if key.name in self.left_out else ...
            kind = key.kind
            if kind is None and isinstance(key.read, str):
                kind = reduce(_get_attribute_type, key.read.split("."), self.source)
            definitions[key.name] = (
                _replace_types(kind, views),
                Field(default=default, description=descriptions.get(key.name)),
            )
        model = create_model(self.name, __base__=Printed, __doc__=self.source and self.source.__doc__, **definitions)
        model.shape = self
        return model

    def read(self, source: Any, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return an object's values by the keys of this JSON shape: key → value, not yet converted to JSON.

        Args:
            source: The object.
            given: Key → value, for values that do not come from the object, or that replace those that do.

        """
        values = given or {}
        return {key.name: values[key.name] if key.name in values else key.value(source) for key in self.keys}

    def plain(self, source: Any = None, **given: Any) -> dict[str, Any]:
        """Return an object as plain JSON data (mappings, lists, texts, numbers), with the keys in the order of the shape.

        Args:
            source: The object; None if all values are given.
            **given: Values by key that do not come from the object.

        """
        printed = self.model.model_validate(self.read(source, given)).model_dump(mode="json")
        return {name: value for name, value in printed.items() if value is not None or name not in self.left_out}

    def dumps(self, source: Any = None, **given: Any) -> str:
        """Return an object as JSON text.

        Args:
            source: The object; None if all values are given.
            **given: Values by key that do not come from the object.

        """
        return dumps(self.plain(source, **given))

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of an entire output with this shape."""
        return DIALECT | self.model.model_json_schema() | {"title": self.title}


class Printed(BaseModel):
    """The base class of the pydantic models that shapes create. A model reads an object of the shape's type, and refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    shape: ClassVar[JsonShape]

    @model_validator(mode="before")
    @classmethod
    def _read_source(cls, value: Any) -> Any:
        source = cls.shape.source
        return cls.shape.read(value) if source is not None and isinstance(value, source) else value


def dumps(value: Any) -> str:
    """Return a value of any type as indented JSON text."""
    return json.dumps(TypeAdapter(Any).dump_python(value, mode="json"), indent=1)


def optional_type(*shapes: JsonShape) -> Any:
    """Return the type (for a pydantic model) of a value that is printed with one of these shapes, or is None."""
    return reduce(or_, (shape.model for shape in shapes), NoneType)


def list_type(shape: JsonShape) -> Any:
    """Return the type (for a pydantic model) of a list whose items are printed with this shape."""
    return tuple.__class_getitem__((shape.model, ...))


def _get_attribute(value: Any, name: str) -> Any:
    """Return an attribute of a value, or an item of a tuple if the name is a number; None if the value is None."""
    if value is None:
        return None
    return value[int(name)] if name.isdigit() else getattr(value, name)


def _get_attribute_type(owner: Any, name: str) -> Any:
    """Return the type of an attribute, or of an item of a tuple if the name is a number (see `_get_attribute`).

    Args:
        owner: The type of the value that has the attribute or item. If this type allows None, the returned type allows None, too.
        name: The name of the attribute, or the number of the item.

    """
    members = get_args(owner) if get_origin(owner) in (Union, UnionType) else (owner,)
    (present,) = (member for member in members if member is not NoneType)
    kind: Any
    if name.isdigit():
        items = get_args(present)
        kind = items[0] if items[-1] is Ellipsis else items[int(name)]
    elif isinstance(attribute := getattr(present, name, None), property):
        kind = get_type_hints(attribute.fget)["return"]
    else:
        kind = (
            present.model_fields[name].annotation if issubclass(present, BaseModel) else get_type_hints(present)[name]
        )
    return kind if len(members) == 1 else kind | None


def _replace_types(kind: Any, views: Mapping[Any, JsonShape]) -> Any:
    """Replace in a type each type that has a shape by the pydantic model of that shape, and return the result.

    Args:
        kind: The type, for example `tuple[StudyCell, ...]`.
        views: Type → its shape.

    """
    origin, parts = get_origin(kind), get_args(kind)
    if not parts or origin is Literal:
        return views[kind].model if kind in views else kind
    printed = [_replace_types(part, views) for part in parts]
    return reduce(or_, printed) if origin in (Union, UnionType) else origin[tuple(printed)]


@cache
def read_meanings() -> dict[str, dict[str, str]]:
    """Return the meanings of JSON keys from meanings.toml: name of a JSON shape → key → meaning in words.

    The entry `shared` has meanings for all shapes. A shape's own entry has precedence.
    """
    return tomllib.loads(MEANINGS.read_text("utf-8"))
