"""The checks of whether a generator's report is credible: its time, counts and latencies are compared with independent figures.

The independent figures are the planned load, and what the lab itself observed. The functions have no side effects. They do not
judge how well the system did. No number is corrected: a sample whose generator's report is not credible is invalid.

The limits are constants at the top of this file. Their comments contain values that were seen in 3,085 valid samples of the
committed runs. Comparisons are written so that NaN is always a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lab.model.bottleneck import count_unanswered
from lab.model.endpoint import Tls
from lab.model.load import GeneratorResult
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation

MAX_EARLY_SHARE = 0.01
"""The fraction of its planned time by which a run may end early (no honest sample did)."""
LATE_S = 2.0
"""The seconds by which a run may exceed its planned time plus the timeout of its last answers (0.6 s seen)."""
MAX_CLOCK_SHARE = 0.001
"""The fraction by which a generator's clock may run fast against the lab's clock."""
CLOCK_S = 0.01
"""The seconds by which a generator's time may exceed the lab's, in addition to `MAX_CLOCK_SHARE`.

The lab reads its own clock at least some 10 ms before the generator starts and after it ends.
"""
MAX_OUTSIDE_S = 5.0
"""The seconds of a generator's life that its reported time may leave out: for its start and its output (1.9 s seen).

The start may be that of a process in a pod. A load that continues outside the reported time is detected by the counts.
"""
MAX_CPU_SHARE = 1.05
"""The largest credible CPU time used, as a multiple of reported time × number of CPUs (0.97 seen)."""
CPU_S = 1.0
"""The CPU seconds that may be used on each CPU outside the reported time (0 s seen)."""
MIN_MEDIAN_S = 5e-6
"""The smallest credible median latency in seconds (42 µs seen).

A byte sent over a loopback and back takes twice as long as this limit.
"""
MAX_COVERAGE_ERROR = 0.2
"""The tolerance between the share of requests with a latency and the share of the time that latencies cover.

The largest difference seen is 0.08.
"""
MAX_WAITING_SHARE: Mapping[str, float] = {"exact": 1.05, "quantiles": 1.3}
"""The largest credible average share of connections that wait for an answer, by the kind of histogram.

Honest samples have 1.00 in closed loops and 0.05 at offered rates. An average that is computed from percentiles is too high.
"""
MAX_QUEUED_SHARE = 0.015
"""The share of the due requests that may wait to be sent on average in an open loop, in addition to `MAX_WAITING_SHARE`.

A valid sample may miss a small share of its requests. The limit is three times the value of a load in which all these
requests are late. A system that stalls and catches up needs the margin.
"""
MIN_WAITING_SHARE = 0.003
"""The smallest credible average share of waiting connections in a closed loop without failures.

The smallest seen is 0.06, where most of a thousand connections are not accepted. Latencies in another unit, a thousandth of the true
ones, fall below the limit.
"""
MIN_EXPLAINED_SHARE = 0.55
"""The smallest share of the reported time that latencies must explain, for a load of a fixed number of requests.

Either a connection waits for an answer during this share on average, or the slowest answer takes as long. With keep-alive,
shares of 0.66 to 0.92 were seen. Such a load can be so short that the generator's start is most of the time by the lab's
clock. This limit still detects a reported time that is twice the true time.
"""
MAX_AHEAD_SHARE = 0.01
"""The fraction by which answers may exceed the due requests, in addition to those in flight (0.001 seen).

A schedule never makes up for more than it lost.
"""
MAX_COUNT_ERROR = 0.01
"""The fraction by which the proxy's own count may differ from the generator's.

A request on a kept connection that closes is sent again, and probes send requests, too.
"""
COUNTED_REQUESTS = 20
"""The requests by which the proxy's own count may differ, in addition to `MAX_COUNT_ERROR` and to two per connection.

The two can be in flight when the counting begins and when it ends.
"""
PROBES_PER_S = 2.0
"""The further requests per second that a proxy may count while few requests last long: its pod's probes (1.1 seen)."""
MAX_OPENED_PER_REQUEST = 1.25
"""The largest credible number of connections per request without keep-alive (1.11 seen).

A connection that is cut off is opened again.
"""
MAX_FRAME_SHARE = 0.12
"""The share of an answer's body by which the bytes on the client's link may exceed it (0.08 seen)."""
FRAME_BYTES = 1300
"""The bytes by which every answer on the client's link may exceed its body, in addition to `MAX_FRAME_SHARE`.

The largest seen are 1,150, with the answer's headers.
"""
RETRIED = 1
"""How often a proxy may ask the backend again for a stream that it could not open."""
HANDSHAKE_BYTES = 8192
"""The bytes on the client's link that every TLS connection may add.

It is more than a server sends in a handshake with our certificates.
"""

