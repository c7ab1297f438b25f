"""Levels of scatter of a run whose scatter is known, and what several measurements of a block come to."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest

from lab.analysis.aggregate.cells import cells_of, paired
from lab.analysis.aggregate.generations import levels
from lab.model.plan import Plan, Shape, Slot
from lab.model.samples import Reason, Sample
from lab.tests.support.factories import made_invalid, make_plan, make_point
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
    usage = {
        **sample.usage,
        "proxy": sample.usage["proxy"].model_copy(update={"cpu_s": 20e-6 * factor * (sample.requests or 0)}),
    }
    return sample.model_copy(update={"usage": usage})


def test_levels_are_those_of_one_system() -> None:
    """Two alike: every standard deviation is that of the ratio by √2."""
    run = made(planned=planned(), change=known)
    (found,) = levels(run.record, run.samples())
    assert found.bring_up_at_most == 0.0  # no more than what generations explain
    assert found.found is not None and found.found.repeat is not None and found.found.generation is not None
    assert found.found.repeat.sd == pytest.approx(sqrt(2 * 0.01**2) / sqrt(2))
    squares = 2 * (2 * 0.05**2 + 2 * 0.03**2) / 2  # of two degrees of freedom, two repeats a mean
    assert found.found.generation.sd**2 == pytest.approx((squares - 2 * 0.01**2) / 2 / 2)
    assert found.found.bring_up is not None and found.found.bring_up.sd == 0.0  # their means are alike
    assert [one.ratio for one in found.generations] == pytest.approx([0.05, -0.05, 0.03, -0.03])
    assert (found.planned, found.whole) == (2, 2)
    assert found.start == pytest.approx(found.found.generation.sd)


def test_what_bring_ups_share_at_most_is_more_than_what_is_estimated() -> None:
    """One bring-up 20 % beside the other: √2 times as much between one system's two means, and a limit far beyond."""

    def apart(slot: Slot, sample: Sample) -> Sample:
        found = known(slot, sample)
        twice = found.usage["proxy"].model_copy(update={"cpu_s": 1.2 * found.usage["proxy"].cpu_s})
        return (
            found.model_copy(update={"usage": {**found.usage, "proxy": twice}})
            if slot.other and slot.arm.role == "again" and slot.block == 2
            else found
        )

    run = made(planned=planned(), change=apart)
    (found,) = levels(run.record, run.samples())
    assert found.found is not None and found.found.bring_up is not None and found.bring_up_at_most is not None
    assert 0.05 < found.found.bring_up.sd < found.bring_up_at_most < found.found.bring_up.high


def test_a_bring_up_with_a_lost_measurement_is_not_reckoned_with() -> None:
    def lose(slot: Slot, sample: Sample) -> Sample:
        lost = slot.other and (slot.block, slot.reload, slot.repeat) == (2, 1, 0)
        return made_invalid(known(slot, sample), Reason.STEAL) if lost else known(slot, sample)

    run = made(planned=planned(), change=lose)
    (found,) = levels(run.record, run.samples())
    assert (found.planned, found.whole, len(found.generations)) == (2, 1, 4)
    assert found.found is not None and found.found.bring_up is None


def test_a_blocks_effect_is_the_mean_of_its_measurements_and_half_of_them_must_count() -> None:
    def lose(slot: Slot, sample: Sample) -> Sample:
        lost = slot.other and slot.block == 2 and (slot.reload, slot.repeat) != (0, 0)
        return made_invalid(known(slot, sample), Reason.STEAL) if lost else known(slot, sample)

    for change, blocks in ((known, [1, 2]), (lose, [1])):
        run = made(planned=planned(), change=change)
        cells = cells_of(run.record.plan(), run.samples(), run.histogram)
        pair = cells.pair("baseline-again", run.record.points[0])
        assert pair is not None and sorted(pair.own.counted) == blocks
        own, base = pair.own.known("cpu_per_request"), pair.base.known("cpu_per_request")
        assert [log(own[block] / base[block]) for block in blocks] == pytest.approx([0.0] * len(blocks), abs=1e-9)
        assert paired(pair.own, pair.base, "cpu_per_request") is not None


def test_generations_that_count_singly_are_values_of_their_own_and_each_must_count() -> None:
    """Numbered through from bring-up to bring-up; what is lost is lost with its generation alone, and arms alone keep their blocks."""

    def lose(slot: Slot, sample: Sample) -> Sample:
        lost = slot.other and (slot.block, slot.reload) == (2, 1)
        return made_invalid(known(slot, sample), Reason.STEAL) if lost else known(slot, sample)

    for change, kept in ((known, 4), (lose, 3)):
        run = made(planned=planned(singly=True), change=change)
        (point,) = run.record.points
        cells = cells_of(run.record.plan(), run.samples(), run.histogram)
        pair = cells.pair("baseline-again", point)
        assert pair is not None
        assert (pair.own.planned_blocks, pair.own.tried, pair.own.valid_blocks) == (4, 4, kept) == (
            point.counting(2), 4, len(pair.own.counted)
        )  # fmt: skip
        own, base = pair.own.known("cpu_per_request"), pair.base.known("cpu_per_request")
        expected = [ratio for bring_up in RATIOS for ratio in bring_up][:kept]
        assert [log(own[each] / base[each]) for each in sorted(own)] == pytest.approx(expected, abs=1e-9)
        assert sorted(cells.at("baseline", point).counted) == [1, 2]
