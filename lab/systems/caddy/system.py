"""Caddy by itself: the real one, in the version that its image names, configured from Gateway API's objects.

Settings are a ConfigMap `caddy`, whose keys are paths in Caddy's own JSON configuration (`lab.systems.caddy.config.PARTS`). Its admin
interface shows what it serves: what Caddy does not take, it never shows. Without `GOMAXPROCS` (automaxprocs) it runs as many threads at once
as its CPU limit, rounded down, but one, however many CPUs there are.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping

from lab.base.errors import UsageError
from lab.systems import programs, settings
from lab.systems.caddy import admin
from lab.systems.caddy.config import CAN, CONFIG, FOLDER, NEVER, PARTS, render
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    led_to,
    limit_down,
)
from lab.systems.watched_files import WatchedFiles

CONTROLLER = "lab.test/caddy"
SETTINGS = "caddy"
ARGUMENTS = ("caddy", "run", "--config", CONFIG)
_CHECK = r"""said=$("$0" validate --config "$1" 2>&1) || {
  printf '%s\n' "$said" | sed -n 's/^Error: //p; s/^{"level":"error".*"msg":"\(.*\)"}$/\1/p' | sed 's/\\"/"/g' | head -n 1 >&2
  exit 1
}"""
"""It says more than one line, and why in an error of its log."""


def realise(context: Context) -> Realisation:
    container = context.container
    if container.command or container.args != ARGUMENTS:
        fault = f"expected no command, and args {list(ARGUMENTS)}"
        raise UsageError(container.place, fault, "as in manifests/base/caddy")
    program = programs.program(container.place, "caddy", programs.tagged(container))
    own = {"XDG_CONFIG_HOME": f"{FOLDER}/config", "XDG_DATA_HOME": f"{FOLDER}/data"}
    data = context.objects.configmaps.get(SETTINGS, {})
    served = led_to(context, CONTROLLER, "Caddy", CAN, NEVER)
    return Realisation(
        command=(program.inside, *ARGUMENTS[1:]),
        env=own | dict(container.env),
        files=render(*served, settings.read(f"ConfigMap/{SETTINGS}", data, PARTS)),
        checker=("sh", "-c", _CHECK, program.inside, CONFIG),
        programs={program.inside: program.file},
        about=program.about,
    )


def control(process: Process) -> WatchedFiles:
    """It replaces its servers in the same process, and connections stay."""

    def served(files: Mapping[str, str]) -> bool:
        return json.loads(process.ask(admin.PORT, admin.CONFIG)) == json.loads(files[CONFIG])

    return WatchedFiles(process, "caddy", lambda path: path == CONFIG, served, told=signal.SIGUSR1)


SYSTEM = ProxySystem(
    name="caddy",
    image="library/caddy",
    realise=realise,
    note="routes and endpoints change by Caddy's own reload (no control plane)",
    by_tag=True,
    control=control,
    counters=lambda process: admin.counted(process.ask(admin.PORT, admin.METRICS)),
    gauges=lambda process: admin.workers(process.ask(admin.PORT, admin.METRICS)),
    migrations={"caddy": "migrate.tsv"},
    workers=Workers(rules={"caddy": limit_down}, variables=("GOMAXPROCS",)),
    readbacks={"caddy": ReadbackKind(read=admin.read)},
)
