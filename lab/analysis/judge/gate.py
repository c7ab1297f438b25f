"""The judgement of a gate: each row of a comparison is a regression, passed or inconclusive against its bound.

A gate compares a candidate with a base, and has a bound up to which worse still passes. A row is a regression if the
comparison decided *worse* and the effect is beyond the bound, or if the candidate does not work where the base does. A row
passes only if the interval of its effect lies within the bound. A row whose interval reaches beyond the bound is
inconclusive, even if no difference was found. So is a row whose candidate failed in some blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, expm1
from typing import Literal

from lab.analysis.judge.comparison import ComparedRow, Comparison
from lab.analysis.judge.decision import ALPHA, UNBOUNDED, Decision
from lab.analysis.judge.rulings import ERRORS_MIX, FOLLOWS, GIVEN_RATE, LIMITED, choose_metric, select_failures
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
    """The bounds of a gate: how much worse a candidate may be than the base and still pass.

    Attributes:
        regression: The bound for steady loads, a fraction (0.05 = 5 % worse); None: steady loads are not gated.
        more: For disrupted loads, outcome → how much more of it passes, in its own unit (seconds, bytes, counts).
        metrics: The only metrics of steady loads to gate; empty: CLOSED for closed loops, OPEN_LOOP for offered rates.

    """

    regression: float | None
    more: Mapping[str, float] = field(default_factory=dict[str, float])
    metrics: tuple[str, ...] = ()

    def of(self, row: ComparedRow) -> float | None:
        """Return the bound of a row: a fraction, or for a disruption in the metric's own unit; None: not gated."""
        if not row.relative:
            return self.more.get(row.metric)
        # with an offered rate the rate is the load's, unless errors are the subject: then it is that of good answers
        counts = row.point.rate_rps is None or "errors" in row.point.subject
        metrics = self.metrics or (CLOSED if counts else OPEN_LOOP)
        return self.regression if row.metric in metrics else None

    def concern(self, point: LoadPoint) -> bool:
        """Return whether there is a bound for loads of a point's kind, steady or disrupted."""
        return bool(self.more) if point.has_outcome else self.regression is not None


@dataclass(frozen=True, slots=True)
class GatedRow:
    """The row of a gate: a row of a comparison with its bound and its verdict (regression, passed, inconclusive)."""

    row: ComparedRow
    """The row of the comparison."""
    limit: float
    """The bound that the effect is compared with: a fraction, or for a disruption in the metric's own unit."""
    verdict: GateVerdict
    """The verdict on the row."""
    said: str
    """The reason for this verdict."""
    do: str
    """What to do about the row."""
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
        """The bound of a gated row, for people: `5 %`, or `0.5 s`."""
        return format_limit(self.row, self.limit)

    @property
    def metric(self) -> str:
        """The name of a gated row's metric, for people."""
        return find_metric(self.row.metric).title

    @property
    def worst(self) -> float | None:
        """The largest loss that the interval of a gated row allows, in its bound's unit; None without an interval."""
        interval = self.row.estimate.interval if self.row.estimate else None
        return max(compute_loss(self.row, end) for end in interval) if interval else None

    @property
    def name(self) -> str:
        """The name of a gated row for people: `keepalive at ceiling: rate`."""
        return f"{self.row.place}: {self.metric}"


@dataclass(frozen=True, slots=True)
class Gate:
    """The result of a gate: a comparison of a candidate with a base, judged against bounds.

    Attributes:
        comparison: The comparison.
        bounds: The bounds up to which worse still passes.
        rows: The rows that have a bound, each with its verdict.
        left_out: Sentences about rows that are not judged, and about the row that stands for each.
        missing: The requested parts that the candidate's run lacks, as `arm keepalive` or `metric gap_s`. They count as
            inconclusive.

    """

    comparison: Comparison
    bounds: Bounds
    rows: tuple[GatedRow, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]

    def of(self, verdict: GateVerdict) -> list[GatedRow]:
        """Return the rows that have a given verdict and count for the verdict of the gate."""
        return [row for row in self.rows if row.verdict == verdict and row.decides]

    @property
    def to_measure_again(self) -> list[GatedRow]:
        """The rows of a gate that must be measured again, as their regression is close to the bound.

        Empty if another row is a regression already.
        """
        return [] if self.of("regression") else [row for row in self.rows if row.close]

    @property
    def verdict(self) -> GateVerdict:
        """The verdict of a gate: the worst verdict of its rows.

        A regression is worse than inconclusive. If something requested is missing, the gate does not pass either: it is
        inconclusive.
        """
        if self.of("regression"):
            return "regression"
        return "inconclusive" if self.of("inconclusive") or self.missing else "passed"

    @property
    def footnotes(self) -> list[str]:
        """The notes to print below the rows of a gate.

        First comes what differs between the runs, then what is left out. Then come notes of rows that are not part of the
        reason for a verdict: blocks that do not count, requests that failed, how much the baseline changed.
        """
        names_of: dict[str, list[str]] = {}
        for gated in self.rows:
            for note in gated.row.notes:
                if gated.row.estimate is not None and note not in gated.said:
                    names_of.setdefault(note, []).append(gated.name)
        of_rows = (f"{', '.join(names)}: {note}" for note, names in names_of.items())
        return [*self.comparison.notes, *self.left_out, *of_rows]

    def exit_status(self, strict: bool) -> int:
        """Return the exit status: 1 for a regression, 2 if the gate is inconclusive and `strict` is set, else 0."""
        return {"regression": 1, "inconclusive": 2 if strict else 0, "passed": 0}[self.verdict]


