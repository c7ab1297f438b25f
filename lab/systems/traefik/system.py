"""Traefik itself, in the version that its image names: with its file provider, and as a controller of Ingresses.

With the file provider, the lab writes Traefik's file from Gateway API's objects. As a controller, on the target `apiserver`,
Traefik reads Ingresses by its ingress-nginx provider or its Kubernetes Ingress provider.

Settings are Traefik's command line, and a ConfigMap `traefik`, whose keys are paths in the file (`PARTS`). The ConfigMap
changes the file that the lab writes. If a key begins with `serversTransport`, every service uses a transport with these
settings. `tls` is for each router, and `options` are the default options of TLS. The `scheme` of `server` becomes the scheme of
each server's URL. Without `GOMAXPROCS` (Go 1.25), Traefik runs as many threads at once as CPUs that it may use, and at most its
CPU limit, rounded up, at least 2.

As a controller, Traefik is control plane and proxy in one process. So the measured CPU and memory of the proxy include the
control plane's share, in contrast to other controllers.

The read-back checks (tests whether a setting took effect) of the kind `traefik` read Traefik's API and metrics, which listen
only on the loopback of its pod:

    name: service.loadBalancer.serversTransport      /api/rawdata, of every service (or router) of its provider
    name: server.scheme                              the same, of every server of a service: `http` or `h2c`, from its URL
    name: entrypoint.http2.maxConcurrentStreams      /api/entrypoints, of those entry points that the load comes to
    name: overview.features.accessLog                /api/overview
    name: metrics.go_gc_gogc_percent                 /metrics
    name: version                                    /api/version

Traefik does not report its command line: the check kind `argument` reads it from the process. Traefik counts requests only
where its metrics have labels, and labels cost.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab.base.errors import refuse_if
from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import programs
from lab.systems.manifests.gateway_api import ANY, Match, ServedPort
from lab.systems.manifests.objects import Endpoint
from lab.systems.reading import Reading, check_metric, check_parts, compare_value, request_page, require_key
from lab.systems.renewing import WatchedFiles
from lab.systems.settings import Settings, merge_settings, read_configmap_settings
from lab.systems.system import (
    KLOG_FAULT,
    Certificates,
    ContainerProcess,
    Context,
    Controller,
    Members,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    extract_messages,
    refuse_unexpected,
    refuse_workers,
    resolve_targets,
    within_up,
)

FILE = "/srv/traefik/dynamic.yaml"
PARTS = ("router", "service", "server", "serversTransport", "tls", "options")
TRANSPORT, MARK = "lab", "lab-"
"""The name of the services' transport, and the beginning of the name of an unused middleware.

