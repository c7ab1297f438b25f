"""Has a running nginx load a new configuration as ingress-nginx does: tried first (`nginx -t`), written, told (SIGHUP).

What serves is told by the titles that nginx gives its processes: a worker has its title when its event loop begins, and
another one from when it shuts down. Between two looks at the routes pass 1 / sync-rate-limit seconds at least (0.3 per
second, pkg/flags/flags.go), and one that was waited for is looked at once more (internal/task/queue.go). The controller
sends endpoints to its Lua balancer instead of reloading, by the same queue; this nginx has none, and reloads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.base.files import readable
from lab.systems.system import Loading, Process, bytes_of, pid_of, write_changed

_MASTER, _WORKER = "nginx: master process", "nginx: worker process"
TRY_S = 60.0


class NginxControl:
    """See `lab.systems.system.Control`."""

    looks_once_more = True

    def __init__(self, process: Process, config: str, syncs_per_s: float, program: str = "nginx") -> None:
        self._process, self._config, self.interval_s, self._program = process, config, 1 / syncs_per_s, program
        self._place = process.container.place
        self._main: int | None = None
        self._before: frozenset[int] = frozenset()
        self._workers = 1

    def started(self) -> Loading | None:
        """When it began can be told only if it was looked at before the main process became nginx."""
        pid = self._process.pid
        if pid is None:
            return None
        if readable(f"/proc/{pid}/comm").strip() != "nginx":
            self._main = pid
            return None
        self._before, self._workers = frozenset(), 1
        return Loading(time.time() if self._main == pid else None, 1)

    def serving(self, loading: Loading) -> bool:
        pid = pid_of(self._process, "served")
        if not _title(pid).startswith(_MASTER):
            return False
        fresh = [_title(child) for child in _children(pid) if child not in self._before]
        return fresh.count(_WORKER) == len(fresh) >= self._workers

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        text, pid = files[self._config], pid_of(self._process, "took a reload")
        file = self._process.inside(self._config)
        if file is None or file.read_text() == text or not self._try(file, text, over):
            return None
        self._before = frozenset(_children(pid))
        self._workers = max(1, sum(_title(child) == _WORKER for child in self._before))
        write_changed(self._process, {self._config: text})
        began_s = time.time()
        os.kill(pid, signal.SIGHUP)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        return bytes_of(self._process, [self._config])

    def _try(self, file: Path, text: str, over: threading.Event) -> bool:
        """As the controller tries a configuration, in the container; what fails leaves the old one at work.

        False: it was `over` before that was known. What was started has ended in any case.
        """
        tried = file.with_name("tried.conf")
        tried.write_text(text)
        tried.chmod(0o644)
        command = [self._program, "-t", "-q", "-c", str(Path(self._config).with_name(tried.name))]
        deadline = time.monotonic() + TRY_S
        with tempfile.TemporaryFile() as output:
            try:
                trial = self._process.run_pinned(command, output.fileno())
                while trial.poll() is None and time.monotonic() < deadline and not over.is_set():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        trial.wait(0.02)
                if late := trial.poll() is None:
                    self._process.end_entered(trial)
            except ProcessLookupError as error:
                raise MeasuringError(self._place, f"nginx -t: {error}", self._process.tail(5)) from None
            finally:
                tried.unlink()
            if over.is_set():
                return False
            if late:
                remedy = self._process.tail(5) or "the old one stays"
                raise MeasuringError(self._place, f"nginx -t: did not end within {TRY_S:g} s", remedy)
            if trial.returncode:
                output.seek(0)
                said = output.read().decode(errors="replace").strip().splitlines()
                fault = f"nginx -t refuses the new configuration: {said[0] if said else ''}"
                raise MeasuringError(self._place, fault, "the old one stays")
        return True


def _title(pid: int) -> str:
    return readable(f"/proc/{pid}/cmdline").split("\0", 1)[0].strip()


def _children(pid: int) -> list[int]:
    return [int(child) for child in readable(f"/proc/{pid}/task/{pid}/children").split()]
