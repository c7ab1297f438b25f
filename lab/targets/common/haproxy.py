"""What a running HAProxy tells through its statistics socket: requests and TLS handshakes that it has counted.

    # pxname,svname,…,req_tot,…,mode,…,ssl_sess,ssl_reused_sess,…
    fe_sni,FRONTEND,…,40120,…,http,…,20,12401,…   →  {"requests": 40120}, {"tls_handshakes": 12421, "tls_resumed": 12401}

`ssl_sess` are the full handshakes, `ssl_reused_sess` the resumed ones (HAProxy 2.6, src/ssl_sock.c). A reload begins anew.
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
    """HTTP requests of clients, from `show stat`: the sum over the frontends that speak it, but for the probes'; empty where none is counted."""
    asked = [
        row.get("req_tot") for row in _frontends(stat) if row.get("mode") == "http" and row.get("pxname") != HEALTH
    ]
    counts = [int(count) for count in asked if count]
    return {"requests": sum(counts)} if counts else {}


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
