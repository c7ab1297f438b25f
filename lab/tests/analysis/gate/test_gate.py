"""The gate: what is a regression, what passes, what nobody can tell, and how CI hears of it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml

from lab.__main__ import main
from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.explain.gate import conclude
from lab.analysis.gate.gate import confirm_regressions, judge_gate
from lab.analysis.judge.comparison import TOO_FEW
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.gate import Bounds, Gate, GatedRow, compute_loss
from lab.analysis.noise import make_aa_arms
from lab.base.errors import LostError, UsageError
from lab.commands import fraction
from lab.commands.gate import BOUND, UNFINISHED, measure_prepared, parse_bound
from lab.commands.verbs import parser
from lab.model.plan import Plan, Slot, plan_samples
from lab.model.samples import Reason, Sample
from lab.records.store import RunStore
from lab.report.json.runs import GATE, describe_gate
from lab.report.markdown import render_markdown
from lab.report.tables import gate as junit
from lab.stats.power import count_blocks_for_effect
from lab.tests.support.factories import alter, answering, lose, made_invalid, make_plan, make_point
from lab.tests.support.golden import print_page
from lab.tests.support.made_runs import (
    FACTS,
    KILL,
    MadeStore,
    made,
    made_disturbed,
    made_kill,
    made_search,
    with_variant,
)

ROOT = Path(__file__).parents[4]
GATING, ON_KIND = ROOT / "lab/analysis/gate/gate.yml", ROOT / "lab/targets/provision/ci.yml"
FIVE, HALF = Bounds(0.05), Bounds(0.5)
ALIKE = {"baseline": 1, "again": 1, "variant": 1}
"""For `killed`."""
LIMITED = {"limited_by": "generator"}


def gated(store: RunStore, bounds: Bounds, other: RunStore | None = None, arms: Sequence[str] = ()) -> Gate:
    return judge_gate(compare_runs(store, other, asked=bounds.more), bounds, arms)


def verdicts(found: Gate) -> dict[tuple[str, str], str]:
    return {(one.row.point.name, one.row.metric): one.verdict for one in found.rows}


def exits(found: Gate) -> tuple[int, int]:
    """Its exit statuses: as usual, and with --strict."""
    return found.exit_status(strict=False), found.exit_status(strict=True)


PASSED, UNTOLD, WORSE = (0, 0), (0, 2), (1, 1)


def markdown_of(found: Gate, strict: bool) -> str:
    return render_markdown(junit.page(found, strict))


def only(found: Gate, metric: str, point: str = "rate-1000") -> GatedRow:
    (one,) = (one for one in found.rows if (one.row.metric, one.row.point.name) == (metric, point))
    return one


def broken(store: MadeStore, reason: Reason, first: int = 1) -> MadeStore:
    """From its block `first` on no sample of a variant is valid."""
    samples = store.samples()
    found = {sample.id: each for sample in samples if (each := store.histogram(sample))}
    lost = [sample.role == "variant" and sample.block >= first for sample in samples]
    told = [made_invalid(each, reason) if bad else each for each, bad in zip(samples, lost, strict=True)]
    return MadeStore(store.record, told, found)


def candidate(effects: Mapping[str, float] | None = None, planned: Plan | None = None, **more: Any) -> MadeStore:
    """A second run, with other settings under the names of the variants."""
    return with_variant(made("candidate", effects, planned, 0.01, 2, **more), manifests_sha256="another")


def killed(seconds: Mapping[str, float], name: str = "run-1") -> MadeStore:
    """Each role's arm is gone for about so long."""
    return made_kill(name, lambda arm, block: seconds[arm.role] + (block * 7 % 5 + (arm.role == "again")) / 10)


def test_a_resolved_loss_beyond_the_bound_is_a_regression() -> None:
    found = gated(made(effects={"keepalive": 1.2}), FIVE)
    judged = [("ceiling", "rate"), ("ceiling", "cpu_per_request"), ("rate-1000", "p50"), ("rate-1000", "p99")]
    assert verdicts(found) == dict.fromkeys(judged, "regression")
    assert found.verdict == "regression" and exits(found) == WORSE
    rate = only(found, "rate", "ceiling")
    assert rate.row.estimate is not None
    assert compute_loss(rate.row, rate.row.estimate.effect) == pytest.approx(1 - 1 / 1.2, abs=0.02)
    assert "worse than the bound of 5 % and resolved" in rate.said and "just compare run-1" in rate.do


