"""What may be judged where a generator, a link, a CPU limit or errors were the limit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from lab.analysis.aggregate.cells import build_cells
from lab.analysis.explain import run as verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import UNBOUNDED, RunQuestions
from lab.analysis.judge.rulings import AT_LEAST, ERRORS_MIX, FOLLOWS, LIMITED, Ruling, rule_on
from lab.analysis.summary import Summary, summarise
from lab.model.metrics import METRICS, Metric, peak_memory
from lab.model.plan import Plan, Slot
from lab.model.samples import Sample
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import load_variant
from lab.tests.report.tables.test_run import effect_of, row_of, summary_of
from lab.tests.support.factories import make_plan, make_point, make_run

Change = Callable[[Slot, Sample], Sample]
CEILING = make_point("ceiling", rate_rps=None)


def closed(**fields: Any) -> Plan:
    return make_plan(points=[CEILING.model_copy(update=fields)])


def judged(primary: str, effect: float = 2.0, plan: Plan | None = None, **made: Any) -> Summary:
    """Of a run whose variant costs so much more, at one closed loop unless another plan is given."""
    return summary_of(plan or closed(), {"keepalive": primary}, effects={"keepalive": effect}, **made)


def limits(**by: str) -> Change:
    """Arm → its `limited_by`; A/A as the baseline, `_` and `-` alike."""

    def change(slot: Slot, sample: Sample) -> Sample:
        return sample.model_copy(update={"limited_by": by[slot.arm.variant]}) if slot.arm.variant in by else sample

    return change


@pytest.mark.parametrize("slower", ["limit", "link", "proxy", "waiting", "errors"])
def test_a_slower_side_that_something_else_limited_is_judged_at_least(slower: str) -> None:
    summary = judged("rate", change=limits(keepalive=slower, baseline="generator"))
    effect = effect_of(summary, "keepalive", "rate", "ceiling")
    assert (effect.claimed, effect.primary, effect.note) == (True, True, AT_LEAST)
    row = row_of(summary, "keepalive", "ceiling")
    assert AT_LEAST in row.notes and LIMITED not in row.notes
    (verdict,) = verdicts.make_verdicts(summary)
    assert verdict.kind == "worse"
    assert AT_LEAST in verdict.text and "(generator-limited)" not in verdict.text
    floor = effect_of(summary, "baseline-again", "rate", "ceiling")
    assert (floor.decision, floor.primary) == (Decision.A_A, True), "what it is beyond is shown"


@pytest.mark.parametrize(
    ("own", "base", "decision"),
    [
        ("proxy", "generator", Decision.WORSE),
        ("generator", "generator", Decision.NOT_JUDGED),
        ("generator", "proxy", Decision.NOT_JUDGED),
    ],
)
def test_what_counts_is_that_no_block_of_the_slower_side_had_the_generator_as_its_limit(
    own: str, base: str, decision: Decision
) -> None:
    first, others = limits(keepalive="proxy", baseline="proxy"), limits(keepalive=own, baseline=base)
    summary = judged("rate", change=lambda slot, sample: (others if slot.block > 1 else first)(slot, sample))
    assert effect_of(summary, "keepalive", "rate", "ceiling").decision is decision
    cpu = effect_of(summary, "keepalive", "cpu_per_request", "ceiling")
    assert cpu.claimed is cpu.primary is (decision is Decision.NOT_JUDGED)


def test_a_bound_that_is_not_resolved_says_so_and_nothing_more() -> None:
    change = limits(keepalive="proxy", baseline="generator")
    runs = [judged("rate", 1.001, seed=seed, change=change) for seed in range(1, 9)]
    found = [(summary, effect_of(summary, "keepalive", "rate", "ceiling")) for summary in runs]
    # Where it is faster by chance, the other rule holds.
    summary, effect = next((s, e) for s, e in found if e.estimate and e.estimate.effect < 0)
    assert (effect.decision, effect.primary, effect.note) == (Decision.NOT_JUDGED, True, UNBOUNDED)
    (verdict,) = verdicts.make_verdicts(summary)
    assert verdict.kind == "not-measurable"


def test_latency_follows_the_same_rule_and_nothing_stands_for_it() -> None:
    change = limits(keepalive="waiting", baseline="generator")
    assert effect_of(judged("p99", change=change), "keepalive", "p99", "ceiling").claimed
    other = judged("p99", 0.5, change=change)
    assert effect_of(other, "keepalive", "p99", "ceiling").decision is Decision.NOT_JUDGED
    both = judged("p50", change=limits(keepalive="generator", baseline="generator"))
    effect = effect_of(both, "keepalive", "p50", "ceiling")
    assert (effect.decision, effect.primary, effect.note) == (Decision.NOT_JUDGED, True, LIMITED)


@pytest.mark.parametrize(
    ("limit", "usage", "latency"),
    [("proxy", Ruling(), Ruling(FOLLOWS)), ("generator", Ruling(LIMITED), Ruling(FOLLOWS))],
)
def test_a_ratio_that_is_read_off_usage_is_no_latency(
    monkeypatch: pytest.MonkeyPatch, limit: str, usage: Ruling, latency: Ruling
) -> None:
    """A closed loop beside points with a rate shows it, unless its generator was the limit: then it would grow in a faster loop."""
    made_up = Metric("proxy's memory", "MB", scale=1e6, kind="ratio", sample=peak_memory("proxy"))
    monkeypatch.setitem(cast("dict[str, Metric]", METRICS), "memory", made_up)
    plan = make_plan(points=[CEILING, make_point("low")])
    samples, histograms = make_run(plan, change=limits(keepalive=limit, baseline="proxy"))
    cells = build_cells(plan, samples, lambda sample: histograms.get(sample.id))
    own, base = (cells.at(arm, CEILING) for arm in ("keepalive", "baseline"))
    assert rule_on("memory", own, base, plan.points) == usage
    assert rule_on("p99", own, base, plan.points) == latency


@pytest.mark.parametrize(
    ("drops", "factor", "wanted"),
    [
        ({"proxy/ListenOverflows": 5}, 600.0, True),
        ({"proxy/ListenOverflows": 0}, 600.0, False),
        ({"proxy/RetransSegs": 5, "backend/TCPTimeouts": 5}, 600.0, False),
        ({"proxy/ListenOverflows": 5}, 3.0, False),
    ],
)
def test_a_retransmission_is_no_generators_doing(drops: dict[str, int], factor: float, wanted: bool) -> None:
    """Beyond a second with dropped connections on one side, well below it on the other: whoever was busy."""
    limit = limits(keepalive="generator", baseline="generator")

    def change(slot: Slot, sample: Sample) -> Sample:
        counters = drops if slot.arm.name == "keepalive" else {}
        return limit(slot, sample).model_copy(update={"counters": counters})

    assert effect_of(judged("p90", factor, change=change), "keepalive", "p90", "ceiling").claimed is wanted


def test_only_good_answers_are_a_rate() -> None:
    def change(slot: Slot, sample: Sample) -> Sample:
        wrong = round((sample.requests or 0) / 2) if slot.arm.name == "keepalive" else 0
        return sample.model_copy(update={"errors": {"status": wrong} if wrong else {}})

    summary = summary_of(closed(subject=("errors",)), {"keepalive": "rate"}, change=change)
    effect = effect_of(summary, "keepalive", "rate", "ceiling")
    assert effect.claimed and effect.estimate is not None
    assert effect.estimate.ratio == pytest.approx(0.5, rel=0.1)
    base, own = row_of(summary, "baseline", "ceiling"), row_of(summary, "keepalive", "ceiling")
    assert own.cell.shown("rate") == pytest.approx((base.cell.shown("rate") or 0) / 2, rel=0.1)
    assert own.cell.shown("cpu_per_request") == pytest.approx(2 * (base.cell.shown("cpu_per_request") or 0), rel=0.1)


def failing(per_thousand: int, arm: str = "keepalive", block: int | None = None) -> Change:
    """So many of a thousand requests get no answer, in every block or in one."""

    def change(slot: Slot, sample: Sample) -> Sample:
        hit = slot.arm.name == arm and block in (None, slot.block)
        lost = round((sample.requests or 0) * per_thousand / (1000 - per_thousand))
        return sample.model_copy(update={"errors": {"connect": lost} if hit else {}})

    return change


@pytest.mark.parametrize("arm", ["keepalive", "baseline"])
def test_where_requests_failed_the_rate_of_good_answers_stands_for_the_primary_metric(arm: str) -> None:
    """Latencies are of what was answered: a hundredth that failed, in any block of either side, is enough."""
    found = judged("p99", plan=closed(subject=("errors",)), change=failing(20, arm, block=2))
    for metric in ("p99", "cpu_per_request"):
        effect = effect_of(found, "keepalive", metric, "ceiling")
        assert (effect.decision, effect.note, effect.primary) == (Decision.NOT_JUDGED, ERRORS_MIX, False)
    rate = effect_of(found, "keepalive", "rate", "ceiling")
    assert (rate.claimed, rate.primary) == (True, True)
    assert effect_of(found, "baseline-again", "rate", "ceiling").primary, "the floor that it is beyond is shown"
    assert ERRORS_MIX in row_of(found, "keepalive", "ceiling").notes
    (verdict,) = verdicts.make_verdicts(found)
    assert verdict.kind == "worse" and "rate at ceiling" in verdict.text


@pytest.mark.parametrize("per_thousand", [0, 5])
def test_a_handful_of_failures_among_many_leaves_a_percentile_below_them(per_thousand: int) -> None:
    """All of them lie beyond p99, not beyond p99.9."""
    for metric, primary in (("p50", True), ("p99", True), ("p99.9", per_thousand == 0)):
        found = judged(metric, plan=closed(subject=("errors",)), change=failing(per_thousand))
        effect = effect_of(found, "keepalive", metric, "ceiling")
        assert effect.primary is primary
        if primary and metric != "p99.9":
            assert effect.claimed and ERRORS_MIX not in row_of(found, "keepalive", "ceiling").notes


def test_p99_stands_for_a_rate_that_every_point_gives() -> None:
    found = judged("rate", plan=make_plan(points=[make_point("low"), make_point("high", rate_rps=2000.0)]))
    assert [effect.metric for effect in row_of(found, "keepalive", "low").shown] == ["p99"]
    assert effect_of(found, "keepalive", "p99", "high").claimed
    assert effect_of(found, "baseline-again", "p99", "high").primary
    both = judged("rate", plan=make_plan(points=[CEILING, make_point("low")]))
    assert effect_of(both, "keepalive", "rate", "ceiling").claimed
    assert [effect.metric for effect in row_of(both, "keepalive", "low").shown] == ["rate"]


def test_a_given_rate_is_judged_where_errors_are_the_subject() -> None:
    rate = [make_point(rate_rps=1000.0, subject=("errors",))]

    def change(slot: Slot, sample: Sample) -> Sample:
        wrong = {"status": 2000 + 10 * slot.block} if slot.arm.name == "keepalive" else {"status": slot.block}
        return sample.model_copy(update={"errors": wrong})

    summary = summary_of(make_plan(points=rate), {"keepalive": "rate"}, change=change)
    assert effect_of(summary, "keepalive", "rate").claimed


@pytest.mark.parametrize(
    ("limit", "says"), [("link", "shaped link"), ("limit", "CPU limit"), ("waiting", "no CPU was full")]
)
def test_a_row_says_what_else_was_its_limit(limit: str, says: str) -> None:
    summary = judged("rate", 1.0, change=limits(keepalive=limit, baseline=limit))
    row = row_of(summary, "keepalive", "ceiling")
    assert any(says in note for note in row.notes) and not row.generator_limited
    assert effect_of(summary, "keepalive", "rate", "ceiling").decision is Decision.INCONCLUSIVE


def test_what_no_sweep_does_is_not_judged_by_one_that_does_not_do_it() -> None:
    run = closed()
    samples, histograms = make_run(run, effects={"keepalive": 2.0})
    needs = {"keepalive": "routes that change"}
    said = "keepalive: nothing to judge: needs routes that change: no need to measure it, no load of the lab has that"
    for metric in ("rate", "errors"):
        summary = summarise(run, samples, lambda s: histograms.get(s.id), RunQuestions({"keepalive": metric}, needs))
        (verdict,) = verdicts.make_verdicts(summary)
        assert (verdict.kind, verdict.text) == ("not-measurable", said)
        row = row_of(summary, "keepalive", "ceiling")
        assert {effect.decision for effect in row.effects} <= {Decision.NOT_JUDGED, Decision.NOT_AVAILABLE}
        assert "needs routes that change" in row.notes
        assert effect_of(summary, "baseline-again", "cpu_per_request", "ceiling").decision is Decision.A_A


def test_a_variant_needs_what_all_its_own_knobs_need(tmp_path: Path) -> None:
    manifests = Path(shutil.copytree(MANIFESTS, tmp_path / "manifests"))
    knob = manifests / "components" / "okd-reload-interval-15s" / "kustomization.yaml"
    text = knob.read_text()
    knob.write_text(text.replace("    lab/sweep:", "    lab/needs: a Tuesday, which comes once a week\n    lab/sweep:"))
    assert load_variant("okd+okd-reload-interval-15s", manifests).needs == "a Tuesday, which comes once a week"
    assert load_variant("okd+okd-reload-interval-15s+okd-threads-1", manifests).needs == ""
    assert load_variant("okd", manifests).needs == ""