Fault = tuple[Reason, str]
"""A fault of a sample: the reason and a sentence for people."""


def find_time_faults(
    point: LoadPoint, result: GeneratorResult, observation: Observation, cpu_s: float | None, cpus: int | None
) -> Iterator[Fault]:
    """Yield the faults in the time that a generator reports, compared with the plan and with the lab's clock.

    Args:
        point: The planned load.
        result: The generator's report.
        observation: What the lab observed during the load.
        cpu_s: The CPU seconds that the generator used; None = unknown.
        cpus: The number of CPUs that one generator may use; None = unknown.

    Yields:
        A reason and a sentence for each fault.

    """
    reported_s = result.duration_s
    if not reported_s > 0:
        yield Reason.GENERATOR_TIME, f"it reports {reported_s:.6g} s"
        return
    latest_s = point.duration_s + point.timeout_s + LATE_S  # the last answers may take the whole timeout
    if point.requests is None and not point.duration_s * (1 - MAX_EARLY_SHARE) <= reported_s <= latest_s:
        yield Reason.GENERATOR_TIME, f"it reports {reported_s:.6g} s of a load of {point.duration_s:g} s"
    least_s = (
        observation.elapsed_s - MAX_OUTSIDE_S if point.generators == 1 else 0.0
    )  # of several, others may run longer
    if not least_s <= reported_s <= observation.elapsed_s * (1 + MAX_CLOCK_SHARE) + CLOCK_S:
        yield Reason.GENERATOR_TIME, f"it reports {reported_s:.6g} s, {observation.elapsed_s:.6g} s passed"
    cpus = None if cpus is None else cpus * point.generators
    if cpu_s is not None and cpus is not None and not cpu_s <= cpus * (MAX_CPU_SHARE * reported_s + CPU_S):
        yield (
            Reason.GENERATOR_TIME,
            f"it reports {reported_s:.6g} s, in which it cannot have used {cpu_s:.2f} s of {cpus} CPU{'s' if cpus > 1 else ''}",
        )


def count_faults(
    point: LoadPoint, result: GeneratorResult, observation: Observation, body_bytes: int, tls: Tls
) -> Iterator[Fault]:
    """Yield the faults in the counts and latencies that a generator reports about a load without disruption.

    They are compared with the plan, with each other, and with independent counts of the proxy and the kernel.

    Args:
        point: The planned load.
        result: The generator's report.
        observation: What the lab observed during the load.
        body_bytes: The size of one body as it was received, compressed or not; 0 = unknown.
        tls: Where TLS ends: "none", "edge", "passthrough" or "reencrypt".

    Yields:
        A reason and a sentence for each fault.

    """
    wrong_status = result.errors.get("status", 0)
    counts = (result.requests, result.dropped, *result.errors.values())
    if min(counts) < 0 or wrong_status > result.requests:
        yield (
            Reason.GENERATOR_COUNT,
            f"{result.requests} responses, {wrong_status} of them with a wrong status: {counts}",
        )
    if point.rate_rps is not None and result.requests > (
        1 + MAX_AHEAD_SHARE
    ) * point.rate_rps * result.duration_s + _count_streams(point):
        yield (
            Reason.GENERATOR_COUNT,
            f"{result.requests} responses in {result.duration_s:.6g} s at {point.rate_rps:g} req/s",
        )
    yield from latency_faults(point, result)
    yield from _compare_counts(point, result, observation, body_bytes, tls)


