"""TCP sockets that stay in a network namespace after a load, as the kernel counts and lists them; processes that outlive a reload.

    TCP: inuse 5 orphan 0 tw 12985 alloc 7 mem 1                  →  counts of /proc/net/sockstat
    0: 0100007F:B001 0200400A:0050 06 00000000:00000000 03:…      →  a row of /proc/net/tcp: one TIME_WAIT socket to 10.64.0.2:80

Refuses to read a whole table where the counts show that few sockets wait: each table costs 5 ms of CPU time however short it is,
as the kernel walks through all the hash buckets of all namespaces.
"""

from __future__ import annotations

import re
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.files import readable
from lab.systems.table import PASSING_PATTERN

LOOK_CLOSER = 100
"""TIME_WAIT sockets in a namespace from which on they are told apart: fewer are 0.4 % of the default port range and decide nothing."""
ANYWHERE = "any"
"""Destination of sockets that were not told apart: an upper bound, as some may have a server's port."""
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
NET = "/proc/thread-self/net"
SHUTTING_DOWN = "worker process is shutting down"
"""In the title of a worker that a reload has told to end."""

_TIME_WAIT, _LISTEN = "06", "0A"
_DIAG_BY_FAMILY, _DIAG_ERROR, _DIAG_DONE = 20, 2, 3
_ROOT_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_LISTENING = 1 << 10
_REQUEST = struct.Struct("=IHHII BBBxI 48x")
_HEAD, _QUEUE = struct.Struct("=IH"), struct.Struct("=I")
_QUEUE_AT = 16 + 4 + 48 + 4  # after the message's head, four bytes of state, the socket's address and its timer


