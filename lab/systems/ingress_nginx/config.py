"""ingress-nginx's settings and the routes → nginx.conf, by the template of that name. Pure: what depends on the machine is handed in.

Upstream keep-alive is stated in both directions, since nginx versions differ in its default. `backlog=` is the pod's
net.core.somaxconn when this is written, as the controller does it (511 below 512: internal/ingress/controller/util.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from lab.systems.ingress_nginx.configmap import lines
from lab.systems.ingress_nginx.decoding import items
from lab.systems.manifests.objects import Route
from lab.systems.nginx import system as nginx
from lab.systems.rendering import rendered
from lab.systems.system import Context, cores, limit_up

PID = "/tmp/nginx/nginx.pid"
_CERTIFICATES = "/tmp/nginx/ssl"


def render(
    values: Mapping[str, str],
    context: Context,
    version: tuple[int, ...],
    http_port: int = 80,
) -> str:
    """The whole nginx.conf, without carriage returns, as the controller cleans it. Pure: everything that depends on the machine is handed in."""
    routes = context.objects.routes
    open_files = int(values["max-worker-open-files"]) or max(1024, context.open_files - 1024)
    hosts = sorted({route.host for route in routes})
    names_size = 1 << (sum(map(len, hosts)) - 1).bit_length() if hosts else 0
    upstreams = {
        _upstream(context, service, port): context.objects.members(service, port, context.addresses)
        for service, port in sorted({(route.service, route.port) for route in routes}, key=str)
    }
    reached = {name: members for name, members in upstreams.items() if members}  # nginx would refuse an empty one
    servers = [_server(context, host, reached) for host in hosts]
    text = rendered(
        Path(__file__).with_name("nginx.conf.j2"),
        values=values,
        on=lambda key: values[key] == "true",
        names=lambda key: items(values[key]),
        lines=partial(lines, values),
        pid=PID,
        version=version,
        http_port=http_port,
        status=nginx.PORT,
        status_path=nginx.PATH,
        workers=workers_of(values, context),
        open_files=open_files,
        connections=int(values["max-worker-connections"]) or open_files * 3 // 4,
        backlog=context.somaxconn if context.somaxconn >= 512 else 511,
        names_hash_max_size=max(int(values["server-name-hash-max-size"]), names_size),
        names_hash_bucket_size=max(int(values["server-name-hash-bucket-size"]), _bucket(hosts)),
        idle=max(0, int(values["upstream-keepalive-connections"])),
        http2=values["use-http2"] == "true" and version >= (1, 25, 1),
        upstreams=reached.items(),
        servers=servers,
        tries=_tries(values),
        redirected=_redirect(values),
        redirects=any(server["certificate"] for server in servers),
    )
    return text.replace("\r\n", "\n").replace("\r", " ")


def certificates(context: Context) -> dict[str, str]:
    """File → text of every certificate with its key that a route names. UsageError for one that is not there."""
    found: dict[str, str] = {}
    for name in {route.secret: None for route in context.objects.routes if route.secret}:
        files = context.objects.certificate(name, "Ingress: spec.tls")
        found[_certificate(name)] = files["tls.crt"] + files["tls.key"]
    return found


def _certificate(secret: str) -> str:
    return f"{_CERTIFICATES}/{secret}.pem" if secret else ""


def workers_of(values: Mapping[str, str], context: Context) -> str:
    """As asked for, a number or not, or as the controller itself would settle it here."""
    if (asked := values["worker-processes"]) != "auto":
        return asked
    return str(limit_up(cores(context.container.limits.get("cpu")), context.cpus) or 1)


def _server(context: Context, host: str, reached: Mapping[str, object]) -> Mapping[str, object]:
    routes = [route for route in context.objects.routes if route.host == host]
    # One rewrite makes all paths of a host regular expressions, of which the first that matches is taken.
    regex = any(route.rewrite for route in routes)
    if regex:
        routes.sort(key=lambda route: len(route.path), reverse=True)
    return {
        "name": host if not host.startswith("*.") else f"~^[^.]+{re.escape(host[1:])}$",
        "has_root": any(route.path == "/" for route in routes),
        "certificate": next((_certificate(route.secret) for route in routes if route.secret), ""),
        "locations": [
            _location(route, regex, _upstream(context, route.service, route.port), reached) for route in routes
        ],
    }


def _location(route: Route, regex: bool, upstream: str, reached: Mapping[str, object]) -> Mapping[str, object]:
    """A Prefix path matches whole elements: /a is `= /a` and `/a/`."""
    path = route.path.replace("\\", "\\\\").replace('"', '\\"')
    exact, prefix = f'= "{path}"', f'"{path.rstrip("/")}/"'
    matches = [exact] if route.path_type == "Exact" else [prefix] if path.endswith("/") else [exact, prefix]
    if regex:
        matches = [f'~* "^{path}"']
    return {
        "route": route,
        "path": path,
        "matches": matches,
        "upstream": upstream,
        "reached": upstream in reached,
    }


def _tries(values: Mapping[str, str]) -> str:
    asked = values["proxy-next-upstream"].split()
    tries = [word for word in asked if word != "non_idempotent"]
    again = values["retry-non-idempotent"] == "true" or "non_idempotent" in asked
    return " ".join([*tries, *(["non_idempotent"] if again else [])])


def _redirect(values: Mapping[str, str]) -> str:
    """Empty: the controller writes none."""
    where, to = values["proxy-redirect-from"], values["proxy-redirect-to"]
    return where if where in ("off", "default") else "" if to == "off" else f"{where} {to}"


def _upstream(context: Context, service: str, port: int | str) -> str:
    return f"{context.pod.namespace}-{service}-{port}"


def _bucket(names: list[str]) -> int:
    """Bytes that nginx needs for the longest name, rounded up to a power of two (at least 32)."""
    longest = max(map(len, names), default=1)
    return 1 << (16 + (longest + 9) // 8 * 8 - 1).bit_length()
