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
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lab.base.errors import LabError, MeasuringError
from lab.model.endpoint import HowToEnd, Role
from lab.model.events import EventLog
from lab.targets.local import bringup, budgets, services
from lab.targets.local.deployments import Deployment
from lab.targets.local.kubelet import Kubelet, PodJob, RunningPod
from lab.targets.local.network import Network
from lab.targets.local.objects import Objects
from lab.targets.local.pods import Pod
from lab.targets.local.replicas import Member, Step, step
from lab.targets.local.routing import Routing

KUBELET_S = 0.05
"""From a pod's deletion to its kubelet's first act: a watch and a queue lie between. What was on its way arrives."""

LATE_S = 0.001
"""What a timer is set late by, so that its time is over for sure when it looks."""

START_S = 30.0
"""For a pod's init containers."""


@dataclass(slots=True, eq=False)
class Life:
    """One pod from its making to its end. `begun`: it has a place on the node; `ready_s`: since when, monotonic.

    `timed_s`: the `ready_s` whose minReadySeconds a timer runs for, one however often it is looked at.
    """

    pod: Pod
    deployment: str
    generation: int
    running: RunningPod | None = None
    begun: bool = False
    ready: bool = False
    ready_s: float = 0.0
    timed_s: float = 0.0
    terminating: bool = False
    ending: bool = False
    created_s: float = field(default_factory=time.monotonic)

    @property
    def endpoint(self) -> bool:
        return self.ready and not self.terminating


