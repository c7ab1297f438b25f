"""ingress-nginx's settings and the routes → nginx.conf. Pure: what depends on the machine is handed in.

Upstream keep-alive is stated in both directions, since nginx versions differ in its default. `backlog=` is the pod's
net.core.somaxconn when this is written, as the controller does it (511 below 512: internal/ingress/controller/util.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lab.targets.local.configmap import lines
from lab.targets.local.images import Context
from lab.targets.local.objects import Route

PID = "/tmp/nginx/nginx.pid"


def render(values: Mapping[str, str], context: Context, version: tuple[int, ...], http_port: int = 80) -> str:
    """The whole nginx.conf. Pure: everything that depends on the machine is handed in."""
    backlog = context.somaxconn if context.somaxconn >= 512 else 511
    open_files = int(values["max-worker-open-files"]) or max(1024, context.open_files - 1024)
    connections = int(values["max-worker-connections"]) or open_files * 3 // 4
    workers = context.cpus if values["worker-processes"] == "auto" else values["worker-processes"]
    hosts = sorted({route.host for route in context.objects.routes})
    upstreams = sorted({(route.service, route.port) for route in context.objects.routes}, key=str)
    body = [
        f"pid {PID};",
        "daemon off;",
        f"worker_processes {workers};",
        f"worker_rlimit_nofile {open_files};",
        *lines(values, "main"),
        values["main-snippet"],
        *_block("events", ["use epoll;", f"worker_connections {connections};", *lines(values, "events")]),
        *_block(
            "http",
            [
                *_http(values, hosts),
                *(line for service, port in upstreams for line in _upstream(values, context, version, service, port)),
                *_default_server(values, version, http_port, backlog),
                *(line for host in hosts for line in _server(values, context, version, http_port, host)),
                *_block(
                    "server",
                    [
                        "listen 10254;",
                        "access_log off;",
                        "keepalive_timeout 0;",
                        "location = /healthz { return 200; }",
                        "location / { return 404; }",
                    ],
                ),
            ],
        ),
    ]
    return "\n".join(line for line in body if line) + "\n"


def _http(values: Mapping[str, str], hosts: Sequence[str]) -> list[str]:
    upstream_close = "" if int(values["upstream-keepalive-connections"]) else "close"
    bucket = max(int(values["server-name-hash-bucket-size"]), _bucket(max(map(len, hosts), default=1)))
    names = max(int(values["server-name-hash-max-size"]), 1 << (sum(map(len, hosts)) - 1).bit_length() if hosts else 0)
    escape = (
        "escape=none "
        if _on(values, "log-format-escape-none")
        else "escape=json "
        if _on(values, "log-format-escape-json")
        else ""
    )
    quoted = values["log-format-upstream"].replace("\\", "\\\\").replace("'", "\\'")
    log = " ".join(
        filter(
            None,
            [
                values["http-access-log-path"] or values["access-log-path"],
                "upstreaminfo",
                values["access-log-params"],
                "if=$loggable",
            ],
        )
    )
    silent = _on(values, "disable-access-log") or _on(values, "disable-http-access-log")
    request_id = '"" $request_id;' if _on(values, "generate-request-id") else ""
    temporary = [
        f"{name}_temp_path /tmp/nginx/{name.replace('_', '-')};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    ]
    return [
        "aio threads;",
        "aio_write on;" if _on(values, "enable-aio-write") else "",
        "tcp_nopush on;",
        "tcp_nodelay on;",
        "log_subrequest on;",
        "reset_timedout_connection on;",
        "server_name_in_redirect off;",
        "port_in_redirect off;",
        "types_hash_max_size 2048;",
        f"server_names_hash_max_size {names};",
        f"server_names_hash_bucket_size {bucket};",
        *temporary,
        *lines(values, "http"),
        *_gzip(values),
        *_tls(values),
        "proxy_ssl_session_reuse on;",
        "absolute_redirect off;" if _on(values, "relative-redirects") else "",
        "proxy_pass_header Server;" if _on(values, "allow-backend-server-header") else "",
        *(f"proxy_hide_header {name};" for name in _list(values["hide-headers"])),
        f"log_format upstreaminfo {escape}'{quoted}';",
        *_block(
            "map $request_uri $loggable",
            [*(f"{url} 0;" for url in _list(values["skip-access-log-urls"])), "default 1;"],
        ),
        "access_log off;" if silent else f"access_log {log};",
        f"error_log {values['error-log-path']} {values['error-log-level']};",
        *_block("map $http_upgrade $connection_upgrade", ["default upgrade;", f"'' '{upstream_close}';"]),
        *_block("map $http_x_request_id $req_id", ["default $http_x_request_id;", request_id]),
        values["http-snippet"],
    ]


def _gzip(values: Mapping[str, str]) -> list[str]:
    if not _on(values, "use-gzip"):
        return []
    disable = f'gzip_disable "{values["gzip-disable"]}";' if values["gzip-disable"] else ""
    level = f"gzip_comp_level {values['gzip-level']};"
    which = [f"gzip_min_length {values['gzip-min-length']};", f"gzip_types {values['gzip-types']};"]
    return ["gzip on;", level, *which, disable, "gzip_http_version 1.1;", "gzip_proxied any;", "gzip_vary on;"]


def _tls(values: Mapping[str, str]) -> list[str]:
    cache = [
        f"ssl_session_cache shared:SSL:{values['ssl-session-cache-size']};",
        f"ssl_session_timeout {values['ssl-session-timeout']};",
    ]
    ciphers = [f"ssl_ciphers '{values['ssl-ciphers']}';", "ssl_prefer_server_ciphers on;"]
    return [*(cache if _on(values, "ssl-session-cache") else []), *(ciphers if values["ssl-ciphers"] else [])]


def _upstream(
    values: Mapping[str, str], context: Context, version: tuple[int, ...], service: str, port: int | str
) -> list[str]:
    """Round robin without marking servers as failed: the controller's balancer does not either. None without endpoints."""
    members = context.objects.members(service, port, context.addresses)
    if not members:
        return []  # which nginx would refuse; `_locations` answers in its place
    servers = [f"server {member.address}:{member.port} max_fails=0;" for member in members]
    idle = int(values["upstream-keepalive-connections"])
    if idle:
        keep = [f"keepalive {idle};", *lines(values, "upstream")]
    else:
        keep = ["keepalive 0;"] if version >= (1, 29, 7) else []  # from there on it is on by default
    return _block(f"upstream {_upstream_name(context, service, port)}", servers + keep)


