"""The component that keeps one container running: it probes the container, restarts it with a back-off, and ends it.

Probes and back-off are those of a kubelet. Probes have their delays, periods, timeouts and thresholds. They are sent from the
node, except that the command of an exec probe runs inside the container.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import time
from collections.abc import Callable

from lab.model.events import EventLog
from lab.systems.manifests.pods import Container, Pod, Probe
from lab.targets.local.kubelet.containers import LocalContainerProcess, reap_orphans

BACK_OFF_S, BACK_OFF_MAX_S, BACK_OFF_RESET_S = 10.0, 300.0, 600.0
"""The back-off of a kubelet, in seconds: first value, maximum, and the running time after which it is forgotten.

The first restart comes at once, the next after 10 s, 20 s, … up to five minutes. When a container has run for ten
minutes, its next restart comes at once again.
"""

CONTAINER, KUBELET = "container", "kubelet"
"""The two sources of events: the first for kinds that concern only a container, the second for kinds that concern a pod."""

KNOWN_KINDS = frozenset({"Started", "Exited", "Killing", "Unhealthy", "Probe"})
"""The kinds of a container's events that concern its pod too, as `lab.model.events` describes these kinds."""


def _check_http(connection: socket.socket, probe: Probe, address: str, deadline: float) -> str | None:
    defaults = {"Host": f"{address}:{probe.port}", "User-Agent": "kube-probe/lab", "Connection": "close"}
    lines = [
        f"GET {probe.path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in (defaults | dict(probe.headers)).items()),
    ]
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    connection.settimeout(max(0.001, deadline - time.monotonic()))
    with http.client.HTTPResponse(connection) as response:
        try:
            response.begin()
        except http.client.HTTPException:
            return "not an HTTP answer"
        return None if 200 <= response.status < 400 else f"status {response.status}"


