"""Two sides, in one run or across two: what meets what, the effect between them, and what may not stand side by side."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.judge.comparison import ComparedRow, Comparison, judge_rows
from lab.analysis.judge.decision import UNBOUNDED, Decision
from lab.analysis.judge.meeting import TWO_MACHINES
from lab.analysis.judge.rulings import AT_LEAST, LIMITED
from lab.analysis.summary import summarise_run
from lab.base.errors import UsageError
from lab.model.metrics import list_compared_metrics
from lab.model.plan import Arm, Slot
from lab.model.run import AtKnee
from lab.model.samples import Reason, Sample
from lab.stats import paired as stats
from lab.stats.unpaired import estimate_unpaired_difference, estimate_unpaired_ratio
from lab.tests.support.factories import alter, answering, lose, made_invalid, make_plan, make_point
from lab.tests.support.made_runs import (
    FACTS,
    KILL,
    MadeStore,
    made,
    made_disturbed,
    made_kill,
    made_search,
    paired_plan,
    with_variant,
)

BOTH = (("keepalive", "baseline"), ("backlog", "baseline"))


def row_of(found: Comparison, metric: str, point: str = "rate-1000", arm: str = "keepalive") -> ComparedRow:
    (row,) = (row for row in found.rows if (row.metric, row.point.name, row.other.arm) == (metric, point, arm))
    return row


def pairs_of(found: Comparison) -> set[tuple[str, str]]:
    return {row.pair for row in found.rows}


def outage(arm: Arm, block: int) -> float:
    return (1.0 if arm.role == "variant" else 30.0) + (block * 7 % 5 + (arm.role == "again")) / 10


def test_one_run_is_every_variant_against_its_baseline_paired_by_block() -> None:
    """All metrics at all points, in the plan's order; neither the A/A twin nor the reference is a row."""
    store = made(planned=make_plan(BOTH), effects={"keepalive": 0.8})
    found = compare_runs(store, None)
    assert found.paired and found.base is found.other
    rows = product(
        ("ceiling", "rate-1000"),
        (("baseline", "keepalive"), ("baseline", "backlog")),
        list_compared_metrics(make_plan(BOTH).points[0]),
    )
    assert [(row.point.name, row.pair, row.metric) for row in found.rows] == list(rows)
    row = row_of(found, "p99")
    own, base = (list(side.values.values()) for side in (row.other, row.base))
    assert row.estimate is not None and row.estimate == stats.estimate_ratio(own, base) and len(own) == 6
    assert row.base.level == stats.estimate_median(base)
    assert row.decision is Decision.BETTER and row.primary
    primary = [one.estimate.p_value or 0 for one in found.rows if one.primary and one.estimate]
    assert (
        row.holm_p is not None
        and row.holm_p < 0.001
        and row.holm_p in stats.adjust_by_holm(primary)
        and len(primary) == 2
    )


def test_one_run_is_told_what_its_table_says() -> None:
    store = made(planned=make_plan(BOTH), effects={"keepalive": 0.97}, noise=0.01)
    table = summarise_run(store.record, store.samples(), store.histogram)
    told = {(row.arm.name, row.point.name, one.metric): one for row in table.rows for one in row.effects}
    decisions = {one.decision for one in told.values() if one.estimate}
    assert decisions >= {Decision.BETTER, Decision.INCONCLUSIVE, Decision.NOT_JUDGED}
    for found in (compare_runs(store, None), compare_runs(store, None, "keepalive")):
        for row in found.rows:
            effect = told[row.other.arm, row.point.name, row.metric]
            judged = effect.decision, effect.holm_p, effect.primary
            want = judged if row.estimate else (Decision.NOT_JUDGED, None, False)
            assert (row.decision, row.holm_p, row.primary) == want
            assert bool(row.estimate) or not effect.decision.judged
        counts = [sum(one.holm_p is not None for one in told.values() if one.primary is each) for each in (True, False)]
        assert found.family == tuple(counts), "what claims, and all else"


