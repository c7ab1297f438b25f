"""The state that earlier loads can leave in a system, such as TIME_WAIT sockets, and its bounds for the start of a new load.

The state is measured before, at the start of, and after a load. All bounds are in this module, each with its reason. Memory has
no bound and is only recorded, because many programs never return memory that they have once used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from pydantic import Field

from lab.base.validation import Record

Moment = Literal["before", "start", "end"]
"""The moment of a look: before the warm-up, when the load starts, or when it has ended."""


class Leftovers(Record):
    """The state that earlier loads have left in one system at one moment, such as sockets in TIME_WAIT.

    A place is a network namespace or pod, named by its role ("proxy", "proxy-2", "backend").
    """

    time_wait: dict[str, dict[str, int]] = Field(
        default_factory=dict[str, dict[str, int]],
        description="place → destination (address:port) → TIME_WAIT sockets whose local port is ephemeral; destination `any`:"
        " they are fewer than 100 and were not distinguished, ports of servers included",
    )
    port_range: dict[str, int] = Field(
        default_factory=dict[str, int], description="place → how many local ports its connections can use"
    )
    open_connections: dict[str, int] = Field(
        default_factory=dict[str, int], description="place → TCP connections that are not closed yet"
    )
    accept_queue: dict[str, int] = Field(
        default_factory=dict[str, int], description="place → connections that wait to be accepted, over all listeners"
    )
    old_workers: int | None = Field(
        default=None, description="processes of the proxy beyond those it runs in its ordinary state; null = unknown"
    )
    memory_bytes: dict[str, int] = Field(
        default_factory=dict[str, int], description="role → resident memory; recorded, not bounded"
    )
    unseen: dict[str, str] = Field(
        default_factory=dict[str, str], description="place → why it could not be looked at; nothing is known of it"
    )


# -- the bounds of a drained start -------------------------------------------------------------------------

PORT_SHARE = 0.05
"""The bound of TIME_WAIT sockets to one destination, as a share of the ports that connections from one place can use.

The kernel assigns ports of one parity first, and searches longer once half of the range waits. So at 5 % a load still has nine tenths
of a fresh system's connections until then. The 27 committed samples that began fallen had 14 % or more, by connections opened.
"""
CONNECTIONS_SHARE = 0.05
"""The bound of connections that are still open, beyond those after the bring-up, as a share of the same ports.

Each holds a port, or one of a proxy's places for connections, as a TIME_WAIT socket holds a port. So the bound is the same.
"""
MAX_QUEUED = 10
"""The bound of connections that still wait to be accepted.

The proxy spends some 20 µs on each before it finds it closed, in all less than a thousandth of a second's work. Probes and canaries may be
among them.
"""
OLD_WORKERS = 0
"""The bound of workers that a reload ordered to end and that still run.

Each has separate caches and connections, and shares the proxy's CPUs.
"""
DEFAULT_PORTS = 28232
"""The number of local ports of Linux' default range, 32768 to 60999, for records without a number."""
WAITING_S = 60.0
"""The seconds that a closed connection keeps its port in TIME_WAIT: TCP_TIMEWAIT_LEN, a constant of Linux' source."""
OPENED = "proxy/ActiveOpens"
"""The counter of connections that the proxy opened, which replaces TIME_WAIT sockets in records without these."""
MAX_FRESH_BRING_UPS = 2
"""The number of fresh bring-ups for one sample at most.

One follows where earlier loads left too much, one more where the warm-up on the fresh system does.
"""


class PortsTaken(NamedTuple):
    """The TIME_WAIT sockets towards one destination, in relation to the local ports of the place that they are in.

    Attributes:
        place: The network namespace or pod, named by its role, such as "proxy".
        destination: The address and port of the sockets' other end; `any` if destinations were not distinguished.
        sockets: The number of TIME_WAIT sockets, or its increase if an earlier state is subtracted.
        ports: The number of local ports that the place can use; 0 = unknown.

    """

    place: str
    destination: str
    sockets: int
    ports: int

    @property
    def share(self) -> float:
        """The fraction of the place's local ports that the TIME_WAIT sockets take; 0 if the number of ports is unknown."""
        return self.sockets / self.ports if self.ports else 0.0

    def __str__(self) -> str:
        text = f"{self.sockets:,} of {self.ports:,} local ports of the {self.place} towards {self.destination}"
        return f"{text} ({self.share:.0%}) wait in TIME_WAIT"


def find_taken_ports(leftovers: Leftovers, since: Leftovers | None = None) -> PortsTaken:
    """Return the place (network namespace or pod) and destination whose TIME_WAIT sockets take the largest share of local ports.

    If there are no such sockets, the result has the place `proxy`, the destination `any`, and 0 sockets.

    Args:
        leftovers: The state of a system after earlier loads.
        since: An earlier state, whose sockets are subtracted; None = nothing is subtracted.

    """
    before: Mapping[str, Mapping[str, int]] = since.time_wait if since is not None else {}
    candidates = [
        PortsTaken(place, address, count - before.get(place, {}).get(address, 0), leftovers.port_range.get(place, 0))
        for place, counts in leftovers.time_wait.items()
        for address, count in counts.items()
    ]
    return max(candidates, key=lambda candidate: candidate.share, default=PortsTaken("proxy", "any", 0, 0))


def ports_are_taken(leftovers: Leftovers, since: Leftovers | None = None) -> bool:
    """Return whether, anywhere in the system, TIME_WAIT sockets towards one destination take too many local ports.

    Too many are 5 % (`PORT_SHARE`) or more of the local ports of the place (network namespace or pod) that they are in.

    Args:
        leftovers: The state of a system after earlier loads.
        since: An earlier state, whose sockets are subtracted; None = nothing is subtracted.

    """
    return find_taken_ports(leftovers, since).share >= PORT_SHARE


def find_undrained_faults(leftovers: Leftovers, first: Leftovers | None) -> Iterator[str]:
    """Yield why a system is not yet fit for the next load: one sentence for each limit that leftovers exceed.

    The limits are on TIME_WAIT sockets (only the worst place is named), on open connections and connections that wait
    to be accepted (for each place), and on old workers. A place is a network namespace or pod. An unknown value exceeds
    no limit.

    Args:
        leftovers: The state before the next warm-up.
        first: The state after the system's start or last reload, which shows the usual number of open connections. None
            if `leftovers` is that state itself.

    """
    if ports_are_taken(leftovers):
        yield f"{find_taken_ports(leftovers)}, at most {PORT_SHARE:.0%} may"
    for place, count in leftovers.open_connections.items():
        usual = (first or leftovers).open_connections.get(place, 0)
        limit = CONNECTIONS_SHARE * leftovers.port_range.get(place, DEFAULT_PORTS)
        if count - usual >= limit:
            yield f"{count:,} connections of the {place} are still open, {usual:,} were after the bring-up"
    for place, count in leftovers.accept_queue.items():
        if count > MAX_QUEUED:
            yield f"{count:,} connections wait to be accepted by the {place}, at most {MAX_QUEUED} may"
    if (leftovers.old_workers or 0) > OLD_WORKERS:
        yield f"{leftovers.old_workers} old workers of the proxy still run"
