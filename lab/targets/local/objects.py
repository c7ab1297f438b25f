"""A variant's manifests → what the local target starts. Pure; refuses every field it would not honour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.errors import UsageError, did_you_mean
from lab.targets.local.deployments import read_deployment
from lab.targets.local.fields import Fields
from lab.targets.local.openshift import HostRoute, read_route
from lab.targets.local.pods import Pod
from lab.targets.local.secrets import Secret, read_secret

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
    "PodDisruptionBudget",
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


@dataclass(frozen=True, slots=True)
class Route:
    """One path of one Ingress."""

    namespace: str
    ingress: str
    host: str
    path: str
    path_type: Literal["Prefix", "Exact"]
    service: str
    port: int | str


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

    def role(self, role: str) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.role == role)

    def endpoints(self, service: str) -> tuple[Pod, ...]:
        """The pods that a Service selects. UsageError when there is no such Service, or it selects none."""
        if service not in self.services:
            raise UsageError(f"Service/{service}", "there is no such Service", did_you_mean(service, self.services))
        selector = self.services[service].selector
        pods = tuple(pod for pod in self.pods if selector.items() <= pod.labels.items())
        if not pods:
            raise UsageError(
                f"Service/{service}",
                f"its selector {dict(selector)} matches no pod",
                "compare it with the pod template's labels",
            )
        return pods

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
    pods: list[Pod] = []
    services: dict[str, Service] = {}
    routes: list[Route] = []
    classes: dict[str, str] = {}
    wanted: list[tuple[str, str]] = []
    configmaps: dict[str, Mapping[str, str]] = {}
    secrets: dict[str, Secret] = {}
    node_settings: dict[str, tuple[str, str]] = {}
    host_routes: list[HostRoute] = []
    for raw in manifests:
        kind, name = str(raw.get("kind")), str(raw.get("metadata", {}).get("name"))
        place = f"{kind}/{name}"
        if kind == "Deployment":
            pods += read_deployment(place, raw, ROLE_LABEL)
        elif kind == "Service":
            services[name] = _service(place, raw)
        elif kind == "Ingress":
            routes += _routes(place, raw)
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
        elif kind not in _CLUSTER_ONLY:
            raise UsageError(
                place, f"the local target does not know objects of kind {kind}", "remove it, or use --target kind"
            )
    for place, name in wanted:
        if name not in classes:
            raise UsageError(
                f"{place}: spec.ingressClassName", f"no IngressClass is called {name!r}", did_you_mean(name, classes)
            )
    objects = Objects(
        tuple(pods), services, tuple(routes), configmaps, classes, tuple(host_routes), secrets, node_settings
    )
    for route in [*routes, *host_routes]:
        objects.target_port(route.service, route.port)
    if not objects.role("backend"):
        raise UsageError(
            "manifests", f"no Deployment's pods are labelled {ROLE_LABEL}: backend", "include base/backend"
        )
    return objects


def _of_node(raw: Mapping[str, Any]) -> bool:
    return raw["metadata"].get("labels", {}).get(SCOPE_LABEL) == "node"


def _service(place: str, raw: Mapping[str, Any]) -> Service:
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata")
        with fields.inner("spec") as spec:
            spec.waive("internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy")  # no cluster network here
            kind, policy = spec.take("type", "ClusterIP"), spec.take("externalTrafficPolicy", "Cluster")
            selector = spec.need("selector", dict[str, str]())
            ports: dict[int | str, int | str] = {}
            for item in spec.each("ports"):
                item.waive("appProtocol", "protocol", "nodePort")
                number = item.need("port", 0)
                target = item.any("targetPort") or number
                ports[number] = target
                if label := item.take("name", ""):
                    ports[label] = target
    return Service(str(raw["metadata"]["name"]), selector, ports, kind == "LoadBalancer", policy == "Cluster")


def _routes(place: str, raw: Mapping[str, Any]) -> list[Route]:
    found: list[Route] = []
    metadata = raw["metadata"]
    for annotation in metadata.get("annotations", {}):
        if annotation.startswith("nginx.ingress.kubernetes.io/"):
            raise UsageError(
                f"{place}: metadata.annotations",
                f"the local target does not honour {annotation}",
                "set the ConfigMap's key of that name, or use --target kind",
            )
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata")
        with fields.inner("spec") as spec:
            spec.waive("ingressClassName")  # compared in read()
            for rule in spec.each("rules", "host"):
                with rule.inner("http") as http:
                    host = rule.need("host", "")
                    for path in http.each("paths", "path"):
                        with (
                            path.inner("backend") as backend,
                            backend.inner("service") as service,
                            service.inner("port") as port,
                        ):
                            kind = path.need("pathType", "")
                            if kind not in ("Prefix", "Exact"):
                                raise UsageError(
                                    path.at("pathType"),
                                    f"expected Prefix or Exact, got {kind!r}",
                                    "ImplementationSpecific means nothing on its own",
                                )
                            number = port.any("number") or port.any("name")
                            port.waive("name")
                            found.append(
                                Route(
                                    metadata.get("namespace", "default"),
                                    metadata["name"],
                                    host,
                                    path.need("path", ""),
                                    kind,
                                    service.need("name", ""),
                                    number,
                                )
                            )
    return found


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
