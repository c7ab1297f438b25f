"""The routes and endpoints that the proxies know, while routes and endpoints change: configurations and reloads.

This module stands for the API server and a controller's watch in a cluster. A change is accepted at once. Each proxy
has a queue (`ProxyFollower`): all changes that wait become one reload, at the shortest interval that its system allows
between two reloads. How a proxy is reloaded is its system's matter: `control`.
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
from lab.targets.local.kubelet.containers import LocalContainerProcess

LOOK_S, REST_S = 0.003, 0.02
"""The seconds between two looks while a configuration is loading, and while none is.

A recorded time may be late by so much.
"""
ENDED_S = 0.5
"""The seconds after a container's end within which the lab knows of this end."""


class Routes(Protocol):
    """The component that passes routes and endpoints to a system's proxies.

    Calls come from any thread, `begin` first and `close` last. A method with a body here suits a target on which
    nothing runs but the proxies.
    """

    log: EventLog

    @property
    def objects(self) -> Objects:
        """The variant's objects as they are now; new pods are started with them."""
        ...

    @property
    def note(self) -> str:
        """A note for samples on how changes reach the proxy on this target; empty if they do so as in a cluster."""
        ...

    @property
    def said(self) -> str:
        """The settings that the proxies do not accept, in the proxies' words; empty if they accept all."""
        return ""

    def explained(self, fault: MeasuringError) -> MeasuringError:
        """Return the error of a system that did not come up, with the reason as far as this component knows it."""
        return fault

    def begin(self) -> None:
        """Prepare everything that must exist before any pod is started.

        Raises:
            LabError: Something cannot be prepared.

        """

    def equipped(self, context: Context, started: Realisation) -> Realisation:
        """Return what to start a container with, extended by what a cluster adds to its image and manifest."""
        return started

    def follow(self, pod: Pod, process: LocalContainerProcess) -> None:
        """Take note of a container that is about to start."""

    def leave(self, pod: Pod) -> None:
        """Take note of a pod that was ordered to end."""

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """Take note of the pods that are ready now.

        Args:
            ready: All pods, of any role, that are ready and do not terminate.
            addresses: Pod → IP address, of these pods at least.

        """

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects; see `lab.model.disturbance.Disturbable.apply`."""

    def renew(self) -> None:
        """Request from every proxy a reload that makes new workers, and return without waiting for the reload.

        Raises:
            MeasuringError: A proxy has no reload that makes new workers.

        """

    def gauges(self) -> Mapping[str, float]:
        """Return the size of the proxies' configuration and the time to load it, each the largest of all proxies.

        The names are `proxy/config_bytes` and `proxy/load_s` (seconds). Unknown values are left out.
        """
        ...

    def apart(self) -> Sequence[int]:
        """Return the process ids of the control plane, including those in the containers of proxies.

        The resource use of these processes does not count as the proxy's.
        """
        ...

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """Return the pods as the API server has them; empty without one (see `lab.model.system.System.deployed`)."""
        return []

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap; see `lab.model.system.System.configmap`."""
        ...

    def check(self) -> None:
        """Raise the first fault that occurred while changes were passed on to the proxies.

        Raises:
            MeasuringError: A change could not be passed to a proxy.

        """

    def stop(self) -> None:
        """Stop passing changes on to the proxies, before the processes are ended; this may be called again."""

    def close(self) -> None:
        """Clean up after the processes have ended; this may be called again."""


