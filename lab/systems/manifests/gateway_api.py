"""The reader of Gateway API (v1), which derives what a proxy serves from GatewayClasses, Gateways, HTTPRoutes and GRPCRoutes.

    Gateway: listeners: [{name: http, port: 80, protocol: HTTP}]
    HTTPRoute: hostnames: [bench.lab.test], rules: [{backendRefs: [{name: backend, port: 80}]}]
        →  [ServedPort(80, {"bench.lab.test": (Entry(Match("PathPrefix", "/"), RouteRule(…, ServicePort("backend", 80))),)})]

The result is the same for every proxy: each system writes its own configuration from `list_served_ports`. It refuses a route
that its configuration cannot express with `RouteRule.refuse`.

- A route: its hosts, exact paths and prefixes, one Service, the request headers that it sets, and its timeout are read.
- A Gateway: one listener for each port is read, for every host.
- Every other field raises an error that names the field: hosts of listeners, other matches, several Services, rewrites,
  redirects, mirrors, other namespaces. A host, path or port that the API's own schema would not admit is an error, too.

The module does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, cast

from lab.base import quantities
from lab.base.errors import refuse_if, refuse_unknown
from lab.systems.manifests.fields import Fields, open_spec

ANY = "*"
"""The host of a route that names no host, and is therefore for every host."""

PathKind = Literal["Exact", "PathPrefix"]
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
_PATH = re.compile(r"/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_NO_PATH = re.compile(r"//|/\.{1,2}(?:/|$)|%2[fF]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener of a Gateway (in the Kubernetes Gateway API): a port on which the Gateway serves.

    Attributes:
        name: the name of the listener.
        port: the number of the port.
        secrets: the names of the Secrets with the certificates for TLS; empty = no TLS.
        options: name → value of the listener's TLS options, which the controller defines.

    """

    name: str
    port: int
    secrets: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Gateway (of the Kubernetes Gateway API) among a variant's manifests, with its listeners.

    Attributes:
        place: the Gateway's place for error messages, such as `Gateway/lab`.
        class_name: the name of the Gateway's GatewayClass.
        manifest: the unchanged manifest, for a controller that reads manifests itself.

    """

    place: str
    namespace: str
    name: str
    class_name: str
    listeners: tuple[Listener, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True)
class Match:
    """A match of an HTTPRoute's rule: a condition on the path of a request.

    Attributes:
        path_kind: `Exact` if the request's path must be equal to `path`, `PathPrefix` if it must begin with `path` (in whole
            segments: `/a` matches `/a/b`, but not `/ab`).
        path: the path.

    """

    path_kind: PathKind = "PathPrefix"
    path: str = "/"


@dataclass(frozen=True, slots=True)
class ServicePort:
    """A port of a Service, as the backend to which a route leads requests.

    Attributes:
        service: the name of the Service.
        port: the number of the port.

    """

    service: str
    port: int

    @property
    def name(self) -> str:
        """The name of the backend in a proxy's configuration, for example `shop-80`."""
        return f"{self.service}-{self.port}"


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A rule of an HTTPRoute, which leads requests with certain paths to a Service.

    Attributes:
        place: the rule's place in its manifest, for error messages.
        matches: the conditions on the path; a request has to meet one of them.
        backend: the Service's port to which the requests go; None = every request is answered with status 500.
        headers: name → value of the request headers that the rule sets.
        request_s: the timeout of a request in seconds; None = not stated, 0 = no timeout.
        grpc: whether requests are passed on by gRPC, as a GRPCRoute or an annotation states.

    """

    place: str
    matches: tuple[Match, ...]
    backend: ServicePort | None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    request_s: float | None = None
    grpc: bool = False

    def refuse(
        self, proxy: str, headers: bool = True, never: str = "", timeout: bool = False, grpc: bool = False
    ) -> None:
        """Refuse this rule of a route if the lab cannot express it in a proxy's configuration.

        Args:
            proxy: the proxy's name, for the error message.
            headers: whether the configuration can set request headers.
            never: the characters that have a special meaning in a header's value in that configuration.
            timeout: whether the configuration can set a timeout of the request.
            grpc: whether the configuration can pass requests on by gRPC, as a route states.

        Raises:
            UsageError: when the rule sets headers, a timeout or gRPC that the configuration cannot express.

        """
        remedy = "leave that out of the route, or measure another system"
        for subject, cannot in (
            ("a change of request headers", self.headers and not headers),
            ("a timeout of the request", self.request_s is not None and not timeout),
            ("gRPC to the backend", self.grpc and not grpc),
        ):
            refuse_if(cannot, self.place, f"{subject} cannot be written for {proxy} here", remedy)
        for text in self.headers.values():
            fault = f"{text!r} cannot be written for {proxy} here: {' and '.join(never)} mean something else there"
            refuse_if(set(never) & set(text), self.place, fault, "write it without, or measure another system")


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """An HTTPRoute (of the Kubernetes Gateway API) among a variant's manifests, with its rules.

    Attributes:
        place: the route's place for error messages.
        parents: pairs (Gateway, listener) to which the route is attached; an empty listener = every listener of that Gateway.
        hosts: the hosts that the route is for, in lower case; empty = every host.
        manifest: the unchanged manifest, for a controller that reads manifests itself.

    """

    place: str
    namespace: str
    name: str
    parents: tuple[tuple[str, str], ...]
    hosts: tuple[str, ...]
    rules: tuple[RouteRule, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry in the list of a host's routes: a condition on the path, and the rule for requests that meet it."""

    match: Match
    rule: RouteRule


