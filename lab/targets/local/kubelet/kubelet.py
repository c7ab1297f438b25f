"""A small kubelet: it starts pods, probes and restarts their containers, ends them in time, and records events.

A bring-up (the start of a system) waits until every pod's readiness probe has succeeded once. For this the bring-up
tries these probes every few milliseconds, because the manifest's initialDelaySeconds would only cost time. In addition
the real probes run, with the manifest's times, from the start of the container. Only they cause events and restarts.

The kubelet does not decide which pods exist. The caller of `start` passes the first pods. Later the control plane
(`lab.targets.local.control_plane.control`) adds and ends pods by `begin` and `end`.
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
from lab.targets.local.kubelet.containers import LocalContainerProcess, reap_orphans
from lab.targets.local.kubelet.runner import CONTAINER, ContainerRunner
from lab.targets.local.sandbox.cgroups import Groups

ROTATE_EVERY_S, ROTATE_BYTES = 10.0, 64 * 1024 * 1024
"""The seconds between two checks of the containers' output, and the bytes above which it is cut to nothing."""

MakeContainer = Callable[[Container], LocalContainerProcess]
"""A function that prepares one of a pod's containers just before its start (after the init containers ended)."""


@dataclass(slots=True, eq=False)
class RunningPod:
    """A pod from its creation to its end, with its running containers.

    The module `control` sets `generation`, `begun`, `told_ready` and `ending`.

    Attributes:
        pod: The pod as the manifests describe it.
        runners: The pod's containers; empty before they are started.
        terminating: Whether the pod was deleted.
        generation: The version of the Deployment's pod template from which the pod was made; a rollout adds 1.
        begun: Whether the pod has a place on the node, so that its start has begun.
        told_ready: The readiness of the pod as it was last announced to Services.
        ending: Whether the kubelet was ordered to end the pod.
        created_s: The time of the pod's creation, by time.monotonic().

    """

    pod: Pod
    runners: Sequence[ContainerRunner] = ()
    terminating: bool = False
    generation: int = 0
    begun: bool = False
    told_ready: bool = False
    ending: bool = False
    created_s: float = field(default_factory=time.monotonic)

    @property
    def ready(self) -> bool:
        """True if the pod is ready: its containers have been started, and all of them run and are ready by their probes."""
        running = (runner.ready and runner.process.pid is not None for runner in self.runners)
        return bool(self.runners) and all(running)

    @property
    def endpoint(self) -> bool:
        """True if the pod is an endpoint of its Services: it was announced as ready and is not terminating.

        Only with a control plane (where pods may change) are pods announced; otherwise this is always False.
        """
        return self.told_ready and not self.terminating


