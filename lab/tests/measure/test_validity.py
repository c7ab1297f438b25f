"""Validity: each rule (lab/model/README.md, "Reasons") refuses just what it is for."""

from dataclasses import replace

import polars as pl
import pytest

from lab.measure import validity
from lab.measure.cpu import with_unexplained
from lab.model.load import Result
from lab.model.samples import Reason
from lab.model.usage import Observation
from lab.stats.histogram import Histogram
from lab.tests.records.test_outcomes import disturbed, log, refused
from lab.tests.support.fakes import point

GOOD = Result(
    requests=5000, duration_s=5.0, latency=Histogram.of_values([0.001] * 5000), recorded_s=5.0, size_bytes=5000 * 1270
)
CALM = Observation(
    elapsed_s=5.1, usage={}, rows=pl.DataFrame(), busy={}, steal=0.0, others=0.0, counters={}, clock_step_s=0.0
)
LOAD = point(rate_rps=1000.0).model_copy(update={"duration_s": 5.0})


def reasons(
    result: Result = GOOD, seen: Observation = CALM, core: float = 0.3, calibration_s: float = 0.0
) -> list[Reason]:
    return [reason for reason, _ in validity.faults(LOAD, result, seen, core, calibration_s, 1024)]


def test_a_good_sample_is_valid() -> None:
    """Nothing is wrong with 5000 of 5000 requests on a calm machine, with latencies that were not wanted, and processes that are hidden.

    Where the accept queue is the subject, nor is it that it overflowed.
    """
    assert reasons() == []
    assert reasons(replace(GOOD, latency=Histogram.empty(), recorded_s=0.0, timed=False)) == []
    assert reasons(seen=replace(CALM, others=None)) == []
    seen = replace(CALM, counters={"proxy/ListenOverflows": 3})
    about = LOAD.model_copy(update={"subject": ("listen-overflow",)})
    assert validity.faults(about, GOOD, seen, 0.3, 0.0, 1024) == []


@pytest.mark.parametrize(
    ("result", "seen", "reason"),
    [
        (replace(GOOD, requests=4940), CALM, Reason.RATE_NOT_ACHIEVED),
        (replace(GOOD, errors={"status": 1}), CALM, Reason.NON_2XX),
        (replace(GOOD, errors={"connect": 1}), CALM, Reason.ERRORS),
        (replace(GOOD, dropped=1), CALM, Reason.DROPPED),
        (replace(GOOD, size_bytes=5000 * 900), CALM, Reason.WRONG_SIZE),
        (replace(GOOD, size_bytes=5000 * 9000), CALM, Reason.WRONG_SIZE),
        (replace(GOOD, latency=Histogram.empty()), CALM, Reason.TOO_SHORT),
        (replace(GOOD, uncalibrated=True), CALM, Reason.TOO_SHORT),
        (GOOD, replace(CALM, steal=0.0101), Reason.STEAL),
        (GOOD, replace(CALM, others=0.051), Reason.OTHER_PROCESSES),
        (GOOD, replace(CALM, clock_step_s=-0.2), Reason.CLOCK_STEP),
        (GOOD, replace(CALM, counters={"proxy/ListenOverflows": 3}), Reason.LISTEN_OVERFLOW),
        (GOOD, replace(CALM, counters={"backend/conntrack_drop": 1}), Reason.CONNTRACK_OVERFLOW),
    ],
)
def test_each_fault_of_what_was_reported_or_seen_has_its_own_reason(
    result: Result, seen: Observation, reason: Reason
) -> None:
    assert reasons(result, seen) == [reason]


def test_limits_are_inclusive_on_the_good_side() -> None:
    just = replace(CALM, steal=0.0099, others=0.049, counters={"proxy/ListenOverflows": 0, "proxy/RetransSegs": 9})
    assert reasons(replace(GOOD, requests=4950), just, core=0.799) == []
    assert reasons(core=0.80) == [Reason.GENERATOR_SATURATED]
    assert reasons(calibration_s=5.0) == [Reason.TOO_SHORT], "wrk2's latencies begin after its calibration"


def test_a_rate_of_connections_with_schedules_of_their_own_may_lack_their_last_requests() -> None:
    """At a request per second each, of a thousand for 5 s, none more may be missing than fell due at the end."""
    latency = Histogram.of_values([0.001] * 4100)
    short = replace(GOOD, requests=4100, least_due=4000, size_bytes=4100 * 1270, latency=latency)
    assert reasons(short) == []
    assert (
        reasons(replace(short, least_due=4500)) == reasons(replace(short, least_due=None)) == [Reason.RATE_NOT_ACHIEVED]
    )


def test_work_that_none_of_ours_did_is_somebody_elses() -> None:
    """A CPU that was half busy while our process used a tenth of it had company; a few per cent are clock ticks."""
    calm = replace(CALM, elapsed_s=5.0, busy={0: 0.5, 1: 0.25}, others=0.0)
    assert with_unexplained(calm, {0: 0.5, 1: 1.0}).others == pytest.approx(0.4)
    assert with_unexplained(calm, {0: 2.2, 1: 1.0}).others == 0.0


def test_interrupts_outside_of_our_processes_are_nobodys() -> None:
    """A disk's, of which none came in our process; of a process that fills its CPU they are in its own time."""
    seen = replace(CALM, elapsed_s=5.0, busy={0: 0.3}, interrupts={0: 0.2}, others=0.0)
    assert with_unexplained(seen, {0: 0.5}).others == 0.0
    full = replace(seen, busy={0: 1.0})
    assert with_unexplained(full, {0: 4.0}).others == pytest.approx(0.16)
    assert with_unexplained(full, {0: 5.0}).others == 0.0