@dataclass(frozen=True, slots=True)
class ServedPort:
    """A port that a proxy serves, with the routes of each host on it.

    Attributes:
        port: the number of the port.
        hosts: host → its entries (conditions on the path, with their rules), in the order in which they are tried.
        secrets: the names of the Secrets with the certificates for TLS; empty = no TLS.
        options: name → value of the TLS options, which the controller defines.

    """

    port: int
    hosts: Mapping[str, tuple[Entry, ...]]
    secrets: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def ordered(self) -> list[str]:
        """The hosts that a proxy serves on one port, in the order in which a request's host is compared with them.

        Full names come first, then wildcards such as `*.example.test` (the longest first), and last `*`, which is any host.
        """
        return sorted(self.hosts, key=lambda host: (host == ANY, host.startswith("*."), -len(host)))


def list_rules(ports: Iterable[ServedPort]) -> dict[str, RouteRule]:
    """Return all rules of routes on some ports: the rule's place in its manifest → rule."""
    return {entry.rule.place: entry.rule for port in ports for entries in port.hosts.values() for entry in entries}


def list_served_ports(
    gateways: Iterable[Gateway], routes: Sequence[HttpRoute], honoured: Collection[str] = ()
) -> list[ServedPort]:
    """Return the ports on which Gateways serve, in ascending order, each with the routes that are attached to it.

    Args:
        gateways: the Gateways.
        routes: all HTTPRoutes of the manifests.
        honoured: the names of the TLS options that the controller supports.

    Raises:
        UsageError: for two listeners on one port, and for a TLS option that the controller does not support.

    """
    ports: dict[int, ServedPort] = {}
    for gateway, listener in ((owner, listener) for owner in gateways for listener in owner.listeners):
        place = f"{gateway.place}: spec.listeners[{listener.name}]"
        fault = f"port {listener.port} is another listener's, too"
        refuse_if(listener.port in ports, place, fault, "give it another port")
        for name in listener.options:
            refuse_unknown(name, honoured, f"{place}.tls.options", f"{name} is not honoured")
        hosts: dict[str, list[Entry]] = {}
        parents = {(gateway.name, ""), (gateway.name, listener.name)}
        for route in routes:
            if route.namespace == gateway.namespace and parents & set(route.parents):
                entries = [Entry(match, rule) for rule in route.rules for match in rule.matches]
                for host in route.hosts or (ANY,):
                    hosts.setdefault(host, []).extend(entries)
        ordered = {host: sort_entries(entries) for host, entries in hosts.items()}
        ports[listener.port] = ServedPort(listener.port, ordered, listener.secrets, listener.options)
    return [ports[port] for port in sorted(ports)]