def find_stream_count_faults(
    point: LoadPoint,
    result: GeneratorResult,
    counts: Sequence[Mapping[str, int]],
    span_s: Sequence[float],
    observation: Observation,
) -> Iterator[Fault]:
    """Yield the faults in a generator's counts of Server-Sent Events or of WebSocket messages, compared with the backend's counts.

    For Server-Sent Events, the backend counts the events that it sent, and adds up their send times. For WebSockets, it
    counts the messages that it sent back. It also adds up the round-trip times that the client writes into its
    messages. If no connection was cut and no message lost, the generator must have the same numbers. Otherwise the
    backend's numbers may be larger. The times must also agree with the lab's clock, and the number of connections with
    the counts of the proxy and the kernel.

    Args:
        point: The planned load.
        result: The generator's report.
        counts: The backend's counts before and after the load: name → number.
        span_s: When the load began and ended by the lab's clock, in seconds since the epoch.
        observation: What the lab observed during the load, with the proxy's and the kernel's counts.

    Yields:
        A reason and a sentence for each fault.

    """
    report = result.streams
    assert report is not None, "only such loads come here"
    before, after = counts
    begun, events, sent_sum = (after[name] - before[name] for name in ("begun", "events", "sent_sum"))
    opened, whole = report.asked - report.refused, not (report.cut or report.lost)
    if not opened <= begun <= report.asked + RETRIED * report.asked or (
        not report.refused and whole and begun != opened
    ):
        yield Reason.GENERATOR_COUNT, f"it counts {opened} streams or WebSockets, the backend {begun}"
    if (whole and events != result.requests) or events < result.requests:
        yield Reason.GENERATOR_COUNT, f"it counts {result.requests} events or messages, the backend {events}"
    elif events == result.requests and sent_sum != report.sent_sum:
        yield Reason.GENERATOR_TIME, "the send times or round trips that it reports are not those that the backend has"
    began_s, ended_s = span_s
    if not began_s - CLOCK_S <= report.began_s <= report.ended_s <= ended_s + CLOCK_S:
        yield (
            Reason.GENERATOR_TIME,
            f"it reports {report.began_s:.3f} to {report.ended_s:.3f} s, the load was from {began_s:.3f} to {ended_s:.3f}",
        )
    longest_s = max((result.latency.maximum_s or 0.0, report.gap_s, *report.first_s))
    if longest_s > result.duration_s + CLOCK_S + longest_s * MAX_CLOCK_SHARE:
        yield Reason.GENERATOR_TIME, f"an event or message took {longest_s:.6g} s of a run of {result.duration_s:.6g} s"
    requests = replace(result, requests=opened, errors={"other": report.refused})
    yield from _compare_counts(point, requests, observation, 0, "none", PROBES_PER_S * observation.elapsed_s)


def find_call_faults(point: LoadPoint, result: GeneratorResult, counts: Sequence[Mapping[str, int]]) -> Iterator[Fault]:
    """Yield the faults in a generator's counts of gRPC calls, compared with the backend's counts.

    If no call failed, the backend must have answered as many calls as the generator counted, and sent as many messages.
    Each request contains the latency of an earlier call, and the backend adds up these latencies. The generator must
    report the same sum. If calls failed, the sample is invalid anyway, and the backend may have answered more calls.

    Args:
        point: The planned load.
        result: The generator's report.
        counts: The backend's counts before and after the load: name → number.

    Yields:
        A reason and a sentence for each fault.

    """
    assert result.calls is not None, "only such loads come here"
    before, after = counts
    answered, messages, told_us = (after[name] - before[name] for name in ("answered", "messages", "told_sum"))
    wrong = result.errors.get("status", 0)
    good, failed = result.requests - wrong, wrong + count_unanswered(result)
    sent = good * max(1, point.messages)
    if not good <= answered <= good + failed:
        yield Reason.GENERATOR_COUNT, f"it counts {good} calls that were answered OK, the backend {answered}"
    if messages < sent or (not failed and messages != sent):
        yield Reason.GENERATOR_COUNT, f"it counts {sent} messages, the backend {messages}"
    if not failed and told_us != result.calls.told_us:
        yield Reason.GENERATOR_TIME, "the latencies that its calls reported to the backend are not those in its output"


