"""Latency by percentile over the logarithm of 1/(1-p), as wrk2's plots are drawn: a line per load, panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.report.figures.style import INK, axis_title, dressed, gap, log_axis

ORDERED = (
    "#5b6fd6", "#2b83ba", "#2f9296", "#3a9a5b", "#6f9430", "#a1862b", "#c2762a", "#d9603a", "#d64545", "#c2477f",
)  # fmt: skip
"""For loads that grow, a colour per hundred connections: blue to red, each at least 3 : 1 against white and against #111."""
TICKS = {1.0: "0 %", 10.0: "90 %", 1e2: "99 %", 1e3: "99.9 %", 1e4: "99.99 %", 1e5: "99.999 %", 1e6: "99.9999 %"}
SHOWN = 5
"""So many of the ticks are there however short the lines are."""
PER_HALVING = 5
MARGIN = 1.25
"""How far the axis reaches beyond its lines on a log axis, as a factor."""


@dataclass(frozen=True, slots=True)
class Corner:
    """One percentile of a line: `value` (s, or a ratio), and between what it may lie (None: not known).

    `place` counts the percentiles that wrk2 prints, five for every halving of what lies beyond: 0 to 4 are 0 %, 10 % … 40 %,
    5 to 9 are 50 %, 55 % … 70 %, 10 is 75 %.
    """

    place: int
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def tail(self) -> float:
        """1/(1-p)."""
        return tail(self.place)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line, its corners in order. Where a place is missing between two of them, so is the line. `note`: for the hover text."""

    connections: int
    corners: Sequence[Corner]
    note: str = ""

    @property
    def colour(self) -> str:
        """By its hundreds: the same load has the same colour in every figure."""
        return ORDERED[(ceil(self.connections / 100) - 1) % len(ORDERED)]

    @property
    def parts(self) -> list[list[Corner]]:
        """What hangs together."""
        found: list[list[Corner]] = []
        for corner in self.corners:
            if not found or corner.place != found[-1][-1].place + 1:
                found.append([])
            found[-1].append(corner)
        return found


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: its lines, or `why` there are none."""

    title: str
    curves: Sequence[Curve] = ()
    why: str = "nothing of this was recorded"


