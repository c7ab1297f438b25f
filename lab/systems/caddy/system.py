"""Caddy itself, in the version that its image names, configured from Gateway API's objects.

    ServedPort(80, {"bench.lab.test": …})   →   apps.http.servers.port-80: {listen: [":80"], routes: [{match: [{host: …}], handle: [{reverse_proxy}]}]}

The configuration leaves Caddy its defaults, except that Caddy does not issue certificates. Settings are a ConfigMap `caddy`,
whose keys are paths in Caddy's own JSON configuration (`PARTS`). The admin interface shows only a configuration that Caddy has
accepted. Without `GOMAXPROCS` (automaxprocs), Caddy runs as many threads at once as its CPU limit, rounded down, at least 1,
even beyond the number of CPUs. The read-back checks (tests whether a setting took effect) of the kind `caddy`:

    name: transport.keep_alive.max_idle_conns_per_host     /config/, of every transport (server, reverse_proxy, http, config) of the load
    name: metrics.go_sched_gomaxprocs_threads              /metrics

A check of a part that does not exist fails as unreadable. The value of a path that no part has, or of a metric that does not
exist, is `absent`.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import programs
from lab.systems.manifests.gateway_api import ANY, Entry, ServedPort
from lab.systems.reading import Reading, check_metric, check_parts, request_page, require_key
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
    limit_down,
    list_native_served,
    resolve_targets,
)

FOLDER = "/srv/caddy"
CONFIG = f"{FOLDER}/caddy.json"
PARTS = ("config", "http", "server", "reverse_proxy", "transport")
"""The parts of Caddy's configuration that settings may change.

