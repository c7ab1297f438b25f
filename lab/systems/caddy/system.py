"""Caddy by itself: the real one, in the version that its image names, configured from Gateway API's objects.

Settings are a ConfigMap `caddy`, whose keys are paths in Caddy's own JSON configuration (`lab.targets.local.caddy_conf.PARTS`).
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.base.errors import UsageError
from lab.targets.common import caddy
from lab.targets.local import proxies, settings
from lab.targets.local.admin import Ask
from lab.targets.local.caddy_conf import CAN, CONFIG, FOLDER, NEVER, PARTS, render
from lab.targets.local.caddy_control import CaddyControl
from lab.targets.local.containers import Process, Realisation
from lab.targets.local.images import Context, Control, led_to

IMAGE = "library/caddy"
BY_TAG = True
NOTE = "routes and endpoints change by Caddy's own reload (no control plane)"
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
    program = proxies.program(container.place, "caddy", proxies.tagged(container))
    own = {"XDG_CONFIG_HOME": f"{FOLDER}/config", "XDG_DATA_HOME": f"{FOLDER}/data"}
    return Realisation(
        command=(program.inside, *ARGUMENTS[1:]),
        env=own | dict(container.env),
        files=_files(context),
        checker=("sh", "-c", _CHECK, program.inside, CONFIG),
        programs={program.inside: program.file},
        about=program.about,
    )


def _files(context: Context) -> Mapping[str, str]:
    data = context.objects.configmaps.get(SETTINGS, {})
    served = led_to(context, CONTROLLER, "Caddy", CAN, NEVER)
    return render(*served, settings.read(f"ConfigMap/{SETTINGS}", data, PARTS))


def control(process: Process) -> Control:
    return CaddyControl(process)


def counters(ask: Ask) -> Mapping[str, int]:
    return caddy.counted(ask(caddy.PORT, caddy.METRICS))


def gauges(ask: Ask) -> Mapping[str, float]:
    found = caddy.metrics(ask(caddy.PORT, caddy.METRICS))
    return {"workers": found[caddy.WORKERS]} if caddy.WORKERS in found else {}
