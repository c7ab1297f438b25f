"""Gateway API (v1): GatewayClass, Gateway and HTTPRoute → what a proxy serves, once for every proxy. Pure.

    Gateway: listeners: [{name: http, port: 80, protocol: HTTP}]
    HTTPRoute: hostnames: [bench.lab.test], rules: [{backendRefs: [{name: backend, port: 80}]}]
        →  [Served(port 80, {"bench.lab.test": (Entry(Match(PathPrefix /), Rule(Backend(backend, 80))),)})]

Each system writes its own configuration from `served`, and refuses what it cannot write by `Rule.refuse`. Of a route its hosts, exact paths and
prefixes, one Service, the request headers that it sets and its timeout are read; of a Gateway one listener for each port, for every host. Every other field is refused
by name (hosts of listeners, other matches, several Services, rewrites, redirects, mirrors, other namespaces), and so is what the API's own
schema would not let in (a host, a path, a port).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, cast

from lab.base import quantities
from lab.base.errors import refuse_if, refuse_unknown
from lab.systems.manifests.fields import Fields, spec_of

ANY = "*"
"""Host of a route that names none."""

PathKind = Literal["Exact", "PathPrefix"]
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
_PATH = re.compile(r"/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_NO_PATH = re.compile(r"//|/\.{1,2}(?:/|$)|%2[fF]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Listener:
    """`secrets`: of the certificates by which TLS ends here; empty = there is no TLS. `options`: of TLS, a controller's own words."""

    name: str
    port: int
    secrets: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Gateway:
    place: str
    namespace: str
    name: str
    class_name: str
    listeners: tuple[Listener, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """As it was read, for a controller that reads it itself."""


@dataclass(frozen=True, slots=True)
class Match:
    """The path of a request."""

    path_kind: PathKind = "PathPrefix"
    path: str = "/"


@dataclass(frozen=True, slots=True)
class Backend:
    """A Service's port."""

    service: str
    port: int


@dataclass(frozen=True, slots=True)
class Rule:
    """`place` in its manifest. `backend`: None = every request is answered 500. `headers`: of requests, which it sets. `request_s`: timeout; None =
    not said, 0 = none.
    """

    place: str
    matches: tuple[Match, ...]
    backend: Backend | None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    request_s: float | None = None

    def refuse(self, proxy: str, headers: bool = True, never: str = "", timeout: bool = False) -> None:
        """UsageError for what is here that a proxy's writer cannot write. `headers`, `timeout`: it can set them; `never`: characters that mean
        something else there.
        """
        remedy = "leave that out of the route, or measure another system"
        for words, cannot in (
            ("a change of request headers", self.headers and not headers),
            ("a timeout of the request", self.request_s is not None and not timeout),
        ):
            refuse_if(cannot, self.place, f"{words} cannot be written for {proxy} here", remedy)
        for text in self.headers.values():
            fault = f"{text!r} cannot be written for {proxy} here: {' and '.join(never)} mean something else there"
            refuse_if(set(never) & set(text), self.place, fault, "write it without, or measure another system")


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """`parents`: (Gateway, listener; empty = all of it)."""

    place: str
    namespace: str
    name: str
    parents: tuple[tuple[str, str], ...]
    hosts: tuple[str, ...]
    rules: tuple[Rule, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """As a Gateway's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one match of a host leads to."""

    match: Match
    rule: Rule


@dataclass(frozen=True, slots=True)
class Served:
    """One port: host → its entries, what comes first in front. `secrets`: of the certificates by which TLS ends; empty = no TLS."""

    port: int
    hosts: Mapping[str, tuple[Entry, ...]]
    secrets: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def ordered(self) -> list[str]:
        """Its hosts: whole names first, then the longest wildcard, any host last."""
        return sorted(self.hosts, key=lambda host: (host == ANY, host.startswith("*."), -len(host)))


def rules_of(ports: Iterable[Served]) -> dict[str, Rule]:
    """Place → each rule that these ports serve, once."""
    return {entry.rule.place: entry.rule for port in ports for entries in port.hosts.values() for entry in entries}


def served(gateways: Iterable[Gateway], routes: Sequence[HttpRoute], known: Collection[str] = ()) -> list[Served]:
    """Each port of these Gateways with all that is attached to it. UsageError for listeners that cannot share a port.

    `known`: the options of TLS that the controller honours; another is a UsageError.
    """
    found: dict[int, Served] = {}
    for gateway, listener in ((one, each) for one in gateways for each in one.listeners):
        at = f"{gateway.place}: spec.listeners[{listener.name}]"
        fault = f"port {listener.port} is another listener's, too"
        refuse_if(listener.port in found, at, fault, "give it another port")
        for name in listener.options:
            refuse_unknown(name, known, f"{at}.tls.options", f"{name} is not honoured")
        hosts: dict[str, list[Entry]] = {}
        ways = {(gateway.name, ""), (gateway.name, listener.name)}
        for route in routes:
            if route.namespace == gateway.namespace and ways & set(route.parents):
                entries = [Entry(match, rule) for rule in route.rules for match in rule.matches]
                for host in route.hosts or (ANY,):
                    hosts.setdefault(host, []).extend(entries)
        ordered = {host: in_order(entries) for host, entries in hosts.items()}
        found[listener.port] = Served(listener.port, ordered, listener.secrets, listener.options)
    return [found[port] for port in sorted(found)]


def in_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """What the API says comes first in front: an exact path, the longest prefix."""
    return tuple(sorted(entries, key=lambda entry: (entry.match.path_kind != "Exact", -len(entry.match.path))))


def check(gateways: Iterable[Gateway], routes: Iterable[HttpRoute], classes: Collection[str]) -> None:
    """UsageError for a Gateway of no class, and for a route to no Gateway or listener."""
    known = {(gateway.namespace, gateway.name): gateway for gateway in gateways}
    for gateway in known.values():
        fault = f"no GatewayClass is called {gateway.class_name!r}"
        refuse_unknown(gateway.class_name, classes, f"{gateway.place}: spec.gatewayClassName", fault)
    for route, (name, section) in ((one, parent) for one in routes for parent in one.parents):
        at = f"{route.place}: spec.parentRefs"
        named = {name: gateway for (namespace, name), gateway in known.items() if namespace == route.namespace}
        refuse_unknown(name, named, at, f"there is no Gateway {name!r}")
        listeners = [listener.name for listener in named[name].listeners]
        if section:
            refuse_unknown(section, listeners, f"{at}[{name}]", f"Gateway {name} has no listener {section!r}")


# -- reading -------------------------------------------------------------------------------------------------


def read_class(place: str, raw: Mapping[str, Any]) -> str:
    """The controller's name."""
    with spec_of(place, raw, "status") as spec:
        spec.waive("description", "parametersRef")  # the controller's own, who reads it in the manifest
        return spec.need("controllerName", "")


def read_gateway(place: str, raw: Mapping[str, Any]) -> Gateway:
    """UsageError for what is not read here."""
    metadata = raw["metadata"]
    namespace = metadata.get("namespace", "default")
    with spec_of(place, raw, "status") as spec:
        spec.waive("infrastructure")
        class_name = spec.need("gatewayClassName", "")
        listeners = tuple(_listener(item, namespace) for item in spec.each("listeners"))
    refuse_if(not listeners, f"{place}: spec", "'listeners' is empty", "name one")
    for one, other in combinations(listeners, 2):
        fault = f"{other.name} has the name, or the port, of another listener"
        same = one.name == other.name or one.port == other.port
        refuse_if(same, f"{place}: spec.listeners", fault, "give it its own")
    return Gateway(place, namespace, metadata["name"], class_name, listeners, raw)


def _listener(item: Fields, namespace: str) -> Listener:
    protocol = item.choice("protocol", ("HTTP", "HTTPS"))
    with item.inner("allowedRoutes") as allowed:
        allowed.waive("kinds")
        with allowed.inner("namespaces") as namespaces:
            namespaces.choice("from", ("Same", "All"), "Same")  # there is one
    with item.inner("tls") as tls:
        if protocol == "HTTPS":
            tls.choice("mode", ("Terminate",), "Terminate")
        options = tls.take("options", dict[str, str]())
        secrets = [_named(reference, "Secret", namespace) for reference in tls.each("certificateRefs")]
    fault = f"protocol {protocol} and {len(secrets)} certificates"
    item.refuse((protocol == "HTTPS") != bool(secrets), "tls", fault, "HTTPS needs tls.certificateRefs, HTTP has none")
    return Listener(item.need("name", ""), _port(item), tuple(secrets), options)


def read_http_route(place: str, raw: Mapping[str, Any]) -> HttpRoute:
    """UsageError for what is not read here."""
    metadata = raw["metadata"]
    namespace = metadata.get("namespace", "default")
    with spec_of(place, raw, "status") as spec:
        parents = tuple(
            (_named(item, "Gateway", namespace), item.take("sectionName", "")) for item in spec.each("parentRefs")
        )
        hosts = tuple(str(host).lower() for host in spec.take("hostnames", list[Any]()))
        for host in hosts:
            fault = f"expected a host, such as shop.example or *.example, got {host!r}"
            spec.refuse(not _HOST.fullmatch(host), "hostnames", fault, "correct it")
        rules = tuple(_rule(item, namespace) for item in spec.each("rules")) or (Rule(place, (Match(),), None),)
    refuse_if(not parents, f"{place}: spec", "'parentRefs' is empty: nothing would serve it", "name a Gateway")
    return HttpRoute(place, namespace, metadata["name"], parents, hosts, rules, raw)


def _rule(item: Fields, namespace: str) -> Rule:
    item.waive("name")
    backends = [
        Backend(_named(reference, "Service", namespace), _port(reference)) for reference in item.each("backendRefs")
    ]
    fault = "the local target does not honour a division between several Services"
    item.refuse(len(backends) > 1, "backendRefs", fault, "name one, or use --target kind")
    matches = tuple(_match(match) for match in item.each("matches", "path")) or (Match(),)
    with item.inner("timeouts") as timeouts:
        text = timeouts.take("request", "")
        request_s = quantities.seconds(text) if text else None
        wrong = text and request_s is None
        timeouts.refuse(wrong, "request", f"expected a duration such as 10s, got {text!r}", "a number and its unit")
    headers: dict[str, str] = {}
    for change in item.each("filters", "type"):
        change.choice("type", ("RequestHeaderModifier",), remedy="remove it, or use --target kind")
        with change.inner("requestHeaderModifier") as modifier:
            headers |= dict(_header(header) for header in modifier.each("set"))
    return Rule(item.place, matches, backends[0] if backends else None, headers, request_s)


def _match(item: Fields) -> Match:
    with item.inner("path") as path:
        kind = path.choice("type", ("PathPrefix", "Exact"), "PathPrefix")
        value = path.take("value", "/")
        fault = f"expected an absolute path as it comes over the wire, without //, /./ and /../, got {value!r}"
        path.refuse(not _PATH.fullmatch(value) or _NO_PATH.search(value), "value", fault, "such as /shop")
    return Match(cast("PathKind", kind), value)


def _header(item: Fields) -> tuple[str, str]:
    name, value = item.need("name", ""), item.need("value", "")
    fault = f"{value!r} has a character that no header can have"
    item.refuse(_CONTROL.search(value), "value", fault, "take it out")
    item.refuse(not _HEADER.fullmatch(name), "name", f"expected a header's name, got {name!r}", "correct it")
    return name, value


def _port(item: Fields) -> int:
    port = item.need("port", 0)
    item.refuse(not 0 < port <= 65535, "port", f"expected a port, 1 to 65535, got {port}", "correct it")
    return port


def _named(reference: Fields, kind: str, own: str) -> str:
    """The name in a reference. UsageError for one to an object of another kind, or in another namespace than its `own`."""
    reference.choice("kind", (kind,), kind)
    reference.waive("group")
    namespace = reference.take("namespace", own)
    fault = f"the local target reads one namespace, got {namespace!r}"
    reference.refuse(namespace != own, "namespace", fault, "leave it out, or use --target kind")
    return reference.need("name", "")
