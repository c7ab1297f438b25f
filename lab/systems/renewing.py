"""A reload of a proxy: by what its files say now, which it watches or is told of (`WatchedFiles`), or of the configuration that it has, which makes new
workers (`renewed`), read back by the proxy's processes.

Two generations of workers may differ though nothing else does (LuaJIT compiles other traces in each). Refuses to go on with some of the old
ones: what is measured next would be of both.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.base.files import readable
from lab.model.pairs import Renewed
from lab.systems.system import Loading, Process, Renew, bytes_of, write_changed

TAKES_S = 30.0
"""By then what was written is served, or never."""


class WatchedFiles:
    """See `lab.systems.system.Control`; what was in flight goes on.

    `served`: whether the proxy says that it serves these files, path → text; raises OSError, ValueError while it cannot be asked.
    """

    looks_once_more = False

    def __init__(
        self,
        process: Process,
        program: str,
        watched: Callable[[str], bool],
        served: Callable[[Mapping[str, str]], bool],
        interval_s: float = 0.0,
        told: signal.Signals | None = None,
    ) -> None:
        """`program`: as its main process is called; `watched`: whether a file is; `told`: by which signal, where it does not look by itself."""
        self._process, self._program, self._watched, self._served = process, program, watched, served
        self.interval_s, self._told = interval_s, told
        self._files: Mapping[str, str] = process.started.files
        self._main: int | None = None

    def started(self) -> Loading | None:
        pid = self._process.pid
        if pid is None or readable(f"/proc/{pid}/comm").strip() != self._program[:15]:
            self._main = pid
            return None
        return Loading(time.time() if self._main == pid else None, 1)

    def serving(self, loading: Loading) -> bool:
        try:
            found = self._served({path: text for path, text in self._files.items() if self._watched(path)})
        except (OSError, ValueError):
            found = False
        if not found and loading.began_s is not None and time.time() - loading.began_s > TAKES_S:
            fault = f"does not serve what it was told {TAKES_S:g} s ago"
            raise MeasuringError(self._process.container.place, fault, self._process.tail(5) or "it printed nothing")
        return found

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        began_s = time.time()
        changed = {path: text for path, text in files.items() if self._watched(path)}
        if over.is_set() or not write_changed(self._process, changed):
            return None
        self._files = files
        if self._told is not None and (pid := self._process.pid) is not None:
            os.kill(pid, self._told)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        return bytes_of(self._process, filter(self._watched, self._files))


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
