"""The second judgement: whether a publication's own data bear its claims out. Rules as data, numbers from data/published.

One table per claim in `published/<study>.toml`, named by the claim's id. Each says one of two things:

    [DO-19]                                            it can be held against the publication's own numbers:
    rule = "borne out if …"                            in words, for people
    [[DO-19.tests]]                                    all must hold; one that does not refutes the claim
    says = "average latency"                           what the number is, in words
    table = "digitalocean_latency_vertices"            of data/published
    where = {suite = "original"}                       rows that have these values (of a list: one of them)
    each = "connections"                               a number for every value of this column; all must hold
    column = "latency_ms"
    take = "mean_over_percentiles"                     `Take` has the ways to take a number of rows
    within = [200, 300]                                or above, or below; or claimed = true: the number is the claim's
    [DO-19.unsettled]                                  where also these tests hold (or there are none), nothing is settled
    because = "…"

    [DO-02]                                            or it cannot:
    no_data = "…"                                      nothing of it is printed, and why

`ratio_to` makes the number a ratio: to the same, taken of other rows, of another column or of another table. What a number read
off a plot may be wrong by (columns `uncertainty_…`) widens it to a range; a bound inside the range settles nothing. What is wrong with one
reading may be wrong with all of a plot (its zero line), so that uncertainties add up and never average out:

    [{"percentile": 99.0, "latency_ms": 4.2, "uncertainty_ms": 0.9}]  →  Number(4.2, 3.3, 5.1)

Refuses unknown keys, tables, columns and claims, rows that are not there, cells that are no numbers, and to take one run for more than one:
rules say so.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, log, log10
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.base.validation import refuse, validated
from lab.records import published
from lab.studies.claims import Claim, claims, holds, short, tables
from lab.studies.study_files import Strict

FOLDER = Path(__file__).parent / "published"

OwnAnswer = Literal["borne out", "not borne out", "not resolved", "no data"]
OWN_ANSWERS: Mapping[OwnAnswer, str] = {
    "borne out": "the publication's own numbers are as the claim says",
    "not borne out": "the publication's own numbers are not as the claim says",
    "not resolved": "its own numbers leave it open: within their uncertainty, one run each, or of a part of the claim only",
    "no data": "it prints no number that the claim could be held against",
}
UNITS = {"_per_s": "/s", "_ms": " ms", "_s": " s", "_percent": " %"}
"""End of a column's name → unit, as it follows a number."""

Cell = str | int | float | bool
Row = Mapping[str, published.Value]
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
OF_A_COLUMN: Mapping[str, Callable[[Sequence[float]], float]] = {
    "value": sum,
    "sum": sum,
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
}


class Base(Strict):
    """What a number is a ratio to: what is left out, also of `where` in the same table, is as in the test."""

    table: str = ""
    where: dict[str, Cell | list[Cell]] = Field(default_factory=dict[str, Cell | list[Cell]])
    column: str = ""
    take: Take | None = None


class OwnTest(Strict):
    """One `[[ID.tests]]`: a number of the publication's, or one for each value of a column, and where it must lie."""

    says: str = Field(default="", description="what the number is, in words; none: the column's name")
    table: str
    where: dict[str, Cell | list[Cell]] = Field(default_factory=dict[str, Cell | list[Cell]])
    each: str = Field(default="", description="a column: a number for every value it has in these rows")
    column: str
    take: Take = "value"
    percentile: float | None = Field(default=None, description="of at_percentile")
    over: str = Field(default="", description="of exponent: the column of the sizes")
    ratio_to: Base | None = None
    above: float | None = None
    below: float | None = None
    within: tuple[float, float] | None = Field(default=None, strict=False)
    claimed: bool = Field(default=False, description="it must be what claims.csv has as published, to its last digit")

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        bounds = (self.above is not None, self.below is not None, self.within is not None, self.claimed)
        refuse(
            (sum(bounds) != 1, "tests: one of above, below, within and claimed says where the number must lie"),
            (
                (self.take == "at_percentile") != (self.percentile is not None),
                "tests.percentile: at_percentile needs it, and nothing else does",
            ),
            (
                (self.take == "exponent") != bool(self.over),
                "tests.over: exponent needs it, and nothing else does",
            ),
        )
        return self

    @property
    def wanted(self) -> str:
        """The bound in words."""
        if self.claimed:
            return "as claimed"
        if self.within is not None:
            low, high = map(short, self.within)
            return low if low == high else f"from {low} to {high}"
        return f"above {short(self.above)}" if self.above is not None else f"below {short(self.below or 0.0)}"


class Unsettled(Strict):
    """Why the numbers settle nothing although they are there: always, or where these tests hold."""

    because: str
    tests: list[OwnTest] = Field(default_factory=list[OwnTest])