class ContainerRunner:
    """The component that keeps one container running: it starts, probes and restarts the container, until `stop` or `kill`."""

    def __init__(
        self,
        pod: Pod,
        process: LocalContainerProcess,
        log: EventLog,
        heard: Callable[[], None] = lambda: None,
        each_probe: bool = False,
    ) -> None:
        """Prepare the runner; `start` starts the container.

        Args:
            pod: The container's pod.
            process: The container's process.
            log: The event log to which the container's events are added.
            heard: A function that is called after `ready` has changed, in whichever thread has changed it.
            each_probe: Whether every attempt of a probe is recorded as an event.

        """
        self.pod, self.process, self._log, self._each_probe = pod, process, log, each_probe
        self.restarts = 0
        self.exited = ""
        self._ready, self._on_ready_changed = False, heard
        self._stop = threading.Event()
        self._probers: list[tuple[str, threading.Thread, threading.Event]] = []
        """The kind of each probe that runs, its thread, and the event that ends the thread."""
        self._probing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"run-{pod.name}", daemon=True)

    @property
    def container(self) -> Container:
        """The container that the runner keeps running, as the manifest describes it."""
        return self.process.container

    @property
    def ready(self) -> bool:
        """True if the container is ready: by its readiness probe or, without such a probe, because it runs.

        A container with a startup probe is not ready before that probe has succeeded.
        """
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        was, self._ready = self._ready, ready
        if was != ready:
            self._on_ready_changed()

    def start(self) -> None:
        """Start the container, and a thread that restarts it whenever it ends; do nothing after `stop` or `kill`."""
        if self._stop.is_set():
            return
        self.process.start()
        self._record_event("Started")
        self._thread.start()

    def attempt(self, probe: Probe) -> str | None:
        """Make one attempt of a probe of this container, within the probe's timeout.

        Returns:
            None if the attempt succeeded; else the reason why it failed, such as `status 503`.

        """
        address, deadline = self.process.setting.place.address, time.monotonic() + probe.timeout_s
        try:
            if probe.kind == "exec":
                argv, null = self.process.enter(probe.command), subprocess.DEVNULL
                done = subprocess.run(argv, timeout=probe.timeout_s, capture_output=True, stdin=null, check=False)
                return None if done.returncode == 0 else f"exited {done.returncode}"
            with socket.create_connection((address, probe.port), probe.timeout_s) as connection:
                return None if probe.kind == "tcpSocket" else _check_http(connection, probe, address, deadline)
        except (TimeoutError, subprocess.TimeoutExpired):
            return f"no answer within {probe.timeout_s} s"
        except OSError as error:
            return f"{error.strerror or error}"

    def stop(self, grace_s: float) -> None:
        """End the container for good: ask it to end, and kill it if it has not ended after `grace_s` seconds.

        It is not killed earlier than `MIN_STOP_S` seconds after the stop signal, even if its preStop hook has used up the
        grace period. The container's readiness is probed until its end.
        """
        self._stop.set()
        self._end_probers(but="readiness")
        self._record_event("Killing", f"grace period {grace_s:g} s")
        in_time = self.process.stop(grace_s)
        self._record_event("Exited", "within its grace period" if in_time else "SIGKILL: its grace period was over")
        self.join()

    def kill(self) -> None:
        """Kill the container for good, without a grace period.

        A thread of this runner may still be busy afterwards; `join` waits for it.
        """
        self._stop.set()
        self._end_probers()
        self.process.release()
        self.process.kill()

    def join(self) -> None:
        """Wait until all threads and processes of a stopped or killed container have ended.

        They may include a container that was just being restarted, and an attempt of a probe.
        """
        if self._thread.is_alive():
            self._thread.join()
        while threads := self._end_probers():  # a startup probe that just succeeds starts others
            for thread in threads:
                thread.join()
        self.ready = False

    def confine(self) -> None:
        """Move threads that have left the CPUs of the container's role back to these CPUs, and record this as an event.

        Threads leave their CPUs if, for example, a proxy sets CPU affinities.
        """
        if strays := self.process.confine():
            self._record_event("Confined", f"{len(strays)} threads had left the role's CPUs")

    def _run(self) -> None:
        """Probe the container, wait for its end and restart it, until it is stopped or killed; this is the thread's body."""
        back_off = 0.0
        while True:
            begin = time.monotonic()
            if self.container.startup is None:
                self._probe_health()
            else:
                self._probe("startup", self.container.startup)
            assert self.process.popen is not None
            self.process.popen.wait()
            self._end_probers()
            self.ready = False
            self.process.kill()  # processes that it left behind end with it, as in a pod
            reap_orphans()
            self.process.linger()
            if self._stop.is_set():
                return
            self.exited = self.process.ended()
            self._record_event("Exited", self.exited)
            if time.monotonic() - begin > BACK_OFF_RESET_S:
                back_off = 0.0
            if back_off:
                self._record_event("BackOff", f"{back_off:g} s")
            if self._stop.wait(back_off):
                return
            back_off = min(max(BACK_OFF_S, 2 * back_off), BACK_OFF_MAX_S)
            self.restarts += 1
            self.process.start()
            self._record_event("Started", f"restart {self.restarts}")
            if self._stop.is_set():  # it was stopped while it was being started
                self.process.kill()
                return

    def _probe_health(self) -> None:
        """Start the threads of the readiness probe and the liveness probe, as far as the container has these probes.

        A container without a readiness probe is marked as ready.
        """
        if self.container.readiness is None:
            self.ready = True
        else:
            self._probe("readiness", self.container.readiness)
        if self.container.liveness is not None:
            self._probe("liveness", self.container.liveness)

    def _probe(self, kind: str, probe: Probe) -> None:
        """Start the thread that runs one of the container's probes.

        Args:
            kind: `startup`, `readiness` or `liveness`.
            probe: The probe.

        """
        over = threading.Event()
        thread = threading.Thread(target=self._repeat_probe, args=(kind, probe, over), name="probe", daemon=True)
        with self._probing:
            if not self._stop.is_set():
                self._probers.append((kind, thread, over))
                thread.start()

    def _repeat_probe(self, kind: str, probe: Probe, over: threading.Event) -> None:
        """Make an attempt of a probe every period, and react when a threshold is reached; this is a thread's body.

        The reaction comes after `successes` successes or `failures` failures in a row, and then again only when the
        result has changed.

        Args:
            kind: `startup`, `readiness` or `liveness`.
            probe: The probe.
            over: The event that ends the thread. An attempt that is under way when it is set goes on, but its result is
                dropped.

        """
        state: bool | None = None
        last, in_a_row = False, 0
        next_s = time.monotonic() + probe.initial_delay_s
        while not over.wait(max(0.0, next_s - time.monotonic())):
            begin = time.monotonic()
            fault = self.attempt(probe)
            if over.is_set():
                return
            seconds = time.monotonic() - begin
            if self._each_probe:
                self._record_event("Probe", f"{kind} {seconds:.4f} {fault or 'ok'}")
            if fault is not None:
                self._record_event("Unhealthy", f"{kind} probe failed after {seconds:.3f} s: {fault}")
            ok = fault is None
            last, in_a_row = ok, in_a_row + 1 if ok is last else 1
            if in_a_row >= (probe.successes if ok else probe.failures) and state is not ok:
                state = ok
                self._react_to_probe(kind, probe, ok, fault or "")
            next_s = max(next_s + probe.period_s, time.monotonic())

    def _react_to_probe(self, kind: str, probe: Probe, ok: bool, detail: str) -> None:
        """React to a probe that has reached its threshold of successes or failures.

        A readiness probe changes the container's readiness. A startup or liveness probe that has failed ends the
        container, which is then restarted. A startup probe that has succeeded starts the other probes.

        Args:
            kind: `startup`, `readiness` or `liveness`.
            probe: The probe.
            ok: Whether the probe succeeded.
            detail: The reason of the failure; empty for a success.

        """
        if kind == "readiness":
            self.ready = ok
            if ok:
                self.confine()
            self._record_event("Ready" if ok else "NotReady", detail)
            return
        if kind == "startup":
            self._end_probers()
        if not ok:
            grace_s = self.pod.grace_s if probe.grace_s is None else probe.grace_s
            self._record_event(
                "Killing", f"{kind} probe failed {probe.failures} times: {detail}; grace period {grace_s} s"
            )
            self.process.stop(grace_s)  # the runner's thread starts it again
        elif kind == "startup":
            self._record_event("StartupSucceeded")
            self._probe_health()

    def _end_probers(self, but: str = "") -> list[threading.Thread]:
        """Order the threads of the container's probes to end, and return those threads that still run.

        Args:
            but: The kind of probe whose thread goes on, such as `readiness`; empty = none.

        """
        with self._probing:
            for kind, _, over in self._probers:
                if kind != but:
                    over.set()
            self._probers = [item for item in self._probers if item[1].is_alive()]
            return [thread for _, thread, _ in self._probers]

    def _record_event(self, kind: str, detail: str = "") -> None:
        self._log.add(KUBELET if kind in KNOWN_KINDS else CONTAINER, kind, self.pod.name, detail, self.pod.role)
