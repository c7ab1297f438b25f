"""The rules that decide whether a sample is valid, from the planned load, the generator's report and the lab's observation.

The functions have no side effects. `find_faults` judges loads without disruption. If a load examines errors, its requests may
fail, but some must be answered, and failed requests count towards the achieved rate. In a load with a disruption, errors and
restarts are results. Then only a fault of the generator, the clocks, the event log, the control run or the machine makes a
sample invalid (`find_disruption_faults`, `find_control_faults`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from lab.measure import credible
from lab.measure.credible import HANDSHAKE_BYTES, Fault
from lab.model.bottleneck import BUSY, MAX_OTHERS_CORES, count_unanswered
from lab.model.endpoint import Tls
from lab.model.load import GeneratorResult
from lab.model.metrics import GAP_S, WINDOWS
from lab.model.pages import PAGES
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.targets.common.sampler import TICK_S

MIN_ACHIEVED = 0.99
"""The share of the offered rate, or of the due requests, that must be achieved."""
MAX_LATE_PER_INTERVAL = 0.1
"""The largest average lateness of messages with which a generator still keeps its schedule (0.02 seen).

It is a share of the time between two messages.
"""
MAX_STEAL = 0.01
"""The share of all CPU time from which on the hypervisor's steal invalidates a sample."""
ALLOWED_TICKS = 3
"""The clock ticks of foreign work that every sample may contain.

A run of a tenth of a second (hey, a fixed number of requests) is not rejected for a single tick.
"""
MAX_CLOCK_STEP_S = 0.1
"""The seconds by which the wall clock may move against the monotonic one."""
HEADER_BYTES = 2048
"""The upper bound for a response's headers where the canary's are not known: more than any of our responses has."""
HEADER_SPARE_BYTES = 256
"""The bytes by which a response's headers may be longer than the canary's."""
CHUNK_SHARE = 1 / 256
"""The share of a chunked body that chunk sizes may add: at most 16 bytes around every 4 KiB."""
FLUSH_BYTES, FLUSH_SHARE = 32, 1 / 100
"""The bytes, or the share of the body if that is more, by which compressed bodies of one page may differ.

The proxy flushes its compressor whenever bytes arrive from upstream, so sizes vary (seen: 18 bytes of 24,721).
"""
MESSAGE_BYTES = 64
"""The upper bound for what gRPC and HTTP/2 add to each message of a server stream (22 seen)."""
RECORD_SHARE = 1 / 32
"""The share of its payload that TLS may add: at most 40 bytes around every frame's 1.3 kB."""
HANDSHAKE_EVERY = 100
"""The least number of requests per kept connection that the check of sizes assumes."""
RESUMED = 0.90
"""The least share of resumed handshakes where sessions must be resumed.

Each connection's first handshake is a full one.
"""
NOT_RESUMED = 0.01
"""The largest share of resumed handshakes where sessions must not be resumed."""

MAX_CLOCK_ERROR_S = 0.02
"""The largest error of the difference between the generator's and the lab's clock, and of its drift, in seconds."""
LATE_S = 0.05
"""The seconds after its due time from which on a request counts as sent late."""
OVERTIME_S = 0.5
"""The seconds after its timeout within which a generator with enough CPU reports a request."""
MAX_LATE_SHARE = 0.01
"""The largest share of requests sent late (`LATE_S`): with more, the generator has not made the planned load."""
COUNTED_ROWS = 0.01
"""The share of the due requests by which a generator's schedule may end early or late."""

GAP_IN_P99S = 3
"""The multiple of the load's p99 up to which a pause in a control run is no gap."""
CONTROL_MUST_NOT = {
    "cut": "long-lived connections were cut",
    "not_opened": "long-lived connections could not be opened",
    "restarts": "restarts",
    "probe_failures": "failed probes",
}
"""The outcomes that a control run must not have, where they were measured.

Reloads are not among them: one may still follow from the preparation.
"""


