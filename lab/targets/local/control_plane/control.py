"""The local target's control plane: it creates, replaces and deletes pods while a system runs, and updates endpoints.

There is one lock. Every change leads to a call of `_settle`: a call such as `end_pod`, the result of a probe, or the
end of a pod. `_settle` creates and deletes pods by the rules of their Deployment (`lab.systems.manifests.replicas`).
It also passes the endpoints to the Service's NAT, and updates the proxies' configuration (`routing`). Only then does
the kubelet end the deleted pods, so no new connection goes to a pod that was ordered to end. Pods start and end in
separate threads. If a pod could not be started, `check` raises the error.

The events of a pod that is deleted:

    Deleted ── the pod terminates: it receives new connections only if its Service has no other pod
       ├────── its Deployment makes another pod (Created), which starts when all its host ports are free
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
from lab.systems.manifests.replicas import ReplicaPod, RolloutStep, find_budget, plan_step
from lab.targets.local.control_plane import services
from lab.targets.local.control_plane.routing import Routes
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.kubelet import Kubelet, MakeContainer, RunningPod
from lab.targets.local.kubelet.runner import CONTAINER
from lab.targets.local.sandbox.network import Network, as_measuring_error

KUBELET_S = 0.05
"""The seconds from a pod's deletion to its kubelet's first action.