def test_of_two_arms_holm_is_over_the_whole_table() -> None:
    store = made(planned=make_plan(BOTH), effects={"keepalive": 0.97})
    found = compare_runs(store, store, "backlog", "keepalive")
    tested = [row for row in found.rows if row.decision is not Decision.NOT_JUDGED]
    assert {(row.point.name, row.metric) for row in tested} == {
        ("ceiling", "rate"), ("ceiling", "cpu_per_request"), ("rate-1000", "cpu_per_request"),
        ("rate-1000", "p50"), ("rate-1000", "p90"), ("rate-1000", "p99"),
    }  # fmt: skip
    assert [row.holm_p for row in tested] == stats.adjust_by_holm(
        [row.estimate.p_value or 0 for row in tested if row.estimate]
    )
    assert tuple(judge_rows(found.rows)) == found.rows and found.family == (len(tested),)
    alone = judge_rows([row_of(found, "p99")])[0]
    assert alone.estimate is not None and alone.holm_p == alone.estimate.p_value


@pytest.mark.parametrize(("metric", "point"), [("cpu_per_request", "ceiling"), ("p99", "rate-1000")])
def test_a_run_with_pairs_is_told_by_them(metric: str, point: str) -> None:
    planned = paired_plan([make_point("ceiling", rate_rps=None), make_point()])
    store = made(planned=planned, effects={"keepalive": 0.95})
    row = row_of(compare_runs(store, None), metric, point)
    table = summarise_run(store.record, store.samples(), store.histogram)
    line = next(line for line in table.rows if (line.arm.name, line.point.name) == ("keepalive", point))
    (effect,) = (one for one in line.effects if one.metric == metric)
    assert row.estimate == effect.estimate and row.estimate is not None and row.estimate.n == 8
    assert (row.decision, row.holm_p) == (effect.decision, effect.holm_p)
    assert row.other.level == line.cell.level(metric)


def test_arms_may_be_named_of_one_run_or_of_two() -> None:
    store = made(planned=make_plan(BOTH))
    assert pairs_of(compare_runs(store, None, "backlog")) == {("baseline", "backlog")}
    found = compare_runs(store, store, "keepalive", "backlog")
    assert found.paired and pairs_of(found) == {("keepalive", "backlog")}
    again = compare_runs(store, None, "baseline-again")
    assert {row.decision for row in again.rows} <= {Decision.INCONCLUSIVE, Decision.NOT_JUDGED}
    first, second = made("run-1"), made("run-2", planned=make_plan([("backlog", "baseline")]), seed=2)
    assert pairs_of(compare_runs(first, second, "keepalive", "backlog")) == {("keepalive", "backlog")}
    for names in (("baseline", None), (None, "baseline")):
        assert pairs_of(compare_runs(first, second, *names)) == {("baseline", "baseline")}


def test_what_is_missing_is_said_beside_the_row() -> None:
    def change(slot: Slot, sample: Sample) -> Sample | None:
        if slot.arm.name == "keepalive" and slot.point.name == "rate-1000":
            return None if slot.block == 6 else made_invalid(sample, Reason.STEAL) if slot.block == 2 else sample
        return sample

    found = compare_runs(made(change=change), None)
    row = row_of(found, "p99")
    assert "keepalive: 4 of 6 blocks: 1 invalid (steal), 1 block not measured" in row.notes
    assert (row.decision, len(row.other.values), row.other.planned_blocks) == (Decision.NO_INTERVAL, 4, 6)
    assert row.other.invalid == {Reason.STEAL: 1}
    assert (row.counted, row.begun) == ((6, 4), (6, 5))
    assert "not all of it was measured: just bench --resume run-1 goes on" in found.notes


