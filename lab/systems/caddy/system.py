"""Caddy by itself: the real one, in the version that its image names, configured from Gateway API's objects.

Settings are a ConfigMap `caddy`, whose keys are paths in Caddy's own JSON configuration (`lab.systems.caddy.config.PARTS`). A running one
takes a new configuration in the same process: written, and told (SIGUSR1); its admin interface shows what it serves. What Caddy does not
take, it never shows.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping

from lab.base.errors import MeasuringError, UsageError
from lab.base.files import readable
from lab.systems import programs, settings
from lab.systems.caddy import admin
from lab.systems.caddy.config import CAN, CONFIG, FOLDER, NEVER, PARTS, render
from lab.systems.system import (
    Context,
    Loading,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    led_to,
    limit_down,
    write_changed,
)


CONTROLLER = "lab.test/caddy"
SETTINGS = "caddy"
ARGUMENTS = ("caddy", "run", "--config", CONFIG)
TAKES_S = 30.0
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


class CaddyControl:
    """See `lab.systems.system.Control`."""

    looks_once_more = False
    interval_s = 0.0

    def __init__(self, process: Process) -> None:
        self._process = process
        self._main: int | None = None

    def started(self) -> Loading | None:
        pid = self._process.pid
        if pid is None or readable(f"/proc/{pid}/comm").strip() != "caddy":
            self._main = pid
            return None
        return Loading(time.time() if self._main == pid else None, 1)

    def serving(self, loading: Loading) -> bool:
        place = self._process.container.place
        file = self._process.inside(CONFIG)
        if file is None:
            raise MeasuringError(place, "ended before it served", self._process.tail(5) or "it printed nothing")
        try:
            found = json.loads(self._process.ask(admin.PORT, admin.CONFIG)) == json.loads(file.read_text())
        except (OSError, ValueError):
            found = False
        if not found and loading.began_s is not None and time.time() - loading.began_s > TAKES_S:
            fault = f"does not serve what it was told {TAKES_S:g} s ago"
            raise MeasuringError(place, fault, self._process.tail(5) or "it printed nothing")
        return found

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        pid = self._process.pid
        if over.is_set() or pid is None or not write_changed(self._process, files):
            return None
        began_s = time.time()
        os.kill(pid, signal.SIGUSR1)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        file = self._process.inside(CONFIG)
        return file.stat().st_size if file is not None and file.exists() else 0


SYSTEM = ProxySystem(
    name="caddy",
    image="library/caddy",
    realise=realise,
    note="routes and endpoints change by Caddy's own reload (no control plane)",
    by_tag=True,
    control=CaddyControl,
    counters=lambda process: admin.counted(process.ask(admin.PORT, admin.METRICS)),
    gauges=lambda process: admin.workers(process.ask(admin.PORT, admin.METRICS)),
    migrations={"caddy": "migrate.tsv"},
    workers=Workers(rules={"caddy": limit_down}, variables=("GOMAXPROCS",)),
    readbacks={"caddy": ReadbackKind(read=admin.read)},
)
