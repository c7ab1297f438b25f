"""The judgement of a gate: each row of a comparison is a regression, passed or inconclusive against its bound.

A gate is a pass/fail check. It compares a candidate with a base, and has a bound on how much worse the candidate may be. A row
is a regression if the comparison decided *worse* and the effect is beyond the bound, or if the candidate does not work and the
base does. A row passes only if the interval of its effect lies within the bound. A row whose interval reaches beyond the bound is
inconclusive, even if no difference was found. So is a row whose candidate failed in some blocks (repetitions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, expm1
from typing import Literal

from lab.analysis.judge.comparison import ComparedRow, Comparison
from lab.analysis.judge.decision import ALPHA, UNBOUNDED, Decision
from lab.analysis.judge.rulings import ERRORS_MIX, FOLLOWS, GIVEN_RATE, LIMITED, choose_metric, select_failures
from lab.base.grouping import group_values
from lab.model.metrics import find_metric
from lab.model.sweeps import LoadPoint
from lab.stats import paired as stats
from lab.stats.power import compute_mde

CLOSED, OPEN_LOOP = ("rate", "cpu_per_request"), ("p50", "p99")
"""The metrics that are gated unless others are named: at a closed loop, and with an offered rate."""

GateVerdict = Literal["regression", "passed", "inconclusive"]
"""The verdict on a row, by its decision and its bound."""
Case = Literal["broken", "untold", "close", "worse", "fell", "at-least", "open", "within"]
"""The case that a row is.

broken    no valid block of the candidate, by its own fault
untold    not compared
close     worse, but close to the bound
worse     worse
fell      the candidate failed in some blocks
at-least  worse by an unknown amount
open      the interval reaches beyond the bound
within    the interval does not
"""
VERDICTS: Mapping[Case, GateVerdict] = {"broken": "regression", "worse": "regression", "within": "passed"}
"""The verdict of each case; all other cases are inconclusive."""

CLOSE = 0.01
"""The distance from the bound, as a fraction (1 %), within which a regression is measured a second time.

It is the distance of the interval's beginning. The ratios of one change measured on several boots have a standard
deviation of 8 to 9.5 %, far beyond what one run's interval shows.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a gate (a pass/fail check of a candidate against a base): the largest losses that still pass.

    Attributes:
        regression: The bound for steady loads, a fraction (0.05 = 5 % worse). If None, steady loads are not checked.
        more: For disrupted loads: name of an outcome → the increase that still passes, in its own unit (seconds, bytes,
            counts).
        metrics: The only metrics of steady loads to check. If empty: CLOSED for closed loops, OPEN_LOOP for offered
            rates.

    """

    regression: float | None
    more: Mapping[str, float] = field(default_factory=dict[str, float])
    metrics: tuple[str, ...] = ()

    def of(self, row: ComparedRow) -> float | None:
        """Return the bound for a row of a comparison; None if the row is not checked.

        Returns:
            A fraction (0.05 = 5 % worse), or for a disruption an amount in the metric's own unit.

        """
        if not row.relative:
            return self.more.get(row.metric)
        # with an offered rate the rate is the load's, unless errors are the subject: then it is that of good answers
        counts = row.point.rate_rps is None or "errors" in row.point.subject
        metrics = self.metrics or (CLOSED if counts else OPEN_LOOP)
        return self.regression if row.metric in metrics else None

    def concern(self, point: LoadPoint) -> bool:
        """Return whether there is a bound for the kind of load of a load point: steady, or disrupted."""
        return bool(self.more) if point.has_outcome else self.regression is not None


@dataclass(frozen=True, slots=True)
class GatedRow:
    """A row of a comparison that a gate judged, with its bound and its verdict (regression, passed or inconclusive).

    A gate checks whether a candidate is worse than a base by more than a bound.
    """

    row: ComparedRow
    """The row of the comparison."""
    limit: float
    """The bound that the effect is compared with: a fraction, or for a disruption in the metric's own unit."""
    verdict: GateVerdict
    """The verdict on the row."""
    said: str
    """The reason for this verdict."""
    do: str
    """The advice what to do about the row."""
    close: bool = False
    """True if the row would be a regression but must be measured again, as it is close to its bound.

    Its interval begins less than CLOSE above the bound.
    """
    decides: bool = True
    """True if the row counts for the verdict of the gate.

    A row does not count if the smallest effect that its blocks detect is above the bound. It is only listed.
    """

    @property
    def bound(self) -> str:
        """The largest loss with which this row of a gate (pass/fail check) still passes, for people: `5 %`, or `0.5 s`."""
        return format_limit(self.row, self.limit)

    @property
    def metric(self) -> str:
        """The name of the metric of this row of a gate (pass/fail check), for people."""
        return find_metric(self.row.metric).title

    @property
    def worst(self) -> float | None:
        """The largest loss within the interval of the row's effect, in the unit of the row's bound; None without an interval."""
        interval = self.row.estimate.interval if self.row.estimate else None
        return max(compute_loss(self.row, end) for end in interval) if interval else None

    @property
    def name(self) -> str:
        """The name of the row for people, which has arm (variant), load point and metric: `keepalive at ceiling: rate`."""
        return f"{self.row.place}: {self.metric}"


