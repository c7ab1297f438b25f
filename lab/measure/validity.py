"""Does a sample count? Pure: what was planned, reported and seen → the reasons why not.

Steady loads: `faults`. Where errors are a point's subject, requests may fail, but some must be answered, and a rate counts
what was tried. In a disturbance errors and restarts are the outcome: only a fault of generator, clock, event log, control run
or machine speaks against a sample (`disturbed_faults`, `control_faults`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import polars as pl

from lab.measure import credible
from lab.measure.credible import Fault
from lab.model.bottleneck import BUSY, MAX_OTHERS_CORES, unanswered
from lab.model.endpoint import Tls
from lab.model.load import Result
from lab.model.metrics import GAP_S, WINDOWS
from lab.model.samples import Reason
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.targets.common.sampler import TICK_S

MIN_ACHIEVED = 0.99
MAX_STEAL = 0.01
TICKS = 3
"""Clock ticks that may fall on anybody: a run of a tenth of a second (hey, n requests) is not thrown away for one."""
MAX_CLOCK_STEP_S = 0.1
HEADER_BYTES = 2048  # more than any of our responses' headers, where the canary's are not known
HEADER_SPARE_BYTES = 256  # by which a response's may be longer than the canary's
CHUNK_SHARE = 1 / 256  # of a chunked body: at most 16 bytes around every 4 KiB
FLUSH_BYTES, FLUSH_SHARE = 32, 1 / 100
"""The proxy flushes its compressor as bytes arrive from upstream: a compressed body varies by so much (seen: 18 bytes of 24,721)."""
HANDSHAKE_BYTES = 8192  # more than a server says in a TLS handshake with our certificates
RECORD_SHARE = 1 / 32  # of what TLS carries: at most 40 bytes around every frame's 1.3 kB
HANDSHAKE_EVERY = 100  # kept connections serve as many requests at least, as far as the check of sizes goes
RESUMED = 0.90
"""Of all handshakes, where sessions are to be resumed: each connection's first is a full one."""
NOT_RESUMED = 0.01

MAX_CLOCK_ERROR_S = 0.02
"""Of the difference between the generator's clock and the lab's, and how far two measurements of it may lie apart."""
LATE_S = 0.05
OVERTIME_S = 0.5
"""No request is told later than this after its timeout by a generator that had the CPU it needs."""
LATE_SHARE = 0.01
"""A generator that sends more of its requests later than this after they were due has not made the load that was asked for."""
COUNTED_ROWS = 0.01
"""Of the requests due: by so much a generator's schedule may end early or late."""

GAP_P99 = 3
"""A pause in a control run of no more than so many times the load's p99 is no gap."""
UNDONE = {
    "cut": "long-lived connections were cut",
    "not_opened": "long-lived connections could not be opened",
    "restarts": "restarts",
    "probe_failures": "failed probes",
}
"""Outcomes that a control run must not have, where it can tell them. A reload may be one that its preparation left to come."""


def faults(
    point: Point,
    result: Result,
    seen: Observation,
    generator_core: float,
    calibration_s: float,
    body_bytes: int,
    chunked: bool = False,
    alone: bool = True,
    cpu_s: float | None = None,
    cpus: int | None = None,
    tls: Tls = "none",
    head_bytes: int | None = None,
) -> list[Fault]:
    """Every reason against a steady sample. `body_bytes`: what one body weighed as it came (the canary's), `chunked` or not.

    One of two sides is not `alone`: what the machine did to both of them at once speaks against neither. `cpu_s`: CPU seconds that the
    generator used, on `cpus` at the most; `tls`: where it ends; `head_bytes`: the canary's headers; None: not known.
    """
    return [
        *credible.time_faults(point, result, seen, cpu_s, cpus),
        *credible.count_faults(point, result, seen, body_bytes, tls),
        *_reported(point, result, calibration_s),
        *_sizes(point, result, body_bytes, chunked, head_bytes),
        *_rate(point, result),
        *(() if point.rate_rps is None else _saturated(generator_core, pinned=seen.cores is None)),
        *_parts(point, result, seen),
        *_seen(point, seen, alone),
    ]