def test_what_an_interval_shows_to_be_within_the_bound_passes() -> None:
    """Whether it is resolved (3 % of a quiet machine), called the same, or nothing at all; and a gain however large."""
    for margin, decision in ((0.02, Decision.WORSE), (0.08, Decision.EQUIVALENT)):
        small = gated(made(effects={"keepalive": 1.03}, noise=0.002, margin=margin), FIVE)
        assert {one.row.decision for one in small.rows} == {decision} and exits(small) == PASSED
        assert only(small, "p99").do == "nothing to do" and "nothing to do" in conclude(small, strict=True)
        within = "worse, resolved, but within the bound of 5 %" in small.rows[0].said
        assert within is (decision is Decision.WORSE)
    for fine in (made(noise=0.01), made(effects={"keepalive": 0.5})):
        assert set(verdicts(gated(fine, FIVE)).values()) == {"passed"}


def test_what_may_be_beyond_the_bound_cannot_be_told() -> None:
    found = gated(made(noise=0.2), FIVE)
    assert found.verdict == "inconclusive" and exits(found) == UNTOLD
    assert conclude(found, strict=False).endswith("let through; --strict would refuse it")
    assert conclude(found, strict=True).endswith("refused")
    one = only(found, "p99")
    assert one.row.estimate is not None and one.row.estimate.sd is not None
    needed = count_blocks_for_effect(one.row.estimate.sd, 6, 0.05)
    assert one.do == f"measure with --blocks {needed}, which resolve 5 %" if needed else "too noisy" in one.do
    found = gated(made(effects={"keepalive": 1.045}, noise=0.006, seed=2), FIVE)
    open_rows = [one for one in found.of("inconclusive") if one.row.decision is Decision.WORSE]
    assert open_rows and all("resolved, but not how large it is" in one.said for one in open_rows)


def test_two_runs_are_gated_unpaired_and_by_the_arms_of_both() -> None:
    base, other = made("base", noise=0.01), made("candidate", {"keepalive": 1.3}, noise=0.01, seed=2)
    found = gated(base, FIVE, other)
    assert not found.comparison.paired
    assert {one.row.other.arm for one in found.rows} == {"baseline", "keepalive"}
    assert {one.row.other.arm for one in found.of("regression")} == {"keepalive"}
    assert exits(gated(base, FIVE, other, ["baseline"])) == PASSED
    with pytest.raises(UsageError, match="(?s)--arm: no arm 'keepalve' is compared.*did you mean 'keepalive'"):
        gated(base, FIVE, other, ["keepalve"])
    with pytest.raises(UsageError, match="(?s)--arm: 'baseline' is what the others are held to.*named: keepalive"):
        gated(base, FIVE, None, ["baseline"])


def test_a_regression_that_the_baseline_shares_is_remeasured() -> None:
    """Everything is slower in the second run, the same baseline too: still exit 1, and what to do is not to revert."""

    def advice(effects: Mapping[str, float]) -> dict[str, str]:
        found = gated(made("base", noise=0.01), FIVE, candidate(effects))
        return {one.row.other.arm: one.do for one in found.of("regression")}

    both = advice({"keepalive": 1.3, "baseline": 1.3})
    assert both["keepalive"].startswith("the baseline itself moved as much")
    assert both["baseline"].startswith("the manifests are the same in both runs, so no setting did this")
    assert "measure both again" in both["baseline"] and "keep" not in both["baseline"]
    keep = "keep keepalive as it was; `just compare base candidate` shows every metric"
    assert advice({"keepalive": 1.3}) == {"keepalive": keep}


def test_a_candidate_that_does_not_work_is_a_regression() -> None:
    """No valid block, by a fault of its own, where the base has enough: told as such wherever CI reads it; of outcomes that are 0, too."""
    fresh, base = candidate(), made("base", noise=0.01)
    for reason in (reason for reason in Reason if reason.broken):
        found = gated(base, HALF, broken(fresh, reason))
        wanted = {("keepalive", "regression"), ("baseline", "passed")}
        assert {(one.row.other.arm, one.verdict) for one in found.rows} == wanted and exits(found) == WORSE
        one = found.of("regression")[0]
        assert one.said == f"no valid block of the candidate: {reason} 6; the base has 6 blocks"
        assert one.do == "keep keepalive as it was; `just table candidate` shows what happened"
        assert f"{reason} 6" in markdown_of(found, strict=False)
        assert ET.fromstring(junit.make_junit_xml(found, strict=False))[0].get("failures") == str(
            len(found.of("regression"))
        )
    found = gated(broken(killed(ALIKE), Reason.WRONG_BACKEND), Bounds(None, {"gap_s": 5.0, "restarts": 0.0}))
    assert verdicts(found) == {("delete", "gap_s"): "regression", ("delete", "restarts"): "regression"}
    assert found.rows[0].do == "keep baseline as it was; `just table run-1` shows what happened"


