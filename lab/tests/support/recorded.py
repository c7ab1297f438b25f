"""Recorded outputs of the generators, by `<generator>/<case>`: what the parsers are tried on.

`<case>.out` is what the tool printed, verbatim: stdout, then behind a mark stderr, as a run's `raw` holds it. `<case>.json` is the tool's
version, the load, the exit status, and `parsed`: what must be made of it. `record.py` beside them makes both but for `parsed`.
"""

import json
import os
from pathlib import Path
from typing import Any

from lab.generators import Generator, generator
from lab.model.load import Load
from lab.records.tables import STDERR_MARK, join_raw

FOLDER = Path(__file__).parents[1] / "generators" / "testdata" / "generators"
CASES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.out"))


def case(name: str) -> tuple[Generator, str, str, int, Load]:
    """(generator, stdout, stderr, exit status, load)."""
    known = told(name)
    stdout, _, stderr = (FOLDER / f"{name}.out").read_text().partition(STDERR_MARK)
    return generator(name.partition("/")[0]), stdout, stderr, known["exit_status"], Load(**known["load"])


def told(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def keep(name: str, stdout: str, stderr: str, known: dict[str, Any]) -> None:
    """A case that was just recorded."""
    (FOLDER / f"{name}.out").write_text(join_raw(stdout, stderr))
    _write(name, known)


def golden(name: str, parsed: dict[str, Any]) -> dict[str, Any] | None:
    """What was parsed when that was last read and found right; with LAB_GOLDEN=write it is `parsed` from now on."""
    known = told(name)
    if os.environ.get("LAB_GOLDEN") == "write":
        _write(name, {**known, "parsed": parsed})
        return parsed
    return known.get("parsed")


def _write(name: str, known: dict[str, Any]) -> None:
    (FOLDER / f"{name}.json").write_text(json.dumps(known, indent=1) + "\n")
