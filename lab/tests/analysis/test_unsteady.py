"""An arm at a point of which a sample is not steady: no effect, no absolute value, a sentence instead, and the run is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lab.analysis.aggregate.cells import find_unsteadiness, find_unsteady_arms, select_counted_samples
from lab.analysis.explain.run import make_verdicts
from lab.analysis.judge.effects import RunQuestions
from lab.analysis.judge.rows import SummaryRow
from lab.analysis.summary import Summary, summarise
from lab.model.design import choose_shape
from lab.model.pairs import SIDES
from lab.model.plan import Slot
from lab.model.samples import Reason, Sample
from lab.model.steadiness import Change, Steadiness
from lab.tests.support.factories import made_invalid, make_plan, make_point, make_run

POINTS = [make_point("ceiling", rate_rps=None), make_point("later", rate_rps=None)]
BOTH = (("keepalive", "baseline"), ("backlog", "baseline"))
PRIMARY: Mapping[str, str | None] = {"keepalive": "cpu_per_request", "backlog": "cpu_per_request"}
FALL: dict[str, Any] = {
    "rate_before_rps": 11_312.0,
    "rate_after_rps": 343.0,
    "cpu_before_s": 80e-6,
    "cpu_after_s": 2e-3,
}


def fallen(sample: Sample, at_s: float = 2.0, own: bool = True, rate: bool = True) -> Sample:
    """The sample as one that fell after `at_s`; with `own` false, as a pair's side whose other side did."""
    change = Change(at_s=at_s, rate=rate, cpu=True, cause="ports", **FALL)
    steadiness = Steadiness(source="backend-cpu", seconds=20, change=change if own else None)
    return made_invalid(sample, Reason.NOT_STEADY, steadiness=steadiness)


def summary_of(change: Callable[[Slot, Sample], Sample | None], paired: bool = False) -> Summary:
    plan = make_plan(BOTH, points=POINTS, blocks=10)
    if paired:
        plan = make_plan(BOTH, points=POINTS, blocks=10, shape=choose_shape(plan.arms, POINTS, 10, SIDES))
    samples, histograms = make_run(plan, {"keepalive": 1.3, "backlog": 1.3}, change=change)
    return summarise(plan, samples, lambda sample: histograms.get(sample.id), RunQuestions(PRIMARY))


def at_ceiling(summary: Summary, arm: str) -> SummaryRow:
    return next(row for row in summary.at(POINTS[0]) if row.arm.name == arm)


def texts(summary: Summary) -> dict[str, str]:
    """Arm → its verdict's kind and text."""
    return {verdict.arm: f"{verdict.kind} {verdict.text}" for verdict in make_verdicts(summary)}


def in_blocks(arm: str, blocks: int, point: str = "ceiling") -> Callable[[Slot, Sample], Sample]:
    """Let an arm's solo samples fall in so many blocks."""

    def change(slot: Slot, sample: Sample) -> Sample:
        mine = (sample.arm, sample.point.name) == (arm, point) and sample.pair is None
        return fallen(sample, 2.0 + (sample.block > 2)) if mine and sample.block <= blocks else sample

    return change


def test_four_of_ten_samples_are_the_finding_and_the_others_give_no_effect() -> None:
    summary = summary_of(in_blocks("keepalive", 4))
    row = at_ceiling(summary, "keepalive")
    assert all(effect.estimate is None for effect in row.effects) and not row.cell.values["rate"]
    assert row.cell.shown("rate") is None and row.cell.merged is None
    assert row.cell.unsteady is not None
    assert row.cell.unsteady.short() == "11,300 req/s for 3 s, then 340 (4 of 10 samples)"
    told = "not steady: the rate falls in 4 of 10 samples after 2 to 3 s (11,300 req/s, then 340)"
    assert any(note.startswith(told) for note in row.notes)
    assert any(effect.claimed for effect in at_ceiling(summary, "backlog").effects)
    assert summary.complete, "that a sample is not steady is an outcome"