def test_what_is_left_of_a_candidate_that_dies_is_nothing_that_passed() -> None:
    planned = make_plan(blocks=10)
    base, dying = made("base", planned=planned, noise=0.01), broken(candidate(None, planned), Reason.PROXY_DIED, 7)
    found = gated(base, HALF, dying, ["keepalive"])
    assert {one.verdict for one in found.rows} == {"inconclusive"} and exits(found) == UNTOLD
    assert found.rows[0].said.endswith("in the blocks that worked: 6 of 10 blocks, proxy-died 4")
    assert found.rows[0].do == "keep keepalive as it was; `just table candidate` shows what happened"
    for text in (markdown_of(found, strict=False), junit.make_junit_xml(found, strict=False).decode()):
        assert "proxy-died 4" in text
    mended = gated(dying, HALF, base, ["keepalive"])
    assert set(verdicts(mended).values()) == {"passed"}, "the base was the one that died"


def test_what_is_not_the_systems_fault_does_not_show_that_it_is_broken() -> None:
    def verdict(store: MadeStore, base: int = 6, metric: str = "p50") -> str:
        bounds = Bounds(0.05, metrics=(metric,))
        found = gated(made("base", planned=make_plan(blocks=base)), bounds, store, ["keepalive"])
        return only(found, metric).verdict

    fresh = made("candidate", seed=2)
    assert {verdict(broken(fresh, each)) for each in (Reason.STEAL, Reason.DROPPED)} == {"inconclusive"}
    assert verdict(broken(fresh, Reason.NON_2XX, first=2)) == "inconclusive"
    assert verdict(broken(fresh, Reason.NON_2XX, first=2), metric="p99.9") == "inconclusive", "no block has a p99.9"
    assert verdict(broken(fresh, Reason.NON_2XX), base=5) == "inconclusive"
    assert verdict(broken(broken(fresh, Reason.STEAL), Reason.NON_2XX, first=6)) == "regression"


def test_a_rate_that_the_candidate_does_not_serve_is_searched_for() -> None:
    """Measuring the same once more would not tell who was the limit. Where the base did not serve it either, nothing is known."""
    base, slow = made("base", noise=0.01), broken(candidate(), Reason.DROPPED)
    limit = "`just knee keepalive` finds whether the proxy or the generator was the limit, or compare closed loops"
    told = f"the base served rate-1000 and this did not: {limit}"
    assert only(gated(base, HALF, slow, ["keepalive"]), "p99").do == told
    neither = gated(broken(base, Reason.DROPPED), HALF, slow, ["keepalive"])
    assert only(neither, "p99").do == "measure again where this does not happen: dropped"


def test_the_same_variant_within_a_run_is_a_false_claim() -> None:
    """Exit 1, as of any variant, but what to do is not to keep the base. One that does not work is no setting's doing."""
    slower = alter(lambda slot: slot.arm.name == "keepalive-null-1", answering(0.7))
    of = plan_samples(make_aa_arms("keepalive", 1, "direct"), make_plan().points, 6, 1)
    found = gated(made(planned=of, change=slower), Bounds(0.05, metrics=("rate",)))
    (one,) = found.of("regression")
    assert one.do.startswith("a false claim: it is the same variant") and "--blocks 12 or more" in one.do
    assert exits(found) == WORSE and "no change is to blame" in conclude(found, strict=False)
    dead = {one.do for one in gated(broken(made(planned=of), Reason.PROXY_DIED), FIVE).of("regression")}
    assert len(dead) == 1 and dead.pop().startswith("it is the same variant, so no setting did this: `just table")


def test_a_finished_search_has_too_few_blocks_and_nothing_to_go_on_with() -> None:
    base, other = (made_search(name, *(("keepalive", rate) for rate in range(100, 900, 100))) for name in ("a", "b"))
    found = gated(base, Bounds(0.5, metrics=("p50",)), other)
    assert {(one.verdict, one.do) for one in found.rows} == {
        (
            "inconclusive",
            "a search tries each rate too seldom for an interval; what it finds is the knee: gate runs of `just bench`",
        )
    }