def test_an_arm_without_a_valid_block_and_a_run_without_a_sample_are_rows_all_the_same() -> None:
    change = lose(lambda slot: slot.arm.name == "keepalive", Reason.NON_2XX)
    row = row_of(compare_runs(made(change=change), None), "p99")
    assert (row.decision, row.other.level, row.estimate) == (Decision.NOT_JUDGED, None, None)
    assert "no valid block of keepalive" in row.notes
    empty = compare_runs(made(change=lambda _slot, _sample: None), None)
    assert len(empty.rows) == 12 and {row.decision for row in empty.rows} == {Decision.NOT_JUDGED}
    assert row_of(empty, "p99").base.generator == "k6 1.8.1", "what it was going to use"


def test_two_runs_are_compared_arm_by_arm_unpaired() -> None:
    first, second = made("run-1"), made("run-2", {"keepalive": 0.7}, make_plan(blocks=8), noise=0.04, seed=2)
    found = compare_runs(first, second)
    assert not found.paired and (found.base.id, found.other.id) == ("run-1", "run-2")
    assert pairs_of(found) == {("keepalive", "keepalive"), ("baseline", "baseline")}
    row = row_of(found, "p99")
    assert (len(row.base.values), len(row.other.values)) == (6, 8)
    assert row.estimate == estimate_unpaired_ratio(list(row.other.values.values()), list(row.base.values.values()))
    assert row.decision is Decision.BETTER


def test_of_two_runs_the_larger_guard_holds() -> None:
    slow = alter(lambda slot: slot.arm.role == "again", answering(1 / 1.1))
    first, second = made("run-1", change=slow), made("run-2", {"keepalive": 0.95}, noise=0.04, seed=2)
    guards = [row_of(compare_runs(store, None), "rate", "ceiling").size.noise_floor for store in (first, second)]
    assert guards[0] > 0.05 > guards[1] == 0
    assert row_of(compare_runs(first, second), "rate", "ceiling").size.noise_floor == guards[0]


def test_the_common_baseline_says_what_drifted() -> None:
    """The second machine is 30 % slower in everything; the variant's 25 % is not the variant's."""
    second = made("run-2", {"baseline": 1.3, "keepalive": 1.25}, seed=2)
    row = row_of(compare_runs(made(), second), "p99")
    assert row.decision is Decision.WORSE and not row.beyond_baseline
    assert row.baseline_move is not None and row.baseline_move.effect == pytest.approx(0.262, abs=0.05)
    assert any(note.startswith("the baseline itself, the same in both runs, moved by +2") for note in row.notes)
    assert row_of(compare_runs(made(), second), "p99", arm="baseline").baseline_move is None
    clear = row_of(compare_runs(made(), made("run-2", {"keepalive": 0.6}, seed=2)), "p99")
    assert clear.decision is Decision.BETTER and clear.beyond_baseline


def test_manifests_that_differ_are_told_and_another_baseline_says_nothing_of_drift() -> None:
    found = compare_runs(made(), with_variant(made("run-2", seed=2), "baseline", manifests_sha256="another"))
    assert row_of(found, "p99").baseline_move is None
    assert found.same_settings(("keepalive", "keepalive")) and not found.same_settings(("baseline", "baseline"))
    told = "baseline: the manifests differ, so that is what is compared: compare manifests/baseline.yaml in the runs' folders"
    assert told in row_of(found, "p99", arm="baseline").notes
    assert told not in row_of(found, "p99").notes
    more = with_variant(made("run-2", seed=2), knobs=("backlog", "keepalive"), manifests_sha256="another")
    told = "keepalive: the manifests differ, so that is what is compared: knobs +backlog"
    assert told in row_of(compare_runs(made(), more), "p99").notes


