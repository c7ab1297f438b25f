"""Envoy itself without a controller, in the version that its image names, configured from Gateway API's objects.

    ServedPort(80, {"bench.lab.test": …})  →  envoy.json, cds.json, rds-80.json, eds.json; and all in one, check.json, for `envoy --mode validate`

The bootstrap file has one listener per port. Clusters, routes and endpoints are in files that Envoy watches. The configuration
leaves Envoy its defaults, except for the node's id, which Envoy requires. Settings are a ConfigMap `envoy`, whose keys are paths
in Envoy's own configuration (`PARTS`).

Without `--concurrency`, Envoy has as many workers as CPUs that it may use, and at most its CPU limit, rounded down, at least 1.
This is so for 1.40.0 and for the Envoy that Envoy Gateway starts, with `--cpuset-threads` or without. Envoy 1.36 ignores the
limit.

A running Envoy, alone or with a controller, reports its state on its admin interface, which listens only on the loopback of its
pod:

    GET /stats?filter=…    http.ingress.downstream_rq_total: 40120
    GET /config_dump       {"configs": [{"@type": "…ClustersConfigDump", "dynamic_active_clusters": […]}, …]}

The counts of the listeners for the load are under `PREFIX`. They do not include requests of probes and requests to the admin
interface. The read-back checks (tests whether a setting took effect) of the kind `envoy`:

    name: cluster.circuit_breakers.thresholds.0.max_connections     /config_dump, of every cluster, listener … that serves the load
    name: stats.server.concurrency                                  /stats
    name: version                                                   /server_info

A check of a part or statistic that does not exist fails as unreadable. The value of a path that no part has is `absent`.
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
from lab.systems.manifests.gateway_api import ANY, Entry, ServedPort, ServicePort
from lab.systems.manifests.objects import Endpoint
from lab.systems.reading import Reading, UnreadableError, check_parts, compare_value, request_page, require_key
from lab.systems.renewing import WatchedFiles
from lab.systems.settings import Settings, merge_settings, read_configmap_settings
from lab.systems.system import (
    Certificates,
    ContainerProcess,
    Context,
    Members,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    all_cpus,
    refuse_unexpected,
    refuse_workers,
    resolve_targets,
    within_down,
)

PORT, PREFIX = 19000, "ingress"
"""The port of Envoy's admin interface, and the `stat_prefix` of the HTTP connection managers that serve clients."""
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


def parse_stats(text: str) -> dict[str, str]:
    """Parse the text of Envoy's page `/stats` into name of a statistic → value."""
    return dict(re.findall(r"^(\S+): (.*)$", text, re.MULTILINE))


def counted(text: str) -> Mapping[str, int]:
    """Parse the numbers of clients' requests from the text of Envoy's statistics page (`COUNTS`).

    Returns:
        `requests` → number of all requests, `requests_h2` → number of requests by HTTP/2. A number that Envoy does not report is
        left out.

    """
    ends = {"requests": ".downstream_rq_total", "requests_h2": ".downstream_rq_http2_total"}
    numbers = {
        name: [int(value) for key, value in parse_stats(text).items() if key.endswith(end)]
        for name, end in ends.items()
    }
    return {name: sum(values) for name, values in numbers.items() if values}


def list_parts(dump: str) -> dict[str, list[dict[str, Any]]]:
    """Return the parts of Envoy's running configuration that serve the load, grouped by kind of part (such as `cluster`).

    Args:
        dump: the text of Envoy's page `/config_dump`.

    Returns:
        Kind of part → its parts. The kinds are `listener`, `http_connection_manager`, `router`, `route`, `cluster` and
        `bootstrap`. Only routes that lead to a cluster are included.

    Raises:
        ValueError: when the text is not valid JSON.

    """
    by_kind: dict[str, list[dict[str, Any]]] = {}
    configs = json.loads(dump)["configs"]
    excluded = {name for config in configs for name in _list_control_planes(config.get("bootstrap", {}))}
    for config in configs:
        match config[_TYPE].rpartition(".")[2]:
            case "BootstrapConfigDump":
                by_kind.setdefault("bootstrap", []).append(config["bootstrap"])
            case "ClustersConfigDump":
                clusters = (item["cluster"] for item in _list_items(config, "clusters"))
                by_kind.setdefault("cluster", []).extend(
                    cluster for cluster in clusters if cluster["name"] not in excluded
                )
            case "RoutesConfigDump":
                tables = [item["route_config"] for item in _list_items(config, "route_configs")]
                hosts = [host for table in tables for host in table.get("virtual_hosts", [])]
                routes = (route for host in hosts for route in host.get("routes", []) if "route" in route)
                by_kind.setdefault("route", []).extend(
                    route for route in routes if route["route"].get("cluster") not in excluded
                )
            case "ListenersConfigDump":
                listeners = [item.get("active_state", item)["listener"] for item in _list_items(config, "listeners")]
                for listener, manager in ((state, manager) for state in listeners for manager in _list_managers(state)):
                    by_kind.setdefault("listener", []).append(listener)
                    by_kind.setdefault("http_connection_manager", []).append(manager)
                    routers = (item for item in manager.get("http_filters", []) if item["name"] == _ROUTER_NAME)
                    by_kind.setdefault("router", []).extend(item["typed_config"] for item in routers)
            case _:
                pass
    return by_kind


