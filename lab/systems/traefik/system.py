"""Traefik with its file provider: the real one, in the version that its image names, its file written from Gateway API's objects.

Settings are its command line, and a ConfigMap `traefik`, whose keys are paths in the file (`lab.targets.local.traefik_conf.PARTS`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from lab.base.errors import UsageError
from lab.targets.common import traefik
from lab.targets.local import admin, proxies, settings
from lab.targets.local.containers import Process, Realisation
from lab.targets.local.images import Context, Control, led_to, refuse_workers
from lab.targets.local.traefik_conf import CAN, FILE, NEVER, PARTS, render, version
from lab.targets.local.watched_files import WatchedFiles

IMAGE = "traefik"
BY_TAG = True
NOTE = "routes and endpoints change by the file that it watches, which it reads every 2 s at most"
CONTROLLER = "lab.test/traefik"
SETTINGS = "traefik"
CHECK = Path(__file__).with_suffix(".bash")
_CHECK_INSIDE = "/srv/traefik/check.bash"
_ADDRESS = re.compile(r"--entrypoints\.(\w+)\.address=[\d.]*:(\d+)", re.IGNORECASE)
_PROVIDER = f"--providers.file.filename={FILE}"


def realise(context: Context) -> Realisation:
    container = context.container
    if container.command or _PROVIDER not in container.args:
        fault = f"expected no command, and {_PROVIDER} among the arguments"
        raise UsageError(container.place, fault, "as in manifests/base/traefik")
    refuse_threads(context)
    program = proxies.program(container.place, "traefik", proxies.tagged(container))
    return Realisation(
        command=(program.inside, *container.args),
        env=container.env,
        files={FILE: _file(context), _CHECK_INSIDE: CHECK.read_text()},
        checker=("bash", _CHECK_INSIDE, program.inside, *container.args),
        programs={program.inside: program.file},
        about=program.about,
    )


def refuse_threads(context: Context) -> None:
    """NotMeasurableError for more threads of Go than the container has CPUs here."""
    threads = context.container.env.get("GOMAXPROCS", "")
    if threads.isdigit():
        refuse_workers(f"{context.container.place}.env[GOMAXPROCS]", int(threads), context, "threads")


def _file(context: Context) -> str:
    ports, members, certificates = led_to(context, CONTROLLER, "Traefik", CAN, NEVER)
    data = context.objects.configmaps.get(SETTINGS, {})
    found = settings.read(f"ConfigMap/{SETTINGS}", data, PARTS)
    return render(ports, members, certificates, _entry_points(context.container.args), found)


def _entry_points(args: Sequence[str]) -> Mapping[int, str]:
    """Port → name."""
    return {int(found[2]): found[1] for arg in args if (found := _ADDRESS.fullmatch(arg))}


def control(process: Process) -> Control:
    ask = admin.asking(process.setting.place)
    return WatchedFiles(process, "traefik", lambda path: path == FILE, partial(_served, ask))


def _served(ask: admin.Ask, files: Mapping[str, str]) -> bool:
    return traefik.taken(ask(traefik.PORT, traefik.RAW)) == {version(files[FILE])}


def counters(ask: admin.Ask) -> Mapping[str, int]:
    """It counts requests only where its metrics have labels, which cost some on every request."""
    return {}


def gauges(ask: admin.Ask) -> Mapping[str, float]:
    found = traefik.workers(ask(traefik.PORT, traefik.METRICS))
    return {} if found is None else {"workers": float(found)}
