"""What is served → haproxy.cfg, for any that is not OKD's router. Pure.

    Served(80, {"bench.lab.test": …}) and Sections(defaults={"timeout client": "50s"})
        →  defaults … frontend port-80 … use_backend backend-8080 if { … }

One backend for each rule and its filters, found by conditions in the order in which the routes come first. Refuses mirrors and a timeout of the
whole request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UsageError
from lab.systems.haproxy.admin import HEALTH, SOCKET
from lab.systems.manifests.gateway_api import ANY, Entry, Headers, Match, Rule, Served
from lab.systems.rendering import rendered
from lab.systems.system import Context

HOME = "/var/lib/haproxy"
CONFIG = f"{HOME}/conf/haproxy.cfg"
CAN = (
    "method headers queries queries_regex regex weights request_headers response_headers added redirect rewrite backend_s".split()  # noqa: SIM905 - reads as a list
)
COMMAND = ("haproxy", "-W", "-db", "-f", CONFIG)
_CHECK = r"""said=$(haproxy -c -f "$0" 2>&1) || { printf '%s\n' "$said" | sed -n 's/^\[ALERT\] *([^)]*) : //p' | head -n 1 >&2; exit 1; }"""
CHECKER = ("sh", "-c", _CHECK, CONFIG)
"""It says more than one line, and why in one that begins with [ALERT]."""
_MOST_WEIGHT = 256


@dataclass(frozen=True, slots=True)
class Sections:
    """Directive → its arguments, of each section beside what the routes make of it; `server`: of each server's line.

    `slots`: servers that a backend has room for; `health`: (port, path) of its readiness.
    """

    globals: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    frontend: Mapping[str, str] = field(default_factory=dict[str, str])
    backend: Mapping[str, str] = field(default_factory=dict[str, str])
    server: Mapping[str, str] = field(default_factory=dict[str, str])
    slots: int = field(default=0, kw_only=True)
    health: tuple[int, str] = field(default=(1042, "/healthz"), kw_only=True)


def files(proxy: str, ports: Sequence[Served], sections: Sections, context: Context) -> dict[str, str]:
    """Path → text of the configuration and its certificates. UsageError for what cannot be written or is not there."""
    entries = [entry for served in ports for found in served.hosts.values() for entry in found]
    for entry in entries:
        entry.rule.refuse(proxy, CAN)
    rules = {entry.rule.place: entry.rule for entry in entries}
    names = {place: f"{place.split(':')[0].rpartition('/')[2]}-{number}" for number, place in enumerate(rules)}
    text = rendered(
        Path(__file__).with_name("served.cfg.j2"),
        of=sections,
        socket=SOCKET,
        health=HEALTH,
        ports=[
            {
                "port": served.port,
                "certificates": [_certificate(name) for name in served.secrets],
                "ways": [way for host in _ordered(served) for way in _ways(host, served.hosts[host], names)],
            }
            for served in ports
        ],
        backends=[
            {"name": names[place], "actions": list(_actions(rule)), "servers": _servers(rule, context)}
            for place, rule in rules.items()
        ],
    )
    certificates = {name: context.objects.certificate(name, "TLS") for served in ports for name in served.secrets}
    return {
        CONFIG: text,
        f"{Path(SOCKET).parent}/.keep": "",
        **{_certificate(name): found["tls.crt"] + found["tls.key"] for name, found in certificates.items()},
    }


def _certificate(secret: str) -> str:
    return f"{HOME}/certs/{secret}.pem"


def _ordered(served: Served) -> list[str]:
    """Whole names first, then the longest wildcard, any host last."""
    return sorted(served.hosts, key=lambda host: (host == ANY, host.startswith("*."), -len(host)))


def _ways(host: str, entries: Sequence[Entry], names: Mapping[str, str]) -> Iterator[str]:
    """`BACKEND if CONDITIONS`, a line for each form of a path."""
    suffix = host.removeprefix("*")
    name = "hdr(host),field(1,:),lower"
    by_host = "" if host == ANY else f"{{ {name} -m end {suffix} }}" if suffix != host else f"{{ {name} {host} }}"
    for entry in entries:
        for by_path in _paths(entry.match):
            conditions = " ".join(filter(None, (by_host, by_path, *_others(entry.match))))
            yield f"{names[entry.rule.place]}{f' if {conditions}' if conditions else ''}"


def _paths(match: Match) -> list[str]:
    path = _quoted(match.path)
    match match.path_kind:
        case "Exact":
            return [f"{{ path {path} }}"]
        case "RegularExpression":
            return [f"{{ path_reg {_quoted(f'^(?:{match.path})$')} }}"]
        case "PathPrefix":
            stem = match.path.rstrip("/")
            return [f"{{ path {_quoted(stem)} }}", f"{{ path_beg {_quoted(stem + '/')} }}"] if stem else [""]


def _others(match: Match) -> Iterator[str]:
    if match.method:
        yield f"{{ method {match.method} }}"
    for fetch, wanted in (("req.hdr", match.headers), ("url_param", match.queries)):
        for item in wanted:
            how = "reg" if item.kind == "RegularExpression" else "str"
            yield f"{{ {fetch}({item.name}) -m {how} {_quoted(item.value)} }}"


def _actions(rule: Rule) -> Iterator[str]:
    yield from _headers("http-request", rule.request_headers)
    yield from _headers("http-response", rule.response_headers)
    if rule.rewrite is not None:
        if rule.rewrite.host:
            yield f"http-request set-header Host {_quoted(rule.rewrite.host)}"
        if rule.rewrite.path is not None:
            yield f"http-request set-path {_quoted(rule.rewrite.path)}"
        if rule.rewrite.prefix is not None:
            for match in rule.matches:
                stem, new = match.path.rstrip("/"), rule.rewrite.prefix.rstrip("/")
                yield f"http-request replace-path {_quoted(f'^{re.escape(stem)}/?(.*)')} {_quoted(f'{new}/')}\\1"
    if (to := rule.redirect) is not None:
        scheme = to.scheme or "%[ssl_fc,iif(https,http)]"
        host = _formatted(to.host) or "%[req.hdr(host),field(1,:)]"
        path = "%[capture.req.uri]" if to.path is None else _formatted(to.path)
        yield f"http-request redirect location {scheme}://{host}{f':{to.port}' if to.port else ''}{path} code {to.status}"
    if rule.backend_s is not None:
        yield f"timeout server {round(rule.backend_s * 1000)}ms"


def _headers(action: str, change: Headers) -> Iterator[str]:
    yield from (f"{action} set-header {name} {_quoted(_formatted(value))}" for name, value in change.set.items())
    yield from (f"{action} add-header {name} {_quoted(_formatted(value))}" for name, value in change.add.items())
    yield from (f"{action} del-header {name}" for name in change.remove)


def _servers(rule: Rule, context: Context) -> list[str]:
    """`ADDRESS:PORT[ weight N]`: a Service's share is divided among its endpoints."""
    found: list[str] = []
    parts = [
        (item, members)
        for item in rule.backends
        if (members := context.objects.members(item.service, item.port, context.addresses))
    ]
    most = max((item.weight / len(members) for item, members in parts), default=1) or 1
    for item, members in parts:
        weight = round(_MOST_WEIGHT * item.weight / len(members) / most)
        if item.weight and not weight:
            fault = f"{item.service}'s share is less than one in {_MOST_WEIGHT}, which HAProxy cannot be told"
            raise UsageError(f"{rule.place}.backendRefs", fault, "make it larger, or measure another system")
        told = f" weight {weight}" if len(rule.backends) > 1 else ""
        found += [f"{member.address}:{member.port}{told}" for member in members]
    return found


def _formatted(text: str) -> str:
    """A text in which nothing is a format of HAProxy's."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"