class OwnRule(Strict):
    """How one claim is held against its publication's own data."""

    rule: str = Field(default="", description="the rule in words, as the ledger prints it")
    tests: list[OwnTest] = Field(default_factory=list[OwnTest])
    unsettled: Unsettled | None = None
    no_data: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        tested = bool(self.tests)
        refuse(
            (tested == bool(self.no_data), "one of tests and no_data says how the claim is held against its own data"),
            (tested != bool(self.rule), "rule: tests need it in words, and nothing else does"),
            (self.unsettled is not None and not tested, "unsettled: without tests there is nothing to settle"),
        )
        return self


@dataclass(frozen=True, slots=True)
class Own:
    """What a publication's own data say of one claim: `sentence` has the numbers, or why there are none."""

    answer: OwnAnswer
    sentence: str
    rule: str


def owned() -> dict[str, Own]:
    """Claim id → what its publication's own data say of it, by its rule in `published/`. UsageError with file, claim and remedy."""
    known, found = {claim.id: claim for claim in claims()}, dict[str, Own]()
    for place, study, name, table in tables(FOLDER, "lab/studies/claims/published"):
        refuse_unknown(name, known, place, "no such claim")
        if known[name].study != study:
            raise UsageError(place, f"a claim of {known[name].study}", f"move it to {known[name].study}.toml")
        schema = "lab/schema/claim-published.json"
        found[name] = own(known[name], validated(OwnRule, table, place, schema, OwnTest, Base, Unsettled))
    return found


def own(claim: Claim, rule: OwnRule) -> Own:
    """One claim's. UsageError where a table has not what the rule asks for."""
    if rule.no_data:
        return Own("no data", rule.no_data, "")
    place = f"lab/studies/claims/published/{claim.study}.toml: {claim.id}"
    tested = [_held(place, claim, test) for test in rule.tests]
    said, whole = "; ".join(text for text, _ in tested), _together([holds for _, holds in tested])
    if rule.unsettled is not None:
        why = [_held(place, claim, test) for test in rule.unsettled.tests]
        if all(holds for _, holds in why):
            told = f" ({'; '.join(text for text, _ in why)})" if why else ""
            return Own("not resolved", f"{said}; {rule.unsettled.because}{told}", rule.rule)
    if whole is None:
        return Own("not resolved", f"{said}; the bound lies within the uncertainty of what was read", rule.rule)
    return Own("borne out" if whole else "not borne out", said, rule.rule)


def _held(place: str, claim: Claim, test: OwnTest) -> tuple[str, bool | None]:
    """A test at every value of its `each`: what it came to in words, and whether it holds (None: the bound lies within the uncertainty)."""
    end = next((end for end in UNITS if test.column.endswith(end)), "")
    words = test.says or test.column.removesuffix(end).replace("_", " ")
    unit = "" if test.take in ("count", "exponent") else UNITS.get(end, "")  # as it follows the number
    unit = unit if test.ratio_to is None else " ×"
    rows = _fitting(place, test.table, test.where)
    if not test.each:
        number = _number(place, test, rows, None)
        met = _holds(test, claim, number)
        claimed = "as claimed" if met else f"claimed {claim.published}"
        wanted = claimed if test.claimed else f"to be {test.wanted}{unit}"
        return f"{words} {number.text}{unit}, {wanted}", met
    _refuse_column(place, test.table, test.each, rows)
    numbers = {value: _number(place, test, rows, value) for value in dict.fromkeys(row[test.each] for row in rows)}
    every = [_holds(test, claim, number) for number in numbers.values()]
    ordered = sorted(numbers, key=lambda value: numbers[value].value)
    ends = [
        f"{numbers[value].text}{unit} ({test.each.replace('_', ' ')} {value})"
        for value in dict.fromkeys((ordered[0], ordered[-1]))
    ]
    return f"{words} {' to '.join(ends)}, {every.count(True)} of {len(every)} {test.wanted}{unit}", _together(every)


def _together(held: Sequence[bool | None]) -> bool | None:
    return False if False in held else True if all(held) else None


def _holds(test: OwnTest, claim: Claim, number: Number) -> bool | None:
    """Of the whole range that the reading leaves open; None where the bound lies in it."""
    if test.claimed:
        decimals = len(claim.published.partition(".")[2])
        return f"{number.value:.{decimals}f}" == claim.published
    return holds(number.low, number.high, test.within, test.above, test.below)


def _number(place: str, test: OwnTest, rows: Sequence[Row], value: published.Value) -> Number:
    """Of the rows in which `each` has this value."""
    mine = [row for row in rows if not test.each or row[test.each] == value]
    number = _taken(place, test.table, mine, test.column, test.take, test)
    if test.ratio_to is None:
        return number
    base = test.ratio_to
    table, column, take = base.table or test.table, base.column or test.column, base.take or test.take
    others = _fitting(place, table, {**test.where, **base.where} if table == test.table else base.where)
    if test.each and test.each not in base.where and test.each in others[0]:
        others = [row for row in others if row[test.each] == value]
    other = _taken(place, table, others, column, take, test)
    if other.value <= 0:
        raise UsageError(place, f"{table}: {column}: a ratio to 0", "let `ratio_to` fit other rows")
    # the widest range that both leave open
    return Number(number.value / other.value, number.low / other.high, number.high / other.low if other.low else inf)


