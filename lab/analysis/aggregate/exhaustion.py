"""Port exhaustion: whether a load would use up a proxy's local ports to the backend, and after how many seconds.

The side that closes a TCP connection first keeps its local port in TIME_WAIT for 60 s. If the proxy is that side, a short sample
measures the proxy before its ports run out, and shows nothing of the minutes after. Such a result gets a label. The module does
not guess which side closes: if samples did not record TIME_WAIT, the label has the condition that the proxy closes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from lab.model.leftovers import DEFAULT_PORTS, OPENED, WAITING_S, Leftovers
from lab.model.samples import Sample

LABELLED_SHARE = 0.4
"""The share of the port range that a minute of connections may take before the result is labelled.

Ports are near their end then, which is at half of the range.
"""
HALF = 0.5
"""The share of the port range, to one destination, after which connects become expensive.

The kernel hands out every second port first (`__inet_hash_connect` in Linux' net/ipv4/inet_hashtables.c). Once those are used up,
each connect searches them all before it takes one of the others. The rate of samples falls then: in samples that recorded waiting
sockets, 14,170 to 14,530 of 28,232 ports waited after the fall. In older runs it came after some 14,100 connections of 28,232
ports, or some 32,000 of 64,512.
"""
LEAST_WAITING_SHARE = 0.1
"""The least share of a proxy's opened connections that wait on its side at the end if it is the side that closes.

A pool that shrinks when the load ends leaves fewer.
"""
PROXY = "proxy"
MEANING = (
    "before exhaustion, which comes after N s: the proxy's local ports to one endpoint of the backend run out after N s of this load, from a"
    " fresh start: by then connections wait in TIME_WAIT on half of them, and each further connect is dear"
    " (the kernel hands out every second port first); --sustained measures what comes then"
)
_RANGE = re.compile(r"port-range-(\d+)-(\d+)")
_ENDPOINTS = re.compile(r"backend-(?:endpoints|replicas)-(\d+)")


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """The port exhaustion of one arm (variant) at one load: how fast the load uses up the proxy's local ports to the backend.

    Attributes:
        per_s: Connections per second to the backend's busiest endpoint that end in TIME_WAIT on the proxy's side.
        ports: The number of local ports that the proxy can use for each endpoint.
        endpoints: The number of the backend's endpoints (pods).
        recorded: True if samples recorded the proxy's sockets in TIME_WAIT. If False, only the opened connections are
            known, and the result is true only if the proxy closes them (not the backend).
        load_s: The seconds that the load lasts.

    """

    per_s: float
    ports: int
    endpoints: int
    recorded: bool
    load_s: float

    @property
    def after_s(self) -> float:
        """The seconds until a load has exhausted a proxy's ports, which is when half of them are in TIME_WAIT.

        They are counted from a start without any port in TIME_WAIT.
        """
        return HALF * self.ports / self.per_s

    @property
    def label(self) -> str:
        """The label of a result under a load that uses up the proxy's local ports: `before exhaustion, which comes after 12 s`.

        If the ports run out while the sample runs, the label is `exhaustion comes within the sample`.
        """
        provided = "" if self.recorded else " if the proxy closes them"
        if self.after_s <= self.load_s:
            # After more than a minute only the last minute's connections still wait, and fewer are opened once ports have run out.
            when = f", after {self.after_s:.0f} s" if self.load_s <= WAITING_S else ""
            return f"exhaustion comes within the sample{when}{provided}"
        return f"before exhaustion, which comes after {self.after_s:.0f} s{provided}"

    @property
    def note(self) -> str:
        """The note about a load that exhausts ports: its label, and the numbers of connections and ports behind it."""
        minute, which = WAITING_S * self.per_s, "wait" if self.recorded else "are opened"
        spread = "with one endpoint of the backend ports run out N times earlier than with N endpoints"
        if self.endpoints > 1:
            many = self.endpoints
            spread = f"spread over {many} endpoints of the backend: with one, ports would run out {many} times earlier"
        within = minute >= HALF * self.ports
        back = "" if within else "; at this rate ports come back just before, a little more load uses them up"
        return f"{self.label}: {minute:,.0f} connections {which} a minute to one endpoint, of {self.ports:,} ports; {spread}{back}"


def compute_exhaustions(arms: Sequence[tuple[str, Sequence[str], Sequence[Sample]]]) -> list[Exhaustion | None]:
    """Compute how fast each arm's load uses up the proxy's local ports (see `compute_exhaustion`), in the order of `arms`.

    An entry is None if there is nothing to report, as when the backend closes the connections first. If the proxy does,
    it keeps each connection's port in TIME_WAIT for a minute. So in less than a minute it cannot open more connections
    than it has ports. If a sample of a variant did, the backend closes them, and all entries of the variant are None.
    Entries with samples that recorded the proxy's sockets in TIME_WAIT need no such conclusion: these samples decide.

    Args:
        arms: One entry for each arm at each load: (variant, the variant's knobs, its valid samples there). A knob is
            one changed setting; its name gives the numbers of ports and endpoints that older samples do not record.

    """
    spared = {
        variant
        for variant, knobs, samples in arms
        for sample in samples
        if sample.counters.get(OPENED, 0) > read_port_count(knobs) * read_endpoint_count(knobs)
        and (sample.duration_s or WAITING_S) < WAITING_S
    }
    return [
        None if variant in spared and not _select_recorded(samples) else compute_exhaustion(samples, knobs)
        for variant, knobs, samples in arms
    ]


def compute_exhaustion(samples: Sequence[Sample], knobs: Sequence[str] = ()) -> Exhaustion | None:
    """Compute how fast the load of one arm uses up the proxy's local ports, as the median over valid samples.

    Samples that did not record the proxy's sockets in TIME_WAIT are used only if no sample did.

    Args:
        samples: The valid samples of the arm (variant) at one load point.
        knobs: The names of the settings that the variant changes, which may set the numbers of ports and endpoints.

    Returns:
        The port exhaustion. It is None if one minute's connections take no more than `LABELLED_SHARE` of the ports. It
        is also None if recorded sockets show that the backend closes the connections, or if no sample has both a count
        of connections and a duration.

    """
    chosen = _select_recorded(samples) or samples
    rates = [rate for sample in chosen if (rate := _count_waiting_per_s(sample, knobs)) is not None]
    if not rates:
        return None
    end = chosen[0].leftovers.get("end")
    ports = end.port_range.get(PROXY) if end else None
    waiting = end.time_wait.get(PROXY, {}) if end else {}
    endpoints = sum(count > LEAST_WAITING_SHARE * max(waiting.values()) for count in waiting.values())
    exhaustion = Exhaustion(
        median(rates),
        ports or read_port_count(knobs),
        endpoints or read_endpoint_count(knobs),
        recorded=bool(_select_recorded(samples)),
        load_s=chosen[0].point.duration_s,
    )
    return exhaustion if WAITING_S * exhaustion.per_s > LABELLED_SHARE * exhaustion.ports else None


def read_port_count(knobs: Iterable[str]) -> int:
    """Return the number of local ports that a variant has: `port-range-1024-65535` → 64,512.

    Args:
        knobs: The names of the settings that the variant changes. Without one for the range of ports, the kernel's
            default of 28,232 ports is returned.

    """
    matches = (_RANGE.fullmatch(knob) for knob in knobs)
    return next((int(match[2]) - int(match[1]) + 1 for match in matches if match), DEFAULT_PORTS)


def read_endpoint_count(knobs: Iterable[str]) -> int:
    """Return the number of endpoints that a variant's backend has: `backend-replicas-3` → 3.

    Args:
        knobs: The names of the settings that the variant changes. Without one for the number of endpoints, it is 1.

    """
    matches = (_ENDPOINTS.fullmatch(knob) for knob in knobs)
    return next((int(match[1]) for match in matches if match), 1)


def _select_recorded(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples that recorded the proxy's sockets in TIME_WAIT at the end of the load."""
    return [sample for sample in samples if PROXY in sample.leftovers.get("end", Leftovers()).port_range]


def _count_waiting_per_s(sample: Sample, knobs: Sequence[str]) -> float | None:
    """Return how many connections per second to the backend's busiest endpoint end in TIME_WAIT on the proxy's side.

    Args:
        sample: The sample.
        knobs: The names of the settings that the variant changes, which may set the number of endpoints.

    Returns:
        The rate. It is 0 if recorded sockets show that the backend closes the connections, and None if the sample did
        not count connections or has no duration. Without recorded sockets, all opened connections are counted.

    """
    counted, side_s = sample.counters.get(OPENED), sample.pair.own_s if sample.pair else None
    if counted is None or not sample.duration_s:
        return None
    # the connections of the sample's load, less one for each client connection: those are opened once and kept
    opened = max(0, counted - sample.point.connections) / (side_s or sample.duration_s)
    if not _select_recorded([sample]):
        return opened / read_endpoint_count(knobs)
    start, end = (sample.leftovers.get(moment, Leftovers()).time_wait.get(PROXY, {}) for moment in ("start", "end"))
    lasts_s = min(sample.duration_s, WAITING_S)
    grown = {
        place: count - (start.get(place, 0) if sample.duration_s < WAITING_S else 0) for place, count in end.items()
    }
    if sum(grown.values()) < LEAST_WAITING_SHARE * opened * lasts_s:
        return 0.0
    return max(grown.values(), default=0) / lasts_s
