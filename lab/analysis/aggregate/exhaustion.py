"""Whether a proxy's connections to the backend would use up its local ports if the load lasted, and after how many seconds.

Who closes a TCP connection first keeps its local port in TIME_WAIT for 60 s. Where the proxy does, a short sample shows it before its ports
run out, and says nothing of the minutes after. Such a result is labelled. Refuses to guess who closes: where samples did not
record TIME_WAIT, the label says that it holds only if the proxy does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from lab.model.leftovers import DEFAULT_PORTS, OPENED, WAITING_S, Leftovers
from lab.model.samples import Sample

SHARE = 0.4
"""Of the port range: where a minute of connections takes more, the ports are near their end, which is at half of the range."""
HALF = 0.5
"""Of the port range, to one destination. The kernel hands out every second port first (`__inet_hash_connect` in Linux'
net/ipv4/inet_hashtables.c); once those are used up, each connect searches them all before it takes one of the others. Samples
fall there: where what waited was recorded, 14,170 to 14,530 of 28,232 ports did after the fall; in older runs after some 14,100 connections
of 28,232 ports, some 32,000 of 64,512."""
KEPT = 0.1
"""Of the connections that a proxy opened, how many must wait on its side at the end so that it is the one that closes. A pool that shrinks
when the load ends leaves fewer."""
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
    """How soon one arm's ports run out at one load.

    `per_s`: connections to the busiest of the backend's `endpoints` that begin to wait; `ports`: that the proxy has for each; `recorded`:
    whether samples recorded that they wait on the proxy's side, else only what it opened is known; `load_s`: how long the load lasts.
    """

    per_s: float
    ports: int
    endpoints: int
    recorded: bool
    load_s: float

    @property
    def after_s(self) -> float:
        """Seconds of this load, from a start without waiting ports, until connections wait on half of the range."""
        return HALF * self.ports / self.per_s

    @property
    def label(self) -> str:
        """What a verdict says of a result that rests on this load."""
        provided = "" if self.recorded else " if the proxy closes them"
        if self.after_s <= self.load_s:
            # Of more than a minute only the last one's connections still wait, and fewer are opened once ports have run out.
            when = f", after {self.after_s:.0f} s" if self.load_s <= WAITING_S else ""
            return f"exhaustion comes within the sample{when}{provided}"
        return f"before exhaustion, which comes after {self.after_s:.0f} s{provided}"

    @property
    def note(self) -> str:
        """The label with the numbers that it comes from."""
        minute, which = WAITING_S * self.per_s, "wait" if self.recorded else "are opened"
        spread = "with one endpoint of the backend ports run out N times earlier than with N endpoints"
        if self.endpoints > 1:
            many = self.endpoints
            spread = f"spread over {many} endpoints of the backend: with one, ports would run out {many} times earlier"
        within = minute >= HALF * self.ports
        back = "" if within else "; at this rate ports come back just before, a little more load uses them up"
        return f"{self.label}: {minute:,.0f} connections {which} a minute to one endpoint, of {self.ports:,} ports; {spread}{back}"


def exhaustions_of(arms: Sequence[tuple[str, Sequence[str], Sequence[Sample]]]) -> list[Exhaustion | None]:
    """Return for each arm at each point of a run what `exhaustion_of` finds; all points of a variant together show whether the backend closes.

    It does where a sample of less than a minute opened more connections than the proxy has ports: then they do not wait on its side.
    `arms`: variant, its knobs, which say what older samples do not (ports and endpoints), and its valid samples at a point.
    """
    spared = {
        variant
        for variant, knobs, samples in arms
        for sample in samples
        if sample.counters.get(OPENED, 0) > ports_of(knobs) * endpoints_of(knobs)
        and (sample.duration_s or WAITING_S) < WAITING_S
    }
    return [
        None if variant in spared and not _recorded(samples) else exhaustion_of(samples, knobs)
        for variant, knobs, samples in arms
    ]


def exhaustion_of(samples: Sequence[Sample], knobs: Sequence[str] = ()) -> Exhaustion | None:
    """Return how soon the ports run out under one arm's load, by the median of its valid samples.

    None where a minute of its connections takes no more than `SHARE` of the ports, or the backend closes them, or nothing is known.
    """
    chosen = _recorded(samples) or samples
    rates = [rate for sample in chosen if (rate := _waiting_per_s(sample, knobs)) is not None]
    if not rates:
        return None
    end = chosen[0].leftovers.get("end")
    ports = end.port_range.get(PROXY) if end else None
    waiting = end.time_wait.get(PROXY, {}) if end else {}
    endpoints = sum(count > KEPT * max(waiting.values()) for count in waiting.values())
    found = Exhaustion(
        median(rates),
        ports or ports_of(knobs),
        endpoints or endpoints_of(knobs),
        recorded=bool(_recorded(samples)),
        load_s=chosen[0].point.duration_s,
    )
    return found if WAITING_S * found.per_s > SHARE * found.ports else None


def ports_of(knobs: Iterable[str]) -> int:
    """Return the size of the port range that a variant's knobs set, else the kernel's."""
    found = (_RANGE.fullmatch(knob) for knob in knobs)
    return next((int(each[2]) - int(each[1]) + 1 for each in found if each), DEFAULT_PORTS)


def endpoints_of(knobs: Iterable[str]) -> int:
    """Return how many endpoints a variant's knobs give the backend."""
    found = (_ENDPOINTS.fullmatch(knob) for knob in knobs)
    return next((int(each[1]) for each in found if each), 1)


def _recorded(samples: Iterable[Sample]) -> list[Sample]:
    """Those that recorded which ports waited when the load ended."""
    return [sample for sample in samples if PROXY in sample.leftovers.get("end", Leftovers()).port_range]


def _waiting_per_s(sample: Sample, knobs: Sequence[str]) -> float | None:
    """Connections to the busiest endpoint that begin to wait on the proxy's side, per second; 0 where the backend closes them."""
    counted, own_s = sample.counters.get(OPENED), sample.pair.own_s if sample.pair else None
    if counted is None or not sample.duration_s:
        return None
    # of its own load, less one for each client's: those are opened once and kept
    opened = max(0, counted - sample.point.connections) / (own_s or sample.duration_s)
    if not _recorded([sample]):
        return opened / endpoints_of(knobs)
    start, end = (sample.leftovers.get(moment, Leftovers()).time_wait.get(PROXY, {}) for moment in ("start", "end"))
    lasts_s = min(sample.duration_s, WAITING_S)
    grown = {
        place: count - (start.get(place, 0) if sample.duration_s < WAITING_S else 0) for place, count in end.items()
    }
    if sum(grown.values()) < KEPT * opened * lasts_s:
        return 0.0
    return max(grown.values(), default=0) / lasts_s