def tail(place: int) -> float:
    """1/(1-p) of a percentile that wrk2 prints, by its number (HdrHistogram's percentile ticks, five per half distance)."""
    return 2.0 ** (place // PER_HALVING) / (1 - place % PER_HALVING / (2 * PER_HALVING))


def percentiles(
    panels: Sequence[Panel],
    title: str,
    name: str = "latency",
    unit: str = "s",
    log_y: bool = True,
    shared_y: bool = True,
    below: str = "",
) -> go.Figure:
    """`name` and `unit` (s is written as ms, anything else as it is) head the vertical axis, which the panels share or not."""
    if not any(panel.curves for panel in panels):
        return gap(title, "<br>".join(dict.fromkeys(panel.why for panel in panels)) or "nothing to show")
    scale, written = (1e-3, "ms") if unit == "s" else (1.0, unit)
    first = next(column for column, panel in enumerate(panels, 1) if panel.curves)  # an empty one has no axis to label
    figure = make_subplots(
        rows=1,
        cols=len(panels),
        shared_yaxes=shared_y,
        subplot_titles=[panel.title for panel in panels],
        horizontal_spacing=0.05 if shared_y and first == 1 else 0.09,
    )
    figure.update_annotations(font_size=12)
    dressed(figure, title, 500, below)
    figure.update_layout(margin={"t": 128 if below else 106})
    listed = set[int]()
    for column, panel in enumerate(panels, 1):
        axis = _height(panels if shared_y else [panel], scale, log_y)
        bottom = 10 ** axis["range"][0] if "range" in axis else 0.0
        for curve in sorted(panel.curves, key=lambda curve: curve.connections):
            for trace in (
                *_band(curve, scale, bottom),
                _line(curve, scale, written, curve.connections not in listed),
            ):
                figure.add_trace(trace, row=1, col=column)
            listed.add(curve.connections)
        if not panel.curves:
            _empty(figure, column, panel.why)
        headed = {"title": axis_title(name, written), "showticklabels": True} if column == first or not shared_y else {}
        figure.update_yaxes({"exponentformat": "none"} | axis | headed, row=1, col=column)
    longest = max(corner.tail for panel in panels for curve in panel.curves for corner in curve.corners)
    shown = [tick for number, tick in enumerate(TICKS) if number < SHOWN or tick <= longest]
    return figure.update_xaxes(
        title=axis_title("percentile", ""),
        type="log",
        tickvals=shown,
        ticktext=[TICKS[tick] for tick in shown],
        tickfont={"size": 11},
        range=[0, log10(max(longest, shown[SHOWN - 1])) + 0.08],
    )


def _line(curve: Curve, scale: float, unit: str, listed: bool) -> go.Scatter:
    corners = [corner for part in curve.parts for corner in (*part, None)]
    told = [
        (
            f"{100 * (1 - 1 / corner.tail):.6g} %" if corner else "",
            f"[{corner.low / scale:.4g}, {corner.high / scale:.4g}]"
            if corner and corner.low is not None and corner.high is not None
            else "",
        )
        for corner in corners
    ]
    about, label = f"<br>{curve.note}" if curve.note else "", f"c{curve.connections}"
    return go.Scatter(
        x=[corner and corner.tail for corner in corners],
        y=[corner and corner.value / scale for corner in corners],
        mode="lines+markers",
        line={"color": curve.colour, "width": 1.5},
        marker={"size": 3},
        customdata=told,
        hovertemplate=f"%{{customdata[0]}}: <b>%{{y:.4g}} {unit}</b> %{{customdata[1]}}{about}<extra>{label}</extra>",
        name=label,
        legendgroup=label,
        legendrank=curve.connections,
        showlegend=listed,
    )


def _band(curve: Curve, scale: float, bottom: float) -> list[go.Scatter]:
    """Between `low` and `high`, down to `bottom`: nothing lies at 0 on a log axis; none where nothing has ends."""
    edges: list[tuple[float | None, float | None]] = []
    for part in curve.parts:
        ends = [(each.tail, each.low, each.high) for each in part if each.low is not None and each.high is not None]
        edges += [(at, max(high / scale, bottom)) for at, _, high in ends]
        edges += [(at, max(low / scale, bottom)) for at, low, _ in reversed(ends)]
        edges += [(None, None)] if ends else []
    red, green, blue = (int(curve.colour[place : place + 2], 16) for place in (1, 3, 5))
    area = go.Scatter(
        x=[at for at, _ in edges],
        y=[value for _, value in edges],
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.15)",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=f"c{curve.connections}",
        showlegend=False,
    )
    return [area] if edges else []


def _height(panels: Sequence[Panel], scale: float, log_y: bool) -> dict[str, Any]:
    """The vertical axis of these panels. A log axis has its range by the lines, as a band may reach down to 0."""
    corners = [corner for panel in panels for curve in panel.curves for corner in curve.corners]
    values = [corner.value / scale for corner in corners if corner.value > 0]
    axis: dict[str, Any] = log_axis(values) if log_y and values else {"type": "linear", "rangemode": "tozero"}
    if axis["type"] == "log":
        top = max(value / scale for corner in corners for value in (corner.value, corner.high) if value is not None)
        axis["range"] = [log10(min(values) / MARGIN), log10(top * MARGIN)]
    return axis


def _empty(figure: go.Figure, column: int, why: str) -> None:
    """The reason in the panel's middle, in a dotted frame as `gap` has it.

    On the paper, as plotly knows no axes of a subplot without a trace; with its anchors, which plotly would else choose by where
    on the paper the text is.
    """
    layout: Any = figure.layout
    number = "" if column == 1 else column
    left, right = layout[f"xaxis{number}"].domain
    low, high = layout[f"yaxis{number}"].domain
    paper = {"xref": "paper", "yref": "paper"}
    middle = {"x": (left + right) / 2, "y": (low + high) / 2, "xanchor": "center", "yanchor": "middle"}
    figure.add_annotation(text=why, showarrow=False, font={"size": 12}, **middle, **paper)
    line = {"color": INK, "dash": "dot", "width": 1}
    figure.add_shape(type="rect", x0=left, x1=right, y0=low, y1=high, line=line, **paper)
