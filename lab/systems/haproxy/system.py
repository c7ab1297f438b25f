"""HAProxy alone, its configuration written from Gateway API's objects; the HAProxy on PATH, which `haproxy` of the run's facts names.

    ConfigMap/haproxy: global.nbthread: "2", defaults.timeout_client: 30s, backend.http-reuse: always, server.pool-max-conn: "10"

A key is a section and a directive of HAProxy's own, an underscore stands for a blank; an empty value for a directive without arguments.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from lab.base.errors import UsageError
from lab.targets.local import haproxy_served, settings
from lab.targets.local.containers import Process, Realisation, find_program
from lab.targets.local.haproxy_control import MasterControl
from lab.targets.local.haproxy_served import CHECKER, COMMAND, CONFIG, Sections
from lab.targets.local.images import Context, Control, refuse_workers
from lab.targets.local.images.haproxy_router import FD_CEILING
from lab.targets.local.renewing import by_signal

IMAGE = "library/haproxy"
NOTE = "endpoints change by a reload"
RENEW = by_signal(signal.SIGUSR2)
"""As its master is told."""
CONTROLLER = "lab.test/haproxy"
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
        files=haproxy_served.files(proxy, context.objects.served(controller), bounded(sections, context), context),
        checker=CHECKER,
        stop_signal=signal.SIGUSR1,  # soft-stop, the image's own
    )


def bounded(sections: Sections, context: Context) -> Sections:
    """Where a process may have very many open files, a HAProxy that chooses its own maximum would reserve memory for connections that nobody opens."""
    if context.open_files > FD_CEILING:
        return replace(sections, globals={"fd-hard-limit": str(FD_CEILING), **sections.globals})
    return sections


def control(process: Process) -> Control:
    return MasterControl(process, CONFIG, 0.1)
