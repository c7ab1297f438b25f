"""Outcomes of a run's samples → rows, effects, verdicts and tables. The golden tables live in `testdata/outcomes/`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.explain.run import make_verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import SummaryRow
from lab.analysis.summary import Summary, summarise_run
from lab.disturbances.outage import Outage
from lab.model.names import EQUIVALENCE_MARGIN
from lab.model.plan import Slot
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample
from lab.model.sweeps import LoadPoint
from lab.report.markdown import render_markdown
from lab.stats import paired as stats
from lab.tests.support.factories import alter, make_plan, make_point, make_sample, of_slot
from lab.tests.support.golden import assert_golden, make_page, print_page
from lab.tests.support.made_runs import MadeStore, made_record

GOLDEN = Path(__file__).parents[1] / "testdata" / "outcomes"
LOAD: Mapping[str, Any] = {"generator": "k6", "connections": 500, "duration_s": 45.0, "timeout_s": 5.0}
KILL = make_point("kill", rate_rps=100.0, **LOAD, keepalive=False, disturbance=Outage(at_s=5.0, for_s=30.0))
CONTROL = KILL.model_copy(update={"name": "control", "control": True})
BOTH = (("proxy-replicas-2", "baseline"), ("pre-stop-sleep", "baseline"))
Change = Callable[[Slot, Sample], Sample | None]
Outcome = dict[str, float | None]


def outcome_of(slot: Slot) -> Outcome:
    """About 29 s down, except where there are two."""
    rng = np.random.default_rng(zlib.crc32(f"1 {slot.block} {slot.arm.name} {slot.point.name}".encode()))
    spare = slot.arm.variant == "proxy-replicas-2" or slot.point.control
    down_s = 0.0 if spare else 29.0 + float(rng.normal(0, 0.1))
    latency = {
        f"{name}_{at}_s": 0.002 + float(rng.normal(0, 1e-5)) for name in ("p50", "p99") for at in ("before", "after")
    }
    latency |= {"p50_during_s": 0.0021, "p99_during_s": 0.005 if spare else 0.02, "max_during_s": 0.02}
    pods = {} if slot.point.control else {"terminating_s": 28.0, "replaced_s": down_s + 0.5}
    found = {"requests": 4500.0, "failed": round(down_s * 100), "failed_connect": round(down_s * 100), "gap_s": down_s}
    return {**found, "reloads": 0.0, "processes": 2.0, "restarts": 0.0, **pods, **latency, "clock_error_s": 1e-4}


def but(change: Callable[[Slot], Outcome]) -> Callable[[Slot], Outcome]:
    """That, with something else."""
    return lambda slot: outcome_of(slot) | change(slot)


def run_of(
    pairs: Sequence[tuple[str, str | None]] = BOTH,
    blocks: int = 6,
    change: Change = lambda _slot, sample: sample,
    points: Sequence[LoadPoint] = (KILL, CONTROL),
    primary: str | None = "gap_s",
    made: Callable[[Slot], Outcome] = outcome_of,
    margin: float = EQUIVALENCE_MARGIN,
) -> tuple[RunRecord, list[Sample]]:
    plan = make_plan(pairs, points, blocks, reference=None)
    outcomes = ((slot, made(slot) if slot.point.disturbance else {}) for slot in plan.slots)
    told = (change(slot, make_sample(**of_slot(slot), outcome=outcome)) for slot, outcome in outcomes)
    record = made_record("r", plan, sweep="kill", generators={}, facts={}, git_commit=None, margin=margin)
    own = {"primary_metric": primary, "hypothesis_sweep": "kill", "own_knobs": ("knob",)}
    variants = {
        name: variant.model_copy(update={**own, "snippet": f"kind: {name}\n"})
        for name, variant in record.variants.items()
    }
    return record.model_copy(update={"variants": variants}), [sample for sample in told if sample is not None]


def summary_of(*args: Any, **more: Any) -> Summary:
    return summarise(*run_of(*args, **more))


def summarise(record: RunRecord, samples: Sequence[Sample]) -> Summary:
    """Of what came of disturbances; no histogram is asked for."""
    return summarise_run(record, samples, lambda _: None, disturbed=True)


def row_of(summary: Summary, arm: str, point: str = "kill") -> SummaryRow:
    return next(row for row in summary.rows if (row.arm.name, row.point.name) == (arm, point))


def effect_of(summary: Summary, arm: str, metric: str = "gap_s") -> Effect:
    return next(effect for effect in row_of(summary, arm).effects if effect.metric == metric)


def printed(summary: Summary, width: int | None = None) -> str:
    return print_page(make_page(summary), width)


def at(arm: str, block: int, point: str, **update: Any) -> Change:
    """One sample otherwise."""
    return alter(lambda slot: (slot.arm.name, slot.block, slot.point.name) == (arm, block, point), lambda _: update)


FAILED_CONTROL = at("pre-stop-sleep", 2, "control", verdict="invalid", reason=Reason.CONTROL_FAILED)


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("wide.txt", lambda: printed(summary_of(blocks=7, change=FAILED_CONTROL))),
        ("columns-100.txt", lambda: printed(summary_of(blocks=7, change=FAILED_CONTROL), 100)),
        ("table.md", lambda: render_markdown(make_page(summary_of(blocks=7, change=FAILED_CONTROL)))),
        ("two-blocks.txt", lambda: printed(summary_of(blocks=2))),
        ("baseline-alone.txt", lambda: printed(summary_of([("baseline", None)]))),
    ],
)
def test_tables_look_as_agreed(name: str, got: Callable[[], str]) -> None:
    assert_golden(GOLDEN / name, got())


def test_medians_and_effects_are_of_all_blocks_or_not_judged() -> None:
    """A change nobody saw took longest: without its block the others would look better than they were."""
    summary = summary_of()
    spare, base = row_of(summary, "proxy-replicas-2"), row_of(summary, "baseline")
    values = [value for value in base.cell.values["gap_s"].values() if value is not None]
    assert base.cell.level("gap_s") == stats.estimate_median(values)
    effect = effect_of(summary, "proxy-replicas-2")
    assert effect.estimate is not None
    assert effect.estimate.effect == pytest.approx(-np.mean(values))
    assert (effect.claimed, effect.better, effect.primary) == (True, True, True)
    assert (level := spare.cell.level("failed")) is not None and level.value == 0
    assert effect_of(summary, "proxy-replicas-2", "failed").marked, "only the primary metric claims"
    assert effect_of(summary, "baseline-again").decision is Decision.A_A
    assert all(not row.effects for row in summary.rows if row.point.control)
    missing = at("proxy-replicas-2", 3, "kill", outcome=outcome_of(run_of()[0].plan().slots[0]) | {"gap_s": None})
    summary = summary_of(change=missing)
    effect = effect_of(summary, "proxy-replicas-2")
    assert (effect.decision, "it is unknown in 1 block" in effect.note) == (Decision.NOT_JUDGED, True)
    assert "(1 –)" in printed(summary)
    assert make_verdicts(summary)[0].kind == "not-measurable" and make_verdicts(summary)[0].text.endswith(
        ": measure it again"
    )


def test_a_variant_that_needs_what_no_load_has_is_not_judged_under_a_disruption() -> None:
    """Judged, it would be claimed to be worse by 9 s that its setting cannot have caused, or a user told to measure more blocks."""
    record, samples = run_of(made=but(lambda slot: {"gap_s": 38.0} if slot.arm.name == "pre-stop-sleep" else {}))
    needing = record.variants["pre-stop-sleep"].model_copy(update={"needs": "more than one CPU for the proxy"})
    record = record.model_copy(update={"variants": record.variants | {"pre-stop-sleep": needing}})
    summary = summarise(record, samples)
    effects = row_of(summary, "pre-stop-sleep").effects
    assert {effect.decision for effect in effects} <= {Decision.NOT_JUDGED, Decision.NOT_AVAILABLE}
    assert effect_of(summary, "proxy-replicas-2").claimed, "only the variant that needs it has no decision"
    said = "needs more than one CPU for the proxy: no need to measure it, no load of the lab has that"
    assert make_verdicts(summary)[1].text == f"pre-stop-sleep: nothing to judge: {said}"
    rows = compare_runs(MadeStore(record, samples, {}), None, "proxy-replicas-2", "pre-stop-sleep").rows
    assert rows and not any(row.decision.judged for row in rows), "nor does a comparison of two variants judge it"


def test_latency_during_is_told_against_before_with_an_interval_from_six_blocks_on() -> None:
    """Of each block's own two: 20 ms after 2 ms is ten times as much; 5 ms where a spare answers. Of all arms, so that they can be compared; of none where that is unknown as well."""
    summary = summary_of(blocks=6)
    slowed = row_of(summary, "baseline").cell.slowdowns["p99"]
    assert slowed.ratio == pytest.approx(10, rel=0.02) and slowed.ratio_interval is not None
    assert slowed.ratio_interval[0] < slowed.ratio < slowed.ratio_interval[1]
    assert row_of(summary, "proxy-replicas-2").cell.slowdowns["p99"].ratio == pytest.approx(2.5, rel=0.02)
    assert row_of(summary_of(blocks=5), "baseline").cell.slowdowns["p99"].ratio_interval is None
    text = printed(summary)
    assert text.count("during against before ") == text.count("  p99 during against before ") > 0, "no p50"

    lost = ("pre-stop-sleep", 2)
    few = but(lambda slot: {"p99_before_s": None} if (slot.arm.name, slot.block) == lost else {})
    assert "  p50 during against before" in printed(summary_of(made=few))
    assert "p99 during against before" not in printed(summary_of(made=few))
    assert "during against before" not in printed(summary_of(made=lambda slot: few(slot) | {"p50_before_s": None}))