def test_facts_that_differ_are_told_and_a_restart_is_none() -> None:
    facts = FACTS | {"kernel": "6.18", "boot_id": "b", "memory_bytes": "25276510200", "nginx": "1.22"}
    found = compare_runs(made(), made("run-2", seed=2, facts=facts, git_commit=None, sweep="mine"))
    assert found.notes == (
        "memory_bytes: 25276510208 / 25276510200",
        "kernel: 6.1 / 6.18",
        "nginx: not recorded / 1.22",
        "the lab's commit: 25a6612c7637 / unknown",
        "sweep: quick / mine",
    )
    base = FACTS | {"hypervisor": "yes"}
    for name, value in {"cpu": "EPYC", "cpus": "4", "memory_bytes": "8000000000", "hypervisor": "no"}.items():
        other = base | {name: value, "kernel": "6.18"}
        first, second, *_ = compare_runs(made(facts=base), made("run-2", seed=2, facts=other)).notes
        assert first.startswith(TWO_MACHINES) and second == "kernel: 6.1 / 6.18"


def test_resumptions_and_arms_of_one_run_only_are_told() -> None:
    resumed = ({"at": "2026", "boot_id": "c", "kernel": "6.2"},)
    found = compare_runs(made(planned=make_plan(BOTH)), made("run-2", seed=2, resumed=resumed))
    assert "in base only: backlog" in found.notes
    assert (found.missing_arms, found.missing_points) == (("backlog",), ())
    assert "other: resumed with other facts (kernel)" in "\n".join(found.notes)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"generator": "oha", "generator_version": "1.4", "stand_in_for": None}, "k6 1.8.1 (for wrk2) / oha 1.4"),
        ({"generator_version": "2.0"}, "k6 1.8.1 (for wrk2) / k6 2.0 (for wrk2)"),
        ({"stand_in_for": None}, "k6 1.8.1 (for wrk2) / k6 1.8.1"),
        ({"generator_version": None}, ""),
    ],
)
def test_other_generators_are_shown_and_not_compared(changed: dict[str, str | None], told: str) -> None:
    change = alter(lambda slot: slot.point.name == "rate-1000", lambda _: changed)
    found = compare_runs(made(), made("run-2", seed=2, change=change))
    row = row_of(found, "p99")
    assert (row.estimate is None) is (f"generators differ: {told}" in row.notes) is bool(told)
    assert row.base.level is not None and row.other.level is not None
    assert row_of(found, "cpu_per_request", "ceiling").estimate is not None, "the other point is compared"


@pytest.mark.parametrize(("out", "compared"), [("csv", False), ("json", False), ("summary", True)])
def test_a_run_with_k6s_rows_is_not_compared_with_one_without(out: str, compared: bool) -> None:
    """Writing them costs k6 CPU; its summary costs nothing, and two with the same rows paid the same."""
    used = {point: {**told, "out": out} for point, told in made().record.generators.items()}
    row = row_of(compare_runs(made(), made("run-2", seed=2, generators=used)), "p99")
    assert (row.estimate is not None) == compared
    assert compared or any(f"k6 1.8.1 --out {out}" in note for note in row.notes)
    both = compare_runs(made(generators=used), made("run-2", seed=2, generators=used))
    assert row_of(both, "p99").estimate is not None


def test_loads_are_the_same_in_every_key_not_by_name() -> None:
    points = [make_point("ceiling", rate_rps=None, keepalive=False), make_point("steady")]
    found = compare_runs(made(), made("run-2", planned=make_plan(points=points), seed=2))
    assert {row.point.name for row in found.rows} == {"rate-1000"}
    assert row_of(found, "p99").estimate is not None
    assert "not compared: ceiling is another load: keepalive True / False" in found.notes
    assert "rate-1000 is called steady in other" in found.notes


def test_judging_rules_hold_across_runs() -> None:
    """A ceiling that the generator limited in one run is a bound for the slower side's effect; in both it says nothing."""
    limited = alter(lambda slot: slot.point.rate_rps is None, lambda _: {"limited_by": "generator"})
    faster = made("run-2", {"keepalive": 0.5, "baseline": 0.5}, seed=2, change=limited)
    row = row_of(compare_runs(made(), faster), "rate", "ceiling")
    assert row.decision is Decision.BETTER and AT_LEAST in row.notes
    same = row_of(compare_runs(made(noise=0.001), made("run-2", noise=0.02, seed=4, change=limited)), "rate", "ceiling")
    assert same.decision is Decision.NOT_JUDGED and {UNBOUNDED, LIMITED} & set(same.notes)
    both = row_of(compare_runs(made(change=limited), faster), "rate", "ceiling")
    assert (both.decision, both.estimate) == (Decision.NOT_JUDGED, None) and LIMITED in both.notes


