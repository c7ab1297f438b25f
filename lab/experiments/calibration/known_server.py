"""An HTTP server whose answers are known: it does one thing on purpose, and keeps its own exact record of every request.

    python -m lab.experiments.calibration.known_server FILE '{"delay_s": 0.01, "pause_s": 1, "pause_at_s": 5}' (a `Behaviour`)

Standard library only, since it is started in the backend's place. It writes `FILE.ready` (its port) when it listens, and `FILE` on
SIGTERM: a line of JSON, then an int64 row for every request (see `COLUMNS`).

What makes it exact: the kernel stamps each request's bytes when they arrive (SO_TIMESTAMPNS), so that waiting for this process
to be scheduled is in the record; and a timerfd wakes it, because the timeouts of epoll and asyncio are rounded up to the next
millisecond. It never spins: generator and server may share a CPU. How late each answer was for its own plan is in the record.
Refuses to be a web server: bodies of requests, pipelining and every header are ignored; one answer, 1024 bytes, whatever the path.
"""

from __future__ import annotations

import gc
import heapq
import json
import select
import signal
import socket
import sys
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

from lab.analysis.calibration.behaviour import Behaviour
from lab.experiments.calibration.known_behaviour import Planner
from lab.experiments.calibration.known_clock import SO_TIMESTAMPNS, Timer, nanoseconds

BODY_BYTES = 1024
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES
    + b"x" * BODY_BYTES
)
STOPS_WITHIN_S = 0.1
COLUMNS = ("connection", "arrived_ns", "planned_ns", "written_ns")
"""Of a request's row: the number of its connection; when its bytes were there, when its answer was to be written, and when it
was handed to the kernel, in nanoseconds of CLOCK_REALTIME."""


@dataclass(slots=True)
class Connection:
    number: int
    socket: socket.socket
    answers: int = 0
    seen: bytes = b""


class Server:
    """Serves until SIGTERM, in one thread; `rows` is its record."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour, self.planner, self.timer = behaviour, Planner(behaviour), Timer()
        self.rows = array("q")
        self.accepted = self.closed = self.broken = self.unstamped = self._asked = 0
        self._waiting: list[tuple[int, int, int, Connection]] = []  # planned, which one it is, arrived
        self._connections: dict[int, Connection] = {}
        self._listener = socket.create_server(("", 0), backlog=4096)
        self._listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # the kernel begins to stamp now, not later
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._epoll = select.epoll()
        self._stopped = False

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        for fd in (self._listener.fileno(), self.timer.fd):
            self._epoll.register(fd, select.EPOLLIN)
        armed_ns = 0
        while not self._stopped:
            while self._waiting and self._waiting[0][0] <= time.time_ns():
                self._answer(*heapq.heappop(self._waiting))
            if self._waiting and self._waiting[0][0] != armed_ns:
                armed_ns = self._waiting[0][0]
                self.timer.at(armed_ns)
            for fd, _ in self._epoll.poll(STOPS_WITHIN_S):
                if fd == self._listener.fileno():
                    self._accept()
                elif fd == self.timer.fd:
                    self.timer.read()
                elif fd in self._connections:
                    self._read(self._connections[fd])

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _accept(self) -> None:
        """One: epoll tells of the next."""
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        self._connections[accepted.fileno()] = Connection(self.accepted, accepted)
        self._epoll.register(accepted.fileno(), select.EPOLLIN)

    def _read(self, connection: Connection) -> None:
        try:
            found, about, _, _ = connection.socket.recvmsg(65536, 64)
        except BlockingIOError:
            return
        except OSError:
            found, about = b"", []
        if not found:
            self._close(connection)
            return
        connection.seen += found
        if b"\r\n\r\n" not in connection.seen:
            return
        connection.seen = b""
        arrived_ns = next((nanoseconds(data) for _, kind, data in about if kind == SO_TIMESTAMPNS), None)
        if arrived_ns is None:
            self.unstamped += 1
            arrived_ns = time.time_ns()
        planned_ns = self.planner.planned_ns(arrived_ns)
        self._asked += 1
        heapq.heappush(self._waiting, (planned_ns, self._asked, arrived_ns, connection))

    def _answer(self, planned_ns: int, _which: int, arrived_ns: int, connection: Connection) -> None:
        """The stamp is taken before the bytes are handed over: the generator may run, and read them, before that call returns."""
        if connection.socket.fileno() < 0:
            self.broken += 1  # the client has gone
            return
        written_ns = time.time_ns()
        try:
            whole = connection.socket.send(ANSWER) == len(ANSWER)
        except OSError:
            whole = False
        if not whole:
            self.broken += 1
            self._close(connection)
            return
        self.rows.extend((connection.number, arrived_ns, planned_ns, written_ns))
        connection.answers += 1
        if connection.answers == self.behaviour.close_after:
            self.closed += 1
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()  # epoll forgets it by itself

    def record(self) -> bytes:
        """The line of JSON, and the rows."""
        told = {
            "columns": COLUMNS,
            "requests": len(self.rows) // len(COLUMNS),
            "connections": self.accepted,
            "closed": self.closed,
            "broken": self.broken,
            "unstamped": self.unstamped,
            "cpu_s": time.process_time(),
        }
        return json.dumps(told).encode() + b"\n" + self.rows.tobytes()


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.rename(path)


def main(record: Path, behaviour: Behaviour) -> None:
    gc.disable()  # it makes no cycles, and a collection would be a pause that nobody asked for
    server = Server(behaviour)
    _write(record.with_name(f"{record.name}.ready"), str(server.port).encode())
    server.serve()
    _write(record, server.record())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Behaviour(**json.loads(sys.argv[2])))
