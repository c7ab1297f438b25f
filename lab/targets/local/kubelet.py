"""A small kubelet: starts pods, probes and restarts their containers, ends them in time, and writes down when.

`up` returns when every pod's readiness probe has succeeded once. It tries them every few milliseconds instead of
after the manifest's initialDelaySeconds, because a bring-up would otherwise wait ten seconds for nothing; the probes
proper run by their own times from the start of the container, and only they make events and restarts.
Refuses to be an API server: what it starts is fixed when it begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.errors import MeasuringError
from lab.targets.local import probes
from lab.targets.local.containers import Process, reap_orphans
from lab.targets.local.network import Place, write_sysctls
from lab.targets.local.pods import Container, Pod, Probe

ROTATE_EVERY_S, ROTATE_BYTES = 10.0, 64 * 1024 * 1024
BACK_OFF_S, BACK_OFF_MAX_S, BACK_OFF_RESET_S = 10.0, 300.0, 600.0
"""A kubelet's: the first restart at once, then 10 s, 20 s, … up to five minutes; forgotten after ten good minutes."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the kubelet's log; the monotonic clock is the generators' too."""

    monotonic_s: float
    wall: str
    pod: str
    container: str
    kind: str
    detail: str


class Log:
    """Events in the order in which they happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, pod: str, container: str, kind: str, detail: str = "") -> None:
        self.events.append(Event(time.monotonic(), datetime.now(UTC).isoformat(), pod, container, kind, detail))


class Runner:
    """Keeps one container running: starts it, probes it, restarts it with back-off until told to stop."""

    def __init__(self, pod: Pod, process: Process, log: Log) -> None:
        self.pod, self.process, self.log = pod, process, log
        self.restarts = 0
        self.ready = False
        self.exited = ""
        self._stop = threading.Event()
        self._probers: list[probes.Prober] = []
        self._thread = threading.Thread(target=self._run, name=f"run-{pod.name}", daemon=True)

    @property
    def container(self) -> Container:
        return self.process.container

    def start(self) -> None:
        self.process.start()
        self._event("Started")
        self._thread.start()

    def attempt(self, probe: Probe) -> str | None:
        return probes.check(probe, self.process.setting.place.address, self.process.enter)

    def stop(self, grace_s: float | None) -> None:
        """End it for good, within a grace period or (None) at once."""
        self._stop.set()
        self._end_probers()
        if grace_s is None:
            self.process.kill()
        else:
            self._event("Killing", f"grace period {grace_s:g} s")
            self._event("Stopped" if self.process.stop(grace_s) else "Killed")
        self.ready = False

    def _run(self) -> None:
        back_off = 0.0
        while True:
            begin = time.monotonic()
            self._begin_probers()
            assert self.process.popen is not None
            status = self.process.popen.wait()
            self._end_probers()
            self.ready = False
            self.process.kill()  # what it leaves behind ends with it, as in a pod
            reap_orphans()
            if self._stop.is_set():
                return
            self.exited = f"exited {status}" if status >= 0 else f"ended by signal {-status}"
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
            self._add("liveness", liveness, lambda ok, detail: None if ok else self._unhealthy("liveness", liveness, detail))

    def _add(self, kind: str, probe: Probe, changed: probes.Changed) -> None:
        prober = probes.Prober(
            probe,
            attempt=lambda: self.attempt(probe),
            changed=changed,
            failed=lambda detail, seconds: self._event("Unhealthy", f"{kind} probe failed after {seconds:.3f} s: {detail}"),
        )
        self._probers.append(prober)
        prober.start()

    def _readiness(self, ok: bool, detail: str) -> None:
        self.ready = ok
        self._event("Ready" if ok else "NotReady", detail)

    def _unhealthy(self, kind: str, probe: Probe, detail: str) -> None:
        grace_s = self.pod.grace_s if probe.grace_s is None else probe.grace_s
        self._event("Killing", f"{kind} probe failed {probe.failures} times: {detail}; grace period {grace_s} s")
        self.process.stop(grace_s)  # the runner's own thread starts it again

    def _end_probers(self) -> None:
        for prober in self._probers:
            prober.stop()
        self._probers.clear()

    def _event(self, kind: str, detail: str = "") -> None:
        self.log.add(self.pod.name, self.container.name, kind, detail)


@dataclass(frozen=True, slots=True)
class PodJob:
    """A pod to start; `make` prepares one of its containers when its turn comes (after the init containers ended)."""

    pod: Pod
    place: Place
    make: Callable[[Container], Process]


@dataclass(slots=True)
class RunningPod:
    pod: Pod
    place: Place
    runners: list[Runner]


class Kubelet:
    """Pods that are up. `processes` come from outside, made for each container when its turn comes."""

    def __init__(self, log: Log | None = None) -> None:
        self.log = log or Log()
        self.pods: list[RunningPod] = []
        self._rotating = threading.Event()

    def start(self, jobs: Sequence[PodJob]) -> None:
        """Start pods side by side; returns when all are started. Raises the first LabError."""
        threading.Thread(target=self._rotate, name="logs", daemon=True).start()
        with ThreadPoolExecutor(len(jobs) or 1) as pool:
            for result in [pool.submit(self._start, job) for job in jobs]:
                result.result()

    def wait(self, deadline: float) -> None:
        """Until each container's readiness probe succeeded once. MeasuringError at the deadline (monotonic), or when one exits."""
        for runner in [runner for pod in self.pods for runner in pod.runners]:
            fault: str | None = "not tried"
            while fault is not None:
                if runner.exited:
                    raise MeasuringError(runner.container.place, f"{runner.exited} at start", runner.process.tail(3) or "it printed nothing")
                readiness = runner.container.readiness
                fault = runner.attempt(readiness) if readiness is not None else None
                if fault is not None and time.monotonic() > deadline:
                    raise MeasuringError(runner.container.place, f"not ready: {fault}", runner.process.tail(3) or "it printed nothing")
                if fault is not None:
                    time.sleep(0.01)
            if strays := runner.process.confine():
                self.log.add(runner.pod.name, runner.container.name, "Confined", f"{len(strays)} threads had left the role's CPUs")

    def runners(self, role: str) -> list[Runner]:
        return [runner for pod in self.pods if pod.pod.role == role for runner in pod.runners]

    def delete(self, name: str) -> None:
        """End one pod as `kubectl delete pod` does, with its grace period. It is not replaced."""
        pod = next(pod for pod in self.pods if pod.pod.name == name)
        with ThreadPoolExecutor(len(pod.runners)) as pool:
            list(pool.map(lambda runner: runner.stop(pod.pod.grace_s), pod.runners))
        reap_orphans()

    def stop(self) -> None:
        """End everything at once: nothing here is worth a grace period, and the next bring-up is waiting."""
        self._rotating.set()
        for runner in [runner for pod in self.pods for runner in pod.runners]:
            runner.stop(None)
        reap_orphans()

    def _start(self, job: PodJob) -> None:
        pod, place = job.pod, job.place
        try:
            write_sysctls(place, dict(pod.sysctls))
        except OSError as error:
            name = Path(str(error.filename)).relative_to("/proc/sys").as_posix().replace("/", ".") if error.filename else "?"
            where = f"{pod.place}: spec.template.spec.securityContext.sysctls[{name}]"
            raise MeasuringError(where, f"cannot be written in a pod: {error.strerror}", "only namespaced sysctls can; the others are the node's") from None
        for container in pod.init:
            self._initialise(pod, job.make(container))
        running = RunningPod(pod, place, [Runner(pod, job.make(container), self.log) for container in pod.containers])
        self.pods.append(running)
        for runner in running.runners:
            runner.start()

    def _initialise(self, pod: Pod, process: Process) -> None:
        process.start()
        assert process.popen is not None
        status = process.popen.wait()
        process.kill()
        self.log.add(pod.name, process.container.name, "Completed", f"exited {status}")
        if status != 0:
            raise MeasuringError(process.container.place, f"this init container exited {status}", process.tail(3) or "it printed nothing")

    def _rotate(self) -> None:
        while not self._rotating.wait(ROTATE_EVERY_S):
            for pod in self.pods:
                for runner in pod.runners:
                    runner.process.truncate(ROTATE_BYTES)
