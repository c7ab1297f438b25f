"""Ways to compare two systems as people read them: how much a round scatters, and what one pair repeats of it."""

from __future__ import annotations

from lab.analysis.pairs import Report
from lab.model.metrics import METRICS
from lab.report import grid
from lab.report.grid import Grid, Heading, Part, columns, plain

HEADERS = ("metric", "way", "effect", "sd", "repeat", "rounds")
LEGEND = (
    "effect: mean of the rounds, per cent of the baseline's; sd: of one round; repeat: of one measurement about its pair's mean",
    "plain: each alone, one after the other; slices: one of the two at any time; together: both at once",
)


def page(report: Report) -> list[Part]:
    """The table by variant and point, its legend, and how much of what was measured counted."""
    rows = (
        grid.row(
            METRICS[row.metric].short,
            row.way,
            f"{row.mean:+.1f} %",
            _percent(row.sd),
            _percent(row.repeat_sd),
            str(row.rounds),
            under=[Heading(f"{row.variant} at {row.point}")],
        )
        for row in report.rows
    )
    counted = f"{report.valid} of {report.measured} measurements counted"
    return [Grid(columns(HEADERS, left=(0, 1)), tuple(rows)), *(plain(text, "dim") for text in (*LEGEND, counted))]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} %"