def test_a_verdict_says_what_to_apply_and_what_not_to_bother_with() -> None:
    spare, sleep = make_verdicts(summary_of())
    assert (spare.kind, spare.snippet) == ("apply", "kind: proxy-replicas-2\n")
    assert spare.text.startswith("proxy-replicas-2: longest gap at kill 0 s instead of 29.")
    assert "−29" in spare.text and spare.text.endswith(": apply it")
    assert sleep.kind == "equivalent" and sleep.text.startswith(
        "pre-stop-sleep: no difference in longest gap at kill ("
    )
    assert sleep.text.endswith(", smaller than the equivalence margin of 0.58 s): no change needed"), (
        "a fiftieth of the baseline's 29 s"
    )
    narrow = make_verdicts(summary_of(margin=0.001))[1]
    assert narrow.kind == "inconclusive" and "no change needed unless a difference of 0." in narrow.text
    other = KILL.model_copy(update={"name": "other", "rate_rps": 200.0})
    controls = [CONTROL, other.model_copy(update={"name": "other-control", "control": True})]

    bad = ("proxy-replicas-2", "other")
    worse = but(lambda slot: {"gap_s": 60.0 + slot.block} if (slot.arm.variant, slot.point.name) == bad else {})
    spare = make_verdicts(summary_of(points=[KILL, other, *controls], made=worse))[0]
    assert (spare.kind, spare.snippet) == ("mixed", "kind: proxy-replicas-2\n")
    both = "better in longest gap at kill, worse in longest gap at other"
    assert spare.text.endswith(f": {both}: apply it only if the first matters more to you")


