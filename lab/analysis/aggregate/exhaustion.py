"""Port exhaustion: whether a load would use up a proxy's local ports to the backend, and after how many seconds.

The side that closes a TCP connection first keeps its local port in TIME_WAIT for 60 s. Where that is the proxy, a short sample measures it
before its ports run out, and shows nothing of the minutes after. Such a result gets a label. The module does not guess who closes: where
samples did not record TIME_WAIT, the label adds that it holds only if the proxy closes.
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

The kernel hands out every second port first (`__inet_hash_connect` in Linux' net/ipv4/inet_hashtables.c). Once those are used up, each
connect searches them all before it takes one of the others. The rate of samples falls there: where waiting sockets were recorded, 14,170 to
14,530 of 28,232 ports waited after the fall. In older runs it came after some 14,100 connections of 28,232 ports, or some 32,000 of 64,512.
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
    """The speed at which one load uses up an arm's local ports.

    Attributes:
        per_s: Connections per second to the busiest of the backend's `endpoints` that begin to wait.
        ports: Local ports that the proxy has for each endpoint.
        endpoints: Endpoints of the backend.
        recorded: Whether samples recorded that the connections wait on the proxy's side; else only those that it opened are known.
        load_s: Seconds that the load lasts.

    """

    per_s: float
    ports: int
    endpoints: int
    recorded: bool
    load_s: float

    @property
    def after_s(self) -> float:
        """The seconds of this load, from a start without waiting ports, until half of the range waits."""
        return HALF * self.ports / self.per_s

    @property
    def label(self) -> str:
        """The words that a verdict adds to a result that rests on this load."""
        provided = "" if self.recorded else " if the proxy closes them"
        if self.after_s <= self.load_s:
            # After more than a minute only the last minute's connections still wait, and fewer are opened once ports have run out.
            when = f", after {self.after_s:.0f} s" if self.load_s <= WAITING_S else ""
            return f"exhaustion comes within the sample{when}{provided}"
        return f"before exhaustion, which comes after {self.after_s:.0f} s{provided}"

    @property
    def note(self) -> str:
        """The label with the numbers that it is computed from."""
        minute, which = WAITING_S * self.per_s, "wait" if self.recorded else "are opened"
        spread = "with one endpoint of the backend ports run out N times earlier than with N endpoints"
        if self.endpoints > 1:
            many = self.endpoints
            spread = f"spread over {many} endpoints of the backend: with one, ports would run out {many} times earlier"
        within = minute >= HALF * self.ports
        back = "" if within else "; at this rate ports come back just before, a little more load uses them up"
        return f"{self.label}: {minute:,.0f} connections {which} a minute to one endpoint, of {self.ports:,} ports; {spread}{back}"


def compute_exhaustions(arms: Sequence[tuple[str, Sequence[str], Sequence[Sample]]]) -> list[Exhaustion | None]:
    """Return the port exhaustion of each arm at each point of a run, in order; None where there is none.

    It is that of `compute_exhaustion`, but all points of a variant together may show that the backend closes: a sample of less than a minute
    opened more connections than the proxy has ports. Then they do not wait on the proxy's side.

    Args:
        arms: For each arm at each point: its variant, the variant's knobs, and its valid samples at the point. The knobs give
            what older samples do not record (ports and endpoints).

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
    """Return how soon the ports run out under one arm's load, by the median of its valid samples.

    None where a minute of its connections takes no more than `LABELLED_SHARE` of the ports, where the backend closes them, and where nothing is
    known.
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
    """Return the size of the port range that a variant's knobs set, or else the kernel's."""
    matches = (_RANGE.fullmatch(knob) for knob in knobs)
    return next((int(match[2]) - int(match[1]) + 1 for match in matches if match), DEFAULT_PORTS)


def read_endpoint_count(knobs: Iterable[str]) -> int:
    """Return the number of endpoints that a variant's knobs give the backend, or else 1."""
    matches = (_ENDPOINTS.fullmatch(knob) for knob in knobs)
    return next((int(match[1]) for match in matches if match), 1)


def _select_recorded(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples that recorded which ports waited when the load ended."""
    return [sample for sample in samples if PROXY in sample.leftovers.get("end", Leftovers()).port_range]


def _count_waiting_per_s(sample: Sample, knobs: Sequence[str]) -> float | None:
    """Return the connections per second to the busiest endpoint that begin to wait on the proxy's side.

    0 where the backend closes them; None where the sample counted no connections, or has no duration.
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
