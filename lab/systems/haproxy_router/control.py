"""The handle that makes a running OKD router load new routes, by files, a FIFO and HAProxy's statistics socket.

    started 12 at 1764021001.123456, 1 before it       the line that router.bash prints for each HAProxy process that it starts

The new process answers on the socket as soon as it serves; until then the old process answers. At least RELOAD_INTERVAL passes
between the starts of two reloads (CoalescingSerializingRateLimiter in openshift/router).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping

from lab.base.errors import MeasuringError
from lab.base.files import read_text_if_readable
from lab.systems.haproxy.system import HOME, find_serving_pid
from lab.systems.system import ContainerProcess, Loading, write_changed

CONF, RUN = f"{HOME}/conf", f"{HOME}/run"
TAKEN_S = 30.0
"""The seconds within which the script must begin a requested reload.

The script waits at most for the remainder of the reload interval, which is milliseconds here.
"""

_NUMBER_INSIDE = re.compile(r"^NSpid:.*\s(\d+)$", re.MULTILINE)
"""The form of the line in /proc/PID/status with the id that the process has inside its container."""
_STARTED = re.compile(r"^started (\d+) at ([\d.]+),", re.MULTILINE)


class RouterControl:
    """The handle (`lab.systems.system.Control`) by which the lab makes the HAProxy of OKD's router load changes.

    The script `router.bash`, which replaces the router's own process, starts a new HAProxy for each reload.

    Args:
        process: the container of the router.
        interval_s: the minimum time in seconds between two reloads.

    """

    looks_once_more = False

    def __init__(self, process: ContainerProcess, interval_s: float) -> None:
        self._process, self.interval_s, self._place = process, interval_s, process.container.place
        self._reported = 0

    def started(self) -> Loading | None:
        """Return the start of the newest HAProxy process, as a `Loading`; None if no process was started since the last call."""
        starts = self._read_starts()
        if len(starts) <= self._reported:
            return None
        self._reported = len(starts)
        return starts[-1]

    def serving(self, loading: Loading) -> bool:
        """Return whether the HAProxy process that loads the configuration already answers on the statistics socket.

        Args:
            loading: the loading of the configuration, with the id of that process.

        Raises:
            MeasuringError: when that process has ended.

        """
        statuses = (read_text_if_readable(f"/proc/{pid}/status") for pid in self._process.processes())
        if str(loading.pid) not in (number for status in statuses for number in _NUMBER_INSIDE.findall(status)):
            fault = f"HAProxy {loading.pid} has ended before it served"
            raise MeasuringError(self._place, fault, self._process.tail(5) or "it printed nothing")
        return find_serving_pid(self._process) == str(loading.pid)

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Write the changed configuration files of the router's HAProxy, and request a reload from the router's script.

        Args:
            files: path in the container → text; only files in the folder of the configuration are written.
            over: an event that is set when the system ends; the method then stops waiting.

        Returns:
            The loading that began. None if no file has changed, or if `over` was set first.

        Raises:
            MeasuringError: when the router ends, or does not begin the reload within `TAKEN_S` seconds.

        """
        self._reported = len(self._read_starts())
        if not write_changed(self._process, {path: text for path, text in files.items() if path.startswith(CONF)}):
            return None
        main, requested = self._process.pid, False
        deadline = time.monotonic() + TAKEN_S
        while (loading := self.started()) is None:
            requested = requested or self.ask()
            if self._process.pid != main:  # the next start uses the written files
                raise MeasuringError(self._place, "ended before it took a reload", self._process.tail(5))
            if time.monotonic() > deadline:
                raise MeasuringError(self._place, f"took no reload within {TAKEN_S:g} s", self._process.tail(5))
            if over.wait(0.002):
                return None
        return loading

    def config_bytes(self) -> int:
        """Return the total size in bytes of the router's configuration files and maps."""
        folder = self._process.inside(CONF)
        files = folder.iterdir() if folder is not None and folder.is_dir() else []
        return sum(file.stat().st_size for file in files if not file.name.startswith("."))

    def _read_starts(self) -> list[Loading]:
        return [
            Loading(float(began), int(pid))
            for pid, began in _STARTED.findall(read_text_if_readable(self._process.stdout))
        ]

    def ask(self) -> bool:
        """Request a reload from the router's script by a line to the script's FIFO, and return whether the line was written.

        The line cannot be written while the script does not have the FIFO open: the script opens the FIFO soon, or has ended.
        """
        fifo = self._process.inside(f"{RUN}/reload")
        try:
            writer = os.open(str(fifo), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return os.write(writer, b"reload\n") > 0
        finally:
            os.close(writer)
