"""Ratios as published and as measured, row by row: each of its own machine, on one logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from lab.report.figures.intervals import Told
from lab.report.figures.style import COLOURS, INK, axis_title, dressed, gap

TICKS = [base * 10.0**power for power in range(-4, 5) for base in (1, 2, 5)]
LONG = 24
"""Characters of a label that fit beside a plot on a phone."""
APART = 0.16
"""How far a row's two marks stand from its middle, in rows."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One row. `measured` carries its interval and note; None: nothing was, and `why`."""

    label: str
    published: float | None
    measured: Told | None
    why: str = ""


def beside(rows: Sequence[Pair], title: str, name: str, unit: str) -> go.Figure:
    """The first row stands at the top; a row without either side is left out."""
    shown = [row for row in rows if row.published or (row.measured and row.measured.value)]
    if not shown:
        return gap(title, "nothing of this was published or recorded")
    figure = go.Figure()
    places = dict(zip((row.label for row in shown), range(len(shown)), strict=True))
    told = [(places[row.label] - APART, row.label, row.published) for row in shown if row.published]
    figure.add_trace(
        go.Scatter(
            x=[value for _, _, value in told],
            y=[place for place, _, _ in told],
            customdata=[label for _, label, _ in told],
            mode="markers",
            marker={"color": INK, "size": 10, "symbol": "diamond-open", "line": {"width": 2}},
            hovertemplate=f"%{{customdata}}: <b>%{{x:.4g}} {unit}</b><extra>published</extra>",
            name="published",
        )
    )
    ours = [(places[row.label] + APART, row.measured) for row in shown if row.measured and row.measured.value]
    if ours:
        figure.add_trace(_measured(ours, unit))
    dressed(figure, title, 180 + 34 * len(shown), "each relative to its own machine's reference; bars: 95 %")
    figure.update_layout(showlegend=True)
    figure.add_vline(x=1, line={"color": INK, "width": 1})
    ticks: dict[str, Any] = {
        "tickvals": list(places.values()),
        "ticktext": [_folded(label) for label in places],
        "automargin": True,
        "ticks": "",
    }
    figure.update_yaxes(range=[len(shown) - 0.5, -0.5], **ticks)
    marks = [value for _, _, value in told] + [
        end for _, each in ours for end in (each.low, each.value, each.high) if end
    ]
    shown_at = [tick for tick in TICKS if min(marks) / 2 <= tick <= max(marks) * 2]
    figure.update_xaxes(
        title=axis_title(name, unit), type="log", tickvals=shown_at, ticktext=[f"{size:g}" for size in shown_at]
    )
    return figure


def _folded(label: str) -> str:
    """Its last part on a line of its own, where a phone would have no room for both."""
    head, between, tail = label.rpartition(" · ")
    return f"{head}<br>{tail}" if between and len(label) > LONG else label


def _measured(ours: Sequence[tuple[float, Told]], unit: str) -> go.Scatter:
    values = [told.value or 0.0 for _, told in ours]
    return go.Scatter(
        x=values,
        y=[place for place, _ in ours],
        customdata=[(told.label, told.note) for _, told in ours],
        mode="markers",
        marker={"color": COLOURS[0], "size": 10, "symbol": "diamond"},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [
                0.0 if told.high is None else told.high - value for (_, told), value in zip(ours, values, strict=True)
            ],
            "arrayminus": [
                0.0 if told.low is None else value - told.low for (_, told), value in zip(ours, values, strict=True)
            ],
            "color": COLOURS[0],
            "thickness": 2,
            "width": 5,
        },
        hovertemplate=f"%{{customdata[0]}}: <b>%{{x:.4g}} {unit}</b><br>%{{customdata[1]}}<extra>here</extra>",
        name="here",
    )
