"""HAProxy alone, its configuration written from Gateway API's objects; the HAProxy on PATH, which `haproxy` of the run's facts names.

    ConfigMap/haproxy: global.nbthread: "2", defaults.timeout_client: 30s, backend.http-reuse: always, server.pool-max-conn: "10"
    Served(80, {"bench.lab.test": …})   →   defaults … frontend port-80 … use_backend backend-8080 if { … }

A key is a section and a directive of HAProxy's own, an underscore stands for a blank; an empty value for a directive without arguments. One backend for
each rule and its filters, found by conditions in the order in which the routes come first. Without `nbthread` it has a thread for each CPU that it may
use, limit or not. And what every HAProxy that is not OKD's router shares.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.systems import settings
from lab.systems.haproxy import admin
from lab.systems.manifests.gateway_api import ANY, Entry, Match, Served, rules_of
from lab.systems.rendering import rendered
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
    led_to,
    pid_of,
    refuse_workers,
    write_changed,
)

HOME = "/var/lib/haproxy"
CONFIG = f"{HOME}/conf/haproxy.cfg"
FD_CEILING = 1_048_576
"""Above it a HAProxy that chooses its own maximum would reserve memory for connections that nobody opens."""
ARGUMENTS = ("-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg")
TIMEOUTS = {"timeout connect": "5s", "timeout client": "50s", "timeout server": "50s"}
"""HAProxy has none of its own and warns of it: these are what its documentation and Debian's file begin with."""

Sections = Mapping[str, Mapping[str, str]]
"""Section → directive → its arguments, beside what the routes make of it; `server`: of each server's line."""
SECTIONS: Sections = {"global": {}, "defaults": TIMEOUTS, "frontend": {}, "backend": {}, "server": {}}


def realise(context: Context) -> Realisation:
    container, objects = context.container, context.objects
    held = not container.command and container.args == ARGUMENTS
    expect(container, held, f"no command, and args {list(ARGUMENTS)}", "haproxy")
    found = settings.sections("ConfigMap/haproxy", objects.configmaps.get("haproxy", {}), SECTIONS)
    if (threads := found["global"].get("nbthread", "")).isdecimal():
        refuse_workers("ConfigMap/haproxy: global.nbthread", int(threads), context, "threads")
    return started(context, objects.served("lab.test/haproxy"), found, "HAProxy")


def started(context: Context, ports: Sequence[Served], sections: Sections, proxy: str, slots: int = 0) -> Realisation:
    """A HAProxy that serves these ports, with a maximum where a process may have very many open files. UsageError for what cannot be written.

    `proxy`: its name in what is refused; `slots`: servers that a backend has room for.
    """
    find_program(context.container.place, "haproxy")
    if context.open_files > FD_CEILING:
        sections = {**sections, "global": {"fd-hard-limit": str(FD_CEILING), **sections["global"]}}
    members, certificates = led_to(context, ports, proxy)
    rules = rules_of(ports)
    names = {place: f"{place.split(':')[0].rpartition('/')[2]}-{number}" for number, place in enumerate(rules)}
    pems = {name: f"{HOME}/certs/{name}.pem" for name in certificates}
    text = rendered(
        Path(__file__).with_name("served.cfg.j2"),
        of=sections,
        slots=slots,
        socket=admin.SOCKET,
        health=admin.HEALTH,
        ports=[
            {
                "port": served.port,
                "certificates": [pems[name] for name in served.secrets],
                "ways": [way for host in served.ordered for way in _ways(host, served.hosts[host], names)],
            }
            for served in ports
        ],
        backends=[
            {
                "name": names[place],
                "headers": {name: _quoted(value.replace("%", "%%")) for name, value in rule.headers.items()},
                "servers": members[rule.backend] if rule.backend else (),
            }
            for place, rule in rules.items()
        ],
    )
    pairs = {pems[name]: found["tls.crt"] + found["tls.key"] for name, found in certificates.items()}
    return Realisation(
        command=("haproxy", "-W", "-db", "-f", CONFIG),
        env=context.container.env,
        files={CONFIG: text, f"{Path(admin.SOCKET).parent}/.keep": "", **pairs},
        checker=("haproxy", "-c", "-f", CONFIG),
        stop_signal=signal.SIGUSR1,  # soft-stop, the images' own
    )


def _ways(host: str, entries: Sequence[Entry], names: Mapping[str, str]) -> Iterator[str]:
    """`BACKEND if CONDITIONS`, a line for each form of a path."""
    suffix = host.removeprefix("*")
    name = "hdr(host),field(1,:),lower"
    by_host = "" if host == ANY else f"{{ {name} -m end {suffix} }}" if suffix != host else f"{{ {name} {host} }}"
    for entry in entries:
        for by_path in _paths(entry.match):
            conditions = " ".join(filter(None, (by_host, by_path)))
            yield f"{names[entry.rule.place]}{f' if {conditions}' if conditions else ''}"


def _paths(match: Match) -> list[str]:
    if match.path_kind == "Exact":
        return [f"{{ path {_quoted(match.path)} }}"]
    stem = match.path.rstrip("/")
    return [f"{{ path {_quoted(stem)} }}", f"{{ path_beg {_quoted(stem + '/')} }}"] if stem else [""]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"


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
        return admin.serving(self._process) not in ("", self._before)

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
