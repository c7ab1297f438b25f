"""Envoy by itself, without a controller: the real one, in the version that its image names, configured from Gateway API's objects.

Settings are a ConfigMap `envoy`, whose keys are paths in Envoy's own configuration (`lab.systems.envoy.config.PARTS`).
Without `--concurrency` it has as many workers as CPUs that it may use, and no more than its limit, rounded down, but one (1.40.0 and what Envoy
Gateway starts, with `--cpuset-threads` or without); 1.36 looks at no limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from lab.base.errors import UsageError
from lab.systems import programs, settings
from lab.systems.envoy import admin
from lab.systems.envoy.config import BOOTSTRAP, CHECKED, PARTS, render, version
from lab.systems.manifests.gateway_api import HEADERS, TIMEOUT
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    expect,
    led_to,
    refuse_workers,
    within_down,
)
from lab.systems.watched_files import WatchedFiles

CONCURRENCY = "--concurrency"


def realise(context: Context) -> Realisation:
    container, found = context.container, program(context)
    ports = context.objects.served("lab.test/envoy")
    led = led_to(context, ports, "Envoy", (HEADERS, TIMEOUT))
    own = container.args[2:]
    level = () if {"-l", "--log-level"} & set(own) else ("-l", "critical")  # Envoy takes no argument twice
    return Realisation(
        command=(found.inside, *container.args),
        env=container.env,
        files=render(ports, *led, settings.of_configmap(context.objects, "envoy", PARTS)),
        checker=(found.inside, "--mode", "validate", *own, *level, "-c", CHECKED),
        programs={found.inside: found.file},
        about=found.about,
    )


def program(context: Context) -> programs.Program:
    """The Envoy that the image names. UsageError for arguments other than the lab's manifests have; refuses more workers than CPUs."""
    container = context.container
    held = not container.command and container.args[:2] == ("-c", BOOTSTRAP)
    expect(container, held, f"no command, and -c {BOOTSTRAP} as the first arguments", "envoy")
    given = list(container.args)
    if CONCURRENCY in given:
        workers = given[given.index(CONCURRENCY) + 1 : given.index(CONCURRENCY) + 2]
        if not workers or not re.fullmatch(r"[1-9]\d*", workers[0]):
            fault = f"{CONCURRENCY}: expected a positive number, got {' '.join(workers) or 'nothing'}"
            raise UsageError(f"{container.place}.args", fault, "correct it")
        refuse_workers(f"{container.place}.args: {CONCURRENCY}", int(workers[0]), context)
    return programs.of_image(container, "envoy")


def control(process: Process) -> WatchedFiles:
    return WatchedFiles(process, "envoy", lambda path: path not in (BOOTSTRAP, CHECKED), partial(_served, process))


def _served(process: Process, files: Mapping[str, str]) -> bool:
    """Whether every version that it has taken is that of a file, and every file's was taken."""
    told = admin.stats(process.ask(admin.PORT, admin.VERSIONS)).items()
    taken = {value.strip('"') for name, value in told if re.search(r"^cluster\.|\.rds\.|_manager\.cds\.", name)}
    return taken - {""} == {version(text) for text in files.values()}


SYSTEM = ProxySystem(
    name="envoy",
    image="envoyproxy/envoy",
    realise=realise,
    note="routes and endpoints change by files that it watches (no control plane)",
    by_tag=True,
    control=control,
    counters=admin.count,
    count_script=admin.COUNT_SCRIPT,
    parse_counts=admin.counted,
    migrations={"envoy": "migrate.tsv"},
    workers=Workers(
        rules={"envoyproxy/envoy": within_down, "envoyproxy/envoy:v1.36": all_cpus},
        options=(CONCURRENCY,),
        process="envoy",
        port=admin.PORT,
        page=admin.CONCURRENCY,
        metric="server.concurrency",
    ),
    readbacks=admin.READBACKS,
)