def test_what_the_candidates_run_lacks_is_nothing_that_passed() -> None:
    base = made("base", planned=make_plan([("keepalive", "baseline"), ("backlog", "baseline")]), noise=0.01)
    other = made("candidate", planned=make_plan(points=[make_point()], reference=None), noise=0.01, seed=2)
    found = gated(base, HALF, other)
    assert {one.verdict for one in found.rows} == {"passed"} and found.verdict == "inconclusive"
    assert found.missing == ("arm backlog", "point ceiling")
    assert exits(found) == UNTOLD
    said = "not in candidate: arm backlog, point ceiling"
    assert f"{said}; not all is known of this change, refused" in conclude(found, strict=True)
    assert f"**inconclusive**: {said}." in markdown_of(found, strict=False)
    told = describe_gate(found, strict=True)
    assert (told["missing"], told["verdict"], told["exit_status"]) == (list(found.missing), "inconclusive", 2)
    for strict, kind in ((False, "skipped"), (True, "error")):
        suite = ET.fromstring(junit.make_junit_xml(found, strict))[0]
        cases = {case.get("name"): case for case in suite.findall("testcase") if case.find(kind) is not None}
        assert list(cases) == list(found.missing)
        assert suite.get("tests") == str(len(found.rows) + 2)
        assert suite.get("skipped" if kind == "skipped" else "errors") == "2"


def test_what_the_verdicts_leave_unsaid_is_a_footnote_in_every_form() -> None:
    """How the baseline moved, and blocks that do not count; what differs between the runs stands first."""
    lost = lose(lambda slot: slot.arm.role == "variant" and slot.block == 8)
    planned, effects = make_plan(blocks=8), {"keepalive": 1.3, "baseline": 1.3}
    moved = candidate(effects, planned, change=lost, facts=FACTS | {"kernel": "another"})
    found = gated(made("base", planned=planned, noise=0.01), FIVE, moved)
    printed = print_page(junit.page(found, strict=False))
    assert found.footnotes[0] in printed and "6 notes: just compare base candidate" in printed
    for text in (markdown_of(found, False), junit.make_junit_xml(found, False).decode()):
        assert "keepalive at rate-1000: p99: the baseline itself, the same in both runs, moved by +" in text
        assert "other: 7 of 8 blocks: 1 invalid (steal)" in text
    assert found.footnotes[0].startswith("kernel: ")


def test_runs_of_two_machines_are_refused_with_the_facts_that_differ() -> None:
    base, other = made("base"), candidate(facts=FACTS | {"cpu": "EPYC", "cpus": "64"})
    said = "base and candidate are of two machines: cpu: .* / EPYC; cpus: .* / 64"
    with pytest.raises(UsageError, match=said) as error:
        gated(base, HALF, other)
    assert error.value.exit_status == 2


def closely(factor: float, name: str = "first", seed: int = 1) -> Gate:
    """Of a run whose CPU per request is worse by so much, known to half a per cent."""
    bounds = Bounds(0.05, metrics=("cpu_per_request",))
    return gated(made(name, effects={"keepalive": factor}, noise=0.004, seed=seed), bounds)


def test_a_regression_that_begins_less_than_one_per_cent_above_the_bound_is_none_before_it_is_measured_again() -> None:
    found = closely(1.055)
    one = only(found, "cpu_per_request", "ceiling")
    assert one.row.decision is Decision.WORSE and one.row.estimate is not None
    assert compute_loss(one.row, one.row.estimate.effect) > 0.05 and one.close
    assert found.to_measure_again and exits(found) == UNTOLD
    assert "its interval begins less than 1% above the bound" in one.said
    assert re.search(r"measure it again on fresh bring-ups: just bench keepalive.*--again RUN", one.do)
    farther = closely(1.09)
    assert farther.verdict == "regression" and farther.to_measure_again == []


def test_what_two_measurements_show_is_a_regression_and_what_one_shows_is_none() -> None:
    first = closely(1.055)
    both = confirm_regressions(first, closely(1.056, "second", 2))
    one = only(both, "cpu_per_request", "ceiling")
    assert exits(both) == WORSE and one.verdict == "regression" and not one.close
    assert "in two measurements on bring-ups of their own, worse than the bound of 5 %" in one.said
    gone = confirm_regressions(first, closely(1.0, "second", 2))
    assert gone.verdict == "passed" and exits(gone) == PASSED
    assert any("measured twice: first first, then second" in note for note in gone.footnotes), gone.footnotes
    certain = closely(1.2)
    assert confirm_regressions(certain, closely(1.0, "second", 2)) is certain
    assert exits(confirm_regressions(first, closely(1.09, "second", 2))) == WORSE
    beside = replace(first.rows[0], verdict="regression", close=False)
    assert replace(first, rows=(beside, *first.rows)).to_measure_again == [], "one is certain without it"


