"""A comparison and what may get worse → for each row: a regression, passed, or nobody can tell, and which case it is.

A regression is resolved (as the comparison decided, which is not asked anew) and its estimate is beyond the bound, or the candidate does not work where
the base does. Passed is only what an interval shows to be within the bound: a row whose interval reaches beyond it is not called good
because nothing was resolved, nor what is left of a candidate that failed in some blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, expm1
from typing import Literal

from lab.analysis.judge.comparison import Compared, Comparison
from lab.analysis.judge.decision import SURE_P, UNBOUNDED, Decision
from lab.analysis.judge.rulings import ERRORS_MIX, FOLLOWS, GIVEN_RATE, LIMITED, carrier, failures
from lab.model.metrics import about
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.power import resolvable

CLOSED, GIVEN = ("rate", "cpu_per_request"), ("p50", "p99")
"""What is gated unless metrics are named: at a closed loop, and at a given rate."""

Verdict = Literal["regression", "passed", "cannot-tell"]
"""What a decision and a bound come to."""
Case = Literal["broken", "untold", "close", "worse", "fell", "at-least", "open", "within"]
"""No valid block of the candidate by a fault of its own; not compared; worse, but close to the bound; worse; it failed in some blocks; worse by an
unknown amount; the interval reaches beyond the bound; it does not.
"""
VERDICTS: Mapping[Case, Verdict] = {"broken": "regression", "worse": "regression", "within": "passed"}
"""Of all other cases nobody can tell."""

CLOSE = 0.01
"""A regression whose interval begins less than this (a fraction: 1 %) above the bound is measured a second time before it is called one: of one
change measured on several boots the ratios have a standard deviation of 8 to 9.5 %, far beyond what one run's interval says.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much worse is still good. `regression`: of steady loads, a fraction (0.05 = 5 %). `more`: of disturbed ones, outcome metric
    → in its own unit (seconds, bytes, counts). `metrics`: only these of steady loads; empty = what judges a load.
    """

    regression: float | None
    more: Mapping[str, float] = field(default_factory=dict[str, float])
    metrics: tuple[str, ...] = ()

    def of(self, row: Compared) -> float | None:
        """In the row's kind; None: the row is not gated."""
        if not row.relative:
            return self.more.get(row.metric)
        # at a given rate the rate is the load's, unless errors are the subject: then it is that of good answers
        counts = row.point.rate_rps is None or "errors" in row.point.subject
        wanted = self.metrics or (CLOSED if counts else GIVEN)
        return self.regression if row.metric in wanted else None

    def concern(self, point: Point) -> bool:
        """Whether a load of this kind has a bound."""
        return self.regression is not None if point.disturbance is None else bool(self.more)


@dataclass(frozen=True, slots=True)
class Gated:
    """One row with its verdict: `said` is why, `do` what to do about it."""

    row: Compared
    limit: float
    """What it is held to, in the row's kind: a fraction, or the metric's own unit."""
    verdict: Verdict
    said: str
    do: str
    close: bool = False
    """Whether it would be a regression, and is none yet, as its interval begins less than CLOSE above the bound."""
    decides: bool = True
    """Whether it counts. A row that cannot be told apart from its bound in the planned time is listed and counts nothing."""

    @property
    def bound(self) -> str:
        return limit_text(self.row, self.limit)

    @property
    def metric(self) -> str:
        return about(self.row.metric).title

    @property
    def worst(self) -> float | None:
        """The worse end of the interval, as `worse_by`."""
        interval = self.row.estimate.interval if self.row.estimate else None
        return max(worse_by(self.row, end) for end in interval) if interval else None

    @property
    def name(self) -> str:
        """`keepalive at ceiling: rate`."""
        return f"{self.row.place}: {self.metric}"


@dataclass(frozen=True, slots=True)
class Gate:
    """`left_out`: rows that are not judged here and the row that stands for each, in words.
    `missing`: what was asked for and the candidate's run lacks, `arm keepalive`, `metric gap_s`: nobody can tell of these.
    """

    comparison: Comparison
    bounds: Bounds
    rows: tuple[Gated, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]

    def of(self, verdict: Verdict) -> list[Gated]:
        """Return the rows with that verdict which decide."""
        return [row for row in self.rows if row.verdict == verdict and row.decides]

    @property
    def to_measure_again(self) -> list[Gated]:
        """Return the rows that decide after a second measurement; empty where a regression is certain without it."""
        return [] if self.of("regression") else [row for row in self.rows if row.close]

    @property
    def verdict(self) -> Verdict:
        """The worst of its rows: a regression before what nobody can tell, which is also what is missing."""
        if self.of("regression"):
            return "regression"
        return "cannot-tell" if self.of("cannot-tell") or self.missing else "passed"

    @property
    def footnotes(self) -> list[str]:
        """What differs between the runs, first; what is left out; and of the rows what their verdicts leave unsaid: blocks that do
        not count, requests that failed, how the baseline moved.
        """
        named: dict[str, list[str]] = {}
        for one in self.rows:
            for note in one.row.notes:
                if one.row.estimate is not None and note not in one.said:
                    named.setdefault(note, []).append(one.name)
        of_rows = (f"{', '.join(names)}: {note}" for note, names in named.items())
        return [*self.comparison.notes, *self.left_out, *of_rows]

    def exit_status(self, strict: bool) -> int:
        """1: a regression. 2: it cannot tell of everything, and was asked to (`strict`). 0 else."""
        return {"regression": 1, "cannot-tell": 2 if strict else 0, "passed": 0}[self.verdict]


