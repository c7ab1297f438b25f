"""What a running Envoy tells of itself by its admin interface, which listens on its pod's own loopback alone; and the check kind `envoy`.

    GET /stats?filter=…    http.ingress.downstream_rq_total: 40120
    GET /config_dump       {"configs": [{"@type": "…ClustersConfigDump", "dynamic_active_clusters": […]}, …]}

Counts of the listeners that the load comes to are under `PREFIX`; the admin interface's and the probes' own requests are not among them.

    name: cluster.circuit_breakers.thresholds.0.max_connections     /config_dump, of every cluster, listener … that serves the load
    name: stats.server.concurrency                                  /stats
    name: version                                                   /server_info

A check refuses to judge by nothing: no such part, or no such statistic, is unreadable; a path that no part has is `absent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import inside
from lab.systems.reading import Reading, UnreadableError, asked, compared, given, of_parts
from lab.systems.system import Process, ReadbackKind

PORT = 19000
PREFIX = "ingress"
"""`stat_prefix` of the HTTP connection managers that clients come to."""
COUNTS = rf"/stats?filter=^http\.({PREFIX}(_https?)?|https?-\d%2B)\.downstream_rq_(http2_)?total$"
CONCURRENCY = "/stats?filter=^server.concurrency$"
VERSIONS = "/stats?filter=version_text$"
DUMP = "/config_dump"
INFO = "/server_info"
_STAT = re.compile(r"^(\S+): (.*)$", re.MULTILINE)
_TYPE = "@type"
_ROUTER = "envoy.filters.http.router"


def stats(text: str) -> dict[str, str]:
    """Name → value, as `/stats` prints them."""
    return dict(_STAT.findall(text))


def counted(text: str) -> Mapping[str, int]:
    """Requests of clients, and those of them by HTTP/2, from what COUNTS answers; empty where nothing is counted."""
    ends = {"requests": ".downstream_rq_total", "requests_h2": ".downstream_rq_http2_total"}
    told = {name: [int(value) for key, value in stats(text).items() if key.endswith(end)] for name, end in ends.items()}
    return {name: sum(found) for name, found in told.items() if found}


def parts(dump: str) -> dict[str, list[dict[str, Any]]]:
    """Kind of part → each of it that serves the load, from `/config_dump`: listener, http_connection_manager, router, route, cluster, bootstrap.

    Routes are those that lead to a cluster. ValueError for what is no such dump.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    configs = json.loads(dump)["configs"]
    asked = {name for config in configs for name in _control_planes(config.get("bootstrap", {}))}
    for config in configs:
        kind = config[_TYPE].rpartition(".")[2]
        if kind == "BootstrapConfigDump":
            found.setdefault("bootstrap", []).append(config["bootstrap"])
        if kind == "ClustersConfigDump":
            clusters = (item["cluster"] for item in _of(config, "clusters"))
            found.setdefault("cluster", []).extend(each for each in clusters if each["name"] not in asked)
        if kind == "RoutesConfigDump":
            hosts = [
                host for item in _of(config, "route_configs") for host in item["route_config"].get("virtual_hosts", [])
            ]
            routes = (route for host in hosts for route in host.get("routes", []) if "route" in route)
            found.setdefault("route", []).extend(each for each in routes if each["route"].get("cluster") not in asked)
        if kind == "ListenersConfigDump":
            for item in _of(config, "listeners"):
                listener = item.get("active_state", item)["listener"]
                for manager in _managers(listener):
                    found.setdefault("listener", []).append(listener)
                    found.setdefault("http_connection_manager", []).append(manager)
                    routers = (item for item in manager.get("http_filters", []) if item["name"] == _ROUTER)
                    found.setdefault("router", []).extend(item["typed_config"] for item in routers)
    return found


def _control_planes(bootstrap: Mapping[str, Any]) -> Iterator[str]:
    """The clusters that it has its configuration from, and those that such a bootstrap has for its own interfaces."""
    resources = bootstrap.get("dynamic_resources", {})
    sources = [resources.get("ads_config"), resources.get("cds_config", {}).get("api_config_source")]
    services = [each for source in sources if source for each in source.get("grpc_services", [])]
    yield from (each["envoy_grpc"]["cluster_name"] for each in services if "envoy_grpc" in each)
    if services:
        yield from (each["name"] for each in bootstrap.get("static_resources", {}).get("clusters", []))


def _of(config: Mapping[str, Any], what: str) -> Iterator[dict[str, Any]]:
    for kind in ("static", "dynamic_active", "dynamic"):
        yield from config.get(f"{kind}_{what}", [])


def _managers(listener: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of the chains that the load comes to."""
    chains = [*listener.get("filter_chains", []), *filter(None, [listener.get("default_filter_chain")])]
    for item in (item for chain in chains for item in chain.get("filters", [])):
        config = item.get("typed_config", {})
        if config.get(_TYPE, "").endswith("HttpConnectionManager") and _loaded(config.get("stat_prefix", "")):
            yield config


def _loaded(prefix: str) -> bool:
    """Envoy Gateway calls a listener's `http-10080`, Contour `ingress_http`; their own listeners are under other names."""
    return re.fullmatch(rf"{PREFIX}(_https?)?|https?-\d+", prefix) is not None


def version(info: str) -> str:
    """`1.40.0`, from `/server_info`."""
    found = re.search(r"/(\d+\.\d+\.\d+[\w.-]*)/", json.loads(info)["version"])
    return found[1] if found else "unknown"


def count(process: Process) -> Mapping[str, int]:
    """Return the requests that it counts."""
    return counted(process.ask(PORT, COUNTS))


COUNT_SCRIPT = f"if {{ {inside.asked(PORT, COUNTS)}; }} 2>/dev/null; then exit 0; fi"


def _read(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")
    match part:
        case "version":
            return compared(check, version(asked(system, check, PORT, INFO)))
        case "stats":
            found = stats(asked(system, check, PORT, f"/stats?filter=^{path}$"))
            if path not in found:
                raise UnreadableError(f"/stats has no {path!r}")
            return compared(check, found[path])
        case _:
            return of_parts(check, parts(asked(system, check, PORT, DUMP)), part, path, DUMP)


READBACKS = {"envoy": ReadbackKind(read=_read)}
