"""The page of a run: one HTML file with all results, which needs no server, no script and no network.

    write_page(RunResult(run), Path("data/runs/RUN"))  →  data/runs/RUN/report.html

The page has everything that the terminal prints at the end of a run. It also has a figure of all effects with their intervals,
all notes, and a description of how the run was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from pathlib import Path

from lab.analysis import rerun
from lab.analysis.explain.conclusion import conclude_run
from lab.analysis.explain.run import format_effect
from lab.analysis.judge.rows import Summary
from lab.base.files import as_option_error, replace_file
from lab.model.metrics import find_metric
from lab.report.grid import Part
from lab.report.html.rendering import css_class_of, fill_template, render_html
from lab.report.loads import describe_point
from lab.report.markdown import render_markdown
from lab.report.result import RunResult, describe_programs

FILE = "report.html"
LEAST_SPAN = 2.5
"""The least half-width of the figure's axis, in equivalence margins, so that smaller effects look small."""
APART = 12
"""The least distance between two marks, in per cent of the figure's width, so that their labels do not meet."""


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One effect in the figure of a run's page: an arm (variant of the run) against its baseline.

    All positions are in per cent of the figure's width, from its left edge.

    Attributes:
        arm: The name of the arm.
        point: The name of the load point.
        text: The effect in words.
        kind: The decision about the effect, as a CSS class name.
        at: The position of the estimate.
        low: The position of the interval's lower end.
        high: The position of the interval's upper end.

    """

    arm: str
    point: str
    text: str
    kind: str
    at: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EffectFigure:
    """The figure on a run's page, which shows effects on a common axis. All positions are in per cent of the figure's width.

    Attributes:
        lines: The effects.
        margin: The positions of both ends of the equivalence margin.
        ticks: (position, label) of each tick.

    """

    lines: tuple[EffectLine, ...]
    margin: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]


def write_page(result: RunResult, folder: Path, further_tables: Sequence[Sequence[Part]] = ()) -> Path:
    """Write the HTML page of a run into a folder, and return the page's path.

    An older page is replaced completely or not at all.

    Args:
        result: The result of the run.
        folder: The folder, which is created if it does not exist.
        further_tables: Tables to add after those of the result.

    Raises:
        UsageError: The page cannot be written.

    """
    path, record = folder / FILE, result.run.record
    tried = [(arm.name, arm.baseline) for arm in record.arms if arm.role == "variant"]
    names, bases = [name for name, _ in tried], dict.fromkeys(base for _, base in tried if base)
    title = (
        f"{', '.join(names)} against {', '.join(bases)}"
        if tried
        else ", ".join(arm.name for arm in record.arms if arm.role == "baseline")
    )
    text = fill_template(
        "run.html",
        record=record,
        title=title,
        programs=describe_programs(result.run),
        conclusions=[line for summary in result.shown_summaries for line in conclude_run(summary, record)],
        figure=make_figure(result.shown_summaries),
        tables=[render_html(render_markdown(page), below=2) for page in (*result.tables(), *further_tables) if page],
        loads=[(point.name, describe_point(point)) for point in record.points],
        again=rerun.measure_command(record, " ".join(names) or "ingress-nginx"),
        folder=result.run.folder,
    )
    with as_option_error("--output", path):
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    return path


def make_figure(summaries: Sequence[Summary]) -> EffectFigure | None:
    """Return the figure with all effects of a run that are ratios and have an interval; None if there is no such effect.

    The effects are in the order of the table.
    """
    ratios = [
        (row, effect, effect.estimate.effect, effect.estimate.interval)
        for summary in summaries
        for row in summary.rows
        for effect in row.shown
        if effect.estimate and effect.estimate.interval and find_metric(effect.metric).ratio
    ]
    if not ratios:
        return None
    margin = max(effect.size.margin for _, effect, _, _ in ratios)
    span = 1.05 * max(LEAST_SPAN * margin, *(abs(end) for *_, ends in ratios for end in ends))

    def place(log_ratio: float) -> float:
        return round(50 + 50 * log_ratio / span, 2)

    lines: list[EffectLine] = []
    for row, effect, middle, ends in ratios:
        text, places = format_effect(effect), map(place, (middle, *ends))
        lines.append(EffectLine(row.arm.name, row.point.name, text, css_class_of(effect.decision.value), *places))
    ticks = [(50.0, "0")]  # no change, and on either side the ticks that fit, the largest first
    for sign in (1, -1):
        last = 100 + APART / 2
        for share in (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005):
            distance = abs(place(log1p(sign * share)) - 50) + 50 if sign * share > -1 else 100.0
            if distance < min(95, last - APART) and distance > 50 + APART:
                ticks.append((distance if sign > 0 else 100 - distance, f"{'+' if sign > 0 else '−'}{100 * share:g} %"))
                last = distance
    return EffectFigure(tuple(lines), (place(-margin), place(margin)), tuple(ticks))