def latency_faults(point: LoadPoint, result: GeneratorResult) -> Iterator[Fault]:
    """Yield the faults that the latencies in a generator's report show by themselves, such as impossibly small values.

    Args:
        point: The planned load.
        result: The generator's report.

    Yields:
        A reason and a sentence for each fault.

    """
    latency, reported_s = result.latency, result.duration_s
    if not latency.total or not result.requests or not reported_s > 0:
        return  # latencies were not requested, or another check reports the fault
    recorded = latency.total / result.requests
    share = result.recorded_s / reported_s
    if not (1 - MAX_COVERAGE_ERROR) * share <= recorded <= (1 + MAX_COVERAGE_ERROR) * share:
        yield (
            Reason.GENERATOR_COUNT,
            f"{latency.total} latencies of {result.requests} requests in {result.recorded_s:.6g} of {reported_s:.6g} s",
        )
    longest_s, mean_s = latency.maximum_s or 0.0, latency.mean_s or 0.0
    if longest_s > (1 + MAX_EARLY_SHARE) * reported_s + CLOCK_S:
        yield Reason.GENERATOR_TIME, f"an answer took {longest_s:.6g} s of a run of {reported_s:.6g} s"
    if (latency.quantile_s(0.5) or mean_s) < MIN_MEDIAN_S:
        yield Reason.GENERATOR_TIME, f"half of the answers took less than {MIN_MEDIAN_S * 1e6:g} µs"
    closed = point.rate_rps is None
    waiting = mean_s * latency.total / result.recorded_s
    if point.requests is not None and closed and not count_unanswered(result):
        explained_s = max(waiting / _count_streams(point) * reported_s, longest_s)
        if not reported_s * MIN_EXPLAINED_SHARE <= explained_s:
            yield (
                Reason.GENERATOR_TIME,
                f"it reports {reported_s:.6g} s, of which its latencies explain {explained_s:.6g} s",
            )
    highest = MAX_WAITING_SHARE[latency.kind] * _count_streams(point) + (
        0.0 if closed else MAX_QUEUED_SHARE * (point.rate_rps or 0.0) * reported_s
    )
    lowest = MIN_WAITING_SHARE * _count_streams(point) if closed and not count_unanswered(result) else 0.0
    if not lowest <= waiting <= highest:
        yield (
            Reason.GENERATOR_TIME,
            f"its latencies keep {waiting:.6g} of {_count_streams(point)} connections or streams busy",
        )


def _count_streams(point: LoadPoint) -> int:
    """Return how many requests can wait for an answer at once: connections × streams on each connection."""
    return point.connections * point.streams


def _compare_counts(
    point: LoadPoint, result: GeneratorResult, observation: Observation, body_bytes: int, tls: Tls, probes: float = 0.0
) -> Iterator[Fault]:
    """Yield a fault for each independent count that contradicts the generator's count of requests.

    - The proxy counts requests, unless it passes TLS through.
    - The kernel counts TCP segments and new connections of the proxy, or of the backend without a proxy.
    - The client's link counts bytes.

    Args:
        point: The planned load.
        result: The generator's report.
        observation: What the lab observed during the load, with the other counts.
        body_bytes: The size of one body in bytes; 0 = the bytes on the link are not compared.
        tls: Where TLS ends: "none", "edge", "passthrough" or "reencrypt".
        probes: The number of requests of the kubelet's probes that the proxy may have counted, too.

    Yields:
        A reason and a sentence for each fault.

    """
    least, highest = result.requests, result.requests + count_unanswered(result)
    in_flight = 2 * _count_streams(point) + COUNTED_REQUESTS
    counters, role = observation.counters, "proxy" if "proxy/InSegs" in observation.counters else "backend"
    proxy_requests, h2_requests = counters.get("proxy/requests"), counters.get("proxy/requests_h2")
    segments = counters.get(f"{role}/InSegs")
    opened, link_bytes = counters.get(f"{role}/PassiveOpens"), counters.get("client/rx_bytes")
    slack = in_flight + MAX_COUNT_ERROR * highest
    if (
        proxy_requests is not None
        and tls != "passthrough"
        and not least - slack <= proxy_requests <= highest + slack + probes
    ):
        yield Reason.GENERATOR_COUNT, f"it counts {least} requests, the proxy {proxy_requests}"
    if h2_requests is not None and tls != "passthrough":
        wrong, planned = (least - h2_requests, "all") if point.protocol == "h2" else (h2_requests, "none")
        if wrong > slack:
            yield Reason.PROTOCOL, f"the proxy counts {h2_requests} of {least} requests by HTTP/2, asked for {planned}"
    if segments is not None and least > segments + in_flight:
        yield Reason.GENERATOR_COUNT, f"it counts {least} requests, the {role} got {segments} TCP segments"
    if (
        opened is not None
        and not point.keepalive
        and not least - slack <= opened <= MAX_OPENED_PER_REQUEST * highest + slack
    ):
        yield Reason.GENERATOR_COUNT, f"it counts {least} requests, the {role} took {opened} connections"
    if link_bytes is not None and body_bytes:
        handshakes = (highest if not point.keepalive else point.kept_connections) * HANDSHAKE_BYTES * (tls != "none")
        good = least - result.errors.get("status", 0) - in_flight
        answer_bytes = body_bytes * (1 + MAX_FRAME_SHARE) + FRAME_BYTES
        if (
            not good * body_bytes * (1 - MAX_COUNT_ERROR)
            <= link_bytes
            <= (highest + in_flight) * answer_bytes + handshakes
        ):
            yield Reason.GENERATOR_COUNT, f"it counts {least} requests, {link_bytes} bytes came over the client's link"