A cluster needs this time for a watch and a queue. Connections that were on their way arrive in this time.
"""

START_S = 30.0
"""The seconds that the init containers of a new pod may take."""


class ControlPlane:
    """The local target's substitute for a Kubernetes control plane, for one system whose pods may come and go.

    It creates, replaces and deletes pods, and publishes endpoints. Call `adopt` once the whole system is up, and
    `stop` before the kubelet is stopped.
    """

    def __init__(
        self,
        objects: Objects,
        net: Network,
        kubelet: Kubelet,
        routing: Routes,
        log: EventLog,
        job: Callable[[Pod], MakeContainer],
    ) -> None:
        """Prepare the control plane; it does nothing before `adopt`.

        Args:
            objects: The objects of the variant.
            net: The network of the system.
            kubelet: The kubelet with the system's pods.
            routing: The component that passes endpoints to the proxies.
            log: The log for events.
            job: A function that prepares a new pod, whose network namespace exists already. It returns the function
                that makes the processes of the pod's containers.

        """
        self._objects, self._net, self._kubelet, self._routing = objects, net, kubelet, routing
        self._log, self._job = log, job
        self._replicas = {deployment.name: deployment.replicas for deployment in objects.deployments}
        self._created = Counter(self._replicas)
        """The number of pods that each Deployment has created so far; it becomes part of the next pod's name."""
        self._generations = Counter[str]()
        self._lives: list[RunningPod] = []
        self._nat_targets: tuple[Pod, ...] = ()
        """The pods that the NAT sends new connections to."""
        self._announced: tuple[Pod, ...] = ()
        """The endpoints that the proxies were informed of last."""
        self._threads: list[threading.Thread] = []
        self._lock, self._wiring = threading.RLock(), threading.Lock()
        self._closing = threading.Event()
        self._faults: list[LabError] = []
        self.ever: list[Pod] = list(objects.pods)
        """The pods that ever existed, those that are gone included."""
        self.ended: Callable[[Pod], None] = lambda pod: None
        """A function that is called when a pod's containers have ended, before its network is removed."""

    def adopt(self) -> None:
        """Take over the pods that are up, and from now on react to every change of their readiness.

        Raises:
            MeasuringError: The network cannot be changed.

        """
        with self._lock:
            names = [pod.name for pod in self._objects.pods]
            self._lives = sorted(self._kubelet.pods, key=lambda life: names.index(life.pod.name))
            for life in self._lives:
                life.begun, life.told_ready = True, life.ready
            self._announced = self._list_endpoints()
            with as_measuring_error():
                services.answer_without_endpoints(self._net, self._objects)
            self._kubelet.heard = self.look
            self.look()

    def stop(self) -> None:
        """End all pods at once, including pods that another thread is just starting or ending."""
        self._closing.set()
        self._kubelet.stop()
        for thread in list(self._threads):
            thread.join()
        self._kubelet.stop()  # pods that one of these threads was just starting

    def check(self) -> None:
        """Raise an error if a pod's start or end, or a change of the NAT or of routes, has failed since the bring-up.

        Raises:
            MeasuringError: The first such fault; faults of routes come last.

        """
        for fault in self._faults:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)
        self._routing.check()

    def pods(self, role: Role) -> list[Pod]:
        """Return those pods of a role whose containers were started; terminating pods come last."""
        with self._lock:
            running = [life for life in self._lives if life.pod.role == role and life.runners]
            return [life.pod for life in sorted(running, key=lambda life: life.terminating)]

    def look(self) -> None:
        """Record pods whose readiness has changed, then bring replicas and endpoints up to date.

        The kubelet calls this whenever a container's readiness has changed.
        """
        with self._lock:
            for life in self._lives:
                if (ready := life.ready) != life.told_ready:
                    life.told_ready = ready
                    if not life.terminating:
                        self._record_event("Ready" if ready else "NotReady", life.pod)
            self._settle()

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """End the first running pod of a role in one of three ways, without waiting for its end.

        Args:
            role: The role, such as `proxy`.
            how: `delete` deletes the pod, `evict` requests its eviction (as a drain does), and `crash` sends SIGKILL
                to the main process of the pod's first container.

        Returns:
            False if a PodDisruptionBudget forbids the eviction, else True.

        Raises:
            MeasuringError: No pod of the role runs.

        """
        with self._lock:
            life = self._find_first(role)
            if how == "crash":
                if (pid := life.runners[0].process.pid) is None:
                    fault = "its first container does not run"
                    raise MeasuringError(life.pod.name, fault, "nothing is there to crash")
                os.kill(pid, signal.SIGKILL)
                return True
            if how == "evict" and (fault := self._find_refusal(life)) is not None:
                self._record_event("EvictionRefused", life.pod, fault)
                return False
            self._delete(life, "evicted" if how == "evict" else "deleted")
            self._settle()
            return True

    def scale(self, role: Role, replicas: int) -> None:
        """Set the number of replicas of the Deployment that makes a role's pods.

        Raises:
            MeasuringError: The role has no Deployment.

        """
        with self._lock:
            self._replicas[self._find_deployment(role).name] = replicas
            self._settle()

    def roll(self, role: Role) -> None:
        """Replace all pods of a role by new ones, in the way that the strategy of their Deployment prescribes.

        This is what a cluster does after a change of the Deployment's pod template.

        Raises:
            MeasuringError: The role has no Deployment.

        """
        with self._lock:
            self._generations[self._find_deployment(role).name] += 1
            self._settle()

    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop all processes of the role's first pod, or let the processes of all the role's pods continue.

        Args:
            role: The role, such as `proxy`.
            frozen: True sends SIGSTOP to the first pod; False sends SIGCONT to all pods of the role.

        Raises:
            MeasuringError: `frozen` is True and no pod of the role runs.

        """
        with self._lock:
            lives = [self._find_first(role)] if frozen else [life for life in self._lives if life.pod.role == role]
            processes = [runner.process for life in lives for runner in life.runners]
            for pid in [pid for process in processes for pid in process.processes()]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def squeeze(self, role: Role, cpu: str | None) -> None:
        """Change the CPU limit of the first container in each of the role's pods.

        Args:
            role: The role, such as `proxy`.
            cpu: The limit as a manifest writes it, such as `20m`. None restores the limit that the manifest sets.

        Raises:
            MeasuringError: No pod of the role runs, or the limit cannot be applied.

        """
        with self._lock:
            self._find_first(role)
            for life in self._lives:
                if life.pod.role == role and life.runners and not life.terminating:
                    life.runners[0].process.setting.group.squeeze(cpu)

    # -- the methods from here on expect that the lock is held, except those that run in separate threads --

    def _settle(self) -> None:
        """Create and delete pods until each Deployment has the pods that it should have, and publish the endpoints.

        Then begin to end the deleted pods, and begin to start those new pods whose host ports are free. Both happen in
        threads.
        """
        if self._closing.is_set():
            return
        for deployment in self._objects.deployments:
            while (change := self._compute_step(deployment)) != RolloutStep():
                for _ in range(change.create):
                    pod = deployment.pod(self._created[deployment.name])
                    self._created[deployment.name] += 1
                    self._lives.append(RunningPod(pod, generation=self._generations[deployment.name]))
                    self.ever.append(pod)
                    self._record_event("Created", pod)
                for life in [life for life in self._lives if life.pod.name in change.delete]:
                    self._delete(life, "not wanted any more")
        self._publish_endpoints()
        for life in self._lives:
            if life.terminating and life.runners and not life.ending:
                life.ending = True
                self._run_in_thread(self._end, life)
        for life in self._lives:  # every pod starts whose ports are free
            placed = [running.pod for running in self._lives if running.begun]
            if not life.begun and not any(life.pod.excludes(pod) for pod in placed):
                life.begun = True
                self._run_in_thread(self._start, life)

    def _compute_step(self, deployment: Deployment) -> RolloutStep:
        lives = [life for life in self._lives if life.pod.deployment == deployment.name]
        generation = self._generations[deployment.name]
        members = [
            ReplicaPod(life.pod.name, life.generation == generation, life.told_ready, life.created_s)
            for life in lives
            if not life.terminating
        ]
        old_ending = sum(life.terminating and life.generation != generation for life in lives)
        return plan_step(self._replicas[deployment.name], deployment.strategy, members, old_ending)

    def _delete(self, life: RunningPod, reason: str) -> None:
        life.terminating = True
        self._record_event("Deleted", life.pod, f"{reason}; grace period {life.pod.grace_s} s")
        if not life.begun:  # nothing of it exists anywhere
            self._lives.remove(life)
            self._record_event("Gone", life.pod)

    def _start(self, life: RunningPod) -> None:
        """Connect a new pod to the network and start its containers; this is the body of a thread."""
        with self._keep_fault():
            self._connect(life.pod)
            self._kubelet.begin(life, self._job(life.pod), time.monotonic() + START_S)
            self.look()

    def _connect(self, pod: Pod) -> None:
        """Create a pod's network namespace and its links; a pod on the host network takes over an earlier pod's namespace.

        Raises:
            CalledProcessError: `ip` fails.
            OSError: A sysctl cannot be written, or `ip` cannot be started.

        """
        with self._wiring:
            if pod.host_network:
                self._net.borrow(pod.name, next(former.name for former in self.ever if former.role == pod.role))
                return
            with self._lock:
                present = [life.pod for life in self._lives if life.begun]
            links = bringup.list_links(replace(self._objects, pods=tuple(present)))
            existing = {place.name for place in self._net.places} | {*self._net.borrowed, pod.name}
            self._net.add(pod.name, [link for link in links if pod.name in link and {*link} <= existing])
            if pod.role == "proxy" and services.list_balancers(self._objects):
                services.join(self._net, pod)

    def _end(self, life: RunningPod) -> None:
        """End a pod's containers, then remove the pod, its folder and its network namespace; this is the body of a thread."""
        self._routing.leave(life.pod)
        self._closing.wait(KUBELET_S)
        self._kubelet.end(life)
        self.ended(life.pod)
        with self._lock:
            self._lives.remove(life)
            self._record_event("Gone", life.pod)
            self.look()
        bringup.remove([life.pod], self._net)
        if not life.pod.host_network:  # the network of the node stays
            with self._keep_fault(), self._wiring:
                self._net.drop(life.pod.name)

    def _publish_endpoints(self) -> None:
        """Pass the endpoints (the ready pods) on to the node's NAT, to the proxies and to the event log, if they have changed."""
        if (targets := self._list_nat_targets()) != self._nat_targets:
            with self._keep_fault():
                services.follow(self._net, self._objects, targets)
            self._nat_targets = targets
        if (ready := self._list_endpoints()) != self._announced:
            for service in self._objects.services.values():
                before, now = (sum(map(service.selects, pods)) for pods in (self._announced, ready))
                if before != now:
                    self._log.add("kubelet", "Endpoints", service.name, str(now))
            self._announced = ready
            self._routing.changed(ready, {pod.name: self._net[pod.name].address for pod in ready})

    def _list_nat_targets(self) -> tuple[Pod, ...]:
        """Return the pods to which the node's NAT is to send new connections.

        They are the ready pods of each Service that do not terminate. If a Service has no such pod, its terminating
        pods that are still ready take their place. A pod with a hostPort is included as long as it runs, ready or not.
        """
        targets: list[Pod] = []
        for service in services.list_balancers(self._objects):
            lives = [life for life in self._lives if service.selects(life.pod) and life.runners]
            if not any(life.pod.host_ports for life in lives):
                lives = [life for life in lives if life.endpoint] or [life for life in lives if life.told_ready]
            targets += [life.pod for life in lives]
        return tuple(targets)

    def _list_endpoints(self) -> tuple[Pod, ...]:
        return tuple(life.pod for life in self._lives if life.endpoint)

    def _find_refusal(self, life: RunningPod) -> str | None:
        """Return the reason why a PodDisruptionBudget forbids a pod's eviction; None if the eviction is allowed."""
        budget = find_budget(self._objects.budgets, life.pod.labels)
        if budget is None:
            return None
        healthy = sum(running.endpoint and budget.selects(running.pod.labels) for running in self._lives)
        guarded = (item.name for item in self._objects.deployments if budget.selects(item.template.labels))
        return budget.refusal(life.told_ready, healthy, sum(self._replicas[name] for name in guarded))

    def _find_first(self, role: Role) -> RunningPod:
        """Return the first pod of a role that runs and does not terminate.

        Raises:
            MeasuringError: There is no such pod.

        """
        running = (life for life in self._lives if life.pod.role == role and life.runners and not life.terminating)
        if (first := next(running, None)) is None:
            raise MeasuringError(f"role {role}", "no pod of it runs", "choose a variant that has one, or a later time")
        return first

    def _find_deployment(self, role: Role) -> Deployment:
        """Return the Deployment that makes a role's pods.

        Raises:
            MeasuringError: The role has no Deployment.

        """
        deployments = (deployment for deployment in self._objects.deployments if deployment.template.role == role)
        if (first := next(deployments, None)) is None:
            raise MeasuringError(f"role {role}", "this variant has no Deployment of it", "name the other role")
        return first

    def _record_event(self, kind: str, pod: Pod, detail: str = "") -> None:
        self._log.add("kubelet", kind, pod.name, detail, pod.role)

    @contextmanager
    def _keep_fault(self) -> Iterator[None]:
        """Catch an error raised in the `with` block and store it, so that `check` raises it later.

        The block mostly runs in another thread, where an error would be lost. After a call of `stop`, errors are
        dropped.
        """
        try:
            with as_measuring_error():
                yield
        except LabError as fault:
            if not self._closing.is_set():
                self._faults.append(fault)

    def _run_in_thread(self, act: Callable[[RunningPod], None], life: RunningPod) -> None:
        thread = threading.Thread(target=act, args=(life,), name=f"pod-{life.pod.name}", daemon=True)
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
        thread.start()


class LocalRecorder:
    """A context manager that returns the events logged while its `with` block ran, in the form of `lab.model.events`.

    Events of single containers are left out, because `ControlPlane` records what they mean for the pod. All times are
    by the lab's clock, because everything runs on one machine.
    """

    def __init__(self, log: EventLog, check: Callable[[], None]) -> None:
        """Prepare the recorder.

        Args:
            log: The log of events.
            check: A function that raises MeasuringError if a change of the system has failed in a thread.

        """
        self._log, self._check = log, check
        self._ends: list[int] = []

    def __enter__(self) -> Recorder:
        self._ends.append(len(self._log.events))
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.append(len(self._log.events))

    def events(self) -> Sequence[Event]:
        """Return the events that were logged during the `with` block, without those whose source is a single container.

        Raises:
            MeasuringError: A change of the system has failed in a thread.

        """
        self._check()
        return [event for event in self._log.events[slice(*self._ends)] if event.source != CONTAINER]

    def notes(self) -> Sequence[str]:
        """Return an empty list, because the record of events is complete on this target and needs no notes."""
        return []
