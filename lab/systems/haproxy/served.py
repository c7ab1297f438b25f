"""What is served → haproxy.cfg, for any that is not OKD's router. Pure.

    Served(80, {"bench.lab.test": …}) and Sections(defaults={"timeout client": "50s"})
        →  defaults … frontend port-80 … use_backend backend-8080 if { … }

One backend for each rule and its filters, found by conditions in the order in which the routes come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.systems.haproxy.admin import HEALTH, SOCKET
from lab.systems.manifests.gateway_api import ANY, Entry, Match, Served, rules_of
from lab.systems.rendering import rendered
from lab.systems.system import Context, led_to

HOME = "/var/lib/haproxy"
CONFIG = f"{HOME}/conf/haproxy.cfg"
COMMAND = ("haproxy", "-W", "-db", "-f", CONFIG)
CHECKER = ("haproxy", "-c", "-f", CONFIG)


@dataclass(frozen=True, slots=True)
class Sections:
    """Directive → its arguments, of each section beside what the routes make of it; `server`: of each server's line.

    `slots`: servers that a backend has room for.
    """

    globals: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    frontend: Mapping[str, str] = field(default_factory=dict[str, str])
    backend: Mapping[str, str] = field(default_factory=dict[str, str])
    server: Mapping[str, str] = field(default_factory=dict[str, str])
    slots: int = 0


def files(proxy: str, ports: Sequence[Served], sections: Sections, context: Context) -> dict[str, str]:
    """Path → text of the configuration and its certificates. UsageError for what cannot be written or is not there."""
    members, certificates = led_to(context, ports, proxy)
    rules = rules_of(ports)
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
                "ways": [way for host in served.ordered for way in _ways(host, served.hosts[host], names)],
            }
            for served in ports
        ],
        backends=[
            {
                "name": names[place],
                "headers": {name: _quoted(value.replace("%", "%%")) for name, value in rule.headers.items()},
                "servers": members[rule.backend] if rule.backend else (),
            }
            for place, rule in rules.items()
        ],
    )
    return {
        CONFIG: text,
        f"{Path(SOCKET).parent}/.keep": "",
        **{_certificate(name): found["tls.crt"] + found["tls.key"] for name, found in certificates.items()},
    }


def _certificate(secret: str) -> str:
    return f"{HOME}/certs/{secret}.pem"


def _ways(host: str, entries: Sequence[Entry], names: Mapping[str, str]) -> Iterator[str]:
    """`BACKEND if CONDITIONS`, a line for each form of a path."""
    suffix = host.removeprefix("*")
    name = "hdr(host),field(1,:),lower"
    by_host = "" if host == ANY else f"{{ {name} -m end {suffix} }}" if suffix != host else f"{{ {name} {host} }}"
    for entry in entries:
        for by_path in _paths(entry.match):
            conditions = " ".join(filter(None, (by_host, by_path)))
            yield f"{names[entry.rule.place]}{f' if {conditions}' if conditions else ''}"


def _paths(match: Match) -> list[str]:
    if match.path_kind == "Exact":
        return [f"{{ path {_quoted(match.path)} }}"]
    stem = match.path.rstrip("/")
    return [f"{{ path {_quoted(stem)} }}", f"{{ path_beg {_quoted(stem + '/')} }}"] if stem else [""]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"
