"""The router's HAProxy configuration and maps, in the shape that OKD's router gives them. Pure.

Hosts are looked for in maps of regular expressions, one after the other, which is why the number of routes matters.
Port 443 is a TCP frontend that reads the SNI: passthrough goes to the backend as it is; the rest, over a unix socket
with PROXY protocol, to frontends that end TLS and begin HTTP; re-encrypt opens TLS again to the backend, whose
certificate it verifies. One backend per route, health checks only where a route has more than one endpoint.
Written for HAProxy 2.6 and later, from the facts of openshift/router's haproxy-config.template. What differs: no `daemon`
(the script beside this runs it), no statistics page, and the health port, which is the router process's own, is HAProxy's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.targets.common.haproxy import SOCKET as SOCKET
from lab.targets.local.openshift import HeaderAction, HostRoute

HOME = "/var/lib/haproxy"
CONF, RUN = f"{HOME}/conf", f"{HOME}/run"
CERTIFICATE = f"{HOME}/router/certs/default.pem"

_PREFIX = {"none": "be_http", "edge": "be_edge_http", "reencrypt": "be_secure", "passthrough": "be_tcp"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the router's environment says. None = the directive is left out, which leaves HAProxy its own default."""

    http_port: int
    https_port: int
    stats_port: int
    threads: int | None
    max_connections: int | None
    hard_stop_after: str | None
    fd_limit: int | None
    balance: str
    tcp_balance: str
    min_tls: str
    ciphers: str
    ciphersuites: str
    destination_ca: str | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of a route. `pod` is empty where it is none; `service_port` is the name that the Service has for its port."""

    pod: str
    address: str
    port: int
    service_port: str


@dataclass(frozen=True, slots=True)
class Backend:
    """A route with what is behind it."""

    route: HostRoute
    endpoints: tuple[Endpoint, ...]

    @property
    def name(self) -> str:
        return f"{_PREFIX[self.route.tls]}:{self.route.namespace}:{self.route.name}"


def render(settings: Settings, backends: Sequence[Backend]) -> dict[str, str]:
    """Path → text of the configuration, its maps and its error page."""
    return {
        f"{CONF}/haproxy.config": _config(settings, backends),
        f"{CONF}/os_http_be.map": _map(backends, _plain, _base, lambda item: item.name),
        f"{CONF}/os_route_http_redirect.map": _map(backends, _redirected, _base, lambda _: "1"),
        f"{CONF}/os_edge_reencrypt_be.map": _map(backends, _terminated, _base, lambda item: item.name),
        f"{CONF}/os_sni_passthrough.map": _map(backends, _passed, _sni, lambda _: "1"),
        f"{CONF}/os_tcp_be.map": _map(backends, _passed, _base, lambda item: item.name),
        f"{CONF}/cert_config.map": "",  # no route has a certificate of its own
        f"{CONF}/error-page-503.http": _UNAVAILABLE,
    }


def _plain(item: Backend) -> bool:
    return item.route.tls == "none" or (item.route.insecure == "Allow" and _terminated(item))


def _redirected(item: Backend) -> bool:
    return item.route.tls != "none" and item.route.insecure == "Redirect"


def _terminated(item: Backend) -> bool:
    return item.route.tls in ("edge", "reencrypt")


def _passed(item: Backend) -> bool:
    return item.route.tls == "passthrough"


def _base(route: HostRoute) -> str:
    """What matches host, port and path of a request."""
    return rf"^{_literal(route.host)}\.?(:[0-9]+)?{_literal(route.path)}(/.*)?$"


def _sni(route: HostRoute) -> str:
    return rf"^{_literal(route.host)}\.?$"


def _literal(text: str) -> str:
    """As Go quotes it: without a backslash before `-`, which re.escape writes."""
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def _map(
    backends: Iterable[Backend],
    chosen: Callable[[Backend], bool],
    pattern: Callable[[HostRoute], str],
    value: Callable[[Backend], str],
) -> str:
    """One regular expression and value per line, last in the alphabet first, so that a longer path comes before its prefix."""
    lines = [f"{pattern(item.route)} {value(item)}" for item in backends if chosen(item)]
    return "".join(f"{line}\n" for line in sorted(lines, reverse=True))


def _config(settings: Settings, backends: Sequence[Backend]) -> str:
    optional = {
        "hard-stop-after": settings.hard_stop_after,
        "maxconn": settings.max_connections,
        "nbthread": settings.threads,
        "fd-hard-limit": settings.fd_limit,
    }
    said = "".join(f"  {name} {value}\n" for name, value in optional.items() if value is not None)
    maxconn = f"  maxconn {settings.max_connections}\n" if settings.max_connections is not None else ""
    parts = [
        _GLOBAL.format(optional=said, **_strings(settings)),
        _DEFAULTS.format(maxconn=maxconn),
        _HEALTH.format(port=settings.stats_port, http_port=settings.http_port),
        _PUBLIC.format(port=settings.http_port, clean=_CLEAN),
        _PUBLIC_SSL.format(port=settings.https_port),
        *(_TERMINATING.format(name=name, socket=f"{RUN}/haproxy-{file}.sock", certificates=certificates, clean=_CLEAN)
          for name, file, certificates in _TERMINATED),
        _DEFAULT_BACKEND,
        *(_tcp(item, settings) if _passed(item) else _http(item, settings) for item in backends),
    ]  # fmt: skip
    return "\n".join(parts)


def _strings(settings: Settings) -> Mapping[str, str]:
    return {"min_tls": settings.min_tls, "ciphers": settings.ciphers, "ciphersuites": settings.ciphersuites}


def _http(item: Backend, settings: Settings) -> str:
    route = item.route
    cookie = f"  cookie {_md5(f'{route.namespace}:{route.name}')} insert indirect nocache httponly"
    if _terminated(item) and route.insecure != "Allow":
        cookie += " secure attr SameSite=None"
    tls = ""
    if route.tls == "reencrypt":
        verified = f"verify required ca-file {settings.destination_ca}" if settings.destination_ca else "verify none"
        tls = f" ssl verifyhost {route.service}.{route.namespace}.svc {verified}"
    servers = [f"{_server(item, endpoint, with_cookie=True)}{tls}{_check(item)}" for endpoint in item.endpoints]
    head = [f"backend {item.name}", _HTTP.format(balance=settings.balance), cookie]
    return "\n".join([*head, *map(_header, route.headers), *servers, ""])


def _header(action: HeaderAction) -> str:
    if action.value is None:
        return f"  http-request del-header {_quoted(action.name)}"
    return f"  http-request set-header {_quoted(action.name)} {_quoted(action.value)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"


def _tcp(item: Backend, settings: Settings) -> str:
    servers = [f"{_server(item, endpoint, with_cookie=False)}{_check(item)}" for endpoint in item.endpoints]
    head = [f"backend {item.name}", f"  balance {settings.tcp_balance}", "  hash-type consistent"]
    return "\n".join([*head, "  timeout check 5000ms", *servers, ""])


def _server(item: Backend, endpoint: Endpoint, with_cookie: bool) -> str:
    where = f"{endpoint.address}:{endpoint.port}"
    kind = f"pod:{endpoint.pod}" if endpoint.pod else "ept"
    name = f"{kind}:{item.route.service}:{endpoint.service_port}:{where}"
    cookie = f" cookie {_md5(name)}" if with_cookie else ""
    return f"  server {name} {where}{cookie} weight 1"


def _check(item: Backend) -> str:
    return " check inter 5000ms" if len(item.endpoints) > 1 else ""


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


_CLEAN = """  # "Proxy" is what httpoxy abuses; hosts are compared in lower case.
  http-request del-header Proxy
  http-request set-header Host %[req.hdr(Host),lower]"""

_GLOBAL = f"""global
{{optional}}  stats socket {SOCKET} mode 600 level admin expose-fd listeners
  stats timeout 2m
  tune.maxrewrite 8192
  tune.bufsize 32768
  tune.ssl.default-dh-param 2048
  ssl-default-bind-options ssl-min-ver {{min_tls}}
  ssl-default-bind-ciphers {{ciphers}}
  ssl-default-bind-ciphersuites {{ciphersuites}}
