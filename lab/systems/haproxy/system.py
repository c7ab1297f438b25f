"""HAProxy alone, its configuration written from Gateway API's objects; the HAProxy on PATH, which `haproxy` of the run's facts names.

    ConfigMap/haproxy: global.nbthread: "2", defaults.timeout_client: 30s, backend.http-reuse: always, server.pool-max-conn: "10"

A key is a section and a directive of HAProxy's own, an underscore stands for a blank; an empty value for a directive without arguments.
Without `nbthread` it has a thread for each CPU that it may use, limit or not.
"""

from __future__ import annotations

import functools
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from lab.base.errors import UsageError
from lab.systems import settings
from lab.systems.haproxy import admin, served
from lab.systems.haproxy.control import MasterControl
from lab.systems.haproxy.served import CHECKER, COMMAND, CONFIG, Sections
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    find_program,
    refuse_workers,
)

CONTROLLER = "lab.test/haproxy"
FD_CEILING = 1_048_576
"""Above it a HAProxy that chooses its own maximum would reserve memory for connections that nobody opens."""
CONFIGMAP = "haproxy"
ARGUMENTS = ("haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg")
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "global": {},
    "defaults": {"timeout connect": "5s", "timeout client": "50s", "timeout server": "50s"},
    "frontend": {},
    "backend": {},
    "server": {},
}
"""HAProxy has no timeouts of its own and warns of it: these are what its documentation and Debian's file begin with."""


def realise(context: Context) -> Realisation:
    container = context.container
    if container.command or container.args != ARGUMENTS[1:]:
        raise UsageError(
            container.place, f"expected no command, and args {list(ARGUMENTS[1:])}", "as in manifests/base/haproxy"
        )
    find_program(container.place, "haproxy")
    found = settings.sections(f"ConfigMap/{CONFIGMAP}", context.objects.configmaps.get(CONFIGMAP, {}), DEFAULTS)
    return started(context, Sections(*(found[name] for name in DEFAULTS)), "HAProxy", CONTROLLER)


def started(context: Context, sections: Sections, proxy: str, controller: str) -> Realisation:
    """UsageError for more threads than it has CPUs."""
    if (threads := sections.globals.get("nbthread", "")).isdecimal():
        refuse_workers(f"ConfigMap/{CONFIGMAP}: global.nbthread", int(threads), context, "threads")
    return Realisation(
        command=COMMAND,
        env=context.container.env,
        files=served.files(proxy, context.objects.served(controller), bounded(sections, context), context),
        checker=CHECKER,
        stop_signal=signal.SIGUSR1,  # soft-stop, the image's own
    )


def bounded(sections: Sections, context: Context) -> Sections:
    """With a maximum where a process may have very many open files."""
    if context.open_files > FD_CEILING:
        return replace(sections, globals={"fd-hard-limit": str(FD_CEILING), **sections.globals})
    return sections


@functools.cache
def haproxy_version() -> str:
    """Of the haproxy on PATH; `not on PATH` where there is none, as only some variants need it."""
    try:
        printed = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return "not on PATH"
    found = re.search(r"version (\S+)", printed)
    return found[1] if found else "unknown"


def control(process: Process) -> MasterControl:
    return MasterControl(process, CONFIG, 0.1)


SYSTEM = ProxySystem(
    name="haproxy",
    image="library/haproxy",
    realise=realise,
    note="endpoints change by a reload",
    control=control,
    renew=by_signal(signal.SIGUSR2),  # as its master is told
    counters=admin.count,
    count_script=admin.COUNT_SCRIPT,
    parse_counts=admin.parse_counts,
    versions={"haproxy": haproxy_version},
    migrations={"haproxy": "migrate.tsv"},
    workers=Workers(rules={"haproxy": all_cpus}, keys=("global.nbthread",), count=admin.count_workers),
    readbacks=admin.READBACKS,
)
