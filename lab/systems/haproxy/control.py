"""Has a HAProxy with a master (`-W`) load a new configuration: written, and the master told (SIGUSR2); its new worker answers on the socket.

Apart from `system`, since another system whose proxy is a HAProxy loads by it, too.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.systems.haproxy import admin
from lab.systems.system import Loading, Process, write_changed


class MasterControl:
    """A HAProxy with a master (`-W`): a new configuration is tried, written, and the master told (SIGUSR2); its new worker answers on the socket.

    See `lab.systems.system.Control`.
    """

    looks_once_more = False

    def __init__(self, process: Process, config: str, interval_s: float) -> None:
        self._process, self._config, self.interval_s = process, config, interval_s
        self._before = ""

    def started(self) -> Loading | None:
        """It is a HAProxy at once: when it began is not seen."""
        self._before = ""
        return Loading(None, 1) if self._process.pid is not None else None

    def serving(self, loading: Loading) -> bool:
        if self._process.pid is None:
            raise MeasuringError(self._place, "ended before it served", self._process.tail(5) or "it printed nothing")
        worker = admin.serving(self._process)
        return bool(worker) and worker != self._before

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        main, folder = self._process.pid, str(Path(self._config).parent)
        if main is None:
            raise MeasuringError(self._place, "ended before it took a reload", self._process.tail(5))
        self._before = admin.serving(self._process)
        if not write_changed(self._process, {path: text for path, text in files.items() if path.startswith(folder)}):
            return None
        began_s = time.time()
        os.kill(main, signal.SIGUSR2)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        file = self._process.inside(self._config)
        return file.stat().st_size if file is not None and file.exists() else 0

    @property
    def _place(self) -> str:
        return self._process.container.place
