"""A reload that makes new workers of the configuration that a proxy has: how it is asked for, and read back by the proxy's processes.

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
from lab.systems.system import Process, Renew

NONE = ("no reload of this proxy makes new workers", "leave `generations` out of the point, or measure another proxy")
MOST_S, LOOK_S = 75.0, 0.03
"""nginx gives a connection that never said anything a minute (client_header_timeout), in which its worker does not end."""

AGAIN_S = 20.0
"""A reload of which nothing has come by then is asked for again: on a busy machine HAProxy's master was seen to take a signal and do nothing. Should
both come after all, the second changes processes under a load, whose sample is invalid then.
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A process: who started it, and what the kernel calls it."""

    parent: int
    name: str


def master(found: Mapping[int, Running], called: str) -> int | None:
    """The process of that name that none of that name started; None where there is none."""
    named = {pid: one.parent for pid, one in found.items() if one.name == called}
    return next((pid for pid, parent in named.items() if parent not in named), None)


def renewed(
    ask: Callable[[], None],
    serving: Callable[[], Mapping[int, Running]],
    answers: Callable[[], bool],
    said: Callable[[], str],
    look_s: float = LOOK_S,
) -> Renewed:
    """Until new processes of `serving` are there, none of the old ones beside them, twice in a row, and it `answers`. MeasuringError after
    MOST_S.
    """
    before, began_s = frozenset(serving()), time.monotonic()
    ask()
    last, asked_s = before, began_s
    while True:
        found = serving()
        now = frozenset(found)
        fresh, gone, old = now - before, before - now, _old(found, before)
        if fresh and gone and not old and now == last and answers():
            took_s = time.monotonic() - began_s
            return Renewed(began=tuple(sorted(fresh)), ended=tuple(sorted(gone)), took_s=took_s)
        if not fresh and time.monotonic() > asked_s + AGAIN_S:
            ask()
            asked_s = time.monotonic()
        if time.monotonic() > began_s + MOST_S:
            fault = f"{len(fresh)} processes began, {len(gone)} ended and {len(old)} old ones stayed within {MOST_S:g} s of a reload"
            raise MeasuringError("the proxy's workers", fault, said() or "nothing was logged")
        last = now
        time.sleep(look_s)


def _old(found: Mapping[int, Running], before: Collection[int]) -> list[int]:
    """Those of before that are what new ones are: called the same, and none that started one (a master, a router's script)."""
    fresh = [pid for pid in found if pid not in before]
    names, starters = {found[pid].name for pid in fresh}, set[int]()
    for pid in fresh:
        while (pid := found[pid].parent if pid in found else 0) and pid not in starters:
            starters.add(pid)
    return [pid for pid in found if pid in before and found[pid].name in names and pid not in starters]


def running(pids: Iterable[int]) -> dict[int, Running]:
    """Those of them that are still there."""
    found: dict[int, Running] = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            name, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rsplit(")", 1)
            found[pid] = Running(int(rest.split()[1]), name)
    return found


def by_signal(number: int, called: str = "") -> Renew:
    """Of a proxy whose main process makes new workers when it is told so; `called`: beside a controller, as the kernel calls it."""

    def renew(process: Process) -> None:
        pid = master(running(process.processes()), called) if called else process.pid
        if pid is None:
            raise MeasuringError(process.container.place, "ended before it took a reload", process.tail(5))
        os.kill(pid, number)

    return renew
