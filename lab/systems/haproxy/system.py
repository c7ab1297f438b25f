"""HAProxy without a controller, and the code shared by all systems whose proxy is a HAProxy.

Without a controller, HAProxy is configured from Gateway API's objects. The program is the HAProxy on PATH. A run records its
version as the fact `haproxy`.

    ConfigMap/haproxy: global.nbthread: "2", defaults.timeout_client: 30s, backend.http-reuse: always, server.pool-max-conn: "10"
    ServedPort(80, {"bench.lab.test": …})   →   defaults … frontend port-80 … use_backend backend-8080 if { … }

A key is the name of a section and a directive of HAProxy's configuration; an underscore stands for a blank. A directive without
arguments has an empty value. Each rule of a route becomes one backend. Conditions select the backend, in the routes' order of
precedence. Without `nbthread`, HAProxy has a thread for each CPU that it may use, whatever the CPU limit.

The shared parts are the counts that a running HAProxy reports through its statistics socket, and two kinds of read-back checks
(tests whether a setting took effect). Counts:

    # pxname,svname,…,req_tot,…,mode,…,ssl_sess,ssl_reused_sess,…,h2_headers_rcvd,…
    fe_sni,FRONTEND,…,40120,…,http,…,20,12401,…,0,…   →  {"requests": 40120, "requests_h2": 0, "tls_handshakes": 12421, "tls_resumed": 12401}

A request by HTTP/2 begins with one HEADERS frame (`h2_headers_rcvd`, src/mux_h2.c), and one without trailers has no other.
`ssl_sess` are the full handshakes, `ssl_reused_sess` the resumed ones (HAProxy 2.6, src/ssl_sock.c). The counts begin anew
after a reload.

A check of the kind `haproxy` reads a key of `show info` by `socat`, which the router's image has and scripts/shell provides:

    Nbthread: 1
    Maxconn: 9985                    key, colon, value

A check of the kind `haproxy-config` reads a directive (`timeout client`, `balance`) in the file with which the running HAProxy
was started. `context` names the sections of a kind (defaults, backend, …), or one section. The value of a directive without
arguments is `set`. If HAProxy's newest process is older than that file, it runs another configuration, and the check fails.
This kind exists because HAProxy itself reports the values of `show info`, but not the balance algorithm, timeouts and sizes.
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
from lab.systems.manifests.gateway_api import ANY, Entry, Match, ServedPort, list_rules
from lab.systems.programs import read_version
from lab.systems.reading import (
    ABSENT,
    CLOCK_S,
    Reading,
    UnreadableError,
    compare_value,
    fail_reading,
    join_distinct,
    list_processes,
    require_key,
    run_in_container,
)
from lab.systems.rendering import render_template
from lab.systems.renewing import make_signal_renewal
from lab.systems.system import (
    ContainerProcess,
    Context,
    Loading,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    all_cpus,
    find_program,
    list_native_served,
    refuse_workers,
    require_pid,
    resolve_targets,
    sum_sizes,
    write_changed,
)

SOCKET = "/var/lib/haproxy/run/haproxy.sock"
"""The path of the statistics socket in the router's image, used on every target."""
COUNTS = "show stat -1 1 -1"
"""The command that lists the frontends of every proxy."""
HEALTH = "healthz"
"""The name of the frontend to which probes connect; its requests are not counted."""
TIMEOUT_S = 2.0


