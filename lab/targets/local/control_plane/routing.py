"""The component that passes changes of routes and endpoints on to the proxies: it writes their files and reloads them.

In a cluster, the API server and a controller's watch do this. A change is accepted at once. Each proxy has a thread
(`ProxyFollower`) that turns all waiting changes into one reload. Between two reloads lies at least the interval that
the proxy system requires. The proxy system also defines how its proxies are reloaded (`lab.systems.system.Control`).
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
from lab.systems.manifests.objects import Objects, apply_change
from lab.systems.manifests.pods import Pod
from lab.systems.system import Context, Control, Loading, Realisation, Renew
from lab.systems.table import find
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.containers import LocalContainerProcess

LOOK_S, REST_S = 0.003, 0.02
"""The seconds between two looks at a proxy: while it loads a configuration, and at all other times.

Recorded times may be late by this much.
"""
ENDED_S = 0.5
"""The seconds within which the lab notices the end of a container."""


class Routes(Protocol):
    """The component that passes routes and endpoints to a system's proxies.

    `begin` is called first and `close` last; all methods may be called from any thread. Methods that have a body here
    suit a target on which only proxies run, without controllers or an API server.
    """

    @property
    def objects(self) -> Objects:
        """The variant's objects as they are now, including changes since the start; new pods are started with them."""
        ...

    @property
    def note(self) -> str:
        """A remark for the record of each measurement: how changes of pods and routes reach the proxy on this target.

        The remark describes the difference from a cluster. It is empty if there is none.
        """
        ...

    @property
    def said(self) -> str:
        """The messages of proxies or controllers about ignored settings, joined into one text; empty if there are none."""
        return ""

    def explained(self, fault: MeasuringError) -> MeasuringError:
        """Return the error of a system that did not come up, with the reason added if this component knows one."""
        return fault

    def begin(self) -> None:
        """Prepare everything that must exist before any pod is started.

        Raises:
            LabError: Something cannot be prepared.

        """

    def equipped(self, context: Context, started: Realisation) -> Realisation:
        """Return the command, environment and files to start a container with, including additions that a cluster makes.

        An example of such an addition is the token of a service account.

        Args:
            context: The container and its pod.
            started: The command, environment and files without these additions.

        """
        return started

    def follow(self, pod: Pod, process: LocalContainerProcess) -> None:
        """Register a container that is about to start; a proxy then receives all later changes of routes and endpoints."""

    def leave(self, pod: Pod) -> None:
        """Stop passing changes of routes and endpoints on to a pod that was ordered to end."""

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """Inform the proxies which pods are ready now.

        Args:
            ready: All pods, of any role, that are ready and do not terminate.
            addresses: Name of the pod → IP address, for these pods at least.

        """

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects, such as Routes, while the system is up."""

    def renew(self) -> None:
        """Request from every proxy a reload that starts new worker processes, without waiting for the reload's end.

        Raises:
            MeasuringError: A reload of one of the proxies starts no new workers.

        """

    def gauges(self) -> Mapping[str, float]:
        """Return the size of the proxies' configuration and the time to load it.

        Returns:
            `proxy/config_bytes` → bytes and `proxy/load_s` → seconds. With several proxies, each value is the largest
            of all proxies. A value that is unknown is left out.

        """
        ...

    def apart(self) -> Sequence[int]:
        """Return the process ids of the control plane, including controllers that run in a proxy's container.

        Their resource use must not be counted as the proxy's.
        """
        ...

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """Return the Pod objects as the API server has them; empty on a target without an API server."""
        return []

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data (key → text) of a ConfigMap; empty if there is no such ConfigMap."""
        ...

    def check(self) -> None:
        """Raise an error if a change could not be passed on to a proxy.

        Raises:
            MeasuringError: The first such fault.

        """

    def stop(self) -> None:
        """Stop passing changes on to the proxies; call this before the processes are ended. Idempotent."""

    def close(self) -> None:
        """Remove what this component has made, after the processes have ended. Idempotent."""


