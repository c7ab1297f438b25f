"""A variant's manifests → what the local target starts. Pure; refuses every field it would not honour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lab.base.errors import UsageError, did_you_mean
from lab.targets.local.budgets import Budget, read_budget
from lab.targets.local.deployments import Deployment, read_deployment
from lab.targets.local.fields import Fields
from lab.targets.local.ingresses import Route as Route
from lab.targets.local.ingresses import read_ingress
from lab.targets.local.openshift import HostRoute, read_route
from lab.targets.local.pods import Pod
from lab.targets.local.secrets import Secret, read_secret
from lab.targets.local.slices import Slice, read_slice

ROLE_LABEL = "lab/role"
SCOPE_LABEL = "lab/scope"

# Kinds that mean something to an API server only.
_CLUSTER_ONLY = {
    "Namespace",
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
}


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    selector: Mapping[str, str]
    ports: Mapping[int | str, int | str]
    """Number and name → target port."""
    balanced: bool = False
    """Of type LoadBalancer: clients reach it through a node's NAT."""
    masquerade: bool = True
    """externalTrafficPolicy Cluster: the pod sees the node's address, not the client's."""
    names: Mapping[int, str] = field(default_factory=dict[int, str])
    """Number → name, which an EndpointSlice's ports have, too."""

    def selects(self, pod: Pod) -> bool:
        """Without a selector it selects nothing: its endpoints are those of EndpointSlices."""
        return bool(self.selector) and self.selector.items() <= pod.labels.items()


@dataclass(frozen=True, slots=True)
class Member:
    """One endpoint of a Service's port. `pod` is empty for an address of an EndpointSlice's."""

    address: str
    port: int
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Objects:
    pods: tuple[Pod, ...]
    services: Mapping[str, Service]
    routes: tuple[Route, ...]
    configmaps: Mapping[str, Mapping[str, str]]
    classes: Mapping[str, str]
    """IngressClass → controller."""
    host_routes: tuple[HostRoute, ...] = ()
    """OpenShift's Routes."""
    secrets: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    node_settings: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Name → (place, value) of what node-tuning would set. Its DaemonSet is never run here: see `hostwide`."""
    slices: Mapping[str, Slice] = field(default_factory=dict[str, Slice])
    ready: tuple[Pod, ...] | None = None
    """The pods that are ready and do not terminate, where that is known; None = all, as when everything comes up."""
    deployments: tuple[Deployment, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def role(self, role: str) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.role == role)

    def endpoints(self, service: str) -> tuple[Pod, ...]:
        """The pods that a Service selects. UsageError when there is no such Service, or it selects none."""
        if service not in self.services:
            raise UsageError(f"Service/{service}", "there is no such Service", did_you_mean(service, self.services))
        found = self.services[service]
        pods = tuple(filter(found.selects, self.pods))
        if not pods:
            raise UsageError(
                f"Service/{service}",
                f"its selector {dict(found.selector)} matches no pod",
                "compare it with the pod template's labels",
            )
        return pods

    def members(self, service: str, port: int | str, addresses: Mapping[str, str]) -> tuple[Member, ...]:
        """The ready endpoints behind a Service's port; none where there is no such Service or port, as in a cluster.

        `addresses`: pod → IP.
        """
        found = self.services.get(service)
        if found is None or port not in found.ports:
            return ()
        target = found.ports[port]
        ready = filter(found.selects, self.pods if self.ready is None else self.ready)
        pods = [Member(addresses[pod.name], pod.port(target), pod.name) for pod in ready]
        name = found.names.get(port, "") if isinstance(port, int) else port
        slices = [item for item in self.slices.values() if item.service == service and name in item.ports]
        return (*pods, *(Member(address, item.ports[name]) for item in slices for address in item.addresses))

    def target_port(self, service: str, port: int | str) -> int:
        """The container port behind a Service's port."""
        pods = self.endpoints(service)
        ports = self.services[service].ports
        if port not in ports:
            raise UsageError(
                f"Service/{service}", f"there is no port {port!r}", did_you_mean(str(port), map(str, ports))
            )
        return pods[0].port(ports[port])