def _default_server(values: Mapping[str, str], version: tuple[int, ...], port: int, backlog: int) -> list[str]:
    options = "default_server" + (" reuseport" if _on(values, "reuse-port") else "") + f" backlog={backlog}"
    log = "" if _on(values, "enable-access-log-for-default-backend") else "access_log off; "
    return _block(
        "server",
        [
            f"listen {port} {options};",
            _https(values, version, options),
            "http2 on;" if _on(values, "use-http2") and version >= (1, 25, 1) else "",
            "server_name _;",
            "ssl_reject_handshake on;",
            *_proxy_variables("", "", "", "", ""),
            "location = /healthz { access_log off; return 200; }",
            f"location / {{ {log}return 404; }}",
        ],
    )


def _server(values: Mapping[str, str], context: Context, version: tuple[int, ...], port: int, host: str) -> list[str]:
    name = host if not host.startswith("*.") else f"~^[^.]+{re.escape(host[1:])}$"
    routes = [route for route in context.objects.routes if route.host == host]
    # One rewrite makes all paths of a host regular expressions, of which the first that matches is taken.
    regex = any(route.regex for route in routes)
    if regex:
        routes.sort(key=lambda route: len(route.path), reverse=True)
    locations = [line for route in routes for line in _locations(values, context, route, regex)]
    http2 = "http2 on;" if _on(values, "use-http2") and version >= (1, 25, 1) else ""
    other = [] if any(route.path == "/" for route in routes) else ["location / { access_log off; return 404; }"]
    return _block(
        "server", [f"listen {port};", http2, f'server_name "{name}";', values["server-snippet"], *locations, *other]
    )


def _https(values: Mapping[str, str], version: tuple[int, ...], options: str) -> str:
    """HTTP/2 is a flag of the listener before nginx 1.25.1, a directive of the server from then on."""
    return f"listen 443 ssl{' http2' if _on(values, 'use-http2') and version < (1, 25, 1) else ''} {options};"


