"""A reload that makes new workers of the configuration that a proxy has: asked for as its controller asks, and read back by its processes.

Two generations of workers may differ though nothing else does (LuaJIT compiles other traces in each). Refuses to go on with some of the old
ones: what is measured next would be of both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

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


def renewed(
    ask: Callable[[], None], serving: Callable[[], list[int]], answers: Callable[[], bool], said: Callable[[], str]
) -> Renewed:
    """Until as many processes of `serving` have begun as have ended, twice in a row, and it `answers`. MeasuringError after MOST_S."""
    before, began_s = frozenset(serving()), time.monotonic()
    ask()
    last = before
    while True:
        now = frozenset(serving())
        fresh, gone = now - before, before - now
        if fresh and len(fresh) == len(gone) and now == last and answers():
            took_s = time.monotonic() - began_s
            return Renewed(began=tuple(sorted(fresh)), ended=tuple(sorted(gone)), took_s=took_s)
        if time.monotonic() > began_s + MOST_S:
            fault = (
                f"{len(fresh)} processes began and {len(gone)} of {len(before)} ended within {MOST_S:g} s of a reload"
            )
            raise MeasuringError("the proxy's workers", fault, said() or "nothing was logged")
        last = now
        time.sleep(LOOK_S)
