"""What the verbs print of the committed runs as JSON, held against the stored schemas, which have no key more."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import schema
from lab.commands.verbs import parser
from lab.records.store import run_names

REFERENCE = Path(__file__).parents[4] / "data" / "reference"
STEADY, DISTURBED = "quick-keepalive", "kill-replicas-2"
SOME = {STEADY, DISTURBED, "keepalive-pairs", "successors-kind", "okd-threads"}
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
