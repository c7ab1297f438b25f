"""An effect on what a request costs, as seconds: per cent are of what it is compared with, and say less elsewhere.

    level 16.7 µs, log-ratio 0.0296 [0.0198, 0.0392]   →   +0.5 µs [+0.33, +0.67]

The interval is the ratio's, at the level as it was measured: how surely that is known is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, hypot

from lab.analysis.judge.effects import Effect
from lab.stats.units import format_micros

Interval = tuple[float, float, float]
"""Value, lower and upper end."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`level_s`: CPU seconds a request of what it is compared with; `change`: against that, as log-ratios."""

    level_s: float
    change: Interval

    @property
    def seconds(self) -> Interval:
        value, low, high = (self.level_s * expm1(end) for end in self.change)
        return value, low, high

    @property
    def text(self) -> str:
        """`+0.5 µs [+0.33, +0.67]`."""
        value, low, high = map(format_micros, self.seconds)
        return f"{value} µs [{low}, {high}]"


def cost_of(effect: Effect) -> Cost | None:
    """None where there is no interval, no level, or the metric is of nothing that a request costs."""
    interval = effect.estimate.interval if effect.estimate else None
    if effect.level_s is None or effect.estimate is None or interval is None:
        return None
    return Cost(effect.level_s, (effect.estimate.effect, *interval))


def apart(one: Interval, other: Interval) -> tuple[float, float]:
    """(difference one − other, half the width of its 95 % interval): both were measured by themselves, so that their squares add up."""
    return one[0] - other[0], hypot((one[2] - one[1]) / 2, (other[2] - other[1]) / 2)
