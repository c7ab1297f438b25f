"""HAProxy alone, its configuration written from Gateway API's objects; the HAProxy on PATH, which `haproxy` of the run's facts names.

    ConfigMap/haproxy: global.nbthread: "2", defaults.timeout_client: 30s, backend.http-reuse: always, server.pool-max-conn: "10"
    Served(80, {"bench.lab.test": …})   →   defaults … frontend port-80 … use_backend backend-8080 if { … }

A key is a section and a directive of HAProxy's own, an underscore stands for a blank; an empty value for a directive without arguments. One backend for
each rule and its filters, found by conditions in the order in which the routes come first. Without `nbthread` it has a thread for each CPU that it may
use, limit or not. And what every HAProxy below shares: what a running one tells through its statistics socket, and its kinds of checks.

    # pxname,svname,…,req_tot,…,mode,…,ssl_sess,ssl_reused_sess,…,h2_headers_rcvd,…
    fe_sni,FRONTEND,…,40120,…,http,…,20,12401,…,0,…   →  {"requests": 40120, "requests_h2": 0, "tls_handshakes": 12421, "tls_resumed": 12401}

A request by HTTP/2 begins with one HEADERS frame (`h2_headers_rcvd`, src/mux_h2.c), and one without trailers has no other. `ssl_sess` are the full
handshakes, `ssl_reused_sess` the resumed ones (HAProxy 2.6, src/ssl_sock.c). A reload begins anew. Kind `haproxy` is a key of `show info`, asked by
`socat`, which the router's image has and scripts/shell brings:

    Nbthread: 1
    Maxconn: 9985                    key, colon, value

`haproxy-config` is a directive (`timeout client`, `balance`) of the sections of a kind (`context`: defaults, backend, …), or of one section, of the file
that the running HAProxy was started with, `set` where it has no arguments; an older process than that file runs another, which is not ok. What HAProxy
says of itself is asked of it: the balance algorithm, timeouts and sizes it tells nobody.
"""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import reading, settings
from lab.systems.manifests.gateway_api import ANY, Entry, Match, Served, rules_of
from lab.systems.programs import version_of
from lab.systems.reading import (
    ABSENT,
    CLOCK_S,
    Reading,
    UnreadableError,
    compared,
    given,
    joined,
    processes,
    run,
    wrong,
)
from lab.systems.rendering import rendered
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Loading,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    all_cpus,
    bytes_of,
    find_program,
    led_to,
    pid_of,
    refuse_workers,
    served_natively,
    write_changed,
)

SOCKET = "/var/lib/haproxy/run/haproxy.sock"
"""Where the router's image has it, on every target."""
COUNTS = "show stat -1 1 -1"
"""Of every proxy its frontends alone."""
HEALTH = "healthz"
"""The frontend that the router's own probes come to."""
TIMEOUT_S = 2.0