def test_a_metric_that_no_planned_block_could_tell_is_listed_once_and_changes_no_verdict() -> None:
    points = [make_point("ceiling", rate_rps=None), make_point(), make_point("rate-2000", rate_rps=2000)]
    quiet, noisy = (made(planned=make_plan(points=points), noise=noise) for noise in (0.005, 0.3))
    latencies = {sample.id: found for sample in noisy.samples() if (found := noisy.histogram(sample))}
    shaken = MadeStore(quiet.record, list(quiet.samples()), latencies)
    found = gated(shaken, FIVE)
    aside = [one for one in found.rows if not one.decides]
    assert {one.row.metric for one in aside} <= {"p50", "p99"} and len(aside) >= 2
    assert found.verdict == "passed" and found.exit_status(strict=True) == 0
    lines = [note for note in found.footnotes if "does not decide" in note]
    assert len(lines) == len({one.row.metric for one in aside}), "once for each metric"
    assert all("minimum detectable effect" in line and "above the bound of 5 %" in line for line in lines)
    assert "does not decide" in markdown_of(found, strict=True)
    suite = ET.fromstring(junit.make_junit_xml(found, True))[0]
    assert suite.get("errors") == "0" and suite.get("skipped") == str(len(aside))
    assert len(suite.findall("testcase/skipped")) == len(aside)
    named = gated(shaken, Bounds(0.05, metrics=("p99",)))
    assert named.exit_status(strict=True) == 2, "who names it wants to know"


def test_what_nobody_asked_to_gate_is_not_missing() -> None:
    base = made("base", planned=make_plan([("keepalive", "baseline"), ("backlog", "baseline")]), noise=0.01)
    other = made("candidate", planned=make_plan(points=[make_point()], reference=None), noise=0.01, seed=2)
    assert gated(base, HALF, other, ["keepalive"]).missing == ("point ceiling",)
    assert judge_gate(compare_runs(base, other, "keepalive", "keepalive"), HALF).missing == ("point ceiling",)
    assert gated(made("base"), HALF, made("candidate", planned=make_plan(reference=None), seed=2)).missing == ()
    asked = [[bounds.concern(point) for point in (KILL[0], make_point())] for bounds in (FIVE, Bounds(None, {"a": 0}))]
    assert asked == [[False, True], [True, False]]
    without = made_disturbed("run-2", KILL[:1], lambda _arm, _point, block: {"gap_s": 1 + block / 10}, sweep="kill")
    assert not KILL[0].control and gated(killed(ALIKE), Bounds(None, {"gap_s": 9.0}), without).missing == ()


def test_what_an_interruption_left_out_is_measured_by_going_on() -> None:
    def until(block: int, reason: Reason | None = None) -> MadeStore:
        def change(slot: Slot, sample: Sample) -> Sample | None:
            if slot.arm.role != "variant":
                return sample
            return None if slot.block > block else made_invalid(sample, reason) if reason else sample

        return made("candidate", seed=2, change=change)

    across = gated(made("base"), FIVE, until(0), ["keepalive"])
    for found in (gated(until(0), FIVE), gated(until(4), FIVE), across):
        one = only(found, "p50")
        assert one.verdict == "inconclusive"
        assert one.do == "measure what an interruption left out: `just bench --resume candidate`"
    assert only(gated(until(3, Reason.STEAL), FIVE), "p50").do == "measure again where this does not happen: steal"


def test_cpu_per_request_stands_for_a_rate_that_the_generator_limited() -> None:
    """Said so, and no reason to refuse; but who asks for the rate by name is told that it cannot be told."""
    store = made(noise=0.01, change=alter(lambda slot: slot.point.rate_rps is None, lambda _: LIMITED))
    found = gated(store, FIVE)
    assert ("ceiling", "rate") not in verdicts(found) and verdicts(found)["ceiling", "cpu_per_request"] == "passed"
    assert exits(found) == PASSED and "rate: generator-limited" in found.left_out[0]
    named = gated(store, Bounds(0.05, metrics=("rate",)))
    assert only(named, "rate", "ceiling").verdict == "inconclusive" and exits(named) == UNTOLD


def test_a_loss_that_is_at_least_so_large_is_not_within_a_bound() -> None:
    def one(factor: float) -> GatedRow:
        of = alter(lambda slot: slot.point.rate_rps is None and slot.arm.role != "variant", lambda _: LIMITED)
        return only(gated(made(effects={"keepalive": factor}, noise=0.002, change=of), FIVE), "rate", "ceiling")

    small = one(1.03)
    assert small.row.bound and small.row.decision is Decision.WORSE and small.verdict == "inconclusive"
    assert "or more" in small.said and "--metric cpu_per_request" in small.do
    assert one(1.1).verdict == "regression"


