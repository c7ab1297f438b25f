"""What a running HAProxy tells through its statistics socket: requests and TLS handshakes that it has counted; and its kinds of checks.

    # pxname,svname,…,req_tot,…,mode,…,ssl_sess,ssl_reused_sess,…,h2_headers_rcvd,…
    fe_sni,FRONTEND,…,40120,…,http,…,20,12401,…,0,…   →  {"requests": 40120, "requests_h2": 0}, {"tls_handshakes": 12421, "tls_resumed": 12401}

A request by HTTP/2 begins with one HEADERS frame (`h2_headers_rcvd`, src/mux_h2.c), and one without trailers has no other. `ssl_sess` are the
full handshakes, `ssl_reused_sess` the resumed ones (HAProxy 2.6, src/ssl_sock.c). A reload begins anew.

Kind `haproxy` is a key of `show info`, asked of the running one through that socket by `socat`, which the router's image has and scripts/shell brings:

    Nbthread: 1
    Maxconn: 9985                    key, colon, value

`haproxy-config` is a directive (`timeout client`, `balance`) of the sections of a kind (`context`: defaults, backend, …), or of one section, of the
file that the running HAProxy was started with, `set` where it has no arguments; an older process than that file runs another, which is not ok.
What HAProxy says of itself is asked of it: the balance algorithm, timeouts and sizes it tells nobody.
"""

from __future__ import annotations

import csv
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.model.measurable import System
from lab.model.variants.variants import Check
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
    started,
    wrong,
)
from lab.systems.system import Process, ReadbackKind

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
    reading = compared(check, joined(found) if found else ABSENT)
    written = int(run(system, check, ["stat", "-c", "%Y", files[0]]))
    if reading.ok and max(started(system, check, [process.pid for process in running])) + CLOCK_S < written:
        detail = f"{files[0]} was written after the newest HAProxy had started: it is not what it runs"
        return wrong(check, reading.observed, detail)
    return reading


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
