"""What Traefik serves, as the file of its file provider: routers, services, middlewares.

    Served(80, {"bench.lab.test": …})  →  {"http": {"routers": {"80-0-0": {"rule": "Host(`bench.lab.test`)", …}}, "services": …}}

Settings of the parts `PARTS` are laid over what is written here; where any of `serversTransport` is set, every service has one of its own;
`tls` is each router's, `options` those of TLS by default.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lab.base.errors import UsageError
from lab.systems.manifests.gateway_api import ANY, Backend, Match, Served
from lab.systems.manifests.objects import Member
from lab.systems.settings import Settings, merged
from lab.systems.system import Certificates, Members

FILE = "/srv/traefik/dynamic.yaml"
PARTS = ("router", "service", "serversTransport", "tls", "options")
TRANSPORT = "lab"
MARK = "lab-"
"""Begins the name of a middleware that nobody uses, whose rest is the version of the file that it lies in."""
_NOBODY = "nobody"
"""Of a service without servers, to which a rule without a Service leads."""


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
            name, rule = f"{port.port}-{number}", entry.rule
            if rule.headers:
                middlewares[f"{name}-headers"] = {"headers": {"customRequestHeaders": dict(rule.headers)}}
            if rule.backend is None:
                services[_NOBODY] = _service((), settings)
            router = {
                "entryPoints": [entry_points[port.port]],
                "rule": _rule(host, entry.match),
                "priority": len(entries) - number if host != ANY else 1,
                "service": _name(rule.backend) if rule.backend else _NOBODY,
                **({"middlewares": [f"{name}-headers"]} if rule.headers else {}),
                **({"tls": merged({}, settings["tls"])} if port.secrets else {}),
            }
            routers[name] = merged(router, settings["router"])
    http = {"routers": routers, "services": services}
    if settings["serversTransport"]:
        http["serversTransports"] = {TRANSPORT: merged({}, settings["serversTransport"])}
    pairs = [{"certFile": found["tls.crt"], "keyFile": found["tls.key"]} for found in certificates.values()]
    options = {"options": {"default": merged({}, settings["options"])}} if settings["options"] else {}
    tls = {"tls": {"certificates": pairs, **options}} if pairs else {}
    mark = hashlib.sha256(json.dumps([http, middlewares, tls]).encode()).hexdigest()[:12]
    middlewares[f"{MARK}{mark}"] = {"stripPrefix": {"prefixes": ["/"]}}
    return json.dumps({"http": {**http, "middlewares": middlewares}, **tls}, indent=1)


def version(text: str) -> str:
    """Of a file."""
    names = json.loads(text)["http"]["middlewares"]
    return next(name.removeprefix(MARK) for name in names if name.startswith(MARK))


def _name(backend: Backend) -> str:
    return f"{backend.service}-{backend.port}"


def _service(members: Sequence[Member], settings: Settings) -> Mapping[str, Any]:
    urls = [{"url": f"http://{member.address}:{member.port}"} for member in members]
    own = {"serversTransport": TRANSPORT} if settings["serversTransport"] else {}
    return merged({"loadBalancer": {"servers": urls, **own}}, settings["service"])


def _rule(host: str, match: Match) -> str:
    """As Traefik's own Gateway API provider writes them: a prefix is one of whole segments."""
    prefix = match.path.rstrip("/")
    path = f"(Path(`{prefix}`) || PathPrefix(`{prefix}/`))" if prefix else "PathPrefix(`/`)"
    if match.path_kind == "Exact":
        path = f"Path(`{match.path}`)"
    if host == ANY:
        return path
    by_host = f"HostRegexp(`^[^.]+{re.escape(host[1:])}$`)" if host.startswith("*.") else f"Host(`{host}`)"
    return f"{by_host} && {path}"
