"""What a cluster's control plane does while pods come and go: a Deployment's replicas, endpoints, evictions, one node's ports.

One lock, and one way through: whatever happens (`end_pod`, a probe's finding, a pod that is gone) ends in `_settle`, which
makes and deletes pods by the Deployment's rules (`replicas`), lets the Service's NAT follow the endpoints, tells the proxies'
configuration (`routing`), and only then lets the kubelet end what is to end: no new connection goes to a pod that was told
to. Starting and ending take threads of their own. Refuses to go on after a pod that could not be started: `check` says so.

    Deleted ── the pod terminates: no endpoint any more, unless no other is there (kube-proxy's terminating endpoints)
       ├────── its Deployment makes another (Created); it starts when no pod has its ports, a terminating one neither
       └ KUBELET_S ── Killing: preStop, stop signal, SIGKILL when the grace period is over ── Gone
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from lab.base.errors import LabError, MeasuringError
from lab.model.disturbance import Recorder
from lab.model.endpoint import HowToEnd, Role
from lab.model.events import Event, EventLog
from lab.systems.manifests.deployments import Deployment
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Pod
from lab.systems.manifests.replicas import Member, Step, over, step
from lab.targets.local.control_plane import services
from lab.targets.local.control_plane.routing import Routes
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.kubelet import Kubelet, Make, RunningPod
from lab.targets.local.kubelet.runner import CONTAINER
from lab.targets.local.sandbox.network import Network, complaining

KUBELET_S = 0.05
"""From a pod's deletion to its kubelet's first act: a watch and a queue lie between. What was on its way arrives."""

START_S = 30.0
"""For a pod's init containers."""