def send_command(path: Path, command: str) -> str:
    """Send one command to HAProxy's statistics socket, and return the answer.

    Args:
        path: the path of the socket on this machine.
        command: the command, such as `show info`.

    Raises:
        OSError: when the socket does not answer.

    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(f"{command}\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")


def find_serving_pid(process: ContainerProcess) -> str:
    """Return the id of the HAProxy process that answers on the statistics socket, as text such as `12`.

    The id is the one inside the container. The text is empty if no process answers within 2 s.
    """
    path = process.inside(SOCKET)
    try:
        answer = send_command(path, "show info") if path is not None else ""
    except OSError:
        return ""
    match = re.search(r"^Pid: (\d+)$", answer, re.MULTILINE)
    return match[1] if match else ""


def parse_counts(stat: str) -> Mapping[str, int]:
    """Parse the numbers of clients' requests and TLS handshakes from HAProxy's answer to `show stat`.

    Requests are summed over all HTTP frontends, without the frontend for probes. Handshakes are summed over all frontends.

    Returns:
        `requests`, `requests_h2` (by HTTP/2), `tls_handshakes` and `tls_resumed` → number. A number that no frontend reports is
        left out.

    """
    rows = csv.DictReader(stat.removeprefix("# ").splitlines())
    fronts = [row for row in rows if row.get("svname") == "FRONTEND"]
    http = [row for row in fronts if row.get("mode") == "http" and row.get("pxname") != HEALTH]
    cells = {"requests": "req_tot", "requests_h2": "h2_headers_rcvd"}
    numbers = {name: [int(count) for row in http if (count := row.get(cell))] for name, cell in cells.items()}
    counts = {name: sum(values) for name, values in numbers.items() if values}
    handshakes = [(row.get("ssl_sess"), row.get("ssl_reused_sess")) for row in fronts]
    pairs = [(int(full), int(resumed)) for full, resumed in handshakes if full and resumed]
    if pairs:
        resumed = sum(again for _, again in pairs)
        counts |= {"tls_handshakes": sum(full for full, _ in pairs) + resumed, "tls_resumed": resumed}
    return counts


def _read_info(system: System, check: Check) -> Reading:
    name = require_key(check, "name")
    text = run_in_container(system, check, ["sh", "-c", f"echo 'show info' | socat - UNIX-CONNECT:{SOCKET}"])
    rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if "Nbthread" not in rows:
        raise UnreadableError(f"show info answered {text.strip()[:80]!r}")
    return compare_value(check, rows.get(name, ABSENT).strip())


def _read_config(system: System, check: Check) -> Reading:
    directive = require_key(check, "name").split()
    running = [process for process in list_processes(system, check) if re.match(r"(\S*/)?haproxy( |$)", process.title)]
    files = list(dict.fromkeys(file for process in running for file in re.findall(r" -f (\S+)", process.title)))
    if not files:
        raise UnreadableError("no HAProxy with a configuration file runs")
    values = list(_find_values(run_in_container(system, check, ["cat", *files]), directive, check.context))
    if check.among:
        values = [check.value if f" {check.value} " in f" {line} " else line for line in values]
    result = compare_value(check, join_distinct(values) if values else ABSENT)
    written = int(run_in_container(system, check, ["stat", "-c", "%Y", files[0]]))
    if (
        result.ok
        and max(reading.read_start_times(system, check, [process.pid for process in running])) + CLOCK_S < written
    ):
        detail = f"{files[0]} was written after the newest HAProxy had started: it is not what it runs"
        return fail_reading(check, result.observed, detail)
    return result


def _find_values(text: str, directive: Sequence[str], context: str | None) -> Iterator[str]:
    """Yield the arguments of every line with a certain directive in HAProxy's configuration.

    For a line without arguments, `set` is yielded.

    Args:
        text: the text of the configuration.
        directive: the words of the directive, such as `["timeout", "client"]`.
        context: the sections to search: a kind such as `backend`, or the whole first line of one section; None = all sections.

    """
    section = [""]
    for line in text.splitlines():
        parts = line.split()
        if parts and not line[0].isspace() and not line.startswith("#"):
            section = parts
        elif parts[: len(directive)] == list(directive) and context in (None, section[0], " ".join(section)):
            yield " ".join(parts[len(directive) :]) or "set"


def count(process: ContainerProcess) -> Mapping[str, int]:
    """Return the numbers of clients' requests and TLS handshakes that a running HAProxy reports, in the form of `parse_counts`.

    The result is empty while HAProxy has no statistics socket.

    Raises:
        OSError: when the socket does not answer.

    """
    path = process.inside(SOCKET)
    if path is None or not path.exists():
        return {}
    return parse_counts(send_command(path, COUNTS))


COUNT_SCRIPT = f"""if [ -S {SOCKET} ]; then
  echo '{COUNTS}' | socat - UNIX-CONNECT:{SOCKET}
  exit