def read(manifests: Sequence[Mapping[str, Any]]) -> Objects:
    """UsageError with the object and field for anything that the local target does not honour."""
    deployments: list[Deployment] = []
    budgets: list[Budget] = []
    services: dict[str, Service] = {}
    routes: list[Route] = []
    classes: dict[str, str] = {}
    wanted: list[tuple[str, str]] = []
    configmaps: dict[str, Mapping[str, str]] = {}
    secrets: dict[str, Secret] = {}
    node_settings: dict[str, tuple[str, str]] = {}
    host_routes: list[HostRoute] = []
    slices: dict[str, Slice] = {}
    for raw in manifests:
        kind, name = str(raw.get("kind")), str(raw.get("metadata", {}).get("name"))
        place = f"{kind}/{name}"
        if kind == "Deployment":
            deployments.append(read_deployment(place, raw, ROLE_LABEL))
        elif kind == "PodDisruptionBudget":
            budgets.append(read_budget(place, raw))
        elif kind == "Service":
            services[name] = _service(place, raw)
        elif kind == "Ingress":
            routes += read_ingress(place, raw)
            wanted.append((place, str(raw.get("spec", {}).get("ingressClassName"))))
        elif kind == "IngressClass":
            classes[name] = str(raw.get("spec", {}).get("controller"))
        elif kind == "ConfigMap":
            configmaps[name] = _data(place, raw)
            if _of_node(raw):
                node_settings |= {key: (f"{place}: data.{key}", value) for key, value in configmaps[name].items()}
        elif kind == "DaemonSet" and _of_node(raw):
            continue
        elif kind == "Secret":
            secrets[name] = read_secret(place, raw)
        elif kind == "Route":
            host_routes.append(read_route(place, raw))
        elif kind == "EndpointSlice":
            slices[name] = read_slice(place, raw)
        elif kind not in _CLUSTER_ONLY:
            raise UsageError(
                place, f"the local target does not know objects of kind {kind}", "remove it, or use --target kind"
            )
    for place, name in wanted:
        _class(place, name, classes)
    objects = Objects(
        tuple(pod for deployment in deployments for pod in deployment.pods()),
        services,
        tuple(routes),
        configmaps,
        classes,
        tuple(host_routes),
        secrets,
        node_settings,
        slices,
        deployments=tuple(deployments),
        budgets=tuple(budgets),
    )
    for route in [*routes, *host_routes]:
        if route.service not in services or services[route.service].selector:
            objects.target_port(route.service, route.port)
    if not objects.role("backend"):
        raise UsageError(
            "manifests", f"no Deployment's pods are labelled {ROLE_LABEL}: backend", "include base/backend"
        )
    return objects


def applied(objects: Objects, raw: Mapping[str, Any]) -> Objects:
    """With one Route, Ingress, Service or EndpointSlice made or changed. UsageError for any other, or what `read` refuses.

    A Route may lead to a Service that is not there (yet), as in a cluster.
    """
    kind, name = str(raw.get("kind")), str(raw.get("metadata", {}).get("name"))
    place, without = f"{kind}/{name}", _without(objects, kind, name)
    if kind == "Service":
        return replace(without, services={**without.services, name: _service(place, raw)})
    if kind == "EndpointSlice":
        return replace(without, slices={**without.slices, name: read_slice(place, raw)})
    if kind == "Route":
        return replace(without, host_routes=(*without.host_routes, read_route(place, raw)))
    if kind == "Ingress":
        _class(place, str(raw.get("spec", {}).get("ingressClassName")), objects.classes)
        return replace(without, routes=(*without.routes, *read_ingress(place, raw)))
    remedy = "Routes, Ingresses, Services and EndpointSlices can"
    raise UsageError(place, f"a {kind} cannot be changed while the system is up", remedy)


def _without(objects: Objects, kind: str, name: str) -> Objects:
    if kind == "Service":
        return replace(objects, services={key: item for key, item in objects.services.items() if key != name})
    if kind == "EndpointSlice":
        return replace(objects, slices={key: item for key, item in objects.slices.items() if key != name})
    if kind == "Route":
        return replace(objects, host_routes=tuple(item for item in objects.host_routes if item.name != name))
    return replace(objects, routes=tuple(item for item in objects.routes if item.ingress != name))


def _class(place: str, name: str, classes: Mapping[str, str]) -> None:
    if name not in classes:
        fault = f"no IngressClass is called {name!r}"
        raise UsageError(f"{place}: spec.ingressClassName", fault, did_you_mean(name, classes))


def _of_node(raw: Mapping[str, Any]) -> bool:
    return raw["metadata"].get("labels", {}).get(SCOPE_LABEL) == "node"


def _service(place: str, raw: Mapping[str, Any]) -> Service:
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata")
        with fields.inner("spec") as spec:
            spec.waive("internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy")  # no cluster network here
            kind, policy = spec.take("type", "ClusterIP"), spec.take("externalTrafficPolicy", "Cluster")
            selector = spec.take("selector", dict[str, str]())
            ports: dict[int | str, int | str] = {}
            names: dict[int, str] = {}
            for item in spec.each("ports"):
                item.waive("appProtocol", "protocol", "nodePort")
                number = item.need("port", 0)
                target = item.any("targetPort") or number
                ports[number] = target
                if label := item.take("name", ""):
                    ports[label] = target
                    names[number] = label
    name = str(raw["metadata"]["name"])
    return Service(name, selector, ports, kind == "LoadBalancer", policy == "Cluster", names)


def _data(place: str, raw: Mapping[str, Any]) -> Mapping[str, str]:
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", "immutable")
        data = fields.take("data", dict[str, Any]())
    for key, value in data.items():
        if not isinstance(value, str):
            raise UsageError(
                f"{place}: data.{key}",
                f"expected a string, got {value!r}",
                f'write it in quotes: "{str(value).lower()}"',
            )
    return data
