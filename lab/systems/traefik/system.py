"""Traefik: the real one, in the version that its image names. With its file provider, its file is written from Gateway API's objects; as a
controller, on the target `apiserver`, it reads Ingresses by its ingress-nginx provider or its Kubernetes Ingress provider.

Settings are its command line, and a ConfigMap `traefik`, whose keys are paths in the file (`lab.systems.traefik.config.PARTS`).
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

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import programs, settings
from lab.systems.reading import Reading, asked, compared, given, metric, of_parts
from lab.systems.system import (
    KLOG_FAULT,
    Context,
    Controller,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    expect,
    led_to,
    refuse_workers,
    within_up,
)
from lab.systems.traefik.config import FILE, MARK, PARTS, render, version
from lab.systems.watched_files import WatchedFiles

PORT = 8080
RAW, METRICS = "/api/rawdata", "/metrics"
CHECK = Path(__file__).with_name("check.bash")
_CHECK_INSIDE = "/srv/traefik/check.bash"
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
    _refuse_threads(context)
    program = programs.of_image(container, "traefik")
    ports = context.objects.served("lab.test/traefik")
    entry_points = {int(found[2]): found[1] for arg in container.args if (found := _ADDRESS.fullmatch(arg))}
    own = settings.of_configmap(context.objects, "traefik", PARTS)
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
    _refuse_threads(context)
    program = programs.of_image(container, "traefik")
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        checker=("sh", "-c", _HEALTHCHECK, program.inside, *container.args),
        programs={program.inside: program.file},
        about=f"{program.about} (control plane and proxy are one process)",
    )


def _refuse_threads(context: Context) -> None:
    """NotMeasurableError for more threads of Go than the container has CPUs here."""
    threads = context.container.env.get("GOMAXPROCS", "")
    if threads.isdigit():
        refuse_workers(f"{context.container.place}.env[GOMAXPROCS]", int(threads), context, "threads")


def ignored(log: Iterable[str]) -> list[str]:
    """What it says of Ingresses, which it serves without that, or not at all."""
    return [words for words in complaints(log) if _ABOUT_INGRESS.search(words)]


def complaints(log: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(_entries(log)))


def _entries(log: Iterable[str]) -> Iterator[str]:
    for line in log:
        plain = _COLOUR.sub("", line)
        yield from (match["words"] for form in _FAULTS if (match := form.match(plain)))


def taken(raw: str) -> set[str]:
    """Versions of the files that it serves, from RAW."""
    names = json.loads(raw).get("middlewares", {})
    return {name.removeprefix(MARK).removesuffix(_PROVIDER) for name in names if name.startswith(MARK)}


def _read(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")

    def answer(page: str) -> Any:
        return json.loads(asked(system, check, PORT, page))

    match part:
        case "version":
            return compared(check, answer("/api/version")["Version"])
        case "metrics":
            return metric(system, check, PORT, METRICS, path)
        case "overview":
            page, parts = "/api/overview", {part: [answer("/api/overview")]}
        case "entrypoint":
            page, found = "/api/entrypoints", answer("/api/entrypoints")
            parts = {part: [item for item in found if item["name"] not in _OWN]}
        case _:
            page, found = RAW, answer(RAW)
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