They are, in this order: the configuration as a whole, its HTTP app, each server of the load, each proxying handler, and the
transport of such a handler.
"""
PORT, SERVED, METRICS = 2019, "/config/", "/metrics"
"""The port of the admin interface, and its pages with the configuration and the metrics."""
HEALTH = "health"
"""The name of the server to which the probes connect."""
ARGUMENTS = ("caddy", "run", "--config", CONFIG)
_CHECK = r"""said=$("$0" validate --config "$1" 2>&1) || {
  printf '%s\n' "$said" | sed -n 's/^Error: //p; s/^{"level":"error".*"msg":"\(.*\)"}$/\1/p' | sed 's/\\"/"/g' | head -n 1 >&2
  exit 1
}"""
"""The script that checks a configuration: Caddy prints several lines, and gives the reason in an error of its log."""
_REQUESTS = re.compile(r"^caddy_http_requests_total\{([^}]*)\} (\S+)$", re.MULTILINE)
"""The metric with the number of requests, which exists only where metrics are on."""

Node = dict[str, Any]


def realise(context: Context) -> Realisation:
    """Return how the lab starts Caddy in place of a container of Caddy's image.

    The result has the command, the environment, and a configuration that serves the Gateways of Caddy's class (a GatewayClass
    with the controller `lab.test/caddy`).

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for a route that Caddy's configuration cannot express here, a container with other arguments than `ARGUMENTS`,
            or a version of Caddy that is not pinned in pyproject.toml.

    """
    container = context.container
    ports = list_native_served(context, "caddy", ARGUMENTS)
    program = programs.provide_for_image(container, "caddy")
    folders = {"XDG_CONFIG_HOME": f"{FOLDER}/config", "XDG_DATA_HOME": f"{FOLDER}/data"}

    settings = read_configmap_settings(context.objects, "caddy", PARTS)
    return Realisation(
        command=(program.inside, *ARGUMENTS[1:]),
        env=folders | dict(container.env),
        files=render(ports, *resolve_targets(context, ports, "Caddy", never="{"), settings),
        checker=("sh", "-c", _CHECK, program.inside, CONFIG),
        programs={program.inside: program.file},
        about=program.about,
    )


def render(
    ports: Sequence[ServedPort], members: Members, certificates: Certificates, settings: Settings
) -> dict[str, str]:
    """Return the files of Caddy's configuration and certificates: path in the container → text.

    Args:
        ports: the ports that Caddy serves, with their routes.
        members: port of a Service → its ready endpoints.
        certificates: name of a Secret → its files.
        settings: part of the configuration → the settings from the ConfigMap that change this part.

    """
    health: Node = {
        "listen": [":1042"],
        "routes": [{"match": [{"path": ["/healthz"]}], "handle": [{"handler": "static_response", "status_code": 200}]}],
    }
    servers = {
        f"port-{port.port}": merge_settings(_render_server(port, members, settings), settings["server"])
        for port in ports
    }
    apps: Node = {"http": merge_settings({"servers": {**servers, HEALTH: health}}, settings["http"])}
    if certificates:
        pairs = [{"certificate": _locate_file(name, "crt"), "key": _locate_file(name, "key")} for name in certificates]
        apps["tls"] = {"certificates": {"load_files": pairs}}
    admin = {
        "listen": f"127.0.0.1:{PORT}",
        "origins": ["localhost", f"127.0.0.1:{PORT}"],
    }  # those of the lab's requests
    config = merge_settings({"admin": admin, "apps": apps}, settings["config"])
    texts = {
        _locate_file(name, end): files[f"tls.{end}"] for name, files in certificates.items() for end in ("crt", "key")
    }
    return {CONFIG: json.dumps(config, indent=1), **texts}


def _locate_file(secret: str, end: str) -> str:
    return f"{FOLDER}/certificates/{secret}.{end}"


def _render_server(served: ServedPort, members: Members, settings: Settings) -> Node:
    routes: list[Node] = [
        {
            "match": [({} if host == ANY else {"host": [host]}) | _match_path(entry)],
            "handle": _render_handlers(entry, members, settings),
            "terminal": True,
        }
        for host in served.ordered
        for entry in served.hosts[host]
    ]
    unmatched = {"handle": [{"handler": "static_response", "status_code": 404}]}  # the default is an empty 200
    server: Node = {"listen": [f":{served.port}"], "routes": [*routes, unmatched], "automatic_https": {"disable": True}}
    return server | ({"tls_connection_policies": [{}]} if served.secrets else {})


def _match_path(entry: Entry) -> Node:
    stem = entry.match.path.rstrip("/")
    if entry.match.path_kind == "Exact":
        return {"path": [entry.match.path]}
    return {"path": [stem, f"{stem}/*"]} if stem else {}


def _render_handlers(entry: Entry, members: Members, settings: Settings) -> list[Node]:
    rule = entry.rule
    set_headers = {"set": {name: [value] for name, value in rule.headers.items()}}
    headers: list[Node] = [{"handler": "headers", "request": set_headers, "response": {}}] if rule.headers else []
    endpoints = members[rule.backend] if rule.backend else ()
    proxy: Node = {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": f"{member.address}:{member.port}"} for member in endpoints],
    }
    if settings["transport"]:
        proxy["transport"] = merge_settings({"protocol": "http"}, settings["transport"])
    return [*headers, merge_settings(proxy, settings["reverse_proxy"])]


def control(process: ContainerProcess) -> WatchedFiles:
    """Return the handle by which the lab makes Caddy load a changed configuration.

    Caddy replaces its servers in the same process, and connections stay open.
    """

    def served(files: Mapping[str, str]) -> bool:
        return json.loads(process.ask(PORT, SERVED)) == json.loads(files[CONFIG])

    return WatchedFiles(process, "caddy", lambda path: path == CONFIG, served, reload_signal=signal.SIGUSR1)


def count(process: ContainerProcess) -> Mapping[str, int]:
    """Return the number of requests that Caddy has received, as `{"requests": number}`; empty if Caddy's metrics are off.

    A request may pass several handlers of Caddy, and each handler counts the request. So the largest count of a single handler is
    used as the number of requests.
    """
    by_handler: dict[str, float] = {}
    for labels, value in _REQUESTS.findall(process.ask(PORT, METRICS)):
        if f'server="{HEALTH}"' not in labels:
            handler = "".join(re.findall(r'handler="([^"]*)"', labels))
            by_handler[handler] = by_handler.get(handler, 0.0) + float(value)
    return {"requests": int(max(by_handler.values()))} if by_handler else {}


def read(system: System, check: Check) -> Reading:
    """Perform a read-back check of kind `caddy`: compare a value in the running Caddy with the expected one.

    The check's name is a path in Caddy's configuration that begins with one of `PARTS`, or `metrics.NAME`.

    Raises:
        UnreadableError: when Caddy's admin interface does not answer, or the configuration does not have the part.

    """
    part, _, path = require_key(check, "name").partition(".")
    if part == "metrics":
        return check_metric(system, check, PORT, METRICS, path)
    config = json.loads(request_page(system, check, PORT, SERVED))
    http = (config.get("apps") or {}).get("http") or {}
    servers = [server for name, server in (http.get("servers") or {}).items() if name != HEALTH]
    proxies = [handler for server in servers for handler in _list_proxies(server.get("routes") or [])]
    parts = {
        "config": [config],
        "http": [http],
        "server": servers,
        "reverse_proxy": proxies,
        "transport": [proxy.get("transport") or {} for proxy in proxies],
    }
    return check_parts(check, parts, part, path, SERVED)


def _list_proxies(routes: Sequence[Any]) -> Iterator[Any]:
    for handler in (handler for route in routes for handler in route.get("handle") or []):
        if handler.get("handler") == "reverse_proxy":
            yield handler
        yield from _list_proxies(handler.get("routes") or [])


SYSTEM = ProxySystem(
    name="caddy",
    image="library/caddy",
    realise=realise,
    note="routes and endpoints change by Caddy's own reload (no control plane)",
    by_tag=True,
    control=control,
    counters=count,
    migrations={"caddy": "migrate.tsv"},
    workers=Workers(
        rules={"caddy": limit_down},
        variables=("GOMAXPROCS",),
        port=PORT,
        page=METRICS,
        metric="go_sched_gomaxprocs_threads",
    ),
    readbacks={"caddy": ReadbackKind(read=read)},
)
