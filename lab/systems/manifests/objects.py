"""A variant's manifests → what the local target starts; refuses every field it would not honour. Pure, until a Secret's certificate is made."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lab.base.errors import UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.systems.manifests import certificates
from lab.systems.manifests.deployments import Deployment, read_deployment
from lab.systems.manifests.fields import Fields, spec_of
from lab.systems.manifests.gateway_api import (
    Backend,
    Entry,
    Gateway,
    HttpRoute,
    Match,
    Rule,
    Served,
    check,
    in_order,
    read_class,
    read_gateway,
    read_http_route,
    served,
)
from lab.systems.manifests.pods import Pod
from lab.systems.manifests.replicas import Budget, read_budget
from lab.systems.manifests.routes import PREFIX, HostRoute, read_ingress, read_route
from lab.systems.manifests.routes import Route as Route

ROLE_LABEL = "lab/role"

SERVICE_LABEL = "kubernetes.io/service-name"
_TLS, _PAIR = "kubernetes.io/tls", ("tls.crt", "tls.key")

_CLUSTER_ONLY = re.compile("Namespace|ServiceAccount|(Cluster)?Role(Binding)?|CustomResourceDefinition")
"""Kinds that mean something to an API server only."""


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
class Slice:
    """An EndpointSlice written by hand, for a Service without a selector: addresses that no pod's readiness decides.

    `ports`: name → number; the name is that of the Service's port. `addresses`: the ready ones only.
    """

    name: str
    service: str
    ports: Mapping[str, int]
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Secret:
    """What it holds, or the certificate that its annotations ask for.

    `keys` are known before anything is made; `files` makes a certificate the first time.
    """

    data: Mapping[str, str]
    certificate: certificates.Request | None

    @property
    def keys(self) -> frozenset[str]:
        return frozenset([*self.data, *(("tls.crt", "tls.key", "ca.crt") if self.certificate else ())])

    def files(self) -> Mapping[str, str]:
        return {**self.data, **(certificates.issue(self.certificate) if self.certificate else {})}


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
    """Name → (place, value) of what node-tuning would set. Its DaemonSet is never run here."""
    slices: Mapping[str, Slice] = field(default_factory=dict[str, Slice])
    ready: tuple[Pod, ...] | None = None
    """The pods that are ready and do not terminate, where that is known; None = all, as when everything comes up."""
    deployments: tuple[Deployment, ...] = ()
    budgets: tuple[Budget, ...] = ()
    gateway_classes: Mapping[str, str] = field(default_factory=dict[str, str])
    """GatewayClass → controller."""
    gateways: tuple[Gateway, ...] = ()
    http_routes: tuple[HttpRoute, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()
    """Of kinds that nothing here knows: a system's controller reads its own (`ProxySystem.kinds`), any other is refused (`bringup.vet`)."""

    def served(self, controller: str, options: Collection[str] = ()) -> list[Served]:
        """What the Gateways of a controller's classes serve, a port each. UsageError where there is none, two that cannot go together, or an
        option of TLS that is none of those.
        """
        mine = [item for item in self.gateways if self.gateway_classes[item.class_name] == controller]
        fault = f"no Gateway is of a class of {controller}: it would serve nothing"
        refuse_if(not mine, "GatewayClass", fault, did_you_mean(controller, self.gateway_classes.values()))
        return served(mine, self.http_routes, options)

    def served_ingresses(self, http: int = 80, https: int = 443) -> list[Served]:
        """What every Ingress leads to, for a controller that is not ingress-nginx: a port, and one with TLS where a host has a certificate.

        UsageError for annotations of ingress-nginx, which others do not read.
        """
        entries: dict[str, list[Entry]] = {}
        for route in self.routes:
            entries.setdefault(route.host, []).append(self._entry(route))
        hosts = {host: in_order(found) for host, found in entries.items()}
        secrets = {route.host: route.secret for route in self.routes if route.secret}
        encrypted = Served(https, {host: hosts[host] for host in secrets}, tuple(dict.fromkeys(secrets.values())))
        return [Served(http, hosts), *([encrypted] if secrets else [])]

    def _entry(self, route: Route) -> Entry:
        fault, remedy = f"this controller does not read {PREFIX}*", "remove them: they are ingress-nginx's"
        refuse_if(
            route.rewrite or route.forwarded_prefix, f"Ingress/{route.ingress}: metadata.annotations", fault, remedy
        )
        numbers = {name: number for number, name in self.services[route.service].names.items()}
        port = route.port if isinstance(route.port, int) else numbers[route.port]
        match = Match("Exact" if route.path_type == "Exact" else "PathPrefix", route.path)
        place = f"Ingress/{route.ingress}: {route.host}{route.path}"
        return Entry(match, Rule(place, (match,), Backend(route.service, port)))

    def certificate(self, secret: str, place: str) -> Mapping[str, str]:
        """A Secret's files. UsageError of `place`, which names it, where there is none."""
        refuse_unknown(secret, self.secrets, place, f"there is no Secret {secret!r}")
        return self.secrets[secret].files()

    def role(self, role: str) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.role == role)

    @property
    def entry(self) -> tuple[Pod, ...]:
        """The pods that clients come to."""
        return self.role("balancer") or self.role("proxy") or self.role("backend")

    def endpoints(self, service: str) -> tuple[Pod, ...]:
        """The pods that a Service selects. UsageError when there is no such Service, or it selects none."""
        refuse_unknown(service, self.services, f"Service/{service}", "there is no such Service")
        found = self.services[service]
        pods = tuple(filter(found.selects, self.pods))
        fault = f"its selector {dict(found.selector)} matches no pod"
        refuse_if(not pods, f"Service/{service}", fault, "compare it with the pod template's labels")
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
        refuse_unknown(port, ports, f"Service/{service}", f"there is no port {port!r}")
        return pods[0].port(ports[port])