def _reported(point: Point, result: Result, calibration_s: float) -> Iterator[Fault]:
    if point.requests is None and point.duration_s <= calibration_s:
        yield Reason.TOO_SHORT, f"{point.duration_s:g} s, of which {calibration_s:g} s are calibration"
    if result.uncalibrated:
        yield Reason.TOO_SHORT, "the generator did not finish its calibration: start-up is in the latencies"
    good = result.requests - (result.errors.get("status", 0) if "errors" in point.subject else 0)
    if good <= 0 or (result.timed and result.latency.total == 0):
        yield Reason.TOO_SHORT, f"{good} requests answered, {result.latency.total} latencies recorded"
    if "errors" not in point.subject:
        refused = {kind: count for kind, count in result.errors.items() if count}
        if status := refused.pop("status", 0):
            yield Reason.NON_2XX, f"{status} of {result.requests} responses"
        if refused:
            yield Reason.ERRORS, ", ".join(f"{count} {kind}" for kind, count in refused.items())
    if result.dropped:
        yield Reason.DROPPED, f"{result.dropped} requests were due and never sent"


def size_slack(point: Point, body_bytes: int) -> float:
    """Bytes by which two bodies of one page may differ: none, unless they are compressed on their way."""
    return max(FLUSH_BYTES, body_bytes * FLUSH_SHARE) if point.accept_encoding != "identity" else 0.0


def _sizes(point: Point, result: Result, body_bytes: int, chunked: bool, head_bytes: int | None) -> Iterator[Fault]:
    """Bytes per response within what headers, chunks, TLS and responses cut short can explain."""
    if result.size_bytes is None or not result.requests:
        return
    mean = result.size_bytes / result.requests
    slack = 0.0
    if result.size_includes_headers:
        slack += HEADER_BYTES if head_bytes is None else head_bytes + HEADER_SPARE_BYTES
        slack += body_bytes * CHUNK_SHARE if chunked else 0
    if result.size_includes_tls:
        every = point.connections / result.requests + 1 / HANDSHAKE_EVERY if point.keepalive else 1
        slack += body_bytes * RECORD_SHARE + HANDSHAKE_BYTES * every
    # a run that is cut off reads part of its last responses, one per connection; one that fails, of each that did
    part = body_bytes * (point.connections + unanswered(result)) / result.requests
    wrong = body_bytes * result.errors.get("status", 0) / result.requests
    either = part + 1 + size_slack(point, body_bytes)
    if not body_bytes - wrong - either <= mean <= body_bytes + slack + either:
        yield Reason.WRONG_SIZE, f"{mean:.0f} bytes per response, the page has {body_bytes}"


