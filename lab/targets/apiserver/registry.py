"""What a cluster's own controllers and its kubelet write to the API server: Pods, their status, EndpointSlices, tokens.

Stands where `lab.targets.local.control_plane.routing` stands on the local target: the same questions and calls, but what the proxies know they
hear from the API server, by their own controllers' watches and queues. Pods and endpoints are written in the moment in which
the lab knows them. Refuses to judge manifests: what the API server refuses is a fault with its words.

A controller is seen from outside: its configuration, and its reloads, by what it writes to its error output, which a kubelet would keep:

    I1125 14:20:01.123456      7 controller.go:190] "Configuration changes detected, backend reload required"    →   Reload

    apply  ── Namespace … Deployment     follow ── Pod, its token     heard ── its status, EndpointSlices     close ── all of it away
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
from lab.targets.cluster.api import Object, until
from lab.targets.cluster.objects import Reference, in_order, on_side
from lab.targets.local.kubelet.containers import Process
from lab.targets.local.kubelet.kubelet import Kubelet
from lab.targets.local.sandbox.network import NODE_ADDRESS, Network

LOOK_S = 0.02
MOST_READ = 1 << 20
"""Characters of its output: what a controller says of its settings comes first, an access log may follow."""
_STAMP = re.compile(r"^[IWEF](\d{4}) (\d\d:\d\d:\d\d\.\d{6}) ")
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
LEFT = (("coordination.k8s.io/v1", "Lease"), ("discovery.k8s.io/v1", "EndpointSlice"), ("v1", "Pod"), ("v1", "Event"))
"""What others than the manifests wrote into a namespace."""
NOTE = "pods' status and endpoints are written in the moment the lab knows them (a cluster: by kubelet and controllers, 0.1-1 s)"


class Followed:
    """One controller's container. `left`: it was told to end; `fault`: why its log is not read."""

    def __init__(self, pod: Pod, process: Process, controller: Controller, log: EventLog) -> None:
        self.pod, self.process, self.controller, self._log = pod, process, controller, log
        self.left, self.fault = False, ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{pod.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def lines(self) -> list[str]:
        said = ""
        for name in self.controller.says:
            file: Path = getattr(self.process, name)
            if file.exists():
                with file.open(errors="replace") as stream:
                    said += stream.read(MOST_READ if name == "stdout" else -1)
        return said.splitlines()

    def config_bytes(self) -> int:
        file = self.process.inside(self.controller.config) if self.controller.config else None
        return file.stat().st_size if file is not None and file.exists() else 0

    def load_s(self) -> float | None:
        """From the last Reload to the Reloaded after it; None where its log tells none."""
        began_s: float | None = None
        took_s: float | None = None
        for line in self.lines():
            event = self.controller.event_of(line)
            if event == "Reload":
                began_s = stamp(line)
            elif event == "Reloaded" and began_s is not None and (at_s := stamp(line)) is not None:
                took_s, began_s = at_s - began_s, None
        return took_s

    def _run(self) -> None:
        """The thread: every line once, its first configuration's load left out."""
        at, rest, starting, file = 0, "", True, self.process.stderr
        try:
            while not self._over.wait(LOOK_S):
                if not file.exists():
                    continue
                with file.open("rb") as stream:
                    size = stream.seek(0, 2)
                    stream.seek(at if size >= at else 0)  # it was cut
                    text = stream.read()
                    at = stream.tell()
                *whole, rest = (rest + text.decode(errors="replace")).split("\n")
                for line in whole:
                    kind = self.controller.event_of(line)
                    if kind is not None and not starting:
                        self._log.add("proxy", kind, self.pod.name, "", "proxy", stamp(line))
                    elif kind == "Reloaded":
                        starting = False
        except OSError as error:
            self.fault = str(error)


def stamp(line: str) -> float | None:
    """When a line of klog's was written, in seconds since 1970: UTC, as in a container, and it has no year."""
    if not (match := _STAMP.match(line)):
        return None
    year = datetime.now(UTC).year
    return datetime.strptime(f"{year}{match[1]} {match[2]} +0000", "%Y%m%d %H:%M:%S.%f %z").timestamp()


class Registry:
    """Of one system, on its side of the run's API server. Calls come from any thread."""

    def __init__(
        self,
        manifests: Sequence[Object],
        servers: Servers,
        side: Side,
        wanted: Objects,
        net: Network,
        kubelet: Kubelet,
        log: EventLog,
        changing: bool,
    ) -> None:
        """`manifests`: as this side has them, which `wanted` was read from. Reloads are events only where it is `changing`."""
        self.log = log
        self._servers, self._api = servers, servers.api()
        self._side: Side = side
        self._manifests, self._objects = list(manifests), wanted
        self._net, self._kubelet, self._changing = net, kubelet, changing
        self._spaces = objects.namespaces(manifests)
        self._applied: list[Object] = []
        self._pods: dict[str, Reference] = {}
        self._told: dict[Reference, Object] = {}
        self._lock = threading.RLock()
        self._faults: list[LabError] = []
        self._followed: list[Followed] = []
        self._plain: list[Process] = []
        """Proxies without a controller."""
        self._over = False

    @property
    def objects(self) -> Objects:
        """As they are now, which pods are ready included."""
        return self._objects

    @property
    def note(self) -> str:
        return NOTE

    @property
    def said(self) -> str:
        """What the controllers do not take of their settings."""
        return "; ".join(self._says(lambda one: one.controller.ignored(one.lines())))

    def explained(self, fault: MeasuringError) -> MeasuringError:
        """With what the controllers say of it."""
        said = self._says(lambda one: one.controller.complaints(one.lines()))
        said = said or self._says(lambda one: one.controller.ignored(one.lines()))
        return MeasuringError(fault.place, fault.fault, "\n  ".join(said)) if said else fault

    def _says(self, ask: Callable[[Followed], Sequence[str]]) -> list[str]:
        """In their own words, each once, three at most."""
        said = dict.fromkeys(words for followed in self._followed for words in ask(followed))
        return [f"the controller says: {words}" for words in list(said)[:3]]

    def begin(self) -> None:
        """Give the API server everything but pods. Raises LabError."""
        made = {obj["metadata"]["name"] for obj in self._manifests if obj["kind"] == "Namespace"}
        spaces = [space for space in self._spaces if space not in made]
        shared = [*(("Namespace", space) for space in spaces), ("Node", objects.NODE)]
        bare = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} for kind, name in shared]
        for obj in [*bare, *objects.definitions(self._manifests)]:
            self._api.apply(obj)
        for obj in in_order(self._manifests):
            # A kind that was defined a moment ago; one that is never served, the API refuses in its words.
            until(lambda obj=obj: self._api.resource(obj["apiVersion"], obj["kind"]) is not None, 10.0, 0.05)
            self._api.apply(obj)
            self._applied.append(obj)
        self._kubelet.heard = self.heard

    def equipped(self, context: Context, started: Realisation) -> Realisation:
        """With what a kubelet puts into a container of a pod that has a service account: a token, and where the API server is."""
        spec = objects.pod(self._manifests, context.pod.deployment, context.pod.name)["spec"]
        account = spec.get("serviceAccountName")
        if account is None or spec.get("automountServiceAccountToken") is False:
            return started
        namespace = context.pod.namespace
        own = {"token": self._api.token(namespace, account, lasts_s=24 * 3600), "ca.crt": self._servers.authority}
        files = {f"{ACCOUNT}/{name}": text for name, text in {**own, "namespace": namespace}.items()}
        where = {"KUBERNETES_SERVICE_HOST": NODE_ADDRESS, "KUBERNETES_SERVICE_PORT": str(PORT)}
        return replace(started, env={**started.env, **where}, files={**started.files, **files})

    def follow(self, pod: Pod, process: Process) -> None:
        """A container is about to start: its pod is there first."""
        self._write(objects.pod(self._manifests, pod.deployment, pod.name))
        with self._lock:
            self._pods[pod.name] = Reference("v1", "Pod", pod.namespace, pod.name)
        if pod.role != "proxy":
            return
        controller = find_controller(process.container.repository)
        if controller is None:
            self._plain.append(process)
            return
        followed = Followed(pod, process, controller, self.log)
        self._followed.append(followed)
        if self._changing:
            followed.start()

    def leave(self, pod: Pod) -> None:
        """It was told to end."""
        for followed in self._followed:
            followed.left = followed.left or followed.pod.name == pod.name
        with self._noting():
            self._api.delete("v1", "Pod", pod.name, pod.namespace, grace_s=pod.grace_s)

    def heard(self) -> None:
        """Some container's readiness became another."""
        addresses = self._net.addresses
        ready = [running.pod for running in self._kubelet.pods if running.ready and not running.terminating]
        self.changed(ready, {pod.name: addresses[pod.name] for pod in ready})

    def changed(self, ready: Sequence[Pod], addresses: Mapping[str, str]) -> None:
        """These pods (of any role) are ready and do not terminate, and no others."""
        with self._lock, self._noting():
            self._objects = replace(self._objects, ready=tuple(ready))
            everybody = {**self._net.addresses, **addresses}
            for running in self._kubelet.pods:
                pod, reference = running.pod, self._pods.get(running.pod.name)
                if reference is None or not running.runners:
                    continue
                containers = [
                    (runner.container.name, _what(runner.container), runner.ready, runner.restarts)
                    for runner in running.runners
                ]
                body = objects.status(everybody.get(pod.name, ""), running.ready, containers)
                if self._told.get(reference) != body:
                    self._api.change("v1", "Pod", pod.name, pod.namespace, body, "status")
                    self._told[reference] = body
            spaces = {
                obj["metadata"]["name"]: obj["metadata"].get("namespace", "default")
                for obj in reversed(self._manifests)
                if obj["kind"] == "Service"
            }
            for service in self._objects.services.values():
                numbers = [number for number in service.ports if isinstance(number, int)]
                members = {
                    number: [item for item in self._objects.members(service.name, number, everybody) if item.pod]
                    for number in numbers
                }
                for obj in objects.slices(service, spaces[service.name], members):
                    self._write(obj)

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects by server-side apply. MeasuringError for what the API server refuses."""
        found = in_order(on_side(manifests, self._side))
        with self._lock:
            for obj in found:
                self._api.apply(obj)
                self._applied.append(obj)
            self._manifests += found

    @property
    def _there(self) -> list[Followed]:
        return [followed for followed in self._followed if not followed.left]

    def renew(self) -> None:
        """Of what it has."""
        for followed in self._there:
            if followed.controller.renew is None:
                raise MeasuringError(followed.controller.image, *renewing.NONE)
            followed.controller.renew(followed.process)
        for process in self._plain:
            system = find(process.container.repository)
            if system is None or system.renew is None:
                raise MeasuringError(process.container.place, *renewing.NONE)
            system.renew(process)

    def gauges(self) -> Mapping[str, float]:
        found = {
            "proxy/config_bytes": [float(size) for followed in self._there if (size := followed.config_bytes())],
            "proxy/load_s": [took for followed in self._there if (took := followed.load_s()) is not None],
        }
        return {name: max(values) for name, values in found.items() if values}

    def check(self) -> None:
        """MeasuringError when something could not be written."""
        for fault in self._faults:
            raise MeasuringError(fault.place, fault.fault, fault.remedy)
        for followed in self._followed:
            if followed.fault:
                raise MeasuringError(followed.pod.place, f"its log: {followed.fault}", "")

    def stop(self) -> None:
        """Before the processes are ended. Idempotent."""
        for followed in self._followed:
            followed.stop()

    def apart(self) -> Sequence[int]:
        """Those in the proxies' containers that are not the proxies themselves, and the API server with its etcd."""
        own = [pid for followed in self._there for pid in followed.process.processes_but(followed.controller.proxy)]
        return [*own, *self._servers.processes()]

    def deployed(self) -> Sequence[Object]:
        """The Pods as the API server has them."""
        return [pod for space in self._spaces for pod in self._api.list("v1", "Pod", space)]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap as the API server has it, which the controllers watch."""
        return (self._api.get("v1", "ConfigMap", name, namespace) or {}).get("data") or {}

    def close(self) -> None:
        """Take away what this system brought: after its processes have ended. Idempotent."""
        with self._lock:
            if self._over:
                return
            self._over = True
            references = dict.fromkeys(Reference.of(obj) for obj in self._applied)
            for each in sorted(references, key=lambda each: each.rank, reverse=True):
                if each.kind not in ("Namespace", "Node"):
                    self._api.delete(each.api_version, each.kind, each.name, each.namespace or None, grace_s=0)
            for api_version, kind in LEFT:
                for space in self._spaces:
                    self._api.delete_all(api_version, kind, space, "", grace_s=0)

    def _write(self, obj: Object) -> None:
        """Unless it is there so already."""
        reference = Reference.of(obj)
        with self._lock:
            if self._told.get(reference) != obj:
                self._api.apply(obj)
                self._told[reference] = obj

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """What fails is kept for `check`."""
        try:
            yield
        except LabError as error:
            self._faults.append(error)


def _what(container: Container) -> str:
    """What an image is here."""
    controller = find_controller(container.repository)
    return (controller.about() if controller is not None else "") or container.image
