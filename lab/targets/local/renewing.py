"""A reload that makes new workers of the configuration that a proxy has: asked for as its controller asks, and read back by its processes.

Two generations of workers may differ though nothing else does (LuaJIT compiles other traces in each). Refuses to go on with some of the old
ones: what is measured next would be of both.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.model.pairs import Renewed
from lab.targets.local.containers import Process

NONE = ("no reload of this proxy makes new workers", "leave `generations` out of the point, or measure another proxy")
MOST_S, LOOK_S = 30.0, 0.03
Renew = Callable[[Process], None]


def by_signal(number: int) -> Renew:
    """Of a proxy whose main process makes new workers when it is told so."""

    def renew(process: Process) -> None:
        if process.pid is None:
            raise MeasuringError(process.container.place, "ended before it took a reload", process.tail(5))
        os.kill(process.pid, number)

    return renew


@dataclass(frozen=True, slots=True)
class Running:
    """A process: who started it, and what the kernel calls it."""

    parent: int
    name: str


def running(pids: Iterable[int]) -> dict[int, Running]:
    """Those of them that are still there."""
    found: dict[int, Running] = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            name, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rsplit(")", 1)
            found[pid] = Running(int(rest.split()[1]), name)
    return found


def renewed(
    ask: Callable[[], None],
    serving: Callable[[], Mapping[int, Running]],
    answers: Callable[[], bool],
    said: Callable[[], str],
) -> Renewed:
    """Until new processes of `serving` are there, none of the old ones beside them, twice in a row, and it `answers`. MeasuringError after
    MOST_S.
    """
    before, began_s = frozenset(serving()), time.monotonic()
    ask()
    last = before
    while True:
        found = serving()
        now = frozenset(found)
        fresh, gone, old = now - before, before - now, _old(found, before)
        if fresh and gone and not old and now == last and answers():
            took_s = time.monotonic() - began_s
            return Renewed(began=tuple(sorted(fresh)), ended=tuple(sorted(gone)), took_s=took_s)
        if time.monotonic() > began_s + MOST_S:
            fault = f"{len(fresh)} processes began, {len(gone)} ended and {len(old)} old ones stayed within {MOST_S:g} s of a reload"
            raise MeasuringError("the proxy's workers", fault, said() or "nothing was logged")
        last = now
        time.sleep(LOOK_S)


def _old(found: Mapping[int, Running], before: Collection[int]) -> list[int]:
    """Those of before that are what new ones are: called the same, and none that started one (a master, a router's script)."""
    fresh = [pid for pid in found if pid not in before]
    names, starters = {found[pid].name for pid in fresh}, set[int]()
    for pid in fresh:
        while (pid := found[pid].parent if pid in found else 0) and pid not in starters:
            starters.add(pid)
    return [pid for pid in found if pid in before and found[pid].name in names and pid not in starters]