@dataclass(frozen=True, slots=True)
class Gate:
    """The result of a gate, which checks whether a candidate is worse than a base by more than a bound.

    Attributes:
        comparison: The comparison of the candidate with the base.
        bounds: The largest losses that still pass.
        rows: The rows that have a bound, each with its verdict.
        left_out: Sentences about rows that are not judged, with the rows that replace them.
        missing: The requested parts that the candidate's run lacks, as `arm keepalive` or `metric gap_s`. A gate with a
            missing part cannot pass.

    """

    comparison: Comparison
    bounds: Bounds
    rows: tuple[GatedRow, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]

    def of(self, verdict: GateVerdict) -> list[GatedRow]:
        """Return the rows with a given verdict that count for the gate's verdict; rows that are only listed are left out."""
        return [row for row in self.rows if row.verdict == verdict and row.decides]

    @property
    def to_measure_again(self) -> list[GatedRow]:
        """The rows of the gate (pass/fail check) to measure again, because they are worse by little more than their bound.

        The result is empty if some other row is already a clear regression.
        """
        return [] if self.of("regression") else [row for row in self.rows if row.close]

    @property
    def verdict(self) -> GateVerdict:
        """The verdict of the gate: the worst verdict of its rows, where a regression is worse than inconclusive.

        If a requested part is missing and no row is a regression, the gate is inconclusive.
        """
        if self.of("regression"):
            return "regression"
        return "inconclusive" if self.of("inconclusive") or self.missing else "passed"

    @property
    def footnotes(self) -> list[str]:
        """The notes to print below the rows of a gate.

        First come the differences between the two runs, then the rows that are left out. Last come notes of single rows
        that their verdicts do not mention, such as blocks (repetitions) without a result, or failed requests.
        """
        names_of = group_values(
            (note, gated.name)
            for gated in self.rows
            for note in gated.row.notes
            if gated.row.estimate is not None and note not in gated.said
        )
        of_rows = (f"{', '.join(names)}: {note}" for note, names in names_of.items())
        return [*self.comparison.notes, *self.left_out, *of_rows]

    def exit_status(self, strict: bool) -> int:
        """Return the exit status of the gate: 0, or 1 for a regression, or 2 if it is inconclusive and `strict` is set.

        Args:
            strict: True if an inconclusive gate must fail, too.

        """
        return {"regression": 1, "inconclusive": 2 if strict else 0, "passed": 0}[self.verdict]


def compute_loss(row: ComparedRow, effect: float) -> float:
    """Convert an effect into a loss, which is negative if the effect is an improvement.

    Args:
        row: The row of the comparison, for its metric.
        effect: A log-ratio, or for a disruption a difference in the metric's own unit.

    Returns:
        A fraction (0.1 = 10 % less rate, or 10 % more latency), or for a disruption a difference in the metric's own
        unit.

    """
    if not row.relative:
        return -effect if row.more_is_better else effect
    return 1 - exp(effect) if row.more_is_better else expm1(effect)


def format_limit(row: ComparedRow, limit: float) -> str:
    """Format the bound of a row for people: `5 %`, or `0.5 s`.

    Args:
        row: The row of the comparison, for its metric.
        limit: The bound: a fraction, or for a disruption an amount in the metric's own unit.

    """
    return f"{100 * limit:g} %" if row.relative else find_metric(row.metric).with_unit(limit)


def classify_row(row: ComparedRow, limit: float) -> Case:
    """Return the case that a row of a comparison is, such as `worse` or `within`; `Case` lists all of them.

    A row that is worse by more than the bound is `worse` or `close`. It is `close` if the interval of the loss begins less
    than `CLOSE` above the bound, or below the bound. Rows whose bound is not a fraction are never `close`.

    Args:
        row: The row.
        limit: The bound, which is the largest loss that still passes: a fraction, or for a disruption an amount in the
            metric's own unit.

    """
    if describe_breakage(row):
        return "broken"
    if row.estimate is None or row.estimate.interval is None or row.decision is Decision.NOT_JUDGED:
        return "untold"
    worse, ends = row.decision is Decision.WORSE, [compute_loss(row, end) for end in row.estimate.interval]
    if worse and compute_loss(row, row.estimate.effect) > limit:
        return "close" if row.relative and min(ends) < limit + CLOSE else "worse"
    if row.fell:
        return "fell"
    if worse and row.bound:
        return "at-least"
    return "open" if max(ends) > limit else "within"