@dataclass(frozen=True, slots=True)
class Sockets:
    """The TCP sockets of one network namespace.

    Attributes:
        time_wait: Destination (address:port) → TIME_WAIT sockets whose local port is ephemeral; ANYWHERE where they are few.
        ports: How many local ports connections from here can use.
        connections: Connections that are not closed yet, of servers and clients.
        queued: Connections that wait to be accepted, over all listeners.

    """

    time_wait: Mapping[str, int]
    ports: int
    connections: int
    queued: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What /proc/net/sockstat and sockstat6 count: sockets that are not in TIME_WAIT, listeners among them, and those that are."""

    in_use: int
    time_wait: int


def parse_counts(sockstat: str) -> Counts:
    """Parse /proc/net/sockstat, with sockstat6 behind it where there is one. ValueError for anything else."""
    groups = {line.split(":")[0]: line.split(":")[1].split() for line in sockstat.splitlines() if ":" in line}
    values = {name: dict(zip(words[::2], map(int, words[1::2]), strict=True)) for name, words in groups.items()}
    if "tw" not in values.get("TCP", {}):
        raise ValueError(f"no TCP line with tw in {sockstat[:80]!r}")
    return Counts(values["TCP"]["inuse"] + values.get("TCP6", {}).get("inuse", 0), values["TCP"]["tw"])


def parse_range(text: str) -> tuple[int, int]:
    """Parse ip_local_port_range into its first and last port. ValueError for anything else."""
    first, last = map(int, text.split())
    return first, last


def waiting_by_destination(table: Iterable[str], ports: tuple[int, int]) -> dict[str, int]:
    """Count the TIME_WAIT sockets of /proc/net/tcp or tcp6 whose local port is in the range, by destination (address:port)."""
    raw: Counter[str] = Counter()
    first, last = ports
    for line in table:
        _, local, remote, state, *_ = line.split(None, 4)
        if state == _TIME_WAIT and first <= int(local[-4:], 16) <= last:
            raw[remote] += 1
    destinations: Counter[str] = Counter()
    for remote, count in raw.items():
        destinations[_destination(remote)] += count
    return dict(destinations)


def parse_listeners(table: Iterable[str]) -> list[int]:
    """Return how many connections wait at each listener of /proc/net/tcp or tcp6 (its receive queue)."""
    rows = (line.split(None, 5) for line in table)
    return [int(row[4].split(":")[1], 16) for row in rows if row[3] == _LISTEN]


def _destination(text: str) -> str:
    """Turn the kernel's `0200400A:0050` into `10.64.0.2:80`; an IPv4 address in IPv6's form becomes IPv4."""
    address, _, port = text.rpartition(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    if len(packed) == 16 and packed.startswith(bytes(10) + b"\xff\xff"):
        packed = packed[12:]
    if len(packed) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{int(port, 16)}"


def look() -> Sockets:
    """Look at the network namespace of the calling thread. Raises OSError, ValueError where the kernel does not show it."""
    counts = parse_counts(Path(f"{NET}/sockstat").read_text() + readable(f"{NET}/sockstat6"))
    ports = parse_range(Path(RANGE).read_text())
    queues = listening()
    waiting = {ANYWHERE: counts.time_wait} if counts.time_wait else {}
    if counts.time_wait >= LOOK_CLOSER:
        waiting = waiting_by_destination(_rows(), ports)
    return Sockets(waiting, ports[1] - ports[0] + 1, max(0, counts.in_use - len(queues)), sum(queues))


def _rows() -> list[str]:
    """The rows of both tables, without their headings."""
    return [line for name in ("tcp", "tcp6") for line in readable(f"{NET}/{name}").splitlines()[1:]]


def listening() -> list[int]:
    """Return how many connections wait at each listener of the calling thread's namespace.

    Asked by sock_diag(7), which goes through listeners alone; by the tables where the kernel has no sock_diag. Raises OSError.
    """
    try:
        return [queued for family in (socket.AF_INET, socket.AF_INET6) for queued in _diag(family)]
    except OSError:
        return parse_listeners(_rows())


def _diag(family: int) -> list[int]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as dialogue:
        protocol = socket.IPPROTO_TCP
        dialogue.send(_REQUEST.pack(_REQUEST.size, _DIAG_BY_FAMILY, _ROOT_DUMP, 1, 0, family, protocol, 0, _LISTENING))
        queues: list[int] = []
        while True:
            answer, at = dialogue.recv(1 << 16), 0
            while at < len(answer):
                length, kind = _HEAD.unpack_from(answer, at)
                if kind == _DIAG_DONE:
                    return queues
                if kind == _DIAG_ERROR:
                    raise OSError("the kernel does not list its listeners by sock_diag")
                queues.append(_QUEUE.unpack_from(answer, at + _QUEUE_AT)[0])
                at += (length + 3) & ~3


class Ordinary:
    """How many processes a proxy runs in its ordinary state: as many as the first count after a bring-up or a reload showed."""

    def __init__(self) -> None:
        self._count: int | None = None

    def forget(self) -> None:
        """Take the next count as the ordinary one."""
        self._count = None

    def beyond(self, count: int, ending: int) -> int:
        """Return how many processes are old workers.

        Args:
            count: Processes of the proxy now.
            ending: Those of them whose title says that they are ending.

        """
        if self._count is None:
            self._count = count - ending
        return max(ending, count - self._count, 0)


SCRIPT = rf"""
for file in /proc/net/sockstat /proc/net/sockstat6; do
  [ -r $file ] || continue
  while IFS= read -r line; do
    echo "$line"
    case $line in "TCP: "*) waiting=${{line#* tw }} waiting=${{waiting%% *}} ;; esac
  done <$file
done
echo @range
cat {RANGE}
echo @listening
for file in /proc/net/tcp /proc/net/tcp6; do
  [ -r $file ] || continue
  while read -r slot near far state rest; do
    [ "$slot" != sl ] || continue
    [ "$state" = {_LISTEN} ] || break
    echo "$slot $near $far $state $rest"
  done <$file
done
echo @waiting
if [ "${{waiting:-0}}" -ge {LOOK_CLOSER} ]; then
  if command -v grep >/dev/null; then grep -h " {_TIME_WAIT} " /proc/net/tcp /proc/net/tcp6; else cat /proc/net/tcp /proc/net/tcp6; fi
fi
echo @processes
page=4
while read -r name value rest; do
  [ "$name" != KernelPageSize: ] || {{ page=$value; break; }}
done </proc/self/smaps
count=0 ending=0 pages=0
for p in /proc/[0-9]*; do
  IFS= read -r line <$p/stat || continue
  rest=${{line##*) }} parent=${{rest#* }} parent=${{parent%% *}}
  [ "${{p#/proc/}}" != "$SHELL_PID" ] && [ "$parent" != "$SHELL_PID" ] || continue
  title=
  IFS= read -r title <$p/cmdline || :
  case $title in {PASSING_PATTERN}) continue ;; *"{SHUTTING_DOWN}"*) ending=$((ending + 1)) ;; esac
  read -r size resident rest <$p/statm || continue
  count=$((count + 1)) pages=$((pages + resident))
done 2>/dev/null
echo "$count $ending $((pages * page))"
"""
"""What a container's `sh` is asked; SHELL_PID is set before it. It starts one program, as a sysctl cannot be read byte by byte,
and another where many sockets wait.
"""


@dataclass(frozen=True, slots=True)
class ContainerState:
    """What SCRIPT reports of a container: its sockets, its processes, how many of them are ending, and their resident memory."""

    sockets: Sockets
    processes: int
    ending: int
    memory_bytes: int


def parse_container(text: str) -> ContainerState:
    """Parse what SCRIPT prints. ValueError, IndexError for anything else."""
    sockstat, ranges, listeners, waiting, processes = re.split(r"^@\w+\n", text, flags=re.MULTILINE)
    counts, ports = parse_counts(sockstat), parse_range(ranges)
    queues = parse_listeners(listeners.splitlines())
    rows: Sequence[str] = [line for line in waiting.splitlines() if f" {_TIME_WAIT} " in line]
    apart = waiting_by_destination(rows, ports)
    few = {ANYWHERE: counts.time_wait} if 0 < counts.time_wait < LOOK_CLOSER else {}
    connections = max(0, counts.in_use - len(queues))
    count, ending, kilobytes = map(int, processes.split())
    sockets = Sockets(apart or few, ports[1] - ports[0] + 1, connections, sum(queues))
    return ContainerState(sockets, count, ending, kilobytes * 1024)
