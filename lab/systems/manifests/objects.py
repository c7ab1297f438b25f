"""The reader of a variant's manifests: it returns all Kubernetes objects, such as pods, Services, routes and Secrets.

A field that the lab does not support raises an error. The module does no I/O.
"""

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
from lab.systems.manifests.fields import Fields, open_spec
from lab.systems.manifests.gateway_api import (
    Entry,
    Gateway,
    HttpRoute,
    Match,
    RouteRule,
    ServedPort,
    ServicePort,
    check_references,
    list_served_ports,
    read_class,
    read_gateway,
    read_http_route,
    sort_entries,
)
from lab.systems.manifests.pods import Pod
from lab.systems.manifests.replicas import Budget, read_budget
from lab.systems.manifests.routes import PREFIX, HostRoute, IngressPath, read_ingress, read_route

ROLE_LABEL = "lab/role"

SERVICE_LABEL = "kubernetes.io/service-name"
_TLS, _PAIR = "kubernetes.io/tls", ("tls.crt", "tls.key")

_CLUSTER_ONLY = re.compile("Namespace|ServiceAccount|(Cluster)?Role(Binding)?|CustomResourceDefinition")
"""The kinds of objects that have a meaning only in a cluster with an API server; they are ignored."""


@dataclass(frozen=True, slots=True)
class Service:
    """A Service among a variant's manifests, with its ports.

    Attributes:
        name: the name of the Service.
        selector: the labels of the pods that the Service selects; empty = the Service selects no pods.
        ports: port of the Service → target port in the pod. The keys are the numbers of the ports, and also their names. A target
            port is a number, or the name of a container port.
        balanced: whether the Service is of type LoadBalancer, so that clients reach it through a node's NAT.
        masquerade: whether the pod sees the node's address and not the client's (externalTrafficPolicy Cluster).
        names: number of a port → name of the port, by which EndpointSlices refer to it.

    """

    name: str
    selector: Mapping[str, str]
    ports: Mapping[int | str, int | str]
    balanced: bool = False
    masquerade: bool = True
    names: Mapping[int, str] = field(default_factory=dict[int, str])

    def selects(self, pod: Pod) -> bool:
        """Return whether the Service's selector matches a pod's labels; False if the Service has no selector."""
        return bool(self.selector) and self.selector.items() <= pod.labels.items()


