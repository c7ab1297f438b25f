"""The TCP sockets that stay in a network namespace after a load, and the proxy processes that outlive a reload.

    TCP: inuse 5 orphan 0 tw 12985 alloc 7 mem 1                  →  counts of /proc/net/sockstat
    0: 0100007F:B001 0200400A:0050 06 00000000:00000000 03:…      →  a row of /proc/net/tcp: one TIME_WAIT socket to 10.64.0.2:80

A whole table is read only if the counts show many sockets in TIME_WAIT. Reading a table takes 5 ms of CPU time even if
the table is short, because the kernel goes through the hash buckets of all namespaces.
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lab.base.files import read_text_if_readable
from lab.systems.table import PASSING_PATTERN

DETAIL_FROM = 100
"""The minimum number of TIME_WAIT sockets in a network namespace for which sockets are counted by destination.

Fewer sockets are at most 0.4 % of the default port range and cannot matter.
"""
ANYWHERE = "any"
"""The word for all destinations together, for sockets that were not counted by destination.

Their number is an upper bound for ephemeral local ports: some of the sockets may have a server's port.
"""
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
"""The file with the range of ephemeral ports."""
NET = "/proc/thread-self/net"
"""The folder of tables of the calling thread's network namespace."""
SHUTTING_DOWN = "worker process is shutting down"
"""A part of the title of a worker that a reload has stopped and that still runs."""

_TIME_WAIT, _LISTEN = "06", "0A"
"""The codes of two socket states in /proc/net/tcp."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The numbers of TCP sockets in one network namespace.

    Attributes:
        time_wait: Destination (`address:port`) → number of sockets in the state TIME_WAIT with an ephemeral local
            port. If there are fewer than DETAIL_FROM in all, they are counted under the single key ANYWHERE, whatever
            their local port. Empty if there are none.
        ports: The number of ephemeral local ports, which outgoing connections from this namespace can use.
        connections: The number of connections that are not closed yet, of servers and clients.
        queued: The number of connections that wait to be accepted, over all listening sockets.

    """

    time_wait: Mapping[str, int]
    ports: int
    connections: int
    queued: int


def parse_counts(sockstat: str) -> tuple[int, int]:
    """Return two numbers of TCP sockets: those in use, and those in the state TIME_WAIT.

    The sockets in use include listening sockets, but no sockets in TIME_WAIT.

    Args:
        sockstat: The text of /proc/net/sockstat, followed by that of sockstat6 if there is such a file.

    Raises:
        ValueError: The text has another form.

    """
    groups = {line.split(":")[0]: line.split(":")[1].split() for line in sockstat.splitlines() if ":" in line}
    values = {name: dict(zip(fields[::2], map(int, fields[1::2]), strict=True)) for name, fields in groups.items()}
    if "tw" not in values.get("TCP", {}):
        raise ValueError(f"no TCP line with tw in {sockstat[:80]!r}")
    return values["TCP"]["inuse"] + values.get("TCP6", {}).get("inuse", 0), values["TCP"]["tw"]


def parse_range(text: str) -> tuple[int, int]:
    """Parse the text of the sysctl ip_local_port_range (such as `32768 60999`), and return the first and the last port.

    Raises:
        ValueError: The text has another form.

    """
    first, last = map(int, text.split())
    return first, last


def count_time_wait(table: Iterable[str], ports: tuple[int, int]) -> dict[str, int]:
    """Count the sockets in the state TIME_WAIT whose local port is in a range, by destination (`address:port`).

    Args:
        table: The rows of /proc/net/tcp or tcp6.
        ports: The first and last port of the range.

    """
    destinations: Counter[str] = Counter()
    first, last = ports
    for line in table:
        _, local, remote, state, *_ = line.split(None, 4)
        if state == _TIME_WAIT and first <= int(local[-4:], 16) <= last:
            destinations[_format_address(remote)] += 1
    return dict(destinations)


def parse_listeners(table: Iterable[str]) -> list[int]:
    """Return for each listening socket how many connections wait to be accepted.

    Args:
        table: The rows of /proc/net/tcp or tcp6; a listening socket's receive queue is this number.

    """
    return [int(row[4].split(":")[1], 16) for row in map(str.split, table) if row[3] == _LISTEN]