def worse_by(row: Compared, effect: float) -> float:
    """An effect of the row's kind as what is lost by it: a fraction (0.1 = 10 % less rate, 10 % more latency), or in its own unit."""
    if not row.relative:
        return -effect if row.more_is_better else effect
    return 1 - exp(effect) if row.more_is_better else expm1(effect)


def limit_text(row: Compared, limit: float) -> str:
    """`5 %`, or `0.5 s`."""
    return f"{100 * limit:g} %" if row.relative else about(row.metric).with_unit(limit)


def case_of(row: Compared, limit: float) -> Case:
    """Return which case a row is, held to a bound in its kind. Outcomes in units of their own are never close."""
    if broken(row):
        return "broken"
    if row.estimate is None or row.estimate.interval is None or row.decision is Decision.NOT_JUDGED:
        return "untold"
    worse, ends = row.decision is Decision.WORSE, [worse_by(row, end) for end in row.estimate.interval]
    if worse and worse_by(row, row.estimate.effect) > limit:
        return "close" if row.relative and min(ends) < limit + CLOSE else "worse"
    if row.fell:
        return "fell"
    if worse and row.bound:
        return "at-least"
    return "open" if max(ends) > limit else "within"


def broken(row: Compared) -> str:
    """How the candidate failed in all its blocks, where the base has enough that are valid; empty: it did not."""
    base, other = row.counted
    if other or base < stats.MIN_BLOCKS:
        return ""
    return ", ".join(f"{reason} {count}" for reason, count in failures(row.other.invalid).items())


def chosen(comparison: Comparison, rows: Sequence[Compared], bounds: Bounds) -> tuple[list[Compared], list[str]]:
    """(rows to gate, what is left out): a row of a load that never shows its metric, however often it is measured; and, unless metrics
    were named, one that may not be judged, which is replaced by what carries its effect.
    """
    found: list[Compared] = []
    left_out: list[str] = []
    for row in rows:
        if bounds.of(row) is None:
            continue
        if why := next((why for why in (GIVEN_RATE, FOLLOWS) if why in row.notes), ""):
            left_out.append(f"{row.place}: {row.title}: {why}")
            continue
        kept, why = row, next((why for why in (LIMITED, ERRORS_MIX) if why in row.notes), LIMITED if row.bound else "")
        if why and not bounds.metrics and row.decision is Decision.NOT_JUDGED and row.relative:
            # what is judged where this may not be: CPU per request for a rate that the generator limited, …
            metric = carrier(row.metric, row.point, comparison.base.points, {row.metric: why})
            place = row.point, row.pair, metric
            others = (other for other in comparison.rows if (other.point, other.pair, other.metric) == place)
            kept = next((other for other in others if metric != row.metric and other.estimate is not None), row)
        if kept is not row:
            why = UNBOUNDED if row.bound else why
            stands = "" if why == LIMITED else f"; {about(kept.metric).title} stands for it"
            left_out.append(f"{row.place}: {row.title}: {why}{stands}")
        if kept not in found:
            found.append(kept)
    return found, left_out


def detectable(comparison: Comparison, judged: Sequence[Gated], bounds: Bounds) -> tuple[tuple[Gated, ...], list[str]]:
    """(the rows with what decides, a line for each metric that does not): what cannot be told apart from its bound in the planned time.

    Of each row that nobody can tell the minimum detectable effect is asked for, as its own blocks show it. Rate and CPU per request of
    closed loops, and metrics that were named, always decide, and where nothing else is known all rows do: no gate passes on nothing.
    """
    level = SURE_P / max(1, sum(comparison.family))
    noisy: dict[str, list[tuple[Gated, float]]] = {}
    for one in judged:
        estimate = one.row.estimate
        if one.verdict != "cannot-tell" or one.close or not one.row.relative or one.row.fell or bounds.metrics:
            continue
        if one.row.metric not in GIVEN or estimate is None or estimate.sd is None or not estimate.has_interval:
            continue
        effect = resolvable(estimate.sd, estimate.n, level)
        if effect is not None and effect > one.limit:
            noisy.setdefault(one.row.metric, []).append((one, effect))
    aside = [one for rows in noisy.values() for one, _ in rows]
    if all(one.verdict == "cannot-tell" for one in judged):
        return tuple(judged), []
    lines = [
        f"{about(metric).title} does not decide: its minimum detectable effect in the blocks that were planned is above the bound of"
        f" {rows[0][0].bound} ({', '.join(f'{effect:.0%} for {one.row.place}' for one, effect in rows)})"
        for metric, rows in noisy.items()
    ]
    return tuple(replace(one, decides=one not in aside) for one in judged), lines
