"""Traefik: the real one, in the version that its image names. With its file provider, its file is written from Gateway API's objects; as a
controller, on the target `apiserver`, it reads Ingresses by its ingress-nginx provider or its Kubernetes Ingress provider.

Settings are its command line, and a ConfigMap `traefik`, whose keys are paths in the file (`PARTS`), laid over what is written here; where any of
`serversTransport` is set, every service has one of its own; `tls` is each router's, `options` those of TLS by default.
Without `GOMAXPROCS` (Go 1.25) it runs as many threads at once as CPUs that it may use, and no more than its limit, rounded up, but two. A
controller's control plane and proxy are one process, so its watches and configuration are in the proxy's CPU and memory, which those of other
controllers are not. Check kind `traefik`, of its API and its metrics, which listen on its pod's own loopback alone:

    name: service.loadBalancer.serversTransport      /api/rawdata, of every service (router) of its provider
    name: entrypoint.http2.maxConcurrentStreams      /api/entrypoints, of those that the load comes to
    name: overview.features.accessLog                /api/overview
    name: metrics.go_gc_gogc_percent                 /metrics
    name: version                                    /api/version

What the command line says it tells nobody: that is read off its process, by check kind `argument`. It counts requests only where metrics
have labels, which cost.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.base.errors import UsageError
from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import programs
from lab.systems.manifests.gateway_api import ANY, Backend, Match, Served
from lab.systems.manifests.objects import Member
from lab.systems.reading import Reading, asked, compared, given, metric, of_parts
from lab.systems.renewing import WatchedFiles
from lab.systems.settings import Settings, merged, of_configmap
from lab.systems.system import (
    KLOG_FAULT,
    Certificates,
    Context,
    Controller,
    Members,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    expect,
    led_to,
    refuse_workers,
    within_up,
    words_in,
)

FILE = "/srv/traefik/dynamic.yaml"
PARTS = ("router", "service", "serversTransport", "tls", "options")
TRANSPORT, MARK = "lab", "lab-"
"""The name of a service's transport; how that of a middleware begins that nobody uses, whose rest is the version of the file that it lies in."""
_NOBODY = "nobody"
"""Of a service without servers, to which a rule without a Service leads."""


def render(
    ports: Sequence[Served],
    members: Members,
    certificates: Certificates,
    entry_points: Mapping[int, str],
    settings: Settings,
) -> str:
    """`entry_points`: port → its name in the command line. UsageError for a port that has none."""
    services = {_name(backend): _service(found, settings) for backend, found in members.items()}
    routers, middlewares = dict[str, Any](), dict[str, Any]()
    for port in ports:
        if port.port not in entry_points:
            fault = f"no entry point has port {port.port}"
            raise UsageError("Deployment/proxy: args", fault, f"--entrypoints.NAME.address=:{port.port}")
        entries = [(host, entry) for host, found in port.hosts.items() for entry in found]
        for number, (host, entry) in enumerate(entries):
            name, rule = f"{port.port}-{number}", entry.rule
            if rule.headers:
                middlewares[f"{name}-headers"] = {"headers": {"customRequestHeaders": dict(rule.headers)}}
            if rule.backend is None:
                services[_NOBODY] = _service((), settings)
            router = {
                "entryPoints": [entry_points[port.port]],
                "rule": _rule(host, entry.match),
                "priority": len(entries) - number if host != ANY else 1,
                "service": _name(rule.backend) if rule.backend else _NOBODY,
                **({"middlewares": [f"{name}-headers"]} if rule.headers else {}),
                **({"tls": merged({}, settings["tls"])} if port.secrets else {}),
            }
            routers[name] = merged(router, settings["router"])
    http = {"routers": routers, "services": services}
    if settings["serversTransport"]:
        http["serversTransports"] = {TRANSPORT: merged({}, settings["serversTransport"])}
    pairs = [{"certFile": found["tls.crt"], "keyFile": found["tls.key"]} for found in certificates.values()]
    options = {"options": {"default": merged({}, settings["options"])}} if settings["options"] else {}
    tls = {"tls": {"certificates": pairs, **options}} if pairs else {}
    mark = hashlib.sha256(json.dumps([http, middlewares, tls]).encode()).hexdigest()[:12]
    middlewares[f"{MARK}{mark}"] = {"stripPrefix": {"prefixes": ["/"]}}
    return json.dumps({"http": {**http, "middlewares": middlewares}, **tls}, indent=1)


