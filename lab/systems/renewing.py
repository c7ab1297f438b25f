"""Two kinds of a proxy's reload: of changed files, and of an unchanged configuration.

The first kind (`WatchedFiles`) is for proxies that watch their files or get a signal after a change. The second kind
(`wait_for_new_workers`) replaces all worker processes by new ones. Old and new workers may perform differently even with equal
configurations, because LuaJIT, for example, compiles other traces in each process. So a reload that leaves some old workers is
refused: the next measurement would be of both.
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
from lab.base.files import read_text_if_readable
from lab.model.pairs import Renewed
from lab.systems.system import ContainerProcess, Loading, Renew, sum_sizes, write_changed

SERVES_WITHIN_S = 30.0
"""The seconds within which a proxy must serve the written files; after that time the lab raises an error."""


class WatchedFiles:
    """The handle (`lab.systems.system.Control`) by which the lab makes a running proxy load changed files, by a graceful reload.

    Such a proxy either watches its files, or loads them on a signal. The proxy completes requests in flight, but lighttpd cuts
    requests that take longer than 8 s.

    Args:
        process: the container of the proxy.
        program: the kernel's name for the proxy's main process.
        watched: a function that returns whether a path belongs to the files that the proxy loads while it runs.
        served: a function that takes these files (path → text) and returns whether the proxy serves them. It raises OSError or
            ValueError while the proxy does not answer.
        interval_s: the minimum time in seconds between two loads.
        reload_signal: the signal that makes the proxy load its files; None for a proxy that watches its files.

    """

    looks_once_more = False

    def __init__(
        self,
        process: ContainerProcess,
        program: str,
        watched: Callable[[str], bool],
        served: Callable[[Mapping[str, str]], bool],
        interval_s: float = 0.0,
        reload_signal: signal.Signals | None = None,
    ) -> None:
        self._process, self._program, self._watched, self._served = process, program, watched, served
        self.interval_s, self._reload_signal = interval_s, reload_signal
        self._files: Mapping[str, str] = process.started.files
        self._main: int | None = None

    def started(self) -> Loading | None:
        """Return when the proxy began to load its first configuration, as a `Loading`; None while the proxy does not run yet.

        At first, a container's main process is a program that prepares the container; later this process becomes the proxy. The
        time is known only if this method was also called before that moment.
        """
        pid = self._process.pid
        if pid is None or read_text_if_readable(f"/proc/{pid}/comm").strip() != self._program[:15]:
            self._main = pid
            return None
        return Loading(time.time() if self._main == pid else None, 1)

    def serving(self, loading: Loading) -> bool:
        """Return whether the proxy serves the latest version of its configuration files.

        Args:
            loading: the loading of these files.

        Raises:
            MeasuringError: when the proxy still does not serve them `SERVES_WITHIN_S` seconds after the loading began. The error
                is not raised if the beginning of the loading is not known.

        """
        try:
            serves = self._served({path: text for path, text in self._files.items() if self._watched(path)})
        except (OSError, ValueError):
            serves = False
        if not serves and loading.began_s is not None and time.time() - loading.began_s > SERVES_WITHIN_S:
            fault = f"does not serve the configuration that it received {SERVES_WITHIN_S:g} s ago"
            raise MeasuringError(self._process.container.place, fault, self._process.tail(5) or "it printed nothing")
        return serves

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Write the changed configuration files into the container, and send the proxy the reload signal if it needs one.

        Args:
            files: path in the container → text; only the files that the proxy loads while it runs are written.
            over: an event that is set when the system ends.

        Returns:
            The loading that began. None if no file has changed, or if `over` is set.

        """
        began_s = time.time()
        changed = {path: text for path, text in files.items() if self._watched(path)}
        if over.is_set() or not write_changed(self._process, changed):
            return None
        self._files = files
        if self._reload_signal is not None and (pid := self._process.pid) is not None:
            os.kill(pid, self._reload_signal)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        """Return the total size in bytes of the configuration files that the proxy loads while it runs."""
        return sum_sizes(self._process, filter(self._watched, self._files))


NOT_RENEWABLE = (
    "no reload of this proxy makes new workers",
    "leave `generations` out of the point, or measure another proxy",
)
MOST_S, LOOK_S = 75.0, 0.03
"""The seconds that a reload may take, and the seconds between two looks at the processes.

nginx gives a connection that never sent anything a minute (client_header_timeout), during which its worker does not end.
"""

