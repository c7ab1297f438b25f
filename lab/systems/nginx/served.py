"""What is served → nginx.conf, for controllers that are nginx below: their own directives, handed in by where they stand. Pure.

    Served(80, {"bench.lab.test": …}) and Directives(location=("proxy_buffering on",))   →   server { … location / { proxy_buffering on; … } }

Written for the pinned nginx (1.31.3), which has no status page and no Lua. Refuses what plain directives cannot say: matches of methods, headers
and query parameters (a controller's njs), mirrors, timeouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from lab.base.errors import UsageError
from lab.systems import programs
from lab.systems.manifests.gateway_api import ANY, Backend, Entry, Served
from lab.systems.manifests.objects import Member
from lab.systems.rendering import rendered
from lab.systems.system import Context

FOLDER = "/tmp/nginx"
CONFIG = f"{FOLDER}/nginx.conf"
PID = f"{FOLDER}/nginx.pid"
VERSION = "1.31.3"
CAN = ("regex", "weights", "request_headers", "redirect")
NEVER = '$"\\'


@dataclass(frozen=True, slots=True)
class Directives:
    """Of one controller, without their semicolons. `headers`: name → value of what it sets on requests to a backend; `health`: (port, path) of its readiness."""

    main: Sequence[str] = ()
    events: Sequence[str] = ()
    http: Sequence[str] = ()
    upstream: Sequence[str] = ()
    """Before an upstream's servers, where a balancing method must stand; `after`: behind them."""
    after: Sequence[str] = ()
    server: Sequence[str] = ()
    location: Sequence[str] = ()
    member: str = ""
    """Behind each server of an upstream."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    health: tuple[int, str] = (8081, "/nginx-ready")
    http2: bool = False
    blocks: Sequence[str] = ()
    """Of the http block, whole: maps."""


def program(place: str) -> programs.Program:
    """The pinned nginx that all of them run."""
    return programs.program(place, "nginx", VERSION)


def files(proxy: str, ports: Sequence[Served], directives: Directives, context: Context) -> dict[str, str]:
    """Path → text of the configuration and its certificates. `ports`: their options are directives. UsageError for what cannot be written or is not there."""
    for served in ports:
        if len(served.secrets) > 1:  # of one kind nginx takes the last, whatever the name that is asked for
            fault = f"several certificates on port {served.port} cannot be written for {proxy} here"
            raise UsageError("Gateway: spec.listeners", fault, "one for all names, or measure another system")
        for entries in served.hosts.values():
            for entry in entries:
                entry.rule.refuse(proxy, CAN, NEVER)
    backends = {_name(item): item for served in ports for item in served.backends}
    members = {
        name: context.objects.members(item.service, item.port, context.addresses) for name, item in backends.items()
    }
    reached = {name: found for name, found in members.items() if found}  # nginx would refuse an empty one
    splits = {
        _split(entry): entry for served in ports for found in served.hosts.values() for entry in found if _parted(entry)
    }
    text = rendered(
        Path(__file__).with_name("served.conf.j2"),
        folder=FOLDER,
        pid=PID,
        of=directives,
        upstreams=reached,
        splits={name: _shares(entry) for name, entry in splits.items()},
        ports=[
            {
                "port": served.port,
                "tls": bool(served.secrets),
                "certificates": [_certificate(name) for name in served.secrets],
                "options": served.options,
                "hosts": [
                    {
                        "names": "_" if host == ANY else host,
                        "any": host == ANY,
                        "locations": [_location(entry, reached) for entry in entries],
                    }
                    for host, entries in served.hosts.items()
                ],
                "has_any": ANY in served.hosts,
            }
            for served in ports
        ],
    )
    secrets = {name: context.objects.certificate(name, "TLS") for served in ports for name in served.secrets}
    return {
        CONFIG: text,
        **{_certificate(name): found["tls.crt"] + found["tls.key"] for name, found in secrets.items()},
    }


def _certificate(secret: str) -> str:
    return f"{FOLDER}/ssl/{secret}.pem"


def _name(backend: Backend) -> str:
    return f"{backend.service}-{backend.port}"


def _parted(entry: Entry) -> bool:
    return len(entry.rule.backends) > 1


def _split(entry: Entry) -> str:
    """A variable's name, one for each division that there is."""
    return "to_" + "_".join(f"{_name(item)}_{item.weight}" for item in entry.rule.backends).replace("-", "_")


def _shares(entry: Entry) -> list[tuple[str, str]]:
    """(share, upstream): hundredths of a percent, the rest to the last."""
    backends = [item for item in entry.rule.backends if item.weight]
    total = sum(item.weight for item in backends)
    parts = [(f"{float(Fraction(100 * item.weight, total)):.2f}%", _name(item)) for item in backends]
    return [*parts[:-1], *(("*", name) for _, name in parts[-1:])]


def _location(entry: Entry, reached: Mapping[str, Sequence[Member]]) -> Mapping[str, object]:
    """A prefix means whole elements: /a is `= /a` and `/a/`."""
    match, rule = entry.match, entry.rule
    path = match.path.replace("\\", "\\\\").replace('"', '\\"')
    matches = {
        "Exact": [f'= "{path}"'],
        "RegularExpression": [f'~ "^{path.removeprefix("^")}"'],
        "PathPrefix": [f'"{path}"'] if path.endswith("/") else [f'= "{path}"', f'"{path}/"'],
    }[match.path_kind]
    names = [_name(item) for item in rule.backends]
    redirect = rule.redirect
    return {
        "matches": matches,
        "to": f"${_split(entry)}" if _parted(entry) else names[0] if names else "",
        "reached": bool(names) and all(name in reached for name in names),
        "headers": {
            **rule.request_headers.set,
            **rule.request_headers.add,
            **dict.fromkeys(rule.request_headers.remove, ""),
        },
        "redirect": redirect
        and {
            "status": redirect.status,
            "url": f"{redirect.scheme or '$scheme'}://{redirect.host or '$host'}"
            f"{f':{redirect.port}' if redirect.port else ''}{redirect.path or '$request_uri'}",
        },
    }