def _parts(point: Point, result: Result, seen: Observation) -> Iterator[Fault]:
    """Each of many generators by itself, against its even share of the load: a good sum may hide one that is not.

    Their schedules interleave, so that one may end a request earlier than another.
    """
    many = len(result.parts)
    rate_rps = None if point.rate_rps is None else point.rate_rps / max(1, many)
    share = point.model_copy(update={"connections": point.connections // max(1, many), "rate_rps": rate_rps})
    due = None if rate_rps is None else int(rate_rps * point.duration_s) - 1
    for number, part in enumerate(result.parts, 1):
        times = credible.time_faults(share, part, seen, None, None)
        rates = _rate(share, replace(part, least_due=due))
        for reason, said in (*times, *credible.latency_faults(share, part), *rates):
            yield reason, f"generator {number} of {many}: {said}"


def _rate(point: Point, result: Result) -> Iterator[Fault]:
    if point.rate_rps is None:
        return
    tried = unanswered(result) / result.requests if "errors" in point.subject and result.requests else 0.0
    tried_rps = result.achieved_rps * (1 + tried)
    short = result.least_due is None or result.requests * (1 + tried) < MIN_ACHIEVED * result.least_due
    if short and tried_rps < MIN_ACHIEVED * point.rate_rps:
        share = tried_rps / point.rate_rps
        yield Reason.RATE_NOT_ACHIEVED, f"{tried_rps:.1f} of {point.rate_rps:g} req/s ({share:.1%})"


def disturbed_faults(
    point: Point,
    result: Result,
    requests: pl.DataFrame,
    seen: Observation,
    generator_core: float,
    pinned: bool,
    clock_error_s: float,
    clock_drift_s: float,
    cpu_s: float | None = None,
    cpus: int | None = None,
) -> list[Fault]:
    """Every reason against a sample whose system was disturbed, or would have been (a control run). `cpu_s`, `cpus`: as for a steady one.

    `requests`: its log, by the lab's clock. `clock_error_s`: by how much the two clocks' difference may be wrong;
    `clock_drift_s`: how far it lay apart before and after. A full queue is an outcome here, as errors are.
    """
    busy = point.disturbance is not None and point.disturbance.loads_client
    return [
        *credible.time_faults(point, result, seen, cpu_s, cpus),
        *_logged(point, result, requests),
        *_sent(requests),
        *([] if busy else _saturated(generator_core, pinned)),
        *_clocks(clock_error_s, clock_drift_s),
        *machine_faults(seen),
    ]


def control_faults(outcome: Mapping[str, float | None]) -> list[Fault]:
    """Where nothing was done nothing may fail or change, and answers may not stop: else what a disturbance shows is not its own doing."""
    failed, gap_s = outcome.get("failed"), outcome.get("gap_s")
    found = [f"{failed:.0f} of {outcome.get('requests') or 0:.0f} requests failed"] if failed else []
    found += [f"no good answer for {gap_s:.2f} s"] if gap_s and gap_s > allowed_gap_s(outcome) else []
    found += [f"{count:.0f} {what}" for name, what in UNDONE.items() if (count := outcome.get(name))]
    if failed is None or gap_s is None:
        found.append("whether requests failed cannot be told")
    return [(Reason.CONTROL_FAILED, " and ".join(found))] if found else []


def allowed_gap_s(outcome: Mapping[str, float | None]) -> float:
    """So long good answers may stay away in a control run: 0.1 s, or three times the load's own p99 if that is more.

    Answers that slow come in gaps without any outage. The p99 is that of the calmest of the load's parts (before, during, after):
    one long gap makes the whole load's as large as itself, and would excuse itself. Where fewer than two parts tell
    theirs it is 0.1 s.
    """
    told = [p99_s for part in WINDOWS if (p99_s := outcome.get(f"p99_{part}_s")) is not None]
    return max(GAP_S, GAP_P99 * min(told)) if len(told) > 1 else GAP_S


def _logged(point: Point, result: Result, requests: pl.DataFrame) -> Iterator[Fault]:
    """The log against the generator's own summary, and both against what was due."""
    if requests.is_empty():
        yield Reason.TOO_SHORT, "no request was logged"
        return
    if result.dropped:
        yield Reason.DROPPED, f"{result.dropped} requests were due and never sent"
    numbers = requests["number"].sort()
    if numbers.to_list() != list(range(requests.height)):
        yield Reason.REQUEST_LOG, f"{requests.height} rows, numbered from {numbers[0]} to {numbers[-1]}"
    longest_s = float((requests["done_s"] - requests["sent_s"]).to_numpy().max())
    if longest_s > point.timeout_s + OVERTIME_S:
        yield Reason.REQUEST_LOG, f"a request took {longest_s:.1f} s, and none may take more than {point.timeout_s:g} s"
    answered = requests.filter(pl.col("error") == "")
    pairs = {
        "answered": (answered.height, result.requests),
        "without an answer": (requests.height - answered.height, unanswered(result)),
        "with another status than 2xx": (
            answered.filter(~pl.col("status").is_between(200, 299)).height,
            result.errors.get("status", 0),
        ),
    }
    for what, (logged, counted) in pairs.items():
        if logged != counted:
            yield Reason.REQUEST_LOG, f"{logged} requests {what} in its log, {counted} in its summary"
    due = None if point.rate_rps is None else point.rate_rps * point.duration_s
    if due is not None and abs(requests.height + result.dropped - due) > max(2, COUNTED_ROWS * due):
        yield Reason.RATE_NOT_ACHIEVED, f"{requests.height} requests were made, {due:.0f} were due"


def _sent(requests: pl.DataFrame) -> Iterator[Fault]:
    late_s = (requests["sent_s"] - requests["due_s"]).to_numpy()
    late = int((late_s > LATE_S).sum())
    if late > LATE_SHARE * late_s.size:
        said = f"{late} of {late_s.size} requests were sent more than {LATE_S * 1e3:.0f} ms after they were due"
        yield Reason.GENERATOR_SATURATED, said


def _saturated(generator_core: float, pinned: bool) -> Iterator[Fault]:
    if generator_core >= BUSY:
        whose = "its CPU was" if pinned else "its node's CPUs or its busiest thread were"
        yield Reason.GENERATOR_SATURATED, f"{whose} {generator_core:.0%} busy"


def _clocks(error_s: float, drift_s: float) -> Iterator[Fault]:
    if not error_s <= MAX_CLOCK_ERROR_S:
        yield (
            Reason.CLOCKS,
            f"the generator's clock is known to {error_s * 1e3:.0f} ms, {MAX_CLOCK_ERROR_S * 1e3:.0f} ms are needed",
        )
    elif not abs(drift_s) <= MAX_CLOCK_ERROR_S + error_s:
        yield Reason.CLOCKS, f"the generator's clock moved by {drift_s * 1e3:+.0f} ms against the lab's meanwhile"


def _seen(point: Point, seen: Observation, alone: bool) -> Iterator[Fault]:
    overflows = _sum(seen.counters, "/ListenOverflows")
    if overflows and "listen-overflow" not in point.subject:
        yield Reason.LISTEN_OVERFLOW, f"{overflows} connections dropped at a full accept queue"
    if drops := _sum(seen.counters, "/conntrack_drop"):
        yield Reason.CONNTRACK_OVERFLOW, f"{drops} packets dropped by connection tracking"
    yield from machine_faults(seen) if alone else _clock(seen)


def machine_faults(seen: Observation) -> Iterator[Fault]:
    yield from _clock(seen)
    ticks = TICKS * TICK_S / seen.elapsed_s
    if seen.steal >= max(MAX_STEAL, ticks / max(1, len(seen.busy))):
        yield Reason.STEAL, f"the hypervisor took {seen.steal:.1%} of the CPU time"
    if seen.others is not None and seen.others >= max(MAX_OTHERS_CORES, ticks):
        yield Reason.OTHER_PROCESSES, f"what is not the lab's used {seen.others:.1%} of a core"


def _clock(seen: Observation) -> Iterator[Fault]:
    if abs(seen.clock_step_s) > MAX_CLOCK_STEP_S:
        moved = f"{seen.clock_step_s:+.2f} s"
        yield Reason.CLOCK_STEP, f"the wall clock moved by {moved} against the monotonic one"


def resumption(point: Point, counters: Mapping[str, int]) -> list[Fault]:
    """Whether TLS sessions were resumed as the load asks, where TLS ends at the proxy: what nobody counts was not seen."""
    if point.resumption is None:
        return []
    if "proxy/tls_handshakes" not in counters:
        return [(Reason.RESUMPTION, "the proxy's TLS handshakes were not counted")]
    handshakes, resumed = counters["proxy/tls_handshakes"], counters.get("proxy/tls_resumed", 0)
    if handshakes <= 0:
        return [(Reason.RESUMPTION, "no TLS handshake was counted")]
    share = resumed / handshakes
    if share >= RESUMED if point.resumption else share <= NOT_RESUMED:
        return []
    asked = f"{RESUMED:.0%} or more" if point.resumption else f"{NOT_RESUMED:.0%} or less"
    return [(Reason.RESUMPTION, f"{resumed} of {handshakes} handshakes resumed a session, asked for {asked}")]


def _sum(counters: Mapping[str, int], suffix: str) -> int:
    return sum(value for name, value in counters.items() if name.endswith(suffix))
