"""Shapes, and what the verbs print of the committed runs by them, held against the stored schemas, which have no key more."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError
from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import schema
from lab.commands.verbs import parser
from lab.experiments.verification.verify import VerifiedPair
from lab.records.store import run_names
from lab.report.json import answers, runs, verification
from lab.report.json.shape import JsonKey, JsonShape, read_meanings
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


INNER = JsonShape("Inner", Inner)
OUTER = JsonShape(
    "Outer",
    Outer,
    "title=name size=inner.size left=inner.sides.0 inners",
    JsonKey("asked", None, int | None),
    parts=[INNER],
    left_out=["asked"],
)


def test_a_shape_reads_paths_and_types_and_refuses_an_attribute_and_a_key_that_there_are_not() -> None:
    assert OUTER.plain(Outer("a", None)) == {"title": "a", "size": None, "left": None, "inners": []}
    found = OUTER.plain(Outer("a", Inner(2, (3, 4))), asked=1)
    assert found == {"title": "a", "size": 2.0, "left": 3, "inners": [{"size": 2.0, "sides": [3, 4]}], "asked": 1}
    assert isinstance(found["size"], float) and isinstance(found["left"], int)
    with pytest.raises(KeyError):
        _ = JsonShape("Wrong", Outer, "nmae").model
    with pytest.raises(ValidationError):
        INNER.model.model_validate({"size": 1.0, "sides": None, "more": 1})


def test_every_meaning_is_of_a_key() -> None:
    whole = verification.make_verification_shape(VerifiedPair)
    keys: dict[str, set[str]] = {shape.name: {key.name for key in shape.keys} for shape in (whole, *whole.parts)}
    there = (value for module in (runs, answers, results, verification) for value in vars(module).values())
    for shape in (value for value in there if isinstance(value, JsonShape)):
        keys[shape.name] = {key.name for key in shape.keys}
        for name, about in shape.model.model_json_schema().get("$defs", {}).items():
            keys.setdefault(name, set()).update(about.get("properties", {}))
    keys["shared"] = {key for names in keys.values() for key in names}
    assert [
        (name, told.keys() - keys[name]) for name, told in read_meanings().items() if told.keys() - keys[name]
    ] == []


REFERENCE = Path(__file__).parents[4] / "data" / "reference"
STEADY, DISTURBED = "quick-keepalive", "kill-replicas-2"
SOME = {STEADY, "keepalive-pairs"}
"""Of these with every lane; the others' outputs, minutes in all, with --long."""
VERBS = {
    "result": "table {} --json",
    "comparison": "compare {} --json",
    "gate": "gate {} --max-regression 5% --json",
    "aa": "aa {} --json",
    "capacity": "capacity --rate 1M --run {} --json",
    "used": "table {} --usage --json",
}
"""Schema → the verb that prints by it."""


def told(command: str, run: str) -> Any:
    """What it prints; None where it refuses, as of a run without what it asks for."""
    options = parser().parse_args([word.format(REFERENCE / run) for word in command.split()])
    with redirect_stdout(io.StringIO()) as printed:
        try:
            options.verb(options, Console(quiet=True))
        except UsageError:
            return None
    return json.loads(printed.getvalue())


def holds(name: str, data: Any) -> None:
    """The stored schema accepts it; that its objects are closed is in `commands/test_schema.py`."""
    jsonschema.Draft202012Validator(json.loads((schema.FOLDER / f"{name}.json").read_text())).validate(data)


def test_an_output_keeps_its_schema() -> None:
    for name, command in VERBS.items():
        holds(name, told(command, STEADY))
    found = told(VERBS["result"], DISTURBED)
    assert found["outcomes"]["rows"]
    holds("result", found)


@pytest.mark.committed
@pytest.mark.parametrize(
    "run", [pytest.param(name, marks=[] if name in SOME else [pytest.mark.long]) for name in run_names(REFERENCE)]
)
def test_every_output_of_every_committed_run_keeps_its_schema(run: str) -> None:
    found = {name: told(command, run) for name, command in VERBS.items()}
    assert found["result"] is not None
    for name, data in found.items():
        if data is not None:
            holds(name, data)
