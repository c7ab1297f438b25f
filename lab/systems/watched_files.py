"""Has a proxy take a new configuration from its files, which it watches or is told of, and tells by its admin interface which version it serves.

What was in flight goes on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping

from lab.base.errors import MeasuringError
from lab.base.files import readable
from lab.systems.system import Loading, Process, bytes_of, write_changed

TAKES_S = 30.0
"""By then what was written is served, or never."""


class WatchedFiles:
    """See `lab.systems.system.Control`.

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