def test_latency_of_a_closed_loop_is_judged_where_no_common_load_has_a_rate() -> None:
    alone = make_plan(points=[make_point("ceiling", rate_rps=None)])
    found = compare_runs(made(), made("run-2", planned=alone, seed=2))
    assert row_of(found, "p99", "ceiling").estimate is not None
    assert "not compared: rate-1000 is in base only" in found.notes
    assert [point.name for point in found.missing_points] == ["rate-1000"] and not found.missing_arms
    named = compare_runs(made(planned=make_plan(BOTH)), made("run-2", planned=alone, seed=2), "keepalive")
    assert [point.name for point in named.missing_points] == ["rate-1000"] and not named.missing_arms


def test_a_finished_search_was_not_interrupted() -> None:
    """Each rate has as many blocks as it was tried, however many trials there were; an arm has no row where it was not tried."""
    tries = [("baseline", 100), ("baseline", 200), ("baseline", 200), ("keepalive", 100), ("keepalive", 400)]
    found = compare_runs(made_search("run-1", *tries), made_search("run-2", *tries[:2], *tries[3:]))
    said = [*found.notes, *(note for row in found.rows for note in row.notes)]
    assert not any("block not" in note or "blocks not" in note or "not all of it was measured" in note for note in said)
    assert {(row.point.name, row.pair[0], row.base.planned_blocks, row.other.planned_blocks) for row in found.rows} == {
        ("rate-100", "baseline", 1, 1), ("rate-200", "baseline", 2, 1),
        ("rate-100", "keepalive", 1, 1), ("rate-400", "keepalive", 1, 1),
    }  # fmt: skip
    assert not found.missing_points
    tried_less = compare_runs(made_search("run-1", *tries), made_search("run-2", *tries[:3], ("keepalive", 100)))
    assert [point.name for point in tried_less.missing_points] == ["rate-400"]
    cut = compare_runs(made_search("run-1", *tries), made_search("run-2", *tries, left=1))
    assert "other: not all of it was measured: just knee --resume run-2 goes on" in cut.notes


