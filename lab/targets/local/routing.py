"""What the proxies know of routes and endpoints, while it changes: objects in, configurations and reloads out.

Stands where an API server and a controller's watch stand in a cluster. A change is accepted at once; each proxy has a
queue of its own (`reloads`), in which all changes that wait are one reload: RELOAD_INTERVAL of OKD's router, the sync
rate of ingress-nginx. Refuses to know how a proxy is told: that is its image's `control`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lab.base.errors import LabError, MeasuringError, UsageError
from lab.model.endpoint import Role
from lab.model.events import EventLog
from lab.targets.local import bringup, images, objects
from lab.targets.local.containers import Process
from lab.targets.local.objects import Objects
from lab.targets.local.pods import Pod
from lab.targets.local.reloads import Follower
from lab.targets.local.runner import Runner

LOOK_S = 0.01
"""How soon a new proxy is seen, about."""


class Routing:
    """`start` before the first proxies are started, `stop` before their processes are ended.

    `runners`: the proxy's containers that exist now and are not told to end; asked for again and again. Without `changing`
    it only sees how long the proxies take to load, and then rests.
    """

    def __init__(
        self,
        wanted: Objects,
        addresses: Mapping[str, str],
        pinned: Mapping[Role, frozenset[int]],
        runners: Callable[[], Sequence[Runner]],
        log: EventLog,
        changing: bool = False,
    ) -> None:
        self._objects, self._addresses, self._pinned = wanted, dict(addresses), pinned
        self._runners, self.log, self._changing = runners, log, changing
        self._first, self._moved = wanted.role("backend"), False
        self._followers: dict[Process, Follower] = {}
        self._accepting = threading.Lock()
        self._over = threading.Event()
        self._faults: list[LabError] = []
        """Of followers that are no more, and of `_watch` itself."""
        self._deaf: set[str] = set()
        """Proxies whose configuration is fixed."""
        self._thread = threading.Thread(target=self._run, name="routing", daemon=True)

    @property
    def objects(self) -> Objects:
        """As they are now: what a new proxy pod is to be started with."""
        return self._objects

    @property
    def note(self) -> str:
        """What a sample must say of how changes reach the proxy here; empty where it is as in a cluster."""
        containers = [container for pod in self._objects.role("proxy") for container in pod.containers]
        found = {image.NOTE for item in containers if (image := images.find(item.repository)) is not None}
        return ", ".join(sorted(found - {""})) if self._changing else ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """These pods (of any role) are ready and do not terminate, and no others; `addresses`: pod → IP, of them at least."""
        names = {pod.name for pod in ready if pod.role == "backend"}
        self._moved = self._moved or names != {pod.name for pod in self._first}
        with self._accepting:
            self._addresses |= addresses
            self._accept(replace(self._objects, ready=tuple(ready)))

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change Routes, Ingresses, Services, EndpointSlices; all of them or, where one is refused, none.

        MeasuringError for what is not honoured here.
        """
        if self._deaf:
            fault = "this proxy reads neither Ingresses nor Routes"
            raise MeasuringError(min(self._deaf), fault, "leave the change out, or measure another proxy")
        with self._accepting:
            found = self._objects
            try:
                for manifest in manifests:
                    found = objects.applied(found, manifest)
            except UsageError as error:
                raise MeasuringError(error.place, error.fault, error.remedy) from None
            self._accept(found)

    def gauges(self) -> Mapping[str, float]:
        """`proxy/config_bytes` and `proxy/load_s`, the largest of any proxy; without what cannot be told."""
        followers = list(self._followers.values())
        found = {
            "proxy/config_bytes": [float(follower.config_bytes()) for follower in followers],
            "proxy/load_s": [follower.load_s for follower in followers if follower.load_s is not None],
        }
        return {name: max(values) for name, values in found.items() if values}

    def check(self) -> None:
        """MeasuringError when a proxy could not be told of a change."""
        now = [follower.fault for follower in list(self._followers.values())]
        for fault in [*self._faults, *(fault for fault in now if fault is not None)]:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)
        if self._deaf and self._moved:
            fault = "the backend's pods changed, and this proxy knows their addresses from its start, not a Service's"
            raise MeasuringError(min(self._deaf), fault, "a proxy that reads Ingresses or Routes, or --target kind")

    def _accept(self, new: Objects) -> None:
        old, self._objects = self._objects, new
        if new == old:
            return
        for follower in list(self._followers.values()):
            follower.changed()

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - changes do not reach the proxy any more, and a sample must say so
            self._faults.append(MeasuringError("routing", f"its thread ended: {error!r}", "report it: this is a bug"))
        finally:
            for process in list(self._followers):
                self._unfollow(process)

    def _unfollow(self, process: Process) -> None:
        """Its faults stay."""
        follower = self._followers[process]
        follower.end()
        if follower.fault is not None:
            self._faults.append(follower.fault)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            there = {runner.process: runner for runner in self._runners()}
            for process, runner in there.items():
                if process not in self._followers and runner.container.place not in self._deaf:
                    self._follow(process, runner)
            for process in [process for process in self._followers if process not in there]:
                self._unfollow(process)
                del self._followers[process]
            if not self._changing and self._all_serve(there):
                return  # nothing is to be measured with this beside it

    def _all_serve(self, there: Mapping[Process, Runner]) -> bool:
        pods = {runner.pod.name for runner in there.values()}
        followed = [self._followers[process] for process in there if process in self._followers]
        return pods >= {pod.name for pod in self._objects.role("proxy")} and all(item.served for item in followed)

    def _follow(self, process: Process, runner: Runner) -> None:
        image = images.find(runner.container.repository)
        control = image.control(process) if image is not None else None
        if control is None:
            self._deaf.add(runner.container.place)
            return
        container = next(item for item in runner.pod.containers if item.name == runner.container.name)

        def wanted() -> Mapping[str, str]:
            place = process.setting.place
            found = bringup.realisation(container, runner.pod, place, self._objects, self._addresses, self._pinned)
            return found.files

        follower = Follower(runner.pod.name, process, control, wanted, self.log)
        self._followers[process] = follower
        follower.start()