def _list_control_planes(bootstrap: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the clusters in Envoy's bootstrap configuration that never serve the load.

    If Envoy gets its configuration from a control plane, these are all clusters of the bootstrap configuration: they lead to
    the control plane or to Envoy's own interfaces. Without a control plane, nothing is yielded.

    Args:
        bootstrap: the bootstrap configuration.

    """
    resources = bootstrap.get("dynamic_resources", {})
    sources = [resources.get("ads_config"), resources.get("cds_config", {}).get("api_config_source")]
    services = [service for source in sources if source for service in source.get("grpc_services", [])]
    yield from (service["envoy_grpc"]["cluster_name"] for service in services if "envoy_grpc" in service)
    if services:
        yield from (cluster["name"] for cluster in bootstrap.get("static_resources", {}).get("clusters", []))


def _list_items(config: Mapping[str, Any], noun: str) -> Iterator[dict[str, Any]]:
    for kind in ("static", "dynamic_active", "dynamic"):
        yield from config.get(f"{kind}_{noun}", [])


def _list_managers(listener: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the HTTP connection managers of an Envoy listener that serve the load.

    Managers for probes and for Envoy's own pages are left out. They are recognized by their `stat_prefix`.
    """
    chains = [*listener.get("filter_chains", []), *filter(None, [listener.get("default_filter_chain")])]
    for item in (item for chain in chains for item in chain.get("filters", [])):
        config = item.get("typed_config", {})
        # Envoy Gateway calls a listener's `http-10080`, Contour `ingress_http`; their own listeners have other names.
        loaded = re.fullmatch(rf"{PREFIX}(_https?)?|https?-\d+", config.get("stat_prefix", ""))
        if config.get(_TYPE, "").endswith("HttpConnectionManager") and loaded:
            yield config


def count(process: ContainerProcess) -> Mapping[str, int]:
    """Return the numbers of clients' requests that a running Envoy reports on its admin interface.

    Returns:
        `requests` → number of all requests, `requests_h2` → number of requests by HTTP/2. A number that Envoy does not report is
        left out.

    """
    return counted(process.ask(PORT, COUNTS))


def _read(system: System, check: Check) -> Reading:
    """Perform a read-back check of kind `envoy`: compare a value in the running Envoy with the expected one.

    The check's name is `version`, `stats.NAME` for a statistic, or a path that begins with a kind of part (see `list_parts`).

    Raises:
        UnreadableError: when Envoy does not answer, or has no such statistic or part.

    """
    part, _, path = require_key(check, "name").partition(".")
    match part:
        case "version":
            version = json.loads(request_page(system, check, PORT, INFO))["version"]
            release = re.search(r"/(\d+\.\d+\.\d+[\w.-]*)/", version)
            return compare_value(check, release[1] if release else "unknown")
        case "stats":
            values = parse_stats(request_page(system, check, PORT, f"/stats?filter=^{path}$"))
            if path not in values:
                raise UnreadableError(f"/stats has no {path!r}")
            return compare_value(check, values[path])
        case _:
            return check_parts(check, list_parts(request_page(system, check, PORT, DUMP)), part, path, DUMP)


def render(
    ports: Sequence[ServedPort], members: Members, certificates: Certificates, settings: Settings
) -> dict[str, str]:
    """Return the files of Envoy's configuration: path in the container → text.

    Args:
        ports: the ports that Envoy serves, with their routes.
        members: port of a Service → its ready endpoints.
        certificates: name of a Secret → its files.
        settings: part of the configuration → the settings from the ConfigMap that change this part.

    """
    # Envoy accepts one cluster's endpoints in a file, and rejects a file with those of several.
    eds = {backend: f"eds-{number}" if number else "eds" for number, backend in enumerate(members)}
    discovered = {
        backend: {"type": "EDS", "eds_cluster_config": {"eds_config": _watch_file(name)}}
        for backend, name in eds.items()
    }
    clusters = [
        merge_settings({"name": _name_cluster(backend), **discovery}, settings["cluster"])
        for backend, discovery in discovered.items()
    ]
    routes = {port.port: {_TYPE: _ROUTES, "name": str(port.port), **_render_routes(port)} for port in ports}
    endpoints = {
        _locate_file(eds[backend]): _render_resources([{_TYPE: _ENDPOINTS, **_render_endpoints(backend, items)}])
        for backend, items in members.items()
    }
    rds = {
        port.port: {"route_config_name": str(port.port), "config_source": _watch_file(f"rds-{port.port}")}
        for port in ports
    }
    watched = [_render_listener(port, {"rds": rds[port.port]}, certificates, settings) for port in ports]
    complete = [
        _render_listener(port, {"route_config": _render_routes(port)}, certificates, settings) for port in ports
    ]
    inline = [
        {**{key: value for key, value in cluster.items() if key != "eds_cluster_config"}, "type": "STATIC"}
        | {"load_assignment": _render_endpoints(backend, members[backend])}
        for cluster, backend in zip(clusters, members, strict=True)
    ]
    dynamic = {"dynamic_resources": {"cds_config": _watch_file("cds")}}
    return {
        BOOTSTRAP: json.dumps(_render_bootstrap(watched, dynamic, settings), indent=1),
        CHECKED: json.dumps(_render_bootstrap(complete, {}, settings, inline), indent=1),
        _locate_file("cds"): _render_resources([{_TYPE: _CLUSTER, **cluster} for cluster in clusters]),
        **endpoints,
        **{_locate_file(f"rds-{number}"): _render_resources([table]) for number, table in routes.items()},
    }


def _render_resources(resources: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a file that Envoy watches, as JSON: resources (clusters, routes or endpoints) and a version.

    The version is a hash of the resources. Envoy reports the version once it has accepted the file.
    """
    text = json.dumps(resources)
    return json.dumps(
        {"version_info": hashlib.sha256(text.encode()).hexdigest()[:12], "resources": resources}, indent=1
    )


def _locate_file(name: str) -> str:
    return f"{HOME}/{name}.json"


def _watch_file(name: str) -> Mapping[str, Any]:
    return {"path_config_source": {"path": _locate_file(name)}, "resource_api_version": "V3"}


def _render_bootstrap(
    listeners: Sequence[Mapping[str, Any]],
    dynamic: Mapping[str, Any],
    settings: Settings,
    clusters: Sequence[Mapping[str, Any]] = (),
) -> Mapping[str, Any]:
    tree = {
        "node": {"id": "proxy", "cluster": "ingress-lab"},
        "admin": {"address": _render_address(PORT, "127.0.0.1")},
        **dynamic,
        "static_resources": {"listeners": [*listeners, _render_ready()], "clusters": list(clusters)},
    }
    return merge_settings(tree, settings["bootstrap"])


def _render_address(port: int, address: str = "0.0.0.0") -> Mapping[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _render_listener(
    port: ServedPort, routes: Mapping[str, Any], certificates: Certificates, settings: Settings
) -> Mapping[str, Any]:
    router = merge_settings({_TYPE: _ROUTER}, settings["router"])
    chain = _render_chain(merge_settings(_render_manager(PREFIX, router, routes), settings["http_connection_manager"]))
    if port.secrets:
        pairs = [
            {
                "certificate_chain": {"inline_string": certificates[name]["tls.crt"]},
                "private_key": {"inline_string": certificates[name]["tls.key"]},
            }
            for name in port.secrets
        ]
        tls = {_TYPE: _TLS, "common_tls_context": {"tls_certificates": pairs, "alpn_protocols": ["h2", "http/1.1"]}}
        context = merge_settings(tls, settings["tls"])
        chain |= {"transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context}}
    return merge_settings(
        {"name": str(port.port), "address": _render_address(port.port), "filter_chains": [chain]}, settings["listener"]
    )


def _render_ready() -> Mapping[str, Any]:
    """Return the configuration of the listener that answers the pod's readiness probes, on a port that the load does not use."""
    answer = {"match": {"path": "/ready"}, "direct_response": {"status": 200}}
    routes = {"route_config": {"virtual_hosts": [{"name": "ready", "domains": ["*"], "routes": [answer]}]}}
    chain = _render_chain(_render_manager("ready", {_TYPE: _ROUTER}, routes))
    return {"name": "ready", "address": _render_address(READY_PORT), "filter_chains": [chain]}


def _render_manager(prefix: str, router: Mapping[str, Any], routes: Mapping[str, Any]) -> Mapping[str, Any]:
    filters = [{"name": _ROUTER_NAME, "typed_config": router}]
    return {_TYPE: _MANAGER, "stat_prefix": prefix, "http_filters": filters, **routes}


def _render_chain(manager: Mapping[str, Any]) -> dict[str, Any]:
    return {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}


def _name_cluster(backend: ServicePort) -> str:
    return f"{backend.service}:{backend.port}"


def _render_endpoints(backend: ServicePort, members: Sequence[Endpoint]) -> Mapping[str, Any]:
    endpoints = [{"endpoint": {"address": _render_address(member.port, member.address)}} for member in members]
    return {"cluster_name": _name_cluster(backend), "endpoints": [{"lb_endpoints": endpoints}]}


def _render_routes(port: ServedPort) -> Mapping[str, Any]:
    hosts = [
        {
            "name": host,
            "domains": ["*"] if host == ANY else [host, f"{host}:*"] if "*" not in host else [host],
            "routes": [_render_route(entry) for entry in entries],
        }
        for host, entries in port.hosts.items()
    ]
    return {"virtual_hosts": hosts}


def _render_route(entry: Entry) -> Mapping[str, Any]:
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
    return {"match": match, "route": {"cluster": _name_cluster(rule.backend), **timeout}, **changes}


def realise(context: Context) -> Realisation:
    """Return how the lab starts Envoy in place of a container of Envoy's image.

    The result has the command, the environment, and a configuration that serves the Gateways of Envoy's class (a GatewayClass
    with the controller `lab.test/envoy`).

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for a route that Envoy's configuration cannot express here, a container whose arguments do not begin as
            expected, or a version of Envoy that is not pinned in pyproject.toml.
        NotMeasurableError: for more workers than the container has CPUs.

    """
    container, envoy = context.container, provide_envoy(context)
    ports = context.objects.served("lab.test/envoy")
    targets = resolve_targets(context, ports, "Envoy", timeout=True)
    options = container.args[2:]
    level = () if {"-l", "--log-level"} & set(options) else ("-l", "critical")  # Envoy accepts no argument twice
    return Realisation(
        command=(envoy.inside, *container.args),
        env=container.env,
        files=render(ports, *targets, read_configmap_settings(context.objects, "envoy", PARTS)),
        checker=(envoy.inside, "--mode", "validate", *options, *level, "-c", CHECKED),
        programs={envoy.inside: envoy.file},
        about=envoy.about,
    )


def provide_envoy(context: Context) -> programs.Program:
    """Check the container's arguments, and return the program Envoy in the version that the container's image names.

    Raises:
        UsageError: when the arguments do not begin with `-c BOOTSTRAP`, or the version is not pinned in pyproject.toml.
        NotMeasurableError: for more workers than the container has CPUs.

    """
    container = context.container
    held = not container.command and container.args[:2] == ("-c", BOOTSTRAP)
    refuse_unexpected(container, held, f"no command, and -c {BOOTSTRAP} as the first arguments", "envoy")
    args = list(container.args)
    if CONCURRENCY in args:
        workers = args[args.index(CONCURRENCY) + 1 : args.index(CONCURRENCY) + 2]
        if not workers or not re.fullmatch(r"[1-9]\d*", workers[0]):
            fault = f"{CONCURRENCY}: expected a positive number, got {' '.join(workers) or 'nothing'}"
            raise UsageError(f"{container.place}.args", fault, "correct it")
        refuse_workers(f"{container.place}.args: {CONCURRENCY}", int(workers[0]), context)
    return programs.provide_for_image(container, "envoy")


def control(process: ContainerProcess) -> WatchedFiles:
    """Return the handle by which the lab makes a running Envoy load changes.

    The handle writes the files that Envoy watches, and needs no signal.
    """

    def served(files: Mapping[str, str]) -> bool:
        """Return whether the versions that Envoy reports as loaded are exactly those in the given configuration files.

        Args:
            files: path in the container → text of the files that Envoy watches.

        """
        values = parse_stats(process.ask(PORT, VERSIONS)).items()
        loaded = {value.strip('"') for name, value in values if re.search(r"^cluster\.|\.rds\.|_manager\.cds\.", name)}
        return loaded - {""} == {json.loads(text)["version_info"] for text in files.values()}

    return WatchedFiles(process, "envoy", lambda path: path not in (BOOTSTRAP, CHECKED), served)


SYSTEM = ProxySystem(
    name="envoy",
    image="envoyproxy/envoy",
    realise=realise,
    note="routes and endpoints change by files that it watches (no control plane)",
    by_tag=True,
    control=control,
    counters=count,
    count_script=f"if {{ {inside.compose_query(PORT, COUNTS)}; }} 2>/dev/null; then exit 0; fi",
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
