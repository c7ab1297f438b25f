"""What a migration's numbers do not show is said in words: too few samples, and ports that run out later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.analysis.explain.notes import ENOUGH, outcomes
from lab.analysis.summary import summarise_run
from lab.model.plan import Slot
from lab.model.samples import Reason, Sample
from lab.model.steadiness import Change, Steadiness
from lab.tests.support.factories import lose, made_invalid, make_plan, make_point
from lab.tests.support.made_runs import made

CEILING = make_point("ceiling", rate_rps=None)


def said(change: Callable[[Slot, Sample], Sample | None]) -> list[str]:
    store = made(planned=make_plan(points=[CEILING]), change=change)
    return list(outcomes([summarise_run(store.record, store.samples(), store.histogram)]))


@pytest.mark.parametrize("count", [ENOUGH - 1, ENOUGH, 6])
def test_fewer_than_four_samples_are_told_with_the_reasons(count: int) -> None:
    lost = lose(lambda slot: slot.arm.role == "variant" and slot.block > count, Reason.DROPPED)
    few = "keepalive at ceiling: too few samples for a number, 3 count: dropped 3 (Requests were due and never sent)"
    assert said(lost) == ([few] if count < ENOUGH else [])


def test_ports_that_run_out_after_the_sample_are_told() -> None:
    def open_many(slot: Slot, sample: Sample) -> Sample:
        opened = 6000 if slot.arm.role == "variant" else 0
        return sample.model_copy(update={"counters": {"proxy/ActiveOpens": opened}})

    (sentence,) = said(open_many)
    assert sentence.startswith("keepalive at ceiling: before exhaustion, which comes after 12 s")


def test_who_does_not_hold_its_rate_is_told_with_seconds_and_cause() -> None:
    change = Change(at_s=3.0, rate_before_rps=9000.0, rate_after_rps=300.0, rate=True, cpu=False, cause="ports")

    def fall(slot: Slot, sample: Sample) -> Sample:
        if slot.arm.role != "variant":
            return sample
        steadiness = Steadiness(source="sent-bytes", seconds=5, change=change)
        return made_invalid(sample, Reason.NOT_STEADY, steadiness=steadiness)

    assert said(fall) == [
        "keepalive at ceiling: the rate falls in 6 of 6 samples after 3 s (9,000 req/s, then 300): local ports run out"
    ]