fi"""


def count_workers(processes: Sequence[tuple[int, str]]) -> int:
    """Return the number of HAProxy's threads that serve requests, from a list of processes.

    Processes with the option `-W` come in pairs of a master and a worker. The single thread of each master is not counted.

    Args:
        processes: pairs (number of threads, command line).

    """
    proxies = [
        (threads, title.split())
        for threads, title in processes
        if title.split(" ", 1)[0].rpartition("/")[2] == "haproxy"
    ]
    return sum(threads for threads, _ in proxies) - sum("-W" in arguments for _, arguments in proxies) // 2


READBACKS = {
    "haproxy": ReadbackKind(read=_read_info, spoken="show info: {name}", workers={"Nbthread": "threads"}),
    "haproxy-config": ReadbackKind(
        read=_read_config, possible=frozenset({"context", "among"}), spoken="{name} in its running configuration"
    ),
}


HOME = "/var/lib/haproxy"
CONFIG = f"{HOME}/conf/haproxy.cfg"
FD_CEILING = 1_048_576
"""The limit of open files that the lab sets where a container may have more.

HAProxy derives its maximum of connections from that limit, and would reserve memory for connections that never come.
"""
ARGUMENTS = ("-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg")
TIMEOUTS = {"timeout connect": "5s", "timeout client": "50s", "timeout server": "50s"}
"""The timeouts with which HAProxy's documentation and Debian's file begin.

HAProxy itself has no defaults for them, and warns where they are missing.
"""

Sections = Mapping[str, Mapping[str, str]]
"""Section of HAProxy's configuration → directive → arguments, without the directives that the routes result in.

The section `server` has the parameters of each server's line.
"""
SECTIONS: Sections = {"global": {}, "defaults": TIMEOUTS, "frontend": {}, "backend": {}, "server": {}}


def realise(context: Context) -> Realisation:
    """Return how the lab starts HAProxy in place of a container of HAProxy's image.

    The result has the command, the environment, and a configuration that serves the Gateways of HAProxy's class (a GatewayClass
    with the controller `lab.test/haproxy`).

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for a route that HAProxy's configuration cannot express here, a container with other arguments than
            `ARGUMENTS`, or when there is no HAProxy on PATH.
        NotMeasurableError: for more threads than the container has CPUs.

    """
    ports = list_native_served(context, "haproxy", ARGUMENTS)
    sections = settings.read_sections("ConfigMap/haproxy", context.objects.configmaps.get("haproxy", {}), SECTIONS)
    if (threads := sections["global"].get("nbthread", "")).isdecimal():
        refuse_workers("ConfigMap/haproxy: global.nbthread", int(threads), context, "threads")
    return realise_haproxy(context, ports, sections, "HAProxy")


def realise_haproxy(
    context: Context, ports: Sequence[ServedPort], sections: Sections, proxy: str, slots: int = 0
) -> Realisation:
    """Return how the lab starts the HAProxy on PATH, with a configuration that serves some ports and their routes.

    If a process may have more than `FD_CEILING` open files, the configuration lowers that limit to `FD_CEILING`.

    Args:
        context: the facts about the container.
        ports: the ports with their routes.
        sections: section → directive → arguments, for all directives that do not result from the routes.
        proxy: the name of the system, for error messages.
        slots: the number of server lines that each backend has at least; lines without an endpoint are disabled.

    Raises:
        UsageError: for a route that HAProxy's configuration cannot express here, or when there is no HAProxy on PATH.

    """
    find_program(context.container.place, "haproxy")
    if context.open_files > FD_CEILING:
        sections = {**sections, "global": {"fd-hard-limit": str(FD_CEILING), **sections["global"]}}
    members, certificates = resolve_targets(context, ports, proxy)
    rules = list_rules(ports)
    names = {place: f"{place.split(':')[0].rpartition('/')[2]}-{number}" for number, place in enumerate(rules)}
    pems = {name: f"{HOME}/certs/{name}.pem" for name in certificates}
    text = render_template(
        Path(__file__).with_name("served.cfg.j2"),
        of=sections,
        slots=slots,
        socket=SOCKET,
        health=HEALTH,
        ports=[
            {
                "port": served.port,
                "certificates": [pems[name] for name in served.secrets],
                "ways": [way for host in served.ordered for way in _list_ways(host, served.hosts[host], names)],
            }
            for served in ports
        ],
        backends=[
            {
                "name": names[place],
                "headers": {name: _quote(value.replace("%", "%%")) for name, value in rule.headers.items()},
                "servers": members[rule.backend] if rule.backend else (),
            }
            for place, rule in rules.items()
        ],
    )
    pairs = {pems[name]: files["tls.crt"] + files["tls.key"] for name, files in certificates.items()}
    return Realisation(
        command=("haproxy", "-W", "-db", "-f", CONFIG),
        env=context.container.env,
        files={CONFIG: text, f"{Path(SOCKET).parent}/.keep": "", **pairs},
        checker=("haproxy", "-c", "-f", CONFIG),
        stop_signal=signal.SIGUSR1,  # soft-stop, as the images have it
    )


def _list_ways(host: str, entries: Sequence[Entry], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the arguments of a `use_backend` line, `BACKEND if CONDITIONS`, for each route of a host.

    A route for a path prefix needs two lines: one for the path itself, and one for all paths below it.

    Args:
        host: the host, which may be a wildcard, or `*` for any host.
        entries: the routes of the host: path matches with their rules.
        names: place of a rule → name of its HAProxy backend.

    """
    suffix = host.removeprefix("*")
    name = "hdr(host),field(1,:),lower"
    by_host = "" if host == ANY else f"{{ {name} -m end {suffix} }}" if suffix != host else f"{{ {name} {host} }}"
    for entry in entries:
        for by_path in _match_paths(entry.match):
            conditions = " ".join(filter(None, (by_host, by_path)))
            yield f"{names[entry.rule.place]}{f' if {conditions}' if conditions else ''}"


