"""How a reload is asked of a proxy's process here, and which processes it has: `lab.targets.common.renewing` waits for new ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.targets.common.renewing import Running, master
from lab.targets.local.containers import Process

Renew = Callable[[Process], None]


def by_signal(number: int, called: str = "") -> Renew:
    """Of a proxy whose main process makes new workers when it is told so; `called`: beside a controller, as the kernel calls it."""

    def renew(process: Process) -> None:
        pid = master(running(process.processes()), called) if called else process.pid
        if pid is None:
            raise MeasuringError(process.container.place, "ended before it took a reload", process.tail(5))
        os.kill(pid, number)

    return renew


def running(pids: Iterable[int]) -> dict[int, Running]:
    """Those of them that are still there."""
    found: dict[int, Running] = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            name, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rsplit(")", 1)
            found[pid] = Running(int(rest.split()[1]), name)
    return found
