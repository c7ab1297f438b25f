"""Gateway API (v1): GatewayClass, Gateway and HTTPRoute → what a proxy serves, once for every proxy. Pure.

    Gateway: listeners: [{name: http, port: 80, protocol: HTTP}]
    HTTPRoute: hostnames: [bench.lab.test], rules: [{backendRefs: [{name: backend, port: 80}]}]
        →  [Served(port 80, {"bench.lab.test": (Entry(Match(PathPrefix /), Rule(backends (backend, 80))),)})]

Each system writes its own configuration from `served`, and refuses what it cannot write by `Rule.refuse`. Manifests are
read in `gateway_objects`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.base.errors import UsageError, did_you_mean, refuse_unknown

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

    @property
    def texts(self) -> Iterator[str]:
        """What is written as it stands, but for paths to match."""
        for match in self.matches:
            yield from (item.value for item in (*match.headers, *match.queries))
        for change in (self.request_headers, self.response_headers):
            yield from (*change.set.values(), *change.add.values())
        for to in (self.rewrite, self.redirect):
            yield from filter(None, (to and to.path, to and to.prefix))

    def refuse(self, proxy: str, can: Iterable[str], never: str = "") -> None:
        """UsageError for what is here that a proxy's writer cannot write: `can` has names of what it can beside a path and one backend.

        Names: method, headers, queries, queries_regex, regex, weights, request_headers, response_headers, added, rewrite, redirect,
        redirect_prefix, mirrors, request_s, backend_s. `never`: characters that mean something else there.
        """
        asked = {
            "method": any(match.method for match in self.matches),
            "headers": any(match.headers for match in self.matches),
            "queries": any(match.queries for match in self.matches),
            "queries_regex": any(item.kind != "Exact" for match in self.matches for item in match.queries),
            "regex": any(match.path_kind == "RegularExpression" for match in self.matches),
            "weights": len(self.backends) > 1,
            "request_headers": self.request_headers,
            "response_headers": self.response_headers,
            "added": self.request_headers.add or self.response_headers.add,
            "rewrite": self.rewrite,
            "redirect": self.redirect,
            "redirect_prefix": self.redirect and self.redirect.prefix is not None,
            "mirrors": self.mirrors,
            "request_s": self.request_s is not None,
            "backend_s": self.backend_s is not None,
        }
        able = frozenset(can)
        if cannot := [_WORDS[name] for name, there in asked.items() if there and name not in able]:
            fault = f"{' and '.join(cannot)} cannot be written for {proxy} here"
            raise UsageError(self.place, fault, "leave that out of the route, or measure another system")
        if odd := next((text for text in self.texts if set(never) & set(text)), None):
            fault = f"{odd!r} cannot be written for {proxy} here: {' and '.join(never)} mean something else there"
            raise UsageError(self.place, fault, "write it without, or measure another system")


_WORDS = {
    "method": "a match of methods",
    "headers": "a match of headers",
    "queries": "a match of query parameters",
    "queries_regex": "a query parameter as a regular expression",
    "regex": "a path as a regular expression",
    "weights": "a division between several backends",
    "request_headers": "a change of request headers",
    "response_headers": "a change of response headers",
    "added": "a header that is added to others of its name",
    "rewrite": "a rewrite",
    "redirect": "a redirect",
    "redirect_prefix": "a redirect that replaces a prefix",
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