class Control:
    """Of one system. `adopt` once everything is up; `stop` before the kubelet is. `job` prepares a new pod in its place."""

    def __init__(
        self,
        objects: Objects,
        net: Network,
        kubelet: Kubelet,
        routing: Routing,
        log: EventLog,
        job: Callable[[Pod], PodJob],
    ) -> None:
        self._objects, self._net, self._kubelet, self._routing = objects, net, kubelet, routing
        self._log, self._job = log, job
        self._deployments = {deployment.name: deployment for deployment in objects.deployments}
        self._replicas = {deployment.name: deployment.replicas for deployment in objects.deployments}
        self._made = Counter(self._replicas)
        self._generations = Counter[str]()
        self._lives: list[Life] = []
        self._led: tuple[Pod, ...] = ()
        self._told: tuple[Pod, ...] = ()
        self._counted: dict[str, int] = {}
        self._threads: list[threading.Thread] = []
        self._lock, self._wiring = threading.RLock(), threading.Lock()
        self._closing = threading.Event()
        self._faults: list[MeasuringError] = []
        self.ever: list[Pod] = list(objects.pods)
        """Every pod that there was or is."""
        self.ended: Callable[[Pod], None] = lambda pod: None
        """Called when a pod's containers have ended, before its network goes."""

    def adopt(self) -> None:
        """Take what has come up over. MeasuringError."""
        with self._lock:
            for deployment in self._objects.deployments:
                names = {pod.name for pod in deployment.pods()}
                for running in self._kubelet.pods:
                    if running.pod.name in names:
                        life = Life(running.pod, deployment.name, 0, running, begun=True, ready=running.ready)
                        self._lives.append(life)
            self._told = self._ready()
            self._counted = self._counts()
            if services.balancer(self._objects) is not None:
                try:
                    services.answer_without_endpoints(self._net, self._objects)
                except subprocess.CalledProcessError as error:
                    raise _failed(error) from None
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
            raise fault

    def pods(self, role: Role) -> list[Pod]:
        """Those that run, terminating ones last."""
        with self._lock:
            found = [life for life in self._lives if life.pod.role == role and life.running is not None]
            return [life.pod for life in sorted(found, key=lambda life: life.terminating)]

    def look(self) -> None:
        """Something about a pod is another."""
        with self._lock:
            for life in self._lives:
                ready = life.running is not None and life.running.ready
                if ready != life.ready:
                    life.ready, life.ready_s = ready, time.monotonic()
                    if not life.terminating:
                        self._say("Ready" if ready else "NotReady", life.pod)
            self._settle()

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """As `lab.targets.base.System.end_pod`."""
        with self._lock:
            life = self._first(role)
            if how == "crash":
                assert life.running is not None
                self._crash(life.running)
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
            for runner in [runner for life in lives if life.running for runner in life.running.runners]:
                for pid in runner.process.processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def squeeze(self, role: Role, cpu: str | None) -> None:
        with self._lock:
            self._first(role)
            for life in self._lives:
                if life.pod.role == role and life.running is not None and not life.terminating:
                    life.running.runners[0].process.setting.group.squeeze(cpu)

    # -- all below: the lock is held, save in threads of their own -----------------------------------------

    def _settle(self) -> None:
        if self._closing.is_set():
            return
        for deployment in self._objects.deployments:
            while (wanted := self._step(deployment)) != Step():
                for _ in range(wanted.create):
                    self._create(deployment)
                for life in [life for life in self._lives if life.pod.name in wanted.delete]:
                    self._delete(life, "not wanted any more")
        self._follow()
        for life in self._lives:
            if life.terminating and life.running is not None and not life.ending:
                life.ending = True
                self._thread(self._end, life)
        self._schedule()

    def _step(self, deployment: Deployment) -> Step:
        mine = [life for life in self._lives if life.deployment == deployment.name]
        now, generation = time.monotonic(), self._generations[deployment.name]
        members: list[Member] = []
        for life in mine:
            wait_s = life.ready_s + deployment.min_ready_s - now if life.ready else 0.0
            if wait_s > 0 and not life.terminating and life.timed_s != life.ready_s:
                life.timed_s = life.ready_s
                timer = threading.Timer(wait_s + LATE_S, self.look)
                timer.daemon = True
                timer.start()
            if not life.terminating:
                current, available = life.generation == generation, life.ready and wait_s <= 0
                members.append(Member(life.pod.name, current, life.ready, available, life.created_s))
        old_ending = sum(life.terminating and life.generation != generation for life in mine)
        return step(self._replicas[deployment.name], deployment.strategy, members, old_ending)

    def _create(self, deployment: Deployment) -> None:
        pod = deployment.pod(self._made[deployment.name])
        self._made[deployment.name] += 1
        self._lives.append(Life(pod, deployment.name, self._generations[deployment.name]))
        self.ever.append(pod)
        self._say("Created", pod)

    def _delete(self, life: Life, why: str) -> None:
        life.terminating = True
        if life.running is not None:
            life.running.terminating = True
        self._say("Deleted", life.pod, f"{why}; grace period {life.pod.grace_s} s")
        if not life.begun:  # nothing of it is anywhere
            self._lives.remove(life)
            self._say("Gone", life.pod)

    def _schedule(self) -> None:
        """Start every pod whose ports are free."""
        for life in self._lives:
            others = [other.pod for other in self._lives if other.begun]
            if not life.begun and not any(life.pod.excludes(other) for other in others):
                life.begun = True
                self._thread(self._start, life)

    def _start(self, life: Life) -> None:
        try:
            self._wire(life.pod)
            running = self._kubelet.begin(self._job(life.pod), time.monotonic() + START_S)
        except LabError as error:
            self._fail(MeasuringError(error.place, error.fault, error.remedy))
        except (subprocess.CalledProcessError, OSError) as error:
            self._fail(_failed(error))
        else:
            with self._lock:
                life.running = running
                if running is not None:
                    running.terminating = life.terminating
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
            if pod.role == "proxy" and services.balancer(self._objects) is not None:
                services.join(self._net, pod)

    def _end(self, life: Life) -> None:
        assert life.running is not None
        self._closing.wait(KUBELET_S)
        self._kubelet.end(life.running)
        self.ended(life.pod)
        with self._lock:
            self._lives.remove(life)
            self._say("Gone", life.pod)
            self.look()
        bringup.remove([life.pod], self._net)
        if not life.pod.host_network:  # the node's own network stays
            try:
                with self._wiring:
                    self._net.drop(life.pod.name)
            except (subprocess.CalledProcessError, OSError) as error:
                self._fail(_failed(error))

    def _follow(self) -> None:
        """The NAT, the proxies' configuration and the log get to know the endpoints."""
        if (led := self._endpoints()) != self._led:
            try:
                services.follow(self._net, self._objects, led)
            except (subprocess.CalledProcessError, OSError) as error:
                self._fail(_failed(error))
            self._led = led
        counts = self._counts()
        for name, count in counts.items():
            if count != self._counted[name]:
                self._log.add("kubelet", "Endpoints", name, str(count))
        self._counted = counts
        if (ready := self._ready()) != self._told:
            self._told = ready
            addresses = self._net.addresses
            self._routing.changed(ready, {pod.name: addresses[pod.name] for pod in ready})

    def _endpoints(self) -> tuple[Pod, ...]:
        """Where new connections to the proxy go: its ready pods; a Service without any has terminating ones that are ready still.

        A hostPort leads to its pod as long as that has a network, ready or not.
        """
        found: list[Pod] = []
        for service in services.balancers(self._objects):
            mine = [life for life in self._lives if service.selects(life.pod) and life.running is not None]
            if not any(life.pod.host_ports for life in mine):
                mine = [life for life in mine if life.endpoint] or [life for life in mine if life.ready]
            found += [life.pod for life in mine]
        return tuple(found)

    def _ready(self) -> tuple[Pod, ...]:
        return tuple(life.pod for life in self._lives if life.endpoint)

    def _counts(self) -> dict[str, int]:
        ready = self._ready()
        return {
            service.name: sum(map(service.selects, ready))
            for service in self._objects.services.values()
            if service.selector
        }

    def _refusal(self, life: Life) -> str | None:
        budget = budgets.over(self._objects.budgets, life.pod.labels)
        if budget is None:
            return None
        healthy = sum(other.endpoint and budget.selects(other.pod.labels) for other in self._lives)
        expected = sum(
            self._replicas[name]
            for name, deployment in self._deployments.items()
            if budget.selects(deployment.template.labels)
        )
        return budget.refusal(life.ready, healthy, expected)

    def _crash(self, running: RunningPod) -> None:
        pid = running.runners[0].process.pid
        if pid is None:
            raise MeasuringError(running.pod.name, "its first container does not run", "nothing is there to crash")
        os.kill(pid, signal.SIGKILL)

    def _first(self, role: Role) -> Life:
        for life in self._lives:
            if life.pod.role == role and life.running is not None and not life.terminating:
                return life
        raise MeasuringError(f"role {role}", "no pod of it runs", "choose a variant that has one, or a later time")

    def _deployment(self, role: Role) -> Deployment:
        for deployment in self._objects.deployments:
            if deployment.template.role == role:
                return deployment
        raise MeasuringError(f"role {role}", "this variant has no Deployment of it", "name the other role")

    def _say(self, kind: str, pod: Pod, detail: str = "") -> None:
        self._log.add("kubelet", kind, pod.name, detail, pod.role)

    def _fail(self, fault: MeasuringError) -> None:
        if not self._closing.is_set():
            self._faults.append(fault)

    def _thread(self, act: Callable[[Life], None], life: Life) -> None:
        thread = threading.Thread(target=act, args=(life,), name=f"pod-{life.pod.name}", daemon=True)
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
        thread.start()


def _failed(error: subprocess.CalledProcessError | OSError) -> MeasuringError:
    said = str(error)
    if isinstance(error, subprocess.CalledProcessError):
        said = f"{' '.join(map(str, error.cmd))} failed: {str(error.stderr).strip()}"
    return MeasuringError("local target", said, "`just doctor` checks what it needs")
