"""Rows of a published table → one number, with the range that reading it off a plot leaves open.

    [{"percentile": 99.0, "latency_ms": 4.2, "uncertainty_ms": 0.9}]  →  Number(4.2, 3.3, 5.1)

Knows no claims and no files. Refuses cells that are no numbers, and one value where there are several rows. What is wrong with
one reading may be wrong with all of a plot (its zero line), so that uncertainties add up and never average out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, log, log10
from typing import Literal

from lab.records.published import Value

Row = Mapping[str, Value]
Take = Literal[
    "value", "count", "sum", "min", "max", "mean", "median", "mean_over_percentiles", "at_percentile", "exponent"
]
"""How a number is taken of rows:

value                  of the only row
count                  how many rows there are
sum … median           of a column
mean_over_percentiles  the average that a percentile curve integrates to (`percentile`, and `is_curve_end`: its last corner is the
                       largest value); range: a curve never falls, so that between two corners it is no lower than the one and
                       no higher than the other
at_percentile          on the curve, straight in log10(1/(1-p)) as such plots are drawn; range: the corners on either side
exponent               b of column ∝ over^b: the slope of the logarithms by least squares
"""


@dataclass(frozen=True, slots=True)
class Number:
    """`low` … `high`: what else it may be, as far as it was read off a plot; all ≥ 0."""

    value: float
    low: float
    high: float

    def over(self, other: Number) -> Number:
        """The ratio, with the widest range that both leave open; `other` is above 0."""
        return Number(self.value / other.value, self.low / other.high, self.high / other.low if other.low else inf)


@dataclass(frozen=True, slots=True)
class Corner:
    """A point of a percentile curve: `share` of all requests is at or below `value` ± `error`."""

    share: float
    value: float
    error: float

    @property
    def low(self) -> float:
        return max(0.0, self.value - self.error)

    @property
    def high(self) -> float:
        return self.value + self.error


def taken(rows: Sequence[Row], column: str, take: Take, percentile: float | None = None, over: str = "") -> Number:
    """ValueError says what is wrong with the rows."""
    if not rows:
        raise ValueError("no rows")
    if take == "value" and len(rows) != 1:
        raise ValueError(f"one value of {len(rows)} rows")
    if take == "count":
        return _exact(float(len(rows)))
    if take == "mean_over_percentiles":
        return _mean(_curve(rows, column), ended=rows[-1].get("is_curve_end") is True)
    if take == "at_percentile":
        assert percentile is not None
        return _at(_curve(rows, column), percentile / 100)
    values = [_number(row[column]) for row in rows]
    if take == "exponent":
        sizes = [log(_number(row[over])) for row in rows]
        if len(set(sizes)) < 2:
            raise ValueError("expected two sizes or more")
        return _exact(statistics.linear_regression(sizes, [log(value) for value in values]).slope)
    of = _OF[take]
    errors = [_error(row, column) for row in rows]
    low, high = ([value + sign * error for value, error in zip(values, errors, strict=True)] for sign in (-1, 1))
    return Number(of(values), max(0.0, of(low)), of(high))


_OF: Mapping[str, Callable[[Sequence[float]], float]] = {
    "value": sum,
    "sum": sum,
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
}


def _exact(value: float) -> Number:
    return Number(value, value, value)


def _number(cell: Value) -> float:
    """A cell that says a number, as text, too. ValueError."""
    if cell is None or isinstance(cell, bool):
        raise ValueError(f"expected a number, found {cell}")
    return float(cell)


def _error(row: Row, column: str) -> float:
    """What a reading of a column may be wrong by, in its own unit (`latency_ms`: `uncertainty_ms`); 0 for a printed number."""
    name = f"uncertainty_{column.rpartition('_')[2]}"
    return _number(row[name]) if name in row else 0.0


def _curve(rows: Sequence[Row], column: str) -> list[Corner]:
    found = [Corner(_number(row["percentile"]) / 100, _number(row[column]), _error(row, column)) for row in rows]
    return sorted(found, key=lambda corner: corner.share)


def _mean(curve: Sequence[Corner], ended: bool) -> Number:
    """∫ of the curve over the shares 0 … 1. `ended`: nothing is above its last corner."""
    first, last = curve[0], curve[-1]
    rest = 1 - last.share
    value, low, high = first.share * first.value, 0.0, first.share * first.high
    for left, right in pairwise(curve):
        step = right.share - left.share
        value += step * (left.value + right.value) / 2
        low += step * left.low
        high += step * right.high
    top = last.high * rest if ended or rest <= 0 else inf
    return Number(value + rest * last.value, low + rest * last.low, high + top)


def _at(curve: Sequence[Corner], share: float) -> Number:
    """ValueError beyond either end."""
    left = next((corner for corner in reversed(curve) if corner.share <= share + 1e-12), None)
    right = next((corner for corner in curve if corner.share >= share - 1e-12), None)
    if left is None or right is None:
        raise ValueError(f"the curve has no {100 * share:g} %")
    if right.share - left.share < 1e-12 or right.share >= 1:
        return Number(right.value, left.low, right.high)
    begin, end, at = (-log10(1 - each) for each in (left.share, right.share, share))
    value = left.value + (right.value - left.value) * (at - begin) / (end - begin)
    return Number(value, left.low, right.high)


def short(value: float) -> str:
    """Three significant digits, whole numbers from 100 on, a true minus."""
    size = abs(value)
    text = f"{value:,.0f}" if size >= 99.95 or size == 0 else f"{value:.3g}"
    return text.replace("-", "−")
