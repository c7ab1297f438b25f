"""Shapes: what they read, and that what is said of their keys is of keys that there are."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from lab.report.json import answers, runs
from lab.report.json.shape import Key, Shape, meanings
from lab.studies import results


@dataclass(frozen=True)
class Inner:
    size: float
    sides: tuple[int, int] | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner | None

    @property
    def inners(self) -> list[Inner]:
        return [self.inner] if self.inner else []


INNER = Shape("Inner", Inner)
OUTER = Shape(
    "Outer",
    Outer,
    "title=name size=inner.size left=inner.sides.0 inners",
    Key("asked", None, int | None),
    parts=[INNER],
    left_out=["asked"],
)


def test_a_path_ends_in_null_and_numbers_have_the_type_of_their_attribute() -> None:
    assert OUTER.plain(Outer("a", None)) == {"title": "a", "size": None, "left": None, "inners": []}
    found = OUTER.plain(Outer("a", Inner(2, (3, 4))), asked=1)
    assert found == {"title": "a", "size": 2.0, "left": 3, "inners": [{"size": 2.0, "sides": [3, 4]}], "asked": 1}
    assert isinstance(found["size"], float) and isinstance(found["left"], int)


def test_a_shape_refuses_an_attribute_and_a_key_that_there_are_not() -> None:
    with pytest.raises(KeyError):
        _ = Shape("Wrong", Outer, "nmae").model
    with pytest.raises(ValidationError):
        INNER.model.model_validate({"size": 1.0, "sides": None, "more": 1})


def test_every_meaning_is_of_a_key() -> None:
    keys: dict[str, set[str]] = {}
    there = (value for module in (runs, answers, results) for value in vars(module).values())
    for shape in (value for value in there if isinstance(value, Shape)):
        keys[shape.name] = {key.name for key in shape.keys}
        for name, about in shape.model.model_json_schema().get("$defs", {}).items():
            keys.setdefault(name, set()).update(about.get("properties", {}))
    keys["shared"] = {key for names in keys.values() for key in names}
    assert [(name, told.keys() - keys[name]) for name, told in meanings().items() if told.keys() - keys[name]] == []