def read(manifests: Sequence[Mapping[str, Any]]) -> Objects:
    """UsageError with the object and field for anything that the local target does not honour."""
    found = Objects((), {}, (), {}, {})
    for raw in manifests:
        found = _with(found, raw)
    for raw in manifests:
        if raw["kind"] == "Ingress":
            _class(raw, found.classes)
    check(found.gateways, found.http_routes, found.gateway_classes)
    backends = [rule.backend for route in found.http_routes for rule in route.rules if rule.backend]
    for route in [*found.routes, *found.host_routes, *backends]:
        if route.service not in found.services or found.services[route.service].selector:
            found.target_port(route.service, route.port)
    fault = f"no Deployment's pods are labelled {ROLE_LABEL}: backend"
    refuse_if(not found.role("backend"), "manifests", fault, "include base/backend")
    return found


def applied(objects: Objects, raw: Mapping[str, Any]) -> Objects:
    """With one Route, HTTPRoute, Ingress, Service or EndpointSlice made or changed. UsageError for any other, or what `read` refuses.

    A route may lead to a Service that is not there (yet), as in a cluster.
    """
    kind, name = _label(raw)
    match kind:
        case "Service" | "EndpointSlice":
            return _with(objects, raw)
        case "Route":
            others = tuple(item for item in objects.host_routes if item.name != name)
            return _with(replace(objects, host_routes=others), raw)
        case "Ingress":
            _class(raw, objects.classes)
            return _with(replace(objects, routes=tuple(item for item in objects.routes if item.ingress != name)), raw)
        case "HTTPRoute":
            others = tuple(item for item in objects.http_routes if item.name != name)
            changed = _with(replace(objects, http_routes=others), raw)
            check(changed.gateways, changed.http_routes, changed.gateway_classes)
            return changed
        case _:
            remedy = "Routes, HTTPRoutes, Ingresses, Services and EndpointSlices can"
            raise UsageError(f"{kind}/{name}", f"a {kind} cannot be changed while the system is up", remedy)


