"""Caddy by itself: the real one, in the version that its image names, configured from Gateway API's objects.

    Served(80, {"bench.lab.test": …})   →   apps.http.servers.port-80: {listen: [":80"], routes: [{match: [{host: …}], handle: [{reverse_proxy}]}]}

Nothing is set that Caddy has a default for, but that it makes no certificates of its own. Settings are a ConfigMap `caddy`, whose keys are paths in
Caddy's own JSON configuration (`PARTS`). Its admin interface shows what it serves: what Caddy does not take, it never shows. Without `GOMAXPROCS`
(automaxprocs) it runs as many threads at once as its CPU limit, rounded down, but one, however many CPUs there are. Check kind `caddy`:

    name: transport.keep_alive.max_idle_conns_per_host     /config/, of every transport (server, reverse_proxy, http, config) of the load
    name: metrics.go_sched_gomaxprocs_threads              /metrics

Refuses to judge by nothing: no such part is unreadable; a path that no part has, and a metric that there is not, are `absent`.
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
from lab.systems.manifests.gateway_api import ANY, Entry, Served
from lab.systems.reading import Reading, asked, given, metric, of_parts
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
    led_to,
    limit_down,
    served_natively,
)

FOLDER = "/srv/caddy"
CONFIG = f"{FOLDER}/caddy.json"
PARTS = ("config", "http", "server", "reverse_proxy", "transport")
"""Of the whole configuration, of its HTTP app, of each server of the load, of each proxying handler, of that handler's transport."""
PORT, SERVED, METRICS = 2019, "/config/", "/metrics"
"""Its admin interface."""
HEALTH = "health"
"""The server that its probes come to."""
ARGUMENTS = ("caddy", "run", "--config", CONFIG)
_CHECK = r"""said=$("$0" validate --config "$1" 2>&1) || {
  printf '%s\n' "$said" | sed -n 's/^Error: //p; s/^{"level":"error".*"msg":"\(.*\)"}$/\1/p' | sed 's/\\"/"/g' | head -n 1 >&2
  exit 1
}"""
"""It says more than one line, and why in an error of its log."""
_REQUESTS = re.compile(r"^caddy_http_requests_total\{([^}]*)\} (\S+)$", re.MULTILINE)
"""Counted only where metrics are on."""

Node = dict[str, Any]


def realise(context: Context) -> Realisation:
    container = context.container
    ports = served_natively(context, "caddy", ARGUMENTS)
    program = programs.of_image(container, "caddy")
    own = {"XDG_CONFIG_HOME": f"{FOLDER}/config", "XDG_DATA_HOME": f"{FOLDER}/data"}

    found = of_configmap(context.objects, "caddy", PARTS)
    return Realisation(
        command=(program.inside, *ARGUMENTS[1:]),
        env=own | dict(container.env),
        files=render(ports, *led_to(context, ports, "Caddy", never="{"), found),
        checker=("sh", "-c", _CHECK, program.inside, CONFIG),
        programs={program.inside: program.file},
        about=program.about,
    )


def render(ports: Sequence[Served], members: Members, certificates: Certificates, settings: Settings) -> dict[str, str]:
    """Path → text."""
    health: Node = {
        "listen": [":1042"],
        "routes": [{"match": [{"path": ["/healthz"]}], "handle": [{"handler": "static_response", "status_code": 200}]}],
    }
    servers = {f"port-{port.port}": merged(_server(port, members, settings), settings["server"]) for port in ports}
    apps: Node = {"http": merged({"servers": {**servers, HEALTH: health}}, settings["http"])}
    if certificates:
        files = [{"certificate": _file(name, "crt"), "key": _file(name, "key")} for name in certificates]
        apps["tls"] = {"certificates": {"load_files": files}}
    admin = {"listen": f"127.0.0.1:{PORT}", "origins": ["localhost", f"127.0.0.1:{PORT}"]}  # as whom the lab asks
    whole = merged({"admin": admin, "apps": apps}, settings["config"])
    texts = {_file(name, end): found[f"tls.{end}"] for name, found in certificates.items() for end in ("crt", "key")}
    return {CONFIG: json.dumps(whole, indent=1), **texts}


def _file(secret: str, end: str) -> str:
    return f"{FOLDER}/certificates/{secret}.{end}"


def _server(served: Served, members: Members, settings: Settings) -> Node:
    routes: list[Node] = [
        {
            "match": [({} if host == ANY else {"host": [host]}) | _path(entry)],
            "handle": _handlers(entry, members, settings),
            "terminal": True,
        }
        for host in served.ordered
        for entry in served.hosts[host]
    ]
    other = {"handle": [{"handler": "static_response", "status_code": 404}]}  # by itself 200, without a word
    server: Node = {"listen": [f":{served.port}"], "routes": [*routes, other], "automatic_https": {"disable": True}}
    return server | ({"tls_connection_policies": [{}]} if served.secrets else {})


def _path(entry: Entry) -> Node:
    stem = entry.match.path.rstrip("/")
    if entry.match.path_kind == "Exact":
        return {"path": [entry.match.path]}
    return {"path": [stem, f"{stem}/*"]} if stem else {}


def _handlers(entry: Entry, members: Members, settings: Settings) -> list[Node]:
    rule = entry.rule
    set_headers = {"set": {name: [value] for name, value in rule.headers.items()}}
    headers: list[Node] = [{"handler": "headers", "request": set_headers, "response": {}}] if rule.headers else []
    found = members[rule.backend] if rule.backend else ()
    proxy: Node = {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": f"{member.address}:{member.port}"} for member in found],
    }
    if settings["transport"]:
        proxy["transport"] = merged({"protocol": "http"}, settings["transport"])
    return [*headers, merged(proxy, settings["reverse_proxy"])]


def control(process: Process) -> WatchedFiles:
    """It replaces its servers in the same process, and connections stay."""

    def served(files: Mapping[str, str]) -> bool:
        return json.loads(process.ask(PORT, SERVED)) == json.loads(files[CONFIG])

    return WatchedFiles(process, "caddy", lambda path: path == CONFIG, served, told=signal.SIGUSR1)


def count(process: Process) -> Mapping[str, int]:
    """Return the requests: a handler counts what passes it, so the largest of one handler is what came; empty where none is counted."""
    by_handler: dict[str, float] = {}
    for labels, value in _REQUESTS.findall(process.ask(PORT, METRICS)):
        if f'server="{HEALTH}"' not in labels:
            handler = "".join(re.findall(r'handler="([^"]*)"', labels))
            by_handler[handler] = by_handler.get(handler, 0.0) + float(value)
    return {"requests": int(max(by_handler.values()))} if by_handler else {}


def read(system: System, check: Check) -> Reading:
    """Read a check of kind `caddy` back."""
    part, _, path = given(check, "name").partition(".")
    if part == "metrics":
        return metric(system, check, PORT, METRICS, path)
    config = json.loads(asked(system, check, PORT, SERVED))
    http = (config.get("apps") or {}).get("http") or {}
    servers = [server for name, server in (http.get("servers") or {}).items() if name != HEALTH]
    proxies = [handler for server in servers for handler in _proxies(server.get("routes") or [])]
    parts = {
        "config": [config],
        "http": [http],
        "server": servers,
        "reverse_proxy": proxies,
        "transport": [proxy.get("transport") or {} for proxy in proxies],
    }
    return of_parts(check, parts, part, path, SERVED)


def _proxies(routes: Sequence[Any]) -> Iterator[Any]:
    for handler in (each for route in routes for each in route.get("handle") or []):
        if handler.get("handler") == "reverse_proxy":
            yield handler
        yield from _proxies(handler.get("routes") or [])


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
