"""How long the lab takes to say something that needs no measuring: `lab list`, and the table of a committed run.

`cold`: nothing is compiled, as on the first start after installing (an empty PYTHONPYCACHEPREFIX). By hand there is nothing that
does this; the bare interpreter beside it is what no Python program can be faster than.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from lab.analysis.selfbench import Report, Row, compared
from lab.base.errors import MeasuringError
from lab.base.files import reference_folder
from lab.experiments.selfbench.process import Timed, last_words, timed
from lab.records.store import run_names
from lab.targets.common.process import scratch

REPEATS = 6
PYTHON = "by hand: Python alone"


def start_up(repeats: int = REPEATS) -> Report:
    """`lab list` cold and warm, `lab table` of the first committed run. MeasuringError when one of them fails."""
    rows = [
        _row("lab list, nothing compiled", ["list"], repeats, cold=True),
        _row("lab list", ["list"], repeats),
    ]
    committed = run_names(reference_folder())
    if not committed:
        return Report(rows=tuple(rows), notes=(f"lab table: there is no run in {reference_folder()}",))
    rows.append(_row(f"lab table {committed[0]}", ["table", str(reference_folder() / committed[0])], repeats))
    return Report(rows=tuple(rows))


def _row(what: str, arguments: Sequence[str], repeats: int, cold: bool = False) -> Row:
    lab: list[float] = []
    bare: list[float] = []
    if not cold:
        _started(["-m", "lab", *arguments])  # the first one fills caches
    for _ in range(repeats):
        with scratch() as folder:
            env = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)} if cold else None
            lab.append(_started(["-m", "lab", *arguments], env).wall_s)
        with scratch() as folder:
            env = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)} if cold else None
            bare.append(_started(["-c", "pass"], env).wall_s)
    return compared("start-up", what, "s", lab, bare, PYTHON)


def _started(arguments: Sequence[str], env: dict[str, str] | None = None) -> Timed:
    done = timed([sys.executable, *arguments], env, 300.0)
    if done.status not in (0, 1):  # 1: a committed table may have an incomplete cell
        raise MeasuringError(f"selfbench: {' '.join(arguments)}", last_words(done))
    return done