def _with(objects: Objects, raw: Mapping[str, Any]) -> Objects:
    """And one more. UsageError for what is not honoured in it."""
    kind, name = _label(raw)
    place = f"{kind}/{name}"
    match kind:
        case "Deployment":
            made = read_deployment(place, raw, ROLE_LABEL)
            return replace(objects, deployments=(*objects.deployments, made), pods=(*objects.pods, *made.pods()))
        case "PodDisruptionBudget":
            return replace(objects, budgets=(*objects.budgets, read_budget(place, raw)))
        case "Service":
            return replace(objects, services={**objects.services, name: _service(place, raw)})
        case "EndpointSlice":
            return replace(objects, slices={**objects.slices, name: _slice(place, raw)})
        case "Ingress":
            return replace(objects, routes=(*objects.routes, *read_ingress(place, raw)))
        case "Route":
            return replace(objects, host_routes=(*objects.host_routes, read_route(place, raw)))
        case "IngressClass":
            controller = str(raw.get("spec", {}).get("controller"))
            return replace(objects, classes={**objects.classes, name: controller})
        case "GatewayClass":
            return replace(objects, gateway_classes={**objects.gateway_classes, name: read_class(place, raw)})
        case "Gateway":
            return replace(objects, gateways=(*objects.gateways, read_gateway(place, raw)))
        case "HTTPRoute":
            return replace(objects, http_routes=(*objects.http_routes, read_http_route(place, raw)))
        case "ConfigMap":
            data = _data(place, raw)
            settings = {key: (f"{place}: data.{key}", value) for key, value in data.items()} if _of_node(raw) else {}
            return replace(
                objects,
                configmaps={**objects.configmaps, name: data},
                node_settings={**objects.node_settings, **settings},
            )
        case "Secret":
            return replace(objects, secrets={**objects.secrets, name: _secret(place, raw)})
        case _ if _CLUSTER_ONLY.fullmatch(kind) or (kind == "DaemonSet" and _of_node(raw)):
            return objects
        case _:
            return replace(objects, others=(*objects.others, raw))


def _label(raw: Mapping[str, Any]) -> tuple[str, str]:
    """(kind, name)"""
    return str(raw.get("kind")), str(raw.get("metadata", {}).get("name"))


def _class(ingress: Mapping[str, Any], classes: Mapping[str, str]) -> None:
    name = str(ingress.get("spec", {}).get("ingressClassName"))
    refuse_unknown(
        name, classes, f"{'/'.join(_label(ingress))}: spec.ingressClassName", f"no IngressClass is called {name!r}"
    )


def _of_node(raw: Mapping[str, Any]) -> bool:
    return raw["metadata"].get("labels", {}).get("lab/scope") == "node"


def _service(place: str, raw: Mapping[str, Any]) -> Service:
    with spec_of(place, raw) as spec:
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


def _slice(place: str, raw: Mapping[str, Any]) -> Slice:
    """UsageError for what is no slice of a Service, or is not honoured here."""
    metadata = raw["metadata"]
    service = (metadata.get("labels") or {}).get(SERVICE_LABEL)
    refuse_if(not service, f"{place}: metadata.labels", f"{SERVICE_LABEL} is missing", "name the Service there")
    ports: dict[str, int] = {}
    addresses: list[str] = []
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata")
        fields.choice("addressType", ("IPv4",), remedy="pods have no other here")
        for port in fields.each("ports"):
            port.waive("protocol", "appProtocol")
            ports[port.take("name", "")] = port.need("port", 0)
        for endpoint in fields.each("endpoints", "addresses"):
            endpoint.waive("nodeName", "zone", "hints", "targetRef", "hostname")  # whose it is changes no way here
            with endpoint.inner("conditions") as conditions:
                conditions.waive("serving", "terminating")  # of an endpoint that is not ready
                ready = conditions.take("ready", True)
            found = endpoint.need("addresses", list[str]())
            addresses += found[:1] if ready else []  # the others mean nothing, says the API
    return Slice(metadata["name"], str(service), ports, tuple(addresses))


def _secret(place: str, raw: Mapping[str, Any]) -> Secret:
    """UsageError for data that is no base64 of a text, for a pair of TLS that is none, or a certificate that cannot be made."""
    annotations = raw["metadata"].get("annotations") or {}
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", "type", "immutable")
        data = dict(fields.take("stringData", dict[str, Any]()))
        for key, value in fields.take("data", dict[str, Any]()).items():
            try:
                data[key] = base64.b64decode(value or "", validate=True).decode()
            except (TypeError, binascii.Error, UnicodeDecodeError):
                fault = "is no base64 of a text"
                raise UsageError(f"{place}: data.{key}", fault, "or write it to stringData") from None
    for name in _PAIR if raw.get("type") == _TLS else ():
        remedy = f"a Secret of type {_TLS} has {' and '.join(_PAIR)}"
        refuse_if(name not in data, f"{place}: data", f"{name!r} is missing", remedy)
    return Secret(data, certificates.requested(place, annotations))


def _data(place: str, raw: Mapping[str, Any]) -> Mapping[str, str]:
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", "immutable")
        data = fields.take("data", dict[str, Any]())
    for key, value in data.items():
        remedy = f'write it in quotes: "{str(value).lower()}"'
        refuse_if(not isinstance(value, str), f"{place}: data.{key}", f"expected a string, got {value!r}", remedy)
    return data
