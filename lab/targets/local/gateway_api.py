"""Gateway API (v1): GatewayClass, Gateway and HTTPRoute → what a proxy serves, once for every proxy. Pure.

    Gateway: listeners: [{name: http, port: 80, protocol: HTTP}]
    HTTPRoute: hostnames: [bench.lab.test], rules: [{backendRefs: [{name: backend, port: 80}]}]
        →  [Served(port 80, {"bench.lab.test": (Entry(Match(PathPrefix /), Rule(backends (backend, 80))),)})]

Each proxy's file in `images/` writes its own configuration from `served`, and refuses what it cannot write by `Rule.refuse`. Refuses every
field that is not read here, and what no proxy here is asked for: TLS routes, namespaces other than the route's own, extension filters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, cast

from lab.base import durations
from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.targets.local.fields import Fields, spec_of

ANY = "*"
"""Host of a route that names none, on a listener that names none."""

PathKind = Literal["Exact", "PathPrefix", "RegularExpression"]
ValueKind = Literal["Exact", "RegularExpression"]


@dataclass(frozen=True, slots=True)
class Listener:
    """`hostname`: empty = every one. `secrets`: of the certificates by which TLS ends here; empty = there is no TLS. `options`: of TLS,
    a controller's own words.
    """

    name: str
    port: int
    hostname: str = ""
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
class ValueMatch:
    """Of a header (its name in lower case) or a query parameter."""

    name: str
    value: str
    kind: ValueKind = "Exact"


@dataclass(frozen=True, slots=True)
class Match:
    """All of it must hold. `method`: empty = every one."""

    path_kind: PathKind = "PathPrefix"
    path: str = "/"
    headers: tuple[ValueMatch, ...] = ()
    queries: tuple[ValueMatch, ...] = ()
    method: str = ""

    @property
    def precedence(self) -> tuple[object, ...]:
        """Sorts first what the API says comes first: an exact path, the longest prefix, a method, most headers, most query parameters.

        Where a regular expression stands is each implementation's own affair; here it is after exact paths and before prefixes.
        """
        rank = ("Exact", "RegularExpression", "PathPrefix").index(self.path_kind)
        return (rank, -len(self.path), not self.method, -len(self.headers), -len(self.queries))


@dataclass(frozen=True, slots=True)
class Backend:
    """A Service's port, and its share of the rule's requests."""

    service: str
    port: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Headers:
    """What is done to headers: `set` replaces, `add` adds, `remove` removes."""

    set: Mapping[str, str] = field(default_factory=dict[str, str])
    add: Mapping[str, str] = field(default_factory=dict[str, str])
    remove: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.set or self.add or self.remove)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`path` replaces the whole path, `prefix` the matched one; None = it stays. `host`: empty = it stays."""

    host: str = ""
    path: str | None = None
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Redirect(Rewrite):
    """An answer that sends the client elsewhere. `scheme`, `port`: empty, 0 = the request's own."""

    scheme: str = ""
    port: int = 0
    status: int = 302


@dataclass(frozen=True, slots=True)
class Rule:
    """`place` in its manifest. `request_s`, `backend_s`: timeouts; None = not said, 0 = none."""

    place: str
    matches: tuple[Match, ...]
    backends: tuple[Backend, ...]
    request_headers: Headers = field(default_factory=Headers)
    response_headers: Headers = field(default_factory=Headers)
    rewrite: Rewrite | None = None
    redirect: Redirect | None = None
    mirrors: tuple[Backend, ...] = ()
    request_s: float | None = None
    backend_s: float | None = None

    def refuse(self, proxy: str, can: Iterable[str]) -> None:
        """UsageError for the first thing here that a proxy's writer cannot write: `can` has names of what it can beside a path and one backend.

        Names: method, headers, queries, regex, weights, request_headers, response_headers, rewrite, redirect, mirrors, request_s, backend_s.
        """
        asked = {
            "method": any(match.method for match in self.matches),
            "headers": any(match.headers for match in self.matches),
            "queries": any(match.queries for match in self.matches),
            "regex": any(match.path_kind == "RegularExpression" for match in self.matches),
            "weights": len(self.backends) > 1,
            "request_headers": self.request_headers,
            "response_headers": self.response_headers,
            "rewrite": self.rewrite,
            "redirect": self.redirect,
            "mirrors": self.mirrors,
            "request_s": self.request_s is not None,
            "backend_s": self.backend_s is not None,
        }
        for name in asked.keys() - set(can):
            if asked[name]:
                fault = f"{_WORDS[name]} cannot be written for {proxy} here"
                raise UsageError(self.place, fault, "leave it out of the route, or measure another system")


