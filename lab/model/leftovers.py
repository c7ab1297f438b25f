"""What an earlier load can leave behind in a system, as it is measured before, at the start of, and after a load; and when a start is drained.

The only place of these bounds, each with its reason. Refuses to bound memory: a runtime keeps what it once took, so it is recorded and
nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import Field

from lab.base.validation import Record

Moment = Literal["before", "start", "end"]
"""Before the warm-up, when the load starts, and when it has ended."""


class Leftovers(Record):
    """One system at one moment. A place is a network namespace or pod, named by its role ("proxy", "proxy-2", "backend")."""

    time_wait: dict[str, dict[str, int]] = Field(
        default_factory=dict[str, dict[str, int]],
        description="place → destination (address:port) → TIME_WAIT sockets whose local port is ephemeral; destination `any`:"
        " they are fewer than 100 and were not told apart, ports of servers included",
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


# -- when a start is drained -------------------------------------------------------------------------------

PORT_SHARE = 0.05
"""TIME_WAIT sockets to one destination, as a share of the ports that connections from one place can use.

The kernel gives ports of one parity first and searches longer once half of the range waits, so that at 5 % a load still has nine tenths
of a fresh system's connections until then. The 27 committed samples that began fallen had 14 % or more, by connections opened.
"""
CONNECTIONS_SHARE = 0.05
"""Connections that are still open, beyond those after the bring-up, as a share of the same ports: each holds a port or a proxy's place for
a connection as a TIME_WAIT socket holds a port, so the bound is the same."""
QUEUED = 10
"""Connections that still wait to be accepted: the proxy spends some 20 µs on each before it sees that nobody is there, in all less than a
thousandth of a second's work. Probes and canaries may be among them."""
OLD_WORKERS = 0
"""Workers that a reload told to end and that still run: each has its own caches and connections and shares the proxy's CPUs."""
DEFAULT_PORTS = 28232
"""Local ports of Linux' default range, 32768 to 60999: for records that do not say how many there were."""
WAITING_S = 60.0
"""How long a closed connection keeps its port in TIME_WAIT: TCP_TIMEWAIT_LEN, a constant of Linux' source."""
OPENED = "proxy/ActiveOpens"
"""The counter of connections that the proxy opened: the stand-in for TIME_WAIT sockets in records that did not count these."""
MOST_BRING_UPS = 2
"""Fresh bring-ups for one sample: one where earlier loads left too much, one more where the warm-up on the fresh system does."""


class PortsTaken(NamedTuple):
    """Where TIME_WAIT sockets take the largest share of the local ports."""

    place: str
    destination: str
    sockets: int
    ports: int

    @property
    def share(self) -> float:
        """Their share of the ports; 0 where it is not known how many there are."""
        return self.sockets / self.ports if self.ports else 0.0

    def __str__(self) -> str:
        where = f"{self.sockets:,} of {self.ports:,} local ports of the {self.place} towards {self.destination}"
        return f"{where} ({self.share:.0%}) wait in TIME_WAIT"


def ports_taken(leftovers: Leftovers, since: Leftovers | None = None) -> PortsTaken:
    """Return the place and destination whose TIME_WAIT sockets (those that came since then) take the largest share of the ports."""
    before: Mapping[str, Mapping[str, int]] = since.time_wait if since is not None else {}
    taken = [
        PortsTaken(place, where, count - before.get(place, {}).get(where, 0), leftovers.port_range.get(place, 0))
        for place, counts in leftovers.time_wait.items()
        for where, count in counts.items()
    ]
    return max(taken, key=lambda one: one.share, default=PortsTaken("proxy", "any", 0, 0))


def ports_are_taken(leftovers: Leftovers, since: Leftovers | None = None) -> bool:
    """Return whether TIME_WAIT sockets (those that came since then) take PORT_SHARE of some place's ports or more."""
    return ports_taken(leftovers, since).share >= PORT_SHARE


def undrained(leftovers: Leftovers, first: Leftovers | None) -> list[str]:
    """Return a sentence for each bound that is not kept before a warm-up; empty for a drained start. What was not seen breaks no bound.

    `first`: what was there after the system came up (or its last reload); None: this is that moment.
    """
    faults: list[str] = []
    if ports_are_taken(leftovers):
        faults.append(f"{ports_taken(leftovers)}, at most {PORT_SHARE:.0%} may")
    for place, count in leftovers.open_connections.items():
        usual = (first or leftovers).open_connections.get(place, 0)
        most = CONNECTIONS_SHARE * leftovers.port_range.get(place, DEFAULT_PORTS)
        if count - usual >= most:
            faults.append(f"{count:,} connections of the {place} are still open, {usual:,} were after the bring-up")
    for place, count in leftovers.accept_queue.items():
        if count > QUEUED:
            faults.append(f"{count:,} connections wait to be accepted by the {place}, at most {QUEUED} may")
    if (leftovers.old_workers or 0) > OLD_WORKERS:
        faults.append(f"{leftovers.old_workers} old workers of the proxy still run")
    return faults
