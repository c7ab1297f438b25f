"""HAProxy alone, its configuration written from Gateway API's objects; the HAProxy on PATH, which `haproxy` of the run's facts names.

    ConfigMap/haproxy: global.nbthread: "2", defaults.timeout_client: 30s, backend.http-reuse: always, server.pool-max-conn: "10"

A key is a section and a directive of HAProxy's own, an underscore stands for a blank; an empty value for a directive without arguments.
Without `nbthread` it has a thread for each CPU that it may use, limit or not.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab.systems import settings
from lab.systems.haproxy import admin, served
from lab.systems.haproxy.served import CHECKER, COMMAND, CONFIG, Sections
from lab.systems.manifests.gateway_api import Served
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Loading,
    Process,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    bytes_of,
    expect,
    find_program,
    pid_of,
    refuse_workers,
    write_changed,
)

FD_CEILING = 1_048_576
"""Above it a HAProxy that chooses its own maximum would reserve memory for connections that nobody opens."""
ARGUMENTS = ("-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg")
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "global": {},
    "defaults": {"timeout connect": "5s", "timeout client": "50s", "timeout server": "50s"},
    "frontend": {},
    "backend": {},
    "server": {},
}
"""HAProxy has no timeouts of its own and warns of it: these are what its documentation and Debian's file begin with."""


def realise(context: Context) -> Realisation:
    container, objects = context.container, context.objects
    held = not container.command and container.args == ARGUMENTS
    expect(container, held, f"no command, and args {list(ARGUMENTS)}", "haproxy")
    found = settings.sections("ConfigMap/haproxy", objects.configmaps.get("haproxy", {}), DEFAULTS)
    if (threads := found["global"].get("nbthread", "")).isdecimal():
        refuse_workers("ConfigMap/haproxy: global.nbthread", int(threads), context, "threads")
    sections = Sections(found["global"], found["defaults"], found["frontend"], found["backend"], found["server"])
    return started(context, objects.served("lab.test/haproxy"), sections, "HAProxy")


def started(context: Context, ports: Sequence[Served], sections: Sections, proxy: str) -> Realisation:
    """A HAProxy that serves these ports, with a maximum where a process may have very many open files. `proxy`: its name in what is refused."""
    find_program(context.container.place, "haproxy")
    if context.open_files > FD_CEILING:
        sections = replace(sections, globals={"fd-hard-limit": str(FD_CEILING), **sections.globals})
    return Realisation(
        command=COMMAND,
        env=context.container.env,
        files=served.files(proxy, ports, sections, context),
        checker=CHECKER,
        stop_signal=signal.SIGUSR1,  # soft-stop, the images' own
    )


@functools.cache
def haproxy_version() -> str:
    """Of the haproxy on PATH; `not on PATH` where there is none, as only some variants need it."""
    try:
        printed = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return "not on PATH"
    found = re.search(r"version (\S+)", printed)
    return found[1] if found else "unknown"


class MasterControl:
    """A HAProxy with a master (`-W`): a new configuration is written, and the master told (SIGUSR2); its new worker answers on the socket.

    See `lab.systems.system.Control`.
    """

    looks_once_more = False

    def __init__(self, process: Process, interval_s: float = 0.1) -> None:
        self._process, self.interval_s = process, interval_s
        self._before = ""

    def started(self) -> Loading | None:
        """It is a HAProxy at once: when it began is not seen."""
        self._before = ""
        return Loading(None, 1) if self._process.pid is not None else None

    def serving(self, loading: Loading) -> bool:
        pid_of(self._process, "served")
        worker = admin.serving(self._process)
        return bool(worker) and worker != self._before

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        main, folder = pid_of(self._process, "took a reload"), str(Path(CONFIG).parent)
        self._before = admin.serving(self._process)
        if not write_changed(self._process, {path: text for path, text in files.items() if path.startswith(folder)}):
            return None
        began_s = time.time()
        os.kill(main, signal.SIGUSR2)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        return bytes_of(self._process, [CONFIG])


SYSTEM = ProxySystem(
    name="haproxy",
    image="library/haproxy",
    realise=realise,
    note="endpoints change by a reload",
    control=MasterControl,
    renew=by_signal(signal.SIGUSR2),  # as its master is told
    counters=admin.count,
    count_script=admin.COUNT_SCRIPT,
    parse_counts=admin.parse_counts,
    versions={"haproxy": haproxy_version},
    migrations={"haproxy": "migrate.tsv"},
    workers=Workers(rules={"haproxy": all_cpus}, keys=("global.nbthread",), count=admin.count_workers),
    readbacks=admin.READBACKS,
)