"""

_DEFAULTS = f"""defaults
{{maxconn}}  errorfile 503 {CONF}/error-page-503.http
  timeout connect 5s
  timeout client 30s
  timeout client-fin 1s
  timeout server 30s
  timeout server-fin 1s
  timeout http-request 10s
  timeout http-keep-alive 300s
  timeout tunnel 1h
"""

_HEALTH = """frontend healthz
  bind :{port}
  mode http
  http-request return status 404 unless {{ path /healthz /healthz/ready }}
  http-request set-path /_______internal_router_healthz
  default_backend healthz

# As the router's process does (pkg/router/metrics/health.go): a probe waits in the same accept queue as everybody else.
backend healthz
  mode http
  timeout connect 2s
  timeout server 2s
  retries 0
  server public 127.0.0.1:{http_port}
"""

_PUBLIC = f"""frontend public
  bind :{{port}}
  mode http
  tcp-request inspect-delay 5s
  tcp-request content accept if HTTP
  monitor-uri /_______internal_router_healthz
{{clean}}
  acl secure_redirect base,map_reg_int({CONF}/os_route_http_redirect.map) -m bool
  redirect scheme https if secure_redirect
  use_backend %[base,map_reg({CONF}/os_http_be.map)]
  default_backend openshift_default
"""

_PUBLIC_SSL = f"""frontend public_ssl
  bind :{{port}}
  tcp-request inspect-delay 5s
  tcp-request content accept if {{{{ req.ssl_hello_type 1 }}}}
  acl sni req.ssl_sni -m found
  acl sni_passthrough req.ssl_sni,lower,map_reg({CONF}/os_sni_passthrough.map) -m found
  use_backend %[req.ssl_sni,lower,map_reg({CONF}/os_tcp_be.map)] if sni sni_passthrough
  use_backend be_sni if sni
  default_backend be_no_sni
