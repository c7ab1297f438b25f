"""Ingress → what a proxy serves, as `gateway_api` has it of an HTTPRoute: one writer for either. Pure.

    Ingress: rules: [{host: bench.lab.test, http: {paths: [{path: /, pathType: Prefix, backend: backend:http}]}}]
        →  [Served(80, {"bench.lab.test": (Entry(Match(PathPrefix /), Rule(backend)),)})]

Refuses what ingress-nginx's own annotations ask for: other controllers do not read them.
A module of its own, since `gateway_api` is below the `Objects` that it reads, and both controllers that serve an Ingress so ask for it.
"""

from __future__ import annotations

from lab.base.errors import UsageError
from lab.systems.manifests.gateway_api import Backend, Entry, Match, Rule, Served
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.routes import PREFIX, Route

HTTP, HTTPS = 80, 443


def served(objects: Objects, http: int = HTTP, https: int = HTTPS) -> list[Served]:
    """Of every Ingress: a port, and one with TLS where a host has a certificate. UsageError for annotations of another controller."""
    entries: dict[str, list[Entry]] = {}
    for route in objects.routes:
        entries.setdefault(route.host, []).append(_entry(objects, route))
    hosts = {host: tuple(sorted(found, key=lambda entry: entry.match.precedence)) for host, found in entries.items()}
    secrets = {route.host: route.secret for route in objects.routes if route.secret}
    found = [Served(http, hosts)]
    if secrets:
        names = tuple(dict.fromkeys(secrets.values()))
        found.append(Served(https, {host: hosts[host] for host in secrets}, names))
    return found


def _entry(objects: Objects, route: Route) -> Entry:
    place = f"Ingress/{route.ingress}"
    if route.regex or route.rewrite or route.forwarded_prefix or route.settings:
        fault = f"this controller does not read {PREFIX}*"
        raise UsageError(f"{place}: metadata.annotations", fault, "remove them: they are ingress-nginx's")
    numbers = {name: number for number, name in objects.services[route.service].names.items()}
    port = route.port if isinstance(route.port, int) else numbers[route.port]
    match = Match("Exact" if route.path_type == "Exact" else "PathPrefix", route.path)
    return Entry(match, Rule(place, (match,), (Backend(route.service, port),)))