def sort_entries(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Sort the routes of a host in the order in which a request's path is compared with them, as the Gateway API demands.

    Exact paths come first. Path prefixes follow, the longest first.
    """
    return tuple(sorted(entries, key=lambda entry: (entry.match.path_kind != "Exact", -len(entry.match.path))))


def check_references(gateways: Iterable[Gateway], routes: Iterable[HttpRoute], classes: Collection[str]) -> None:
    """Check that each Gateway's class exists, and that each route's Gateways and listeners exist.

    Args:
        gateways: all Gateways of the manifests.
        routes: all HTTPRoutes of the manifests.
        classes: the names of all GatewayClasses.

    Raises:
        UsageError: when one of them does not exist.

    """
    by_name = {(gateway.namespace, gateway.name): gateway for gateway in gateways}
    for gateway in by_name.values():
        fault = f"no GatewayClass is called {gateway.class_name!r}"
        refuse_unknown(gateway.class_name, classes, f"{gateway.place}: spec.gatewayClassName", fault)
    for route, (name, section) in ((child, parent) for child in routes for parent in child.parents):
        place = f"{route.place}: spec.parentRefs"
        candidates = {name: gateway for (namespace, name), gateway in by_name.items() if namespace == route.namespace}
        refuse_unknown(name, candidates, place, f"there is no Gateway {name!r}")
        listeners = [listener.name for listener in candidates[name].listeners]
        if section:
            refuse_unknown(section, listeners, f"{place}[{name}]", f"Gateway {name} has no listener {section!r}")


# -- reading -------------------------------------------------------------------------------------------------


def read_class(place: str, raw: Mapping[str, Any]) -> str:
    """Read a GatewayClass from its manifest, and return the name of its controller.

    Args:
        place: the GatewayClass, for error messages.
        raw: the manifest.

    Raises:
        UsageError: for a field that the lab does not read.

    """
    with open_spec(place, raw, "status") as spec:
        spec.waive("description", "parametersRef")  # for the controller, which reads them in the manifest
        return spec.need("controllerName", "")


def read_gateway(place: str, raw: Mapping[str, Any]) -> Gateway:
    """Read a Gateway from its manifest.

    Args:
        place: the Gateway, for error messages.
        raw: the manifest.

    Raises:
        UsageError: for a field that the lab does not read, no listener, or two listeners with the same name or port.

    """
    metadata = raw["metadata"]
    namespace = metadata.get("namespace", "default")
    with open_spec(place, raw, "status") as spec:
        spec.waive("infrastructure")
        class_name = spec.need("gatewayClassName", "")
        listeners = tuple(_read_listener(item, namespace) for item in spec.each("listeners"))
    refuse_if(not listeners, f"{place}: spec", "'listeners' is empty", "name one")
    for first, second in combinations(listeners, 2):
        fault = f"{second.name} has the name, or the port, of another listener"
        equal = first.name == second.name or first.port == second.port
        refuse_if(equal, f"{place}: spec.listeners", fault, "give it its own")
    return Gateway(place, namespace, metadata["name"], class_name, listeners, raw)


def _read_listener(item: Fields, namespace: str) -> Listener:
    protocol = item.choice("protocol", ("HTTP", "HTTPS"))
    with item.inner("allowedRoutes") as allowed:
        allowed.waive("kinds")
        with allowed.inner("namespaces") as namespaces:
            namespaces.choice("from", ("Same", "All"), "Same")  # there is only one
    with item.inner("tls") as tls:
        if protocol == "HTTPS":
            tls.choice("mode", ("Terminate",), "Terminate")
        options = tls.take("options", dict[str, str]())
        secrets = [_read_reference(reference, "Secret", namespace) for reference in tls.each("certificateRefs")]
    fault = f"protocol {protocol} and {len(secrets)} certificates"
    item.refuse((protocol == "HTTPS") != bool(secrets), "tls", fault, "HTTPS needs tls.certificateRefs, HTTP has none")
    return Listener(item.need("name", ""), _read_port(item), tuple(secrets), options)


def read_http_route(place: str, raw: Mapping[str, Any]) -> HttpRoute:
    """Read an HTTPRoute or a GRPCRoute from its manifest.

    The rules of a GRPCRoute are marked as `grpc`: their requests are passed on by gRPC.

    Args:
        place: the route, for error messages.
        raw: the manifest.

    Raises:
        UsageError: for a field that the lab does not read, an invalid host name, or a route that names no Gateway.

    """
    metadata = raw["metadata"]
    namespace = metadata.get("namespace", "default")
    with open_spec(place, raw, "status") as spec:
        parents = tuple(
            (_read_reference(item, "Gateway", namespace), item.take("sectionName", ""))
            for item in spec.each("parentRefs")
        )
        hosts = tuple(str(host).lower() for host in spec.take("hostnames", list[Any]()))
        for host in hosts:
            fault = f"expected a host, such as shop.example or *.example, got {host!r}"
            spec.refuse(not _HOST.fullmatch(host), "hostnames", fault, "correct it")
        rules = tuple(_read_rule(item, namespace, raw["kind"] == "GRPCRoute") for item in spec.each("rules")) or (
            RouteRule(place, (Match(),), None),
        )
    refuse_if(not parents, f"{place}: spec", "'parentRefs' is empty: nothing would serve it", "name a Gateway")
    return HttpRoute(place, namespace, metadata["name"], parents, hosts, rules, raw)


def _read_rule(item: Fields, namespace: str, grpc: bool) -> RouteRule:
    item.waive("name")
    backends = [
        ServicePort(_read_reference(reference, "Service", namespace), _read_port(reference))
        for reference in item.each("backendRefs")
    ]
    fault = "the local target does not honour a division between several Services"
    item.refuse(len(backends) > 1, "backendRefs", fault, "name one, or use --target kind")
    matches = tuple(_read_match(match) for match in item.each("matches", "path")) or (Match(),)
    with item.inner("timeouts") as timeouts:
        text = timeouts.take("request", "")
        request_s = quantities.parse_duration_s(text) if text else None
        wrong = text and request_s is None
        timeouts.refuse(wrong, "request", f"expected a duration such as 10s, got {text!r}", "a number and its unit")
    headers: dict[str, str] = {}
    for change in item.each("filters", "type"):
        change.choice("type", ("RequestHeaderModifier",), remedy="remove it, or use --target kind")
        with change.inner("requestHeaderModifier") as modifier:
            headers |= dict(_read_header(header) for header in modifier.each("set"))
    return RouteRule(item.place, matches, backends[0] if backends else None, headers, request_s, grpc)


def _read_match(item: Fields) -> Match:
    with item.inner("path") as path:
        kind = path.choice("type", ("PathPrefix", "Exact"), "PathPrefix")
        value = path.take("value", "/")
        fault = f"expected an absolute path as it comes over the wire, without //, /./ and /../, got {value!r}"
        path.refuse(not _PATH.fullmatch(value) or _NO_PATH.search(value), "value", fault, "such as /shop")
    return Match(cast("PathKind", kind), value)


def _read_header(item: Fields) -> tuple[str, str]:
    name, value = item.need("name", ""), item.need("value", "")
    fault = f"{value!r} has a character that no header can have"
    item.refuse(_CONTROL.search(value), "value", fault, "take it out")
    item.refuse(not _HEADER.fullmatch(name), "name", f"expected a header's name, got {name!r}", "correct it")
    return name, value


def _read_port(item: Fields) -> int:
    port = item.need("port", 0)
    item.refuse(not 0 < port <= 65535, "port", f"expected a port, 1 to 65535, got {port}", "correct it")
    return port


def _read_reference(reference: Fields, kind: str, namespace: str) -> str:
    """Return the name of the object to which a reference leads.

    Args:
        reference: the fields of the reference.
        kind: the kind that the object must have.
        namespace: the namespace that the object must be in.

    Raises:
        UsageError: for an object of another kind or another namespace.

    """
    reference.choice("kind", (kind,), kind)
    reference.waive("group")
    target = reference.take("namespace", namespace)
    fault = f"the local target reads one namespace, got {target!r}"
    reference.refuse(target != namespace, "namespace", fault, "leave it out, or use --target kind")
    return reference.need("name", "")
