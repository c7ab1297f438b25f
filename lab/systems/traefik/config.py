"""What Traefik serves, as the file of its file provider: routers, services, middlewares.

    Served(80, {"bench.lab.test": …})  →  {"http": {"routers": {"80-0-0": {"rule": "Host(`bench.lab.test`)", …}}, "services": …}}

Settings of the parts `PARTS` are laid over what is written here; where any of `serversTransport` is set, every service has one of its own;
`tls` is each router's, `options` those of TLS by default.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.base.errors import UsageError
from lab.systems.manifests.gateway_api import ANY, Backend, Entry, Match, Rewrite, Rule, Served, ValueMatch
from lab.systems.manifests.objects import Member
from lab.systems.settings import Settings, merged
from lab.systems.traefik import admin as traefik

FILE = "/srv/traefik/dynamic.yaml"
PARTS = ("router", "service", "serversTransport", "tls", "options")
CAN = (
    *("method", "headers", "queries", "queries_regex", "regex", "weights", "request_headers", "response_headers"),
    *("rewrite", "mirrors"),
)
"""Of `Rule`: no redirect, no header beside others of its name, and timeouts that its routers have none of."""
NEVER = "`"
TRANSPORT = "lab"

Members = Mapping[Backend, Sequence[Member]]
Certificates = Mapping[str, Mapping[str, str]]


def render(
    ports: Sequence[Served],
    members: Members,
    certificates: Certificates,
    entry_points: Mapping[int, str],
    settings: Settings,
) -> str:
    """`entry_points`: port → its name in the command line. UsageError for a port that has none."""
    services = {_name(backend): _service(found, settings) for backend, found in members.items()}
    routers, middlewares = dict[str, Any](), dict[str, Any]()
    for port in ports:
        if port.port not in entry_points:
            fault = f"no entry point has port {port.port}"
            raise UsageError("Deployment/proxy: args", fault, f"--entrypoints.NAME.address=:{port.port}")
        entries = [(host, entry) for host, found in port.hosts.items() for entry in found]
        for number, (host, entry) in enumerate(entries):
            name = f"{port.port}-{number}"
            changes = dict(_middlewares(name, entry))
            middlewares |= changes
            services |= dict(_divided(name, entry.rule))
            router = {
                "entryPoints": [entry_points[port.port]],
                "rule": _rule(host, entry.match),
                "priority": len(entries) - number if host != ANY else 1,
                "service": _target(name, entry.rule),
                **({"middlewares": list(changes)} if changes else {}),
                **({"tls": merged({}, settings["tls"])} if port.secrets else {}),
            }
            routers[name] = merged(router, settings["router"])
    http = {"routers": routers, "services": services}
    if settings["serversTransport"]:
        http["serversTransports"] = {TRANSPORT: merged({}, settings["serversTransport"])}
    pairs = [
        {"certFile": certificates[name]["tls.crt"], "keyFile": certificates[name]["tls.key"]}
        for name in dict.fromkeys(name for port in ports for name in port.secrets)
    ]
    options = {"options": {"default": merged({}, settings["options"])}} if settings["options"] else {}
    tls = {"tls": {"certificates": pairs, **options}} if pairs else {}
    mark = hashlib.sha256(json.dumps([http, middlewares, tls]).encode()).hexdigest()[:12]
    middlewares[f"{traefik.MARK}{mark}"] = {"stripPrefix": {"prefixes": ["/"]}}
    return json.dumps({"http": {**http, "middlewares": middlewares}, **tls}, indent=1)


def version(text: str) -> str:
    """Of a file."""
    names = json.loads(text)["http"]["middlewares"]
    return next(name.removeprefix(traefik.MARK) for name in names if name.startswith(traefik.MARK))


def _name(backend: Backend) -> str:
    return f"{backend.service}-{backend.port}"


def _service(members: Sequence[Member], settings: Settings) -> Mapping[str, Any]:
    urls = [{"url": f"http://{member.address}:{member.port}"} for member in members]
    own = {"serversTransport": TRANSPORT} if settings["serversTransport"] else {}
    return merged({"loadBalancer": {"servers": urls, **own}}, settings["service"])


def _divided(name: str, rule: Rule) -> Iterator[tuple[str, Any]]:
    """Services of a rule that has not one alone."""
    if len(rule.backends) != 1:
        shares = [{"name": _name(backend), "weight": backend.weight} for backend in rule.backends]
        yield f"{name}-shares", {"weighted": {"services": shares}}
    if rule.mirrors:
        first = _name(rule.backends[0]) if len(rule.backends) == 1 else f"{name}-shares"
        mirrors = [{"name": _name(backend), "percent": 100} for backend in rule.mirrors]
        yield f"{name}-mirrored", {"mirroring": {"service": first, "mirrors": mirrors}}


def _target(name: str, rule: Rule) -> str:
    if rule.mirrors:
        return f"{name}-mirrored"
    return _name(rule.backends[0]) if len(rule.backends) == 1 else f"{name}-shares"


def _rule(host: str, match: Match) -> str:
    """As Traefik's own Gateway API provider writes them: a prefix is one of whole segments."""
    found = [] if host == ANY else [_host(host)]
    prefix = match.path.rstrip("/")
    if match.path_kind == "Exact":
        found.append(f"Path(`{match.path}`)")
    elif match.path_kind == "RegularExpression":
        found.append(f"PathRegexp(`^{match.path}$`)")
    else:
        found.append(f"(Path(`{prefix}`) || PathPrefix(`{prefix}/`))" if prefix else "PathPrefix(`/`)")
    found += [f"Method(`{match.method}`)"] if match.method else []
    found += [_value("Header", item) for item in match.headers]
    found += [_value("Query", item) for item in match.queries]
    return " && ".join(found)


def _host(host: str) -> str:
    return f"HostRegexp(`^[^.]+{re.escape(host[1:])}$`)" if host.startswith("*.") else f"Host(`{host}`)"


def _value(kind: str, item: ValueMatch) -> str:
    return f"{kind}{'' if item.kind == 'Exact' else 'Regexp'}(`{item.name}`, `{item.value}`)"


def _middlewares(name: str, entry: Entry) -> Iterator[tuple[str, Any]]:
    rule = entry.rule
    requests = {**rule.request_headers.set, **dict.fromkeys(rule.request_headers.remove, "")}
    if rule.rewrite is not None and rule.rewrite.host:
        requests["Host"] = rule.rewrite.host
    responses = {**rule.response_headers.set, **dict.fromkeys(rule.response_headers.remove, "")}
    headers = {"customRequestHeaders": requests, "customResponseHeaders": responses}
    if requests or responses:
        yield f"{name}-headers", {"headers": {key: value for key, value in headers.items() if value}}
    if rule.rewrite is not None and (found := _replaced(rule.rewrite, entry.match)):
        yield f"{name}-path", {"replacePathRegex": found}


def _replaced(rewrite: Rewrite, match: Match) -> Mapping[str, str]:
    if rewrite.path is not None:
        return {"regex": "^.*$", "replacement": rewrite.path}
    if rewrite.prefix is None:
        return {}
    old, new = match.path.rstrip("/"), rewrite.prefix.rstrip("/")
    return {"regex": f"^{re.escape(old)}/*", "replacement": f"{new}/"}