class Control:
    """Of one system. `adopt` once everything is up; `stop` before the kubelet is. `job` prepares a new pod in its place."""

    def __init__(
        self,
        objects: Objects,
        net: Network,
        kubelet: Kubelet,
        routing: Routes,
        log: EventLog,
        job: Callable[[Pod], Make],
    ) -> None:
        self._objects, self._net, self._kubelet, self._routing = objects, net, kubelet, routing
        self._log, self._job = log, job
        self._replicas = {deployment.name: deployment.replicas for deployment in objects.deployments}
        self._made = Counter(self._replicas)
        self._generations = Counter[str]()
        self._lives: list[RunningPod] = []
        self._led: tuple[Pod, ...] = ()
        self._told: tuple[Pod, ...] = ()
        self._threads: list[threading.Thread] = []
        self._lock, self._wiring = threading.RLock(), threading.Lock()
        self._closing = threading.Event()
        self._faults: list[LabError] = []
        self.ever: list[Pod] = list(objects.pods)
        """Every pod that there was or is."""
        self.ended: Callable[[Pod], None] = lambda pod: None
        """Called when a pod's containers have ended, before its network goes."""

    def adopt(self) -> None:
        """Take what has come up over. MeasuringError."""
        with self._lock:
            names = [pod.name for pod in self._objects.pods]
            self._lives = sorted(self._kubelet.pods, key=lambda life: names.index(life.pod.name))
            for life in self._lives:
                life.begun, life.told_ready = True, life.ready
            self._told = self._ready()
            with complaining():
                services.answer_without_endpoints(self._net, self._objects)
            self._kubelet.heard = self.look
            self.look()

    def stop(self) -> None:
        """End everything at once, and what is still being started or ended with it."""
        self._closing.set()
        self._kubelet.stop()
        for thread in list(self._threads):
            thread.join()
        self._kubelet.stop()  # what one of them was just starting

    def check(self) -> None:
        """MeasuringError when something that should have happened did not."""
        for fault in self._faults:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)

    def pods(self, role: Role) -> list[Pod]:
        """Those that run, terminating ones last."""
        with self._lock:
            found = [life for life in self._lives if life.pod.role == role and life.runners]
            return [life.pod for life in sorted(found, key=lambda life: life.terminating)]

    def look(self) -> None:
        """Something about a pod is another."""
        with self._lock:
            for life in self._lives:
                if (ready := life.ready) != life.told_ready:
                    life.told_ready = ready
                    if not life.terminating:
                        self._say("Ready" if ready else "NotReady", life.pod)
            self._settle()

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """As `lab.targets.base.System.end_pod`."""
        with self._lock:
            life = self._first(role)
            if how == "crash":
                if (pid := life.runners[0].process.pid) is None:
                    fault = "its first container does not run"
                    raise MeasuringError(life.pod.name, fault, "nothing is there to crash")
                os.kill(pid, signal.SIGKILL)
                return True
            if how == "evict" and (fault := self._refusal(life)) is not None:
                self._say("EvictionRefused", life.pod, fault)
                return False
            self._delete(life, "evicted" if how == "evict" else "deleted")
            self._settle()
            return True

    def scale(self, role: Role, replicas: int) -> None:
        if replicas < 0:
            raise MeasuringError(f"{role}: replicas", f"expected 0 or more, got {replicas}", "correct the disturbance")
        with self._lock:
            self._replicas[self._deployment(role).name] = replicas
            self._settle()

    def roll(self, role: Role) -> None:
        with self._lock:
            self._generations[self._deployment(role).name] += 1
            self._settle()

    def freeze(self, role: Role, frozen: bool) -> None:
        with self._lock:
            lives = [self._first(role)] if frozen else [life for life in self._lives if life.pod.role == role]
            processes = [runner.process for life in lives for runner in life.runners]
            for pid in [pid for process in processes for pid in process.processes()]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def squeeze(self, role: Role, cpu: str | None) -> None:
        with self._lock:
            self._first(role)
            for life in self._lives:
                if life.pod.role == role and life.runners and not life.terminating:
                    life.runners[0].process.setting.group.squeeze(cpu)

    # -- all below: the lock is held, save in threads of their own -----------------------------------------

    def _settle(self) -> None:
        if self._closing.is_set():
            return
        for deployment in self._objects.deployments:
            while (wanted := self._step(deployment)) != Step():
                for _ in range(wanted.create):
                    pod = deployment.pod(self._made[deployment.name])
                    self._made[deployment.name] += 1
                    self._lives.append(RunningPod(pod, generation=self._generations[deployment.name]))
                    self.ever.append(pod)
                    self._say("Created", pod)
                for life in [life for life in self._lives if life.pod.name in wanted.delete]:
                    self._delete(life, "not wanted any more")
        self._follow()
        for life in self._lives:
            if life.terminating and life.runners and not life.ending:
                life.ending = True
                self._thread(self._end, life)
        for life in self._lives:  # every pod starts whose ports are free
            others = [other.pod for other in self._lives if other.begun]
            if not life.begun and not any(life.pod.excludes(other) for other in others):
                life.begun = True
                self._thread(self._start, life)

    def _step(self, deployment: Deployment) -> Step:
        mine = [life for life in self._lives if life.pod.deployment == deployment.name]
        generation = self._generations[deployment.name]
        members = [
            Member(life.pod.name, life.generation == generation, life.told_ready, life.created_s)
            for life in mine
            if not life.terminating
        ]
        old_ending = sum(life.terminating and life.generation != generation for life in mine)
        return step(self._replicas[deployment.name], deployment.strategy, members, old_ending)

    def _delete(self, life: RunningPod, why: str) -> None:
        life.terminating = True
        self._say("Deleted", life.pod, f"{why}; grace period {life.pod.grace_s} s")
        if not life.begun:  # nothing of it is anywhere
            self._lives.remove(life)
            self._say("Gone", life.pod)

    def _start(self, life: RunningPod) -> None:
        with self._noting():
            self._wire(life.pod)
            self._kubelet.begin(life, self._job(life.pod), time.monotonic() + START_S)
            self.look()

    def _wire(self, pod: Pod) -> None:
        """Its place, and the ways to it. Raises CalledProcessError, OSError."""
        with self._wiring:
            if pod.host_network:
                self._net.borrow(pod.name, next(other.name for other in self.ever if other.role == pod.role))
                return
            with self._lock:
                present = [life.pod for life in self._lives if life.begun]
            wanted = bringup.links(replace(self._objects, pods=tuple(present)))
            there = {place.name for place in self._net.places} | {*self._net.borrowed, pod.name}
            self._net.add(pod.name, [link for link in wanted if pod.name in link and {*link} <= there])
            if pod.role == "proxy" and services.balancers(self._objects):
                services.join(self._net, pod)

    def _end(self, life: RunningPod) -> None:
        self._routing.leave(life.pod)
        self._closing.wait(KUBELET_S)
        self._kubelet.end(life)
        self.ended(life.pod)
        with self._lock:
            self._lives.remove(life)
            self._say("Gone", life.pod)
            self.look()
        bringup.remove([life.pod], self._net)
        if not life.pod.host_network:  # the node's own network stays
            with self._noting(), self._wiring:
                self._net.drop(life.pod.name)

    def _follow(self) -> None:
        """The NAT, the proxies' configuration and the log get to know the endpoints."""
        if (led := self._endpoints()) != self._led:
            with self._noting():
                services.follow(self._net, self._objects, led)
            self._led = led
        if (ready := self._ready()) != self._told:
            for service in self._objects.services.values():
                before, now = (sum(map(service.selects, pods)) for pods in (self._told, ready))
                if before != now:
                    self._log.add("kubelet", "Endpoints", service.name, str(now))
            self._told = ready
            self._routing.changed(ready, {pod.name: self._net[pod.name].address for pod in ready})

    def _endpoints(self) -> tuple[Pod, ...]:
        """Where new connections to the proxy go: its ready pods; a Service without any has terminating ones that are ready still.

        A hostPort leads to its pod as long as that has a network, ready or not.
        """
        found: list[Pod] = []
        for service in services.balancers(self._objects):
            mine = [life for life in self._lives if service.selects(life.pod) and life.runners]
            if not any(life.pod.host_ports for life in mine):
                mine = [life for life in mine if life.endpoint] or [life for life in mine if life.told_ready]
            found += [life.pod for life in mine]
        return tuple(found)

    def _ready(self) -> tuple[Pod, ...]:
        return tuple(life.pod for life in self._lives if life.endpoint)

    def _refusal(self, life: RunningPod) -> str | None:
        budget = over(self._objects.budgets, life.pod.labels)
        if budget is None:
            return None
        healthy = sum(other.endpoint and budget.selects(other.pod.labels) for other in self._lives)
        guarded = (item.name for item in self._objects.deployments if budget.selects(item.template.labels))
        return budget.refusal(life.told_ready, healthy, sum(self._replicas[name] for name in guarded))

    def _first(self, role: Role) -> RunningPod:
        running = (life for life in self._lives if life.pod.role == role and life.runners and not life.terminating)
        if (found := next(running, None)) is None:
            raise MeasuringError(f"role {role}", "no pod of it runs", "choose a variant that has one, or a later time")
        return found

    def _deployment(self, role: Role) -> Deployment:
        named = (deployment for deployment in self._objects.deployments if deployment.template.role == role)
        if (found := next(named, None)) is None:
            raise MeasuringError(f"role {role}", "this variant has no Deployment of it", "name the other role")
        return found

    def _say(self, kind: str, pod: Pod, detail: str = "") -> None:
        self._log.add("kubelet", kind, pod.name, detail, pod.role)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """What fails is kept for `check`, unless everything ends."""
        try:
            with complaining():
                yield
        except LabError as fault:
            if not self._closing.is_set():
                self._faults.append(fault)

    def _thread(self, act: Callable[[RunningPod], None], life: RunningPod) -> None:
        thread = threading.Thread(target=act, args=(life,), name=f"pod-{life.pod.name}", daemon=True)
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
        thread.start()


class LocalRecorder:
    """What happened between two moments, in the words of `lab.model.events`.

    What a container's readiness meant for its pod is said by `Control` alone. Everything is in one process, so all times are by the lab's own clock
    as they are. `check`: MeasuringError when something that should have happened did not.
    """

    def __init__(self, log: EventLog, check: Callable[[], None]) -> None:
        self._log, self._check = log, check
        self._ends: list[int] = []

    def __enter__(self) -> Recorder:
        self._ends.append(len(self._log.events))
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.append(len(self._log.events))

    def events(self) -> Sequence[Event]:
        self._check()
        return [event for event in self._log.events[slice(*self._ends)] if event.source != CONTAINER]

    def notes(self) -> Sequence[str]:
        return []
