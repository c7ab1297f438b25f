"""Absolute values: ranges of few blocks, one value of many, two clusters as two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis.aggregate.absolute import (
    compute_absolute,
    describe_split,
    find_clusters,
    format_absolute,
    format_clusters,
    share_high_blocks,
)
from lab.analysis.evidence import load_references
from lab.analysis.explain.run import make_verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.rows import SummaryRow, compute_misleading_gaps
from lab.analysis.summary import Summary
from lab.model.metrics import METRICS
from lab.model.plan import Shape
from lab.model.sweeps import LoadPoint
from lab.report.tables.run import make_tables
from lab.report.terminal import render_terminal
from lab.stats.paired import MIN_BLOCKS, estimate_geometric_mean, estimate_ratio
from lab.studies.results import RESULT
from lab.studies.steps import summarise_run
from lab.tests.report.tables.test_run import effect_of, row_of, summary_of
from lab.tests.support.factories import alter, costing, make_plan, make_point
from lab.tests.support.golden import print_page

CPU = "cpu_per_request"
COST, RATE = METRICS[CPU], METRICS["rate"]
CEILING = make_point("ceiling", rate_rps=None)
TWO = [366.0, 325.0, 401.0, 58_600.0, 57_900.0, 60_100.0, 59_000.0, 380.0, 61_000.0, 350.0]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([24.14e-6], "24"),
        ([19.4e-6, 23.61e-6], "19–24"),
        ([23.9e-6, 24.2e-6, 24.1e-6], "24"),
        ([2.44e-6, 2.61e-6], "2.4–2.6"),
        ([0.0961e-6, 0.104e-6], "0.096–0.10"),
        ([131.2e-6, 96.8e-6], "97–130"),
    ],
)
def test_fewer_than_six_blocks_are_the_smallest_and_the_largest_with_two_digits(values: list[float], text: str) -> None:
    assert format_absolute(COST, compute_absolute(values, "cpu_per_request")) == text


def test_from_six_blocks_on_it_is_the_mean_that_effects_are_ratios_of() -> None:
    found = compute_absolute([1.0, 1.0, 1.0, 1.0, 1.0, 1.2], "rate")
    assert found is not None and found.value == pytest.approx(1.2 ** (1 / 6))
    assert found.value is not None and found.interval is not None
    assert found.interval[0] < found.value < found.interval[1]
    assert compute_absolute([], "rate") is None


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12), st.none() | st.floats(1e-6, 1e6))
def test_no_absolute_value_lies_outside_the_range_or_the_clusters_of_its_blocks(
    values: list[float], merged: float | None
) -> None:
    found, ordered = compute_absolute(values, "rate", merged), sorted(values)
    assert found is not None and (found.low, found.high) == (ordered[0], ordered[-1])
    assert (found.value is None) == (len(values) < MIN_BLOCKS or bool(found.clusters))
    assert found.value is None or found.low <= found.value <= found.high
    if found.clusters:
        few = found.clusters[0].blocks
        for cluster, part in zip(found.clusters, (ordered[:few], ordered[few:]), strict=True):
            assert len(part) == cluster.blocks
            assert part[0] * (1 - 1e-9) <= cluster.value <= part[-1] * (1 + 1e-9)


def test_two_clusters_are_shown_as_two_and_have_no_mean() -> None:
    found = compute_absolute(TWO, "rate")
    assert found is not None and found.value is None and found.interval is None
    assert format_absolute(RATE, found) == "360|59,000"
    assert format_clusters(RATE, found.clusters, 10) == "5 of 10 blocks at 363 req/s, 5 at 59,300 req/s"
    counts = compute_absolute([1.0, 1.0, 1.0, 40.0, 41.0, 40.0], "failed")
    assert counts is not None and not counts.clusters, "counts of what came of a disruption are none"


def test_a_machine_in_two_states_is_no_difference_between_two_arms_that_share_its_blocks() -> None:
    """The ratio of a block does not have it; an arm that is in another state in other blocks has no ratio."""
    own = dict(enumerate(TWO))
    base = {block: 1.1 * value for block, value in own.items()}
    assert share_high_blocks(own, base)
    assert describe_split(own, base, "rate", ("a", "b")) == ""
    other = {block: 1.1 * TWO[(block + 1) % len(TWO)] for block in own}
    assert describe_split(own, other, "rate", ("a", "b")).startswith("a: 5 of 10 blocks at 363 req/s")


def test_an_arm_in_two_clusters_has_no_effect_and_they_are_the_outcome() -> None:
    def in_clusters_at(points: Sequence[LoadPoint]) -> Summary:
        """Of the variant's blocks every second one costs thirty times as much, at saturation."""
        dear = alter(
            lambda slot: slot.arm.name == "keepalive" and slot.block % 2 == 0 and slot.point.name == "ceiling",
            costing(30),
        )
        return summary_of(make_plan(blocks=10, points=points), {"keepalive": "cpu_per_request"}, change=dear)

    summary = in_clusters_at([CEILING, make_point()])
    row = row_of(summary, "keepalive", "ceiling")
    effect = effect_of(summary, "keepalive", "cpu_per_request", "ceiling")
    assert (effect.decision, effect.estimate) == (Decision.BIMODAL, None)
    assert "keepalive: 5 of 10 blocks at" in effect.note and "in two clusters" in " ".join(row.notes)
    (verdict,) = make_verdicts(summary)
    assert "CPU per request at ceiling" in verdict.text
    assert "falls into two clusters (keepalive: 5 of 10" in verdict.text
    rows = RESULT.plain(summary)["rows"]
    printed = next(each for each in rows if (each["arm"], each["point"]) == ("keepalive", "ceiling"))
    assert printed["cpu_per_request_s"] is None, "no mean of two clusters"
    found = printed["absolute"]["cpu_per_request"]
    assert found["value"] is None and [each["blocks"] for each in found["clusters"]] == [5, 5]
    assert [each["ratio"] for each in printed["effects"] if each["metric"] == "cpu_per_request"] == [None]
    summary = in_clusters_at([CEILING])
    (verdict,) = make_verdicts(summary)
    assert verdict.kind == "bimodal" and verdict.text.endswith("as no number of blocks narrows it")
    assert summary.complete, "where every point falls into clusters, that is the outcome"


