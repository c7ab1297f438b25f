"""Is a generator's word believed? Its time, counts and latencies against what was planned, what the lab saw, and what can be. Pure.

Whether the system did well is not asked here. The limits stand together below; what honest samples come to was seen in 3,085 valid
ones of the committed runs. Whatever is NaN is in no range. Refuses to correct a number: a sample whose generator cannot be believed
does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.model.bottleneck import unanswered
from lab.model.endpoint import Tls
from lab.model.load import Result
from lab.model.samples import Reason
from lab.model.sweeps import Point
from lab.model.usage import Observation

EARLY = 0.01
"""Of its planned time, by which a run may end early: none did."""
LATE_S = 2.0
"""Beyond its planned time and the timeout of its last answers, until a generator's time ends (0.6 s seen)."""
CLOCK = 0.001
CLOCK_S = 0.01
"""By so much a generator's clock may go fast against the lab's, which reads its own some 10 ms before and after at the least."""
OUTSIDE_S = 5.0
"""Of a generator's life its time may leave out: to start, also in a pod, and to print (1.9 s seen). A load that goes on beside is not in
its time but in its counts."""
CPU = 1.05
CPU_S = 1.0
"""CPU time used, of its CPUs × its time, and for each CPU in what its time leaves out (0.97 and 0 s seen)."""
FASTEST_S = 5e-6
"""No half of all answers comes in less: a byte there and back over a loopback takes twice as long (42 µs seen)."""
COVERED = 0.2
"""By so much the share of requests with a latency may differ from the share of the time in which they are recorded (0.08 seen)."""
BUSY: Mapping[str, float] = {"exact": 1.05, "quantiles": 1.3}
"""Connections that wait for an answer on average, of those there are (1.00 seen in closed loops, 0.05 at given rates); read off percentiles
it is too many.
"""
QUEUED = 0.015
"""Of the requests that were due, by which those that wait to be sent may be more, on average: three times what they are where all that a
valid sample may miss is late, for a system that stalls and catches up.
"""
LEAST_BUSY = 0.003
"""And the least in a closed loop in which nothing fails (0.06 seen, where most of a thousand connections are not accepted). Latencies in
another unit, a thousandth of what they were, are below it.
"""
IDLE = 0.55
"""Of the time that a number of requests takes, a connection waits for an answer on average (0.66 seen of kept ones, 0.92 at the most), or the
slowest answer takes as much: where the load is so short that the lab's own clock has starting a generator in it, this tells its double.
"""
AHEAD = 0.01
"""More answers than were due, beside those that can be under way: a schedule never makes up for more than it lost (0.001 seen)."""
COUNTED = 0.01
COUNTED_REQUESTS = 20
"""By so much the proxy's own count may differ, beside two requests of every connection (under way as the counting begins and ends): a
kept connection that closes is asked again, and probes ask, too."""
OPENED = 1.25
"""Connections opened for each request where none is kept (1.11 seen: one that is cut off is opened again)."""
FRAMES = 0.12
FRAME_BYTES = 1300
"""Bytes on the client's link beyond an answer's body: of it (0.08 seen), and of every answer (1,150 seen, with its headers)."""
HANDSHAKE_BYTES = 8192
"""And of every TLS connection; more than a server says in a handshake with our certificates."""

Fault = tuple[Reason, str]


def time_faults(
    point: Point, result: Result, seen: Observation, cpu_s: float | None, cpus: int | None
) -> Iterator[Fault]:
    """Of any load. `cpu_s`: what the generator used; `cpus`: how many it may use; None: not known."""
    told_s = result.duration_s
    if not told_s > 0:
        yield Reason.GENERATOR_TIME, f"it tells {told_s:.6g} s"
        return
    latest_s = point.duration_s + point.timeout_s + LATE_S  # the last answers may be as late as they may be at all
    if point.requests is None and not point.duration_s * (1 - EARLY) <= told_s <= latest_s:
        yield Reason.GENERATOR_TIME, f"it tells {told_s:.6g} s of a load of {point.duration_s:g} s"
    least_s = seen.elapsed_s - OUTSIDE_S if point.generators == 1 else 0.0  # of many others may go on for longer
    if not least_s <= told_s <= seen.elapsed_s * (1 + CLOCK) + CLOCK_S:
        yield Reason.GENERATOR_TIME, f"it tells {told_s:.6g} s, {seen.elapsed_s:.6g} s passed"
    cpus = None if cpus is None else cpus * point.generators
    if cpu_s is not None and cpus is not None and not cpu_s <= cpus * (CPU * told_s + CPU_S):
        on = f"{cpus} CPU{'s' if cpus > 1 else ''}"
        yield Reason.GENERATOR_TIME, f"it tells {told_s:.6g} s, in which it cannot have used {cpu_s:.2f} s of {on}"


