"""The official nginx image: its command as it stands, with the nginx on PATH, which the lab's backend runs as well.

And what all systems share that are an nginx below: its version, the refusal of workers, the configuration of gateways and controllers but ingress-nginx
(their own directives, handed in by where they stand, for the pinned nginx, which has no status page and no Lua), and what a running one tells of itself on
the status page that ingress-nginx gives it, in its pod alone: requests it has begun to answer.

    server accepts handled requests
     12 12 34                             →  {"requests": 34}

The page asks for itself, so each look at it is a request, too. A reload goes on counting, a restart begins anew. Without a number,
`worker_processes auto` is the CPUs that are online, limit or not, with glibc; with musl those that it may use.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import refuse_if
from lab.systems import inside, programs
from lab.systems.manifests.gateway_api import ANY, Backend, Entry, Served
from lab.systems.nginx import readback
from lab.systems.nginx.control import NginxControl
from lab.systems.rendering import rendered
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    all_cpus,
    command,
    led_to,
    refuse_open_files,
    refuse_workers,
)

FOLDER, VERSION = "/tmp/nginx", "1.31.3"
CONFIG, PID = f"{FOLDER}/nginx.conf", f"{FOLDER}/nginx.pid"
PORT, PATH = 10246, "/nginx_status"
"""StatusPort, and where the controller's template has it (rootfs/etc/nginx/template/nginx.tmpl)."""
LOADER = "nginx: cache loader process"
"""It reads what a cache has on disk and ends by itself, a minute after each start or reload: no process that a proxy must have."""


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
    """The pinned nginx, which serves these ports; their options are directives. `proxy`: its controller's name in what is refused.

    UsageError for what cannot be written or is not there.
    """
    for served in ports:  # of several of one kind nginx takes the last, whatever the name that is asked for
        fault = f"several certificates on port {served.port} cannot be written for {proxy} here"
        several, remedy = len(served.secrets) > 1, "one for all names, or measure another system"
        refuse_if(several, "Gateway: spec.listeners", fault, remedy)
    members, certificates = led_to(context, ports, proxy, never='$"\\')
    reached = {_name(item): found for item, found in members.items() if found}  # nginx would refuse an empty one
    pems = {name: f"{FOLDER}/ssl/{name}.pem" for name in certificates}
    text = rendered(
        Path(__file__).with_name("served.conf.j2"),
        folder=FOLDER,
        pid=PID,
        of=directives,
        upstreams=reached,
        ports=[
            {
                "port": served.port,
                "certificates": [pems[name] for name in served.secrets],
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
    program = programs.program(context.container.place, "nginx", VERSION)
    command = (program.inside, "-e", "stderr", "-c", CONFIG)
    pairs = {pems[name]: found["tls.crt"] + found["tls.key"] for name, found in certificates.items()}
    return Realisation(
        command=command,
        env=context.container.env,
        files={CONFIG: text, **pairs},
        stop_signal=signal.SIGQUIT,
        checker=(*command, "-t", "-q"),
        programs={program.inside: program.file},
        about=program.about,
    )


def control(process: Process) -> NginxControl:
    """These controllers reload as soon as something changed; ten times a second at the most here."""
    return NginxControl(process, CONFIG, 10.0, process.started.command[0])


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


def refuse_nginx_workers(place: str, workers: int, context: Context) -> None:
    """NotMeasurableError for more workers than CPUs; a UsageError for 0, which nginx takes."""
    fault = "nginx takes 0 and starts no worker: nothing would be served"
    refuse_if(workers == 0, place, fault, "auto, or a number from 1 on")
    refuse_workers(place, workers, context)


_REFUSED = {"worker_processes": refuse_nginx_workers, "worker_rlimit_nofile": refuse_open_files}


def realise(context: Context) -> Realisation:
    """Refuses to guess a command: the image's own entry point is not on this machine."""
    container = context.container
    own = command(container)
    if context.pod.role == "proxy":
        sources = filter(None, (volume.source for volume in context.pod.volumes.values()))
        for name in (name for kind, name in sources if kind == "ConfigMap"):
            for key, text in context.objects.configmaps[name].items():
                for directive, refuse in _REFUSED.items():
                    for number in re.findall(rf"^\s*{directive}\s+(\d+)\s*;", text, re.MULTILINE):
                        refuse(f"ConfigMap/{name}: {key}: {directive}", int(number), context)
    return Realisation(own, container.env, stop_signal=signal.SIGQUIT, checker=(*own, "-t", "-q"))


def nginx_version() -> tuple[int, ...]:
    """Of the nginx on PATH. UsageError when it is too old to state what the controller states."""
    told = programs.version_of("nginx", r"nginx/(\d+\.\d+\.\d+)")
    refuse_if(not told, "nginx", "not found on PATH", "Debian: apt install nginx-light")
    refuse_if(told == "unknown", "nginx -v", "told no version", "put a real nginx first on PATH")
    version = tuple(map(int, told.split(".")))
    fault = f"nginx/{told} is too old: keepalive_time needs 1.19.10"
    refuse_if(version < (1, 19, 10), "nginx", fault, "install a newer one")
    return version


def count(process: Process) -> Mapping[str, int]:
    """Return what the status page counts."""
    return counted(process.ask(PORT, PATH))


def counted(page: str) -> Mapping[str, int]:
    """Empty for anything else than such a page."""
    found = re.search(r"^ *\d+ +\d+ +(\d+) *$", page, re.MULTILINE)
    return {"requests": int(found[1])} if found else {}


def count_workers(processes: Sequence[tuple[int, str]]) -> int:
    """Count workers by their titles: a master, a cache's manager and workers that shut down are none."""
    return sum(title == "nginx: worker process" for _, title in processes)


SYSTEM = ProxySystem(
    name="nginx",
    image="nginx",
    realise=realise,
    # No control: its configuration is a ConfigMap, which a pod reads when it starts.
    renew=by_signal(signal.SIGHUP),  # as `nginx -s reload` tells it
    passing=LOADER,
    counters=count,
    count_script=f"if {{ {inside.asked(PORT, PATH)}; }} 2>/dev/null; then exit 0; fi",
    parse_counts=counted,
    versions={"nginx": lambda: ".".join(map(str, nginx_version()))},
    of_backend=True,
    workers=Workers(
        rules={"nginx": all_cpus},
        directive=re.compile(r"^\s*worker_processes\s+(\d+)\s*;", re.MULTILINE),
        count=count_workers,
    ),
    readbacks={
        "nginx": ReadbackKind(
            read=readback.read,
            possible=frozenset({"context", "among", "times"}),
            spoken="nginx -T: {name}{context}",
            workers={"worker_processes": "workers"},
            open_files=frozenset({"worker_rlimit_nofile"}),
        )
    },
)
