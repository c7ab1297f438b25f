"""A small kubelet: starts pods, probes and restarts their containers, ends them in time, and writes down when.

`up` returns when every pod's readiness probe has succeeded once. It tries them every few milliseconds instead of
after the manifest's initialDelaySeconds, because a bring-up would otherwise wait ten seconds for nothing; the probes
proper run by their own times from the start of the container, and only they make events and restarts.
Refuses to be an API server: which pods there are is said to it, at the start and (`begin`, `end`) later, by `control`.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lab.base.errors import MeasuringError, StartError
from lab.model.events import EventLog
from lab.systems.manifests.pods import Container, Pod, Probe
from lab.targets.local.kubelet.containers import Process, reap_orphans
from lab.targets.local.kubelet.runner import CONTAINER, Runner
from lab.targets.local.sandbox.cgroups import Groups

ROTATE_EVERY_S, ROTATE_BYTES = 10.0, 64 * 1024 * 1024

Make = Callable[[Container], Process]
"""Prepares one of a pod's containers when its turn comes (after the init containers ended)."""


@dataclass(slots=True, eq=False)
class RunningPod:
    """One pod from its making to its end. `runners`: its containers, none before they are started.

    What `control` knows of it: `generation` of its Deployment's template; `begun`: it has a place on the node; `told_ready`: what
    was made known of its readiness; `ending`: its kubelet has been told.
    """

    pod: Pod
    runners: Sequence[Runner] = ()
    terminating: bool = False
    generation: int = 0
    begun: bool = False
    told_ready: bool = False
    ending: bool = False
    created_s: float = field(default_factory=time.monotonic)

    @property
    def ready(self) -> bool:
        """Every container runs, and its readiness probe, if it has one, says so."""
        running = (runner.ready and runner.process.pid is not None for runner in self.runners)
        return bool(self.runners) and all(running)

    @property
    def endpoint(self) -> bool:
        """Whether Services lead to it."""
        return self.told_ready and not self.terminating


class Kubelet:
    """Pods that are up. Their processes come from outside, made for each container when its turn comes."""

    def __init__(self, log: EventLog, each_probe: bool = False) -> None:
        self._log, self._each_probe = log, each_probe
        self.pods: list[RunningPod] = []
        self.groups = Groups()
        """The limits of all containers; removed by whoever stops the kubelet, after that."""
        self.heard: Callable[[], None] = lambda: None
        """Called, in whatever thread, when a container's readiness became another."""
        self._listing = threading.Lock()
        self._initialising: list[Process] = []
        self._stopped = threading.Event()
        self._rotating = threading.Thread(target=self._rotate, name="logs", daemon=True)

    def start(self, pods: Sequence[tuple[Pod, Make]], deadline: float) -> None:
        """Start pods side by side; returns when all are started. Raises the first LabError, one at the deadline (monotonic)."""
        if not self._rotating.is_alive():
            self._rotating.start()
        with ThreadPoolExecutor(len(pods) or 1) as pool:
            try:
                for result in [pool.submit(self.begin, RunningPod(pod), make, deadline) for pod, make in pods]:
                    result.result()
            except BaseException:
                self.stop()  # else the pool would wait for the other pods' init containers
                raise

    def wait(self, deadline: float) -> None:
        """Until each container's readiness probe succeeded once. MeasuringError at the deadline (monotonic), or when one exits."""
        for runner in self._runners:
            place, readiness = runner.container.place, runner.container.readiness
            while True:
                if runner.exited:
                    raise StartError(place, f"{runner.exited} at start", _printed(runner.process))
                if readiness is None or (fault := runner.attempt(readiness)) is None:
                    break
                if time.monotonic() > deadline:
                    raise MeasuringError(place, f"not ready: {fault}", _printed(runner.process))
                time.sleep(0.01)
            runner.ready = True  # what its own probes find from now on, they change
            runner.confine()

    def end(self, pod: RunningPod) -> None:
        """End one pod within its grace period, its readiness probed to the end, and forget it."""
        with ThreadPoolExecutor(len(pod.runners)) as pool:
            list(pool.map(lambda runner: runner.stop(pod.pod.grace_s), pod.runners))
        reap_orphans()
        with self._listing:
            self.pods = [other for other in self.pods if other is not pod]

    def runners(self, role: str) -> list[Runner]:
        """Those of pods that terminate come last."""
        pods = sorted((pod for pod in self.pods if pod.pod.role == role), key=lambda pod: pod.terminating)
        return [runner for pod in pods for runner in pod.runners]

    @property
    def _runners(self) -> list[Runner]:
        return [runner for pod in self.pods for runner in pod.runners]

    def stop(self) -> None:
        """End everything at once: nothing here is worth a grace period, and the next bring-up is waiting.

        Idempotent; a pod that another thread is starting meanwhile is ended by a second call, after that thread has ended.
        """
        self._stopped.set()
        for process in list(self._initialising):
            process.kill()
        runners = self._runners
        for runner in runners:
            runner.kill()
        for runner in runners:
            runner.join()
        reap_orphans()

    def begin(self, running: RunningPod, make: Make, deadline: float) -> None:
        """Start one pod; returns when its containers are started, ready or not. Starts none when the kubelet is stopped."""
        pod = running.pod
        for container in pod.init:
            self._initialise(pod, make(container), deadline)
        if self._stopped.is_set():
            return
        made = map(make, pod.containers)
        running.runners = [Runner(pod, process, self._log, lambda: self.heard(), self._each_probe) for process in made]
        with self._listing:
            self.pods = [*self.pods, running]
        for runner in running.runners:
            runner.start()

    def _initialise(self, pod: Pod, process: Process, deadline: float) -> None:
        if self._stopped.is_set():
            return
        self._initialising.append(process)
        process.start()
        if self._stopped.is_set():  # meanwhile, and what was not there yet was not killed
            process.kill()
        assert process.popen is not None
        try:
            status = process.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            fault = "this init container did not end in time"
            raise MeasuringError(process.container.place, fault, _printed(process)) from None
        self._log.add(CONTAINER, "Completed", pod.name, f"exited {status}", pod.role)
        if status != 0:
            raise StartError(process.container.place, f"this init container {process.ended()}", _printed(process))

    def _rotate(self) -> None:
        while not self._stopped.wait(ROTATE_EVERY_S):
            for runner in self._runners:
                runner.process.truncate(ROTATE_BYTES)


