"""Validity: each rule (lab/model/README.md, "Reasons") refuses just what it is for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from lab.measure import validity
from lab.measure.cpu import add_unexplained
from lab.model.load import GeneratorResult
from lab.model.samples import Reason
from lab.model.usage import Observation
from lab.stats.histogram import Histogram
from lab.tests.records.test_outcomes import disturbed, log, refused
from lab.tests.support.fakes import point

GOOD = GeneratorResult(
    requests=5000, duration_s=5.0, latency=Histogram.of_values([0.001] * 5000), recorded_s=5.0, size_bytes=5000 * 1270
)
CALM = Observation(
    elapsed_s=5.1, usage={}, rows=pl.DataFrame(), busy={}, steal=0.0, others=0.0, counters={}, clock_step_s=0.0
)
LOAD = point(rate_rps=1000.0).model_copy(update={"duration_s": 5.0})


def reasons(result: GeneratorResult = GOOD, seen: Observation = CALM, core: float = 0.3) -> list[Reason]:
    return [reason for reason, _ in validity.find_faults(LOAD, result, seen, core, 1024)]


def test_a_good_sample_is_valid() -> None:
    """Nothing is wrong with 5000 of 5000 requests on a calm machine, with latencies that were not wanted, and processes that are hidden.

    Where the accept queue is the subject, nor is it that it overflowed.
    """
    assert reasons() == []
    assert reasons(replace(GOOD, latency=Histogram.of_values([]), recorded_s=0.0, timed=False)) == []
    assert reasons(seen=replace(CALM, others=None)) == []
    seen = replace(CALM, counters={"proxy/ListenOverflows": 3})
    about = LOAD.model_copy(update={"subject": ("listen-overflow",)})
    assert validity.find_faults(about, GOOD, seen, 0.3, 1024) == []


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"result": replace(GOOD, requests=4940)}, Reason.RATE_NOT_ACHIEVED),
        ({"result": replace(GOOD, errors={"status": 1})}, Reason.NON_2XX),
        ({"result": replace(GOOD, errors={"connect": 1})}, Reason.ERRORS),
        ({"result": replace(GOOD, dropped=1)}, Reason.DROPPED),
        ({"result": replace(GOOD, size_bytes=5000 * 900)}, Reason.WRONG_SIZE),
        ({"result": replace(GOOD, size_bytes=5000 * 9000)}, Reason.WRONG_SIZE),
        ({"result": replace(GOOD, latency=Histogram.of_values([]))}, Reason.TOO_SHORT),
        ({"result": replace(GOOD, uncalibrated=True)}, Reason.TOO_SHORT),
        ({"core": 0.80}, Reason.GENERATOR_SATURATED),
        ({"seen": replace(CALM, steal=0.0101)}, Reason.STEAL),
        ({"seen": replace(CALM, others=0.051)}, Reason.OTHER_PROCESSES),
        ({"seen": replace(CALM, clock_step_s=-0.2)}, Reason.CLOCK_STEP),
        ({"seen": replace(CALM, counters={"proxy/ListenOverflows": 3})}, Reason.LISTEN_OVERFLOW),
        ({"seen": replace(CALM, counters={"backend/conntrack_drop": 1})}, Reason.CONNTRACK_OVERFLOW),
    ],
)
def test_each_fault_of_what_was_reported_or_seen_has_its_own_reason(told: dict[str, Any], reason: Reason) -> None:
    assert reasons(**told) == [reason]
    just = replace(CALM, steal=0.0099, others=0.049, counters={"proxy/ListenOverflows": 0, "proxy/RetransSegs": 9})
    assert reasons(replace(GOOD, requests=4950), just, core=0.799) == [], "limits are inclusive on the good side"


def test_a_rate_of_connections_with_schedules_of_their_own_may_lack_their_last_requests() -> None:
    """At a request per second each, of a thousand for 5 s, none more may be missing than fell due at the end."""
    latency = Histogram.of_values([0.001] * 4100)
    short = replace(GOOD, requests=4100, least_due=4000, size_bytes=4100 * 1270, latency=latency)
    assert reasons(short) == []
    for due in (4500, None):
        assert reasons(replace(short, least_due=due)) == [Reason.RATE_NOT_ACHIEVED]


def test_work_that_none_of_ours_did_is_somebody_elses() -> None:
    """A CPU that was half busy while our process used a tenth of it had company; a few per cent are clock ticks."""
    calm = replace(CALM, elapsed_s=5.0, busy={0: 0.5, 1: 0.25}, others=0.0)
    assert add_unexplained(calm, {0: 0.5, 1: 1.0}).others == pytest.approx(0.4)
    assert add_unexplained(calm, {0: 2.2, 1: 1.0}).others == 0.0
    # interrupts outside of our processes are nobody's; of a process that fills its CPU they are in its own time
    seen = replace(CALM, elapsed_s=5.0, busy={0: 0.3}, interrupts={0: 0.2}, others=0.0)
    assert add_unexplained(seen, {0: 0.5}).others == 0.0
    full = replace(seen, busy={0: 1.0})
    assert add_unexplained(full, {0: 4.0}).others == pytest.approx(0.16)
    assert add_unexplained(full, {0: 5.0}).others == 0.0


CALM_THEN = replace(CALM, elapsed_s=20.1)
FULL = replace(CALM_THEN, counters={"proxy/ListenOverflows": 30})
LOGGED = replace(GOOD, requests=2000, duration_s=20.0, latency=Histogram.of_values([0.001] * 2000))


LOST = replace(LOGGED, requests=1800, errors={"connect": 200})


def endless(due_s: float) -> Mapping[str, Any]:
    return {"done_s": due_s + 60.0} if due_s == 7.0 else {}


def late(due_s: float) -> Mapping[str, Any]:
    return {"sent_s": due_s + 0.06} if due_s < 0.3 else {}


def wrong(due_s: float) -> Mapping[str, Any]:
    return {"status": 503} if 5 <= due_s < 7 else {}


def disturbed_reasons(
    result: GeneratorResult = LOGGED,
    requests: pl.DataFrame | None = None,
    seen: Observation = CALM_THEN,
    core: float = 0.3,
    clock_error_s: float = 0.0,
    clock_drift_s: float = 0.0,
) -> list[Reason]:
    rows = log() if requests is None else requests
    found = validity.find_disruption_faults(disturbed(), result, rows, seen, core, True, clock_error_s, clock_drift_s)
    return [reason for reason, _ in found]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, []),
        # refused requests, a full queue and dropped packets of an outage are its outcome
        ({"result": LOST, "requests": log(refused(5, 7)), "seen": FULL}, []),
        ({"result": replace(LOGGED, errors={"status": 200}), "requests": log(wrong)}, []),
        # a log that does not agree with its summary
        ({"result": replace(LOGGED, requests=1999)}, [Reason.REQUEST_LOG]),
        ({"requests": log().filter(pl.col("number") != 700)}, [Reason.REQUEST_LOG]),
        ({"result": replace(LOGGED, requests=1900, errors={"read": 100})}, [Reason.REQUEST_LOG]),
        ({"result": replace(LOGGED, errors={"status": 1})}, [Reason.REQUEST_LOG]),
        ({"requests": log(endless)}, [Reason.REQUEST_LOG]),
        # what the generator did not do
        ({"result": replace(LOGGED, dropped=1)}, [Reason.DROPPED]),
        ({"core": 0.8}, [Reason.GENERATOR_SATURATED]),
        ({"requests": log(late)}, [Reason.GENERATOR_SATURATED]),
        ({"result": replace(LOGGED, requests=1900), "requests": log(duration_s=19.0)}, [Reason.RATE_NOT_ACHIEVED]),
        ({"result": replace(LOGGED, requests=0), "requests": log(duration_s=0.0)}, [Reason.TOO_SHORT]),
        # the machine's faults and the clocks'
        ({"seen": replace(CALM_THEN, steal=0.0101, others=0.051)}, [Reason.STEAL, Reason.OTHER_PROCESSES]),
        ({"seen": replace(CALM_THEN, clock_step_s=-0.2)}, [Reason.CLOCK_STEP]),
        ({"clock_error_s": 0.02}, []),
        ({"clock_error_s": 0.021}, [Reason.CLOCKS]),
        ({"clock_drift_s": 0.03}, [Reason.CLOCKS]),
        ({"clock_error_s": float("nan")}, [Reason.CLOCKS]),
    ],
)
def test_what_speaks_against_a_disturbed_sample(told: dict[str, Any], expected: list[Reason]) -> None:
    assert [*dict.fromkeys(disturbed_reasons(**told))] == expected


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ({"failed": 2.0, "gap_s": 0.31}, "2 of 2000 requests failed and no good answer for 0.31 s"),
        ({"failed": None}, "whether requests failed is unknown"),
        *(({name: 2.0}, f"2 {said}") for name, said in validity.CONTROL_MUST_NOT.items()),
    ],
)
def test_what_only_a_disturbance_may_bring_about_speaks_against_a_control_run(
    outcome: dict[str, Any], said: str
) -> None:
    good = {"requests": 2000.0, "failed": 0.0, "gap_s": 0.0}
    assert validity.find_control_faults(good) == []
    ((reason, text),) = validity.find_control_faults(good | outcome)
    assert reason is Reason.CONTROL_FAILED and said in text
    assert (
        validity.find_control_faults(good | {name: None for name in outcome if name in validity.CONTROL_MUST_NOT}) == []
    )


def test_a_pause_of_a_slow_control_run_is_its_latency() -> None:
    """Up to three times the p99 of its calmest part: one long gap in a quick load does not excuse itself."""
    slow = {f"p99_{part}_s": p99_s for part, p99_s in (("before", 0.08), ("during", 0.09), ("after", None))}
    calm = {"requests": 2000.0, "failed": 0.0}
    assert validity.compute_allowed_gap_s(slow) == pytest.approx(0.24)
    assert validity.find_control_faults({**calm, **slow, "gap_s": 0.23}) == []
    assert validity.find_control_faults({**calm, **slow, "gap_s": 0.25}) != []
    stalled = {"p99_before_s": 0.003, "p99_during_s": 1.9, "p99_after_s": 0.003}
    assert validity.find_control_faults({**calm, **stalled, "gap_s": 2.0}) != []
    assert validity.compute_allowed_gap_s({"p99_during_s": 1.9}) == 0.1, "only one part tells"
