"""Levels of scatter of a run whose scatter is known, and what several measurements of a block come to."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt

import pytest

from lab.analysis.aggregate.cells import build_cells, estimate_effect
from lab.analysis.aggregate.generations import compute_variance_components
from lab.model.plan import Plan, Shape, Slot
from lab.model.samples import Reason, Sample
from lab.tests.support.factories import alter, costing, made_invalid, make_plan, make_point
from lab.tests.support.made_runs import made

RATIOS = ((0.05, -0.05), (0.03, -0.03))
"""log-ratio = RATIOS[bring-up][generation] ± 0.01 by the repeat."""


def planned(blocks: int = 2, singly: bool = False) -> Plan:
    point = make_point("ceiling", rate_rps=None, generations=2, repeats=2, singly=singly)
    return make_plan(
        [("baseline", None)],
        [point],
        blocks,
        reference=None,
        shape=Shape({"baseline-again": blocks}, frozenset({"ceiling"})),
    )


def known(slot: Slot, sample: Sample) -> Sample:
    """20 µs a request, on the second side times what is known."""
    ratio = RATIOS[slot.block - 1][slot.reload] + (0.01 if slot.repeat else -0.01)
    factor = exp(ratio) if slot.arm.role == "again" and slot.other else 1.0
    proxy = sample.usage["proxy"].model_copy(update={"cpu_s": 20e-6 * factor * (sample.requests or 0)})
    return sample.model_copy(update={"usage": sample.usage | {"proxy": proxy}})


def losing(where: Callable[[Slot], bool]) -> Callable[[Slot, Sample], Sample]:
    """`known`, and pairs' samples that were lost."""
    return lambda slot, sample: (
        made_invalid(known(slot, sample), Reason.STEAL) if slot.other and where(slot) else known(slot, sample)
    )


def test_levels_are_those_of_one_system() -> None:
    """Two alike: every standard deviation is that of the ratio by √2."""
    run = made(planned=planned(), change=known)
    (found,) = compute_variance_components(run.record, run.samples())
    assert found.bring_up_at_most == 0.0  # no more than what generations explain
    parts = found.found
    assert parts is not None and parts.repeat is not None and parts.generation is not None
    assert parts.repeat.sd == pytest.approx(sqrt(2 * 0.01**2) / sqrt(2))
    squares = 2 * (2 * 0.05**2 + 2 * 0.03**2) / 2  # of two degrees of freedom, two repeats a mean
    assert parts.generation.sd**2 == pytest.approx((squares - 2 * 0.01**2) / 2 / 2)
    assert parts.bring_up is not None and parts.bring_up.sd == 0.0  # their means are alike
    assert [one.ratio for one in found.generations] == pytest.approx([0.05, -0.05, 0.03, -0.03])
    assert (found.planned, found.whole) == (2, 2)
    assert found.start == pytest.approx(parts.generation.sd)


def test_what_bring_ups_share_at_most_is_more_than_what_is_estimated() -> None:
    """One bring-up 20 % beside the other: √2 times as much between one system's two means, and a limit far beyond."""
    dearer = alter(lambda slot: slot.other and slot.arm.role == "again" and slot.block == 2, costing(1.2))
    run = made(planned=planned(), change=lambda slot, sample: dearer(slot, known(slot, sample)))
    (found,) = compute_variance_components(run.record, run.samples())
    assert found.found is not None and found.found.bring_up is not None and found.bring_up_at_most is not None
    assert 0.05 < found.found.bring_up.sd < found.bring_up_at_most < found.found.bring_up.high


def test_a_bring_up_with_a_lost_measurement_is_not_reckoned_with() -> None:
    lost = losing(lambda slot: (slot.block, slot.reload, slot.repeat) == (2, 1, 0))
    run = made(planned=planned(), change=lost)
    (found,) = compute_variance_components(run.record, run.samples())
    assert (found.planned, found.whole, len(found.generations)) == (2, 1, 4)
    assert found.found is not None and found.found.bring_up is None


def test_a_blocks_effect_is_the_mean_of_its_measurements_and_half_of_them_must_count() -> None:
    lost = losing(lambda slot: slot.block == 2 and (slot.reload, slot.repeat) != (0, 0))
    for change, blocks in ((known, [1, 2]), (lost, [1])):
        run = made(planned=planned(), change=change)
        cells = build_cells(run.record.plan(), run.samples(), run.histogram)
        pair = cells.pair("baseline-again", run.record.points[0])
        assert pair is not None and sorted(pair.own.counted) == blocks
        own, base = pair.own.known("cpu_per_request"), pair.base.known("cpu_per_request")
        assert [log(own[block] / base[block]) for block in blocks] == pytest.approx([0.0] * len(blocks), abs=1e-9)
        assert estimate_effect(pair.own, pair.base, "cpu_per_request") is not None


def test_generations_that_count_singly_are_values_of_their_own_and_each_must_count() -> None:
    """Numbered through from bring-up to bring-up; what is lost is lost with its generation alone, and arms alone keep their blocks."""
    lost = losing(lambda slot: (slot.block, slot.reload) == (2, 1))
    for change, kept in ((known, 4), (lost, 3)):
        run = made(planned=planned(singly=True), change=change)
        (point,) = run.record.points
        cells = build_cells(run.record.plan(), run.samples(), run.histogram)
        pair = cells.pair("baseline-again", point)
        assert pair is not None
        assert (pair.own.planned_blocks, pair.own.tried, pair.own.valid_blocks) == (4, 4, kept)
        assert (point.counting(2), len(pair.own.counted)) == (4, kept)
        own, base = pair.own.known("cpu_per_request"), pair.base.known("cpu_per_request")
        expected = [ratio for bring_up in RATIOS for ratio in bring_up][:kept]
        assert [log(own[each] / base[each]) for each in sorted(own)] == pytest.approx(expected, abs=1e-9)
        assert sorted(cells.at("baseline", point).counted) == [1, 2]
