"""The component that writes Pods, their status and EndpointSlices to the API server, as a cluster's own parts would.

In a cluster, controllers and kubelets write these objects. `ApiserverRoutes` has the same methods as its counterpart on
the target `local` (`lab.targets.local.control_plane.routing`). But here the proxies' controllers watch the API server,
and so learn of changes. The lab writes a change as soon as it knows of the change. Manifests are not checked here: if
the API server refuses an object, the error contains the API server's own message.

A controller is observed from outside, by the size of its configuration file and by the reloads in its log:

    I1125 14:20:01.123456      7 controller.go:190] "Configuration changes detected, backend reload required"    →   Reload

The methods and the objects that they write:

    begin   all objects of the manifests, such as Namespaces, Services and Deployments
    follow  the Pod of a container that is about to start
    heard   the status of the Pods, and the EndpointSlices
    close   deletes these objects again
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.base.errors import LabError, MeasuringError
from lab.model.events import EventLog
from lab.model.pairs import Side
from lab.systems import renewing
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.system import Context, Controller, Realisation
from lab.systems.table import find, find_controller
from lab.targets.apiserver import objects
from lab.targets.apiserver.servers import PORT, Servers
from lab.targets.cluster.api import Object, poll_until
from lab.targets.cluster.objects import Reference, rename_for_side, sort_for_apply
from lab.targets.local.kubelet.containers import LocalContainerProcess
from lab.targets.local.kubelet.kubelet import Kubelet
from lab.targets.local.sandbox.network import NODE_ADDRESS, Network

LOOK_S = 0.02
"""The seconds between two looks at a controller's error output."""
MAX_READ = 1 << 20
"""The maximum number of characters that are read of a controller's stdout.

The controller's messages about settings come first; an access log may follow.
"""
_STAMP = re.compile(r"^[IWEF](\d{4}) (\d\d:\d\d:\d\d\.\d{6}) ")
"""The beginning of a line of klog: month and day, and the time."""
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
"""The folder of a service account's files in a container."""
FOREIGN_KINDS = (
    ("coordination.k8s.io/v1", "Lease"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("v1", "Pod"),
    ("v1", "Event"),
)
"""The kinds of objects in a namespace that do not come from the manifests, by API version."""


class FollowedController:
    """A controller's container, with a thread that reads the controller's log and records its reloads.

    Attributes:
        pod: The container's pod.
        process: The container's process.
        controller: The controller.
        left: Whether the pod was ordered to end.
        fault: The reason why the log could not be read; empty if there was no such fault.

    """

    def __init__(self, pod: Pod, process: LocalContainerProcess, controller: Controller, log: EventLog) -> None:
        """Prepare the reader of the controller's log; `start` starts it.

        Args:
            pod: The container's pod.
            process: The container's process.
            controller: The controller.
            log: The event log to which the controller's reloads are added.

        """
        self.pod, self.process, self.controller, self._log = pod, process, controller, log
        self.left, self.fault = False, ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{pod.name}", daemon=True)

    def start(self) -> None:
        """Start a thread that reads the controller's log and records each reload as an event."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread that records reloads, and wait for its end; further calls do nothing."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def lines(self) -> list[str]:
        """Return the lines that the controller has written so far to the outputs on which it reports settings and reloads.

        These outputs are stdout, stderr or both, as `Controller.says` lists them. Of stdout, only the first MAX_READ
        characters are read.
        """
        text = ""
        for name in self.controller.says:
            file: Path = getattr(self.process, name)
            if file.exists():
                with file.open(errors="replace") as stream:
                    text += stream.read(MAX_READ if name == "stdout" else -1)
        return text.splitlines()

    def config_bytes(self) -> int:
        """Return the size of the controller's configuration file in bytes; 0 if there is none."""
        file = self.process.inside(self.controller.config) if self.controller.config else None
        return file.stat().st_size if file is not None and file.exists() else 0

    def load_s(self) -> float | None:
        """Return how many seconds the controller's last complete reload took; None if the log shows no reload."""
        began_s: float | None = None
        took_s: float | None = None
        for line in self.lines():
            event = self.controller.event_of(line)
            if event == "Reload":
                began_s = parse_stamp(line)
            elif event == "Reloaded" and began_s is not None and (at_s := parse_stamp(line)) is not None:
                took_s, began_s = at_s - began_s, None
        return took_s

    def _run(self) -> None:
        """Read the controller's log as it grows, and record its reloads as events; this is the thread's body.

        The load of the first configuration is not recorded. If the log cannot be read, the reason is stored in
        `fault`.
        """
        offset, partial_line, starting, file = 0, "", True, self.process.stderr
        try:
            while not self._over.wait(LOOK_S):
                if not file.exists():
                    continue
                with file.open("rb") as stream:
                    size = stream.seek(0, 2)
                    stream.seek(offset if size >= offset else 0)  # a smaller file was cut
                    text = stream.read()
                    offset = stream.tell()
                *lines, partial_line = (partial_line + text.decode(errors="replace")).split("\n")
                for line in lines:
                    kind = self.controller.event_of(line)
                    if kind is not None and not starting:
                        self._log.add("proxy", kind, self.pod.name, "", "proxy", parse_stamp(line))
                    elif kind == "Reloaded":
                        starting = False
        except OSError as error:
            self.fault = str(error)


def parse_stamp(line: str) -> float | None:
    """Return the time at which a log line of Kubernetes' format klog was written, in seconds since 1970.

    The result is None for a line that does not begin with a time stamp. Such a stamp is in UTC and has no year; the
    current year is assumed.
    """
    if not (match := _STAMP.match(line)):
        return None
    year = datetime.now(UTC).year
    return datetime.strptime(f"{year}{match[1]} {match[2]} +0000", "%Y%m%d %H:%M:%S.%f %z").timestamp()


class ApiserverRoutes:
    """The component that writes the objects of one system to the API server of the run.

    If two systems are up at once (a pair), they share the API server, so the objects of the two systems have different
    names. This class implements the protocol `Routes` on the target `apiserver`. Its methods may be called from any
    thread.
    """

    note = "pods' status and endpoints are written in the moment the lab knows them (a cluster: by kubelet and controllers, 0.1-1 s)"
    """A remark for the record of each measurement: how changes of pods and routes reach the proxy on this target."""

    def __init__(
        self,
        manifests: Sequence[Object],
        servers: Servers,
        side: Side,
        initial: Objects,
        net: Network,
        kubelet: Kubelet,
        log: EventLog,
        changing: bool,
    ) -> None:
        """Store the arguments and wait until the API server is ready.

        Args:
            manifests: The manifests from which `initial` was read, with the names of objects already changed for
                `side`.
            servers: The servers of the run: etcd and kube-apiserver.
            side: `left` or `right`, if the system is one of a pair (two systems that are up at once); it decides the
                objects' names.
            initial: The objects of the system when it starts.
            net: The network of the system.
            kubelet: The kubelet with the system's pods.
            log: The log for events.
            changing: Whether pods and routes may change while the system is up. Only then are reloads recorded as
                events.

        Raises:
            LostError: The API server does not come up.

        """
        self.log = log
        self._servers, self._api = servers, servers.api()
        self._side: Side = side
        self._manifests = list(manifests)
        self.objects = initial
        """The variant's objects, together with the pods that are ready now."""
        self._net, self._kubelet, self._changing = net, kubelet, changing
        self._spaces = objects.namespaces(manifests)
        self._applied: list[Object] = []
        self._pods: dict[str, Reference] = {}
        self._written: dict[Reference, Object] = {}
        """The content of each object, or status of a Pod, as it was written last."""
        self._lock = threading.RLock()
        self._faults: list[LabError] = []
        self._followed: list[FollowedController] = []
        self._without_controller: list[LocalContainerProcess] = []
        """The proxies that have no controller."""
        self._over = False

    @property
    def said(self) -> str:
        """The controllers' messages about ignored settings, three at most, joined into one text; empty if there are none."""
        return "; ".join(self._collect_messages(lambda followed: followed.controller.ignored(followed.lines())))

    def explained(self, fault: MeasuringError) -> MeasuringError:
        """Return the error of a system that did not come up, with error messages of the controllers as its remedy.

        Without such messages, the controllers' messages about ignored settings are used. If there are none either, the
        given error is returned unchanged.
        """
        messages = self._collect_messages(lambda followed: followed.controller.complaints(followed.lines()))
        messages = messages or self._collect_messages(lambda followed: followed.controller.ignored(followed.lines()))
        return MeasuringError(fault.place, fault.fault, "\n  ".join(messages)) if messages else fault

    def _collect_messages(self, ask: Callable[[FollowedController], Sequence[str]]) -> list[str]:
        """Return at most three different messages of the controllers, each after the words `the controller says:`.

        Args:
            ask: The function that returns the messages of one controller.

        """
        messages = dict.fromkeys(message for followed in self._followed for message in ask(followed))
        return [f"the controller says: {message}" for message in list(messages)[:3]]

    def begin(self) -> None:
        """Write all objects of the system to the API server, except Pods.

        Raises:
            LabError: The API server refuses an object.

        """
        created = {obj["metadata"]["name"] for obj in self._manifests if obj["kind"] == "Namespace"}
        spaces = [space for space in self._spaces if space not in created]
        shared = [*(("Namespace", space) for space in spaces), ("Node", objects.NODE)]
        bare = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} for kind, name in shared]
        for obj in [*bare, *objects.definitions(self._manifests)]:
            self._api.apply(obj)
        for obj in sort_for_apply(self._manifests):
            # Wait for a kind that was defined a moment ago. An unknown kind is then refused by the API server.
            poll_until(lambda obj=obj: self._api.resource(obj["apiVersion"], obj["kind"]) is not None, 10.0, 0.05)
            self._api.apply(obj)
            self._applied.append(obj)
        self._kubelet.heard = self.heard

    def equipped(self, context: Context, started: Realisation) -> Realisation:
        """Return the command, environment and files to start a container with, including access to the API server.

        In a cluster, a kubelet adds this access. If the pod has a service account, the container gets the account's
        token, the certificate of the API server's authority, and the environment variables with the API server's
        address. Otherwise `started` is returned unchanged.

        Args:
            context: The container and its pod.
            started: The command, environment and files without these additions.

        """
        spec = objects.make_pod(self._manifests, context.pod.deployment, context.pod.name)["spec"]
        account = spec.get("serviceAccountName")
        if account is None or spec.get("automountServiceAccountToken") is False:
            return started
        namespace = context.pod.namespace
        texts = {"token": self._api.token(namespace, account, lasts_s=24 * 3600), "ca.crt": self._servers.authority}
        files = {f"{ACCOUNT}/{name}": text for name, text in {**texts, "namespace": namespace}.items()}
        env = {"KUBERNETES_SERVICE_HOST": NODE_ADDRESS, "KUBERNETES_SERVICE_PORT": str(PORT)}
        return replace(started, env={**started.env, **env}, files={**started.files, **files})

    def follow(self, pod: Pod, process: LocalContainerProcess) -> None:
        """Write the Pod object of a container that is about to start, and register the container if it is a proxy.

        If the proxy has a controller, and pods and routes may change, a thread records the reloads in the controller's
        log as events.
        """
        self._write(objects.make_pod(self._manifests, pod.deployment, pod.name))
        with self._lock:
            self._pods[pod.name] = Reference("v1", "Pod", pod.namespace, pod.name)
        if pod.role != "proxy":
            return
        controller = find_controller(process.container.repository)
        if controller is None:
            self._without_controller.append(process)
            return
        followed = FollowedController(pod, process, controller, self.log)
        self._followed.append(followed)
        if self._changing:
            followed.start()

    def leave(self, pod: Pod) -> None:
        """Delete the Pod object of a pod that was ordered to end, and no longer count its controller as active."""
        for followed in self._followed:
            followed.left = followed.left or followed.pod.name == pod.name
        with self._keep_fault():
            self._api.delete("v1", "Pod", pod.name, pod.namespace, grace_s=pod.grace_s)

    def heard(self) -> None:
        """Write the status of all pods, and the EndpointSlices; the kubelet calls this when a container's readiness changes."""
        addresses = self._net.addresses
        ready = [running.pod for running in self._kubelet.pods if running.ready and not running.terminating]
        self.changed(ready, {pod.name: addresses[pod.name] for pod in ready})

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """Write the status of all pods, and the EndpointSlices of all Services, to the API server.

        Args:
            ready: All pods, of any role, that are ready and do not terminate.
            addresses: Name of the pod → IP address.

        """
        with self._lock, self._keep_fault():
            self.objects = replace(self.objects, ready=tuple(ready))
            all_addresses = {**self._net.addresses, **addresses}
            for running in self._kubelet.pods:
                pod, reference = running.pod, self._pods.get(running.pod.name)
                if reference is None or not running.runners:
                    continue
                containers = [
                    (runner.container.name, _describe_image(runner.container), runner.ready, runner.restarts)
                    for runner in running.runners
                ]
                body = objects.status(all_addresses.get(pod.name, ""), running.ready, containers)
                if self._written.get(reference) != body:
                    self._api.change("v1", "Pod", pod.name, pod.namespace, body, "status")
                    self._written[reference] = body
            spaces = {
                obj["metadata"]["name"]: obj["metadata"].get("namespace", "default")
                for obj in reversed(self._manifests)
                if obj["kind"] == "Service"
            }
            for service in self.objects.services.values():
                members = {
                    number: [item for item in self.objects.members(service.name, number, all_addresses) if item.pod]
                    for number in service.ports
                    if isinstance(number, int)
                }
                for obj in objects.slices(service, spaces[service.name], members):
                    self._write(obj)

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects on the API server by server-side apply.

        The objects get the names for this system's side of a pair (two systems that are up at once).

        Raises:
            MeasuringError: The API server refuses an object.

        """
        changed = sort_for_apply(rename_for_side(manifests, self._side))
        with self._lock:
            for obj in changed:
                self._api.apply(obj)
                self._applied.append(obj)
            self._manifests += changed

    @property
    def _active(self) -> list[FollowedController]:
        return [followed for followed in self._followed if not followed.left]

    def renew(self) -> None:
        """Make every proxy reload its unchanged configuration, so that new worker processes replace the old ones.

        Raises:
            MeasuringError: A reload of one of the proxies starts no new workers.

        """
        for followed in self._active:
            if followed.controller.renew is None:
                raise MeasuringError(followed.controller.image, *renewing.NOT_RENEWABLE)
            followed.controller.renew(followed.process)
        for process in self._without_controller:
            system = find(process.container.repository)
            if system is None or system.renew is None:
                raise MeasuringError(process.container.place, *renewing.NOT_RENEWABLE)
            system.renew(process)

    def gauges(self) -> Mapping[str, float]:
        """Return the size of the proxies' configuration and the time to load it.

        Returns:
            `proxy/config_bytes` → bytes and `proxy/load_s` → seconds. With several proxies, each value is the largest
            of all proxies. A value that is unknown is left out.

        """
        gauges = {
            "proxy/config_bytes": [float(size) for followed in self._active if (size := followed.config_bytes())],
            "proxy/load_s": [took for followed in self._active if (took := followed.load_s()) is not None],
        }
        return {name: max(values) for name, values in gauges.items() if values}

    def check(self) -> None:
        """Raise an error if an object could not be written to the API server, or a controller's log could not be read.

        Raises:
            MeasuringError: There was such a fault; the first failed write comes before any fault of a log.

        """
        for fault in self._faults:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)
        for followed in self._followed:
            if followed.fault:
                raise MeasuringError(followed.pod.place, f"its log: {followed.fault}", "")

    def stop(self) -> None:
        """Stop reading the controllers' logs; call this before the controllers' processes are ended. Idempotent."""
        for followed in self._followed:
            followed.stop()

    def apart(self) -> Sequence[int]:
        """Return the process ids of the control plane, so that its CPU time is not counted as the proxy's.

        These are the API server, etcd, and the controllers that run in a proxy's container.
        """
        inside = [pid for followed in self._active for pid in followed.process.processes_but(followed.controller.proxy)]
        return [*inside, *self._servers.processes()]

    def deployed(self) -> Sequence[Object]:
        """Return the Pod objects in the system's namespaces, as the API server has them."""
        return [pod for space in self._spaces for pod in self._api.list("v1", "Pod", space)]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data (key → text) of a ConfigMap as the API server has it; empty if there is no such ConfigMap."""
        return (self._api.get("v1", "ConfigMap", name, namespace) or {}).get("data") or {}

    def close(self) -> None:
        """Delete the system's objects in the API server, except namespaces and the node. Idempotent.

        Call it after the system's processes have ended.
        """
        with self._lock:
            if self._over:
                return
            self._over = True
            references = dict.fromkeys(Reference.of(obj) for obj in self._applied)
            for reference in sorted(references, key=lambda reference: reference.rank, reverse=True):
                if reference.kind not in ("Namespace", "Node"):
                    self._api.delete(
                        reference.api_version, reference.kind, reference.name, reference.namespace or None, grace_s=0
                    )
            for api_version, kind in FOREIGN_KINDS:
                for space in self._spaces:
                    self._api.delete_all(api_version, kind, space, "", grace_s=0)

    def _write(self, obj: Object) -> None:
        """Write an object to the API server, unless the last write of this object had the same content."""
        reference = Reference.of(obj)
        with self._lock:
            if self._written.get(reference) != obj:
                self._api.apply(obj)
                self._written[reference] = obj

    @contextmanager
    def _keep_fault(self) -> Iterator[None]:
        """Catch a LabError raised in the `with` block and store it, so that `check` raises it later.

        The `with` block writes to the API server, often in another thread, where an error would be lost.
        """
        try:
            yield
        except LabError as error:
            self._faults.append(error)


def _describe_image(container: Container) -> str:
    """Return a description of the program that runs in place of a container's image, or else the image's name."""
    controller = find_controller(container.repository)
    return (controller.about() if controller is not None else "") or container.image
