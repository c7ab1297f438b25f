"""Has a running Caddy take a new configuration: written, and told (SIGUSR1); its admin interface shows what it serves.

Connections stay: Caddy replaces its servers in the same process. Refuses nothing by itself: what Caddy does not take, it never shows.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping

from lab.base.errors import MeasuringError
from lab.base.files import readable
from lab.targets.common.caddy import CONFIG as SHOWN
from lab.targets.common.caddy import PORT
from lab.targets.local import admin
from lab.targets.local.caddy_conf import CONFIG
from lab.targets.local.containers import Process
from lab.targets.local.images import Loading, write_changed

TAKES_S = 30.0


class CaddyControl:
    """See `lab.targets.local.images.Control`."""

    looks_once_more = False
    interval_s = 0.0

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ask = admin.asking(process.setting.place)
        self._main: int | None = None

    def started(self) -> Loading | None:
        pid = self._process.pid
        if pid is None or readable(f"/proc/{pid}/comm").strip() != "caddy":
            self._main = pid
            return None
        return Loading(time.time() if self._main == pid else None, 1)

    def serving(self, loading: Loading) -> bool:
        file = self._process.inside(CONFIG)
        if file is None:
            raise MeasuringError(self._place, "ended before it served", self._process.tail(5) or "it printed nothing")
        try:
            found = admin.asked_json(self._ask, PORT, SHOWN) == json.loads(file.read_text())
        except (OSError, ValueError):
            found = False
        if not found and loading.began_s is not None and time.time() - loading.began_s > TAKES_S:
            fault = f"does not serve what it was told {TAKES_S:g} s ago"
            raise MeasuringError(self._place, fault, self._process.tail(5) or "it printed nothing")
        return found

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        pid = self._process.pid
        if over.is_set() or pid is None or not write_changed(self._process, files):
            return None
        began_s = time.time()
        os.kill(pid, signal.SIGUSR1)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        file = self._process.inside(CONFIG)
        return file.stat().st_size if file is not None and file.exists() else 0

    @property
    def _place(self) -> str:
        return self._process.container.place
