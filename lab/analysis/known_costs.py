"""Known costs in one run, as pairs show them and as each system alone does, under the same load: does a pair show all of a cost?

A variant adds so many lines of needless work. Each costs the same, and that there are any at all may cost something once. Refuses to compare
what was not measured both ways in six blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import expm1

from lab.analysis.aggregate.cells import Pair
from lab.analysis.summary import Summary
from lab.model.run import RunRecord
from lab.stats import paired as stats

METRIC = "cpu_per_request"
PREFIX = "extra-work-"
UNSURE = 0.05
"""How likely one of the differences between pair and alone lies outside its interval (Bonferroni)."""
WHOLE = (0.9, 1.1)
"""The slope of what pairs show, where it is taken for 1."""


@dataclass(frozen=True, slots=True)
class KnownCost:
    """One variant of known work against its baseline; log-ratios of CPU per request.

    `apart`: the pair's effect less that of the arms alone, block by block, with a wider interval: all variants' but that with most lines,
    which is there for the slope, are right together with 95 %.
    """

    variant: str
    lines: int
    alone: stats.Estimate
    pair: stats.Estimate
    apart: stats.Estimate

    @property
    def agrees(self) -> bool:
        """Whether the pair may show what the arms alone do."""
        low, high = self.apart.interval or (0.0, 0.0)
        return low <= 0 <= high

    @property
    def doubt(self) -> float | None:
        """Half the width of `apart`, as a share of what the pair shows."""
        interval = self.apart.interval
        return (interval[1] - interval[0]) / 2 / self.pair.effect if interval and self.pair.effect > 0 else None


@dataclass(frozen=True, slots=True)
class KnownCosts:
    """Of a run, fewest lines first. `slope`: what pairs show of a line over what the arms alone show of it, block by block; None where in
    a block these show nothing.
    """

    costs: tuple[KnownCost, ...]
    slope: stats.Estimate | None

    @property
    def whole(self) -> bool:
        return self.slope is not None and WHOLE[0] <= self.slope.ratio <= WHOLE[1]


Measured = tuple[str, int, dict[int, float], dict[int, float]]
"""A variant of so many lines, as a pair and alone: block → log-ratio, in blocks that have both."""


def lines(record: RunRecord, arm: str) -> int:
    """How many needless lines an arm has: its variant's last such knob's number, as one replaces the other."""
    variant = next(each.variant for each in record.arms if each.name == arm)
    numbers = (knob.removeprefix(PREFIX) for knob in record.variants[variant].knobs if knob.startswith(PREFIX))
    counts = [int(number) for number in numbers if number.isdecimal()]
    return counts[-1] if counts else 0


def known_costs(record: RunRecord, summary: Summary) -> KnownCosts | None:
    """None where no variant of known work was measured both ways."""
    measured = sorted(_measured(record, summary), key=lambda one: one[1])
    surely = 1 - UNSURE / max(1, len(measured) - 1)
    costs = tuple(
        KnownCost(
            variant=variant,
            lines=count,
            alone=_estimate(alone),
            pair=_estimate(pair),
            apart=stats.difference([*pair.values()], [*alone.values()], surely),
        )
        for variant, count, pair, alone in measured
    )
    return KnownCosts(costs, _slope(measured)) if costs else None


def _measured(record: RunRecord, summary: Summary) -> Iterator[Measured]:
    """Variants of known work whose baseline has none, at a load that a pair and the arms alone had."""
    for row in summary.rows:
        count = lines(record, row.arm.name)
        if not count or row.pair is None or not row.arm.baseline or lines(record, row.arm.baseline):
            continue
        for other in summary.rows:
            same = other.point.model_copy(update={"alone": ""}).load == row.point.load
            if other.arm == row.arm and other.point.alone and same and other.base is not None:
                pair, alone = (each.log_ratios(METRIC) for each in (row.pair, Pair(other.cell, other.base)))
                both = sorted(pair.keys() & alone.keys())
                if len(both) >= stats.MIN_BLOCKS:
                    pair, alone = ({block: each[block] for block in both} for each in (pair, alone))
                    yield row.arm.variant, count, pair, alone


def _estimate(logs: Mapping[int, float]) -> stats.Estimate:
    return stats.difference([*logs.values()], [0.0] * len(logs))


def _slope(measured: Sequence[Measured]) -> stats.Estimate | None:
    """In each block least squares through nothing, of both ways; over blocks that have every variant."""
    blocks = sorted(set.intersection(*(set(pair) for _, _, pair, _ in measured)))
    pair = [sum(count * expm1(logs[block]) for _, count, logs, _ in measured) for block in blocks]
    alone = [sum(count * expm1(logs[block]) for _, count, _, logs in measured) for block in blocks]
    return stats.paired(pair, alone) if blocks and min(*pair, *alone) > 0 else None
