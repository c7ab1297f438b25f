"""One container kept running: probed, restarted with a kubelet's back-off, ended in time, and all of it written down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lab.model.events import EventLog
from lab.systems.manifests.pods import Container, Pod, Probe
from lab.targets.local.kubelet import probes
from lab.targets.local.kubelet.containers import Process, reap_orphans

BACK_OFF_S, BACK_OFF_MAX_S, BACK_OFF_RESET_S = 10.0, 300.0, 600.0
"""A kubelet's: the first restart at once, then 10 s, 20 s, … up to five minutes; forgotten after ten good minutes."""


CONTAINER = "container"
"""Source of its events, which `control` puts into the words of all targets."""


class Runner:
    """Keeps one container running: starts it, probes it, restarts it with back-off until told to stop.

    `heard` is called, in whatever thread, after `ready` became another. `each_probe`: every attempt of a probe is an event.
    """

    def __init__(
        self,
        pod: Pod,
        process: Process,
        log: EventLog,
        heard: Callable[[], None] = lambda: None,
        each_probe: bool = False,
    ) -> None:
        self.pod, self.process, self._log, self._each_probe = pod, process, log, each_probe
        self.restarts = 0
        self.exited = ""
        self._ready, self._heard = False, heard
        self._stop = threading.Event()
        self._probers: list[tuple[str, probes.Prober]] = []
        self._probing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"run-{pod.name}", daemon=True)

    @property
    def container(self) -> Container:
        return self.process.container

    @property
    def ready(self) -> bool:
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        was, self._ready = self._ready, ready
        if was != ready:
            self._heard()

    def start(self) -> None:
        if self._stop.is_set():
            return
        self.process.start()
        self._event("Started")
        self._thread.start()

    def attempt(self, probe: Probe) -> str | None:
        return probes.check(probe, self.process.setting.place.address, self.process.enter)

    def stop(self, grace_s: float) -> None:
        """End it for good within a grace period, its readiness probed to the end."""
        self._stop.set()
        self._end_probers(but="readiness")
        self._event("Killing", f"grace period {grace_s:g} s")
        self._event("Stopped" if self.process.stop(grace_s) else "Killed")
        self.join()

    def kill(self) -> None:
        """End it for good and at once; `join` waits for what that leaves."""
        self._stop.set()
        self._end_probers()
        self.process.release()
        self.process.kill()

    def join(self) -> None:
        """Of one that was told to end: when this returns, nothing of it runs that had been started, neither a container that its thread
        was just starting again, nor an attempt of a probe.
        """
        if self._thread.is_alive():
            self._thread.join()
        while probers := self._end_probers():  # a startup probe that was just succeeding begins others
            for prober in probers:
                prober.join()
        self.ready = False

    def _run(self) -> None:
        back_off = 0.0
        while True:
            begin = time.monotonic()
            self._begin_probers()
            assert self.process.popen is not None
            self.process.popen.wait()
            self._end_probers()
            self.ready = False
            self.process.kill()  # what it leaves behind ends with it, as in a pod
            reap_orphans()
            self.process.linger()
            if self._stop.is_set():
                return
            self.exited = self.process.ended()
            self._event("Exited", self.exited)
            if time.monotonic() - begin > BACK_OFF_RESET_S:
                back_off = 0.0
            if back_off:
                self._event("BackOff", f"{back_off:g} s")
            if self._stop.wait(back_off):
                return
            back_off = min(max(BACK_OFF_S, 2 * back_off), BACK_OFF_MAX_S)
            self.restarts += 1
            self.process.start()
            self._event("Started", f"restart {self.restarts}")
            if self._stop.is_set():  # told to stop while it was being started
                self.process.kill()
                return

    def _begin_probers(self) -> None:
        startup = self.container.startup
        if startup is None:
            self._probe_health()
            return

        def changed(ok: bool, detail: str) -> None:
            self._end_probers()
            if ok:
                self._event("StartupSucceeded")
                self._probe_health()
            else:
                self._unhealthy("startup", startup, detail)

        self._add("startup", startup, changed)

    def _probe_health(self) -> None:
        readiness, liveness = self.container.readiness, self.container.liveness
        if readiness is None:
            self.ready = True
        else:
            self._add("readiness", readiness, self._readiness)
        if liveness is not None:
            self._add(
                "liveness", liveness, lambda ok, detail: None if ok else self._unhealthy("liveness", liveness, detail)
            )

    def _add(self, kind: str, probe: Probe, changed: probes.Changed) -> None:
        def tried(fault: str | None, seconds: float) -> None:
            if self._each_probe:
                self._event("Probe", f"{kind} {seconds:.4f} {fault or 'ok'}")
            if fault is not None:
                self._event("Unhealthy", f"{kind} probe failed after {seconds:.3f} s: {fault}")

        prober = probes.Prober(probe, attempt=lambda: self.attempt(probe), changed=changed, tried=tried)
        with self._probing:
            if not self._stop.is_set():
                self._probers.append((kind, prober))
                prober.start()

    def confine(self) -> None:
        """Bring threads back that have left the role's CPUs (a proxy may set affinities of its own)."""
        if strays := self.process.confine():
            self._event("Confined", f"{len(strays)} threads had left the role's CPUs")

    def _readiness(self, ok: bool, detail: str) -> None:
        self.ready = ok
        if ok:
            self.confine()
        self._event("Ready" if ok else "NotReady", detail)

    def _unhealthy(self, kind: str, probe: Probe, detail: str) -> None:
        grace_s = self.pod.grace_s if probe.grace_s is None else probe.grace_s
        self._event("Killing", f"{kind} probe failed {probe.failures} times: {detail}; grace period {grace_s} s")
        self.process.stop(grace_s)  # the runner's own thread starts it again

    def _end_probers(self, but: str = "") -> list[probes.Prober]:
        """Those that still run, told to end or not."""
        with self._probing:
            for kind, prober in self._probers:
                if kind != but:
                    prober.stop()
            self._probers = [item for item in self._probers if item[1].running]
            return [prober for _, prober in self._probers]

    def _event(self, kind: str, detail: str = "") -> None:
        self._log.add(CONTAINER, kind, self.pod.name, detail, self.pod.role)
