"""Envoy by itself, without a controller: the real one, in the version that its image names, configured from Gateway API's objects.

    Served(80, {"bench.lab.test": …})  →  envoy.json, cds.json, rds-80.json, eds.json, and check.json: all of it in one, for `envoy --mode validate`

A bootstrap with one listener a port, and clusters, routes and endpoints as files that it watches. Says nothing that Envoy has a default for, but a
node's id, which it asks for. Settings are a ConfigMap `envoy`, whose keys are paths in Envoy's own configuration (`PARTS`).
Without `--concurrency` it has as many workers as CPUs that it may use, and no more than its limit, rounded down, but one (1.40.0 and what Envoy
Gateway starts, with `--cpuset-threads` or without); 1.36 looks at no limit.

What a running one tells, here or beside a controller, is on its admin interface, which listens on its pod's own loopback alone:

    GET /stats?filter=…    http.ingress.downstream_rq_total: 40120
    GET /config_dump       {"configs": [{"@type": "…ClustersConfigDump", "dynamic_active_clusters": […]}, …]}

Counts of the listeners that the load comes to are under `PREFIX`; the admin interface's and the probes' own requests are not among them. Check kind `envoy`:

    name: cluster.circuit_breakers.thresholds.0.max_connections     /config_dump, of every cluster, listener … that serves the load
    name: stats.server.concurrency                                  /stats
    name: version                                                   /server_info

It refuses to judge by nothing: no such part, or no such statistic, is unreadable; a path that no part has is `absent`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.base.errors import UsageError
from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import inside, programs
from lab.systems.manifests.gateway_api import ANY, Backend, Entry, Served
from lab.systems.manifests.objects import Member
from lab.systems.reading import Reading, UnreadableError, asked, compared, given, of_parts
from lab.systems.renewing import WatchedFiles
from lab.systems.settings import Settings, merged, of_configmap
from lab.systems.system import (
    Certificates,
    Context,
    Members,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    all_cpus,
    expect,
    led_to,
    refuse_workers,
    within_down,
)

PORT, PREFIX = 19000, "ingress"
"""Of its admin interface; `stat_prefix` of the HTTP connection managers that clients come to."""
COUNTS = rf"/stats?filter=^http\.({PREFIX}(_https?)?|https?-\d%2B)\.downstream_rq_(http2_)?total$"
WORKERS, VERSIONS = "/stats?filter=^server.concurrency$", "/stats?filter=version_text$"
DUMP, INFO = "/config_dump", "/server_info"
HOME, READY_PORT, CONCURRENCY = "/srv/envoy", 8002, "--concurrency"
BOOTSTRAP, CHECKED = f"{HOME}/envoy.json", f"{HOME}/check.json"
PARTS = ("bootstrap", "listener", "http_connection_manager", "router", "cluster", "tls")

_TYPE, _GOOGLE = "@type", "type.googleapis.com/envoy"
_MANAGER = f"{_GOOGLE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER, _ROUTER_NAME = f"{_GOOGLE}.extensions.filters.http.router.v3.Router", "envoy.filters.http.router"
_TLS = f"{_GOOGLE}.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
_CLUSTER = f"{_GOOGLE}.config.cluster.v3.Cluster"
_ROUTES = f"{_GOOGLE}.config.route.v3.RouteConfiguration"
_ENDPOINTS = f"{_GOOGLE}.config.endpoint.v3.ClusterLoadAssignment"


def stats(text: str) -> dict[str, str]:
    """Name → value, as `/stats` prints them."""
    return dict(re.findall(r"^(\S+): (.*)$", text, re.MULTILINE))


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
        match config[_TYPE].rpartition(".")[2]:
            case "BootstrapConfigDump":
                found.setdefault("bootstrap", []).append(config["bootstrap"])
            case "ClustersConfigDump":
                clusters = (item["cluster"] for item in _of(config, "clusters"))
                found.setdefault("cluster", []).extend(each for each in clusters if each["name"] not in asked)
            case "RoutesConfigDump":
                tables = [item["route_config"] for item in _of(config, "route_configs")]
                hosts = [host for table in tables for host in table.get("virtual_hosts", [])]
                routes = (route for host in hosts for route in host.get("routes", []) if "route" in route)
                found.setdefault("route", []).extend(
                    each for each in routes if each["route"].get("cluster") not in asked
                )
            case "ListenersConfigDump":
                listeners = [item.get("active_state", item)["listener"] for item in _of(config, "listeners")]
                for listener, manager in ((each, manager) for each in listeners for manager in _managers(each)):
                    found.setdefault("listener", []).append(listener)
                    found.setdefault("http_connection_manager", []).append(manager)
                    routers = (item for item in manager.get("http_filters", []) if item["name"] == _ROUTER_NAME)
                    found.setdefault("router", []).extend(item["typed_config"] for item in routers)
            case _:
                pass
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
        # Envoy Gateway calls a listener's `http-10080`, Contour `ingress_http`; their own listeners are under other names.
        loaded = re.fullmatch(rf"{PREFIX}(_https?)?|https?-\d+", config.get("stat_prefix", ""))
        if config.get(_TYPE, "").endswith("HttpConnectionManager") and loaded:
            yield config


def count(process: Process) -> Mapping[str, int]:
    """Return the requests that it counts."""
    return counted(process.ask(PORT, COUNTS))


def _read(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")
    match part:
        case "version":
            told = json.loads(asked(system, check, PORT, INFO))["version"]
            found = re.search(r"/(\d+\.\d+\.\d+[\w.-]*)/", told)
            return compared(check, found[1] if found else "unknown")
        case "stats":
            values = stats(asked(system, check, PORT, f"/stats?filter=^{path}$"))
            if path not in values:
                raise UnreadableError(f"/stats has no {path!r}")
            return compared(check, values[path])
        case _:
            return of_parts(check, parts(asked(system, check, PORT, DUMP)), part, path, DUMP)


def render(ports: Sequence[Served], members: Members, certificates: Certificates, settings: Settings) -> dict[str, str]:
    """Path → text."""
    eds = {"type": "EDS", "eds_cluster_config": {"eds_config": _watched("eds")}}
    clusters = [merged({"name": _name(backend), **eds}, settings["cluster"]) for backend in members]
    routes = {port.port: {_TYPE: _ROUTES, "name": str(port.port), **_routes(port)} for port in ports}
    endpoints = [{_TYPE: _ENDPOINTS, **_endpoints(backend, found)} for backend, found in members.items()]
    rds = {
        port.port: {"route_config_name": str(port.port), "config_source": _watched(f"rds-{port.port}")}
        for port in ports
    }
    watched = [_listener(port, {"rds": rds[port.port]}, certificates, settings) for port in ports]
    whole = [_listener(port, {"route_config": _routes(port)}, certificates, settings) for port in ports]
    inline = [
        {**{key: value for key, value in cluster.items() if key != "eds_cluster_config"}, "type": "STATIC"}
        | {"load_assignment": _endpoints(backend, members[backend])}
        for cluster, backend in zip(clusters, members, strict=True)
    ]
    dynamic = {"dynamic_resources": {"cds_config": _watched("cds")}}
    return {
        BOOTSTRAP: json.dumps(_bootstrap(watched, dynamic, settings), indent=1),
        CHECKED: json.dumps(_bootstrap(whole, {}, settings, inline), indent=1),
        _file("cds"): _resources([{_TYPE: _CLUSTER, **cluster} for cluster in clusters]),
        _file("eds"): _resources(endpoints),
        **{_file(f"rds-{number}"): _resources([found]) for number, found in routes.items()},
    }


def _resources(found: Sequence[Mapping[str, Any]]) -> str:
    text = json.dumps(found)
    return json.dumps({"version_info": hashlib.sha256(text.encode()).hexdigest()[:12], "resources": found}, indent=1)


def _file(name: str) -> str:
    return f"{HOME}/{name}.json"


def _watched(name: str) -> Mapping[str, Any]:
    return {"path_config_source": {"path": _file(name)}, "resource_api_version": "V3"}


def _bootstrap(
    listeners: Sequence[Mapping[str, Any]],
    dynamic: Mapping[str, Any],
    settings: Settings,
    clusters: Sequence[Mapping[str, Any]] = (),
) -> Mapping[str, Any]:
    tree = {
        "node": {"id": "proxy", "cluster": "ingress-lab"},
        "admin": {"address": _address(PORT, "127.0.0.1")},
        **dynamic,
        "static_resources": {"listeners": [*listeners, _ready()], "clusters": list(clusters)},
    }
    return merged(tree, settings["bootstrap"])


def _address(port: int, address: str = "0.0.0.0") -> Mapping[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _listener(
    port: Served, routes: Mapping[str, Any], certificates: Certificates, settings: Settings
) -> Mapping[str, Any]:
    router = merged({_TYPE: _ROUTER}, settings["router"])
    chain = _chain(merged(_manager(PREFIX, router, routes), settings["http_connection_manager"]))
    if port.secrets:
        pairs = [
            {
                "certificate_chain": {"inline_string": certificates[name]["tls.crt"]},
                "private_key": {"inline_string": certificates[name]["tls.key"]},
            }
            for name in port.secrets
        ]
        own = {_TYPE: _TLS, "common_tls_context": {"tls_certificates": pairs, "alpn_protocols": ["h2", "http/1.1"]}}
        context = merged(own, settings["tls"])
        chain |= {"transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context}}
    return merged(
        {"name": str(port.port), "address": _address(port.port), "filter_chains": [chain]}, settings["listener"]
    )


def _ready() -> Mapping[str, Any]:
    """What the pod's probes come to, apart from the load."""
    answer = {"match": {"path": "/ready"}, "direct_response": {"status": 200}}
    routes = {"route_config": {"virtual_hosts": [{"name": "ready", "domains": ["*"], "routes": [answer]}]}}
    chain = _chain(_manager("ready", {_TYPE: _ROUTER}, routes))
    return {"name": "ready", "address": _address(READY_PORT), "filter_chains": [chain]}