def test_the_sentence_says_what_happened_where_and_why_and_nothing_else_where_it_falls_everywhere() -> None:
    found = texts(summary_of(in_blocks("keepalive", 10)))
    assert (
        "keepalive: at ceiling the rate falls in 10 of 10 samples after 2 to 3 s (11,300 req/s, then 340): local ports run"
        " out, so no effect is computed there; CPU per request at later " in found["keepalive"]
    )
    assert found["backlog"].startswith("worse ")
    found = texts(summary_of(lambda _slot, sample: fallen(sample) if sample.arm == "keepalive" else sample))
    assert found["keepalive"].startswith("not-steady ") and found["keepalive"].endswith(
        "at later the rate falls in 10 of 10 samples after 2 s (11,300 req/s, then 340): local ports run out: no effect is computed"
    )


def test_the_sentence_names_a_restart_and_not_the_direction_of_the_rate() -> None:
    change = Change(at_s=61.0, rate=True, cpu=False, rate_before_rps=850.0, rate_after_rps=1200.0, cause="restart")
    arm = find_unsteadiness([change, change, None])
    assert arm is not None and arm.sentence() == (
        "the proxy's container is restarted in 2 of 3 samples after 61 s (850 req/s, then 1,200): its liveness probe fails, or it ended by itself"
    )


def test_a_baseline_that_falls_leaves_no_arm_an_effect_there() -> None:
    summary = summary_of(in_blocks("baseline", 1))
    assert all(effect.estimate is None for row in summary.at(POINTS[0]) for effect in row.effects)
    assert "at ceiling of baseline the rate falls in 1 of 10 samples" in texts(summary)["backlog"]


def test_a_pair_has_no_effect_where_a_solo_sample_of_its_arm_falls() -> None:
    summary = summary_of(in_blocks("keepalive", 10), paired=True)
    row = at_ceiling(summary, "keepalive")
    assert row.pair is not None and not row.pair.log_ratios("cpu_per_request") and row.pair.lacking is None
    assert all(effect.estimate is None for effect in row.effects)
    assert any(effect.claimed and effect.scheme for effect in at_ceiling(summary, "backlog").effects)
    assert summary.complete


def test_a_side_that_falls_is_the_finding_and_the_other_one_is_steady() -> None:
    def change(slot: Slot, sample: Sample) -> Sample:
        sides = {sample.arm, sample.pair.against} if sample.pair else set[str]()
        if sides != {"keepalive", "baseline"} or sample.point.name != "ceiling" or sample.block > 3:
            return sample
        return fallen(sample, own=sample.arm == "keepalive", rate=False)

    summary = summary_of(change, paired=True)
    found = texts(summary)
    told = "at ceiling the CPU time per request rises in 3 of 10 pairs after 2 s (80 µs CPU per request, then 2,000)"
    assert told in found["keepalive"]
    assert found["backlog"].startswith("worse ") and summary.complete


@pytest.mark.parametrize("valid", [True, False])
def test_what_counts_is_none_of_an_arm_that_is_not_steady_there(valid: bool) -> None:
    plan = make_plan(points=POINTS, blocks=6)
    samples, _ = make_run(plan, change=in_blocks("keepalive", 1))
    counted = select_counted_samples(samples if valid else [each for each in samples if not each.valid])
    assert not any(place[1:3] == ("keepalive", "ceiling") for place in counted)
    assert set(find_unsteady_arms(samples)) == {("keepalive", "ceiling")}


def test_a_block_that_was_not_measured_leaves_the_run_incomplete() -> None:
    def lost(slot: Slot, sample: Sample) -> Sample | None:
        is_ninth = (sample.arm, sample.point.name, sample.block) == ("keepalive", "ceiling", 9)
        return None if is_ninth else in_blocks("keepalive", 4)(slot, sample)

    assert not summary_of(lost).complete
