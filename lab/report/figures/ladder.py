"""What a request costs, taken apart: one bar for each step between two systems, as long as it costs, each hanging where the one above it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from lab.report.figures.style import COLOURS, FAINT, INK, NOTHING, axis, drawn, noted, small

ROW = 46
"""Pixels."""
APART = (
    "violet: no pair's, but what one target alone counts, and what two targets' medians differ by; nothing is pooled"
)


@dataclass(frozen=True, slots=True)
class Rung:
    """A row, in seconds a request: a `whole` cost from 0 on, or a step from `start` to `end`, whose 95 % interval is `low` to `high`
    (None: too few blocks for one). `text` is written below its label, `note` seen by who points at it. `apart`: no pair told it, but two
    levels, each measured by itself.
    """

    label: str
    end: float
    start: float = 0.0
    low: float | None = None
    high: float | None = None
    text: str = ""
    note: str = ""
    whole: bool = False
    apart: bool = False

    @property
    def reach(self) -> tuple[float, float]:
        """The ends of the interval; without one both are the row's own."""
        return (self.end, self.end) if self.low is None or self.high is None else (self.low, self.high)

    @property
    def colour(self) -> str:
        if self.whole or self.apart:
            return FAINT if self.whole else COLOURS[4]
        return COLOURS[0] if self.end <= self.start else COLOURS[1]


def ladder(rungs: Sequence[Rung], title: str, why: str = NOTHING) -> go.Figure:
    """The first stands at the top. `why`: what is written where there is none."""
    places = list(range(len(rungs)))
    bars = go.Bar(
        orientation="h",
        y=places,
        base=[1e6 * min(rung.start, rung.end) for rung in rungs],
        x=[1e6 * abs(rung.end - rung.start) for rung in rungs],
        marker={"color": [rung.colour for rung in rungs]},
        width=0.55,
        customdata=[(rung.label, rung.text, rung.note) for rung in rungs],
        hovertemplate="%{customdata[0]}: <b>%{customdata[1]}</b><br>%{customdata[2]}<extra></extra>",
        showlegend=False,
    )
    reaching = go.Scatter(
        x=[1e6 * rung.end for rung in rungs],
        y=places,
        mode="markers",
        marker={"color": INK, "size": 1},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [1e6 * (rung.reach[1] - rung.end) for rung in rungs],
            "arrayminus": [1e6 * (rung.end - rung.reach[0]) for rung in rungs],
            "color": INK,
            "thickness": 1.5,
            "width": 5,
        },
        hoverinfo="skip",
        showlegend=False,
    )
    figure = drawn(
        [bars, reaching] if rungs else [],
        title,
        150 + ROW * len(rungs),
        "grey: a whole request, measured alone; a step: by its pair, from where the one before it ends (its µs: of what its baseline cost alone); thin lines: 95 %",
        axis("CPU of the proxy for a request", "µs", rangemode="tozero"),
        {
            "range": [len(rungs) - 0.5, -0.5],
            "tickvals": places,
            "ticktext": [f"{rung.label}<br>{small(rung.text)}" for rung in rungs],
            "automargin": True,
            "ticks": "",
        },
        why,
    )
    return noted(figure, APART) if any(rung.apart for rung in rungs) else figure