def test_so_few_blocks_cannot_fail_so_many_rows_and_each_says_so() -> None:
    """24 rows (of 36 compared) of six and six blocks: with what would do; those of one arm can fail, and nothing is said."""
    planned = make_plan([(f"v{n}", "baseline") for n in range(5)])
    slow = dict.fromkeys([arm.variant for arm in planned.arms], 2.0)
    base, other = made("base", planned=planned, noise=0.002), made("candidate", slow, planned, noise=0.002, seed=2)
    found = gated(base, FIVE, other)
    advice = (
        "gate one arm (RUN:ARM RUN:ARM), or measure both with --blocks 7 or more:"
        " 36 comparisons of so few blocks are never resolved"
    )
    assert len(found.rows) == 24 and {(one.verdict, one.do) for one in found.rows} == {("inconclusive", advice)}
    assert any(f"36 {TOO_FEW}" in note and "measure 7 blocks or more" in note for note in found.footnotes)
    alone = judge_gate(compare_runs(base, other, "v1", "v1"), FIVE)
    assert alone.exit_status(strict=False) == 1 and not any(TOO_FEW in note for note in alone.footnotes)


def test_what_the_baseline_shows_of_itself_is_told_so() -> None:
    """Its twin is twice as slow: 20 % is nothing then, though all of the interval is beyond 5 %."""
    halved = alter(lambda slot: slot.arm.role == "again", answering(0.5))
    one = only(gated(made(effects={"keepalive": 1.2}, noise=0.002, change=halved), FIVE), "rate", "ceiling")
    assert one.verdict == "inconclusive"
    assert "surer than chance, but the baseline against itself shows as much as" in one.said
    assert one.do.startswith(
        "measure again with --blocks 12, or on a quieter machine: the baseline against itself shows "
    )


def test_blocks_that_do_not_count_are_told_with_what_would_help() -> None:
    """None valid: the reason. Too few: how many are needed, of those that count here; pairs are what counts, of which six of eight blocks
    on each side may have only four in common, or three of six none.
    """
    none = gated(made(change=lose(lambda slot: slot.arm.role == "variant"), noise=0.01), FIVE)
    assert set(verdicts(none).values()) == {"inconclusive"} and "steal" in only(none, "p50").do
    assert exits(none) == UNTOLD
    assert "nothing is known of this change" in conclude(none, strict=False)

    def apart(blocks: int, base: Sequence[int], other: Sequence[int]) -> str:
        change = lose(lambda slot: slot.block in {"baseline": base, "variant": other}.get(slot.arm.role, ()))
        return only(gated(made(planned=make_plan(blocks=blocks), change=change), FIVE), "p50").do

    assert apart(6, (), (5, 6)) == "measure with --blocks 9 or more (4 of 6 counted here, 6 must)"
    assert apart(8, (1, 2), (7, 8)) == "measure with --blocks 12 or more (4 of 8 counted here, 6 must)"
    assert apart(6, (1, 2, 3), (4, 5, 6)) == "measure with --blocks 12 or more (0 of 6 counted here, 6 must)"


def test_a_sample_that_was_measured_again_is_not_what_is_lacking() -> None:
    store = made(planned=make_plan(points=[make_point(rate_rps=150.0)]))
    first = next(sample for sample in store.samples() if sample.role == "variant")
    again = made_invalid(first, Reason.STEAL).model_copy(update={"id": "again", "attempt": 0})
    store.take([*store.samples(), again])
    one = only(gated(store, Bounds(0.05, metrics=("p99",))), "p99")
    assert "p99 needs 10 requests beyond it" in one.said and one.do == "gate another metric by --metric"


def test_outcomes_are_held_to_bounds_in_their_own_unit() -> None:
    store = killed(ALIKE | {"variant": 3})
    tight = gated(store, Bounds(None, {"gap_s": 0.5}))
    assert [one.row.metric for one in tight.rows] == ["gap_s"] and exits(tight) == WORSE
    assert "worse than the bound of 0.50 s and resolved (p < 0.001)" in tight.rows[0].said
    assert exits(gated(store, Bounds(None, {"gap_s": 5.0, "failed": 500.0}))) == PASSED
    varying = made_kill("run-1", lambda arm, block: 2 + (-1) ** block * (arm.role == "variant"))
    one = only(gated(varying, Bounds(None, {"failed": 0.0})), "failed", "delete")
    assert one.verdict == "inconclusive"
    assert one.do == "what varies is never shown to be no more at all: allow some, as --max-more failed=N"
    better = killed({"baseline": 3, "again": 3, "variant": 1})
    assert exits(gated(better, Bounds(None, {"gap_s": 0.0}))) == PASSED


