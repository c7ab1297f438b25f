"""A test with known costs: whether variants measured two at once (as a pair) show the same cost as measured alone (solo).

The variants of the test do needless work on purpose: each adds a number of lines of configuration that cost CPU time for every
request. Every line costs the same; having any lines at all may add a fixed cost. Pairs and solo samples are measured under the
same load. A variant is compared only if six blocks (repetitions) or more have both.
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
        """True if the variant shows the same cost in a pair (two variants measured at once) as measured alone.

        Both costs count as the same if the interval of their difference contains 0, or if there is no interval.
        """
        return not self.apart.excludes_zero

    @property
    def doubt(self) -> float | None:
        """The uncertainty of `apart` (the pair's effect minus the solo effect), as a share of the pair's effect.

        It is half the width of the interval of `apart`, divided by the pair's effect. None without an interval, or if
        the pair's effect is not positive.
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
        """True if paired measurements (two variants at once) show the cost of needless work in full.

        That is so if a line of needless work costs nearly the same in pairs as in solo samples (measured alone): the
        ratio of the two costs (`slope`) lies in the range `FULL_SLOPE`. False if this ratio is not known.
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
    """Compare what needless work in variants costs in pairs (two variants measured at once) and in solo samples (alone).

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
    """Yield (variant, lines of needless work, effects in pairs, effects in solo samples) for each load that has both.

    In a pair, the variant and its baseline are measured at once; in solo samples, each is measured alone. Effects are
    block (repetition) → log-ratio of CPU time per request, in the blocks that have both.

    Left out are variants whose baseline has needless work, too, and those with fewer than six such blocks.
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
    """Estimate which share of a known cost pairs show: the cost of one line in pairs, divided by that in solo samples.

    A pair is two variants measured at once; a solo sample is measured alone. The variants do needless work: a number of
    lines of it for each request. In each block (repetition), the cost of one line is estimated once from the pairs and
    once from the solo samples. It is a least-squares slope through the origin, with a variant's number of lines as x
    and its cost as y. Only blocks that have every variant are used.

    Returns:
        The estimate; None if every block lacks a variant, or if a cost is not positive.

    """
    blocks = sorted(set.intersection(*(set(pair) for _, _, pair, _ in measured)))
    pair = [sum(count * expm1(logs[block]) for _, count, logs, _ in measured) for block in blocks]
    solo = [sum(count * expm1(logs[block]) for _, count, _, logs in measured) for block in blocks]
    return stats.estimate_ratio(pair, solo) if blocks and min(*pair, *solo) > 0 else None
