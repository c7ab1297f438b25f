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
import subprocess
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


def parse_counts(sockstat: str) -> tuple[int, int]:
    """Parse /proc/net/sockstat, with sockstat6 behind it where there is one: (sockets that are not in TIME_WAIT, listeners among them; those that are).

    ValueError for anything else.
    """
    groups = {line.split(":")[0]: line.split(":")[1].split() for line in sockstat.splitlines() if ":" in line}
    values = {name: dict(zip(words[::2], map(int, words[1::2]), strict=True)) for name, words in groups.items()}
    if "tw" not in values.get("TCP", {}):
        raise ValueError(f"no TCP line with tw in {sockstat[:80]!r}")
    return values["TCP"]["inuse"] + values.get("TCP6", {}).get("inuse", 0), values["TCP"]["tw"]


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
    return [int(row[4].split(":")[1], 16) for row in map(str.split, table) if row[3] == _LISTEN]


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
    in_use, waiting = parse_counts(Path(f"{NET}/sockstat").read_text() + readable(f"{NET}/sockstat6"))
    ports = parse_range(Path(RANGE).read_text())
    apart = waiting_by_destination(_rows(), ports) if waiting >= LOOK_CLOSER else {}
    return _sockets(in_use, waiting, ports, listening(), apart)


def _sockets(
    in_use: int, waiting: int, ports: tuple[int, int], queues: Sequence[int], apart: Mapping[str, int]
) -> Sockets:
    few = {ANYWHERE: waiting} if 0 < waiting < LOOK_CLOSER else {}
    return Sockets(apart or few, ports[1] - ports[0] + 1, max(0, in_use - len(queues)), sum(queues))


def _rows() -> list[str]:
    """The rows of both tables, without their headings."""
    return [line for name in ("tcp", "tcp6") for line in readable(f"{NET}/{name}").splitlines()[1:]]


def listening() -> list[int]:
    """Return how many connections wait at each listener of the calling thread's namespace. Raises OSError.

    Asked by `ss`, which has the kernel go through listeners alone.
    """
    done = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ss: {done.stderr.strip()}")
    return [int(line.split()[1]) for line in done.stdout.splitlines()]


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
    queues, ports = parse_listeners(listeners.splitlines()), parse_range(ranges)
    apart = waiting_by_destination([line for line in waiting.splitlines() if f" {_TIME_WAIT} " in line], ports)
    count, ending, kilobytes = map(int, processes.split())
    return ContainerState(_sockets(*parse_counts(sockstat), ports, queues, apart), count, ending, kilobytes * 1024)
