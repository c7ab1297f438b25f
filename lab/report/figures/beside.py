"""Ratios as published and as measured, row by row: each of its own machine, on one logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from lab.report.figures.intervals import Told, reach
from lab.report.figures.style import COLOURS, INK, axis, drawn

TICKS = [base * 10.0**power for power in range(-4, 5) for base in (1, 2, 5)]
LONG = 24
"""Characters of a label that fit beside a plot on a phone."""
ROW, FOLDED_ROW = 34, 42
"""Pixels of a row, whose label may be of two lines."""
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
    places = {row.label: place for place, row in enumerate(shown)}
    told = [(row.label, row.published) for row in shown if row.published]
    ours = [(places[row.label], row.measured) for row in shown if row.measured and row.measured.value]
    published = go.Scatter(
        x=[value for _, value in told],
        y=[places[label] - APART for label, _ in told],
        customdata=[label for label, _ in told],
        mode="markers",
        marker={"color": INK, "size": 10, "symbol": "diamond-open", "line": {"width": 2}},
        hovertemplate=f"%{{customdata}}: <b>%{{x:.4g}} {unit}</b><extra>published</extra>",
        name="published",
    )
    measured = go.Scatter(
        x=[each.value for _, each in ours],
        y=[place + APART for place, _ in ours],
        customdata=[(each.label, each.note) for _, each in ours],
        mode="markers",
        marker={"color": COLOURS[0], "size": 10, "symbol": "diamond"},
        error_x=reach([each for _, each in ours], 1.0, COLOURS[0], thickness=2, width=5),
        hovertemplate=f"%{{customdata[0]}}: <b>%{{x:.4g}} {unit}</b><br>%{{customdata[1]}}<extra>here</extra>",
        name="here",
    )
    marks = [
        *(value for _, value in told),
        *(end for _, each in ours for end in (each.low, each.value, each.high) if end),
    ]
    ticks = [tick for tick in TICKS if marks and min(marks) / 2 <= tick <= max(marks) * 2]
    figure = drawn(
        [published, *([measured] if ours else [])] if shown else [],
        title,
        180 + (FOLDED_ROW if any("<br>" in _folded(label) for label in places) else ROW) * len(shown),
        "each relative to its own machine's reference; bars: 95 %",
        axis(name, unit, type="log", tickvals=ticks, ticktext=[f"{size:g}" for size in ticks]),
        {
            "range": [len(shown) - 0.5, -0.5],
            "tickvals": list(places.values()),
            "ticktext": [_folded(label) for label in places],
            "automargin": True,
            "ticks": "",
        },
        "nothing of this was published or recorded",
    )
    return figure.update_layout(showlegend=True).add_vline(x=1, line={"color": INK, "width": 1}) if shown else figure


def _folded(label: str) -> str:
    """Its last part on a line of its own, where a phone would have no room for both."""
    head, between, tail = label.rpartition(" · ")
    return f"{head}<br>{tail}" if between and len(label) > LONG else label