def _match_paths(match: Match) -> list[str]:
    if match.path_kind == "Exact":
        return [f"{{ path {_quote(match.path)} }}"]
    stem = match.path.rstrip("/")
    return [f"{{ path {_quote(stem)} }}", f"{{ path_beg {_quote(stem + '/')} }}"] if stem else [""]


def _quote(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"


class MasterControl:
    """The handle (`lab.systems.system.Control`) by which the lab makes a HAProxy with a master process (`-W`) load changes.

    It writes the new configuration and sends the master SIGUSR2. The master then starts a new worker, which answers on the
    statistics socket.

    Args:
        process: the container of the HAProxy.
        interval_s: the minimum time in seconds between two reloads.

    """

    looks_once_more = False

    def __init__(self, process: ContainerProcess, interval_s: float = 0.1) -> None:
        self._process, self.interval_s = process, interval_s
        self._before = ""

    def started(self) -> Loading | None:
        """Return a `Loading` for HAProxy's first configuration; None while the container's main process does not run.

        The result has no time, because nothing shows when the loading began: the main process is HAProxy from its start.
        """
        self._before = ""
        return Loading(None, 1) if self._process.pid is not None else None

    def serving(self, loading: Loading) -> bool:
        """Return whether HAProxy serves the new configuration: whether a new process answers on the statistics socket.

        Args:
            loading: the loading of the configuration, which is always the last one.

        Raises:
            MeasuringError: when the container has ended.

        """
        require_pid(self._process, "served")
        return find_serving_pid(self._process) not in ("", self._before)

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Write the changed configuration files of HAProxy, and send its master process the signal to reload.

        Args:
            files: path in the container → text; only files in the folder of the configuration are written.
            over: not used, since this method does not wait.

        Returns:
            The loading that began; None if no file has changed.

        Raises:
            MeasuringError: when the container has ended.

        """
        main, folder = require_pid(self._process, "took a reload"), str(Path(CONFIG).parent)
        self._before = find_serving_pid(self._process)
        if not write_changed(self._process, {path: text for path, text in files.items() if path.startswith(folder)}):
            return None
        began_s = time.time()
        os.kill(main, signal.SIGUSR2)
        return Loading(began_s, 1)

    def config_bytes(self) -> int:
        """Return the size of HAProxy's configuration file in bytes."""
        return sum_sizes(self._process, [CONFIG])


SYSTEM = ProxySystem(
    name="haproxy",
    image="library/haproxy",
    realise=realise,
    note="endpoints change by a reload",
    control=MasterControl,
    renew=make_signal_renewal(signal.SIGUSR2),  # the signal for the master
    counters=count,
    count_script=COUNT_SCRIPT,
    parse_counts=parse_counts,
    versions={
        "haproxy": lambda: read_version("haproxy", r"version (\S+)") or "not on PATH"
    },  # only some variants need it
    migrations={"haproxy": "migrate.tsv"},
    workers=Workers(rules={"haproxy": all_cpus}, keys=("global.nbthread",), count=count_workers),
    readbacks=READBACKS,
)