def compute_loss(row: ComparedRow, effect: float) -> float:
    """Return how much is lost by an effect; it is negative if the effect is an improvement.

    Args:
        row: The row whose metric it is.
        effect: A log-ratio, or for a disruption a difference in the metric's own unit.

    Returns:
        A fraction (0.1 = 10 % less rate, 10 % more latency), or for a disruption the difference in the metric's own unit.

    """
    if not row.relative:
        return -effect if row.more_is_better else effect
    return 1 - exp(effect) if row.more_is_better else expm1(effect)


def format_limit(row: ComparedRow, limit: float) -> str:
    """Format a bound for people: `5 %`, or `0.5 s`."""
    return f"{100 * limit:g} %" if row.relative else find_metric(row.metric).with_unit(limit)


def classify_row(row: ComparedRow, limit: float) -> Case:
    """Return which case (Case) a row is against its bound, such as `worse` or `within`.

    Args:
        row: The row.
        limit: The bound: a fraction, or for a disruption in the metric's own unit. Only rows with a fraction can be `close`.

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
    """Describe how the candidate failed in all its blocks, as `proxy-died 6`; empty if it did not.

    It is also empty if the base has fewer than six valid blocks.
    """
    base, other = row.counted
    if other or base < stats.MIN_BLOCKS:
        return ""
    return ", ".join(f"{reason} {count}" for reason, count in select_failures(row.other.invalid).items())


def choose_rows(
    comparison: Comparison, rows: Sequence[ComparedRow], bounds: Bounds
) -> tuple[list[ComparedRow], list[str]]:
    """Choose which rows of a comparison are gated.

    A row is left out if its load never shows its metric, however often it is measured. A row that may not be judged is
    replaced by the row of the metric that stands for it, unless the user named the metrics.

    Args:
        comparison: The comparison.
        rows: The rows of the comparison to choose from.
        bounds: The bounds; a row without one is not gated.

    Returns:
        (the rows to gate, sentences about what is left out or replaced).

    """
    selected: list[ComparedRow] = []
    left_out: list[str] = []
    for row in rows:
        if bounds.of(row) is None:
            continue
        if reason := next((reason for reason in (GIVEN_RATE, FOLLOWS) if reason in row.notes), ""):
            left_out.append(f"{row.place}: {row.title}: {reason}")
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
            left_out.append(f"{row.place}: {row.title}: {reason}{stands}")
        if gated not in selected:
            selected.append(gated)
    return selected, left_out


def mark_undetectable(
    comparison: Comparison, judged: Sequence[GatedRow], bounds: Bounds
) -> tuple[tuple[GatedRow, ...], list[str]]:
    """Mark the inconclusive rows that do not count for the verdict of the gate, as they could never be decided.

    An inconclusive row does not count if the smallest effect that its blocks detect is above the bound. Rate and CPU per
    request of closed loops always count, as do metrics that the user named. If all rows are inconclusive, all count, so that
    a gate never passes without any row.

    Args:
        comparison: The comparison.
        judged: The rows with their verdicts.
        bounds: The bounds.

    Returns:
        (the rows with `decides` set, a sentence for each metric of rows that do not count).

    """
    level = ALPHA / max(1, sum(comparison.family))
    noisy: dict[str, list[tuple[GatedRow, float]]] = {}
    for gated in judged:
        estimate = gated.row.estimate
        if gated.verdict != "inconclusive" or gated.close or not gated.row.relative or gated.row.fell or bounds.metrics:
            continue
        if gated.row.metric not in OPEN_LOOP or estimate is None or estimate.sd is None or not estimate.has_interval:
            continue
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
