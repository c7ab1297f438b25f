"""Where the absolute values of two arms show another difference than the pair of them does.

Solo samples of two arms lie minutes apart, and where few blocks have them they vary by more than a pair does: the columns of a table then
invite a conclusion that its effect column denies. Refuses to say which is right: the pair decides, that is said elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p

from lab.analysis.absolute import Absolute
from lab.analysis.cells import Cell
from lab.analysis.effects import Effect
from lab.analysis.rows import Row
from lab.stats import paired as stats

LIMIT = 0.05
"""A ratio of absolute values contradicts a pair's interval where it lies outside by more than that: smaller gaps do not show in two digits."""


@dataclass(frozen=True, slots=True)
class SoloRatio:
    """Absolute values of an arm and its baseline in one metric, their log-ratio, and the pair's effect whose interval that leaves."""

    metric: str
    against: str
    own: Absolute
    base: Absolute
    ratio: float
    pair: stats.Estimate


def misleading_ratios(row: Row) -> tuple[SoloRatio, ...]:
    """Return the metrics of a row in which the ratio of the absolute values leaves the pair's 95 % interval by more than 5 %."""
    if row.base is None:
        return ()
    found = (misleading_ratio(row.cell, row.base, effect) for effect in row.effects)
    return tuple(each for each in found if each is not None)


def misleading_ratio(own: Cell, base: Cell, effect: Effect) -> SoloRatio | None:
    """Return the ratio of what two arms show alone where it leaves the interval of their pair; None where it does not, or nothing tells.

    `own`, `base`: the solo samples of the arm and of what it is compared with. `effect`: of the two in one metric, whose pair either is
    the effect or stands beside it.
    """
    pair = effect.estimate if effect.scheme is not None else effect.beside
    values = own.shown(effect.metric), base.shown(effect.metric)
    if pair is None or pair.interval is None or not values[0] or not values[1]:
        return None
    ratio, (low, high) = log(values[0] / values[1]), pair.interval
    shown = own.absolute(effect.metric), base.absolute(effect.metric)
    if low - log1p(LIMIT) <= ratio <= high + log1p(LIMIT) or shown[0] is None or shown[1] is None:
        return None
    return SoloRatio(effect.metric, effect.against, shown[0], shown[1], ratio, pair)