AGAIN_S = 20.0
"""The seconds after which a reload without any new process is requested again.

On a busy machine, HAProxy's master has been seen to receive a signal and do nothing. If both reloads happen after all, the
second one changes processes under a load, and that load's sample is invalid.
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A running process in a proxy's container.

    Attributes:
        parent: the id of the parent process.
        name: the kernel's name for the process (as in /proc/PID/comm).

    """

    parent: int
    name: str


def find_master(processes: Mapping[int, Running], called: str) -> int | None:
    """Return the id of a proxy's master process: a process with the proxy's name whose parent has another name.

    The result is None if there is no such process.

    Args:
        processes: id of a process → process.
        called: the kernel's name for the proxy's processes.

    """
    parents = {pid: process.parent for pid, process in processes.items() if process.name == called}
    return next((pid for pid, parent in parents.items() if parent not in parents), None)


def wait_for_new_workers(
    ask: Callable[[], None],
    serving: Callable[[], Mapping[int, Running]],
    answers: Callable[[], bool],
    log_tail: Callable[[], str],
    look_s: float = LOOK_S,
) -> Renewed:
    """Request a reload of the proxy, and wait until new worker processes have replaced all old ones and the proxy answers.

    The reload counts as complete only when two successive looks at the processes find exactly the same ones.

    Args:
        ask: a function that requests the reload.
        serving: a function that returns the proxy's running processes, by their ids.
        answers: a function that returns whether the proxy answers a request.
        log_tail: a function that returns the end of the proxy's log, for the error message.
        look_s: the seconds between two looks at the processes.

    Returns:
        The ids of the processes that began and that ended, and the seconds that the reload took.

    Raises:
        MeasuringError: when the reload takes longer than `MOST_S`.

    """
    before, began_s = frozenset(serving()), time.monotonic()
    ask()
    last, asked_s = before, began_s
    while True:
        processes = serving()
        now = frozenset(processes)
        fresh, gone, old = now - before, before - now, _list_old_workers(processes, before)
        if fresh and gone and not old and now == last and answers():
            return Renewed(began=tuple(sorted(fresh)), ended=tuple(sorted(gone)), took_s=time.monotonic() - began_s)
        if not fresh and time.monotonic() > asked_s + AGAIN_S:
            ask()
            asked_s = time.monotonic()
        if time.monotonic() > began_s + MOST_S:
            fault = f"{len(fresh)} processes began, {len(gone)} ended and {len(old)} old ones stayed within {MOST_S:g} s of a reload"
            raise MeasuringError("the proxy's workers", fault, log_tail() or "nothing was logged")
        last = now
        time.sleep(look_s)


def _list_old_workers(processes: Mapping[int, Running], before: Collection[int]) -> list[int]:
    """Return the ids of the worker processes that still run although they were started before a reload.

    An old worker is a process that existed before the reload and has the same name as a process that began after it. Ancestors of
    a new process are excluded: they are the master, or the wrapper script that starts the proxy.

    Args:
        processes: id of a running process → process.
        before: the ids of the processes before the reload.

    """
    fresh = [pid for pid in processes if pid not in before]
    names, starters = {processes[pid].name for pid in fresh}, set[int]()
    for pid in fresh:
        while (pid := processes[pid].parent if pid in processes else 0) and pid not in starters:
            starters.add(pid)
    return [pid for pid in processes if pid in before and processes[pid].name in names and pid not in starters]


def list_running(pids: Iterable[int]) -> dict[int, Running]:
    """Look up processes by their ids, and return id → process for the processes that still exist.

    A process that has ended is included until its parent process has read its exit status (a zombie).
    """
    processes: dict[int, Running] = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            name, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rsplit(")", 1)
            processes[pid] = Running(int(fields.split()[1]), name)
    return processes


def make_signal_renewal(number: int, called: str = "") -> Renew:
    """Return a function that makes a proxy start new worker processes, by a signal to the proxy's main process.

    Args:
        number: the number of the signal.
        called: the kernel's name for the proxy's processes, if the container also runs a controller. The signal then goes to the
            proxy's master process. Empty: the signal goes to the container's main process.

    """

    def renew(process: ContainerProcess) -> None:
        pid = find_master(list_running(process.processes()), called) if called else process.pid
        if pid is None:
            raise MeasuringError(process.container.place, "ended before it took a reload", process.tail(5))
        os.kill(pid, number)

    return renew