def test_what_the_baseline_shows_of_itself_and_what_the_load_cannot_resolve_is_not_claimed() -> None:
    """Its twin is gone for 3 s longer: 2 s are nothing then. 10 ms between requests is the least that may be claimed of a gap."""
    for again_s, decision in ((0.0, Decision.WORSE), (3.0, Decision.INCONCLUSIVE)):
        more = {("again", False): again_s, ("variant", False): 2.0}

        def longer(slot: Slot, more: Mapping[tuple[str, bool], float] = more) -> Outcome:
            gap_s = 29.0 + more.get((slot.arm.role, slot.point.control), 0.0) + slot.block / 100
            return outcome_of(slot) | {"gap_s": gap_s}

        found = effect_of(summary_of(made=longer), "pre-stop-sleep")
        assert found.decision is decision and found.size.noise_floor == pytest.approx(max(again_s, 0.0104), abs=0.01)

    def alike(by_s: float) -> Callable[[Slot], Outcome]:
        return but(lambda slot: {"gap_s": 1.0 - by_s * (slot.arm.variant == "proxy-replicas-2")})

    assert effect_of(summary_of(made=alike(0.009)), "proxy-replicas-2").decision is Decision.EQUIVALENT
    assert effect_of(summary_of(made=alike(0.009), margin=0.0001), "proxy-replicas-2").decision is Decision.EQUIVALENT
    assert effect_of(summary_of(made=alike(0.011), margin=0.0001), "proxy-replicas-2").claimed