def _fitting(place: str, table: str, where: Mapping[str, Cell | list[Cell]]) -> Sequence[Row]:
    """The rows that have these values. UsageError for a column that is none, and where no row has them."""
    rows = published.rows(table)
    for name in where:
        _refuse_column(place, table, name, rows)
    wanted = {name: cell if isinstance(cell, list) else [cell] for name, cell in where.items()}
    found = [row for row in rows if all(row[name] in cells for name, cells in wanted.items())]
    if not found:
        raise UsageError(place, f"{table} has no row with {dict(where)}", f"see data/published/{table}.csv")
    return found


def _refuse_column(place: str, table: str, name: str, rows: Sequence[Row]) -> None:
    if rows and name not in rows[0]:
        raise UsageError(place, f"{table} has no column '{name}'", did_you_mean(name, rows[0]))


def _taken(place: str, table: str, rows: Sequence[Row], column: str, take: Take, test: OwnTest) -> Number:
    for name in filter(None, (column, test.over)):
        _refuse_column(place, table, name, rows)
    try:
        return taken(rows, column, take, test.percentile, test.over)
    except ValueError as error:
        raise UsageError(place, f"{table}: {column}: {error}", "let `where` fit other rows") from None


# -- rows of a table → one number -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """`low` … `high`: what else it may be, as far as it was read off a plot; all ≥ 0."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """`194 [171, 217]`; without the range where it is none."""
        value, low, high = map(short, (self.value, self.low, self.high))
        return value if (low, high) == (value, value) else f"{value} [{low}, {high}]"


def taken(rows: Sequence[Row], column: str, take: Take, percentile: float | None = None, over: str = "") -> Number:
    """ValueError says what is wrong with the rows."""
    if take == "value" and len(rows) != 1:
        raise ValueError(f"one value of {len(rows)} rows")
    if take == "count":
        return Number(len(rows), len(rows), len(rows))
    values = [_cell(row[column]) for row in rows]
    if take == "exponent":
        sizes = [log(_cell(row[over])) for row in rows]
        if len(set(sizes)) < 2:
            raise ValueError("expected two sizes or more")
        slope = statistics.linear_regression(sizes, [log(value) for value in values]).slope
        return Number(slope, slope, slope)
    error = f"uncertainty_{column.rpartition('_')[2]}"  # in the column's own unit; a printed number has none
    errors = [_cell(row.get(error, 0.0)) for row in rows]
    ranges = [(value - wrong, value + wrong) for value, wrong in zip(values, errors, strict=True)]
    if take in OF_A_COLUMN:
        of = OF_A_COLUMN[take]
        low, high = (of(ends) for ends in zip(*ranges, strict=True))
        return Number(of(values), max(0.0, low), high)
    corners = [Number(value, max(0.0, low), high) for value, (low, high) in zip(values, ranges, strict=True)]
    shares = [_cell(row["percentile"]) / 100 for row in rows]
    curve = sorted(zip(shares, corners, strict=True), key=lambda corner: corner[0])
    if percentile is not None:
        return _at(curve, percentile / 100)
    return _mean(curve, ended=rows[-1].get("is_curve_end") is True)


def _cell(cell: published.Value) -> float:
    """A cell that says a number, as text, too. ValueError."""
    if cell is None or isinstance(cell, bool):
        raise ValueError(f"expected a number, found {cell}")
    return float(cell)


Curve = Sequence[tuple[float, Number]]
"""Share of all requests → what they are at or below, in order."""


def _mean(curve: Curve, ended: bool) -> Number:
    """∫ of the curve over the shares 0 … 1. `ended`: nothing is above its last corner."""
    (share, first), (last_share, last) = curve[0], curve[-1]
    rest = 1 - last_share
    value, low, high = share * first.value, 0.0, share * first.high
    for (begin, left), (end, right) in pairwise(curve):
        value += (end - begin) * (left.value + right.value) / 2
        low += (end - begin) * left.low
        high += (end - begin) * right.high
    top = last.high * rest if ended or rest <= 0 else inf
    return Number(value + rest * last.value, low + rest * last.low, high + top)


def _at(curve: Curve, share: float) -> Number:
    """ValueError beyond either end."""
    left = next((corner for corner in reversed(curve) if corner[0] <= share + 1e-12), None)
    right = next((corner for corner in curve if corner[0] >= share - 1e-12), None)
    if left is None or right is None:
        raise ValueError(f"the curve has no {100 * share:g} %")
    value = right[1].value
    if right[0] - left[0] >= 1e-12 and right[0] < 1:
        begin, end, at = (-log10(1 - each) for each in (left[0], right[0], share))
        value = left[1].value + (value - left[1].value) * (at - begin) / (end - begin)
    return Number(value, left[1].low, right[1].high)
