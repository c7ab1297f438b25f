"""The known server: an HTTP test server that answers after given delays, and records exactly when it answered each request.

    python -m lab.experiments.calibration.known_server FILE '{"delay_s": 0.01, "pause_s": 1, "pause_at_s": 5}' (a `Behaviour`)

It uses the standard library only, since it runs where the backend would run. As soon as it listens, it writes its port
into `FILE.ready`. On SIGTERM it writes `FILE`: a line of JSON, then an int64 row for each answered request (see `COLUMNS`).

Two means make the record exact. The kernel stamps the bytes of each request when they arrive (SO_TIMESTAMPNS), so the time that this
process waits to be scheduled is in the record. A timerfd wakes the process, because the timeouts of epoll and asyncio are rounded up to
the next millisecond. The server never spins, since generator and server may share a CPU. The record also shows how late each answer was
against its plan. All times are nanoseconds of CLOCK_REALTIME, the clock of the arrivals; the lab notices a step of that clock and marks
the measurement.

It is not a general web server: it ignores bodies of requests, pipelining and every header, and has one answer, a body of 1024 bytes, for
every path.
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
"""The nanoseconds of a second."""
SEED = 7
"""The seed that decides which requests are slow, so that they are the same in every run."""
BODY_BYTES = 1024
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES
    + b"x" * BODY_BYTES
)
STOPS_WITHIN_S = 0.1
COLUMNS = ("connection", "arrived_ns", "planned_ns", "written_ns")
"""The columns of a request's row.

They are the number of its connection, and the times when its bytes had arrived, when its answer was to be written, and when the answer was
handed to the kernel.
"""
SO_TIMESTAMPNS = 35
"""The socket option from asm-generic/socket.h, for which Python has no name."""
CLOCK_REALTIME, TFD_TIMER_ABSTIME, TFD_NONBLOCK = 0, 1, 0o4000
"""The constants from time.h and sys/timerfd.h, which Python has from 3.13 on."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The delays of the known server (a test server that answers at known times), in seconds; 0 switches a delay off.

    Attributes:
        delay_s: The time from the arrival of a request's bytes to its answer.
        slow_s: The time from the arrival of a slow request's bytes to its answer.
        slow_every: The number of consecutive requests among which one, at a random position, is slow.
        pause_s: The length of the pause. An answer that is due during the pause is sent at its end.
        pause_at_s: The time from the first request to the beginning of the pause.

    """

    delay_s: float = 0.0
    slow_s: float = 0.0
    slow_every: int = 0
    pause_s: float = 0.0
    pause_at_s: float = 0.0


@dataclass(slots=True)
class Planner:
    """The planner of a server's answers: it decides for each request, in the order of arrival, when the server answers.

    Attributes:
        behaviour: The delays.
        began_ns: The time when the first request arrived, in nanoseconds since 1970.

    """

    behaviour: Behaviour
    began_ns: int = 0
    _count: int = 0
    _slow_position: int = -1
    _random: random.Random = field(default_factory=lambda: random.Random(SEED))

    def planned_ns(self, arrived_ns: int) -> int:
        """Return the time at which to answer the next request, in nanoseconds since 1970.

        Args:
            arrived_ns: The time when the request arrived, in nanoseconds since 1970.

        """
        behaviour = self.behaviour
        if not self._count:
            self.began_ns = arrived_ns
        delay_s = behaviour.delay_s
        if behaviour.slow_every:
            position = self._count % behaviour.slow_every
            if position == 0:
                self._slow_position = self._random.randrange(behaviour.slow_every)
            delay_s = behaviour.slow_s if position == self._slow_position else delay_s
        self._count += 1
        planned = arrived_ns + round(delay_s * SECOND)
        begin = self.began_ns + round(behaviour.pause_at_s * SECOND)
        end = begin + round(behaviour.pause_s * SECOND)
        return end if begin <= planned < end else planned


class Timer:
    """A timer of the kernel (timerfd): its file descriptor becomes readable at a time that is set in nanoseconds."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = int(self._libc.timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def at(self, moment_ns: int) -> None:
        """Set the timer to a time, which replaces the previous one; if the time is in the past, the timer fires at once.

        Args:
            moment_ns: The time, in nanoseconds since 1970.

        """
        setting = struct.pack("qqqq", 0, 0, *divmod(moment_ns, SECOND))
        if self._libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, setting, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def read(self) -> None:
        """Reset the timer after it has fired, so that its file descriptor is no longer readable."""
        with suppress(BlockingIOError):  # the timer was set again in the meantime
            os.read(self.fd, 8)