def describe_breakage(row: ComparedRow) -> str:
    """Describe how the candidate failed if it has no valid block, as `proxy-died 6`; empty if it has a valid one.

    A block is a repetition. The result is also empty if the base has fewer than six valid blocks.
    """
    base, other = row.counted
    if other or base < stats.MIN_BLOCKS:
        return ""
    return ", ".join(f"{reason} {count}" for reason, count in select_failures(row.other.invalid).items())


def choose_rows(
    comparison: Comparison, rows: Sequence[ComparedRow], bounds: Bounds
) -> tuple[list[ComparedRow], list[str]]:
    """Choose the rows of a comparison that a gate judges against bounds.

    A row is left out if its load can never show its metric. If its effect gets no decision for another reason, the row
    of another metric replaces it. It is not replaced if the user named the metrics.

    Args:
        comparison: The comparison.
        rows: The rows of the comparison to choose from.
        bounds: The bounds; a row without one is left out.

    Returns:
        (the rows to judge, sentences about the rows that are left out or replaced).

    """
    selected: list[ComparedRow] = []
    places_of: dict[str, list[str]] = {}
    for row in (row for row in rows if bounds.of(row) is not None):
        if reason := next((reason for reason in (GIVEN_RATE, FOLLOWS) if reason in row.notes), ""):
            places_of.setdefault(f"{row.title}: {reason}", []).append(row.place)
            continue
        gated, reason = (
            row,
            next((reason for reason in (LIMITED, ERRORS_MIX) if reason in row.notes), LIMITED if row.bound else ""),
        )
        if reason and not bounds.metrics and row.decision is Decision.NOT_JUDGED and row.relative:
            # another metric is judged instead: CPU per request for a rate that the generator limited, …
            metric = choose_metric(row.metric, row.point, comparison.base.points, {row.metric: reason})
            place = row.point, row.pair, metric
            candidates = (
                candidate
                for candidate in comparison.rows
                if (candidate.point, candidate.pair, candidate.metric) == place
            )
            gated = next(
                (candidate for candidate in candidates if metric != row.metric and candidate.estimate is not None),
                row,
            )
        if gated is not row:
            reason = UNBOUNDED if row.bound else reason
            stands = "" if reason == LIMITED else f"; {find_metric(gated.metric).title} stands for it"
            places_of.setdefault(f"{row.title}: {reason}{stands}", []).append(row.place)
        if gated not in selected:
            selected.append(gated)
    return selected, [f"{sentence} ({', '.join(places)})" for sentence, places in places_of.items()]


def mark_undetectable(
    comparison: Comparison, judged: Sequence[GatedRow], bounds: Bounds
) -> tuple[tuple[GatedRow, ...], list[str]]:
    """Mark inconclusive rows that the run is too imprecise to decide, so that the verdict of the gate leaves them out.

    A gate is a pass/fail check. A row is too imprecise if its minimum detectable effect is above its bound. Only
    latencies at offered rates are marked, and only if the user named no metrics. If all rows are inconclusive, none is
    marked, because a gate must not pass without any row.

    Args:
        comparison: The comparison.
        judged: The rows with their verdicts.
        bounds: The bounds.

    Returns:
        (the rows with `decides` set, one sentence for each metric that has marked rows).

    """
    level = ALPHA / max(1, sum(comparison.family))
    undecided = [
        gated for gated in judged if gated.verdict == "inconclusive" and not gated.close and not gated.row.fell
    ]
    noisy: dict[str, list[tuple[GatedRow, float]]] = {}
    for gated in undecided if not bounds.metrics else ():
        estimate, is_latency = gated.row.estimate, gated.row.relative and gated.row.metric in OPEN_LOOP
        if is_latency and estimate is not None and estimate.has_interval and estimate.sd is not None:
            effect = compute_mde(estimate.sd, estimate.n, level)
            if effect is not None and effect > gated.limit:
                noisy.setdefault(gated.row.metric, []).append((gated, effect))
    aside = [gated for rows in noisy.values() for gated, _ in rows]
    if all(gated.verdict == "inconclusive" for gated in judged):
        return tuple(judged), []
    lines = [
        f"{find_metric(metric).title} does not decide: its minimum detectable effect in the blocks that were planned is above the bound of"
        f" {rows[0][0].bound} ({', '.join(f'{effect:.0%} for {gated.row.place}' for gated, effect in rows)})"
        for metric, rows in noisy.items()
    ]
    return tuple(replace(gated, decides=gated not in aside) for gated in judged), lines