@lru_cache  # most rows of a table have the same few addresses
def _format_address(text: str) -> str:
    """Convert an address and port from the kernel's hexadecimal form: `0200400A:0050` → `10.64.0.2:80`.

    An IPv4 address that is written as an IPv6 address (`::ffff:…`) becomes a plain IPv4 address.
    """
    address, _, port = text.rpartition(":")
    integers = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    packed = b"".join(struct.pack("=I", integer) for integer in integers)
    if len(packed) == 16 and packed.startswith(bytes(10) + b"\xff\xff"):
        packed = packed[12:]
    if len(packed) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]:{int(port, 16)}"


def read_sockets() -> Sockets:
    """Count the TCP sockets in the calling thread's network namespace.

    Raises:
        OSError: The kernel does not show a file, or the program `ss` fails.
        ValueError: A file has another form than expected.

    """
    in_use, waiting = parse_counts(Path(f"{NET}/sockstat").read_text() + read_text_if_readable(f"{NET}/sockstat6"))
    ports = parse_range(Path(RANGE).read_text())
    destinations = count_time_wait(_read_rows(), ports) if waiting >= DETAIL_FROM else {}
    return _summarize_sockets(in_use, waiting, ports, list_accept_queues(), destinations)


def _summarize_sockets(
    in_use: int, waiting: int, ports: tuple[int, int], queues: Sequence[int], destinations: Mapping[str, int]
) -> Sockets:
    few = {ANYWHERE: waiting} if 0 < waiting < DETAIL_FROM else {}
    return Sockets(destinations or few, ports[1] - ports[0] + 1, max(0, in_use - len(queues)), sum(queues))


def _read_rows() -> list[str]:
    """Return the lines of the calling thread's /proc/net/tcp and tcp6, without the headings."""
    return [line for name in ("tcp", "tcp6") for line in read_text_if_readable(f"{NET}/{name}").splitlines()[1:]]


def list_accept_queues() -> list[int]:
    """Return for each listening socket in the calling thread's network namespace how many connections wait to be accepted.

    The program `ss` is used, because it makes the kernel go through listening sockets only.

    Raises:
        OSError: `ss` fails.

    """
    done = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ss: {done.stderr.strip()}")
    return [int(line.split()[1]) for line in done.stdout.splitlines()]


@dataclass(slots=True)
class OrdinaryProcessCount:
    """The number of processes that a proxy has when no old workers (from before a reload) are left.

    This number is taken from the first count after the start of the system, and from the first count after `forget`.
    """

    _count: int | None = None

    def forget(self) -> None:
        """Forget the ordinary number of processes, for example before a reload; the next count becomes the ordinary number."""
        self._count = None

    def beyond(self, count: int, ending: int) -> int:
        """Return how many of the proxy's processes are old workers, which have outlived a reload.

        The first call stores the ordinary number of processes, which is `count` without those that are shutting down.
        The result is the number of processes in excess of the ordinary number, but never less than `ending`.

        Args:
            count: The number of the proxy's processes now.
            ending: The number of those processes whose title shows that they are shutting down.

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
if [ "${{waiting:-0}}" -ge {DETAIL_FROM} ]; then
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
"""The shell script that a container's `sh` runs to report its sockets and processes; SHELL_PID is set before it.

It starts one program, because a sysctl cannot be read byte by byte, and a second one if many sockets wait.
"""


@dataclass(frozen=True, slots=True)
class ContainerState:
    """The sockets and processes of one container, as the shell script `SCRIPT` has reported them.

    Attributes:
        sockets: The sockets of the container's network namespace.
        processes: The number of processes in the container. The shell that runs `SCRIPT` and its child processes do not
            count, nor do programs that a proxy system starts for a moment only.
        ending: The number of these processes whose title shows that they are shutting down.
        memory_bytes: The sum of these processes' resident memory, in bytes.

    """

    sockets: Sockets
    processes: int
    ending: int
    memory_bytes: int


def parse_container(text: str) -> ContainerState:
    """Parse the output of the shell script `SCRIPT`, which reports the sockets and processes of a container.

    Raises:
        ValueError: The text has another form.
        IndexError: The text has another form.

    """
    sockstat, ranges, listeners, waiting, processes = re.split(r"^@\w+\n", text, flags=re.MULTILINE)
    queues, ports = parse_listeners(listeners.splitlines()), parse_range(ranges)
    destinations = count_time_wait([line for line in waiting.splitlines() if f" {_TIME_WAIT} " in line], ports)
    count, ending, kilobytes = map(int, processes.split())
    return ContainerState(
        _summarize_sockets(*parse_counts(sockstat), ports, queues, destinations), count, ending, kilobytes * 1024
    )