@dataclass(slots=True)
class ServerConnection:
    """A connection that the server accepted: its number (from 1), its socket, and the bytes of a request that is incomplete so far."""

    number: int
    socket: socket.socket
    seen: bytes = b""


class Server:
    """An HTTP server with one thread that answers requests at known times and records them.

    Attributes:
        planner: The planner of its answers.
        timer: The timer that wakes it.
        rows: Its record: four numbers for each answered request, as `COLUMNS` lists them.
        accepted: The number of connections that it accepted.
        broken: The number of answers that could not be written.
        unstamped: The number of requests whose arrival the kernel did not stamp with its time.
        port: The TCP port on which it listens.

    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.planner, self.timer, self.rows = Planner(behaviour), Timer(), array("q")
        self.accepted = self.broken = self.unstamped = self._request_count = 0
        self._waiting: list[
            tuple[int, int, int, ServerConnection]
        ] = []  # a heap: planned, number of the request, arrived
        self._connections: dict[int, ServerConnection] = {}
        self._listener = socket.create_server(("", 0), backlog=4096)
        self._listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # the kernel begins to stamp now, not later
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._epoll = select.epoll()
        self._stopped = False

    def serve(self) -> None:
        """Answer requests until SIGTERM arrives."""
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
        """Accept one connection. If more are waiting, epoll reports the listening socket again."""
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        self._connections[accepted.fileno()] = ServerConnection(self.accepted, accepted)
        self._epoll.register(accepted.fileno(), select.EPOLLIN)

    def _read(self, connection: ServerConnection) -> None:
        """Read what has arrived on a connection; if it completes a request, plan the answer. Close a connection that the client ended."""
        try:
            data, ancillary, _, _ = connection.socket.recvmsg(65536, 64)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._close(connection)
            return
        connection.seen += data
        if b"\r\n\r\n" not in connection.seen:
            return
        connection.seen = b""
        stamps = (struct.unpack("qq", stamp) for _, kind, stamp in ancillary if kind == SO_TIMESTAMPNS)
        seconds, nanoseconds = next(stamps, (0, 0))  # a struct timespec
        arrived_ns = seconds * SECOND + nanoseconds
        if not arrived_ns:
            self.unstamped += 1
            arrived_ns = time.time_ns()
        self._request_count += 1
        heapq.heappush(
            self._waiting, (self.planner.planned_ns(arrived_ns), self._request_count, arrived_ns, connection)
        )

    def _answer(self, planned_ns: int, _number: int, arrived_ns: int, connection: ServerConnection) -> None:
        """Send the answer to a request, and add the request's row to the record.

        The row's time is taken before the call that sends the answer. The client may run and read the answer before that call returns.

        Args:
            planned_ns: The time for which the answer was planned, in nanoseconds since 1970.
            arrived_ns: The time when the request arrived, in nanoseconds since 1970.
            connection: The request's connection.

        """
        if connection.socket.fileno() < 0:
            self.broken += 1  # the client has gone
            return
        written_ns = time.time_ns()
        try:
            complete = connection.socket.send(ANSWER) == len(ANSWER)
        except OSError:
            complete = False
        if complete:
            self.rows.extend((connection.number, arrived_ns, planned_ns, written_ns))
        else:
            self.broken += 1
            self._close(connection)

    def _close(self, connection: ServerConnection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()  # this also removes it from epoll

    def record(self) -> bytes:
        """Return the content of the record file: a line of JSON with the server's counts, then the rows as int64 numbers."""
        counts = {
            "connections": self.accepted,
            "broken": self.broken,
            "unstamped": self.unstamped,
            "cpu_s": time.process_time(),
        }
        return json.dumps(counts).encode() + b"\n" + self.rows.tobytes()


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.rename(path)


def main(record: Path, behaviour: Behaviour) -> None:
    """Run the test server until SIGTERM arrives, then write its record of all answers into a file.

    As soon as the server listens, it writes its port into another file, whose name is that of the record with `.ready` added.

    Args:
        record: The path of the file for the record.
        behaviour: The delays of the answers.

    """
    gc.disable()  # the server makes no reference cycles, and a collection would be an unplanned pause
    server = Server(behaviour)
    _write(record.with_name(f"{record.name}.ready"), str(server.port).encode())
    server.serve()
    _write(record, server.record())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Behaviour(**json.loads(sys.argv[2])))
