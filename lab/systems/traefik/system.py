"""Traefik with its file provider: the real one, in the version that its image names, its file written from Gateway API's objects.

Settings are its command line, and a ConfigMap `traefik`, whose keys are paths in the file (`lab.systems.traefik.config.PARTS`).
Without `GOMAXPROCS` (Go 1.25) it runs as many threads at once as CPUs that it may use, and no more than its limit, rounded up, but two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from lab.base.errors import UsageError
from lab.systems import programs, settings
from lab.systems.system import Context, Process, ProxySystem, Realisation, Workers, led_to, within_up
from lab.systems.traefik import admin
from lab.systems.traefik.config import CAN, FILE, NEVER, PARTS, render, version
from lab.systems.traefik.controller import CONTROLLER as INGRESS_CONTROLLER
from lab.systems.traefik.controller import refuse_threads
from lab.systems.watched_files import WatchedFiles

CONTROLLER = "lab.test/traefik"
SETTINGS = "traefik"
CHECK = Path(__file__).with_name("check.bash")
_CHECK_INSIDE = "/srv/traefik/check.bash"
_ADDRESS = re.compile(r"--entrypoints\.(\w+)\.address=[\d.]*:(\d+)", re.IGNORECASE)
_PROVIDER = f"--providers.file.filename={FILE}"


def realise(context: Context) -> Realisation:
    container = context.container
    if container.command or _PROVIDER not in container.args:
        fault = f"expected no command, and {_PROVIDER} among the arguments"
        raise UsageError(container.place, fault, "as in manifests/base/traefik")
    refuse_threads(context)
    program = programs.program(container.place, "traefik", programs.tagged(container))
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        files={FILE: _file(context), _CHECK_INSIDE: CHECK.read_text()},
        checker=("bash", _CHECK_INSIDE, program.inside, *container.args),
        programs={program.inside: program.file},
        about=program.about,
    )


def _file(context: Context) -> str:
    ports, members, certificates = led_to(context, CONTROLLER, "Traefik", CAN, NEVER)
    data = context.objects.configmaps.get(SETTINGS, {})
    found = settings.read(f"ConfigMap/{SETTINGS}", data, PARTS)
    return render(ports, members, certificates, _entry_points(context.container.args), found)


def _entry_points(args: Sequence[str]) -> Mapping[int, str]:
    """Port → name."""
    return {int(found[2]): found[1] for arg in args if (found := _ADDRESS.fullmatch(arg))}


def control(process: Process) -> WatchedFiles:
    return WatchedFiles(process, "traefik", lambda path: path == FILE, partial(_served, process))


def _served(process: Process, files: Mapping[str, str]) -> bool:
    return admin.taken(process.ask(admin.PORT, admin.RAW)) == {version(files[FILE])}


SYSTEM = ProxySystem(
    name="traefik",
    image="traefik",
    realise=realise,
    note="routes and endpoints change by the file that it watches, which it reads every 2 s at most",
    by_tag=True,
    control=control,
    # No counters: it counts requests only where its metrics have labels, which cost some on every request.
    gauges=admin.gauges,
    controllers=(INGRESS_CONTROLLER,),
    migrations={"traefik": "migrate.tsv", "traefik-ingress-nginx": "migrate-ingress-nginx.tsv"},
    workers=Workers(
        rules={"traefik": within_up},
        variables=("GOMAXPROCS",),
        process="traefik",
        port=admin.PORT,
        page=admin.METRICS,
        metric=admin.WORKERS,
    ),
    readbacks=admin.READBACKS,
)