class FileRouting(Routes):
    """The component that passes routes and endpoints to proxies that read them from files.

    When routes or endpoints have changed, new files are written and each proxy is reloaded. One thread per proxy does
    this (`ProxyFollower`); changes that wait become one reload. `follow` starts the thread just before the proxy's
    start, `leave` ends it when the proxy is to end, and `stop` ends all threads. If pods and routes may not change, a
    thread ends when its proxy serves the first configuration.
    """

    def __init__(
        self,
        initial: Objects,
        addresses: Mapping[str, str],
        pinned: Mapping[Role, frozenset[int]],
        log: EventLog,
        changing: bool = False,
    ) -> None:
        """Start without proxies; `follow` adds them.

        Args:
            initial: The objects of the system when it starts.
            addresses: Name of the pod → IP address.
            pinned: Role → the CPUs to which it is pinned.
            log: The log for events.
            changing: Whether routes and pods may change. If not, each proxy is followed only until its first
                configuration serves, so that nothing runs during a measurement.

        """
        self._objects, self._addresses, self._pinned = initial, dict(addresses), pinned
        self._log, self._changing = log, changing
        self._first_backends, self._backends_changed = {pod.name for pod in initial.role("backend")}, False
        self._followers: list[ProxyFollower] = []
        """The threads of all proxies, including ended proxies, because their faults must be reported."""
        self._following, self._over = threading.Lock(), False
        """A lock, and whether `stop` was called. A proxy that is registered after this gets no thread."""
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
        """A remark for the record of each measurement: how changes of pods and routes reach the proxies on this target.

        The remark describes the difference from a cluster. It is empty if there is none, or if routes and pods may not
        change.
        """
        containers = [container for pod in self._objects.role("proxy") for container in pod.containers]
        notes = {system.note for item in containers if (system := find(item.repository)) is not None}
        return ", ".join(sorted(notes - {""})) if self._changing else ""

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data (key → text) of a ConfigMap; the namespace is ignored, because this target has only one."""
        return self._objects.configmaps.get(name, {})

    def begin(self) -> None:
        """Do nothing, because the proxies' files are written only when a proxy starts."""

    def close(self) -> None:
        """Do nothing, because this component has made nothing that outlives the processes."""

    def apart(self) -> Sequence[int]:
        """Return the ids of the processes in the proxies' containers that do not serve requests, such as a controller.

        If a proxy system does not name its serving program, all processes of its containers count as serving.
        """
        pids: list[int] = []
        for follower in self._list_active_followers():
            system = find(follower.process.container.repository)
            if system and system.proxy:
                pids += follower.process.processes_but(system.proxy)
        return pids

    def follow(self, pod: Pod, process: LocalContainerProcess) -> None:
        """Register a container that is about to start; for a proxy, start the thread that passes changes on to it.

        Some proxies get no thread, because the lab cannot change their configuration while they run.
        """
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
            pod.name, process, system.control(process), make_files, self._log, once=not self._changing
        )
        with self._following:
            if not self._over:
                follower.start()
                self._followers.append(follower)

    def leave(self, pod: Pod) -> None:
        """Stop passing changes of routes and endpoints on to the containers of a pod that was ordered to end."""
        for follower in self._followers:
            if follower.pod == pod.name:
                follower.over.set()

    def stop(self) -> None:
        """Stop passing changes on to all proxies, and wait for the threads that do so. Idempotent."""
        with self._following:
            self._over = True
        for follower in self._followers:
            follower.over.set()
            follower.join()

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """Inform the proxies which pods are ready now.

        Args:
            ready: All pods, of any role, that are ready and do not terminate.
            addresses: Name of the pod → IP address, for these pods at least.

        """
        self._backends_changed = self._backends_changed or self._first_backends != {
            pod.name for pod in ready if pod.role == "backend"
        }
        with self._accepting:
            self._addresses |= addresses
            self._accept(replace(self._objects, ready=tuple(ready)))

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects, such as Routes; if one of them is refused, no object is changed.

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
                    result = apply_change(result, manifest)
            except UsageError as error:
                raise MeasuringError(error.place, error.fault, error.remedy) from None
            self._accept(result)

    def renew(self) -> None:
        """Reload every proxy whose reload starts new worker processes, in the way that the proxy's real controller does it."""
        for process, renew in self._renewable:
            renew(process)

    def gauges(self) -> Mapping[str, float]:
        """Return the size of the proxies' configuration and the time to load it.

        Returns:
            `proxy/config_bytes` → bytes and `proxy/load_s` → seconds. With several proxies, each value is the largest
            of all proxies. A value that is unknown is left out.

        """
        followers = self._list_active_followers()
        gauges = {
            "proxy/config_bytes": [float(follower.control.config_bytes()) for follower in followers],
            "proxy/load_s": [follower.load_s for follower in followers if follower.load_s is not None],
        }
        return {name: max(values) for name, values in gauges.items() if values}

    def check(self) -> None:
        """Raise an error if a reload has failed, or if a proxy could not be informed of changed backends.

        Raises:
            MeasuringError: A reload failed. Or the backends changed, and a proxy keeps the backends that it had at its
                start.

        """
        for fault in [follower.fault for follower in self._followers if follower.fault is not None]:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)
        if self._fixed_proxies and self._backends_changed:
            fault = "the backend's pods changed, and this proxy knows their addresses from its start, not a Service's"
            raise MeasuringError(
                min(self._fixed_proxies), fault, "a proxy that reads Ingresses or Routes, or --target kind"
            )

    def _accept(self, new: Objects) -> None:
        """Store the new objects, and notify the threads of all proxies if the objects differ from the old ones."""
        old, self._objects = self._objects, new
        if new != old:
            for follower in self._followers:
                follower.changed.set()

    def _list_active_followers(self) -> list[ProxyFollower]:
        return [follower for follower in self._followers if not follower.over.is_set()]


