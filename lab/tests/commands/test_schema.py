"""The documented schemas: as the code has them, and as what is recorded and printed keeps them."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from lab.commands import schema
from lab.measure import validity
from lab.model import bottleneck as limits
from lab.model.bottleneck import MAX_OTHERS_CORES
from lab.model.samples import Reason
from lab.model.variants.knobs import Check
from lab.targets.readback import Reading


def accepts(name: str, data: Any) -> None:
    stored = json.loads((schema.FOLDER / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(stored).validate(json.loads(json.dumps(data, allow_nan=False)))


def test_the_stored_schemas_are_those_of_the_code() -> None:
    """`just maintain schema` writes them; a file that nothing makes is one too many."""
    assert {path.stem: path.read_text() for path in schema.FOLDER.iterdir()} == schema.texts()
    for name, each in schema.schemas().items():
        if name not in ("histogram", "usage"):  # lists of a table's columns
            jsonschema.Draft202012Validator.check_schema(each)


def _open_objects(part: Any, place: str) -> Iterator[str]:
    """Where a schema lists an object's keys and would accept one more."""
    if isinstance(part, dict):
        if "properties" in part and part.get("additionalProperties") is not False:
            yield place
        for key, value in part.items():
            yield from _open_objects(value, f"{place}/{key}")
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from _open_objects(value, f"{place}/{number}")


def test_an_object_has_no_key_that_its_schema_does_not_name() -> None:
    """But a plan's own dataclasses, which pydantic lets have more."""
    found = {place for name, schema_of in schema.schemas().items() for place in _open_objects(schema_of, name)}
    assert found == {"plan/$defs/Arm", "run/$defs/Arm", "run/$defs/PlannedAnew"}


def test_every_reason_is_in_the_schema_with_its_meaning() -> None:
    for reason in Reason:
        accepts("reasons", reason.value)
        assert Reason(reason.value) is reason
        assert reason.meaning.endswith(".") and reason.meaning.count(". ") == 0
    with pytest.raises(jsonschema.ValidationError):
        accepts("reasons", "bad-luck")
    environmental = "clock-step steal other-processes uneven event-log clocks"
    assert schema.schemas()["reasons"]["environmental"] == environmental.split()
    for reason, limit in (
        (Reason.STEAL, validity.MAX_STEAL),
        (Reason.OTHER_PROCESSES, MAX_OTHERS_CORES),
        (Reason.RATE_NOT_ACHIEVED, validity.MIN_ACHIEVED),
        (Reason.GENERATOR_SATURATED, limits.BUSY),
    ):
        assert f"{limit * 100:g} %" in reason.meaning, "the numbers in the words are those that are applied"


def test_readings_keep_their_schema() -> None:
    """A key too many is refused."""
    for check in (
        Check(kind="nginx", name="gzip", context="http", value="on"),
        Check(kind="backlog", port=80, value="128"),
        Check(kind="limit", name="Max open files", process="nginx", value="1024", role="backend"),
    ):
        readings = [Reading(check, check.value, ok=True), Reading(check, "absent", ok=False, detail="it is not there")]
        accepts("readback", [reading.as_json() for reading in readings])
        with pytest.raises(jsonschema.ValidationError):
            accepts("readback", [readings[0].as_json() | {"found": "1"}])
