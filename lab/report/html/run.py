"""A run's own page: one HTML file that opens by a double click, beside the run or where it is asked for.

    write(Result(run), Path("data/runs/RUN"))  →  data/runs/RUN/report.html

What the terminal says at a run's end and what it has no room for: every effect as an interval, all notes, how it was measured. It has
no script and asks nobody for anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from pathlib import Path

from lab.analysis import rerun
from lab.analysis.explain.run import Verdict, effect_text, noise_line, verdicts
from lab.analysis.judge.rows import Summary
from lab.base.files import replace, written_to
from lab.model.metrics import about
from lab.report.grid import Part
from lab.report.html.rendering import html, kind_of, rendered
from lab.report.loads import point_text
from lab.report.markdown import markdown
from lab.report.result import Result

FILE = "report.html"
LEAST_SPAN = 2.5
"""Of the figure's axis, times what is worth knowing: what is smaller than that looks small."""
APART = 12
"""Per cent of its width between two marks, so that their labels do not meet."""


@dataclass(frozen=True, slots=True)
class Line:
    """One effect: percentages of the figure's width from its left edge, and in words. `kind`: its decision, as a class of CSS."""

    arm: str
    point: str
    text: str
    kind: str
    at: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Figure:
    """Effects on one axis. `worth`: its two ends; `ticks`: (place, label)."""

    lines: tuple[Line, ...]
    worth: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]


def write(result: Result, folder: Path, more: Sequence[Sequence[Part]] = ()) -> Path:
    """`more`: further tables. UsageError where it cannot be written; an older one is replaced, whole or not at all."""
    path, record = folder / FILE, result.run.record
    tried = [(arm.name, arm.baseline) for arm in record.arms if arm.role == "variant"]
    names, bases = [name for name, _ in tried], dict.fromkeys(base for _, base in tried if base)
    title = f"{', '.join(names)} against {', '.join(bases)}"
    if not tried:
        title = ", ".join(arm.name for arm in record.arms if arm.role == "baseline")
    text = rendered(
        "run.html",
        record=record,
        title=title,
        verdicts=[
            verdict
            for summary in result.told
            for verdict in verdicts(summary) or [Verdict("", "unresolved", noise_line(summary))][: len(summary.rows)]
        ],
        figure=figure_of(result.told),
        tables=[html(markdown(page), below=2) for page in (*result.tables(), *more) if page],
        loads=[(point.name, point_text(point)) for point in record.points],
        again=rerun.measure(record, " ".join(names) or "ingress-nginx"),
        folder=result.run.folder,
    )
    with written_to("--output", path):
        folder.mkdir(parents=True, exist_ok=True)
        replace(path, text.encode())
    return path


def figure_of(summaries: Sequence[Summary]) -> Figure | None:
    """The effects of the table that are ratios and have an interval, in its order; None where there are none."""
    found = [
        (row, effect, effect.estimate.effect, effect.estimate.interval)
        for summary in summaries
        for row in summary.rows
        for effect in row.shown
        if effect.estimate and effect.estimate.interval and about(effect.metric).ratio
    ]
    if not found:
        return None
    worth = max(effect.size.worth for _, effect, _, _ in found)
    span = 1.05 * max(LEAST_SPAN * worth, *(abs(end) for *_, ends in found for end in ends))

    def place(log_ratio: float) -> float:
        return round(50 + 50 * log_ratio / span, 2)

    lines: list[Line] = []
    for row, effect, middle, ends in found:
        text, places = effect_text(effect), map(place, (middle, *ends))
        lines.append(Line(row.arm.name, row.point.name, text, kind_of(effect.decision.value), *places))
    ticks = [(50.0, "0")]  # no change, and on either side those that fit, the largest first
    for sign in (1, -1):
        last = 100 + APART / 2
        for share in (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005):
            away = abs(place(log1p(sign * share)) - 50) + 50 if sign * share > -1 else 100.0
            if away < min(95, last - APART) and away > 50 + APART:
                ticks.append((away if sign > 0 else 100 - away, f"{'+' if sign > 0 else '−'}{100 * share:g} %"))
                last = away
    return Figure(tuple(lines), (place(-worth), place(worth)), tuple(ticks))
