"""The hosts of a load and where TLS ends for them, from a variant's Ingress, Route and HTTPRoute objects alone.

    spec: {host: bench-0000.apps.lab.test, tls: {termination: edge}}      →  {"bench-0000.apps.lab.test": "edge"}

A load that the variant's routes cannot serve is refused before anything starts. Whether a route is admitted is for the target to find out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count as count_from
from itertools import islice
from typing import Any, cast

from lab.base.errors import UsageError
from lab.model.endpoint import Endpoint, Tls
from lab.model.load import Shard
from lab.model.sweeps import LoadPoint

DEFAULT_HOST = "bench.lab.test"
"""The host of a proxy that no Ingress describes (a convention of the manifests)."""


def find_hosts(manifests: Iterable[Mapping[str, Any]]) -> dict[str, Tls]:
    """Return where TLS ends for each host, in the manifests' order; `DEFAULT_HOST` where no route names a host."""
    objects = list(manifests)
    return dict(pair for obj in objects for pair in (*_hosts(obj), *_hosts_of_gateways(obj, objects))) or {
        DEFAULT_HOST: "none"
    }


def add_routes(manifests: Sequence[dict[str, Any]], count: int) -> tuple[dict[str, Any], ...]:
    """Return manifests with copies of their last route that have other hosts, so that there are `count` hosts.

    A variant without a route, or with as many hosts, is returned unchanged.
    """
    routed = find_hosts(manifests)
    route = next((obj for obj in reversed(manifests) if [*_hosts(obj), *_hosts_of_gateways(obj, manifests)]), None)
    if route is None or len(routed) >= count:
        return tuple(manifests)
    host, (label, _, domain) = list(routed)[-1], list(routed)[-1].partition(".")
    names = (f"{label.split('-')[0]}-{number:04}" for number in count_from(1))
    free = islice((name for name in names if f"{name}.{domain}" not in routed), count - len(routed))
    copies = (
        (name, json.loads(json.dumps(route).replace(json.dumps(host), json.dumps(f"{name}.{domain}")))) for name in free
    )
    return (*manifests, *(obj | {"metadata": obj["metadata"] | {"name": f"traffic-{name}"}} for name, obj in copies))


def choose_hosts(routed: Mapping[str, Tls], proxied: bool, point: LoadPoint) -> tuple[tuple[str, ...], Tls]:
    """Return the point's hosts, and where TLS ends for all of them.

    Args:
        routed: Where TLS ends for each host.
        proxied: Whether a proxy looks at the host. A backend alone does not, and answers for any number of hosts. Neither does a proxy
            without any route, to which a mix of requests goes.
        point: The load point.

    Raises:
        UsageError: These routes cannot serve the point.

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
    if not proxied or (point.traffic is not None and hosts == (DEFAULT_HOST,)):
        hosts += tuple(f"bench-{number:04}.lab.test" for number in range(1, count))
    if count > len(hosts):
        raise UsageError(f"{place}: routes", f"asks for {count} routes, the variant has {len(hosts)}", "lower it")
    return hosts[:count], tls


def expect_endpoint(
    routed: Mapping[str, Tls], proxied: bool, point: LoadPoint, routers: Mapping[str, str] | None = None
) -> Endpoint:
    """Return the address of the point's load, as far as it is known before the system has an address.

    Args:
        routed: Where TLS ends for each host.
        proxied: Whether a proxy looks at the host.
        point: The load point.
        routers: The proxy that serves each host, where several share them (see `divide_hosts`).

    Raises:
        UsageError: These routes cannot serve the point.

    """
    names, tls = choose_hosts(routed, proxied, point)
    scheme = "http" if tls == "none" else "https"
    shards = shards_of(names, routers or {}, lambda _router, first: f"{scheme}://{first}")
    return Endpoint(f"{scheme}://{names[0]}", names[0], names, tls, shards=shards)


ROUTE_LABELS = "ROUTE_LABELS"
"""The environment variable that selects the Routes of a router by their labels."""


def find_routers(manifests: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the Deployment of the proxy that serves each host's Route; empty unless several proxies share them."""
    objects = list(manifests)
    selectors = {
        obj["metadata"]["name"]: route_labels(item["value"])
        for obj in objects
        if obj["kind"] == "Deployment"
        for container in obj["spec"]["template"]["spec"]["containers"]
        for item in container.get("env") or []
        if item["name"] == ROUTE_LABELS
    }
    labels = {obj["spec"]["host"]: obj["metadata"].get("labels") or {} for obj in objects if obj["kind"] == "Route"}
    return divide_hosts(labels, selectors)


def route_labels(text: str) -> dict[str, str]:
    """Parse `KEY=VALUE,…` into labels."""
    return {key: value for key, _, value in (item.partition("=") for item in text.split(",") if item)}


def divide_hosts(labels: Mapping[str, Mapping[str, str]], selectors: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the first router that serves each host; hosts that no router serves are left out.

    The result is empty for fewer than two routers.

    Args:
        labels: The labels of each host's route.
        selectors: The labels that the routes of each router must have.

    """
    if len(selectors) < 2:
        return {}
    matches = {
        host: [name for name, selector in selectors.items() if selector.items() <= host_labels.items()]
        for host, host_labels in labels.items()
    }
    return {host: names[0] for host, names in matches.items() if names}


def shards_of(names: Sequence[str], routers: Mapping[str, str], url: Callable[[str, str], str]) -> tuple[Shard, ...]:
    """Return these hosts grouped by the router that serves them, in their order; empty where one router serves all.

    Args:
        names: The hosts.
        routers: The router that serves each host.
        url: A function that returns the URL of a router, from its name and its first host.

    """
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


def _hosts_of_gateways(obj: Mapping[str, Any], objects: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Tls]]:
    """Yield the hosts of an HTTPRoute: TLS ends in the proxy if a listener that it is attached to has TLS."""
    if obj.get("kind") != "HTTPRoute":
        return
    parents = {(item["name"], item.get("sectionName")) for item in obj["spec"].get("parentRefs") or []}
    listeners = [
        listener
        for gateway in objects
        if gateway.get("kind") == "Gateway"
        for listener in gateway["spec"].get("listeners") or []
        if {(gateway["metadata"]["name"], None), (gateway["metadata"]["name"], listener["name"])} & parents
    ]
    tls: Tls = "edge" if any(listener["protocol"] == "HTTPS" for listener in listeners) else "none"
    for host in obj["spec"].get("hostnames") or []:
        yield host, tls