The rest of that middleware's name is the version of the file that defines the middleware.
"""
_DEFAULT_OPTIONS = ("options", "default")
_EMPTY_SERVICE = "nobody"
"""The name of a service without servers, to which a rule without a Service leads."""


def render(
    ports: Sequence[ServedPort],
    members: Members,
    certificates: Certificates,
    entry_points: Mapping[int, str],
    settings: Settings,
) -> str:
    """Return the text of the file from which Traefik's file provider reads routes and services.

    Args:
        ports: the ports that Traefik serves, with their routes.
        members: port of a Service → its ready endpoints.
        certificates: name of a Secret → its files.
        entry_points: port → name of the entry point for it on Traefik's command line.
        settings: part of the file → the settings from the ConfigMap that change this part.

    Raises:
        UsageError: for a port that has no entry point.

    """
    services = {backend.name: _render_service(items, settings) for backend, items in members.items()}
    routers, middlewares = dict[str, Any](), dict[str, Any]()
    for port in ports:
        place, fault = "Deployment/proxy: args", f"no entry point has port {port.port}"
        refuse_if(port.port not in entry_points, place, fault, f"--entrypoints.NAME.address=:{port.port}")
        entries = [(host, entry) for host, items in port.hosts.items() for entry in items]
        for number, (host, entry) in enumerate(entries):
            name, rule = f"{port.port}-{number}", entry.rule
            if rule.headers:
                middlewares[f"{name}-headers"] = {"headers": {"customRequestHeaders": dict(rule.headers)}}
            if rule.backend is None:
                services[_EMPTY_SERVICE] = _render_service((), settings)
            router = {
                "entryPoints": [entry_points[port.port]],
                "rule": _render_rule(host, entry.match),
                "priority": len(entries) - number if host != ANY else 1,
                "service": rule.backend.name if rule.backend else _EMPTY_SERVICE,
                **({"middlewares": [f"{name}-headers"]} if rule.headers else {}),
                **(
                    {"tls": merge_settings({}, [item for item in settings["tls"] if item.path[:2] != _DEFAULT_OPTIONS])}
                    if port.secrets
                    else {}
                ),
            }
            routers[name] = merge_settings(router, settings["router"])
    http = {"routers": routers, "services": services}
    if settings["serversTransport"]:
        http["serversTransports"] = {TRANSPORT: merge_settings({}, settings["serversTransport"])}
    # The table of the migration calls the default options by their path in Traefik's own file.
    of_default = [item for item in settings["tls"] if item.path[:2] == _DEFAULT_OPTIONS]
    moved = [replace(item, path=item.path[2:]) for item in of_default]
    pairs = [{"certFile": files["tls.crt"], "keyFile": files["tls.key"]} for files in certificates.values()]
    options = (
        {"options": {"default": merge_settings({}, [*settings["options"], *moved])}}
        if settings["options"] or moved
        else {}
    )
    tls = {"tls": {"certificates": pairs, **options}} if pairs else {}
    mark = hashlib.sha256(json.dumps([http, middlewares, tls]).encode()).hexdigest()[:12]
    middlewares[f"{MARK}{mark}"] = {"stripPrefix": {"prefixes": ["/"]}}
    return json.dumps({"http": {**http, "middlewares": middlewares}, **tls}, indent=1)


def read_version(text: str) -> str:
    """Return the version that the lab gave to a file for Traefik's file provider, from the text of the file.

    The version is a hash, which the lab writes into the name of an unused middleware.
    """
    return next(name.removeprefix(MARK) for name in json.loads(text)["http"]["middlewares"] if name.startswith(MARK))


def _render_service(members: Sequence[Endpoint], settings: Settings) -> Mapping[str, Any]:
    server = merge_settings({"scheme": "http"}, settings["server"])
    scheme = server.pop("scheme")
    urls = [{"url": f"{scheme}://{member.address}:{member.port}", **server} for member in members]
    transport = {"serversTransport": TRANSPORT} if settings["serversTransport"] else {}
    return merge_settings({"loadBalancer": {"servers": urls, **transport}}, settings["service"])


def _render_rule(host: str, match: Match) -> str:
    """Return the rule of a Traefik router for a host and a path, as Traefik's own Gateway API provider writes it.

    A path prefix matches whole segments only: `/a` matches `/a` and `/a/b`, but not `/ab`.

    Args:
        host: the host, which may be a wildcard, or `*` for any host.
        match: the path, and whether it is exact or a prefix.

    """
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
"""The script that checks the command line of a controller.

Traefik has no checker. Its command `healthcheck` first reads the same command line. If that is accepted, it fails for another
reason, which the script ignores.
"""
_ADDRESS = re.compile(r"--entrypoints\.(\w+)\.address=[\d.]*:(\d+)", re.IGNORECASE)
_FILE_PROVIDER = f"--providers.file.filename={FILE}"
_KUBERNETES_PROVIDER = re.compile(r"--providers\.kubernetesingress(nginx)?(=true|\.\w+=.*)?", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[\d*m")
_FAULTS = (
    re.compile(
        r"^\S+ (?:ERR|FTL|PNC) (?P<words>.*)$"
    ),  # its log: time, level, message, and what the message is about as NAME=VALUE
    KLOG_FAULT,  # its Kubernetes client, about what it may not read
    re.compile(
        r'^\{.*"error":"(?:command traefik error: )?(?P<words>[^"]*)".*$'
    ),  # its command line, before it has a log
    re.compile(r"^(?P<words>panic: .*)$"),
)
_ABOUT_INGRESS = re.compile(r"\bingress=", re.IGNORECASE)
_PROVIDER, _INTERNAL = "@file", "@internal"
"""The ends of the names of objects from the file, and of Traefik's built-in objects, such as its API and ping."""
_UNLOADED = ("traefik", "ping")
"""The entry points that the load does not use."""


def realise(context: Context) -> Realisation:
    """Return how the lab starts Traefik in place of a container of Traefik's image, with routes from a file.

    The file serves the Gateways of Traefik's class (a GatewayClass with the controller `lab.test/traefik`).

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for a route that the file cannot express here, a container without the required arguments, or a version of
            Traefik that is not pinned in pyproject.toml.
        NotMeasurableError: for more threads than the container has CPUs.

    """
    container = context.container
    held = not container.command and _FILE_PROVIDER in container.args
    refuse_unexpected(container, held, f"no command, and {_FILE_PROVIDER} among the arguments", "traefik")
    program = _provide_program(context)
    ports = context.objects.served("lab.test/traefik")
    entry_points = {int(match[2]): match[1] for arg in container.args if (match := _ADDRESS.fullmatch(arg))}
    settings = read_configmap_settings(context.objects, "traefik", PARTS)
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        files={
            FILE: render(ports, *resolve_targets(context, ports, "Traefik"), entry_points, settings),
            _CHECK_INSIDE: CHECK.read_text(),
        },
        checker=("bash", _CHECK_INSIDE, program.inside, *container.args),
        programs={program.inside: program.file},
        about=program.about,
    )


