"""The hosts of a load and where TLS ends for them, from a variant's Ingress, Route and HTTPRoute objects alone.

    spec: {host: bench-0000.apps.lab.test, tls: {termination: edge}}      →  {"bench-0000.apps.lab.test": "edge"}

A load that the variant's routes cannot serve is refused before anything starts. Whether a route is admitted is for the target to find out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from lab.base.errors import refuse_if
from lab.base.grouping import group_values
from lab.model.endpoint import Endpoint, Tls
from lab.model.load import Shard
from lab.model.sweeps import LoadPoint

DEFAULT_HOST = "bench.lab.test"
"""The host of a proxy that no Ingress describes (a convention of the manifests)."""


def find_hosts(manifests: Iterable[Mapping[str, Any]]) -> dict[str, Tls]:
    """Return the hosts that a variant's routes name, each with the place where TLS ends.

    Args:
        manifests: The Kubernetes objects of the variant.

    Returns:
        host → "none" (no TLS), "edge" (TLS ends in the proxy), "passthrough" (in the backend) or "reencrypt" (in both),
        in the manifests' order. If no route names a host, it is {`DEFAULT_HOST`: "none"}.

    """
    objects = list(manifests)
    return dict(pair for obj in objects for pair in (*_hosts(obj), *_hosts_of_gateways(obj, objects))) or {
        DEFAULT_HOST: "none"
    }


def add_routes(manifests: Sequence[dict[str, Any]], count: int) -> tuple[dict[str, Any], ...]:
    """Return manifests with enough routes for `count` hosts: copies of their last route with other hosts are added.

    Manifests without a route, or with enough hosts, are returned unchanged.

    Args:
        manifests: The Kubernetes objects of a variant.
        count: The number of hosts that is needed.

    """
    routed = find_hosts(manifests)
    route = next((obj for obj in reversed(manifests) if [*_hosts(obj), *_hosts_of_gateways(obj, manifests)]), None)
    if route is None or len(routed) >= count:
        return tuple(manifests)
    host, (label, _, domain) = list(routed)[-1], list(routed)[-1].partition(".")
    names = (f"{label.split('-')[0]}-{number:04}" for number in itertools.count(1))
    free = itertools.islice((name for name in names if f"{name}.{domain}" not in routed), count - len(routed))
    copies = (
        (name, json.loads(json.dumps(route).replace(json.dumps(host), json.dumps(f"{name}.{domain}")))) for name in free
    )
    return (*manifests, *(obj | {"metadata": obj["metadata"] | {"name": f"traffic-{name}"}} for name, obj in copies))


def choose_hosts(routed: Mapping[str, Tls], proxied: bool, point: LoadPoint) -> tuple[tuple[str, ...], Tls]:
    """Return the hosts that a load point requests, and the place where TLS ends for all of them.

    Args:
        routed: The hosts of the variant's routes, each with the place where TLS ends, as from `find_hosts`.
        proxied: Whether a proxy selects the backend by the host. If not, hosts may be invented, because the backend
            answers for any host. A mix of requests that goes to a proxy without routes may invent hosts, too.
        point: The load point.

    Returns:
        The hosts, and "none", "edge", "passthrough" or "reencrypt".

    Raises:
        UsageError: The routes do not have the TLS mode or the number of hosts that the point needs.

    """
    ends = sorted(set(routed.values()))
    place = f"point {point.name}"
    fault = f"'routed' is not one: the variant's routes have {', '.join(ends)}"
    refuse_if(point.tls == "routed" and len(ends) > 1, f"{place}: tls", fault, "name one of them")
    tls = ends[0] if point.tls == "routed" else point.tls
    hosts = tuple(host for host, end in routed.items() if end == tls)
    fault = f"asks for '{tls}', the variant's routes have {', '.join(ends)}"
    refuse_if(not hosts, f"{place}: tls", fault, 'use tls = "routed", or a variant whose routes have it')
    count = len(hosts) if point.routes == "all" else point.routes
    if not proxied or (point.traffic is not None and hosts == (DEFAULT_HOST,)):
        hosts += tuple(f"bench-{number:04}.lab.test" for number in range(1, count))
    fault = f"asks for {count} routes, the variant has {len(hosts)}"
    refuse_if(count > len(hosts), f"{place}: routes", fault, "lower it")
    return hosts[:count], tls


def expect_endpoint(
    routed: Mapping[str, Tls], proxied: bool, point: LoadPoint, routers: Mapping[str, str] | None = None
) -> Endpoint:
    """Return the address of a point's load before the system is started, with host names in place of IP addresses.

    Args:
        routed: The hosts of the variant's routes, each with the place where TLS ends, as from `find_hosts`.
        proxied: Whether a proxy selects the backend by the host (see `choose_hosts`).
        point: The load point.
        routers: host → the name of the proxy that serves it, if several proxies share the hosts (see `divide_hosts`).

    Raises:
        UsageError: The routes do not have the TLS mode or the number of hosts that the point needs.

    """
    names, tls = choose_hosts(routed, proxied, point)
    scheme = "http" if tls == "none" else "https"
    shards = shards_of(names, routers or {}, lambda _router, first: f"{scheme}://{first}")
    return Endpoint(f"{scheme}://{names[0]}", names[0], names, tls, shards=shards)


ROUTE_LABELS = "ROUTE_LABELS"
"""The environment variable that selects the Routes of a router by their labels."""


def find_routers(manifests: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return which proxy serves the Route of each host, if several proxies share the Routes.

    Each of these proxies selects its Routes by labels, in the environment variable `ROUTE_LABELS`.

    Args:
        manifests: The Kubernetes objects of a variant.

    Returns:
        host → the name of the proxy's Deployment; empty unless there are two such proxies or more.

    """
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
    """Parse a text such as `shard=a,tier=web` into {"shard": "a", "tier": "web"}."""
    return {key: value for key, _, value in (item.partition("=") for item in text.split(",") if item)}


def divide_hosts(labels: Mapping[str, Mapping[str, str]], selectors: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return which router (a proxy that selects routes by their labels) serves each host: the first that matches.

    Args:
        labels: host → the labels of its route.
        selectors: router → the labels that a route must have to be served by this router.

    Returns:
        host → router, without the hosts that no router serves; empty for fewer than two routers.

    """
    if len(selectors) < 2:
        return {}
    matches = {
        host: [name for name, selector in selectors.items() if selector.items() <= host_labels.items()]
        for host, host_labels in labels.items()
    }
    return {host: names[0] for host, names in matches.items() if names}


def shards_of(names: Sequence[str], routers: Mapping[str, str], url: Callable[[str, str], str]) -> tuple[Shard, ...]:
    """Return the given hosts grouped by the proxy that serves them; empty if a single proxy serves all of them.

    Args:
        names: The hosts.
        routers: host → the name of the proxy that serves it. Hosts without a proxy are left out.
        url: A function that returns a proxy's URL from its name and the first of its hosts.

    """
    groups = group_values((routers[name], name) for name in names if name in routers)
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
    """Yield the hosts of an HTTPRoute or GRPCRoute, each with "edge" (TLS ends in the proxy) or "none" (no TLS).

    TLS ends in the proxy if one of the Gateway's listeners to which the route is attached has the protocol HTTPS.

    Args:
        obj: A Kubernetes object; other kinds than these two yield nothing.
        objects: All objects, with the Gateways among them.

    """
    if obj.get("kind") not in ("HTTPRoute", "GRPCRoute"):
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