def count_faults(point: Point, result: Result, seen: Observation, body_bytes: int, tls: Tls) -> Iterator[Fault]:
    """Of a steady load. `body_bytes`: what one body weighed as it came; `tls`: where it ends."""
    wrong = result.errors.get("status", 0)
    counts = (result.requests, result.dropped, *result.errors.values())
    if min(counts) < 0 or wrong > result.requests:
        yield Reason.GENERATOR_COUNT, f"{result.requests} responses, {wrong} of them with a wrong status: {counts}"
    if point.rate_rps is not None and result.requests > (1 + AHEAD) * point.rate_rps * result.duration_s + _at_once(
        point
    ):
        said = f"{result.requests} responses in {result.duration_s:.6g} s at {point.rate_rps:g} req/s"
        yield Reason.GENERATOR_COUNT, said
    yield from latency_faults(point, result)
    yield from _witnessed(point, result, seen, body_bytes, tls)


def latency_faults(point: Point, result: Result) -> Iterator[Fault]:
    """Of what a generator tells of its latencies alone."""
    latency, told_s = result.latency, result.duration_s
    if not latency.total or not result.requests or not told_s > 0:
        return  # they were not wanted, or another fault says so
    recorded = latency.total / result.requests
    share = result.recorded_s / told_s
    if not (1 - COVERED) * share <= recorded <= (1 + COVERED) * share:
        said = f"{latency.total} latencies of {result.requests} requests in {result.recorded_s:.6g} of {told_s:.6g} s"
        yield Reason.GENERATOR_COUNT, said
    longest_s, mean_s = latency.maximum_s or 0.0, latency.mean_s or 0.0
    if longest_s > (1 + EARLY) * told_s + CLOCK_S:
        yield Reason.GENERATOR_TIME, f"an answer took {longest_s:.6g} s of a run of {told_s:.6g} s"
    if (latency.quantile_s(0.5) or mean_s) < FASTEST_S:
        yield Reason.GENERATOR_TIME, f"half of the answers took less than {FASTEST_S * 1e6:g} µs"
    closed = point.rate_rps is None
    waiting = mean_s * latency.total / result.recorded_s
    if point.requests is not None and closed and not unanswered(result):
        explained_s = max(waiting / _at_once(point) * told_s, longest_s)
        if not told_s * IDLE <= explained_s:
            said = f"it tells {told_s:.6g} s, of which its latencies explain {explained_s:.6g} s"
            yield Reason.GENERATOR_TIME, said
    most = BUSY[latency.kind] * _at_once(point) + (0.0 if closed else QUEUED * (point.rate_rps or 0.0) * told_s)
    least = LEAST_BUSY * _at_once(point) if closed and not unanswered(result) else 0.0
    if not least <= waiting <= most:
        yield (
            Reason.GENERATOR_TIME,
            f"its latencies keep {waiting:.6g} of {_at_once(point)} connections or streams busy",
        )


def _at_once(point: Point) -> int:
    """Requests that can be under way."""
    return point.connections * point.streams


def _witnessed(point: Point, result: Result, seen: Observation, body_bytes: int, tls: Tls) -> Iterator[Fault]:
    """What others counted of the same requests: the proxy, unless it passes them through unread, the kernel where it (or the backend)
    lives, the client's link.
    """
    least, most = result.requests, result.requests + unanswered(result)
    under_way = 2 * _at_once(point) + COUNTED_REQUESTS
    counters, role = seen.counters, "proxy" if "proxy/InSegs" in seen.counters else "backend"
    own, by_h2 = counters.get("proxy/requests"), counters.get("proxy/requests_h2")
    segments = counters.get(f"{role}/InSegs")
    opened, link_bytes = counters.get(f"{role}/PassiveOpens"), counters.get("client/rx_bytes")
    slack = under_way + COUNTED * most
    if own is not None and tls != "passthrough" and not least - slack <= own <= most + slack:
        yield Reason.GENERATOR_COUNT, f"it counts {least} requests, the proxy {own}"
    if by_h2 is not None and tls != "passthrough":
        wrong, asked = (least - by_h2, "all") if point.protocol == "h2" else (by_h2, "none")
        if wrong > slack:
            yield Reason.PROTOCOL, f"the proxy counts {by_h2} of {least} requests by HTTP/2, asked for {asked}"
    if segments is not None and least > segments + under_way:
        yield Reason.GENERATOR_COUNT, f"it counts {least} requests, the {role} got {segments} TCP segments"
    if opened is not None and not point.keepalive and not least - slack <= opened <= OPENED * most + slack:
        yield Reason.GENERATOR_COUNT, f"it counts {least} requests, the {role} took {opened} connections"
    if link_bytes is not None and body_bytes:
        handshakes = (most if not point.keepalive else point.connections) * HANDSHAKE_BYTES * (tls != "none")
        good = least - result.errors.get("status", 0) - under_way
        each = body_bytes * (1 + FRAMES) + FRAME_BYTES
        if not good * body_bytes * (1 - COUNTED) <= link_bytes <= (most + under_way) * each + handshakes:
            yield Reason.GENERATOR_COUNT, f"it counts {least} requests, {link_bytes} bytes came over the client's link"
