"""Envoy by itself, without a controller: the real one, in the version that its image names, configured from Gateway API's objects.

Settings are a ConfigMap `envoy`, whose keys are paths in Envoy's own configuration (`lab.targets.local.envoy_conf.PARTS`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from lab.base.errors import UsageError
from lab.targets.common import envoy
from lab.targets.local import admin, proxies, settings
from lab.targets.local.containers import Process, Realisation
from lab.targets.local.envoy_conf import BOOTSTRAP, CAN, CHECKED, PARTS, render, version
from lab.targets.local.images import Context, Control, led_to, refuse_workers
from lab.targets.local.watched_files import WatchedFiles

IMAGE = "envoyproxy/envoy"
BY_TAG = True
NOTE = "routes and endpoints change by files that it watches (no control plane)"
CONTROLLER = "lab.test/envoy"
SETTINGS = "envoy"
_CONCURRENCY = "--concurrency"


def realise(context: Context) -> Realisation:
    container, found = context.container, program(context)
    return Realisation(
        command=(found.inside, *container.args),
        env=container.env,
        files=_files(context),
        checker=(found.inside, "--mode", "validate", *_said(container.args[2:]), "-c", CHECKED),
        programs={found.inside: found.file},
        about=found.about,
    )


def _said(arguments: Sequence[str]) -> Sequence[str]:
    """With a level of its own log: Envoy takes no argument twice."""
    return arguments if {"-l", "--log-level"} & set(arguments) else (*arguments, "-l", "critical")


def program(context: Context) -> proxies.Program:
    """The Envoy that the image names. UsageError for arguments other than the lab's manifests have; refuses more workers than CPUs."""
    container = context.container
    if container.command or container.args[:2] != ("-c", BOOTSTRAP):
        fault = f"expected no command, and -c {BOOTSTRAP} as the first arguments"
        raise UsageError(container.place, fault, "as in manifests/base/envoy")
    given = list(container.args)
    if _CONCURRENCY in given:
        workers = given[given.index(_CONCURRENCY) + 1 : given.index(_CONCURRENCY) + 2]
        if not workers or not re.fullmatch(r"[1-9]\d*", workers[0]):
            fault = f"{_CONCURRENCY}: expected a positive number, got {' '.join(workers) or 'nothing'}"
            raise UsageError(f"{container.place}.args", fault, "correct it")
        refuse_workers(f"{container.place}.args: {_CONCURRENCY}", int(workers[0]), context)
    return proxies.program(container.place, "envoy", proxies.tagged(container))


def _files(context: Context) -> Mapping[str, str]:
    ports, members, certificates = led_to(context, CONTROLLER, "Envoy", CAN)
    data = context.objects.configmaps.get(SETTINGS, {})
    return render(ports, members, certificates, settings.read(f"ConfigMap/{SETTINGS}", data, PARTS))


def control(process: Process) -> Control:
    ask = admin.asking(process.setting.place)
    return WatchedFiles(process, "envoy", lambda path: path not in (BOOTSTRAP, CHECKED), partial(_served, ask))


def _served(ask: admin.Ask, files: Mapping[str, str]) -> bool:
    """Whether every version that it has taken is that of a file, and every file's was taken."""
    told = envoy.stats(ask(envoy.PORT, envoy.VERSIONS)).items()
    taken = {value.strip('"') for name, value in told if re.search(r"^cluster\.|\.rds\.|_manager\.cds\.", name)}
    return taken - {""} == {version(text) for text in files.values()}


def counters(ask: admin.Ask) -> Mapping[str, int]:
    return envoy.counted(ask(envoy.PORT, envoy.COUNTS))


def gauges(ask: admin.Ask) -> Mapping[str, float]:
    found = envoy.workers(ask(envoy.PORT, envoy.CONCURRENCY))
    return {} if found is None else {"workers": float(found)}