class FileRouting(Routes):
    """The component that passes routes and endpoints to proxies that read them from files.

    It follows each proxy from before the proxy's start (`follow`) until the proxy is ordered to end (`leave`); `stop`
    ends this for all proxies.
    """

    def __init__(
        self,
        initial: Objects,
        addresses: Mapping[str, str],
        pinned: Mapping[Role, frozenset[int]],
        log: EventLog,
        changing: bool = False,
    ) -> None:
        """Start without proxies.

        Args:
            initial: The objects at the start.
            addresses: Pod → IP address.
            pinned: The CPUs of each role.
            log: The log for events.
            changing: Whether routes and pods may change. If not, only the loading time of the first configuration is
                recorded, so that nothing runs during a measurement.

        """
        self._objects, self._addresses, self._pinned = initial, dict(addresses), pinned
        self.log, self._changing = log, changing
        self._first_backends, self._backends_changed = {pod.name for pod in initial.role("backend")}, False
        self._followers: list[ProxyFollower] = []
        """The followers, those of ended proxies included, because their faults stay."""
        self._following, self._over = threading.Lock(), False
        """A lock, and whether `stop` was called. A pod may still be starting then; it is not followed."""
        self._renewable: list[tuple[LocalContainerProcess, Renew]] = []
        self._accepting = threading.Lock()
        self._fixed_proxies: set[str] = set()
        """The places of proxies whose configuration is fixed."""

    @property
    def objects(self) -> Objects:
        """The variant's objects as they are now, with the changes of routes and endpoints so far."""
        return self._objects

    @property
    def note(self) -> str:
        """The note for samples on how changes reach the proxies; empty if routes and pods may not change."""
        containers = [container for pod in self._objects.role("proxy") for container in pod.containers]
        notes = {system.note for item in containers if (system := find(item.repository)) is not None}
        return ", ".join(sorted(notes - {""})) if self._changing else ""

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap by its name alone, as this target has only one namespace."""
        return self._objects.configmaps.get(name, {})

    def begin(self) -> None:
        """Do nothing: the files are written when a proxy starts."""

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def apart(self) -> Sequence[int]:
        """Return the ids of those processes in the proxies' containers that do not serve requests.

        Only the containers of systems that name the serving program are searched.
        """
        pids: list[int] = []
        for follower in self._list_active_followers():
            system = find(follower.process.container.repository)
            if system and system.proxy:
                pids += follower.process.processes_but(system.proxy)
        return pids

    def follow(self, pod: Pod, process: LocalContainerProcess) -> None:
        """Follow a proxy's container that is about to start, so that changes reach it."""
        container, system = process.container, find(process.container.repository)
        if pod.role != "proxy":
            return
        if system is not None and system.renew is not None:
            self._renewable.append((process, system.renew))
        if system is None or system.control is None:
            self._fixed_proxies.add(container.place)
            return

        def make_files() -> Mapping[str, str]:
            place = process.setting.place
            return bringup.realise_now(container, pod, place, self._objects, self._addresses, self._pinned).files

        follower = ProxyFollower(
            pod.name, process, system.control(process), make_files, self.log, once=not self._changing
        )
        with self._following:
            if not self._over:
                follower.start()
                self._followers.append(follower)

    def leave(self, pod: Pod) -> None:
        """Stop following the containers of a pod that was ordered to end."""
        for follower in self._followers:
            if follower.pod == pod.name:
                follower.over.set()

    def stop(self) -> None:
        """Stop following all proxies and wait for the threads; this may be called again."""
        with self._following:
            self._over = True
        for follower in self._followers:
            follower.over.set()
            follower.join()

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """Pass the ready pods on to the proxies.

        Args:
            ready: All pods, of any role, that are ready and do not terminate.
            addresses: Pod → IP address, of these pods at least.

        """
        self._backends_changed = self._backends_changed or self._first_backends != {
            pod.name for pod in ready if pod.role == "backend"
        }
        with self._accepting:
            self._addresses |= addresses
            self._accept(replace(self._objects, ready=tuple(ready)))

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects; if one object is refused, all stay as they were.

        Raises:
            MeasuringError: An object is not supported here, or a proxy reads no routes.

        """
        if self._fixed_proxies:
            fault = "this proxy reads neither Ingresses nor Routes"
            raise MeasuringError(min(self._fixed_proxies), fault, "leave the change out, or measure another proxy")
        with self._accepting:
            result = self._objects
            try:
                for manifest in manifests:
                    result = objects.apply_change(result, manifest)
            except UsageError as error:
                raise MeasuringError(error.place, error.fault, error.remedy) from None
            self._accept(result)

    def renew(self) -> None:
        """Reload every proxy that has a reload with new workers, as the controller of its proxy system does."""
        for process, renew in self._renewable:
            renew(process)

    def gauges(self) -> Mapping[str, float]:
        """Return the size of the proxies' configuration and the time to load it, each the largest of all proxies.

        The names are `proxy/config_bytes` and `proxy/load_s` (seconds). Unknown values are left out.
        """
        followers = self._list_active_followers()
        gauges = {
            "proxy/config_bytes": [float(follower.control.config_bytes()) for follower in followers],
            "proxy/load_s": [follower.load_s for follower in followers if follower.load_s is not None],
        }
        return {name: max(values) for name, values in gauges.items() if values}

    def check(self) -> None:
        """Raise the first fault of a reload, or an error if a proxy could not learn that the backends changed.

        Raises:
            MeasuringError: A reload failed, or backends changed and the configuration of a proxy is fixed.

        """
        for fault in [follower.fault for follower in self._followers if follower.fault is not None]:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)
        if self._fixed_proxies and self._backends_changed:
            fault = "the backend's pods changed, and this proxy knows their addresses from its start, not a Service's"
            raise MeasuringError(
                min(self._fixed_proxies), fault, "a proxy that reads Ingresses or Routes, or --target kind"
            )

    def _accept(self, new: Objects) -> None:
        """Take new objects and notify the followers if they differ from the old ones."""
        old, self._objects = self._objects, new
        if new != old:
            for follower in self._followers:
                follower.changed.set()

    def _list_active_followers(self) -> list[ProxyFollower]:
        return [follower for follower in self._followers if not follower.over.is_set()]


class ProxyFollower(threading.Thread):
    """The queue of changes of one proxy's container, as a thread.

    All changes that wait become one reload, and two reloads are as far apart as the image requires. Events record
    when each reload began (`Reload`) and when the new configuration served (`Reloaded`). The fault of a failed
    reload is kept for callers to read, and the proxy continues with its old configuration.
    """

    def __init__(
        self,
        pod: str,
        process: LocalContainerProcess,
        control: Control,
        make_files: Callable[[], Mapping[str, str]],
        log: EventLog,
        once: bool = False,
    ) -> None:
        """Prepare the thread.

        Args:
            pod: The name of the container's pod.
            process: The container's process.
            control: The system's way to reload the proxy and to see what it serves.
            make_files: Returns the files that the container is to load now, as path → text.
            log: The log for events.
            once: Whether the thread ends when the first configuration serves.

        """
        super().__init__(name=f"reloads-{pod}", daemon=True)
        self.pod, self.process, self.control = pod, process, control
        self._make_files, self._log, self._once = make_files, log, once
        self.changed, self.over = threading.Event(), threading.Event()
        self._main: int | None = None
        self._last = float("-inf")
        self._served = False
        self.load_s: float | None = None
        """The seconds from the proxy's last start or reload until the proxy served.

        None while the proxy does not serve, or if the beginning of its loading was not seen.
        """
        self.fault: LabError | None = None

    def run(self) -> None:
        """Follow the proxy until `over` is set; this is the thread's body."""
        while not (self._once and self._served) and not self.over.wait(REST_S):
            try:
                self._look()
            except (OSError, LabError) as error:
                # If the container ended, which is known a moment later, the error is no fault of a reload.
                if not self.over.wait(ENDED_S) and self.process.pid == self._main:
                    self._fail(error)
            except Exception as error:  # noqa: BLE001 - if the thread ended, no later change would arrive
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Keep an error as the follower's fault, unless there is an earlier fault already."""
        if not isinstance(error, LabError):
            message = str(error) if isinstance(error, OSError) else repr(error)
            error = MeasuringError(self.process.container.place, f"its routes: {message}", "")
        self.fault = self.fault or error

    def _look(self) -> None:
        """React to a start of the container or to waiting changes."""
        if self.process.pid != self._main:
            self._main, self.load_s = self.process.pid, None
            if self._main is not None:
                self.changed.set()  # it may lack changes that came while it was being started
                self._follow_start()
        elif self._main is not None and self.changed.is_set():
            self._reload()

    def _follow_start(self) -> None:
        """Wait until a started container serves: its first configuration counts as a load, too."""
        while (loading := self.control.started()) is None:
            if self.process.pid != self._main or self.over.wait(LOOK_S):
                return
        self._last = time.monotonic() - (0.0 if loading.began_s is None else time.time() - loading.began_s)
        self._served = self._wait_until_serving(loading)

    def _reload(self) -> None:
        """Wait until the required interval since the last reload is over, then load all changes that came so far."""
        waits_s = self._last + self.control.interval_s - time.monotonic()
        if self.control.looks_once_more:
            self.changed.clear()
        if self.over.wait(max(0.0, waits_s)) or self.process.pid != self._main:
            return
        if not self.control.looks_once_more:
            self.changed.clear()
        before, self._last = self._last, time.monotonic()
        loading = self.control.load(self._make_files(), self.over)
        if loading is not None:
            self._log.add("proxy", "Reload", self.pod, f"pid {loading.pid}", "proxy", loading.began_s)
            if self._wait_until_serving(loading):
                self._log.add("proxy", "Reloaded", self.pod, f"pid {loading.pid}", "proxy")
        elif not self.control.looks_once_more:
            self._last = before  # nothing was new, so no reload took place

    def _wait_until_serving(self, loading: Loading) -> bool:
        """Wait until a configuration serves; return False if the container ended before."""
        while not self.control.serving(loading):
            if self.process.pid != self._main or self.over.wait(LOOK_S):
                return False
        self.load_s = time.time() - loading.began_s if loading.began_s is not None else None
        self.process.confine()  # its new processes may have chosen other CPUs
        return True
