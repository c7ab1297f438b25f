"""The judgement of claims by the publications' own data: whether the numbers in data/published support the claims.

The rules are data: one table per claim in `published/<study>.toml`, named by the claim's id. Each has one of two forms:

    [DO-19]                                            the publication's own numbers can test it:
    rule = "supported if …"                            in words, for people
    [[DO-19.tests]]                                    all must hold; a test that fails refutes the claim
    says = "average latency"                           what the number is, in words
    table = "digitalocean_latency_vertices"            of data/published
    where = {suite = "original"}                       rows that have these values (of a list: one of them)
    each = "connections"                               a number for every value of this column; all must hold
    column = "latency_ms"
    take = "mean_over_percentiles"                     `Aggregation` has the ways to take a number from rows
    within = [200, 300]                                or above, or below; or claimed = true: the number is the claim's
    [DO-19.unsettled]                                  if these tests hold, too (or there are none), nothing is settled
    because = "…"

    [DO-02]                                            or they cannot:
    no_data = "…"                                      nothing of it is printed, and why

`ratio_to` makes the number a ratio to the same number from other rows, another column or another table. The error of a number that was
read off a plot (columns `uncertainty_…`) widens it to a range; a bound inside the range settles nothing. An error of one reading may be
that of the entire plot (its zero line), so uncertainties add up and never average out:

    [{"percentile": 99.0, "latency_ms": 4.2, "uncertainty_ms": 0.9}]  →  Number(4.2, 3.3, 5.1)

Refuses unknown keys, tables, columns and claims, rows that do not exist, cells that are no numbers, and to count one run as several: rules
mention it.
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

from lab.base.errors import UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.base.validation import refuse_broken_rules, validate_table
from lab.records import published
from lab.studies.claims import Claim, format_short, lies_within_bound, read_claims, tables
from lab.studies.study_files import StrictModel

FOLDER = Path(__file__).parent / "published"
"""The folder of the rules."""

OwnAnswer = Literal["supported", "not supported", "inconclusive", "no data"]
"""The answer to a claim by its publication's own data."""
OWN_ANSWERS: Mapping[OwnAnswer, str] = {
    "supported": "the publication's own numbers are as the claim says",
    "not supported": "the publication's own numbers are not as the claim says",
    "inconclusive": "its own numbers leave it open: within their uncertainty, one run each, or of a part of the claim only",
    "no data": "it prints no number that the claim could be held against",
}
"""The meaning of each answer."""
UNITS = {"_per_s": "/s", "_ms": " ms", "_s": " s", "_percent": " %"}
"""The end of a column's name → the unit that follows its numbers."""

Cell = str | int | float | bool
"""The value of a cell, as a rule writes it."""
Row = Mapping[str, published.Value]
"""A row of a published table: column → value."""
Aggregation = Literal[
    "value", "count", "sum", "min", "max", "mean", "median", "mean_over_percentiles", "at_percentile", "exponent"
]
"""The ways to take a number from rows.

value                  of the only row
count                  the number of rows
sum … median           of a column
mean_over_percentiles  the average that a percentile curve integrates to (column `percentile`; where `is_curve_end` is true, the
                       last corner is the largest value); range: since a curve never falls, it lies between its corners' values
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
"""The functions that take a number from a column's values."""


class Base(StrictModel):
    """The denominator by which the published number of a test is divided: the table `ratio_to` of the test.

    It is a number from other rows, another column or another table. A field that is left out has the test's value. If both numbers come
    from one table, the test's `where` also selects the rows of the denominator, except in the columns for which the denominator has a
    `where` of its own.
    """

    table: str = ""
    where: dict[str, Cell | list[Cell]] = Field(default_factory=dict[str, Cell | list[Cell]])
    column: str = ""
    take: Aggregation | None = None


