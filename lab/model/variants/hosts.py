"""Which hosts a load goes to, and where TLS ends for them: from a variant's Ingress, Route and HTTPRoute objects alone. Pure.

    spec: {host: bench-0000.apps.lab.test, tls: {termination: edge}}      →  {"bench-0000.apps.lab.test": "edge"}

Refuses a load that the variant's routes cannot serve, before anything starts. Whether a route is admitted, a target tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from lab.base.errors import UsageError
from lab.model.endpoint import Endpoint, Tls
from lab.model.load import Shard
from lab.model.sweeps import Point

DEFAULT_HOST = "bench.lab.test"
"""The host of a proxy that no Ingress describes (the manifests' own convention)."""


def routed(manifests: Iterable[Mapping[str, Any]]) -> dict[str, Tls]:
    """Host → where TLS ends for it, in the manifests' order; the manifests' own host where no route names one."""
    objects = list(manifests)
    return dict(pair for obj in objects for pair in (*_hosts(obj), *_of_gateways(obj, objects))) or {
        DEFAULT_HOST: "none"
    }


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


def expected(
    routed: Mapping[str, Tls], proxied: bool, point: Point, routers: Mapping[str, str] | None = None
) -> Endpoint:
    """Where the point's load will go, as far as that is known before there is an address. UsageError as `chosen`.

    `routers`: host → which of several proxies has it (see `divided`).
    """
    names, tls = chosen(routed, proxied, point)
    scheme = "http" if tls == "none" else "https"
    shards = shards_of(names, routers or {}, lambda _router, first: f"{scheme}://{first}")
    return Endpoint(f"{scheme}://{names[0]}", names[0], names, tls, shards=shards)


ROUTE_LABELS = "ROUTE_LABELS"
"""By this variable a router is told which Routes are its own."""


def routers(manifests: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Host → the Deployment of the proxy that has its Route, where several share them; empty where there is one."""
    objects = list(manifests)
    wanted = {
        obj["metadata"]["name"]: route_labels(item["value"])
        for obj in objects
        if obj["kind"] == "Deployment"
        for container in obj["spec"]["template"]["spec"]["containers"]
        for item in container.get("env") or []
        if item["name"] == ROUTE_LABELS
    }
    labels = {obj["spec"]["host"]: obj["metadata"].get("labels") or {} for obj in objects if obj["kind"] == "Route"}
    return divided(labels, wanted)


def route_labels(text: str) -> dict[str, str]:
    """`KEY=VALUE,…` as labels."""
    return {key: value for key, _, value in (item.partition("=") for item in text.split(",") if item)}


def divided(labels: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Host → the first router that has it; empty where there is only one, and without hosts that none has.

    `labels`: of each host's route. `wanted`: router → what its routes must be labelled.
    """
    if len(wanted) < 2:
        return {}
    found = {
        host: [name for name, asked in wanted.items() if asked.items() <= own.items()] for host, own in labels.items()
    }
    return {host: names[0] for host, names in found.items() if names}


def shards_of(names: Sequence[str], routers: Mapping[str, str], url: Callable[[str, str], str]) -> tuple[Shard, ...]:
    """These hosts by the router that has them, in their order; empty where one has all. `url`: of a router, by its first host."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if name in routers:
            groups.setdefault(routers[name], []).append(name)
    shards = (Shard(url(router, hosts[0]), tuple(hosts)) for router, hosts in groups.items())
    return tuple(shards) if len(groups) > 1 else ()


def _hosts(obj: Mapping[str, Any]) -> Iterator[tuple[str, Tls]]:
    spec = obj.get("spec") or {}
    if obj.get("kind") == "Ingress":
        encrypted = {host for entry in spec.get("tls") or [] for host in entry.get("hosts") or []}
        for rule in spec.get("rules") or []:
            if host := rule.get("host"):
                yield host, "edge" if host in encrypted else "none"
    elif obj.get("kind") == "Route" and str(obj.get("apiVersion")).startswith("route.openshift.io/"):
        yield spec["host"], cast("Tls", (spec.get("tls") or {}).get("termination", "none"))


def _of_gateways(obj: Mapping[str, Any], objects: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Tls]]:
    """Of an HTTPRoute: TLS ends in the proxy where a listener that it is attached to has TLS."""
    if obj.get("kind") != "HTTPRoute":
        return
    parents = {(item["name"], item.get("sectionName")) for item in obj["spec"].get("parentRefs") or []}
    listeners = [
        listener
        for other in objects
        if other.get("kind") == "Gateway"
        for listener in other["spec"].get("listeners") or []
        if {(other["metadata"]["name"], None), (other["metadata"]["name"], listener["name"])} & parents
    ]
    tls: Tls = "edge" if any(listener["protocol"] == "HTTPS" for listener in listeners) else "none"
    for host in obj["spec"].get("hostnames") or []:
        yield host, tls
