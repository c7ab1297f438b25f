"""Validity: each rule of design.md §6 refuses just what it is for."""

from dataclasses import replace

import polars as pl
import pytest

from lab import validity
from lab.generators import Result
from lab.histogram import Histogram
from lab.measurement import with_unexplained
from lab.sampler import Observation
from lab.samples import Reason
from lab.tests.fakes import point

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
    """Nothing is wrong with 5000 of 5000 requests on a calm machine."""
    assert reasons() == []


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (replace(GOOD, requests=4940), Reason.RATE_NOT_ACHIEVED),
        (replace(GOOD, errors={"status": 1}), Reason.NON_2XX),
        (replace(GOOD, errors={"connect": 1}), Reason.ERRORS),
        (replace(GOOD, dropped=1), Reason.DROPPED),
        (replace(GOOD, size_bytes=5000 * 900), Reason.WRONG_SIZE),
        (replace(GOOD, size_bytes=5000 * 9000), Reason.WRONG_SIZE),
        (replace(GOOD, latency=Histogram.empty()), Reason.TOO_SHORT),
        (replace(GOOD, uncalibrated=True), Reason.TOO_SHORT),
    ],
)
def test_what_was_reported(result: Result, reason: Reason) -> None:
    """Each fault in what the generator reported has its own reason."""
    assert reasons(result) == [reason]


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(CALM, steal=0.0101), Reason.STEAL),
        (replace(CALM, others=0.051), Reason.OTHER_PROCESSES),
        (replace(CALM, clock_step_s=-0.2), Reason.CLOCK_STEP),
        (replace(CALM, counters={"proxy/ListenOverflows": 3}), Reason.LISTEN_OVERFLOW),
        (replace(CALM, counters={"backend/conntrack_drop": 1}), Reason.CONNTRACK_OVERFLOW),
    ],
)
def test_what_was_seen(seen: Observation, reason: Reason) -> None:
    """Each disturbance of the machine has its own reason."""
    assert reasons(seen=seen) == [reason]


def test_limits_are_inclusive_on_the_good_side() -> None:
    """0.99 of the rate, and just under 80 % of the core, 1 % steal and 5 % of a core are good."""
    just = replace(CALM, steal=0.0099, others=0.049, counters={"proxy/ListenOverflows": 0, "proxy/RetransSegs": 9})
    assert reasons(replace(GOOD, requests=4950), just, core=0.799) == []
    assert reasons(core=0.80) == [Reason.GENERATOR_SATURATED]


def test_no_longer_than_calibration_is_too_short() -> None:
    """wrk2's latencies begin after its calibration: a run that is not longer has none."""
    assert reasons(calibration_s=5.0) == [Reason.TOO_SHORT]


def test_hidden_processes_are_not_called_none() -> None:
    """Where other people's processes cannot be seen, nothing is said about them."""
    assert reasons(seen=replace(CALM, others=None)) == []


def test_overflow_is_no_fault_where_the_accept_queue_is_the_subject() -> None:
    """A load about accept queues keeps the samples whose queue overflowed."""
    seen = replace(CALM, counters={"proxy/ListenOverflows": 3})
    about = LOAD.model_copy(update={"subject": ("listen-overflow",)})
    assert validity.faults(about, GOOD, seen, 0.3, 0.0, 1024) == []


def test_work_that_none_of_ours_did_is_somebody_elses() -> None:
    """A CPU that was half busy while our process used a tenth of it had company; a few per cent are clock ticks."""
    calm = replace(CALM, elapsed_s=5.0, busy={0: 0.5, 1: 0.25}, others=0.0)
    assert with_unexplained(calm, {0: 0.5, 1: 1.0}).others == pytest.approx(0.4)
    assert with_unexplained(calm, {0: 2.2, 1: 1.0}).others == 0.0