class OwnTest(StrictModel):
    """A `[[ID.tests]]` table: one test of a claim. It names a number that the publication printed, and the bound that this number must meet.

    If `each` names a column, there is one number for every value of that column, and all of them must meet the bound.
    """

    says: str = Field(default="", description="what the number is, in words; none: the column's name")
    table: str
    where: dict[str, Cell | list[Cell]] = Field(default_factory=dict[str, Cell | list[Cell]])
    each: str = Field(default="", description="a column: a number for every value it has in these rows")
    column: str
    take: Aggregation = "value"
    percentile: float | None = Field(default=None, description="of at_percentile")
    over: str = Field(default="", description="of exponent: the column of the sizes")
    ratio_to: Base | None = None
    above: float | None = None
    below: float | None = None
    within: tuple[float, float] | None = Field(default=None, strict=False)
    claimed: bool = Field(default=False, description="it must be what claims.csv has as published, to its last digit")

    @model_validator(mode="after")
    def _check_bound(self) -> Self:
        bounds = (self.above is not None, self.below is not None, self.within is not None, self.claimed)
        refuse_broken_rules(
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
        """The bound that a published number must meet, in words: `above 5`, `from 200 to 300`, `as claimed`."""
        if self.claimed:
            return "as claimed"
        if self.within is not None:
            low, high = map(format_short, self.within)
            return low if low == high else f"from {low} to {high}"
        return (
            f"above {format_short(self.above)}"
            if self.above is not None
            else f"below {format_short(self.below or 0.0)}"
        )


class Unsettled(StrictModel):
    """An `[ID.unsettled]` table: a reason why a publication's own numbers leave a claim of it open.

    The reason applies if all tests in this table hold, or if the table has no tests.
    """

    because: str
    tests: list[OwnTest] = Field(default_factory=list[OwnTest])


class OwnRule(StrictModel):
    """The rule for judging one claim by the data in its own publication: tests, or the reason why there is no data."""

    rule: str = Field(default="", description="the rule in words, as the ledger prints it")
    tests: list[OwnTest] = Field(default_factory=list[OwnTest])
    unsettled: Unsettled | None = None
    no_data: str = ""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        tested = bool(self.tests)
        refuse_broken_rules(
            (tested == bool(self.no_data), "one of tests and no_data says how the claim is held against its own data"),
            (tested != bool(self.rule), "rule: tests need it in words, and nothing else does"),
            (self.unsettled is not None and not tested, "unsettled: without tests there is nothing to settle"),
        )
        return self


@dataclass(frozen=True, slots=True)
class OwnJudgement:
    """The judgement of one claim (a published sentence) by the data in its own publication.

    Attributes:
        answer: `supported`, `not supported`, `inconclusive` or `no data`.
        sentence: The numbers in words, or why there are none.
        rule: The rule in words; empty where there are no numbers.

    """

    answer: OwnAnswer
    sentence: str
    rule: str


def judge_by_own_data() -> dict[str, OwnJudgement]:
    """Judge each claim (a published sentence) by the data in its own publication, with the rules in lab/studies/claims/published.

    Returns:
        Claim id → judgement; a claim without a rule is left out.

    Raises:
        UsageError: A file is faulty; the error has the file, the claim and a remedy.

    """
    by_id, judgements = {claim.id: claim for claim in read_claims()}, dict[str, OwnJudgement]()
    for place, study, name, table in tables(FOLDER, "lab/studies/claims/published"):
        refuse_unknown(name, by_id, place, "no such claim")
        claim = by_id[name]
        refuse_if(claim.study != study, place, f"a claim of {claim.study}", f"move it to {claim.study}.toml")
        rule = validate_table(OwnRule, table, place, "lab/schema/claim-published.json", OwnTest, Base, Unsettled)
        judgements[name] = own(claim, rule)
    return judgements


def own(claim: Claim, rule: OwnRule) -> OwnJudgement:
    """Judge one claim (a published sentence) by the numbers that its own publication printed, and return the judgement.

    Args:
        claim: The claim.
        rule: The claim's rule.

    Raises:
        UsageError: A table in data/published lacks a row, a column or a number that the rule needs.

    """
    if rule.no_data:
        return OwnJudgement("no data", rule.no_data, "")
    place = f"lab/studies/claims/published/{claim.study}.toml: {claim.id}"
    tested = [_run_test(place, claim, test) for test in rule.tests]
    sentence, supported = "; ".join(text for text, _ in tested), _combine([holds for _, holds in tested])
    if rule.unsettled is not None:
        reasons = [_run_test(place, claim, test) for test in rule.unsettled.tests]
        if all(holds for _, holds in reasons):
            details = f" ({'; '.join(text for text, _ in reasons)})" if reasons else ""
            return OwnJudgement("inconclusive", f"{sentence}; {rule.unsettled.because}{details}", rule.rule)
    if supported is None:
        return OwnJudgement(
            "inconclusive", f"{sentence}; the bound lies within the uncertainty of what was read", rule.rule
        )
    return OwnJudgement("supported" if supported else "not supported", sentence, rule.rule)


def _run_test(place: str, claim: Claim, test: OwnTest) -> tuple[str, bool | None]:
    """Run a test of a rule once for every value of its column `each`, or a single time if it names no such column.

    Args:
        place: The rule's place, for messages.
        claim: The claim.
        test: The test.

    Returns:
        (the result in words, whether the test holds). The second is None if the bound lies within the uncertainty of a number.

    """
    end = next((end for end in UNITS if test.column.endswith(end)), "")
    label = test.says or test.column.removesuffix(end).replace("_", " ")
    unit = "" if test.take in ("count", "exponent") else UNITS.get(end, "")  # as it follows the number
    unit = unit if test.ratio_to is None else " ×"
    rows = _select_rows(place, test.table, test.where)
    if not test.each:
        number = _compute_number(place, test, rows, None)
        met = _check_number(test, claim, number)
        claimed = "as claimed" if met else f"claimed {claim.published}"
        bound = claimed if test.claimed else f"to be {test.wanted}{unit}"
        return f"{label} {number.text}{unit}, {bound}", met
    _refuse_unknown_column(place, test.table, test.each, rows)
    numbers = {
        value: _compute_number(place, test, rows, value) for value in dict.fromkeys(row[test.each] for row in rows)
    }
    results = [_check_number(test, claim, number) for number in numbers.values()]
    ordered = sorted(numbers, key=lambda value: numbers[value].value)
    ends = [
        f"{numbers[value].text}{unit} ({test.each.replace('_', ' ')} {value})"
        for value in dict.fromkeys((ordered[0], ordered[-1]))
    ]
    return (
        f"{label} {' to '.join(ends)}, {results.count(True)} of {len(results)} {test.wanted}{unit}",
        _combine(results),
    )


def _combine(results: Sequence[bool | None]) -> bool | None:
    """Return the common result of several tests: False if any result is False, True if all are True, and otherwise None."""
    return False if False in results else True if all(results) else None


def _check_number(test: OwnTest, claim: Claim, number: Number) -> bool | None:
    """Return whether a published number meets the test's bound; None if the bound lies within the number's uncertainty.

    A test with `claimed` has no bound. Its number must equal the claim's published value, rounded to as many decimals.
    """
    if test.claimed:
        decimals = len(claim.published.partition(".")[2])
        return f"{number.value:.{decimals}f}" == claim.published
    return lies_within_bound(number.low, number.high, test.within, test.above, test.below)


def _compute_number(place: str, test: OwnTest, rows: Sequence[Row], value: published.Value) -> Number:
    """Compute the published number of a test. If the test has a `ratio_to`, the result is the ratio to that other number.

    Args:
        place: The rule's place, for messages.
        test: The test.
        rows: The rows of the test's table that its `where` selects.
        value: The value of the column `each` for which the number is computed. A test without `each` does not use it.

    Raises:
        UsageError: A table lacks data that the test needs, or the divisor is not above 0.

    """
    selected = [row for row in rows if not test.each or row[test.each] == value]
    number = _take_number(place, test.table, selected, test.column, test.take, test)
    if test.ratio_to is None:
        return number
    base = test.ratio_to
    table, column, take = base.table or test.table, base.column or test.column, base.take or test.take
    base_rows = _select_rows(place, table, {**test.where, **base.where} if table == test.table else base.where)
    if test.each and test.each not in base.where and test.each in base_rows[0]:
        base_rows = [row for row in base_rows if row[test.each] == value]
    denominator = _take_number(place, table, base_rows, column, take, test)
    refuse_if(denominator.value <= 0, place, f"{table}: {column}: a ratio to 0", "let `ratio_to` fit other rows")
    # the widest range that both leave open
    return Number(
        number.value / denominator.value,
        number.low / denominator.high,
        number.high / denominator.low if denominator.low else inf,
    )


def _select_rows(place: str, table: str, filters: Mapping[str, Cell | list[Cell]]) -> Sequence[Row]:
    """Return the rows of a published table that have the values of the filters.

    Args:
        place: The rule's place, for messages.
        table: The name of the table in data/published.
        filters: Column → its allowed value or values.

    Raises:
        UsageError: No row has these values, or the table lacks a column.

    """
    rows = published.read_rows(table)
    for name in filters:
        _refuse_unknown_column(place, table, name, rows)
    allowed = {name: cell if isinstance(cell, list) else [cell] for name, cell in filters.items()}
    selected = [row for row in rows if all(row[name] in cells for name, cells in allowed.items())]
    refuse_if(not selected, place, f"{table} has no row with {dict(filters)}", f"see data/published/{table}.csv")
    return selected


def _refuse_unknown_column(place: str, table: str, name: str, rows: Sequence[Row]) -> None:
    if rows and name not in rows[0]:
        raise UsageError(place, f"{table} has no column '{name}'", did_you_mean(name, rows[0]))


def _take_number(place: str, table: str, rows: Sequence[Row], column: str, take: Aggregation, test: OwnTest) -> Number:
    for name in filter(None, (column, test.over)):
        _refuse_unknown_column(place, table, name, rows)
    try:
        return take_number(rows, column, take, test.percentile, test.over)
    except ValueError as error:
        raise UsageError(place, f"{table}: {column}: {error}", "let `where` fit other rows") from None


# -- rows of a table → one number -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A published number with its uncertainty: a number that was read off a plot is only known to lie in a range.

    Attributes:
        value: The number.
        low: The lower end of the range; equal to `value` for a number that was printed.
        high: The upper end of the range; equal to `value` for a number that was printed.

    """

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The published number as text with three significant digits, and the range in which it is known to lie: `194 [171, 217]`.

        The range is left out where both ends round to the same text as the number: `194`.
        """
        value, low, high = map(format_short, (self.value, self.low, self.high))
        return value if (low, high) == (value, value) else f"{value} [{low}, {high}]"


def take_number(
    rows: Sequence[Row], column: str, take: Aggregation, percentile: float | None = None, over: str = ""
) -> Number:
    """Compute one number from the rows of a published table.

    Args:
        rows: The rows.
        column: The column of the number.
        take: The way to compute it, for example `value` (of the only row), `max` or `at_percentile`; `Aggregation` lists all.
        percentile: The percentile for `at_percentile`, from 0 to 100.
        over: The column of the sizes for `exponent`.

    Raises:
        ValueError: The number cannot be computed from these rows; the message is the reason.

    """
    if take == "value" and len(rows) != 1:
        raise ValueError(f"one value of {len(rows)} rows")
    if take == "count":
        return Number(len(rows), len(rows), len(rows))
    values = [_parse_cell(row[column]) for row in rows]
    if take == "exponent":
        sizes = [log(_parse_cell(row[over])) for row in rows]
        if len(set(sizes)) < 2:
            raise ValueError("expected two sizes or more")
        slope = statistics.linear_regression(sizes, [log(value) for value in values]).slope
        return Number(slope, slope, slope)
    error = f"uncertainty_{column.rpartition('_')[2]}"  # in the column's unit; a printed number has none
    errors = [_parse_cell(row.get(error, 0.0)) for row in rows]
    ranges = [(value - wrong, value + wrong) for value, wrong in zip(values, errors, strict=True)]
    if take in OF_A_COLUMN:
        function = OF_A_COLUMN[take]
        low, high = (function(ends) for ends in zip(*ranges, strict=True))
        return Number(function(values), max(0.0, low), high)
    corners = [Number(value, max(0.0, low), high) for value, (low, high) in zip(values, ranges, strict=True)]
    shares = [_parse_cell(row["percentile"]) / 100 for row in rows]
    curve = sorted(zip(shares, corners, strict=True), key=lambda corner: corner[0])
    if percentile is not None:
        return _interpolate(curve, percentile / 100)
    return _integrate(curve, ended=rows[-1].get("is_curve_end") is True)


def _parse_cell(cell: published.Value) -> float:
    """Return the number in a cell of a published table, where text such as `1.5` is converted.

    Raises:
        ValueError: The cell is empty, or contains no number.

    """
    if cell is None or isinstance(cell, bool):
        raise ValueError(f"expected a number, found {cell}")
    return float(cell)


Curve = Sequence[tuple[float, Number]]
"""A percentile curve in ascending order: (share of all requests, the value that this share does not exceed)."""


def _integrate(curve: Curve, ended: bool) -> Number:
    """Compute the mean value over all requests from a percentile curve, which is the integral of the curve from share 0 to 1.

    Args:
        curve: The curve.
        ended: Whether the last corner of the curve is the largest value; otherwise the range of the mean has no upper end.

    """
    (share, first), (last_share, last) = curve[0], curve[-1]
    remainder = 1 - last_share
    value, low, high = share * first.value, 0.0, share * first.high
    for (begin, left), (end, right) in pairwise(curve):
        value += (end - begin) * (left.value + right.value) / 2
        low += (end - begin) * left.low
        high += (end - begin) * right.high
    top = last.high * remainder if ended or remainder <= 0 else inf
    return Number(value + remainder * last.value, low + remainder * last.low, high + top)


def _interpolate(curve: Curve, share: float) -> Number:
    """Return the value of a percentile curve at a share of all requests, interpolated between two corners of the curve.

    Between two corners the curve is straight over log10(1/(1-p)), as such plots are drawn. The range of the result reaches from
    the lower end of the corner on the left to the upper end of the corner on the right.

    Args:
        curve: The curve.
        share: The share of requests, from 0 to 1.

    Raises:
        ValueError: The share is beyond an end of the curve.

    """
    left = next((corner for corner in reversed(curve) if corner[0] <= share + 1e-12), None)
    right = next((corner for corner in curve if corner[0] >= share - 1e-12), None)
    if left is None or right is None:
        raise ValueError(f"the curve has no {100 * share:g} %")
    value = right[1].value
    if right[0] - left[0] >= 1e-12 and right[0] < 1:
        begin, end, position = (-log10(1 - quantile) for quantile in (left[0], right[0], share))
        value = left[1].value + (value - left[1].value) * (position - begin) / (end - begin)
    return Number(value, left[1].low, right[1].high)