def test_what_is_held_to_nothing_is_nothing_that_passed() -> None:
    """An outcome that nothing has, a metric that no load shows, a bound of steady loads without one: refused by --strict; and nothing
    to gate at all is never good.
    """
    store = killed(ALIKE)
    found = gated(store, Bounds(0.05, {"gap_s": 5.0, "terminating_s": 1.0}))
    assert {one.verdict for one in found.rows} == {"passed"}
    assert found.missing == ("metric terminating_s", "a steady load") and exits(found) == UNTOLD
    assert "not in run-1: metric terminating_s, a steady load" in conclude(found, strict=True)
    given = made(planned=make_plan(points=[make_point()]), noise=0.01)
    named = gated(made(noise=0.01), Bounds(0.5, metrics=("p99",)))
    assert list(verdicts(named)) == [("rate-1000", "p99")] and exits(named) == PASSED and len(named.left_out) == 1
    assert gated(given, Bounds(0.5, metrics=("p99", "rate"))).missing == ("metric rate",)
    assert gated(given, Bounds(0.5, {"failed": 0.0})).missing == ("metric failed",)
    for run, bounds, said in (
        (given, Bounds(None, {"failed": 0.0}), "the loads are steady.*--max-regression 5%"),
        (store, FIVE, "every load is disturbed.*--max-more failed=0"),
        (store, Bounds(None, {"terminating_s": 1.0}), "no row has terminating_s.*there are: failed"),
        (given, Bounds(0.5, metrics=("rate",)), "rate: the rate is given"),
    ):
        with pytest.raises(UsageError, match=f"(?s)nothing to gate: {said}"):
            gated(run, bounds)


@pytest.mark.parametrize("runs", [1, 2])
def test_an_outcome_that_was_0_in_every_block_is_held_to_its_bound(runs: int) -> None:
    """`restarts=0` is kept by none in both, though no table shows such a row."""
    one, two = (killed(ALIKE, name) for name in ("run-1", "run-2"))
    other = two if runs == 2 else None
    found = gated(one, Bounds(None, {"restarts": 0.0}), other)
    assert {(row.row.metric, row.verdict) for row in found.rows} == {("restarts", "passed")}
    assert found.exit_status(strict=True) == 0 and not found.left_out
    assert all(row.metric != "restarts" for row in compare_runs(one, other).rows)


def test_a_bound_is_a_share() -> None:
    for text, value in {"5%": 0.05, "0.05": 0.05, "5 %": 0.05, ".5": 0.5, "12.5%": 0.125, "99%": 0.99}.items():
        assert fraction(BOUND, text) == pytest.approx(value)
    for text in ("5", "0", "0%", "100%", "1", "250%", "-5%", "five", "", "nan", "inf", "5%%", "1e-2", "0x1"):
        with pytest.raises(UsageError, match=r"(?s)--max-regression: .*\d%"):
            fraction(BOUND, text)


def test_outcomes_have_bounds_by_name() -> None:
    """What is none is in `bad_input.toml`."""
    assert (parse_bound("gap_s=0.5"), parse_bound("failed=0")) == (("gap_s", 0.5), ("failed", 0.0))


@pytest.mark.parametrize("defect", [True, False])
def test_what_cannot_be_judged_is_no_regression(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], defect: bool
) -> None:
    """Neither by a defect of the gate nor where samples do not belong together, which ends `table` with 1: that is a regression's alone."""

    def damaged(_store: RunStore) -> Any:
        raise ZeroDivisionError("nobody foresaw it")

    run = made(change=alter(lambda slot: slot.block == 2, lambda _: {"generator": "oha"}))
    monkeypatch.setattr(RunStore, "open", lambda _name: run)
    monkeypatch.delenv("LAB_DEBUG", raising=False)
    if defect:
        monkeypatch.setattr(MadeStore, "samples", damaged)
    assert main(["gate", "run", "--max-regression", "5%"]) == 2
    out, err = capfd.readouterr()
    mixed, broke = (
        "measured with different generators: k6 1.8.1, oha 1.8.1",
        "gate: ZeroDivisionError: nobody foresaw it",
    )
    assert not out and (broke if defect else mixed) in err and ("a defect of the lab" in err) is defect