@pytest.mark.parametrize(
    ("second", "arms", "fault"),
    [
        (lambda: made("run-2", target="kind"), (), "(?s)is of target 'local', run-2 of 'kind'.*never pooled"),
        (lambda: made("run-1"), (), "(?s)is the same run twice.*two of its arms"),
        (lambda: made("run-1"), ("keepalive", None), "is the same run twice"),
        (lambda: made("run-1"), ("keepalive", "keepalive"), "is the same run twice"),
        (lambda: made("run-2"), ("keepalvie", None), "(?s)has no arm 'keepalvie'.*did you mean 'keepalive'"),
        (lambda: None, ("keepalvie", None), "(?s)has no arm 'keepalvie'.*did you mean 'keepalive'"),
        (lambda: None, ("baseline", None), "(?s)'baseline' is compared with nothing.*RUN:ARM"),
        (lambda: made("run-2", planned=make_plan([("nginx", None)])), (), "(?s)no arm in common.*RUN:ARM RUN:ARM"),
        (
            lambda: made("run-2", planned=make_plan(points=[make_point("ceiling", connections=7)])),
            (),
            "(?s)have no load in common: ceiling is another load: connections 100 / 7, rate_rps None / 1000.*same load",
        ),
    ],
)
def test_what_is_refused(second: Callable[[], MadeStore | None], arms: tuple[str | None, ...], fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as caught:
        compare_runs(made(), second(), *cast("Any", arms))
    assert caught.value.exit_status == 2 and caught.value.remedy


def test_runs_at_two_knees_are_sent_to_one_of_them_and_a_run_without_a_variant_to_another() -> None:
    with pytest.raises(UsageError, match="(?s)has a baseline and no variant.*just table"):
        compare_runs(made(planned=make_plan([("baseline", None)])), None)

    def placed(name: str, rate_rps: float) -> MadeStore:
        points = [make_point("knee-50", rate_rps=rate_rps / 2)]
        at = AtKnee(rate_rps=rate_rps, run=None, variant=None)
        return made(name, planned=make_plan(points=points), sweep="at-knee", at_knee=at)

    with pytest.raises(UsageError, match="knee-50 is another load: rate_rps 1000.0 / 1500.0") as caught:
        compare_runs(placed("run-1", 2000.0), placed("run-2", 3000.0))
    assert caught.value.remedy.endswith(": just bench VARIANT --sweep at-knee --knee 2000")


def test_a_copy_is_the_same_run_and_a_changed_one_is_told() -> None:
    copy, changed = made(), made("run-1", seed=2)
    copy.folder = changed.folder = Path("/elsewhere/run-1")
    with pytest.raises(UsageError, match="is the same run twice"):
        compare_runs(made(), copy)
    assert compare_runs(made(), changed).notes[0].startswith("both are called run-1")


def test_what_came_of_a_disturbance_is_compared_by_differences() -> None:
    """Control runs are no rows; what was 0 everywhere and is not always shown is none either, unless it was asked for."""
    store = made_kill("run-1", outage)
    found = compare_runs(store, None)
    assert [row.metric for row in found.rows] == ["failed", "gap_s", "stale"]
    assert {row.point.name for row in found.rows} == {"delete"}
    row = row_of(found, "gap_s", "delete")
    own, base = (list(side.values.values()) for side in (row.other, row.base))
    assert not row.relative and row.estimate == stats.estimate_difference(own, base)
    assert row.decision is Decision.BETTER and row.unit == "s" and row.title == "longest gap"
    assert row.size.noise_floor >= 1 / (row.point.rate_rps or 1)
    assert row_of(found, "stale", "delete").decision is Decision.EQUIVALENT, "nothing in both is no difference"
    assert not row_of(found, "stale", "delete").tested
    across = compare_runs(store, made_kill("run-2", lambda arm, block: 2 * outage(arm, block), seed=2))
    row = row_of(across, "failed", "delete", "baseline")
    own, base = (list(side.values.values()) for side in (row.other, row.base))
    assert row.estimate == estimate_unpaired_difference(own, base) and row.decision is Decision.WORSE
    found = compare_runs(store, None, asked=["failed_connect", "terminating_s"])
    assert [row.metric for row in found.rows] == ["failed", "failed_connect", "gap_s", "stale"]
    across = compare_runs(store, made_kill("run-2", outage), asked=["failed_connect"])
    asked = {row.pair for row in across.rows if row.metric == "failed_connect"}
    assert asked == {("baseline", "baseline"), ("keepalive", "keepalive")}
    empty = made_disturbed("run-1", KILL, lambda _arm, _point, _block: None, sweep="kill")
    rows = compare_runs(empty, None, asked=["failed", "terminating_s"]).rows
    assert [row.metric for row in rows] == ["failed", "gap_s", "terminating_s"]


def test_systems_as_shipped_and_of_equal_work_are_not_set_side_by_side() -> None:
    kept = {name: each.model_copy(update={"family": "equal work"}) for name, each in made().record.variants.items()}
    equal = made("run-2", variants=kept)
    for arms in ((None, None), ("keepalive", "baseline")):
        with pytest.raises(UsageError, match="(?s)of the family 'equal work'.*within a family"):
            compare_runs(made(), equal, *arms)
    assert compare_runs(equal, made("run-3", variants=kept)).rows
