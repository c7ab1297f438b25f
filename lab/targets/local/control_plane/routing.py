"""What the proxies know of routes and endpoints, while it changes: objects in, configurations and reloads out.

Stands where an API server and a controller's watch stand in a cluster. A change is accepted at once; each proxy has a
queue of its own (`Follower`), in which all changes that wait are one reload: in the least time that its
system lets pass between two. Refuses to know how a proxy is told: that is its system's `control`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lab.base.errors import LabError, MeasuringError, UsageError
from lab.model.endpoint import Role
from lab.model.events import EventLog
from lab.systems.manifests import objects
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Pod
from lab.systems.system import Context, Control, Loading, Realisation, Renew
from lab.systems.table import find
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.containers import Process

LOOK_S, REST_S = 0.003, 0.02
"""Between two looks while something loads, and while nothing does: so much may a time be late."""
ENDED_S = 0.5
"""Until it is known that a container has ended, at most."""


class Routes(Protocol):
    """Who tells a system's proxies of routes and endpoints. Calls come from any thread, `begin` first and `close` last.

    What has a body here is so where nothing but the proxies is there.
    """

    log: EventLog

    @property
    def objects(self) -> Objects:
        """As they are now: what a new pod is to be started with."""
        ...

    @property
    def note(self) -> str:
        """What a sample must say of how changes reach the proxy here; empty where it is as in a cluster."""
        ...

    @property
    def said(self) -> str:
        """What the proxies do not take of their settings, in their own words; empty where they take all."""
        return ""

    def explained(self, fault: MeasuringError) -> MeasuringError:
        """Why a system did not come up, with what is known of it here."""
        return fault

    def begin(self) -> None:
        """Before any pod is started. Raises LabError."""

    def equipped(self, context: Context, started: Realisation) -> Realisation:
        """With what a container is given beside its image and its manifest."""
        return started

    def follow(self, pod: Pod, process: Process) -> None:
        """A container is about to start."""

    def leave(self, pod: Pod) -> None:
        """A pod was told to end."""

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """These pods (of any role) are ready and do not terminate, and no others; `addresses`: pod → IP, of them at least."""

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """As `lab.model.system.Disturbable.apply`."""

    def renew(self) -> None:
        """Ask every proxy that can for a reload that makes new workers; returns when it was asked for. MeasuringError."""

    def gauges(self) -> Mapping[str, float]:
        """`proxy/config_bytes` and `proxy/load_s`, the largest of any proxy; without what cannot be told."""
        ...

    def apart(self) -> Sequence[int]:
        """Processes of the control plane, also those in a proxy's container: what they use is not the proxy's. Empty where there are none."""
        ...

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """As `lab.model.system.System.deployed`."""
        return []

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """As `lab.model.system.System.configmap`."""
        ...

    def check(self) -> None:
        """MeasuringError when something could not be told."""

    def stop(self) -> None:
        """Before the processes are ended. Idempotent."""

    def close(self) -> None:
        """After they have ended. Idempotent."""


class Routing(Routes):
    """Proxies are followed from before they start until they are told to end: `follow`, `leave`; all of them until `stop`.

    Without `changing` it only sees how long the proxies take to load: nothing is to be measured with this beside it.
    """

    def __init__(
        self,
        wanted: Objects,
        addresses: Mapping[str, str],
        pinned: Mapping[Role, frozenset[int]],
        log: EventLog,
        changing: bool = False,
    ) -> None:
        self._objects, self._addresses, self._pinned = wanted, dict(addresses), pinned
        self.log, self._changing = log, changing
        self._first, self._moved = {pod.name for pod in wanted.role("backend")}, False
        self._followers: list[Follower] = []
        """Also of proxies that are no more: their faults stay."""
        self._following, self._over = threading.Lock(), False
        """A pod may still be starting when all are stopped: none is followed from then on."""
        self._renewable: list[tuple[Process, Renew]] = []
        self._accepting = threading.Lock()
        self._deaf: set[str] = set()
        """Proxies whose configuration is fixed."""

    @property
    def objects(self) -> Objects:
        return self._objects

    @property
    def note(self) -> str:
        containers = [container for pod in self._objects.role("proxy") for container in pod.containers]
        found = {system.note for item in containers if (system := find(item.repository)) is not None}
        return ", ".join(sorted(found - {""})) if self._changing else ""

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the ConfigMap as the proxies were configured by it: there is one namespace on this target."""
        return self._objects.configmaps.get(name, {})

    def begin(self) -> None: ...

    def close(self) -> None: ...

    def apart(self) -> Sequence[int]:
        """Of proxies whose system names the processes that serve: the others in their containers."""
        found: list[int] = []
        for follower in self._present():
            system = find(follower.process.container.repository)
            if system and system.proxy:
                found += follower.process.processes_but(system.proxy)
        return found

    def follow(self, pod: Pod, process: Process) -> None:
        """A container is about to start: of a proxy, it is told of changes."""
        container, system = process.container, find(process.container.repository)
        if pod.role != "proxy":
            return
        if system is not None and system.renew is not None:
            self._renewable.append((process, system.renew))
        if system is None or system.control is None:
            self._deaf.add(container.place)
            return

        def wanted() -> Mapping[str, str]:
            place = process.setting.place
            return bringup.realisation(container, pod, place, self._objects, self._addresses, self._pinned).files

        follower = Follower(pod.name, process, system.control(process), wanted, self.log, once=not self._changing)
        with self._following:
            if not self._over:
                follower.start()
                self._followers.append(follower)

    def leave(self, pod: Pod) -> None:
        for follower in self._followers:
            if follower.pod == pod.name:
                follower.over.set()

    def stop(self) -> None:
        with self._following:
            self._over = True
        for follower in self._followers:
            follower.over.set()
            follower.join()

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        self._moved = self._moved or self._first != {pod.name for pod in ready if pod.role == "backend"}
        with self._accepting:
            self._addresses |= addresses
            self._accept(replace(self._objects, ready=tuple(ready)))

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """All of them or, where one is refused, none. MeasuringError for what is not honoured here."""
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

    def renew(self) -> None:
        """By what its system says that its controller does."""
        for process, renew in self._renewable:
            renew(process)

    def gauges(self) -> Mapping[str, float]:
        there = self._present()
        found = {
            "proxy/config_bytes": [float(follower.control.config_bytes()) for follower in there],
            "proxy/load_s": [follower.load_s for follower in there if follower.load_s is not None],
        }
        return {name: max(values) for name, values in found.items() if values}

    def check(self) -> None:
        for fault in [follower.fault for follower in self._followers if follower.fault is not None]:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)
        if self._deaf and self._moved:
            fault = "the backend's pods changed, and this proxy knows their addresses from its start, not a Service's"
            raise MeasuringError(min(self._deaf), fault, "a proxy that reads Ingresses or Routes, or --target kind")

    def _accept(self, new: Objects) -> None:
        old, self._objects = self._objects, new
        if new != old:
            for follower in self._followers:
                follower.changed.set()

    def _present(self) -> list[Follower]:
        return [follower for follower in self._followers if not follower.over.is_set()]


