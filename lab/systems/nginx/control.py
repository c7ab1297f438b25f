"""The handle that makes a running nginx load a new configuration as ingress-nginx does.

The configuration is checked first (`nginx -t`), then written, and then nginx is signalled (SIGHUP). The titles that nginx gives
its processes show which processes serve: a worker gets its title when its event loop begins, and another title when it shuts
down.

At least 1 / sync-rate-limit seconds pass between two checks for changed routes (0.3 per second, pkg/flags/flags.go). After a
check that had to wait, the controller checks once more (internal/task/queue.go). The real controller sends changed endpoints to
its Lua balancer through the same queue, without a reload. This nginx has no Lua, and reloads.
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
from lab.base.files import read_text_if_readable
from lab.systems.system import ContainerProcess, Loading, require_pid, sum_sizes, write_changed

_MASTER, _WORKER = "nginx: master process", "nginx: worker process"
TRY_S = 60.0


class NginxControl:
    """The handle (`lab.systems.system.Control`) by which the lab makes a running nginx load a new configuration.

    Args:
        process: the container of the nginx.
        config: the path of the configuration file in the container.
        syncs_per_s: the maximum number of loads per second.
        program: the program that checks a configuration with `-t`.

    """

    looks_once_more = True

    def __init__(self, process: ContainerProcess, config: str, syncs_per_s: float, program: str = "nginx") -> None:
        self._process, self._config, self.interval_s, self._program = process, config, 1 / syncs_per_s, program
        self._place = process.container.place
        self._main: int | None = None
        self._before: frozenset[int] = frozenset()
        self._workers = 1

    def started(self) -> Loading | None:
        """Return when nginx began to load its first configuration, as a `Loading`; None while nginx does not run yet.

        At first, a container's main process is a program that prepares the container; later this process becomes nginx. The
        time is known only if this method was also called before that moment.
        """
        pid = self._process.pid
        if pid is None:
            return None
        if read_text_if_readable(f"/proc/{pid}/comm").strip() != "nginx":
            self._main = pid
            return None
        self._before, self._workers = frozenset(), 1
        return Loading(time.time() if self._main == pid else None, 1)

    def serving(self, loading: Loading) -> bool:
        """Return whether nginx serves the new configuration with new worker processes.

        All processes that the master has started since the reload must be workers that are ready. Their number must be at least
        the number of workers before the reload.

        Args:
            loading: the loading of the configuration, which is always the last one.

        Raises:
            MeasuringError: when the container has ended.

        """
        pid = require_pid(self._process, "served")
        if not _read_title(pid).startswith(_MASTER):
            return False
        fresh = [_read_title(child) for child in _list_children(pid) if child not in self._before]
        return fresh.count(_WORKER) == len(fresh) >= self._workers

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Check the new configuration of nginx (`nginx -t`), write it, and signal nginx to load it.

        Args:
            files: path in the container → text; only nginx's configuration file is used.
            over: an event that is set when the system ends; the check is then given up.

        Returns:
            The loading that began. None if the configuration has not changed, or if `over` was set first.

        Raises:
            MeasuringError: when `nginx -t` refuses the configuration or does not end in time, or the container has ended.

        """
        text, pid = files[self._config], require_pid(self._process, "took a reload")
        file = self._process.inside(self._config)
        if file is None or file.read_text() == text or not self._try(file, text, over):
            return None
        self._before = frozenset(_list_children(pid))
        self._workers = max(1, sum(_read_title(child) == _WORKER for child in self._before))
        write_changed(self._process, {self._config: text})
        began_s = time.time()
        os.kill(pid, signal.SIGHUP)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        """Return the size of nginx's configuration file in bytes."""
        return sum_sizes(self._process, [self._config])

    def _try(self, file: Path, text: str, over: threading.Event) -> bool:
        """Check a configuration with `nginx -t` inside the container, as the controller does.

        The check uses a temporary copy, and the configuration that nginx runs is not touched. The process of the check has ended when
        this method returns or raises.

        Args:
            file: the configuration file that nginx runs with; the copy is written into its folder.
            text: the configuration to check.
            over: an event that is set when the system ends; the check is then given up.

        Returns:
            True if nginx accepts the configuration; False if `over` was set before the result was known.

        Raises:
            MeasuringError: when nginx refuses the configuration or does not end in time, or the container has ended.

        """
        copy = file.with_name("tried.conf")
        copy.write_text(text)
        copy.chmod(0o644)
        command = [self._program, "-t", "-q", "-c", str(Path(self._config).with_name(copy.name))]
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
                copy.unlink()
            if over.is_set():
                return False
            if late:
                remedy = self._process.tail(5) or "the old one stays"
                raise MeasuringError(self._place, f"nginx -t: did not end within {TRY_S:g} s", remedy)
            if trial.returncode:
                output.seek(0)
                lines = output.read().decode(errors="replace").strip().splitlines()
                fault = f"nginx -t refuses the new configuration: {lines[0] if lines else ''}"
                raise MeasuringError(self._place, fault, "the old one stays")
        return True


def _read_title(pid: int) -> str:
    return read_text_if_readable(f"/proc/{pid}/cmdline").split("\0", 1)[0].strip()


def _list_children(pid: int) -> list[int]:
    return [int(child) for child in read_text_if_readable(f"/proc/{pid}/task/{pid}/children").split()]