def control(process: ContainerProcess) -> WatchedFiles:
    """Return the handle by which the lab makes a running Traefik load changes.

    The handle writes the file that Traefik watches, and needs no signal.
    """

    def served(files: Mapping[str, str]) -> bool:
        return list_served_versions(process.ask(PORT, RAW)) == {read_version(files[FILE])}

    return WatchedFiles(process, "traefik", lambda path: path == FILE, served)


def realise_controller(context: Context) -> Realisation:
    """Return how the lab starts Traefik as a controller on the target `apiserver`, where it reads Ingresses from the API server.

    The program comes from the wheel (a Python package file) that is also used on the local target.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: when the arguments name no Kubernetes provider; on this target nothing writes the file of the file provider.
        NotMeasurableError: for more threads than the container has CPUs.

    """
    container = context.container
    held = not container.command and any(map(_KUBERNETES_PROVIDER.fullmatch, container.args))
    refuse_unexpected(container, held, "no command, and a Kubernetes provider among the arguments", "traefik-ingress")
    program = _provide_program(context)
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        checker=("sh", "-c", _HEALTHCHECK, program.inside, *container.args),
        programs={program.inside: program.file},
        about=f"{program.about} (control plane and proxy are one process)",
    )


def _provide_program(context: Context) -> programs.Program:
    """Return the program Traefik in the version that the tag of the container's image names.

    Raises:
        UsageError: when this version is not pinned in pyproject.toml.
        NotMeasurableError: when the container's GOMAXPROCS is larger than its number of CPUs.

    """
    threads = context.container.env.get("GOMAXPROCS", "")
    if threads.isdigit():
        refuse_workers(f"{context.container.place}.env[GOMAXPROCS]", int(threads), context, "threads")
    return programs.provide_for_image(context.container, "traefik")


def ignored(log: Iterable[str]) -> list[str]:
    """Return the errors in Traefik's log that are about Ingresses, each once.

    Traefik serves such an Ingress without the faulty part, or not at all.

    Args:
        log: the lines of the log.

    """
    return [text for text in complaints(log) if _ABOUT_INGRESS.search(text)]


def complaints(log: Iterable[str]) -> list[str]:
    """Return the messages of all errors in Traefik's log, each once.

    Args:
        log: the lines of the log.

    """
    return extract_messages([_COLOUR.sub("", line) for line in log], *_FAULTS)


def list_served_versions(raw: str) -> set[str]:
    """Return the versions (hashes) of the configuration files that Traefik serves now.

    The lab writes a file's version into the name of an unused middleware, and Traefik lists its middlewares.

    Args:
        raw: the JSON text of Traefik's page `/api/rawdata`.

    """
    names = json.loads(raw).get("middlewares", {})
    return {name.removeprefix(MARK).removesuffix(_PROVIDER) for name in names if name.startswith(MARK)}


def _read(system: System, check: Check) -> Reading:
    """Perform a read-back check of kind `traefik`: compare a value in the running Traefik with the expected one.

    The check's name is `version`, `metrics.NAME`, or a path that begins with `overview`, `entrypoint`, `router` or `service`.

    Raises:
        UnreadableError: when Traefik does not answer, or has no such part.

    """
    part, _, path = require_key(check, "name").partition(".")

    if part == "metrics":
        return check_metric(system, check, PORT, METRICS, path)
    page = {"version": "/api/version", "overview": "/api/overview", "entrypoint": "/api/entrypoints"}.get(part, RAW)
    content = json.loads(request_page(system, check, PORT, page))
    match part:
        case "version":
            return compare_value(check, content["Version"])
        case "overview":
            parts = {part: [content]}
        case "entrypoint":
            parts = {part: [item for item in content if item["name"] not in _UNLOADED]}
        case _:
            parts = {
                kind: [item for name, item in content.get(f"{kind}s", {}).items() if not name.endswith(_INTERNAL)]
                for kind in ("router", "service")
            }
            servers = [server for item in parts["service"] for server in item["loadBalancer"].get("servers", [])]
            parts["server"] = [{**server, "scheme": urlsplit(server["url"]).scheme} for server in servers]
    return check_parts(check, parts, part, path, page)


SYSTEM = ProxySystem(
    name="traefik",
    image="traefik",
    realise=realise,
    note="routes and endpoints change by the file that it watches, which it reads every 2 s at most",
    by_tag=True,
    control=control,
    # No counters: it counts requests only where its metrics have labels, which cost something on every request.
    controllers=(
        # Routes change in the one process, so no reload makes new workers. It loads no file anew, and logs no change.
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