class Follower(threading.Thread):
    """One proxy container's queue of changes: what waits is one reload, no sooner after the last than its image allows.

    Writes down when each was begun (`Reload`) and when the new configuration served (`Reloaded`). Refuses to judge a reload that failed: the fault
    is kept for whoever asks, the proxy goes on with what it had. `wanted`: what the container is to load now, path → text. `once`: it rests when
    the first configuration serves.
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
        super().__init__(name=f"reloads-{pod}", daemon=True)
        self.pod, self.process, self.control = pod, process, control
        self._wanted, self._log, self._once = wanted, log, once
        self.changed, self.over = threading.Event(), threading.Event()
        self._main: int | None = None
        self._last = float("-inf")
        self._served = False
        self.load_s: float | None = None
        """From the last start or reload until it served; None while it does not, or where its begin was not seen."""
        self.fault: LabError | None = None

    def run(self) -> None:
        while not (self._once and self._served) and not self.over.wait(REST_S):
            try:
                self._look()
            except (OSError, LabError) as error:
                # Unless its container ended, which is no fault of a reload's; that is known a moment later.
                if not self.over.wait(ENDED_S) and self.process.pid == self._main:
                    self._fail(error)
            except Exception as error:  # noqa: BLE001 - ended unheard, no later change would reach the proxy
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, LabError):
            said = str(error) if isinstance(error, OSError) else repr(error)
            error = MeasuringError(self.process.container.place, f"its routes: {said}", "")
        self.fault = self.fault or error

    def _look(self) -> None:
        if self.process.pid != self._main:
            self._main, self.load_s = self.process.pid, None
            if self._main is not None:
                self.changed.set()  # what came while it was being started, it may not have
                self._begin()
        elif self._main is not None and self.changed.is_set():
            self._turn()

    def _begin(self) -> None:
        """It was started: its first configuration is a load, too, and the next comes an interval later."""
        while (loading := self.control.started()) is None:
            if self.process.pid != self._main or self.over.wait(LOOK_S):
                return
        self._last = time.monotonic() - (0.0 if loading.began_s is None else time.time() - loading.began_s)
        self._served = self._serve(loading)

    def _turn(self) -> None:
        waits_s = self._last + self.control.interval_s - time.monotonic()
        if self.control.looks_once_more:
            self.changed.clear()
        if self.over.wait(max(0.0, waits_s)) or self.process.pid != self._main:
            return
        if not self.control.looks_once_more:
            self.changed.clear()
        before, self._last = self._last, time.monotonic()
        loading = self.control.load(self._wanted(), self.over)
        if loading is not None:
            self._log.add("proxy", "Reload", self.pod, f"pid {loading.pid}", "proxy", loading.began_s)
            if self._serve(loading):
                self._log.add("proxy", "Reloaded", self.pod, f"pid {loading.pid}", "proxy")
        elif not self.control.looks_once_more:
            self._last = before  # nothing new: no turn was taken

    def _serve(self, loading: Loading) -> bool:
        """False when it was ended before it served."""
        while not self.control.serving(loading):
            if self.process.pid != self._main or self.over.wait(LOOK_S):
                return False
        self.load_s = time.time() - loading.began_s if loading.began_s is not None else None
        self.process.confine()  # its new processes may have chosen CPUs of their own
        return True