def find_faults(
    point: LoadPoint,
    result: GeneratorResult,
    observation: Observation,
    generator_core: float,
    body_bytes: int,
    chunked: bool = False,
    alone: bool = True,
    cpu_s: float | None = None,
    cpus: int | None = None,
    tls: Tls = "none",
    head_bytes: int | None = None,
) -> list[Fault]:
    """Return all faults of a sample under a load without disruption, each as a reason and a sentence.

    Args:
        point: The planned load.
        result: The generator's report.
        observation: What the lab observed during the load.
        generator_core: How busy the generator's busiest CPU was, as a fraction.
        body_bytes: The size of one body as it was received, taken from the canary (a checked request).
        chunked: Whether the canary's body was sent in chunks.
        alone: False for one side of a pair (two systems at once). What the machine does to both sides is then no fault.
        cpu_s: The CPU seconds that the generator used; None = unknown.
        cpus: The number of CPUs that it may use; None = unknown.
        tls: Where TLS ends: "none", "edge", "passthrough" or "reencrypt".
        head_bytes: The size of the canary's headers; None = unknown.

    """
    return [
        *credible.find_time_faults(point, result, observation, cpu_s, cpus),
        *credible.count_faults(point, result, observation, 0 if point.transfer else body_bytes, tls),
        *_check_report(point, result),
        *(
            _check_sizes(point, result, body_bytes, chunked, head_bytes)
            if point.transfer is None
            else _check_transferred_bytes(point, result, observation, body_bytes)
        ),
        *_check_rate(point, result),
        *(() if point.rate_rps is None else _check_saturation(generator_core, pinned=observation.cores is None)),
        *_check_parts(point, result, observation),
        *_check_observation(point, observation, alone),
    ]


def _check_report(point: LoadPoint, result: GeneratorResult) -> Iterator[Fault]:
    """Yield the faults in a generator's report: an unfinished calibration, no answers, errors, dropped requests.

    Args:
        point: The planned load.
        result: The generator's report.

    Yields:
        A reason and a sentence for each fault.

    """
    if result.uncalibrated:
        yield Reason.TOO_SHORT, "the generator did not finish its calibration: start-up is in the latencies"
    good = result.requests - (result.errors.get("status", 0) if "errors" in point.subject else 0)
    if good <= 0 or (result.timed and result.latency.total == 0):
        yield Reason.TOO_SHORT, f"{good} requests answered, {result.latency.total} latencies recorded"
    if "errors" not in point.subject:
        refused = {kind: count for kind, count in result.errors.items() if count}
        if status := refused.pop("status", 0):
            answers = "calls, by another status than OK" if point.grpc else "responses"
            yield Reason.NON_2XX, f"{status} of {result.requests} {answers}"
        if refused:
            yield Reason.ERRORS, ", ".join(f"{count} {kind}" for kind, count in refused.items())
    if result.dropped:
        yield Reason.DROPPED, f"{result.dropped} requests were due and never sent"


def compute_size_slack(point: LoadPoint, body_bytes: int) -> float:
    """Return by how many bytes the sizes of two answers with the same page may differ.

    It is 0 if the load requests no compression. Compressed answers differ slightly in size.

    Args:
        point: The load point.
        body_bytes: The size of one body as it was received.

    """
    return max(FLUSH_BYTES, body_bytes * FLUSH_SHARE) if point.accept_encoding != "identity" else 0.0


def _check_sizes(
    point: LoadPoint, result: GeneratorResult, body_bytes: int, chunked: bool, head_bytes: int | None
) -> Iterator[Fault]:
    """Yield a fault if the received bytes per response do not fit the size of the page.

    Headers, chunk sizes, TLS and responses that were cut short are taken into account.

    Args:
        point: The planned load.
        result: The generator's report.
        body_bytes: The size of one body as the canary (a checked request) received it.
        chunked: Whether the canary's body was sent in chunks.
        head_bytes: The size of the canary's headers; None = unknown.

    Yields:
        A reason and a sentence for the fault.

    """
    if result.size_bytes is None or not result.requests:
        return
    mean = result.size_bytes / result.requests
    slack = 0.0
    if result.size_includes_headers:
        slack += HEADER_BYTES if head_bytes is None else head_bytes + HEADER_SPARE_BYTES
        slack += body_bytes * CHUNK_SHARE if chunked else MESSAGE_BYTES * point.messages
    if result.size_includes_tls:
        handshakes = point.kept_connections / result.requests + 1 / HANDSHAKE_EVERY if point.keepalive else 1
        slack += body_bytes * RECORD_SHARE + HANDSHAKE_BYTES * handshakes
    # A run that is cut off reads part of its last responses, one per connection; a request that fails may have read part of one, too.
    part = body_bytes * (point.connections + count_unanswered(result)) / result.requests
    wrong = body_bytes * result.errors.get("status", 0) / result.requests
    tolerance = part + 1 + compute_size_slack(point, body_bytes)
    if not body_bytes - wrong - tolerance <= mean <= body_bytes + slack + tolerance:
        yield Reason.WRONG_SIZE, f"{mean:.0f} bytes per response, the page has {body_bytes}"


