"""The official nginx image, and the code shared by all systems whose proxy is an nginx.

The command in the image's manifest runs unchanged, with the nginx on PATH, which the lab's backend runs as well. The shared
parts are:

- the version of nginx, and the refusal of an invalid number of workers
- the configuration of gateways and controllers except ingress-nginx: they pass their own directives, sorted by block. The
  pinned nginx runs this configuration. It has no status page and no Lua.
- the number of requests that a running nginx has begun to answer, from the status page in ingress-nginx's configuration, which
  listens in its pod only:

    server accepts handled requests
     12 12 34                             →  {"requests": 34}

A request for the status page is counted, too. The count continues over a reload, and begins anew after a restart. With
`worker_processes auto`, an nginx with glibc starts a worker for each online CPU, whatever the CPU limit. An nginx with musl
starts a worker for each CPU that it may use.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.base.errors import refuse_if
from lab.systems import inside, programs
from lab.systems.manifests.gateway_api import ANY, Entry, ServedPort
from lab.systems.nginx import readback
from lab.systems.nginx.control import NginxControl
from lab.systems.rendering import render_template
from lab.systems.renewing import make_signal_renewal
from lab.systems.system import (
    ContainerProcess,
    Context,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    all_cpus,
    refuse_open_files,
    refuse_workers,
    require_command,
    resolve_targets,
)

FOLDER, VERSION = "/tmp/nginx", "1.31.3"
CONFIG, PID = f"{FOLDER}/nginx.conf", f"{FOLDER}/nginx.pid"
PORT, PATH = 10246, "/nginx_status"
"""The controller's StatusPort, and the path in its template (rootfs/etc/nginx/template/nginx.tmpl)."""
LOADER = "nginx: cache loader process"
"""The title of nginx's process that reads a cache from disk and ends a minute after each start or reload.

The proxy does not need this process.
"""


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives that one controller gives its nginx, grouped by the block of the configuration that contains them.

    They are written without semicolons. The fields main, events, http, upstream, server and location are named like their blocks;
    every other field has its own docstring.
    """

    main: Sequence[str] = ()
    events: Sequence[str] = ()
    http: Sequence[str] = ()
    upstream: Sequence[str] = ()
    """The directives before an upstream's servers, such as a balancing method, which nginx requires there."""
    after: Sequence[str] = ()
    """The directives after an upstream's servers."""
    server: Sequence[str] = ()
    location: Sequence[str] = ()
    member: str = ""
    """The parameters of each server of an upstream."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The headers that the controller's nginx sets on requests to a backend: name → value."""
    ready: str = "/nginx-ready"
    """The path of the readiness probe."""
    http2: bool = False
    """Whether clients can use HTTP/2."""
    blocks: Sequence[str] = ()
    """The blocks inside the http block, such as maps."""


def realise_nginx(context: Context, ports: Sequence[ServedPort], directives: Directives, proxy: str) -> Realisation:
    """Return how the lab starts the nginx version that it pins, with a configuration that serves the given ports and routes.

    Args:
        context: the facts about the container.
        ports: the ports with their routes; their TLS options are directives of nginx.
        directives: all further directives of the configuration.
        proxy: the name of the system, for error messages.

    Raises:
        UsageError: for a route or certificate that this configuration cannot express, and for a Secret that does not exist.

    """
    for served in ports:  # of several certificates of one kind nginx uses the last, whatever name is requested
        fault = f"several certificates on port {served.port} cannot be written for {proxy} here"
        several, remedy = len(served.secrets) > 1, "one for all names, or measure another system"
        refuse_if(several, "Gateway: spec.listeners", fault, remedy)
    members, certificates = resolve_targets(context, ports, proxy, never='$"\\', grpc=True)
    # nginx would refuse an upstream without servers
    upstreams = {backend.name: endpoints for backend, endpoints in members.items() if endpoints}
    pems = {name: f"{FOLDER}/ssl/{name}.pem" for name in certificates}
    text = render_template(
        Path(__file__).with_name("served.conf.j2"),
        folder=FOLDER,
        pid=PID,
        of=directives,
        upstreams=upstreams,
        ports=[
            {
                "port": served.port,
                "certificates": [pems[name] for name in served.secrets],
                "options": served.options,
                "hosts": [
                    {
                        "names": "_" if host == ANY else host,
                        "any": host == ANY,
                        "locations": [_render_location(entry, upstreams) for entry in entries],
                    }
                    for host, entries in served.hosts.items()
                ],
                "has_any": ANY in served.hosts,
            }
            for served in ports
        ],
    )
    program = programs.provide_wheel_program(context.container.place, "nginx", VERSION)
    command = (program.inside, "-e", "stderr", "-c", CONFIG)
    pairs = {pems[name]: files["tls.crt"] + files["tls.key"] for name, files in certificates.items()}
    return Realisation(
        command=command,
        env=context.container.env,
        files={CONFIG: text, **pairs},
        stop_signal=signal.SIGQUIT,
        checker=(*command, "-t", "-q"),
        programs={program.inside: program.file},
        about=program.about,
    )