@dataclass(frozen=True, slots=True)
class Slice:
    """An EndpointSlice among a variant's manifests, which gives a Service without a selector its endpoints.

    Its addresses do not depend on any pod.

    Attributes:
        service: the name of the Service that gets the endpoints.
        ports: name of the Service's port → number of the port at the addresses.
        addresses: the IP addresses that are ready.

    """

    service: str
    ports: Mapping[str, int]
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret among a variant's manifests, and the certificate that its annotations request from the lab.

    Attributes:
        data: key → text, from the manifest.
        certificate: the certificate to issue; None = none.

    """

    data: Mapping[str, str]
    certificate: certificates.CertificateRequest | None

    @property
    def keys(self) -> frozenset[str]:
        """The names of a Secret's files, such as `tls.crt`, including those of a certificate that the lab will issue."""
        return frozenset([*self.data, *(("tls.crt", "tls.key", "ca.crt") if self.certificate else ())])

    def files(self) -> Mapping[str, str]:
        """Return the files of the Secret: name → text.

        If the Secret requests a certificate, the first call issues the certificate.
        """
        return {**self.data, **(certificates.issue(self.certificate) if self.certificate else {})}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of a Service's port: an address and port to which requests go.

    Attributes:
        address: the IP address.
        port: the number of the port at that address.
        pod: the name of the pod with the address; empty for an address from an EndpointSlice of the manifests.

    """

    address: str
    port: int
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Objects:
    """All Kubernetes objects of a variant (the configuration that is measured), as the lab has read them from its manifests.

    The local targets start the pods, and proxies are configured from the other objects. Mappings of objects have the objects'
    names as keys.
    """

    pods: tuple[Pod, ...]
    services: Mapping[str, Service]
    routes: tuple[IngressPath, ...]
    """The paths of the Ingresses."""
    configmaps: Mapping[str, Mapping[str, str]]
    """The data of each ConfigMap, by its name."""
    classes: Mapping[str, str]
    """Name of an IngressClass → its controller."""
    host_routes: tuple[HostRoute, ...] = ()
    """The Routes of OpenShift."""
    secrets: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    node_settings: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """The settings that node-tuning would apply: name → (place, value). Its DaemonSet is never run here."""
    slices: Mapping[str, Slice] = field(default_factory=dict[str, Slice])
    ready: tuple[Pod, ...] | None = None
    """The pods that are ready and do not terminate; None = all pods count as ready, as while a system is started."""
    deployments: tuple[Deployment, ...] = ()
    budgets: tuple[Budget, ...] = ()
    gateway_classes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a GatewayClass → its controller."""
    gateways: tuple[Gateway, ...] = ()
    http_routes: tuple[HttpRoute, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()
    """The manifests of kinds that this module does not read.

    A system's controller reads its own kinds among them (`ProxySystem.kinds`); any other kind is refused (`bringup.check_objects`).
    """

    def served(self, controller: str, options: Collection[str] = ()) -> list[ServedPort]:
        """Return the ports that a controller's proxy serves, with their routes, according to the variant's Gateways.

        Only Gateways whose GatewayClass names the controller count.

        Args:
            controller: the name of the controller in a GatewayClass.
            options: the names of the TLS options that the controller supports.

        Raises:
            UsageError: when there is no such Gateway, two listeners have one port, or an option is not supported.

        """
        gateways = [item for item in self.gateways if self.gateway_classes[item.class_name] == controller]
        fault = f"no Gateway is of a class of {controller}: it would serve nothing"
        refuse_if(not gateways, "GatewayClass", fault, did_you_mean(controller, self.gateway_classes.values()))
        return list_served_ports(gateways, self.http_routes, options)

    def served_ingresses(self, http: int = 80, https: int = 443) -> list[ServedPort]:
        """Return the ports that a controller's proxy serves, with their routes, according to the variant's Ingresses.

        The first port is without TLS. If a host has a certificate, a second port follows, with TLS. The function is for controllers
        other than ingress-nginx.

        Args:
            http: the number of the port without TLS.
            https: the number of the port with TLS.

        Raises:
            UsageError: for annotations of ingress-nginx, which other controllers do not read.

        """
        entries: dict[str, list[Entry]] = {}
        for route in self.routes:
            entries.setdefault(route.host, []).append(self._to_entry(route))
        hosts = {host: sort_entries(items) for host, items in entries.items()}
        secrets = {route.host: route.secret for route in self.routes if route.secret}
        encrypted = ServedPort(https, {host: hosts[host] for host in secrets}, tuple(dict.fromkeys(secrets.values())))
        return [ServedPort(http, hosts), *([encrypted] if secrets else [])]

    def _to_entry(self, route: IngressPath) -> Entry:
        fault, remedy = f"this controller does not read {PREFIX}*", "remove them: they are ingress-nginx's"
        refuse_if(
            route.rewrite or route.forwarded_prefix or route.grpc_backend,
            f"Ingress/{route.ingress}: metadata.annotations",
            fault,
            remedy,
        )
        numbers = {name: number for number, name in self.services[route.service].names.items()}
        port = route.port if isinstance(route.port, int) else numbers[route.port]
        match = Match("Exact" if route.path_type == "Exact" else "PathPrefix", route.path)
        place = f"Ingress/{route.ingress}: {route.host}{route.path}"
        return Entry(match, RouteRule(place, (match,), ServicePort(route.service, port), grpc=route.grpc_service))

    def certificate(self, secret: str, place: str) -> Mapping[str, str]:
        """Return the files of a Secret: name → text.

        Args:
            secret: the name of the Secret.
            place: the place in the manifests that refers to the Secret, for the error message.

        Raises:
            UsageError: when there is no such Secret.

        """
        refuse_unknown(secret, self.secrets, place, f"there is no Secret {secret!r}")
        return self.secrets[secret].files()

    def role(self, role: str) -> tuple[Pod, ...]:
        """Return the variant's pods that have a certain role: `proxy`, `backend` or `balancer` (a load balancer before the proxies)."""
        return tuple(pod for pod in self.pods if pod.role == role)

    @property
    def entry(self) -> tuple[Pod, ...]:
        """The pods to which clients connect: the load balancers of a variant, or else its proxies, or else its backends."""
        return self.role("balancer") or self.role("proxy") or self.role("backend")

    def endpoints(self, service: str) -> tuple[Pod, ...]:
        """Return the pods that a Service selects, ready or not.

        Raises:
            UsageError: when there is no such Service, or it selects no pod.

        """
        refuse_unknown(service, self.services, f"Service/{service}", "there is no such Service")
        definition = self.services[service]
        pods = tuple(filter(definition.selects, self.pods))
        fault = f"its selector {dict(definition.selector)} matches no pod"
        refuse_if(not pods, f"Service/{service}", fault, "compare it with the pod template's labels")
        return pods

    def members(self, service: str, port: int | str, addresses: Mapping[str, str]) -> tuple[Endpoint, ...]:
        """Return the ready endpoints behind a port of a Service.

        The result is empty if the Service or its port does not exist.

        Args:
            service: the name of the Service.
            port: the number or name of the Service's port.
            addresses: name of a pod → IP address.

        """
        definition = self.services.get(service)
        if definition is None or port not in definition.ports:
            return ()
        target = definition.ports[port]
        ready = filter(definition.selects, self.pods if self.ready is None else self.ready)
        pods = [Endpoint(addresses[pod.name], pod.port(target), pod.name) for pod in ready]
        name = definition.names.get(port, "") if isinstance(port, int) else port
        slices = [item for item in self.slices.values() if item.service == service and name in item.ports]
        return (*pods, *(Endpoint(address, item.ports[name]) for item in slices for address in item.addresses))

    def target_port(self, service: str, port: int | str) -> int:
        """Return the number of the container port to which a port of a Service leads.

        Args:
            service: the name of the Service.
            port: the number or name of the Service's port.

        Raises:
            UsageError: when the Service or the port does not exist, or the Service selects no pod.

        """
        pods = self.endpoints(service)
        ports = self.services[service].ports
        refuse_unknown(port, ports, f"Service/{service}", f"there is no port {port!r}")
        return pods[0].port(ports[port])


def read_objects(manifests: Sequence[Mapping[str, Any]]) -> Objects:
    """Read all Kubernetes objects of a variant from its manifests.

    Raises:
        UsageError: for anything that the local target does not support; the error names the object and the field.

    """
    objects = Objects((), {}, (), {}, {})
    for raw in manifests:
        objects = _add(objects, raw)
    for raw in manifests:
        if raw["kind"] == "Ingress":
            _check_class(raw, objects.classes)
    check_references(objects.gateways, objects.http_routes, objects.gateway_classes)
    backends = [rule.backend for route in objects.http_routes for rule in route.rules if rule.backend]
    for route in [*objects.routes, *objects.host_routes, *backends]:
        if route.service not in objects.services or objects.services[route.service].selector:
            objects.target_port(route.service, route.port)
    fault = f"no Deployment's pods are labelled {ROLE_LABEL}: backend"
    refuse_if(not objects.role("backend"), "manifests", fault, "include base/backend")
    return objects


def apply_change(objects: Objects, raw: Mapping[str, Any]) -> Objects:
    """Return the objects after a Route, HTTPRoute, Ingress, Service or EndpointSlice was created or replaced.

    As in a cluster, a route may lead to a Service, a port or pods that do not exist yet.

    Args:
        objects: the objects before the change.
        raw: the manifest of the new or changed object.

    Raises:
        UsageError: for an object of another kind, or one that `read_objects` would refuse.

    """
    kind, name = _identify(raw)
    match kind:
        case "Service" | "EndpointSlice":
            return _add(objects, raw)
        case "Route":
            unchanged = tuple(item for item in objects.host_routes if item.name != name)
            return _add(replace(objects, host_routes=unchanged), raw)
        case "Ingress":
            _check_class(raw, objects.classes)
            return _add(replace(objects, routes=tuple(item for item in objects.routes if item.ingress != name)), raw)
        case "HTTPRoute":
            unchanged = tuple(item for item in objects.http_routes if item.name != name)
            changed = _add(replace(objects, http_routes=unchanged), raw)
            check_references(changed.gateways, changed.http_routes, changed.gateway_classes)
            return changed
        case _:
            remedy = "Routes, HTTPRoutes, Ingresses, Services and EndpointSlices can"
            raise UsageError(f"{kind}/{name}", f"a {kind} cannot be changed while the system is up", remedy)


def _add(objects: Objects, raw: Mapping[str, Any]) -> Objects:
    """Return a copy of the objects with one more object, which is read from its manifest.

    Args:
        objects: the objects so far.
        raw: the manifest.

    Raises:
        UsageError: when the manifest has a field that the lab does not support.

    """
    kind, name = _identify(raw)
    place = f"{kind}/{name}"
    match kind:
        case "Deployment":
            deployment = read_deployment(place, raw, ROLE_LABEL)
            return replace(
                objects,
                deployments=(*objects.deployments, deployment),
                pods=(*objects.pods, *deployment.pods()),
            )
        case "PodDisruptionBudget":
            return replace(objects, budgets=(*objects.budgets, read_budget(place, raw)))
        case "Service":
            return replace(objects, services={**objects.services, name: _read_service(place, raw)})
        case "EndpointSlice":
            return replace(objects, slices={**objects.slices, name: _read_slice(place, raw)})
        case "Ingress":
            return replace(objects, routes=(*objects.routes, *read_ingress(place, raw)))
        case "Route":
            return replace(objects, host_routes=(*objects.host_routes, read_route(place, raw)))
        case "IngressClass":
            return replace(objects, classes={**objects.classes, name: str(raw.get("spec", {}).get("controller"))})
        case "GatewayClass":
            return replace(objects, gateway_classes={**objects.gateway_classes, name: read_class(place, raw)})
        case "Gateway":
            return replace(objects, gateways=(*objects.gateways, read_gateway(place, raw)))
        case "HTTPRoute" | "GRPCRoute":
            return replace(objects, http_routes=(*objects.http_routes, read_http_route(place, raw)))
        case "ConfigMap":
            data = _read_data(place, raw)
            settings = {key: (f"{place}: data.{key}", value) for key, value in data.items()} if _is_node(raw) else {}
            return replace(
                objects,
                configmaps={**objects.configmaps, name: data},
                node_settings={**objects.node_settings, **settings},
            )
        case "Secret":
            return replace(objects, secrets={**objects.secrets, name: _read_secret(place, raw)})
        case _ if _CLUSTER_ONLY.fullmatch(kind) or (kind == "DaemonSet" and _is_node(raw)):
            return objects
        case _:
            return replace(objects, others=(*objects.others, raw))


def _identify(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return (kind, name) of the object in a manifest, such as `('Service', 'backend')`."""
    return str(raw.get("kind")), str(raw.get("metadata", {}).get("name"))


def _check_class(ingress: Mapping[str, Any], classes: Mapping[str, str]) -> None:
    name = str(ingress.get("spec", {}).get("ingressClassName"))
    refuse_unknown(
        name, classes, f"{'/'.join(_identify(ingress))}: spec.ingressClassName", f"no IngressClass is called {name!r}"
    )


def _is_node(raw: Mapping[str, Any]) -> bool:
    """Return whether an object configures the Kubernetes node, and not the variant's own pods.

    The label `lab/scope: node` marks such objects.
    """
    return raw["metadata"].get("labels", {}).get("lab/scope") == "node"


def _read_service(place: str, raw: Mapping[str, Any]) -> Service:
    with open_spec(place, raw) as spec:
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
    return Service(str(raw["metadata"]["name"]), selector, ports, kind == "LoadBalancer", policy == "Cluster", names)


def _read_slice(place: str, raw: Mapping[str, Any]) -> Slice:
    """Read an EndpointSlice from its manifest.

    Args:
        place: the EndpointSlice, for error messages.
        raw: the manifest.

    Raises:
        UsageError: when no label names the Service, or the manifest has a field that the lab does not support.

    """
    service = (raw["metadata"].get("labels") or {}).get(SERVICE_LABEL)
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
            endpoint.waive("nodeName", "zone", "hints", "targetRef", "hostname")  # they change no route here
            with endpoint.inner("conditions") as conditions:
                conditions.waive("serving", "terminating")  # of an endpoint that is not ready
                ready = conditions.take("ready", True)
            texts = endpoint.need("addresses", list[str]())
            addresses += texts[:1] if ready else []  # according to the API, the others have no meaning
    return Slice(str(service), ports, tuple(addresses))


def _read_secret(place: str, raw: Mapping[str, Any]) -> Secret:
    """Read a Secret from its manifest.

    Args:
        place: the Secret, for error messages.
        raw: the manifest.

    Raises:
        UsageError: for data that is not a text in base64, a Secret of type TLS without certificate or key, or a request for a
            certificate that the lab cannot make.

    """
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
    return Secret(data, certificates.read_request(place, annotations))


def _read_data(place: str, raw: Mapping[str, Any]) -> Mapping[str, str]:
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", "immutable")
        data = fields.take("data", dict[str, Any]())
    for key, value in data.items():
        remedy = f'write it in quotes: "{str(value).lower()}"'
        refuse_if(not isinstance(value, str), f"{place}: data.{key}", f"expected a string, got {value!r}", remedy)
    return data