def ask(path: Path, command: str) -> str:
    """The answer to one command. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(f"{command}\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")


def serving(process: Process) -> str:
    """Return the process id, in the container, of the HAProxy that answers; empty while none does, or it is too busy."""
    path = process.inside(SOCKET)
    try:
        said = ask(path, "show info") if path is not None else ""
    except OSError:
        return ""
    found = re.search(r"^Pid: (\d+)$", said, re.MULTILINE)
    return found[1] if found else ""


def parse_counts(stat: str) -> Mapping[str, int]:
    """Return from `show stat` the HTTP requests of clients, and those of them by HTTP/2, over the frontends that speak it, but for the probes'; and the
    handshakes of clients, over the frontends. What no frontend counts is left out.
    """
    rows = csv.DictReader(stat.removeprefix("# ").splitlines())
    fronts = [row for row in rows if row.get("svname") == "FRONTEND"]
    http = [row for row in fronts if row.get("mode") == "http" and row.get("pxname") != HEALTH]
    cells = {"requests": "req_tot", "requests_h2": "h2_headers_rcvd"}
    told = {name: [int(count) for row in http if (count := row.get(cell))] for name, cell in cells.items()}
    found = {name: sum(counts) for name, counts in told.items() if counts}
    shaken = [(row.get("ssl_sess"), row.get("ssl_reused_sess")) for row in fronts]
    pairs = [(int(full), int(resumed)) for full, resumed in shaken if full and resumed]
    if pairs:
        resumed = sum(again for _, again in pairs)
        found |= {"tls_handshakes": sum(full for full, _ in pairs) + resumed, "tls_resumed": resumed}
    return found


def _info(system: System, check: Check) -> Reading:
    name = given(check, "name")
    text = run(system, check, ["sh", "-c", f"echo 'show info' | socat - UNIX-CONNECT:{SOCKET}"])
    rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if "Nbthread" not in rows:
        raise UnreadableError(f"show info answered {text.strip()[:80]!r}")
    return compared(check, rows.get(name, ABSENT).strip())


def _config(system: System, check: Check) -> Reading:
    words = given(check, "name").split()
    running = [process for process in processes(system, check) if re.match(r"(\S*/)?haproxy( |$)", process.title)]
    files = list(dict.fromkeys(file for process in running for file in re.findall(r" -f (\S+)", process.title)))
    if not files:
        raise UnreadableError("no HAProxy with a configuration file runs")
    found = list(_values(run(system, check, ["cat", *files]), words, check.context))
    if check.among:
        found = [check.value if f" {check.value} " in f" {line} " else line for line in found]
    read = compared(check, joined(found) if found else ABSENT)
    written = int(run(system, check, ["stat", "-c", "%Y", files[0]]))
    if read.ok and max(reading.started(system, check, [process.pid for process in running])) + CLOCK_S < written:
        detail = f"{files[0]} was written after the newest HAProxy had started: it is not what it runs"
        return wrong(check, read.observed, detail)
    return read


def _values(text: str, words: Sequence[str], context: str | None) -> Iterator[str]:
    """The rest of every line that begins with these words, or `set` where there is none, in sections of that kind, or in the one of that name."""
    section = [""]
    for line in text.splitlines():
        parts = line.split()
        if parts and not line[0].isspace() and not line.startswith("#"):
            section = parts
        elif parts[: len(words)] == list(words) and context in (None, section[0], " ".join(section)):
            yield " ".join(parts[len(words) :]) or "set"


def count(process: Process) -> Mapping[str, int]:
    """Return requests and handshakes as a HAProxy counts them; empty where it has no socket yet. Raises OSError."""
    path = process.inside(SOCKET)
    if path is None or not path.exists():
        return {}
    return parse_counts(ask(path, COUNTS))


COUNT_SCRIPT = f"""if [ -S {SOCKET} ]; then
  echo '{COUNTS}' | socat - UNIX-CONNECT:{SOCKET}
  exit
fi"""


def count_workers(found: Sequence[tuple[int, str]]) -> int:
    """Count threads: as many workers as threads; of two processes with `-W` one is the master, a thread that serves nobody."""
    own = [
        (threads, title.split()) for threads, title in found if title.split(" ", 1)[0].rpartition("/")[2] == "haproxy"
    ]
    return sum(threads for threads, _ in own) - sum("-W" in words for _, words in own) // 2


READBACKS = {
    "haproxy": ReadbackKind(read=_info, spoken="show info: {name}", workers={"Nbthread": "threads"}),
    "haproxy-config": ReadbackKind(
        read=_config, possible=frozenset({"context", "among"}), spoken="{name} in its running configuration"
    ),
}


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
    ports = served_natively(context, "haproxy", ARGUMENTS)
    found = settings.sections("ConfigMap/haproxy", context.objects.configmaps.get("haproxy", {}), SECTIONS)
    if (threads := found["global"].get("nbthread", "")).isdecimal():
        refuse_workers("ConfigMap/haproxy: global.nbthread", int(threads), context, "threads")
    return started(context, ports, found, "HAProxy")


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
        socket=SOCKET,
        health=HEALTH,
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
        files={CONFIG: text, f"{Path(SOCKET).parent}/.keep": "", **pairs},
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
        return serving(self._process) not in ("", self._before)

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        main, folder = pid_of(self._process, "took a reload"), str(Path(CONFIG).parent)
        self._before = serving(self._process)
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
    counters=count,
    count_script=COUNT_SCRIPT,
    parse_counts=parse_counts,
    versions={
        "haproxy": lambda: version_of("haproxy", r"version (\S+)") or "not on PATH"
    },  # only some variants need it
    migrations={"haproxy": "migrate.tsv"},
    workers=Workers(rules={"haproxy": all_cpus}, keys=("global.nbthread",), count=count_workers),
    readbacks=READBACKS,
)