def _check_transferred_bytes(
    point: LoadPoint, result: GeneratorResult, observation: Observation, body_bytes: int
) -> Iterator[Fault]:
    """Yield a fault if large transfers do not have the planned size, or the client's link did not pass their bytes.

    The bytes are those that the kernel counted on the link. The generator's own count of bytes is checked when its output
    is parsed.

    Args:
        point: The planned load, with `transfer`.
        result: The generator's report.
        observation: What the lab observed during the load, with the counts of the client's link.
        body_bytes: The size of the page as the canary (a checked request) received it.

    Yields:
        A reason and a sentence for each fault.

    """
    size = PAGES[point.page]
    if body_bytes != size:
        yield Reason.WRONG_SIZE, f"the page has {size} bytes, {body_bytes} came"
    link_bytes = observation.counters.get("client/rx_bytes" if point.transfer == "download" else "client/tx_bytes")
    least = result.requests - result.errors.get("status", 0)
    most = result.requests + count_unanswered(result) + point.connections * point.streams
    most_bytes = most * size * (1 + credible.MAX_FRAME_SHARE) + point.connections * HANDSHAKE_BYTES
    if link_bytes is not None and not least * size <= link_bytes <= most_bytes:
        yield (
            Reason.WRONG_SIZE,
            f"{least} to {most} {point.transfer}s of {size} bytes, {link_bytes} bytes passed the client's link",
        )