def control(process: ContainerProcess) -> NginxControl:
    """Return the handle by which the lab makes a controller's nginx load changes, at most ten times a second."""
    return NginxControl(process, CONFIG, 10.0, process.started.command[0])


def _render_location(entry: Entry, upstreams: Mapping[str, object]) -> Mapping[str, object]:
    """Return the values that the template of the configuration needs for the `location` blocks of a path.

    A path prefix matches whole segments only. So `/a` becomes two locations, `= /a` and `/a/`.

    Args:
        entry: the path match with its rule.
        upstreams: name of an upstream → its endpoints, without upstreams that have none.

    """
    path = entry.match.path.replace("\\", "\\\\").replace('"', '\\"')
    matches = [f'= "{path}"']
    if entry.match.path_kind == "PathPrefix":
        matches = [f'"{path}"'] if path.endswith("/") else [f'= "{path}"', f'"{path}/"']
    rule = entry.rule
    to = rule.backend.name if rule.backend else ""
    return {"matches": matches, "to": to, "reached": to in upstreams, "headers": rule.headers, "grpc": rule.grpc}


def refuse_nginx_workers(place: str, workers: int, context: Context) -> None:
    """Refuse a number of nginx workers that is 0, or larger than the container's number of CPUs.

    nginx itself accepts 0, and then serves nothing.

    Args:
        place: the place of the setting, for the error message.
        workers: the configured number of workers.
        context: the facts about the container.

    Raises:
        NotMeasurableError: for more workers than CPUs, unless an annotation of the pod allows that.
        UsageError: for 0 workers.

    """
    fault = "nginx takes 0 and starts no worker: nothing would be served"
    refuse_if(workers == 0, place, fault, "auto, or a number from 1 on")
    refuse_workers(place, workers, context)


_REFUSED = {"worker_processes": refuse_nginx_workers, "worker_rlimit_nofile": refuse_open_files}


def realise(context: Context) -> Realisation:
    """Return how the lab starts nginx in place of a container of the official nginx image.

    The lab runs the command in the manifest, with the nginx on PATH, because the image's own entry point is not on this machine.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: when the manifest has no command, or its configuration sets 0 workers.
        NotMeasurableError: for more workers or open files than the container may have on this machine.

    """
    container = context.container
    argv = require_command(container)
    if context.pod.role == "proxy":
        sources = filter(None, (volume.source for volume in context.pod.volumes.values()))
        for name in (name for kind, name in sources if kind == "ConfigMap"):
            for key, text in context.objects.configmaps[name].items():
                for directive, refuse in _REFUSED.items():
                    for number in re.findall(rf"^\s*{directive}\s+(\d+)\s*;", text, re.MULTILINE):
                        refuse(f"ConfigMap/{name}: {key}: {directive}", int(number), context)
    return Realisation(argv, container.env, stop_signal=signal.SIGQUIT, checker=(*argv, "-t", "-q"))


def nginx_version() -> tuple[int, ...]:
    """Return the version of the nginx on PATH, such as `(1, 26, 3)`.

    Raises:
        UsageError: when there is no nginx, it prints no version, or it is older than 1.19.10, which the configuration needs.

    """
    text = programs.read_version("nginx", r"nginx/(\d+\.\d+\.\d+)")
    refuse_if(not text, "nginx", "not found on PATH", "Debian: apt install nginx-light")
    refuse_if(text == "unknown", "nginx -v", "printed no version", "put a real nginx first on PATH")
    version = tuple(map(int, text.split(".")))
    fault = f"nginx/{text} is too old: keepalive_time needs 1.19.10"
    refuse_if(version < (1, 19, 10), "nginx", fault, "install a newer one")
    return version


def count(process: ContainerProcess) -> Mapping[str, int]:
    """Return the number of requests that a running nginx shows on its status page, as `{"requests": number}`."""
    return parse_counts(process.ask(PORT, PATH))


def parse_counts(page: str) -> Mapping[str, int]:
    """Parse the text of nginx's status page, and return `{"requests": number}`; empty if the text has another form."""
    match = re.search(r"^ *\d+ +\d+ +(\d+) *$", page, re.MULTILINE)
    return {"requests": int(match[1])} if match else {}


def count_workers(processes: Sequence[tuple[int, str]]) -> int:
    """Return the number of nginx's worker processes in a list of processes, recognized by their titles.

    Masters, cache managers and workers that are shutting down have other titles, and are not counted.

    Args:
        processes: pairs (number of threads, command line).

    """
    return sum(title == "nginx: worker process" for _, title in processes)


SYSTEM = ProxySystem(
    name="nginx",
    image="nginx",
    realise=realise,
    # No control: its configuration is a ConfigMap, which a pod reads when it starts.
    renew=make_signal_renewal(signal.SIGHUP),  # the signal of `nginx -s reload`
    passing=LOADER,
    counters=count,
    count_script=f"if {{ {inside.compose_query(PORT, PATH)}; }} 2>/dev/null; then exit 0; fi",
    parse_counts=parse_counts,
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
