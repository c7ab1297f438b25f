"""Gateway API's manifests → the objects of `gateway_api`. Pure.

    backendRefs: [{name: backend, port: 80}]    →  Rule(backends=(Backend("backend", 80),))

Refuses every field that is not read here, what the API's own schema would not let in (a host, a path, a port, a status; a filter that stands
twice), and what no proxy here is asked for: TLS routes, namespaces other than the route's own, extension filters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

from lab.base import quantities
from lab.base.errors import UsageError
from lab.systems.manifests.fields import Fields, spec_of
from lab.systems.manifests.gateway_api import (
    Backend,
    Gateway,
    Headers,
    HttpRoute,
    Listener,
    Match,
    PathKind,
    Redirect,
    Rewrite,
    Rule,
    ValueKind,
    ValueMatch,
)

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")
STATUSES = (301, 302, 303, 307, 308)
MOST_WEIGHT = 1_000_000
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
_PATH = re.compile(r"/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_NO_PATH = re.compile(r"//|/\.{1,2}(?:/|$)|%2[fF]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


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
            tuple(_listener(item, metadata.get("namespace", "default")) for item in spec.each("listeners")),
            raw,
        )
    if not found.listeners:
        raise UsageError(f"{place}: spec", "'listeners' is empty", "name one")
    for number, one in enumerate(found.listeners):
        for other in found.listeners[:number]:
            if one.name == other.name or (one.port, one.hostname) == (other.port, other.hostname):
                fault = f"{one.name} has the name, or the port and the host, of another listener"
                raise UsageError(f"{place}: spec.listeners", fault, "give it its own")
    return found


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
        secrets = [
            reference.need("name", "")
            for reference in tls.each("certificateRefs")
            if _kind(reference, "Secret", namespace)
        ]
    if (protocol == "HTTPS") != bool(secrets):
        fault = f"protocol {protocol} and {len(secrets)} certificates"
        raise UsageError(item.at("tls"), fault, "HTTPS needs tls.certificateRefs, HTTP has none")
    hostname = item.take("hostname", "")
    if hostname:
        _matching(_HOST, item.at("hostname"), hostname, "a host, such as shop.example or *.example")
    return Listener(item.need("name", ""), _port(item), hostname, tuple(secrets), options)


def read_http_route(place: str, raw: Mapping[str, Any]) -> HttpRoute:
    """UsageError for what is not read here."""
    metadata = raw["metadata"]
    namespace = metadata.get("namespace", "default")
    with spec_of(place, raw, "status") as spec:
        parents = [
            (item.need("name", ""), item.take("sectionName", ""))
            for item in spec.each("parentRefs")
            if _kind(item, "Gateway", namespace)
        ]
        hosts = tuple(str(host).lower() for host in spec.take("hostnames", list[Any]()))
        for host in hosts:
            _matching(_HOST, spec.at("hostnames"), host, "a host, such as shop.example or *.example")
        rules = tuple(_rule(item, namespace) for item in spec.each("rules")) or (Rule(place, (Match(),), ()),)
        found = HttpRoute(place, namespace, metadata["name"], tuple(parents), hosts, rules, raw)
    if not parents:
        raise UsageError(f"{place}: spec", "'parentRefs' is empty: nothing would serve it", "name a Gateway")
    return found


def _matching(form: re.Pattern[str], place: str, text: str, expected: str) -> str:
    if not form.fullmatch(text):
        raise UsageError(place, f"expected {expected}, got {text!r}", "correct it")
    return text


def _port(item: Fields) -> int:
    port = item.need("port", 0)
    if not 0 < port <= 65535:
        raise UsageError(item.at("port"), f"expected a port, 1 to 65535, got {port}", "correct it")
    return port


def _kind(reference: Fields, kind: str, own: str) -> bool:
    """True; UsageError for a reference to an object of another kind, or in another namespace than its `own`."""
    reference.choice("kind", (kind,), kind)
    reference.waive("group")
    if (namespace := reference.take("namespace", own)) != own:
        fault = f"the local target reads one namespace, got {namespace!r}"
        raise UsageError(reference.at("namespace"), fault, "leave it out, or use --target kind")
    return True


def _rule(item: Fields, namespace: str) -> Rule:
    item.waive("name")
    backends = tuple(_backend(reference, namespace) for reference in item.each("backendRefs"))
    matches = tuple(_match(match) for match in item.each("matches", "path")) or (Match(),)
    with item.inner("timeouts") as timeouts:
        request_s, backend_s = _timeout(timeouts, "request"), _timeout(timeouts, "backendRequest")
    if request_s and backend_s and backend_s > request_s:
        fault = f"the backend's {backend_s:g} s are longer than the request's {request_s:g} s"
        raise UsageError(item.at("timeouts"), fault, "make them shorter")
    filters = dict[str, Any](_filters(item, namespace))
    if "redirect" in filters and (backends or "rewrite" in filters):
        raise UsageError(item.place, "a redirect, and backendRefs or a rewrite", "keep one of the two")
    for to in (filters.get("rewrite"), filters.get("redirect")):
        if to and to.prefix is not None and not any(match.path_kind == "PathPrefix" for match in matches):
            raise UsageError(
                item.place, "replaces a prefix where none is matched", "match PathPrefix, or ReplaceFullPath"
            )
    shares = backends if any(backend.weight for backend in backends) else ()  # none has any: as if there were none
    return Rule(item.place, matches, shares, request_s=request_s, backend_s=backend_s, **filters)


def _backend(reference: Fields, namespace: str) -> Backend:
    _kind(reference, "Service", namespace)
    if reference.take("filters", list[Any]()):
        _refused(reference, "filters", "filters of one backend")
    weight = reference.take("weight", 1)
    if not 0 <= weight <= MOST_WEIGHT:
        raise UsageError(reference.at("weight"), f"expected 0 to {MOST_WEIGHT}, got {weight}", "correct it")
    return Backend(reference.need("name", ""), _port(reference), weight)


def _match(item: Fields) -> Match:
    with item.inner("path") as path:
        kind = path.choice("type", ("PathPrefix", "Exact", "RegularExpression"), "PathPrefix")
        value = path.take("value", "/")
        if kind == "RegularExpression":
            _regex(path.at("value"), value)
        elif not _PATH.fullmatch(value) or _NO_PATH.search(value):
            expected = "an absolute path as it comes over the wire, without //, /./ and /../"
            raise UsageError(path.at("value"), f"expected {expected}, got {value!r}", "such as /shop")
    headers = tuple(_value(header) for header in item.each("headers"))
    queries = tuple(_value(query) for query in item.each("queryParams"))
    lower = tuple(ValueMatch(header.name.lower(), header.value, header.kind) for header in headers)
    method = item.choice("method", METHODS) if item.has("method") else ""
    return Match(cast("PathKind", kind), value, lower, queries, method)


def _regex(place: str, text: str) -> None:
    """UsageError for what no dialect of regular expressions takes."""
    try:
        re.compile(text)
    except re.error as error:
        if not re.search("unterminated|parenthesis|nothing to repeat", error.msg):
            return
        raise UsageError(place, f"{text!r} is no regular expression: {error}", "correct it") from None


def _value(item: Fields) -> ValueMatch:
    kind = item.choice("type", ("Exact", "RegularExpression"), "Exact")
    name = _matching(_HEADER, item.at("name"), item.need("name", ""), "a name of letters, digits and -")
    value = _printable(item)
    if kind == "RegularExpression":
        _regex(item.at("value"), value)
    return ValueMatch(name, value, cast("ValueKind", kind))


def _printable(item: Fields) -> str:
    value = item.need("value", "")
    if _CONTROL.search(value):
        raise UsageError(item.at("value"), f"{value!r} has a character that no header can have", "take it out")
    return value


def _timeout(timeouts: Fields, name: str) -> float | None:
    text = timeouts.take(name, "")
    if not text:
        return None
    if (seconds := quantities.seconds(text)) is None:
        raise UsageError(timeouts.at(name), f"expected a duration such as 10s, got {text!r}", "a number and its unit")
    return seconds


def _filters(rule: Fields, namespace: str) -> Iterator[tuple[str, Any]]:
    """Field of `Rule` → its value."""
    mirrors: list[Backend] = []
    seen: set[str] = set()
    for item in rule.each("filters", "type"):
        kind = item.need("type", "")
        if kind in seen and kind != "RequestMirror":
            raise UsageError(item.place, f"{kind} stands twice in one rule", "make one of them")
        seen.add(kind)
        match kind:
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
                    mirrors.append(_backend(reference, namespace))
            case _:
                _refused(item, "type", f"a filter {kind!r}")
    if mirrors:
        yield "mirrors", tuple(mirrors)


def _headers(change: Fields) -> Headers:
    def pairs(name: str) -> dict[str, str]:
        return {named(item.at("name"), item.need("name", "")): _printable(item) for item in change.each(name)}

    def named(place: str, name: str) -> str:
        return _matching(_HEADER, place, name, "a header's name")

    removed = tuple(named(change.at("remove"), str(name)) for name in change.take("remove", list[Any]()))
    return Headers(pairs("set"), pairs("add"), removed)


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
    scheme = redirect.choice("scheme", ("http", "https")) if redirect.has("scheme") else ""
    status = redirect.take("statusCode", 302)
    if status not in STATUSES:
        told = f"expected one of {', '.join(map(str, STATUSES))}, got {status}"
        raise UsageError(redirect.at("statusCode"), told, "correct it")
    return Redirect(host, whole, prefix, scheme, _port(redirect) if redirect.has("port") else 0, status)


def _refused(fields: Fields, name: str, what: str) -> NoReturn:
    raise UsageError(fields.at(name), f"the local target does not honour {what}", "remove it, or use --target kind")
