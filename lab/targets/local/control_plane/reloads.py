"""One proxy container's queue of changes: what waits is one reload, no sooner after the last than its image allows.

Writes down when each was begun (`Reload`) and when the new configuration served (`Reloaded`). Refuses to judge a reload
that failed: the fault is kept for whoever asks (`check`), the proxy goes on with what it had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from lab.base.errors import LabError, MeasuringError
from lab.model.events import EventLog
from lab.systems.system import Control, Loading
from lab.targets.local.kubelet.containers import Process

LOOK_S, REST_S = 0.003, 0.02
"""Between two looks while something loads, and while nothing does: so much may a time be late."""
ENDED_S = 0.5
"""Until it is known that a container has ended, at most."""


class Follower:
    """In a thread of its own from `start` to `end`. `wanted`: what the container is to load now, path → text.

    `once`: it rests when the first configuration serves.
    """

    def __init__(
        self,
        pod: str,
        process: Process,
        control: Control,
        wanted: Callable[[], Mapping[str, str]],
        log: EventLog,
        once: bool = False,
    ) -> None:
        self.pod, self.process = pod, process
        self._control, self._wanted, self._log, self._once = control, wanted, log, once
        self._changed, self._over = threading.Event(), threading.Event()
        self._main: int | None = None
        self._last = float("-inf")
        self._thread = threading.Thread(target=self._run, name=f"reloads-{pod}", daemon=True)
        self.load_s: float | None = None
        """From the last start or reload until it served; None while it does not, or where its begin was not seen."""
        self._served = False
        self.fault: LabError | None = None

    def start(self) -> None:
        self._thread.start()

    def changed(self) -> None:
        self._changed.set()

    def end(self) -> None:
        self._over.set()

    def join(self) -> None:
        """Until its thread has ended."""
        self._thread.join()

    @property
    def left(self) -> bool:
        """Whether it was told to end."""
        return self._over.is_set()

    def config_bytes(self) -> int:
        return self._control.config_bytes()

    def _run(self) -> None:
        while not (self._once and self._served) and not self._over.wait(REST_S):
            try:
                self._look()
            except OSError as error:
                self._fail(MeasuringError(self.process.container.place, f"its routes: {error}", ""))
            except LabError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - ended unheard, no later change would reach the proxy
                self.fault = self.fault or MeasuringError(self.process.container.place, f"its routes: {error!r}", "")

    def _fail(self, error: LabError) -> None:
        """Unless its container ended, which is no fault of a reload's; that is known a moment later."""
        if not self._over.wait(ENDED_S) and self.process.pid == self._main:
            self.fault = self.fault or error

    def _look(self) -> None:
        if self.process.pid != self._main:
            self._main, self.load_s = self.process.pid, None
            if self._main is not None:
                self._changed.set()  # what came while it was being started, it may not have
                self._begin()
        elif self._main is not None and self._changed.is_set():
            self._turn()

    def _begin(self) -> None:
        """It was started: its first configuration is a load, too, and the next comes an interval later."""
        while (loading := self._control.started()) is None:
            if self.process.pid != self._main or self._over.wait(LOOK_S):
                return
        self._last = time.monotonic() - (0.0 if loading.began_s is None else time.time() - loading.began_s)
        self._served = self._serve(loading)

    def _turn(self) -> None:
        waits_s = self._last + self._control.interval_s - time.monotonic()
        if self._control.looks_once_more:
            self._changed.clear()
        if self._over.wait(max(0.0, waits_s)) or self.process.pid != self._main:
            return
        if not self._control.looks_once_more:
            self._changed.clear()
        before = self._last
        self._last = time.monotonic()
        loading = self._control.load(self._wanted(), self._over)
        if loading is not None:
            self._log.add("proxy", "Reload", self.pod, f"pid {loading.pid}", "proxy", loading.began_s)
            if self._serve(loading):
                self._log.add("proxy", "Reloaded", self.pod, f"pid {loading.pid}", "proxy")
        elif not self._control.looks_once_more:
            self._last = before  # nothing new: no turn was taken

    def _serve(self, loading: Loading) -> bool:
        """False when it was ended before it served."""
        while not self._control.serving(loading):
            if self.process.pid != self._main or self._over.wait(LOOK_S):
                return False
        self.load_s = time.time() - loading.began_s if loading.began_s is not None else None
        self.process.confine()  # its new processes may have chosen CPUs of their own
        return True
