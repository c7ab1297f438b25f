"""What is served → Caddy's own JSON configuration. Pure.

    Served(80, {"bench.lab.test": …})   →   apps.http.servers.port-80: {listen: [":80"], routes: [{match: [{host: …}], handle: [{reverse_proxy}]}]}

Nothing is set that Caddy has a default for, but that it makes no certificates of its own. Refuses mirrors and a timeout of the whole request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.systems.caddy.admin import HEALTH, PORT
from lab.systems.manifests.gateway_api import ANY, Backend, Entry, Headers, Match, Rule, Served
from lab.systems.manifests.objects import Member
from lab.systems.settings import Settings, merged

FOLDER = "/srv/caddy"
CONFIG = f"{FOLDER}/caddy.json"
PARTS = ("config", "http", "server", "reverse_proxy", "transport")
"""Of the whole configuration, of its HTTP app, of each server of the load, of each proxying handler, of that handler's transport."""
CAN = (
    *("method", "headers", "queries", "regex", "weights", "request_headers", "response_headers", "added"),
    *("redirect", "rewrite"),
)
NEVER = "{"
READY = (1042, "/healthz")

Node = dict[str, Any]


def render(
    ports: Sequence[Served],
    members: Mapping[Backend, Sequence[Member]],
    certificates: Mapping[str, Mapping[str, str]],
    settings: Settings,
) -> dict[str, str]:
    """Path → text. `members`: a Service's port → its endpoints, by Backend without weight; `certificates`: Secret → its files."""
    health: Node = {
        "listen": [f":{READY[0]}"],
        "routes": [{"match": [{"path": [READY[1]]}], "handle": [{"handler": "static_response", "status_code": 200}]}],
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


def _server(served: Served, members: Mapping[Backend, Sequence[Member]], settings: Settings) -> Node:
    hosts = sorted(served.hosts, key=lambda host: (host == ANY, host.startswith("*."), -len(host)))
    server: Node = {
        "listen": [f":{served.port}"],
        "routes": [
            {
                "match": [({} if host == ANY else {"host": [host]}) | dict(_match(entry.match))],
                "handle": list(_handlers(entry, members, settings)),
                "terminal": True,
            }
            for host in hosts
            for entry in served.hosts[host]
        ]
        + [{"handle": [{"handler": "static_response", "status_code": 404}]}],  # by itself 200, without a word
        "automatic_https": {"disable": True},
    }
    return server | ({"tls_connection_policies": [{}]} if served.secrets else {})


def _match(match: Match) -> Iterator[tuple[str, Any]]:
    stem = match.path.rstrip("/")
    match match.path_kind:
        case "Exact":
            yield "path", [match.path]
        case "RegularExpression":
            yield "path_regexp", {"pattern": f"^(?:{match.path})$"}
        case "PathPrefix":
            if stem:
                yield "path", [stem, f"{stem}/*"]
    if match.method:
        yield "method", [match.method]
    if exact := {item.name: [item.value] for item in match.headers if item.kind == "Exact"}:
        yield "header", exact
    if regex := {item.name: {"pattern": item.value} for item in match.headers if item.kind != "Exact"}:
        yield "header_regexp", regex
    if match.queries:
        yield "query", {item.name: [item.value] for item in match.queries}


def _handlers(entry: Entry, members: Mapping[Backend, Sequence[Member]], settings: Settings) -> Iterator[Node]:
    rule = entry.rule
    if rule.request_headers or rule.response_headers or (rule.rewrite and rule.rewrite.host):
        request = _headers(rule.request_headers)
        if rule.rewrite and rule.rewrite.host:
            request["set"] = request.get("set", {}) | {"Host": [rule.rewrite.host]}
        yield {"handler": "headers", "request": request, "response": _headers(rule.response_headers)}
    if rule.redirect is not None:
        to = rule.redirect
        scheme, host = to.scheme or "{http.request.scheme}", to.host or "{http.request.host}"
        port, path = f":{to.port}" if to.port else "", "{http.request.uri}" if to.path is None else to.path
        yield {
            "handler": "static_response",
            "status_code": to.status,
            "headers": {"Location": [f"{scheme}://{host}{port}{path}"]},
        }
        return
    if rule.rewrite is not None and rule.rewrite.path is not None:
        yield {"handler": "rewrite", "uri": rule.rewrite.path}
    if rule.rewrite is not None and rule.rewrite.prefix is not None:
        yield {"handler": "rewrite", "strip_path_prefix": entry.match.path.rstrip("/")}
        if new := rule.rewrite.prefix.rstrip("/"):
            yield {"handler": "rewrite", "uri": f"{new}{{http.request.uri}}"}
    yield merged(_proxy(rule, members, settings), settings["reverse_proxy"])


def _proxy(rule: Rule, members: Mapping[Backend, Sequence[Member]], settings: Settings) -> Node:
    found = [
        (f"{member.address}:{member.port}", item.weight)
        for item in rule.backends
        for member in members.get(Backend(item.service, item.port), ())
    ]
    proxy: Node = {"handler": "reverse_proxy", "upstreams": [{"dial": address} for address, _ in found]}
    if len(rule.backends) > 1:
        weights = [weight for _, weight in found]
        proxy["load_balancing"] = {"selection_policy": {"policy": "weighted_round_robin", "weights": weights}}
    transport = merged({"protocol": "http"}, settings["transport"])
    return proxy | ({"transport": transport} if settings["transport"] else {})


def _headers(change: Headers) -> Node:
    found: Node = {
        "set": {name: [value] for name, value in change.set.items()},
        "add": {name: [value] for name, value in change.add.items()},
        "delete": list(change.remove),
    }
    return {name: value for name, value in found.items() if value}