class ProxyFollower(threading.Thread):
    """A thread that loads changed files into one proxy's container.

    Several changes that wait become one reload. Between two reloads lies at least the interval that the proxy system
    requires. An event `Reload` records when a reload began, and an event `Reloaded` when the new configuration served.
    If a reload fails, the proxy goes on with its old configuration, and the error is stored in `fault`.
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
            control: The proxy system's way to load a configuration and to see which configuration serves.
            make_files: The function that returns the files that the container is to load now, as path → text.
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

        None until the proxy serves after its start, or if the beginning of its loading was not seen. During a reload it is
        still the number of the loading before.
        """
        self.fault: LabError | None = None

    def run(self) -> None:
        """Load changes into the proxy until `over` is set, or with `once` until the first configuration serves.

        This is the thread's body.
        """
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
        """Store an error as the follower's `fault`, unless an earlier error is stored already."""
        if not isinstance(error, LabError):
            message = str(error) if isinstance(error, OSError) else repr(error)
            error = MeasuringError(self.process.container.place, f"its routes: {message}", "")
        self.fault = self.fault or error

    def _look(self) -> None:
        """Wait until a newly started proxy serves; otherwise make the proxy load the pending changes of its configuration.

        A proxy is newly started if its container was started since the last look. Without pending changes nothing is
        done.
        """
        if self.process.pid != self._main:
            self._main, self.load_s = self.process.pid, None
            if self._main is not None:
                self.changed.set()  # it may lack changes that came while it was being started
                self._follow_start()
        elif self._main is not None and self.changed.is_set():
            self._reload()

    def _follow_start(self) -> None:
        """Wait until a started container serves its first configuration, and store how long the loading took."""
        while (loading := self.control.started()) is None:
            if self.process.pid != self._main or self.over.wait(LOOK_S):
                return
        self._last = time.monotonic() - (0.0 if loading.began_s is None else time.time() - loading.began_s)
        self._served = self._wait_until_serving(loading)

    def _reload(self) -> None:
        """Wait until the required interval since the last reload is over, then apply all pending changes with a single reload.

        Nothing is reloaded if no file has changed. The same holds if, during the wait, the container ended or was started
        again, or `over` was set.
        """
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
        """Wait until the proxy serves a configuration that it is loading, and store in `load_s` how long the loading took.

        Returns:
            True if the proxy serves the configuration. False if the container ended or was started again before that,
            or if `over` was set.

        """
        while not self.control.serving(loading):
            if self.process.pid != self._main or self.over.wait(LOOK_S):
                return False
        self.load_s = time.time() - loading.began_s if loading.began_s is not None else None
        self.process.confine()  # its new processes may have chosen other CPUs
        return True