"""

_TERMINATING = f"""backend be_{{name}}
  server fe_{{name}} unix@{{socket}} weight 1 send-proxy

frontend fe_{{name}}
  bind unix@{{socket}} ssl {{certificates}} accept-proxy
  mode http
{{clean}}
  use_backend %[base,map_reg({CONF}/os_edge_reencrypt_be.map)]
  default_backend openshift_default
"""

_TERMINATED = (
    ("sni", "sni", f"crt {CERTIFICATE} crt-list {CONF}/cert_config.map"),
    ("no_sni", "no-sni", f"crt {CERTIFICATE}"),
)

_DEFAULT_BACKEND = """backend openshift_default
  mode http
  option forwardfor
  option http-pretend-keepalive
"""

_HTTP = """  mode http
  option redispatch
  option forwardfor
  balance {balance}
  timeout check 5000ms
  http-request add-header X-Forwarded-Host %[req.hdr(host)]
  http-request add-header X-Forwarded-Port %[dst_port]
  http-request add-header X-Forwarded-Proto http if !{{ ssl_fc }}
  http-request add-header X-Forwarded-Proto https if {{ ssl_fc }}
  http-request add-header X-Forwarded-Proto-Version h2 if {{ ssl_fc_alpn -i h2 }}
  http-request add-header Forwarded for=%[src];host=%[req.hdr(host)];proto=%[req.hdr(X-Forwarded-Proto)]"""

_UNAVAILABLE = (
    "HTTP/1.0 503 Service Unavailable\r\nPragma: no-cache\r\nCache-Control: private, max-age=0, no-cache, no-store\r\n"
    "Connection: close\r\nContent-Type: text/plain\r\n\r\nno route has this host, or nothing behind it answers\n"
)