_WORDS = {
    "method": "a match of methods",
    "headers": "a match of headers",
    "queries": "a match of query parameters",
    "regex": "a path as a regular expression",
    "weights": "a division between several backends",
    "request_headers": "a change of request headers",
    "response_headers": "a change of response headers",
    "rewrite": "a rewrite",
    "redirect": "a redirect",
    "mirrors": "a mirror",
    "request_s": "a timeout of the request",
    "backend_s": "a timeout of the backend's answer",
}


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
    def backends(self) -> list[Backend]:
        """Each Service's port that it leads to, once."""
        entries = [entry for found in self.hosts.values() for entry in found]
        pairs = [(item.service, item.port) for entry in entries for item in (*entry.rule.backends, *entry.rule.mirrors)]
        return [Backend(*pair) for pair in dict.fromkeys(pairs)]


def served(gateways: Iterable[Gateway], routes: Sequence[HttpRoute], known: Collection[str] = ()) -> list[Served]:
    """Each port of these Gateways with all that is attached to it. UsageError for listeners that cannot share a port.

    `known`: the options of TLS that the controller honours; another is a UsageError.
    """
    ports: dict[int, dict[str, list[Entry]]] = {}
    secrets: dict[int, tuple[str, ...]] = {}
    options: dict[int, Mapping[str, str]] = {}
    for gateway in gateways:
        for listener in gateway.listeners:
            at = f"{gateway.place}: spec.listeners[{listener.name}]"
            if bool(secrets.setdefault(listener.port, listener.secrets)) != bool(listener.secrets):
                fault = f"port {listener.port} is with TLS and without"
                raise UsageError(at, fault, "give it another port")
            if unknown := [name for name in listener.options if name not in known]:
                raise UsageError(f"{at}.tls.options", f"{unknown[0]} is not honoured", did_you_mean(unknown[0], known))
            if options.setdefault(listener.port, listener.options) != listener.options:
                raise UsageError(f"{at}.tls.options", f"port {listener.port} has others, too", "give it another port")
            secrets[listener.port] = tuple(dict.fromkeys((*secrets[listener.port], *listener.secrets)))
            hosts = ports.setdefault(listener.port, {})
            for route in _attached(gateway, listener, routes):
                for host in _shared(listener.hostname, route.hosts):
                    entries = (Entry(match, rule) for rule in route.rules for match in rule.matches)
                    hosts.setdefault(host, []).extend(entries)
    return [
        Served(
            port,
            {host: tuple(sorted(entries, key=lambda entry: entry.match.precedence)) for host, entries in found.items()},
            secrets[port],
            options[port],
        )
        for port, found in sorted(ports.items())
    ]


def _attached(gateway: Gateway, listener: Listener, routes: Iterable[HttpRoute]) -> list[HttpRoute]:
    ways = {(gateway.name, ""), (gateway.name, listener.name)}
    return [route for route in routes if route.namespace == gateway.namespace and ways & set(route.parents)]


def _shared(hostname: str, hosts: Sequence[str]) -> list[str]:
    """The hosts of a route that a listener lets through."""
    if not hosts:
        return [hostname or ANY]
    if not hostname:
        return list(hosts)
    return [host for host in hosts if _within(host, hostname)] + [hostname for host in hosts if _below(hostname, host)]


def _within(host: str, hostname: str) -> bool:
    return host == hostname or _below(host, hostname)


def _below(host: str, wildcard: str) -> bool:
    """Whether a host, itself with or without a wildcard, is one of those that a `*.domain` means."""
    return wildcard.startswith("*.") and host != wildcard and host.endswith(wildcard[1:])


