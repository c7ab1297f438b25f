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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.systems.haproxy.admin import SOCKET
from lab.systems.manifests.objects import Member
from lab.systems.manifests.routes import HostRoute
from lab.systems.rendering import rendered

HOME = "/var/lib/haproxy"
CONF, RUN = f"{HOME}/conf", f"{HOME}/run"
CERTIFICATE = f"{HOME}/router/certs/default.pem"

_PREFIX = {"none": "be_http", "edge": "be_edge_http", "reencrypt": "be_secure", "passthrough": "be_tcp"}


@dataclass(frozen=True, slots=True)
class Backend:
    """A route with what is behind it."""

    route: HostRoute
    endpoints: tuple[Member, ...]

    @property
    def name(self) -> str:
        return f"{_PREFIX[self.route.tls]}:{self.route.namespace}:{self.route.name}"


def render(settings: Mapping[str, object], backends: Sequence[Backend]) -> dict[str, str]:
    """Path → text of the configuration, its maps and its error page. `settings`: what the router's environment says, by the
    template's names; None = the directive is left out, which leaves HAProxy its own default.
    """
    terminated = [item for item in backends if item.route.tls in ("edge", "reencrypt")]
    passed = [item for item in backends if item.route.tls == "passthrough"]
    allowed = [item for item in terminated if item.route.insecure == "Allow"]
    plain = [item for item in backends if item.route.tls == "none"] + allowed
    redirected = [item for item in terminated + passed if item.route.insecure == "Redirect"]
    config = rendered(
        Path(__file__).with_name("haproxy.config.j2"),
        **settings,
        backends=backends,
        conf=CONF,
        run=RUN,
        socket=SOCKET,
        certificate=CERTIFICATE,
        md5=lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
        quoted=lambda text: "'" + text.replace("'", r"'\''") + "'",
    )
    return {
        f"{CONF}/haproxy.config": config,
        f"{CONF}/os_http_be.map": _map(f"{_base(item.route)} {item.name}" for item in plain),
        f"{CONF}/os_route_http_redirect.map": _map(f"{_base(item.route)} 1" for item in redirected),
        f"{CONF}/os_edge_reencrypt_be.map": _map(f"{_base(item.route)} {item.name}" for item in terminated),
        f"{CONF}/os_sni_passthrough.map": _map(rf"^{_literal(item.route.host)}\.?$ 1" for item in passed),
        f"{CONF}/os_tcp_be.map": _map(f"{_base(item.route)} {item.name}" for item in passed),
        f"{CONF}/cert_config.map": "",  # no route has a certificate of its own
        f"{CONF}/error-page-503.http": _UNAVAILABLE,
    }


def _map(lines: Iterable[str]) -> str:
    """One regular expression and value per line, last in the alphabet first, so that a longer path comes before its prefix."""
    return "".join(f"{line}\n" for line in sorted(lines, reverse=True))


def _base(route: HostRoute) -> str:
    """What matches host, port and path of a request."""
    return rf"^{_literal(route.host)}\.?(:[0-9]+)?{_literal(route.path)}(/.*)?$"


def _literal(text: str) -> str:
    """As Go quotes it: without a backslash before `-`, which re.escape writes."""
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


_UNAVAILABLE = (
    "HTTP/1.0 503 Service Unavailable\r\nPragma: no-cache\r\nCache-Control: private, max-age=0, no-cache, no-store\r\n"
    "Connection: close\r\nContent-Type: text/plain\r\n\r\nno route has this host, or nothing behind it answers\n"
)