@pytest.mark.parametrize(("effect", "noise", "strict"), [(1.3, 0.02, False), (1.0, 0.3, True), (1.0, 0.3, False)])
def test_junit_is_of_the_usual_shape(effect: float, noise: float, strict: bool) -> None:
    """As Jenkins' junit-10.xsd has it: names, counts that add up, and one of failure, error, skipped or what was said in each case."""
    found = gated(made(effects={"keepalive": effect}, noise=noise), FIVE)
    root = ET.fromstring(junit.make_junit_xml(found, strict))
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert set(root.attrib) == {"name", "time", "tests", "failures", "errors"}
    assert set(suite.attrib) == {*root.attrib, "skipped", "timestamp"}
    assert "run-1" in suite.get("name", "")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    cases = suite.findall("testcase")
    assert {child.tag for child in suite[len(cases) :]} <= {"system-out"}
    assert len(cases) == len(found.rows) == int(suite.get("tests", ""))
    for kind, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        of_kind = str(len(suite.findall(f"testcase/{kind}")))
        assert suite.get(counted) == of_kind and root.get(counted, of_kind) == of_kind
    kinds = {"regression": "failure", "inconclusive": "error" if strict else "skipped", "passed": "system-out"}
    for case, one in zip(cases, found.rows, strict=True):
        assert case.get("name") == one.name and float(case.get("time", "x")) == 0
        assert case.get("classname") == f"gate.quick.{one.row.point.name}", "the same in every run"
        (told,) = case
        assert told.tag == kinds[one.verdict] and one.said in (told.get("message") or told.text or "")
    noted = made(change=lambda _, sample: sample.model_copy(update={"notes": ("bell \x07 & <b> \ud800",)}))
    assert ET.fromstring(junit.make_junit_xml(gated(noted, FIVE), strict)).tag == "testsuites", (
        "no character that XML has not"
    )


def test_json_and_markdown_say_the_same_and_json_keeps_its_schema() -> None:
    for effect, noise in ((1.3, 0.02), (1.0, 0.3)):
        found = gated(made(effects={"keepalive": effect}, noise=noise), FIVE)
        told = describe_gate(found, strict=True)
        jsonschema.validate(told, GATE.schema())
        assert [row["verdict"] for row in told["rows"]] == [one.verdict for one in found.rows]
        assert told["exit_status"] == found.exit_status(strict=True)
        assert all(row["worse_by"] <= row["worse_by_at_most"] for row in told["rows"])
    lines = markdown_of(gated(made(effects={"keepalive": 1.3}), FIVE), strict=False).splitlines()
    assert lines[0] == "### Regression"
    assert len([line for line in lines if line.startswith("| ") and ":--" not in line]) == 2 * 1 + 4, (
        "a table for each load point"
    )
    listed = [line for line in lines if line.startswith("- **REGRESSION**: ")]
    assert len(listed) == 4 and [line.endswith("shows every metric.") for line in listed] == [False] * 3 + [True]
    assert lines[2] == "4 regressions, 0 inconclusive, 0 passed: do not take this change as it is"
    assert lines[-1] == "exit status 1: regression"


def test_the_page_of_many_arms_with_long_names_fits_and_begins_and_ends_with_the_result() -> None:
    found = judge_gate(compare_runs(RunStore.open("data/reference/knobs-local"), None), Bounds(0.02), ())
    lines = print_page(junit.page(found, strict=False)).splitlines()
    assert lines[0] == conclude(found, strict=False) and lines[-1] == "exit status 1: regression"
    assert max(map(len, lines)) <= 110 and not any("against ingress-nginx at" in line for line in lines)


def test_commands_of_the_workflows_are_understood() -> None:
    for workflow, gates in ((GATING, True), (ON_KIND, False)):
        text = workflow.read_text().replace("\\\n", " ")
        commands = [shlex.split(words) for words in re.findall(r"scripts/shell just ([^|&;<>()\n]*)", text)]
        assert commands and any(words[0] == "gate" for words in commands) == gates
        for words in commands:
            assert callable(parser().parse_args(words).verb), words


def test_the_workflow_fails_where_the_gate_does(tmp_path: Path) -> None:
    """Its step, with a lab that says so: not measured and regressed are both no success, and what was said is kept."""
    steps = yaml.safe_load(GATING.read_text())["jobs"]["gate"]["steps"]
    (step,) = (step["run"] for step in steps if "just gate" in step.get("run", ""))
    stub, summary = tmp_path / "scripts" / "shell", tmp_path / "summary"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\necho "$@"\nexit $STATUS\n')
    stub.chmod(0o755)
    line = step.replace("${{ github.event.pull_request.base.sha }}", "abc")
    for status in (0, 1, 2):
        env = {"PATH": os.environ["PATH"], "GITHUB_STEP_SUMMARY": str(summary), "STATUS": str(status)}
        done = subprocess.run(["bash", "-e", "-c", line], cwd=tmp_path, env=env, capture_output=True, check=False)
        assert done.returncode == status
    assert summary.read_text().count("just gate --against abc keepalive ") == 3


def test_a_cluster_that_is_lost_while_a_gate_measures_is_no_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_cluster(*_: object) -> RunStore:
        raise LostError("kind", "does not answer", "")

    monkeypatch.setattr("lab.commands.gate.measure", lose_cluster)
    with pytest.raises(LostError) as lost:
        measure_prepared(Mock(), Mock(), Mock())
    assert lost.value.exit_status == UNFINISHED