def check(gateways: Iterable[Gateway], routes: Iterable[HttpRoute], classes: Collection[str]) -> None:
    """UsageError for a Gateway of no class, and for a route to no Gateway or listener."""
    known = {(gateway.namespace, gateway.name): gateway for gateway in gateways}
    for gateway in known.values():
        fault = f"no GatewayClass is called {gateway.class_name!r}"
        refuse_unknown(gateway.class_name, classes, f"{gateway.place}: spec.gatewayClassName", fault)
    for route in routes:
        for name, section in route.parents:
            gateway = known.get((route.namespace, name))
            if gateway is None:
                remedy = did_you_mean(name, [name for _, name in known])
                raise UsageError(f"{route.place}: spec.parentRefs", f"there is no Gateway {name!r}", remedy)
            names = [listener.name for listener in gateway.listeners]
            if section:
                fault = f"Gateway {name} has no listener {section!r}"
                refuse_unknown(section, names, f"{route.place}: spec.parentRefs[{name}]", fault)


def read_class(place: str, raw: Mapping[str, Any]) -> str:
    """The controller's name."""
    with spec_of(place, raw, "status") as spec:
        spec.waive("description", "parametersRef")  # the controller's own, who reads it in the manifest
        return spec.need("controllerName", "")


def read_gateway(place: str, raw: Mapping[str, Any]) -> Gateway:
    """UsageError for what is not read here."""
    metadata = raw["metadata"]
    with spec_of(place, raw, "status") as spec:
        spec.waive("infrastructure")
        found = Gateway(
            place,
            metadata.get("namespace", "default"),
            metadata["name"],
            spec.need("gatewayClassName", ""),
            tuple(_listener(item) for item in spec.each("listeners")),
            raw,
        )
    if not found.listeners:
        raise UsageError(f"{place}: spec", "'listeners' is empty", "name one")
    return found


def _listener(item: Fields) -> Listener:
    protocol = item.choice("protocol", ("HTTP", "HTTPS"))
    with item.inner("allowedRoutes") as allowed:
        allowed.waive("kinds")
        with allowed.inner("namespaces") as namespaces:
            namespaces.choice("from", ("Same", "All"), "Same")  # there is one
    with item.inner("tls") as tls:
        if protocol == "HTTPS":
            tls.choice("mode", ("Terminate",), "Terminate")
        options = tls.take("options", dict[str, str]())
        secrets = [
            reference.need("name", "") for reference in tls.each("certificateRefs") if _kind(reference, "Secret")
        ]
    if (protocol == "HTTPS") != bool(secrets):
        fault = f"protocol {protocol} and {len(secrets)} certificates"
        raise UsageError(item.at("tls"), fault, "HTTPS needs tls.certificateRefs, HTTP has none")
    port = item.need("port", 0)
    return Listener(item.need("name", ""), port, item.take("hostname", ""), tuple(secrets), options)


def read_http_route(place: str, raw: Mapping[str, Any]) -> HttpRoute:
    """UsageError for what is not read here."""
    metadata = raw["metadata"]
    with spec_of(place, raw, "status") as spec:
        parents = [
            (item.need("name", ""), item.take("sectionName", ""))
            for item in spec.each("parentRefs")
            if _kind(item, "Gateway")
        ]
        hosts = tuple(str(host).lower() for host in spec.take("hostnames", list[Any]()))
        rules = tuple(_rule(item) for item in spec.each("rules")) or (Rule(place, (Match(),), ()),)
        namespace = metadata.get("namespace", "default")
        found = HttpRoute(place, namespace, metadata["name"], tuple(parents), hosts, rules, raw)
    if not parents:
        raise UsageError(f"{place}: spec", "'parentRefs' is empty: nothing would serve it", "name a Gateway")
    return found


def _kind(reference: Fields, kind: str) -> bool:
    """True; UsageError for a reference to an object of another kind, or in another namespace."""
    reference.choice("kind", (kind,), kind)
    reference.waive("group")
    if (namespace := reference.take("namespace", "")) != "":
        fault = f"the local target reads one namespace, got {namespace!r}"
        raise UsageError(reference.at("namespace"), fault, "leave it out, or use --target kind")
    return True