def _manager(prefix: str, router: Mapping[str, Any], routes: Mapping[str, Any]) -> Mapping[str, Any]:
    filters = [{"name": _ROUTER_NAME, "typed_config": router}]
    return {_TYPE: _MANAGER, "stat_prefix": prefix, "http_filters": filters, **routes}


def _chain(manager: Mapping[str, Any]) -> dict[str, Any]:
    return {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}


def _name(backend: Backend) -> str:
    return f"{backend.service}:{backend.port}"


def _endpoints(backend: Backend, members: Sequence[Member]) -> Mapping[str, Any]:
    found = [{"endpoint": {"address": _address(member.port, member.address)}} for member in members]
    return {"cluster_name": _name(backend), "endpoints": [{"lb_endpoints": found}]}


def _routes(port: Served) -> Mapping[str, Any]:
    hosts = [
        {
            "name": host,
            "domains": ["*"] if host == ANY else [host, f"{host}:*"] if "*" not in host else [host],
            "routes": [_route(entry) for entry in entries],
        }
        for host, entries in port.hosts.items()
    ]
    return {"virtual_hosts": hosts}


def _route(entry: Entry) -> Mapping[str, Any]:
    rule, prefix = entry.rule, entry.match.path.rstrip("/")
    match = {"path_separated_prefix": prefix} if prefix else {"prefix": "/"}
    if entry.match.path_kind == "Exact":
        match = {"path": entry.match.path}
    add = [
        # %…% is a command
        {"header": {"key": key, "value": value.replace("%", "%%")}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
        for key, value in rule.headers.items()
    ]
    changes = {"request_headers_to_add": add} if add else {}
    if rule.backend is None:
        return {"match": match, "direct_response": {"status": 500}, **changes}
    timeout = {} if rule.request_s is None else {"timeout": f"{rule.request_s:g}s"}
    return {"match": match, "route": {"cluster": _name(rule.backend), **timeout}, **changes}


def realise(context: Context) -> Realisation:
    container, found = context.container, program(context)
    ports = context.objects.served("lab.test/envoy")
    led = led_to(context, ports, "Envoy", timeout=True)
    own = container.args[2:]
    level = () if {"-l", "--log-level"} & set(own) else ("-l", "critical")  # Envoy takes no argument twice
    return Realisation(
        command=(found.inside, *container.args),
        env=container.env,
        files=render(ports, *led, of_configmap(context.objects, "envoy", PARTS)),
        checker=(found.inside, "--mode", "validate", *own, *level, "-c", CHECKED),
        programs={found.inside: found.file},
        about=found.about,
    )


def program(context: Context) -> programs.Program:
    """The Envoy that the image names. UsageError for arguments other than the lab's manifests have; refuses more workers than CPUs."""
    container = context.container
    held = not container.command and container.args[:2] == ("-c", BOOTSTRAP)
    expect(container, held, f"no command, and -c {BOOTSTRAP} as the first arguments", "envoy")
    given = list(container.args)
    if CONCURRENCY in given:
        workers = given[given.index(CONCURRENCY) + 1 : given.index(CONCURRENCY) + 2]
        if not workers or not re.fullmatch(r"[1-9]\d*", workers[0]):
            fault = f"{CONCURRENCY}: expected a positive number, got {' '.join(workers) or 'nothing'}"
            raise UsageError(f"{container.place}.args", fault, "correct it")
        refuse_workers(f"{container.place}.args: {CONCURRENCY}", int(workers[0]), context)
    return programs.of_image(container, "envoy")


def control(process: Process) -> WatchedFiles:
    def served(files: Mapping[str, str]) -> bool:
        """Whether every version that it has taken is that of a file, and every file's was taken."""
        told = stats(process.ask(PORT, VERSIONS)).items()
        taken = {value.strip('"') for name, value in told if re.search(r"^cluster\.|\.rds\.|_manager\.cds\.", name)}
        return taken - {""} == {json.loads(text)["version_info"] for text in files.values()}

    return WatchedFiles(process, "envoy", lambda path: path not in (BOOTSTRAP, CHECKED), served)


SYSTEM = ProxySystem(
    name="envoy",
    image="envoyproxy/envoy",
    realise=realise,
    note="routes and endpoints change by files that it watches (no control plane)",
    by_tag=True,
    control=control,
    counters=count,
    count_script=f"if {{ {inside.asked(PORT, COUNTS)}; }} 2>/dev/null; then exit 0; fi",
    parse_counts=counted,
    migrations={"envoy": "migrate.tsv"},
    workers=Workers(
        rules={"envoyproxy/envoy": within_down, "envoyproxy/envoy:v1.36": all_cpus},
        options=(CONCURRENCY,),
        process="envoy",
        port=PORT,
        page=WORKERS,
        metric="server.concurrency",
    ),
    readbacks={"envoy": ReadbackKind(read=_read)},
)
