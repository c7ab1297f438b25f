"""An HTTP server whose answers are known: it does one thing on purpose, and keeps its own exact record of every request.

    python -m lab.experiments.calibration.known_server FILE '{"delay_s": 0.01, "pause_s": 1, "pause_at_s": 5}' (a `Behaviour`)

Standard library only, since it is started in the backend's place. It writes `FILE.ready` (its port) when it listens, and `FILE` on
SIGTERM: a line of JSON, then an int64 row for every request that was answered (see `COLUMNS`).

What makes it exact: the kernel stamps each request's bytes when they arrive (SO_TIMESTAMPNS), so that waiting for this process
to be scheduled is in the record; and a timerfd wakes it, because the timeouts of epoll and asyncio are rounded up to the next
millisecond. It never spins: generator and server may share a CPU. How late each answer was for its own plan is in the record. All times
are nanoseconds of CLOCK_REALTIME, the clock of arrivals; a step of it is seen by the lab, which marks the measurement.
Refuses to be a web server: bodies of requests, pipelining and every header are ignored; one answer, 1024 bytes, whatever the path.
"""

from __future__ import annotations

import ctypes
import gc
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

SECOND = 1_000_000_000
"""Nanoseconds."""
SEED = 7
"""Of which requests are slow: the same in every run."""
BODY_BYTES = 1024
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES
    + b"x" * BODY_BYTES
)
STOPS_WITHIN_S = 0.1
COLUMNS = ("connection", "arrived_ns", "planned_ns", "written_ns")
"""Of a request's row: the number of its connection; when its bytes were there, when its answer was to be written, and when it
was handed to the kernel."""
SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; Python has no name for it."""
CLOCK_REALTIME, TFD_TIMER_ABSTIME, TFD_NONBLOCK = 0, 1, 0o4000
"""time.h and sys/timerfd.h; Python knows them from 3.13 on."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the server does on purpose; seconds, 0 = not at all.

    An answer is written `delay_s` after its request's bytes were there; one of every `slow_every`, at a random place among
    them, after `slow_s`. Answers that fall into the `pause_s` that begin `pause_at_s` after the first request wait for its end.
    """

    delay_s: float = 0.0
    slow_s: float = 0.0
    slow_every: int = 0
    pause_s: float = 0.0
    pause_at_s: float = 0.0


@dataclass(slots=True)
class Planner:
    """When each answer is to be written (ns), from when its request arrived (ns), in the order of arrival."""

    behaviour: Behaviour
    began_ns: int = 0
    _count: int = 0
    _slow_one: int = -1
    _random: random.Random = field(default_factory=lambda: random.Random(SEED))

    def planned_ns(self, arrived_ns: int) -> int:
        how = self.behaviour
        if not self._count:
            self.began_ns = arrived_ns
        delay_s = how.delay_s
        if how.slow_every:
            place = self._count % how.slow_every
            if place == 0:
                self._slow_one = self._random.randrange(how.slow_every)
            delay_s = how.slow_s if place == self._slow_one else delay_s
        self._count += 1
        planned = arrived_ns + round(delay_s * SECOND)
        begin = self.began_ns + round(how.pause_at_s * SECOND)
        end = begin + round(how.pause_s * SECOND)
        return end if begin <= planned < end else planned


class Timer:
    """A timerfd: readable at a moment, to the precision of the kernel's high-resolution timers."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = int(self._libc.timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def at(self, moment_ns: int) -> None:
        """Wake at this moment, at once where it has passed, and no longer at the one before."""
        when = struct.pack("qqqq", 0, 0, *divmod(moment_ns, SECOND))
        if self._libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, when, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def read(self) -> None:
        with suppress(BlockingIOError):  # it was set anew meanwhile
            os.read(self.fd, 8)


@dataclass(slots=True)
class Connection:
    number: int
    socket: socket.socket
    seen: bytes = b""


class Server:
    """Serves until SIGTERM, in one thread; `rows` is its record."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.planner, self.timer, self.rows = Planner(behaviour), Timer(), array("q")
        self.accepted = self.broken = self.unstamped = self._asked = 0
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
        """Accept one: epoll tells of the next."""
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
        stamps = (struct.unpack("qq", data) for _, kind, data in about if kind == SO_TIMESTAMPNS)
        seconds, nanoseconds = next(stamps, (0, 0))  # a struct timespec
        arrived_ns = seconds * SECOND + nanoseconds
        if not arrived_ns:
            self.unstamped += 1
            arrived_ns = time.time_ns()
        self._asked += 1
        heapq.heappush(self._waiting, (self.planner.planned_ns(arrived_ns), self._asked, arrived_ns, connection))

    def _answer(self, planned_ns: int, _which: int, arrived_ns: int, connection: Connection) -> None:
        """Answer a request. The stamp is taken first: the generator may run, and read the bytes, before the call that hands them over returns."""
        if connection.socket.fileno() < 0:
            self.broken += 1  # the client has gone
            return
        written_ns = time.time_ns()
        try:
            whole = connection.socket.send(ANSWER) == len(ANSWER)
        except OSError:
            whole = False
        if whole:
            self.rows.extend((connection.number, arrived_ns, planned_ns, written_ns))
        else:
            self.broken += 1
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()  # epoll forgets it by itself

    def record(self) -> bytes:
        """Return the line of JSON, and the rows."""
        told = {
            "connections": self.accepted,
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
