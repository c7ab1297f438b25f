"""What a running HAProxy tells through its statistics socket: requests and TLS handshakes that it has counted.

    # pxname,svname,…,req_tot,…,mode,…,ssl_sess,ssl_reused_sess,…,h2_headers_rcvd,…
    fe_sni,FRONTEND,…,40120,…,http,…,20,12401,…,0,…   →  {"requests": 40120, "requests_h2": 0}, {"tls_handshakes": 12421, "tls_resumed": 12401}

A request by HTTP/2 begins with one HEADERS frame (`h2_headers_rcvd`, src/mux_h2.c), and one without trailers has no other. `ssl_sess` are the full handshakes, `ssl_reused_sess` the resumed ones (HAProxy 2.6, src/ssl_sock.c). A reload begins anew.
"""

from __future__ import annotations

import csv
import socket
from collections.abc import Mapping
from pathlib import Path

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


def counted(stat: str) -> Mapping[str, int]:
    """HTTP requests of clients, and those of them by HTTP/2, from `show stat`: the sum over the frontends that speak it, but for the
    probes'; empty where none is counted.
    """
    asked = [row for row in _frontends(stat) if row.get("mode") == "http" and row.get("pxname") != HEALTH]
    cells = {"requests": "req_tot", "requests_h2": "h2_headers_rcvd"}
    told = {name: [int(count) for row in asked if (count := row.get(cell))] for name, cell in cells.items()}
    return {name: sum(counts) for name, counts in told.items() if counts}


def tls(stat: str) -> Mapping[str, int]:
    """Handshakes of clients, from `show stat`: the sum over the frontends; empty where none of them is counted."""
    found = [(row.get("ssl_sess"), row.get("ssl_reused_sess")) for row in _frontends(stat)]
    counted = [(int(full), int(resumed)) for full, resumed in found if full and resumed]
    if not counted:
        return {}
    full, resumed = (sum(column) for column in zip(*counted, strict=True))
    return {"tls_handshakes": full + resumed, "tls_resumed": resumed}


def _frontends(stat: str) -> list[dict[str, str]]:
    rows = csv.DictReader(stat.removeprefix("# ").splitlines())
    return [row for row in rows if row.get("svname") == "FRONTEND"]
