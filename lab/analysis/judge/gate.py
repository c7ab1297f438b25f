"""The judgement of a gate: each row of a comparison is a regression, passed or inconclusive against its bound.

A regression is resolved (the comparison decided that, and it is not decided anew), and its estimate is beyond the
bound. It is also a regression if the candidate does not work where the base does. A row passes only if its interval
lies within the bound. A row whose interval reaches beyond does not pass because nothing was resolved, nor does the rest
of a candidate that failed in some blocks.
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
    """The bounds up to which worse still passes.

    Attributes:
        regression: The bound of steady loads, a fraction (0.05 = 5 %); None: they are not gated.
        more: For disrupted loads: outcome metric → bound in its own unit (seconds, bytes, counts).
        metrics: The only metrics of steady loads to gate; empty: those that judge a load.

    """

    regression: float | None
    more: Mapping[str, float] = field(default_factory=dict[str, float])
    metrics: tuple[str, ...] = ()

    def of(self, row: ComparedRow) -> float | None:
        """Return the bound of a row in its kind; None: the row is not gated."""
        if not row.relative:
            return self.more.get(row.metric)
        # with an offered rate the rate is the load's, unless errors are the subject: then it is that of good answers
        counts = row.point.rate_rps is None or "errors" in row.point.subject
        metrics = self.metrics or (CLOSED if counts else OPEN_LOOP)
        return self.regression if row.metric in metrics else None

    def concern(self, point: LoadPoint) -> bool:
        """Return whether a load of this kind has a bound."""
        return self.regression is not None if point.disturbance is None else bool(self.more)


@dataclass(frozen=True, slots=True)
class GatedRow:
    """A row of a comparison with its verdict."""

    row: ComparedRow
    limit: float
    """The bound it is compared with, in the row's kind: a fraction, or the metric's own unit."""
    verdict: GateVerdict
    said: str
    """The reason for this verdict."""
    do: str
    """The advice about it."""
    close: bool = False
    """True if it would be a regression, but is none yet, as its interval begins less than CLOSE above the bound."""
    decides: bool = True
    """True if it counts.

    A row whose minimum detectable effect in the planned time is above its bound is listed and counts nothing.
    """

    @property
    def bound(self) -> str:
        """The bound for people."""
        return format_limit(self.row, self.limit)

    @property
    def metric(self) -> str:
        """The name of the metric for people."""
        return find_metric(self.row.metric).title

    @property
    def worst(self) -> float | None:
        """The worse end of the interval, as `compute_loss`; None without an interval."""
        interval = self.row.estimate.interval if self.row.estimate else None
        return max(compute_loss(self.row, end) for end in interval) if interval else None

    @property
    def name(self) -> str:
        """The row's name for people: `keepalive at ceiling: rate`."""
        return f"{self.row.place}: {self.metric}"


@dataclass(frozen=True, slots=True)
class Gate:
    """A comparison judged against bounds.

    Attributes:
        comparison: The comparison.
        bounds: The bounds.
        rows: The gated rows.
        left_out: The rows that are not judged here, and the row that stands for each, in words.
        missing: The requested parts that the candidate's run lacks, as `arm keepalive` or `metric gap_s`: these are
            inconclusive.

    """

    comparison: Comparison
    bounds: Bounds
    rows: tuple[GatedRow, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]

    def of(self, verdict: GateVerdict) -> list[GatedRow]:
        """Return the rows with that verdict which decide."""
        return [row for row in self.rows if row.verdict == verdict and row.decides]

    @property
    def to_measure_again(self) -> list[GatedRow]:
        """The rows that decide after a second measurement; empty where a regression is certain without it."""
        return [] if self.of("regression") else [row for row in self.rows if row.close]

    @property
    def verdict(self) -> GateVerdict:
        """The worst verdict of its rows: a regression before inconclusive; anything missing is inconclusive, too."""
        if self.of("regression"):
            return "regression"
        return "inconclusive" if self.of("inconclusive") or self.missing else "passed"

    @property
    def footnotes(self) -> list[str]:
        """The notes to print below the rows.

        First comes what differs between the runs, then what is left out. Then come the rows' notes that are not in
        their verdicts: blocks that do not count, requests that failed, how the baseline moved.
        """
        names_of: dict[str, list[str]] = {}
        for gated in self.rows:
            for note in gated.row.notes:
                if gated.row.estimate is not None and note not in gated.said:
                    names_of.setdefault(note, []).append(gated.name)
        of_rows = (f"{', '.join(names)}: {note}" for note, names in names_of.items())
        return [*self.comparison.notes, *self.left_out, *of_rows]

    def exit_status(self, strict: bool) -> int:
        """Return 1 for a regression, 2 if something is inconclusive and `strict` is set, else 0."""
        return {"regression": 1, "inconclusive": 2 if strict else 0, "passed": 0}[self.verdict]


def compute_loss(row: ComparedRow, effect: float) -> float:
    """Return how much is lost by an effect of the row's kind.

    It is a fraction (0.1 = 10 % less rate, 10 % more latency), or in the metric's own unit.
    """
    if not row.relative:
        return -effect if row.more_is_better else effect
    return 1 - exp(effect) if row.more_is_better else expm1(effect)


def format_limit(row: ComparedRow, limit: float) -> str:
    """Format a bound for people: `5 %`, or `0.5 s`."""
    return f"{100 * limit:g} %" if row.relative else find_metric(row.metric).with_unit(limit)


def classify_row(row: ComparedRow, limit: float) -> Case:
    """Return which case a row is, given a bound in its kind; outcomes in the metric's own unit are never close."""
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
    """Return how the candidate failed in all its blocks, if the base has enough valid ones; empty if it did not."""
    base, other = row.counted
    if other or base < stats.MIN_BLOCKS:
        return ""
    return ", ".join(f"{reason} {count}" for reason, count in select_failures(row.other.invalid).items())


def choose_rows(
    comparison: Comparison, rows: Sequence[ComparedRow], bounds: Bounds
) -> tuple[list[ComparedRow], list[str]]:
    """Return (rows to gate, what is left out in words).

    A row is left out if its load never shows its metric, however often it is measured. Unless metrics were named, a row
    that may not be judged is replaced by the row whose metric carries its effect.
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
    """Return (the rows, marked with whether they decide; a line for each metric that does not decide).

    An inconclusive row does not decide if its minimum detectable effect, by its own blocks, is above the bound. Rate and
    CPU per request of closed loops always decide, as do metrics that were named. If all rows are inconclusive, all
    decide: no gate passes on nothing.
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
