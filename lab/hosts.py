"""Which hosts a load goes to, and where TLS ends for them: from a variant's Ingress and Route objects alone. Pure.

    spec: {host: bench-0000.apps.lab.test, tls: {termination: edge}}      →  {"bench-0000.apps.lab.test": "edge"}

Refuses a load that the variant's routes cannot serve, before anything starts. Whether a route is admitted, a target tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from lab.errors import UsageError
from lab.sweeps import Point, Tls
from lab.targets.base import Endpoint

DEFAULT_HOST = "bench.lab.test"
"""The host of a proxy that no Ingress describes (the manifests' own convention)."""


def routed(manifests: Iterable[Mapping[str, Any]]) -> dict[str, Tls]:
    """Host → where TLS ends for it, in the manifests' order; the manifests' own host where no route names one."""
    return dict(pair for obj in manifests for pair in _hosts(obj)) or {DEFAULT_HOST: "none"}


def chosen(routed: Mapping[str, Tls], proxied: bool, point: Point) -> tuple[tuple[str, ...], Tls]:
    """The point's hosts and where TLS ends for all of them. UsageError when these routes cannot serve it.

    `proxied`: a proxy looks at the host; a backend alone does not, and answers to as many as are asked for.
    """
    ends = sorted(set(routed.values()))
    place = f"point {point.name}"
    if point.tls == "routed" and len(ends) > 1:
        fault = f"'routed' is not one: the variant's routes have {', '.join(ends)}"
        raise UsageError(f"{place}: tls", fault, "name one of them")
    tls = ends[0] if point.tls == "routed" else point.tls
    hosts = tuple(host for host, end in routed.items() if end == tls)
    if not hosts:
        fault = f"asks for '{tls}', the variant's routes have {', '.join(ends)}"
        raise UsageError(f"{place}: tls", fault, 'use tls = "routed", or a variant whose routes have it')
    count = len(hosts) if point.routes == "all" else point.routes
    if not proxied:
        hosts += tuple(f"bench-{number:04}.lab.test" for number in range(1, count))
    if count > len(hosts):
        raise UsageError(f"{place}: routes", f"asks for {count} routes, the variant has {len(hosts)}", "lower it")
    return hosts[:count], tls


def expected(routed: Mapping[str, Tls], proxied: bool, point: Point) -> Endpoint:
    """Where the point's load will go, as far as that is known before there is an address. UsageError as `chosen`."""
    names, tls = chosen(routed, proxied, point)
    return Endpoint(f"{'http' if tls == 'none' else 'https'}://{names[0]}", names[0], names, tls)


def _hosts(obj: Mapping[str, Any]) -> Iterator[tuple[str, Tls]]:
    spec = obj.get("spec") or {}
    if obj.get("kind") == "Ingress":
        encrypted = {host for entry in spec.get("tls") or [] for host in entry.get("hosts") or []}
        for rule in spec.get("rules") or []:
            if host := rule.get("host"):
                yield host, "edge" if host in encrypted else "none"
    elif obj.get("kind") == "Route" and str(obj.get("apiVersion")).startswith("route.openshift.io/"):
        yield spec["host"], cast("Tls", (spec.get("tls") or {}).get("termination", "none"))