def paired_run(factor: float) -> Summary:
    """Pairs in all blocks, solo samples in two; the variant's solo samples cost `factor` of what its pairs say."""
    points = frozenset({"ceiling", "rate-1000"})
    shape = Shape({"keepalive": 8}, points, dict.fromkeys(product(("keepalive", "baseline"), points), 2))
    change = alter(lambda slot: slot.arm.name == "keepalive" and not slot.other, costing(factor))
    primary = {"keepalive": "cpu_per_request"}
    return summary_of(make_plan(blocks=8, shape=shape), primary, noise=0.005, change=change)


@pytest.mark.parametrize(("factor", "apart"), [(1.0, False), (1.02, False), (1.2, True), (0.8, True)])
def test_absolute_values_stand_apart_where_their_ratio_leaves_the_pairs_interval_by_more_than_five_per_cent(
    factor: float, apart: bool
) -> None:
    summary = paired_run(factor)
    row = row_of(summary, "keepalive", "rate-1000")
    assert ("cpu_per_request" in compute_misleading_gaps(row)) is apart
    text = "\n".join(line.plain for line in render_terminal(make_tables(summary), 110))
    differences, _, absolutes = text.partition("Absolute values of each alone")
    assert ("Comparing them would be wrong by up to" in absolutes) is apart
    assert "CPU/req" in absolutes and "CPU/req" not in differences
    assert max(map(len, print_page(make_tables(summary), 110).splitlines())) <= 110


# -- the committed runs --------------------------------------------------------------------------------------


@lru_cache(1)
def steady() -> dict[str, Summary]:
    """Each committed run's folder and its steady loads."""
    whole, _ = load_references()
    return {run.name: found[0] for run in whole if (found := summarise_run(run)) and found[0].rows}


def rows() -> list[tuple[str, SummaryRow]]:
    return [
        (f"{name}: {row.arm.name} at {row.point.name}", row)
        for name, summary in steady().items()
        for row in summary.rows
    ]


@pytest.mark.committed
def test_every_row_whose_solo_ratio_leaves_its_pairs_interval_stands_apart_and_no_other() -> None:
    """Reckoned anew from the blocks: by the geometric means that are printed, 53 of 120 rows in CPU per request. By medians, as tables had
    them before, it were 58; the method review counted 59 of 121.
    """
    judged = marked = 0
    for where, row in rows():
        if row.arm.role != "variant" or row.pair is None or row.base is None:
            continue
        own, base = (cell.known(CPU) for cell in (row.pair.own, row.pair.base))
        both = sorted(own.keys() & base.keys())
        solo = [list(cell.known(CPU).values()) for cell in (row.cell, row.base)]
        if len(both) < MIN_BLOCKS or not all(solo) or any(find_clusters(values, CPU) for values in solo):
            continue
        interval = estimate_ratio([own[block] for block in both], [base[block] for block in both]).interval
        assert interval is not None
        ratio = log(estimate_geometric_mean(solo[0]).value / estimate_geometric_mean(solo[1]).value)
        leaves = not interval[0] - log(1.05) <= ratio <= interval[1] + log(1.05)
        assert (CPU in compute_misleading_gaps(row)) == leaves, where
        judged, marked = judged + 1, marked + leaves
    assert judged >= 100 and 0.3 <= marked / judged <= 0.6, f"{marked} of {judged}"


@pytest.mark.committed
def test_an_interval_never_spans_two_clusters() -> None:
    for where, row in rows():
        for effect in row.effects if row.base is not None else ():
            if effect.scheme is None and effect.estimate is not None and effect.decision.judged:
                found = [cell.absolute(effect.metric) for cell in (row.cell, row.base) if cell is not None]
                assert len({bool(each and each.clusters) for each in found}) == 1, f"{where}: {effect.metric}"


@pytest.mark.committed
def test_pairs_of_different_systems_at_a_rate_decide_nothing() -> None:
    """equal-work's baseline cost 52 to 75 µs by its neighbour: there only solo samples decide, of which it has two blocks."""
    arms = {"envoy-equal", "haproxy-equal"}
    at_rate = [row for row in steady()["equal-work"].rows if row.arm.name in arms and row.point.name == "rate-1000"]
    assert {row.arm.name for row in at_rate} == arms
    for row in at_rate:
        (effect,) = row.shown
        assert effect.decision is Decision.NO_INTERVAL and effect.scheme is None and effect.pair_estimate is not None
        assert "between different systems a concurrent pair decides nothing" in " ".join(row.notes)
