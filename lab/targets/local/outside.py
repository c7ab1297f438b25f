"""What only the process outside the lab's namespaces can do: run one of the project's scripts, which wants the network.

    inside: run("proxies", ["envoy-1.40.0"])  ──["proxies", "envoy-1.40.0"]──>  outside: scripts/proxies envoy-1.40.0  ──0──>

By a socket that `enter` leaves open; where there is none, the script runs where we are. Refuses any other program.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "scripts"
CHANNEL = "LAB_OUTSIDE"
"""Environment variable: the number of the socket."""
_one_at_a_time = threading.Lock()


def run(script: str, argv: Sequence[str]) -> int:
    """The exit status of one of the project's scripts, which talks on stderr itself. ConnectionError when nobody is outside any more."""
    with _one_at_a_time:
        if CHANNEL not in os.environ:
            return subprocess.run([SCRIPTS / script, *argv], stdin=subprocess.DEVNULL, check=False).returncode
        with socket.socket(fileno=os.dup(int(os.environ[CHANNEL]))) as channel:
            channel.sendall(json.dumps([script, *argv]).encode() + b"\n")
            answer = channel.recv(16)
    if not answer:
        raise ConnectionError("the lab's outer process is gone")
    return int(answer)


@contextmanager
def serving() -> Iterator[int]:
    """The socket for a process that is started meanwhile with CHANNEL set to its number."""
    ours, theirs = socket.socketpair()
    threading.Thread(target=_serve, args=(ours,), name="outside", daemon=True).start()
    try:
        yield theirs.fileno()
    finally:
        theirs.close()


def _serve(ours: socket.socket) -> None:
    with ours, ours.makefile("r") as asked:
        for line in asked:
            script, *argv = json.loads(line)
            program = SCRIPTS / Path(script).name
            status = subprocess.run([program, *argv], stdin=subprocess.DEVNULL, check=False).returncode
            ours.sendall(f"{status}".encode())
