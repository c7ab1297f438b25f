"""What is served → Caddy's own JSON configuration. Pure.

    Served(80, {"bench.lab.test": …})   →   apps.http.servers.port-80: {listen: [":80"], routes: [{match: [{host: …}], handle: [{reverse_proxy}]}]}

Nothing is set that Caddy has a default for, but that it makes no certificates of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lab.systems.manifests.gateway_api import ANY, Entry, Served
from lab.systems.settings import Settings, merged
from lab.systems.system import Certificates, Members

FOLDER = "/srv/caddy"
CONFIG = f"{FOLDER}/caddy.json"
PARTS = ("config", "http", "server", "reverse_proxy", "transport")
"""Of the whole configuration, of its HTTP app, of each server of the load, of each proxying handler, of that handler's transport."""
NEVER = "{"
PORT = 2019
"""Of its admin interface."""
HEALTH = "health"
"""The server that its probes come to."""

Node = dict[str, Any]


def render(ports: Sequence[Served], members: Members, certificates: Certificates, settings: Settings) -> dict[str, str]:
    """Path → text."""
    health: Node = {
        "listen": [":1042"],
        "routes": [{"match": [{"path": ["/healthz"]}], "handle": [{"handler": "static_response", "status_code": 200}]}],
    }
    servers: Node = {
        f"port-{port.port}": merged(_server(port, members, settings), settings["server"]) for port in ports
    }
    http = merged({"servers": {**servers, HEALTH: health}}, settings["http"])
    apps: Node = {"http": http}
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
    server: Node = {
        "listen": [f":{served.port}"],
        "routes": [
            {
                "match": [({} if host == ANY else {"host": [host]}) | _path(entry)],
                "handle": _handlers(entry, members, settings),
                "terminal": True,
            }
            for host in served.ordered
            for entry in served.hosts[host]
        ]
        + [{"handle": [{"handler": "static_response", "status_code": 404}]}],  # by itself 200, without a word
        "automatic_https": {"disable": True},
    }
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
    upstreams = [{"dial": f"{member.address}:{member.port}"} for member in found]
    proxy: Node = {"handler": "reverse_proxy", "upstreams": upstreams}
    if settings["transport"]:
        proxy["transport"] = merged({"protocol": "http"}, settings["transport"])
    return [*headers, merged(proxy, settings["reverse_proxy"])]
