"""What is served → nginx.conf, for controllers that are nginx below: their own directives, handed in by where they stand. Pure.

    Served(80, {"bench.lab.test": …}) and Directives(location=("proxy_buffering on",))   →   server { … location / { proxy_buffering on; … } }

Written for the pinned nginx (1.31.3), which has no status page and no Lua.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import UsageError
from lab.systems import programs
from lab.systems.manifests.gateway_api import ANY, Backend, Entry, Served
from lab.systems.nginx.control import NginxControl
from lab.systems.rendering import rendered
from lab.systems.system import Context, Process, Realisation, led_to

FOLDER = "/tmp/nginx"
CONFIG = f"{FOLDER}/nginx.conf"
PID = f"{FOLDER}/nginx.pid"
VERSION = "1.31.3"
NEVER = '$"\\'


@dataclass(frozen=True, slots=True)
class Directives:
    """Of one controller, without their semicolons. `headers`: name → value of what it sets on requests to a backend; `ready`: the path of its readiness."""

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
    ready: str = "/nginx-ready"
    http2: bool = False
    blocks: Sequence[str] = ()
    """Of the http block, whole: maps."""


def started(context: Context, ports: Sequence[Served], directives: Directives, proxy: str) -> Realisation:
    """The pinned nginx, which serves these ports; their options are directives. `proxy`: its controller's name in what is refused."""
    program = programs.program(context.container.place, "nginx", VERSION)
    command = (program.inside, "-e", "stderr", "-c", CONFIG)
    return Realisation(
        command=command,
        env=context.container.env,
        files=_files(proxy, ports, directives, context),
        stop_signal=signal.SIGQUIT,
        checker=(*command, "-t", "-q"),
        programs={program.inside: program.file},
        about=program.about,
    )


def control(process: Process) -> NginxControl:
    """These controllers reload as soon as something changed; ten times a second at the most here."""
    return NginxControl(process, CONFIG, 10.0, process.started.command[0])


def _files(proxy: str, ports: Sequence[Served], directives: Directives, context: Context) -> dict[str, str]:
    """Path → text of the configuration and its certificates. UsageError for what cannot be written or is not there."""
    for served in ports:
        if len(served.secrets) > 1:  # of one kind nginx takes the last, whatever the name that is asked for
            fault = f"several certificates on port {served.port} cannot be written for {proxy} here"
            raise UsageError("Gateway: spec.listeners", fault, "one for all names, or measure another system")
    members, certificates = led_to(context, ports, proxy, never=NEVER)
    reached = {_name(item): found for item, found in members.items() if found}  # nginx would refuse an empty one
    text = rendered(
        Path(__file__).with_name("served.conf.j2"),
        folder=FOLDER,
        pid=PID,
        of=directives,
        upstreams=reached,
        ports=[
            {
                "port": served.port,
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
    pairs = {_certificate(name): found["tls.crt"] + found["tls.key"] for name, found in certificates.items()}
    return {CONFIG: text, **pairs}


def _certificate(secret: str) -> str:
    return f"{FOLDER}/ssl/{secret}.pem"


def _name(backend: Backend) -> str:
    return f"{backend.service}-{backend.port}"


def _location(entry: Entry, reached: Mapping[str, object]) -> Mapping[str, object]:
    """A prefix means whole elements: /a is `= /a` and `/a/`."""
    path = entry.match.path.replace("\\", "\\\\").replace('"', '\\"')
    matches = [f'= "{path}"']
    if entry.match.path_kind == "PathPrefix":
        matches = [f'"{path}"'] if path.endswith("/") else [f'= "{path}"', f'"{path}/"']
    to = _name(entry.rule.backend) if entry.rule.backend else ""
    return {"matches": matches, "to": to, "reached": to in reached, "headers": entry.rule.headers}
