"""What a running HAProxy tells through its statistics socket: TLS handshakes that it has counted.

    # pxname,svname,…,ssl_sess,ssl_reused_sess,…
    fe_sni,FRONTEND,…,20,12401,…                  →  {"tls_handshakes": 12421, "tls_resumed": 12401}

`ssl_sess` are the full handshakes, `ssl_reused_sess` the resumed ones (HAProxy 2.6, src/ssl_sock.c). A reload begins anew.
"""

from __future__ import annotations

import csv
import socket
from collections.abc import Mapping
from pathlib import Path

SOCKET = "/var/lib/haproxy/run/haproxy.sock"
"""Where the router's image has it, on every target."""
TIMEOUT_S = 2.0


def ask(path: Path, command: str) -> str:
    """The answer to one command. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(f"{command}\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")


def tls(stat: str) -> Mapping[str, int]:
    """Handshakes of clients, from `show stat`: the sum over the frontends; empty where none of them is counted."""
    rows = list(csv.DictReader(stat.removeprefix("# ").splitlines()))
    found = [(row.get("ssl_sess"), row.get("ssl_reused_sess")) for row in rows if row.get("svname") == "FRONTEND"]
    counted = [(int(full), int(resumed)) for full, resumed in found if full and resumed]
    if not counted:
        return {}
    full, resumed = (sum(column) for column in zip(*counted, strict=True))
    return {"tls_handshakes": full + resumed, "tls_resumed": resumed}