def _printed(process: Process) -> str:
    return process.tail(3) or "it printed nothing"


def shown(pod: RunningPod, on_the_node: bool) -> Mapping[str, Any]:
    """`metadata` and `spec` in Kubernetes' own names; fields that have no meaning here are not there."""
    return {
        "metadata": {"name": pod.pod.name, "namespace": pod.pod.namespace, "labels": dict(pod.pod.labels)},
        "spec": {
            "hostNetwork": on_the_node,
            "terminationGracePeriodSeconds": pod.pod.grace_s,
            "containers": [_container(runner) for runner in pod.runners],
        },
    }


def _container(runner: Runner) -> Mapping[str, Any]:
    """A hook as the manifest has it: what an image's own is here, is told by nobody in a cluster."""
    container, setting = runner.container, runner.process.setting
    probes = {
        "livenessProbe": container.liveness,
        "readinessProbe": container.readiness,
        "startupProbe": container.startup,
    }
    return {
        "name": container.name,
        "image": container.image,
        "command": list(setting.started.command),
        "env": [{"name": name, "value": value} for name, value in setting.started.env.items()],
        "resources": {"limits": dict(container.limits)},
        "ports": [
            {"name": name, "containerPort": number}
            | ({"hostPort": container.host_ports[number]} if number in container.host_ports else {})
            for name, number in container.ports.items()
        ],
        **({"lifecycle": {"preStop": {"exec": {"command": list(container.pre_stop)}}}} if container.pre_stop else {}),
        **{name: _probe(probe) for name, probe in probes.items() if probe is not None},
    }


def _probe(probe: Probe) -> Mapping[str, Any]:
    handlers: Mapping[str, Mapping[str, Any]] = {
        "httpGet": {"path": probe.path, "port": probe.port},
        "tcpSocket": {"port": probe.port},
        "exec": {"command": list(probe.command)},
    }
    grace = {} if probe.grace_s is None else {"terminationGracePeriodSeconds": probe.grace_s}
    return {
        probe.kind: handlers[probe.kind],
        "initialDelaySeconds": probe.initial_delay_s,
        "periodSeconds": probe.period_s,
        "timeoutSeconds": probe.timeout_s,
        "successThreshold": probe.successes,
        "failureThreshold": probe.failures,
        **grace,
    }