def _rule(item: Fields) -> Rule:
    item.waive("name")
    backends = tuple(_backend(reference) for reference in item.each("backendRefs"))
    matches = tuple(_match(match) for match in item.each("matches", "path")) or (Match(),)
    with item.inner("timeouts") as timeouts:
        request_s, backend_s = _timeout(timeouts, "request"), _timeout(timeouts, "backendRequest")
    filters = dict[str, Any](_filters(item))
    if "redirect" in filters and backends:
        raise UsageError(item.place, "a redirect and backendRefs", "keep one of the two")
    return Rule(item.place, matches, backends, request_s=request_s, backend_s=backend_s, **filters)


def _backend(reference: Fields) -> Backend:
    _kind(reference, "Service")
    if reference.take("filters", list[Any]()):
        _refused(reference, "filters", "filters of one backend")
    weight = reference.take("weight", 1)
    return Backend(reference.need("name", ""), reference.need("port", 0), weight)


def _match(item: Fields) -> Match:
    with item.inner("path") as path:
        kind = path.choice("type", ("PathPrefix", "Exact", "RegularExpression"), "PathPrefix")
        value = path.take("value", "/")
        if not value.startswith("/") and kind != "RegularExpression":
            raise UsageError(path.at("value"), f"expected an absolute path, got {value!r}", "such as /shop")
    headers = tuple(_value(header) for header in item.each("headers"))
    queries = tuple(_value(query) for query in item.each("queryParams"))
    lower = tuple(ValueMatch(header.name.lower(), header.value, header.kind) for header in headers)
    return Match(cast("PathKind", kind), value, lower, queries, item.take("method", ""))


def _value(item: Fields) -> ValueMatch:
    kind = item.choice("type", ("Exact", "RegularExpression"), "Exact")
    return ValueMatch(item.need("name", ""), item.need("value", ""), cast("ValueKind", kind))


def _timeout(timeouts: Fields, name: str) -> float | None:
    text = timeouts.take(name, "")
    if not text:
        return None
    if (seconds := durations.seconds(text)) is None:
        raise UsageError(timeouts.at(name), f"expected a duration such as 10s, got {text!r}", "a number and its unit")
    return seconds


def _filters(rule: Fields) -> Iterator[tuple[str, Any]]:
    """Field of `Rule` → its value."""
    mirrors: list[Backend] = []
    for item in rule.each("filters", "type"):
        match kind := item.need("type", ""):
            case "RequestHeaderModifier" | "ResponseHeaderModifier":
                name = "requestHeaderModifier" if kind.startswith("Request") else "responseHeaderModifier"
                with item.inner(name) as change:
                    yield ("request_headers" if kind.startswith("Request") else "response_headers"), _headers(change)
            case "URLRewrite":
                with item.inner("urlRewrite") as rewrite:
                    yield "rewrite", Rewrite(rewrite.take("hostname", ""), *_replaced(rewrite))
            case "RequestRedirect":
                with item.inner("requestRedirect") as redirect:
                    yield "redirect", _redirect(redirect)
            case "RequestMirror":
                with item.inner("requestMirror") as mirror, mirror.inner("backendRef") as reference:
                    mirrors.append(_backend(reference))
            case _:
                _refused(item, "type", f"a filter {kind!r}")
    if mirrors:
        yield "mirrors", tuple(mirrors)


def _headers(change: Fields) -> Headers:
    def pairs(name: str) -> dict[str, str]:
        return {item.need("name", ""): item.need("value", "") for item in change.each(name)}

    return Headers(pairs("set"), pairs("add"), tuple(map(str, change.take("remove", list[Any]()))))


def _replaced(where: Fields) -> tuple[str | None, str | None]:
    """(whole path, matched prefix)"""
    if not where.has("path"):
        return None, None
    with where.inner("path") as path:
        if path.choice("type", ("ReplaceFullPath", "ReplacePrefixMatch")) == "ReplaceFullPath":
            return path.need("replaceFullPath", ""), None
        return None, path.need("replacePrefixMatch", "")


def _redirect(redirect: Fields) -> Redirect:
    host, (whole, prefix) = redirect.take("hostname", ""), _replaced(redirect)
    scheme, port = redirect.take("scheme", ""), redirect.take("port", 0)
    return Redirect(host, whole, prefix, scheme, port, redirect.take("statusCode", 302))


def _refused(fields: Fields, name: str, what: str) -> NoReturn:
    raise UsageError(fields.at(name), f"the local target does not honour {what}", "remove it, or use --target kind")