def _check_parts(point: LoadPoint, result: GeneratorResult, observation: Observation) -> Iterator[Fault]:
    """Yield the faults of each single generator, if several generators made the load together.

    Each is judged by its even share of the load, because a good sum may hide a bad generator.

    Args:
        point: The planned load of all generators.
        result: The report of all generators, with `parts`.
        observation: What the lab observed during the load.

    Yields:
        A reason and a sentence for each fault.

    """
    many = len(result.parts)
    rate_rps = None if point.rate_rps is None else point.rate_rps / max(1, many)
    share = point.model_copy(update={"connections": point.connections // max(1, many), "rate_rps": rate_rps})
    least_due = None if rate_rps is None else int(rate_rps * point.duration_s) - 1
    for number, part in enumerate(result.parts, 1):
        times = credible.find_time_faults(share, part, observation, None, None)
        rates = _check_rate(share, replace(part, least_due=least_due))
        for reason, message in (*times, *credible.latency_faults(share, part), *rates):
            yield reason, f"generator {number} of {many}: {message}"


def _check_rate(point: LoadPoint, result: GeneratorResult) -> Iterator[Fault]:
    """Yield a fault if less than `MIN_ACHIEVED` of the offered rate was achieved.

    If the load examines errors, failed requests count as achieved.

    Args:
        point: The planned load.
        result: The generator's report.

    Yields:
        A reason and a sentence for the fault.

    """
    if point.rate_rps is None:
        return
    tried = count_unanswered(result) / result.requests if "errors" in point.subject and result.requests else 0.0
    tried_rps = result.achieved_rps * (1 + tried)
    short = result.least_due is None or result.requests * (1 + tried) < MIN_ACHIEVED * result.least_due
    if short and tried_rps < MIN_ACHIEVED * point.rate_rps:
        yield (
            Reason.RATE_NOT_ACHIEVED,
            f"{tried_rps:.1f} of {point.rate_rps:g} req/s ({tried_rps / point.rate_rps:.1%})",
        )


def find_disruption_faults(
    point: LoadPoint,
    result: GeneratorResult,
    requests: pl.DataFrame,
    observation: Observation,
    generator_core: float,
    pinned: bool,
    clock_error_s: float,
    clock_drift_s: float,
    cpu_s: float | None = None,
    cpus: int | None = None,
) -> list[Fault]:
    """Return all faults of a sample under a load with a disruption, each as a reason and a sentence.

    Control runs (the load without the disruption) are judged by these rules, too. Failed requests and full queues are
    part of the outcome, not faults.

    Args:
        point: The planned load.
        result: The generator's report.
        requests: The generator's log of requests (`REQUESTS_SCHEMA`), by the lab's clock.
        observation: What the lab observed during the load.
        generator_core: How busy the generator's busiest CPU was, as a fraction.
        pinned: Whether the generator is pinned to CPUs.
        clock_error_s: The largest error of the known difference between the generator's and the lab's clock.
        clock_drift_s: By how much this difference changed during the load.
        cpu_s: The CPU seconds that the generator used; None = unknown.
        cpus: The number of CPUs that it may use; None = unknown.

    """
    busy = point.disturbance is not None and point.disturbance.loads_client
    return [
        *credible.find_time_faults(point, result, observation, cpu_s, cpus),
        *_check_log(point, result, requests),
        *_check_delays(requests),
        *([] if busy else _check_saturation(generator_core, pinned)),
        *_check_clocks(clock_error_s, clock_drift_s),
        *find_machine_faults(observation),
    ]


def find_stream_faults(
    point: LoadPoint,
    result: GeneratorResult,
    counts: Sequence[Mapping[str, int]],
    span_s: Sequence[float],
    observation: Observation,
    generator_core: float,
    cpu_s: float | None = None,
    cpus: int | None = None,
) -> list[Fault]:
    """Return all faults of a sample with streams of Server-Sent Events or WebSockets, each as a reason and a sentence.

    Streams and WebSockets that were refused or cut are part of the outcome, not faults. So are WebSockets that a proxy
    answered with another status than 101, even if these are all of them.

    Args:
        point: The planned load.
        result: The generator's report.
        counts: The backend's counts (its page `/counts`) before and after the load: name → number.
        span_s: When the load began and ended by the lab's clock, in seconds since the epoch.
        observation: What the lab observed during the load.
        generator_core: How busy the generator's busiest CPU was, as a fraction.
        cpu_s: The CPU seconds that the generator used; None = unknown.
        cpus: The number of CPUs that it may use; None = unknown.

    """
    return [
        *credible.find_time_faults(point, result, observation, cpu_s, cpus),
        *credible.find_stream_count_faults(point, result, counts, span_s, observation),
        *_check_streams(point, result),
        *_check_saturation(generator_core, pinned=observation.cores is None),
        *_check_observation(point, observation, alone=True),
    ]


def _check_streams(point: LoadPoint, result: GeneratorResult) -> Iterator[Fault]:
    """Yield the faults in a report about streams of events or WebSockets: no or wrong content, or late messages.

    Args:
        point: The planned load.
        result: The generator's report.

    Yields:
        A reason and a sentence for each fault.

    """
    many = point.connections * point.streams
    if not result.requests and not (point.websocket and result.errors.get("status") == many):
        yield Reason.TOO_SHORT, f"nothing arrived on {many} streams or WebSockets"
    if body := result.errors.get("body", 0):
        yield Reason.ERRORS, f"{body} streams or WebSockets had other content than was sent"
    late_s, every_s = result.streams.late_s if result.streams else 0.0, point.every_s or 0.0
    if late_s > MAX_LATE_PER_INTERVAL * every_s:
        yield Reason.RATE_NOT_ACHIEVED, f"a message was sent {late_s * 1e3:.0f} ms late on average"


def find_control_faults(outcome: Mapping[str, float | None]) -> list[Fault]:
    """Return the faults of a control run (a load without the disruption that other samples have).

    No request may fail, answers may not stop, and nothing in the system may change. Otherwise the effects of the
    disruption could not be recognized.

    Args:
        outcome: The outcomes of the control run: metric → number; None = unknown.

    Returns:
        At most one fault, with all causes in its sentence.

    """
    failed, gap_s = outcome.get("failed"), outcome.get("gap_s")
    messages = [f"{failed:.0f} of {outcome.get('requests') or 0:.0f} requests failed"] if failed else []
    messages += [f"no good answer for {gap_s:.2f} s"] if gap_s and gap_s > compute_allowed_gap_s(outcome) else []
    messages += [f"{count:.0f} {label}" for name, label in CONTROL_MUST_NOT.items() if (count := outcome.get(name))]
    if failed is None or gap_s is None:
        messages.append("whether requests failed is unknown")
    return [(Reason.CONTROL_FAILED, " and ".join(messages))] if messages else []


def compute_allowed_gap_s(outcome: Mapping[str, float | None]) -> float:
    """Return for how many seconds good answers may be missing in a control run (a load without the disruption).

    It is 0.1 s, or three times p99 if that is longer, because slow answers leave gaps without any outage. Each of the
    three parts of the load ("before", "during" and "after") has a p99 latency; the smallest of them is used. A long gap
    raises p99 only in its own part, so it does not raise what is allowed. If fewer than two parts have a p99, there is
    no other part to compare with, and the result is 0.1 s.

    Args:
        outcome: The outcomes of the control run: metric → number.

    """
    p99s_s = [p99_s for part in WINDOWS if (p99_s := outcome.get(f"p99_{part}_s")) is not None]
    return max(GAP_S, GAP_IN_P99S * min(p99s_s)) if len(p99s_s) > 1 else GAP_S


def _check_log(point: LoadPoint, result: GeneratorResult, requests: pl.DataFrame) -> Iterator[Fault]:
    """Yield the faults of a generator's log of requests: contradictions to its report and to the planned rate.

    That the log has no gaps was checked when it was parsed.

    Args:
        point: The planned load.
        result: The generator's report.
        requests: The log of requests (`REQUESTS_SCHEMA`).

    Yields:
        A reason and a sentence for each fault.

    """
    if requests.is_empty():
        yield Reason.TOO_SHORT, "no request was logged"
        return
    if result.dropped:
        yield Reason.DROPPED, f"{result.dropped} requests were due and never sent"
    longest_s = float((requests["done_s"] - requests["sent_s"]).to_numpy().max())
    if longest_s > point.timeout_s + OVERTIME_S:
        yield Reason.REQUEST_LOG, f"a request took {longest_s:.1f} s, and none may take more than {point.timeout_s:g} s"
    answered = requests.filter(pl.col("error") == "")
    pairs = {
        "answered": (answered.height, result.requests),
        "without an answer": (requests.height - answered.height, count_unanswered(result)),
        "with another status than 2xx": (
            answered.filter(~pl.col("status").is_between(200, 299)).height,
            result.errors.get("status", 0),
        ),
    }
    for label, (logged, counted) in pairs.items():
        if logged != counted:
            yield Reason.REQUEST_LOG, f"{logged} requests {label} in its log, {counted} in its summary"
    expected = None if point.rate_rps is None else point.rate_rps * point.duration_s
    if expected is not None and abs(requests.height + result.dropped - expected) > max(2, COUNTED_ROWS * expected):
        yield Reason.RATE_NOT_ACHIEVED, f"{requests.height} requests were made, {expected:.0f} were due"


def _check_delays(requests: pl.DataFrame) -> Iterator[Fault]:
    """Yield a fault if the generator sent more than 1 % of the requests later than 50 ms after they were due."""
    late_s = (requests["sent_s"] - requests["due_s"]).to_numpy()
    late = int((late_s > LATE_S).sum())
    if late > MAX_LATE_SHARE * late_s.size:
        yield (
            Reason.GENERATOR_SATURATED,
            f"{late} of {late_s.size} requests were sent more than {LATE_S * 1e3:.0f} ms after they were due",
        )


def _check_saturation(generator_core: float, pinned: bool) -> Iterator[Fault]:
    """Yield a fault if the generator's CPU was 80 % busy or more, so that the generator itself may limit the load.

    Args:
        generator_core: How busy the generator's busiest CPU was, as a fraction.
        pinned: Whether the generator is pinned to CPUs; this only changes the sentence.

    """
    if generator_core >= BUSY:
        subject = "its CPU was" if pinned else "its node's CPUs or its busiest thread were"
        yield Reason.GENERATOR_SATURATED, f"{subject} {generator_core:.0%} busy"


def _check_clocks(error_s: float, drift_s: float) -> Iterator[Fault]:
    """Yield a fault if the difference between the generator's and the lab's clock is too uncertain, or changed too much.

    Args:
        error_s: The largest error of the known difference, in seconds.
        drift_s: By how much the difference changed during the load, in seconds.

    """
    if not error_s <= MAX_CLOCK_ERROR_S:
        yield (
            Reason.CLOCKS,
            f"the generator's clock is known to {error_s * 1e3:.0f} ms, {MAX_CLOCK_ERROR_S * 1e3:.0f} ms are needed",
        )
    elif not abs(drift_s) <= MAX_CLOCK_ERROR_S + error_s:
        yield Reason.CLOCKS, f"the generator's clock moved by {drift_s * 1e3:+.0f} ms against the lab's meanwhile"


def _check_observation(point: LoadPoint, observation: Observation, alone: bool) -> Iterator[Fault]:
    """Yield the faults that kernel counters, the wall clock and the machine's state show.

    Args:
        point: The planned load.
        observation: What the lab observed during the load.
        alone: Whether the sample is solo. For one side of a pair the hypervisor and other processes are no fault,
            because they hit both sides.

    Yields:
        A reason and a sentence for each fault.

    """
    overflows = _sum_counters(observation.counters, "/ListenOverflows")
    if overflows and "listen-overflow" not in point.subject:
        yield Reason.LISTEN_OVERFLOW, f"{overflows} connections dropped at a full accept queue"
    if drops := _sum_counters(observation.counters, "/conntrack_drop"):
        yield Reason.CONNTRACK_OVERFLOW, f"{drops} packets dropped by connection tracking"
    yield from find_machine_faults(observation) if alone else _check_wall_clock(observation)


def find_machine_faults(observation: Observation) -> Iterator[Fault]:
    """Yield the faults of the machine during a load: a jump of its clock, CPU time taken by the hypervisor or by others.

    Yields:
        A reason and a sentence for each fault.

    """
    yield from _check_wall_clock(observation)
    ticks = ALLOWED_TICKS * TICK_S / observation.elapsed_s
    if observation.steal >= max(MAX_STEAL, ticks / max(1, len(observation.busy))):
        yield Reason.STEAL, f"the hypervisor took {observation.steal:.1%} of the CPU time"
    if observation.others is not None and observation.others >= max(MAX_OTHERS_CORES, ticks):
        yield Reason.OTHER_PROCESSES, f"what is not the lab's used {observation.others:.1%} of a core"


def _check_wall_clock(observation: Observation) -> Iterator[Fault]:
    """Yield a fault if the wall clock jumped during the load, measured against the monotonic clock."""
    if abs(observation.clock_step_s) > MAX_CLOCK_STEP_S:
        yield Reason.CLOCK_STEP, f"the wall clock moved by {observation.clock_step_s:+.2f} s against the monotonic one"


def check_resumption(resumption: bool, counters: Mapping[str, int]) -> list[Fault]:
    """Return a fault if the share of TLS handshakes that resumed a session is not what the load point requires.

    It is also a fault if no handshakes were counted.

    Args:
        resumption: Whether handshakes must resume a session; if not, they must not.
        counters: The increase of each counter during the load, by `role/name` (`proxy/tls_handshakes`).

    """
    if "proxy/tls_handshakes" not in counters:
        return [(Reason.RESUMPTION, "the proxy's TLS handshakes were not counted")]
    handshakes, resumed = counters["proxy/tls_handshakes"], counters.get("proxy/tls_resumed", 0)
    if handshakes <= 0:
        return [(Reason.RESUMPTION, "no TLS handshake was counted")]
    share = resumed / handshakes
    if share >= RESUMED if resumption else share <= NOT_RESUMED:
        return []
    limit = f"{RESUMED:.0%} or more" if resumption else f"{NOT_RESUMED:.0%} or less"
    return [(Reason.RESUMPTION, f"{resumed} of {handshakes} handshakes resumed a session, asked for {limit}")]


def _sum_counters(counters: Mapping[str, int], suffix: str) -> int:
    return sum(value for name, value in counters.items() if name.endswith(suffix))