def test_below_six_blocks_nothing_is_claimed() -> None:
    summary = summary_of(blocks=5)
    assert effect_of(summary, "proxy-replicas-2").decision is Decision.NO_INTERVAL
    level = row_of(summary, "baseline").cell.level("gap_s")
    assert level is not None and level.low is None
    assert {verdict.kind for verdict in make_verdicts(summary)} == {"no-interval"}
    assert make_verdicts(summary)[0].text.endswith(": measure with --blocks 6 or more")
    interrupted = summary_of(change=lambda slot, one: one if slot.block <= 3 else None)
    assert make_verdicts(interrupted)[0].text.endswith(
        ": not all of it was measured, go on with: just bench --resume r"
    )
    _, hurt = make_verdicts(summary_of(change=FAILED_CONTROL))
    assert hurt.text.endswith(": measure with --blocks 7 or more")
    summary = summary_of(change=FAILED_CONTROL)
    hurt, other = row_of(summary, "pre-stop-sleep"), row_of(summary, "proxy-replicas-2")
    assert (hurt.cell.valid_blocks, other.cell.valid_blocks) == (5, 6) and 2 not in hurt.cell.values["gap_s"]
    assert "1 block not counted: no valid control run of this arm in it" in hurt.notes
    assert effect_of(summary, "pre-stop-sleep").decision is Decision.NO_INTERVAL and not summary.complete


def test_a_steady_loads_metric_is_carried_and_only_what_the_disturbance_brought_about_has_a_line() -> None:
    assert effect_of(summary_of(primary="p99"), "proxy-replicas-2", "p99_during_s").primary
    assert effect_of(summary_of(primary="errors"), "proxy-replicas-2", "failed").claimed
    rate = summary_of(primary="rate")
    assert not any(effect.primary for effect in row_of(rate, "proxy-replicas-2").effects)
    steady = "is of steady loads: measure a load that can show it: just bench proxy-replicas-2 --sweep"
    assert make_verdicts(rate)[0].text.endswith(f"{steady} S (S: one of `just list`)")
    assert make_verdicts(replace(rate, elsewhere={"proxy-replicas-2": "okd"}))[0].text.endswith(f"{steady} okd")
    table = printed(summary_of())
    assert not any(word in table for word in ("restarts", "stale", "proxy processes")) and "terminating" in table

    grown = but(lambda slot: {"processes": 2.0 if slot.point.control else 9.0})
    assert "proxy processes at once" in printed(summary_of(made=grown)), "more than in the control runs"
    steady = make_point("rate-100", rate_rps=100.0)
    record, samples = run_of(points=(KILL, CONTROL, steady))
    assert {row.point.name for row in summarise_run(record, samples, lambda _: None).rows} == {"rate-100"}
    assert {row.point.name for row in summarise(record, samples).rows} == {"kill", "control"}
    assert not summarise(*run_of(points=(steady,))).rows