def _locations(values: Mapping[str, str], context: Context, route: Route, regex: bool) -> list[str]:
    """A Prefix path matches whole elements: /a is `= /a` and `/a/`."""
    path = route.path.replace("\\", "\\\\").replace('"', '\\"')
    exact, prefix = f'location = "{path}"', f'location "{path.rstrip("/")}/"'
    headers = [exact] if route.path_type == "Exact" else [prefix] if path.endswith("/") else [exact, prefix]
    if regex:
        headers = [f'location ~* "^{path}"']
    upstream = _upstream_name(context, route.service, route.port)
    reached = context.objects.members(route.service, route.port, context.addresses)
    tries = [word for word in values["proxy-next-upstream"].split() if word != "non_idempotent"]
    if _on(values, "retry-non-idempotent") or "non_idempotent" in values["proxy-next-upstream"].split():
        tries.append("non_idempotent")
    redirect = values["proxy-redirect-from"] + (
        "" if values["proxy-redirect-from"] in ("off", "default") else f" {values['proxy-redirect-to']}"
    )
    body = [
        *_proxy_variables(route.namespace, route.ingress, route.service, str(route.port), upstream),
        *(f"proxy_set_header {name} {value};" for name, value in _HEADERS.items()),
        *lines(values, "location"),
        f"proxy_buffers {values['proxy-buffers-number']} {values['proxy-buffer-size']};",
        f"proxy_next_upstream {' '.join(tries)};",
        values["location-snippet"],
        *([*_rewritten(route, path), f"proxy_pass http://{upstream};"] if reached else ["return 503;"]),
        f"proxy_redirect {redirect};",
    ]
    return [line for header in headers for line in _block(header, body)]


def _rewritten(route: Route, path: str) -> list[str]:
    """The header only beside a rewrite, and a rewrite only to something else: buildProxyPass in the controller's template.go."""
    if not route.rewrite or route.rewrite == route.path:
        return []
    prefix = f'proxy_set_header X-Forwarded-Prefix "{route.forwarded_prefix}";' if route.forwarded_prefix else ""
    return [f'rewrite "(?i){path}" {route.rewrite} break;', prefix]


_HEADERS = {
    "Host": "$best_http_host",
    "Upgrade": "$http_upgrade",
    "Connection": "$connection_upgrade",
    "X-Request-ID": "$req_id",
    "X-Real-IP": "$remote_addr",
    "X-Scheme": "$pass_access_scheme",
    "X-Forwarded-For": "$remote_addr",
    "X-Forwarded-Host": "$best_http_host",
    "X-Forwarded-Port": "$pass_port",
    "X-Forwarded-Proto": "$pass_access_scheme",
    "X-Forwarded-Scheme": "$pass_access_scheme",
    "X-Original-Forwarded-For": "$http_x_forwarded_for",
    "X-Original-Forwarded-Host": "$http_x_forwarded_host",
    "Proxy": '""',
}


def _proxy_variables(namespace: str, ingress: str, service: str, port: str, upstream: str) -> list[str]:
    """Variables that the log format and users' snippets may name; setting them costs, here as there."""
    constants = {"namespace": namespace, "ingress_name": ingress, "service_name": service, "service_port": port}
    names = {"proxy_upstream_name": upstream or "-", "proxy_alternative_upstream_name": ""}
    request = {
        "pass_access_scheme": "$scheme",
        "pass_server_port": "$server_port",
        "best_http_host": "$http_host",
        "pass_port": "$pass_server_port",
    }
    return [f'set ${name} "{value}";' for name, value in (constants | names | request).items()]


def _upstream_name(context: Context, service: str, port: int | str) -> str:
    return f"{context.pod.namespace}-{service}-{port}"


def _bucket(longest: int) -> int:
    """Bytes that nginx needs for the longest name, rounded up to a power of two (at least 32)."""
    return 1 << (16 + (longest + 9) // 8 * 8 - 1).bit_length()


def _block(header: str, body: Sequence[str]) -> list[str]:
    inner = [f"    {line}" for text in body if text for line in text.splitlines()]
    return [f"{header} {{", *inner, "}"]


def _on(values: Mapping[str, str], key: str) -> bool:
    return values[key] == "true"


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