CALM_THEN = replace(CALM, elapsed_s=20.1)
LOGGED = replace(GOOD, requests=2000, duration_s=20.0, latency=Histogram.of_values([0.001] * 2000))


def disturbed_reasons(
    result: Result = LOGGED,
    requests: pl.DataFrame | None = None,
    seen: Observation = CALM_THEN,
    core: float = 0.3,
    clock_error_s: float = 0.0,
    clock_drift_s: float = 0.0,
) -> list[Reason]:
    rows = log() if requests is None else requests
    found = validity.disturbed_faults(disturbed(), result, rows, seen, core, True, clock_error_s, clock_drift_s)
    return [reason for reason, _ in found]


def test_errors_are_the_outcome_of_a_disturbance() -> None:
    lost = replace(LOGGED, requests=1800, errors={"connect": 200})
    busy = replace(CALM_THEN, counters={"proxy/ListenOverflows": 30})
    assert disturbed_reasons() == []
    assert disturbed_reasons(lost, log(refused(5, 7)), busy) == []
    refusals = log(lambda due_s: {"status": 503} if 5 <= due_s < 7 else {})
    assert disturbed_reasons(replace(LOGGED, errors={"status": 200}), refusals) == []


@pytest.mark.parametrize(
    ("result", "requests"),
    [
        (replace(LOGGED, requests=1999), log()),
        (LOGGED, log().filter(pl.col("number") != 700)),
        (replace(LOGGED, requests=1900, errors={"read": 100}), log()),
        (replace(LOGGED, errors={"status": 1}), log()),
    ],
)
def test_a_log_that_does_not_agree_with_its_summary_counts_for_nothing(result: Result, requests: pl.DataFrame) -> None:
    assert set(disturbed_reasons(result, requests)) == {Reason.REQUEST_LOG}


def test_what_the_generator_did_not_do_is_not_the_systems_fault() -> None:
    assert disturbed_reasons(replace(LOGGED, dropped=1)) == [Reason.DROPPED]
    assert disturbed_reasons(core=0.8) == [Reason.GENERATOR_SATURATED]
    late = log(lambda due_s: {"sent_s": due_s + 0.06} if due_s < 0.3 else {})
    assert disturbed_reasons(requests=late) == [Reason.GENERATOR_SATURATED]
    few = replace(LOGGED, requests=1900)
    assert disturbed_reasons(few, log(duration_s=19.0)) == [Reason.RATE_NOT_ACHIEVED]
    assert Reason.TOO_SHORT in disturbed_reasons(replace(LOGGED, requests=0), log(duration_s=0.0))


def test_the_machines_faults_count_under_a_disturbance_too() -> None:
    """And clocks must be known to 20 ms."""
    assert disturbed_reasons(seen=replace(CALM_THEN, steal=0.0101, others=0.051)) == [
        Reason.STEAL,
        Reason.OTHER_PROCESSES,
    ]
    assert disturbed_reasons(seen=replace(CALM_THEN, clock_step_s=-0.2)) == [Reason.CLOCK_STEP]
    assert disturbed_reasons(clock_error_s=0.02) == []
    assert disturbed_reasons(clock_error_s=0.021) == [Reason.CLOCKS]
    assert disturbed_reasons(clock_drift_s=0.03) == [Reason.CLOCKS]
    assert disturbed_reasons(clock_error_s=float("nan")) == [Reason.CLOCKS]


def test_a_control_run_in_which_something_failed_proves_nothing() -> None:
    good = {"requests": 2000.0, "failed": 0.0, "gap_s": 0.0}
    assert validity.control_faults(good) == []
    ((reason, said),) = validity.control_faults(good | {"failed": 2.0, "gap_s": 0.31})
    assert (reason, said) == (Reason.CONTROL_FAILED, "2 of 2000 requests failed and no good answer for 0.31 s")
    assert validity.control_faults({})[0][0] is Reason.CONTROL_FAILED


def test_a_pause_of_a_slow_control_run_is_its_latency() -> None:
    """Up to three times the p99 of its calmest part: one long gap in a quick load does not excuse itself."""
    slow = {f"p99_{part}_s": p99_s for part, p99_s in (("before", 0.08), ("during", 0.09), ("after", None))}
    calm = {"requests": 2000.0, "failed": 0.0}
    assert validity.allowed_gap_s(slow) == pytest.approx(0.24)
    assert validity.control_faults({**calm, **slow, "gap_s": 0.23}) == []
    assert validity.control_faults({**calm, **slow, "gap_s": 0.25}) != []
    stalled = {"p99_before_s": 0.003, "p99_during_s": 1.9, "p99_after_s": 0.003}
    assert validity.control_faults({**calm, **stalled, "gap_s": 2.0}) != []
    assert validity.allowed_gap_s({"p99_during_s": 1.9}) == 0.1, "only one part tells"


@pytest.mark.parametrize("name", ["cut", "not_opened", "restarts", "probe_failures"])
def test_what_only_a_disturbance_may_bring_about_speaks_against_a_control_run(name: str) -> None:
    good = {"requests": 2000.0, "failed": 0.0, "gap_s": 0.0}
    assert validity.control_faults(good | {name: 0.0}) == validity.control_faults(good | {name: None}) == []
    ((reason, said),) = validity.control_faults(good | {name: 2.0})
    assert reason is Reason.CONTROL_FAILED
    assert said.startswith("2 ")
