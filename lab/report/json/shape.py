"""One value → JSON, and the schema of it. Which keys a type is printed with is said once, by a `Shape`; all else pydantic prints as it is.

    Shape("Side", CellStats, "run arm median=level.value invalid", Key("blocks", lambda side: len(side.values), int))

A word is a key that is the attribute of its name, or the one at the end of a path (null where anything on it is None), of that attribute's
own type: so a pydantic model is made, which prints it and gives its schema. What keys mean is in meanings.toml. Seconds, bytes,
requests per second, ratios and counts as they are: nothing is scaled or rounded for people, and what is not known is null, never left out.
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
class Key:
    """A key that is read by a path of attributes, or by a function of what is printed; None: only who prints knows it.

    `kind` is its type (None: that of the attribute at the path's end); `then` what is done to its value, unless that is None.
    """

    name: str
    read: str | Callable[[Any], Any] | None = None
    kind: Any = None
    then: Callable[[Any], Any] | None = None

    def value(self, source: Any) -> Any:
        """Return what `source` has under this key; None of a key that only who prints knows."""
        if not isinstance(self.read, str):
            return self.read and self.read(source)
        found = reduce(_attribute, self.read.split("."), source)
        return found if self.then is None or found is None else self.then(found)


class Shape:
    """Which keys the type `source` has as JSON: words and keys in their order; without any, all its fields.

    `source` is None where whoever prints gives every key. `parts` are the shapes of the types that it holds, `left_out` the keys of a
    whole output that it does not have where they are None. Models are made when they are first asked for.
    """

    def __init__(
        self,
        name: str,
        source: Any,
        *keys: str | Key,
        parts: Sequence[Shape] = (),
        title: str = "",
        left_out: Sequence[str] = (),
    ) -> None:
        self.name, self.source, self.parts, self.title, self.left_out = name, source, parts, title, left_out
        self.keys: list[Key] = []
        for word in keys or [field.name for field in fields(source)]:
            if isinstance(word, Key):
                self.keys.append(word)
            else:
                named = (each.partition("=") for each in word.split())
                self.keys += [Key(key, path or key) for key, _, path in named]

    @cached_property
    def model(self) -> type[Printed]:
        """The pydantic model that prints it."""
        views = {part.source: part for part in self.parts}
        about = meanings()["shared"] | meanings().get(self.name, {})
        found: dict[str, Any] = {}
        for key in self.keys:
            default = None if key.name in self.left_out else ...
            kind = key.kind
            if kind is None and isinstance(key.read, str):
                kind = reduce(_attribute_type, key.read.split("."), self.source)
            found[key.name] = _printed_as(kind, views), Field(default=default, description=about.get(key.name))
        made = create_model(self.name, __base__=Printed, __doc__=self.source and self.source.__doc__, **found)
        made.shape = self
        return made

    def read(self, source: Any, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the value of each key, of those in `given` the one there."""
        known = given or {}
        return {key.name: known[key.name] if key.name in known else key.value(source) for key in self.keys}

    def plain(self, source: Any = None, **given: Any) -> dict[str, Any]:
        """Return it as JSON has it, in the order of the keys."""
        found = self.model.model_validate(self.read(source, given)).model_dump(mode="json")
        return {name: value for name, value in found.items() if value is not None or name not in self.left_out}

    def dumps(self, source: Any = None, **given: Any) -> str:
        """Return what a verb prints."""
        return dumps(self.plain(source, **given))

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a whole output."""
        return DIALECT | self.model.model_json_schema() | {"title": self.title}


class Printed(BaseModel):
    """The model of a shape: is filled from the type whose shape it is, and refuses a key that it does not have."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    shape: ClassVar[Shape]

    @model_validator(mode="before")
    @classmethod
    def _from_source(cls, value: Any) -> Any:
        source = cls.shape.source
        return cls.shape.read(value) if source is not None and isinstance(value, source) else value


def dumps(value: Any) -> str:
    """Return any value as the JSON text that a verb prints."""
    return json.dumps(TypeAdapter(Any).dump_python(value, mode="json"), indent=1)


def either(*shapes: Shape) -> Any:
    """Return the type of what has one of these shapes, or is None."""
    return reduce(or_, (shape.model for shape in shapes), NoneType)


def each(shape: Shape) -> Any:
    """Return the type of a list of what has this shape."""
    return tuple.__class_getitem__((shape.model, ...))


def _attribute(value: Any, name: str) -> Any:
    """Go one step of a path; a number is a place in a tuple."""
    if value is None:
        return None
    return value[int(name)] if name.isdigit() else getattr(value, name)


def _attribute_type(owner: Any, name: str) -> Any:
    """Return the type that `_attribute` gives of a value of type `owner`."""
    members = get_args(owner) if get_origin(owner) in (Union, UnionType) else (owner,)
    (known,) = (member for member in members if member is not NoneType)
    found: Any
    if name.isdigit():
        items = get_args(known)
        found = items[0] if items[-1] is Ellipsis else items[int(name)]
    elif isinstance(asked := getattr(known, name, None), property):
        found = get_type_hints(asked.fget)["return"]
    else:
        found = known.model_fields[name].annotation if issubclass(known, BaseModel) else get_type_hints(known)[name]
    return found if len(members) == 1 else found | None


def _printed_as(kind: Any, views: Mapping[Any, Shape]) -> Any:
    """Return a type with the models of these shapes in the place of the types that they are of."""
    origin, parts = get_origin(kind), get_args(kind)
    if not parts or origin is Literal:
        return views[kind].model if kind in views else kind
    printed = [_printed_as(part, views) for part in parts]
    return reduce(or_, printed) if origin in (Union, UnionType) else origin[tuple(printed)]


@cache
def meanings() -> dict[str, dict[str, str]]:
    """Shape → key → what it means; `shared`: of keys that mean the same wherever nothing else is said."""
    return tomllib.loads(MEANINGS.read_text("utf-8"))
