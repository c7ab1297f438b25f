"""Recorded outputs of the generators, by `<generator>/<case>`: what the parsers are tried on.

`<generator>.out` has them verbatim, each behind a line `#### <case>` and before an empty one: stdout, then behind a mark stderr, as a run's
`raw` holds it. `<generator>.json` has of each the tool's version, the load, the exit status, and `parsed`: what must be made of it.
`record.py` beside them makes all but `parsed`. A text `<case>.requests` is the table that the log of a case becomes.
"""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from lab.generators import GENERATORS, Generator, get_generator
from lab.model.load import GeneratorLoad
from lab.records.tables import STDERR_MARK, join_raw

FOLDER = Path(__file__).parents[1] / "generators" / "testdata" / "generators"
_HEAD = re.compile(r"^#### (\S+)\n", re.MULTILINE)


@cache
def _texts(tool: str) -> dict[str, str]:
    _, *parts = _HEAD.split((FOLDER / f"{tool}.out").read_text())
    return {name: text.removesuffix("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


@cache
def _cases(tool: str) -> dict[str, dict[str, Any]]:
    return json.loads((FOLDER / f"{tool}.json").read_text())


CASES = [f"{tool}/{name}" for tool in GENERATORS for name in _cases(tool)]


def case(name: str) -> tuple[Generator, str, str, int, GeneratorLoad]:
    """(generator, stdout, stderr, exit status, load)."""
    known = told(name)
    stdout, _, stderr = text(name).partition(STDERR_MARK)
    return get_generator(name.partition("/")[0]), stdout, stderr, known["exit_status"], GeneratorLoad(**known["load"])


def told(name: str) -> dict[str, Any]:
    tool, _, case_name = name.partition("/")
    return _cases(tool)[case_name]


def text(name: str) -> str:
    tool, _, case_name = name.partition("/")
    return _texts(tool).get(case_name, "")


def keep(name: str, stdout: str, stderr: str, known: dict[str, Any]) -> None:
    keep_text(name, join_raw(stdout, stderr))
    _keep_told(name, known)


def keep_text(name: str, content: str) -> None:
    tool, _, case_name = name.partition("/")
    texts = _texts(tool)
    texts[case_name] = content
    (FOLDER / f"{tool}.out").write_text("".join(f"#### {each}\n{texts[each]}\n" for each in sorted(texts)))


def golden(name: str, parsed: dict[str, Any]) -> dict[str, Any] | None:
    """What was parsed when that was last read and found right; with LAB_GOLDEN=write it is `parsed` from now on."""
    known = told(name)
    if os.environ.get("LAB_GOLDEN") == "write":
        _keep_told(name, {**known, "parsed": parsed})
        return parsed
    return known.get("parsed")


def _keep_told(name: str, known: dict[str, Any]) -> None:
    tool, _, case_name = name.partition("/")
    cases = _cases(tool)
    cases[case_name] = known
    (FOLDER / f"{tool}.json").write_text(json.dumps(dict(sorted(cases.items())), indent=1) + "\n")
