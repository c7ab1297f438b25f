"""Tells a running router of new routes, and knows when its HAProxy has them: files, a FIFO, the statistics socket.

    started 12 at 1764021001.123456, 1 before it       what router.bash prints of each HAProxy that it starts

The new process answers on the socket as soon as it serves; until then the old one does. Between reloads pass
RELOAD_INTERVAL at least, from start to start (CoalescingSerializingRateLimiter in openshift/router).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping

from lab.base.errors import MeasuringError
from lab.base.files import readable
from lab.systems.haproxy import system as haproxy
from lab.systems.haproxy.system import HOME
from lab.systems.system import Loading, Process, write_changed

CONF, RUN = f"{HOME}/conf", f"{HOME}/run"
TAKEN_S = 30.0
"""For the script to take a reload that it was asked for: it is at most a reload interval's remainder, here of milliseconds."""

_NUMBER_INSIDE = re.compile(r"^NSpid:.*\s(\d+)$", re.MULTILINE)
"""A process's id as its container counts, in /proc/PID/status."""
_STARTED = re.compile(r"^started (\d+) at ([\d.]+),", re.MULTILINE)


class RouterControl:
    """See `lab.systems.system.Control`."""

    looks_once_more = False

    def __init__(self, process: Process, interval_s: float) -> None:
        self._process, self.interval_s, self._place = process, interval_s, process.container.place
        self._seen = 0

    def started(self) -> Loading | None:
        starts = self._starts()
        if len(starts) <= self._seen:
            return None
        self._seen = len(starts)
        return starts[-1]

    def serving(self, loading: Loading) -> bool:
        there = (readable(f"/proc/{pid}/status") for pid in self._process.processes())
        if str(loading.pid) not in (number for status in there for number in _NUMBER_INSIDE.findall(status)):
            fault = f"HAProxy {loading.pid} has ended before it served"
            raise MeasuringError(self._place, fault, self._process.tail(5) or "it printed nothing")
        return haproxy.serving(self._process) == str(loading.pid)

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        self._seen = len(self._starts())
        if not write_changed(self._process, {path: text for path, text in files.items() if path.startswith(CONF)}):
            return None
        main, asked = self._process.pid, False
        deadline = time.monotonic() + TAKEN_S
        while (loading := self.started()) is None:
            asked = asked or self.ask()
            if self._process.pid != main:  # what is written is what it starts with next
                raise MeasuringError(self._place, "ended before it took a reload", self._process.tail(5))
            if time.monotonic() > deadline:
                raise MeasuringError(self._place, f"took no reload within {TAKEN_S:g} s", self._process.tail(5))
            if over.wait(0.002):
                return None
        return loading

    def config_bytes(self) -> int:
        folder = self._process.inside(CONF)
        files = folder.iterdir() if folder is not None and folder.is_dir() else []
        return sum(file.stat().st_size for file in files if not file.name.startswith("."))

    def _starts(self) -> list[Loading]:
        return [Loading(float(began), int(pid)) for pid, began in _STARTED.findall(readable(self._process.stdout))]

    def ask(self) -> bool:
        """A line to the FIFO; False while the script does not have it open: it is about to, or has ended."""
        fifo = self._process.inside(f"{RUN}/reload")
        try:
            writer = os.open(str(fifo), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return os.write(writer, b"reload\n") > 0
        finally:
            os.close(writer)
