"""A test with known costs: whether pairs show the same cost as arms that have the machine to themselves (solo).

Both are measured under the same load. Each variant of the test adds a number of lines of needless work. Every line costs the same; having any lines at all may add a fixed cost.
A variant is compared only where six blocks or more were measured both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import expm1

from lab.analysis.aggregate.cells import CellPair
from lab.analysis.summary import Summary
from lab.model.run import RunRecord
from lab.stats import paired as stats

METRIC = "cpu_per_request"
PREFIX = "extra-work-"
ALPHA = 0.05
"""The probability that any of the differences between pair and solo lies outside its interval (Bonferroni)."""
FULL_SLOPE = (0.9, 1.1)
"""The range of the slope in which pairs count as showing all of a cost."""


@dataclass(frozen=True, slots=True)
class KnownCost:
    """The cost of a variant with a known amount of needless work, measured both as a pair and solo.

    A pair is the variant and its baseline measured at once; solo, each has the machine to itself. All effects are
    log-ratios of CPU time per request against the baseline.

    Attributes:
        variant: The variant's name.
        lines: The number of lines of needless work that the variant adds to each request.
        alone: The effect that solo samples show.
        pair: The effect that the pair shows.
        apart: The pair's effect minus the solo effect, block by block (repetition by repetition). Its interval is wider
            than a single 95 % interval: with 95 % probability, the intervals of all variants are right at once. The
            variant with the most lines is not counted among them, because it serves the slope (`KnownCosts.slope`).

    """

    variant: str
    lines: int
    alone: stats.Estimate
    pair: stats.Estimate
    apart: stats.Estimate

    @property
    def agrees(self) -> bool:
        """True if the pair (two variants at once) and the solo samples may show the same cost: the interval of their difference contains 0."""
        low, high = self.apart.interval or (0.0, 0.0)
        return low <= 0 <= high

    @property
    def doubt(self) -> float | None:
        """The uncertainty of the difference between the cost in the pair and the cost measured alone, as a share of the former.

        It is half the width of the difference's interval. None without an interval, or if the pair's effect is not
        positive.
        """
        interval = self.apart.interval
        return (interval[1] - interval[0]) / 2 / self.pair.effect if interval and self.pair.effect > 0 else None


@dataclass(frozen=True, slots=True)
class KnownCosts:
    """The costs of known amounts of needless work in variants, which one run measured both as pairs and solo.

    A pair is two variants measured at once; solo, each has the machine to itself.

    Attributes:
        costs: One entry per variant with needless work, the variant with the fewest lines of it first.
        slope: The cost of one line in pairs, divided by the cost of one line in solo samples, over blocks
            (repetitions). None if no block has every variant, or if a cost is not positive in some block.

    """

    costs: tuple[KnownCost, ...]
    slope: stats.Estimate | None

    @property
    def whole(self) -> bool:
        """True if pairs (two variants at once) show all of a known cost.

        A line of needless work then costs nearly the same in pairs as in solo samples: their ratio lies in the range `FULL_SLOPE`.
        """
        return self.slope is not None and FULL_SLOPE[0] <= self.slope.ratio <= FULL_SLOPE[1]


MeasuredCost = tuple[str, int, dict[int, float], dict[int, float]]
"""A tuple of variant, number of lines, and the log-ratios by block as a pair and solo, in blocks that have both."""


def count_lines(record: RunRecord, arm: str) -> int:
    """Return how many lines of needless work a variant adds: a knob (setting) `extra-work-N` adds N; 0 without one.

    If the variant has several such knobs, the last one counts, because it replaces the others.

    Args:
        record: The record of the run.
        arm: The name of the variant in the run.

    """
    variant = next(run_arm.variant for run_arm in record.arms if run_arm.name == arm)
    numbers = (knob.removeprefix(PREFIX) for knob in record.variants[variant].knobs if knob.startswith(PREFIX))
    counts = [int(number) for number in numbers if number.isdecimal()]
    return counts[-1] if counts else 0


def compare_known_costs(record: RunRecord, summary: Summary) -> KnownCosts | None:
    """Compare the cost of needless work in a run's variants between pairs (two variants at once) and solo samples (measured alone).

    Args:
        record: The run's record.
        summary: The summary of the run's steady loads.

    Returns:
        The comparison; None if no variant with needless work was measured both as a pair and solo.

    """
    measured = sorted(_list_measured(record, summary), key=lambda variant: variant[1])
    confidence = 1 - ALPHA / max(1, len(measured) - 1)
    costs = tuple(
        KnownCost(
            variant=variant,
            lines=count,
            alone=_estimate(solo),
            pair=_estimate(pair),
            apart=stats.estimate_difference([*pair.values()], [*solo.values()], confidence),
        )
        for variant, count, pair, solo in measured
    )
    return KnownCosts(costs, _estimate_slope(measured)) if costs else None


def _list_measured(record: RunRecord, summary: Summary) -> Iterator[MeasuredCost]:
    """Yield each variant with needless work at each load that was measured both as a pair (two variants at once) and solo.

    A variant is left out if its baseline has needless work, too, or if fewer than six blocks (repetitions) have both
    measurements.
    """
    for row in summary.rows:
        count = count_lines(record, row.arm.name)
        if not count or row.pair is None or not row.arm.baseline or count_lines(record, row.arm.baseline):
            continue
        for solo_row in summary.rows:
            same_load = solo_row.point.model_copy(update={"alone": ""}).load == row.point.load
            if solo_row.arm == row.arm and solo_row.point.alone and same_load and solo_row.base is not None:
                pair, solo = (sides.log_ratios(METRIC) for sides in (row.pair, CellPair(solo_row.cell, solo_row.base)))
                blocks = sorted(pair.keys() & solo.keys())
                if len(blocks) >= stats.MIN_BLOCKS:
                    pair, solo = ({block: ratios[block] for block in blocks} for ratios in (pair, solo))
                    yield row.arm.variant, count, pair, solo


def _estimate(logs: Mapping[int, float]) -> stats.Estimate:
    return stats.estimate_difference([*logs.values()], [0.0] * len(logs))


def _estimate_slope(measured: Sequence[MeasuredCost]) -> stats.Estimate | None:
    """Estimate the share of a known cost that is visible in pairs (two variants at once): the cost in pairs, divided by that in solo samples.

    Some variants do needless work on purpose: a number of lines of it for each request. In each block (repetition), the
    cost of one line is estimated once from the pairs and once from the solo samples. It is a least-squares slope
    through the origin, with a variant's number of lines as x and its cost as y. Blocks that lack a variant are not
    used.

    Returns:
        The estimate; None if every block lacks a variant, or if a cost is not positive.

    """
    blocks = sorted(set.intersection(*(set(pair) for _, _, pair, _ in measured)))
    pair = [sum(count * expm1(logs[block]) for _, count, logs, _ in measured) for block in blocks]
    solo = [sum(count * expm1(logs[block]) for _, count, _, logs in measured) for block in blocks]
    return stats.estimate_ratio(pair, solo) if blocks and min(*pair, *solo) > 0 else None