def version(text: str) -> str:
    """Of a file."""
    return next(name.removeprefix(MARK) for name in json.loads(text)["http"]["middlewares"] if name.startswith(MARK))


def _name(backend: Backend) -> str:
    return f"{backend.service}-{backend.port}"


def _service(members: Sequence[Member], settings: Settings) -> Mapping[str, Any]:
    urls = [{"url": f"http://{member.address}:{member.port}"} for member in members]
    own = {"serversTransport": TRANSPORT} if settings["serversTransport"] else {}
    return merged({"loadBalancer": {"servers": urls, **own}}, settings["service"])


def _rule(host: str, match: Match) -> str:
    """As Traefik's own Gateway API provider writes them: a prefix is one of whole segments."""
    prefix = match.path.rstrip("/")
    path = f"(Path(`{prefix}`) || PathPrefix(`{prefix}/`))" if prefix else "PathPrefix(`/`)"
    if match.path_kind == "Exact":
        path = f"Path(`{match.path}`)"
    by_host = f"HostRegexp(`^[^.]+{re.escape(host[1:])}$`)" if host.startswith("*.") else f"Host(`{host}`)"
    return path if host == ANY else f"{by_host} && {path}"


PORT = 8080
RAW, METRICS = "/api/rawdata", "/metrics"
CHECK, _CHECK_INSIDE = Path(__file__).with_name("check.bash"), "/srv/traefik/check.bash"
_HEALTHCHECK = """\
said=$("$0" healthcheck "$@" 2>&1) ||
! printf '%s' "$said" | sed -n 's/.*"error":"command healthcheck error: \\(.*\\)","time".*/\\1/p' | grep . >&2"""
"""It has no checker; its healthcheck reads the same command line first, and fails for another reason where it takes that."""
_ADDRESS = re.compile(r"--entrypoints\.(\w+)\.address=[\d.]*:(\d+)", re.IGNORECASE)
_FILE_PROVIDER = f"--providers.file.filename={FILE}"
_KUBERNETES_PROVIDER = re.compile(r"--providers\.kubernetesingress(nginx)?(=true|\.\w+=.*)?", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[\d*m")
_FAULTS = (
    re.compile(
        r"^\S+ (?:ERR|FTL|PNC) (?P<words>.*)$"
    ),  # its log: when, level, words, and what they are about as NAME=VALUE
    KLOG_FAULT,  # its Kubernetes client, of what it may not read
    re.compile(
        r'^\{.*"error":"(?:command traefik error: )?(?P<words>[^"]*)".*$'
    ),  # its command line, before it has a log
    re.compile(r"^(?P<words>panic: .*)$"),
)
_ABOUT_INGRESS = re.compile(r"\bingress=", re.IGNORECASE)
_PROVIDER, _INTERNAL = "@file", "@internal"
"""End the names of what its file has, and of what it has by itself: its API, its ping."""
_OWN = ("traefik", "ping")
"""Entry points that the load does not come to."""


def realise(context: Context) -> Realisation:
    container = context.container
    held = not container.command and _FILE_PROVIDER in container.args
    expect(container, held, f"no command, and {_FILE_PROVIDER} among the arguments", "traefik")
    program = _program(context)
    ports = context.objects.served("lab.test/traefik")
    entry_points = {int(found[2]): found[1] for arg in container.args if (found := _ADDRESS.fullmatch(arg))}
    own = of_configmap(context.objects, "traefik", PARTS)
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        files={
            FILE: render(ports, *led_to(context, ports, "Traefik"), entry_points, own),
            _CHECK_INSIDE: CHECK.read_text(),
        },
        checker=("bash", _CHECK_INSIDE, program.inside, *container.args),
        programs={program.inside: program.file},
        about=program.about,
    )


def control(process: Process) -> WatchedFiles:
    def served(files: Mapping[str, str]) -> bool:
        return taken(process.ask(PORT, RAW)) == {version(files[FILE])}

    return WatchedFiles(process, "traefik", lambda path: path == FILE, served)


def realise_controller(context: Context) -> Realisation:
    """From the same wheel, on the machine's own files. UsageError without a Kubernetes provider: nobody writes the file of its file provider."""
    container = context.container
    held = not container.command and any(map(_KUBERNETES_PROVIDER.fullmatch, container.args))
    expect(container, held, "no command, and a Kubernetes provider among the arguments", "traefik-ingress")
    program = _program(context)
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        checker=("sh", "-c", _HEALTHCHECK, program.inside, *container.args),
        programs={program.inside: program.file},
        about=f"{program.about} (control plane and proxy are one process)",
    )