class Kubelet:
    """The kubelet of one system: it starts, probes, restarts and ends the containers of the pods that callers add.

    The caller also passes a function that makes the processes of a container, just before the container's start.
    """

    def __init__(self, log: EventLog, each_probe: bool = False) -> None:
        """Prepare a kubelet without pods; `start` and `begin` add pods.

        Args:
            log: The log for events.
            each_probe: Whether every attempt of a probe is recorded as an event.

        """
        self._log, self._each_probe = log, each_probe
        self.pods: list[RunningPod] = []
        self.groups = Groups()
        """The cgroups of all containers. The caller that stops the kubelet removes them afterwards."""
        self.heard: Callable[[], None] = lambda: None
        """A function that is called, in any thread, when a container's readiness has changed."""
        self._listing = threading.Lock()
        self._initialising: list[LocalContainerProcess] = []
        self._stopped = threading.Event()
        self._rotating = threading.Thread(target=self._rotate, name="logs", daemon=True)

    def start(self, pods: Sequence[tuple[Pod, MakeContainer]], deadline: float) -> None:
        """Start pods concurrently, and return when the containers of all pods are started.

        Args:
            pods: The pods, each with the function that makes the processes of its containers.
            deadline: The time by time.monotonic() by which the init containers must have ended.

        Raises:
            LabError: A pod cannot be started, or an init container does not end by the deadline. If several pods fail,
                the error is that of the first one in `pods`.

        """
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
        """Wait until each container is ready, that is, until its readiness probe has succeeded once.

        Args:
            deadline: The end of the wait, by time.monotonic().

        Raises:
            StartError: A container has exited.
            MeasuringError: A container is not ready at the deadline.

        """
        for runner in self._runners:
            place, readiness = runner.container.place, runner.container.readiness
            while True:
                if runner.exited:
                    raise StartError(place, f"{runner.exited} at start", _describe_output(runner.process))
                if readiness is None or (fault := runner.attempt(readiness)) is None:
                    break
                if time.monotonic() > deadline:
                    raise MeasuringError(place, f"not ready: {fault}", _describe_output(runner.process))
                time.sleep(0.01)
            runner.ready = True  # from now on, its own probes change it
            runner.confine()

    def end(self, pod: RunningPod) -> None:
        """End the containers of one pod within its grace period, then remove the pod from `pods`.

        The pod's readiness is probed until its end.
        """
        with ThreadPoolExecutor(len(pod.runners)) as pool:
            list(pool.map(lambda runner: runner.stop(pod.pod.grace_s), pod.runners))
        reap_orphans()
        with self._listing:
            self.pods = [running for running in self.pods if running is not pod]

    def runners(self, role: str) -> list[ContainerRunner]:
        """Return the containers of all pods of a role; the containers of terminating pods come last."""
        pods = sorted((pod for pod in self.pods if pod.pod.role == role), key=lambda pod: pod.terminating)
        return [runner for pod in pods for runner in pod.runners]

    @property
    def _runners(self) -> list[ContainerRunner]:
        return [runner for pod in self.pods for runner in pod.runners]

    def stop(self) -> None:
        """Kill all containers at once, without grace periods.

        If another thread was starting a pod during the call, call the method again after that thread has ended. The
        second call ends this pod.
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

    def begin(self, running: RunningPod, make: MakeContainer, deadline: float) -> None:
        """Run a pod's init containers, start its containers, and return without waiting for their readiness.

        After `stop`, no container is started.

        Args:
            running: The pod.
            make: The function that makes the processes of the pod's containers.
            deadline: The time by time.monotonic() by which the init containers must have ended.

        """
        pod = running.pod
        for container in pod.init:
            self._run_init_container(pod, make(container), deadline)
        if self._stopped.is_set():
            return
        running.runners = [
            ContainerRunner(pod, make(container), self._log, lambda: self.heard(), self._each_probe)
            for container in pod.containers
        ]
        with self._listing:
            self.pods = [*self.pods, running]
        for runner in running.runners:
            runner.start()

    def _run_init_container(self, pod: Pod, process: LocalContainerProcess, deadline: float) -> None:
        """Start an init container and wait for its end; do nothing after `stop`.

        Raises:
            MeasuringError: The container has not ended at the deadline.
            StartError: The container has failed (its exit status is not 0).

        """
        if self._stopped.is_set():
            return
        self._initialising.append(process)
        process.start()
        if self._stopped.is_set():  # `stop` came in the meantime and could not kill a process that did not exist yet
            process.kill()
        assert process.popen is not None
        try:
            status = process.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            fault = "this init container did not end in time"
            raise MeasuringError(process.container.place, fault, _describe_output(process)) from None
        self._log.add(CONTAINER, "Completed", pod.name, f"exited {status}", pod.role)
        if status != 0:
            raise StartError(
                process.container.place, f"this init container {process.ended()}", _describe_output(process)
            )

    def _rotate(self) -> None:
        """Truncate the containers' output files that have grown too large, every few seconds until `stop` is called."""
        while not self._stopped.wait(ROTATE_EVERY_S):
            for runner in self._runners:
                runner.process.truncate(ROTATE_BYTES)


def _describe_output(process: LocalContainerProcess) -> str:
    return process.tail(3) or "it printed nothing"


def describe_pod(pod: RunningPod, on_the_node: bool) -> Mapping[str, Any]:
    """Return a pod as a Kubernetes object with `metadata` and `spec`, as far as its fields have a meaning on this target.

    Args:
        pod: The pod.
        on_the_node: Whether the pod uses the node's network (`hostNetwork`).

    """
    return {
        "metadata": {"name": pod.pod.name, "namespace": pod.pod.namespace, "labels": dict(pod.pod.labels)},
        "spec": {
            "hostNetwork": on_the_node,
            "terminationGracePeriodSeconds": pod.pod.grace_s,
            "containers": [_describe_container(runner) for runner in pod.runners],
        },
    }


def _describe_container(runner: ContainerRunner) -> Mapping[str, Any]:
    """Return a container as an element of `spec.containers` of a Kubernetes Pod.

    A preStop hook is included only if it is in the manifest. The lab adds hooks that imitate how a container of the
    image ends; they are left out, because a cluster does not show them either.
    """
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
        **{name: _describe_probe(probe) for name, probe in probes.items() if probe is not None},
    }


def _describe_probe(probe: Probe) -> Mapping[str, Any]:
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