def _program(context: Context) -> programs.Program:
    """NotMeasurableError for more threads of Go than the container has CPUs here."""
    threads = context.container.env.get("GOMAXPROCS", "")
    if threads.isdigit():
        refuse_workers(f"{context.container.place}.env[GOMAXPROCS]", int(threads), context, "threads")
    return programs.of_image(context.container, "traefik")


def ignored(log: Iterable[str]) -> list[str]:
    """What it says of Ingresses, which it serves without that, or not at all."""
    return [words for words in complaints(log) if _ABOUT_INGRESS.search(words)]


def complaints(log: Iterable[str]) -> list[str]:
    return words_in([_COLOUR.sub("", line) for line in log], *_FAULTS)


def taken(raw: str) -> set[str]:
    """Versions of the files that it serves, from RAW."""
    names = json.loads(raw).get("middlewares", {})
    return {name.removeprefix(MARK).removesuffix(_PROVIDER) for name in names if name.startswith(MARK)}


def _read(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")

    if part == "metrics":
        return metric(system, check, PORT, METRICS, path)
    pages = {"version": "/api/version", "overview": "/api/overview", "entrypoint": "/api/entrypoints"}
    page = pages.get(part, RAW)
    found = json.loads(asked(system, check, PORT, page))
    match part:
        case "version":
            return compared(check, found["Version"])
        case "overview":
            parts = {part: [found]}
        case "entrypoint":
            parts = {part: [item for item in found if item["name"] not in _OWN]}
        case _:
            parts = {
                kind: [item for name, item in found.get(f"{kind}s", {}).items() if not name.endswith(_INTERNAL)]
                for kind in ("router", "service")
            }
    return of_parts(check, parts, part, path, page)


SYSTEM = ProxySystem(
    name="traefik",
    image="traefik",
    realise=realise,
    note="routes and endpoints change by the file that it watches, which it reads every 2 s at most",
    by_tag=True,
    control=control,
    # No counters: it counts requests only where its metrics have labels, which cost some on every request.
    controllers=(
        # It makes no new workers, as routes change in the one process; it never loads a file anew, and tells of no change.
        Controller(
            image="traefik",
            realise=realise_controller,
            proxy="traefik",
            says=("stdout", "stderr"),
            ignored=ignored,
            complaints=complaints,
        ),
    ),
    migrations={"traefik": "migrate.tsv", "traefik-ingress-nginx": "migrate-ingress-nginx.tsv"},
    workers=Workers(
        rules={"traefik": within_up},
        variables=("GOMAXPROCS",),
        process="traefik",
        port=PORT,
        page=METRICS,
        metric="go_sched_gomaxprocs_threads",
    ),
    readbacks={"traefik": ReadbackKind(read=_read)},
)
