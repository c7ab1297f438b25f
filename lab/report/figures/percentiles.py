"""The figure of latency by percentile: like wrk2's plots, its horizontal axis is the logarithm of 1/(1-p) for a percentile p.

Each load has a line. A figure may have several panels side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.report.figures.style import INK, add_frame, axis_title, log_axis, make_empty_figure

ORDERED = (
    "#5b6fd6", "#2b83ba", "#2f9296", "#3a9a5b", "#6f9430", "#a1862b", "#c2762a", "#d9603a", "#d64545", "#c2477f",
)  # fmt: skip
"""The colours of increasing loads, one per hundred connections, from blue to red.

Each has a contrast of at least 3 : 1 against white and against #111.
"""
TICKS = {1.0: "0 %", 10.0: "90 %", 1e2: "99 %", 1e3: "99.9 %", 1e4: "99.99 %", 1e5: "99.999 %", 1e6: "99.9999 %"}
SHOWN = 5
"""The number of ticks that are shown however short the lines are."""
PER_HALVING = 5
MARGIN = 1.25
"""The factor by which a log axis reaches beyond its lines."""


@dataclass(frozen=True, slots=True)
class PercentilePoint:
    """One point of a line that shows latency by percentile.

    Attributes:
        place: The position of the percentile in the list that wrk2 prints. Position 0 is 0 %, 1 is 10 %, 5 is 50 %, 6 is 55 %, 10 is 75 %.
            Every five positions, the share of slower requests halves.
        value: The latency in seconds, or a ratio.
        low: The lower end of the band; None: not known.
        high: The upper end of the band; None: not known.

    """

    place: int
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def tail(self) -> float:
        """The horizontal position of a point of a latency curve: 1/(1-p) for its percentile p, for example 100 for 99 %."""
        return reciprocal_tail(self.place)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line that shows latency by percentile, for a load with some number of connections.

    Attributes:
        connections: The number of connections of the load.
        corners: The points of the line in ascending order. The line is interrupted where a percentile is missing.
        note: A part of the hover text.

    """

    connections: int
    corners: Sequence[PercentilePoint]
    note: str = ""

    @property
    def colour(self) -> str:
        """The colour of a latency line, for example `#5b6fd6`. It depends only on the number of connections of the load.

        So a load has the same colour in every figure.
        """
        return ORDERED[(ceil(self.connections / 100) - 1) % len(ORDERED)]

    @property
    def parts(self) -> list[list[PercentilePoint]]:
        """The points of a latency line in groups without gaps: a new group begins where a percentile is missing."""
        parts: list[list[PercentilePoint]] = []
        for corner in self.corners:
            if not parts or corner.place != parts[-1][-1].place + 1:
                parts.append([])
            parts[-1].append(corner)
        return parts


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a figure of latencies by percentile.

    Attributes:
        title: The panel's title.
        curves: The lines in it.
        why: The reason to show if there are no lines.

    """

    title: str
    curves: Sequence[Curve] = ()
    why: str = "nothing of this was recorded"


def reciprocal_tail(place: int) -> float:
    """Return 1/(1-p) for a percentile p that wrk2 prints, given its number: 0 → 1 (0 %), 5 → 2 (50 %), 10 → 4 (75 %).

    wrk2 prints the percentiles of HdrHistogram. After every five of them, the share of slower requests has halved.

    Args:
        place: The number of the percentile, from 0.

    """
    return 2.0 ** (place // PER_HALVING) / (1 - place % PER_HALVING / (2 * PER_HALVING))


def percentiles(
    panels: Sequence[Panel],
    title: str,
    name: str = "latency",
    unit: str = "s",
    log_y: bool = True,
    shared_y: bool = True,
    subtitle: str = "",
) -> go.Figure:
    """Return the figure of latency by percentile, with panels side by side.

    If no panel has a line, the result is an empty figure with the reasons of its panels.

    Args:
        panels: The panels.
        title: The title of the figure.
        name: The name of the vertical axis.
        unit: The unit of the vertical axis. Seconds are written as ms, any other unit as it is.
        log_y: Whether the vertical axis is logarithmic.
        shared_y: Whether the panels share the vertical axis.
        subtitle: The line below the title.

    """
    if not any(panel.curves for panel in panels):
        return make_empty_figure(title, "<br>".join(dict.fromkeys(panel.why for panel in panels)) or "nothing to show")
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
    add_frame(figure, title, 500, subtitle)
    figure.update_layout(margin={"t": 128 if subtitle else 106})
    listed = set[int]()
    for column, panel in enumerate(panels, 1):
        axis = _make_vertical_axis(panels if shared_y else [panel], scale, log_y)
        bottom = 10 ** axis["range"][0] if "range" in axis else 0.0
        for curve in sorted(panel.curves, key=lambda curve: curve.connections):
            for trace in (
                *_make_band(curve, scale, bottom),
                _make_line(curve, scale, written, curve.connections not in listed),
            ):
                figure.add_trace(trace, row=1, col=column)
            listed.add(curve.connections)
        if not panel.curves:
            _annotate_empty_panel(figure, column, panel.why)
        headed = {"title": axis_title(name, written), "showticklabels": True} if column == first or not shared_y else {}
        figure.update_yaxes({"exponentformat": "none"} | axis | headed, row=1, col=column)
    longest = max(corner.tail for panel in panels for curve in panel.curves for corner in curve.corners)
    ticks = [tick for number, tick in enumerate(TICKS) if number < SHOWN or tick <= longest]
    return figure.update_xaxes(
        title=axis_title("percentile", ""),
        type="log",
        tickvals=ticks,
        ticktext=[TICKS[tick] for tick in ticks],
        tickfont={"size": 11},
        range=[0, log10(max(longest, ticks[SHOWN - 1])) + 0.08],
    )


def _make_line(curve: Curve, scale: float, unit: str, listed: bool) -> go.Scatter:
    corners = [corner for part in curve.parts for corner in (*part, None)]
    hover_data = [
        (
            f"{100 * (1 - 1 / corner.tail):.6g} %" if corner else "",
            f"[{corner.low / scale:.4g}, {corner.high / scale:.4g}]"
            if corner and corner.low is not None and corner.high is not None
            else "",
        )
        for corner in corners
    ]
    note, label = f"<br>{curve.note}" if curve.note else "", f"c{curve.connections}"
    return go.Scatter(
        x=[corner and corner.tail for corner in corners],
        y=[corner and corner.value / scale for corner in corners],
        mode="lines+markers",
        line={"color": curve.colour, "width": 1.5},
        marker={"size": 3},
        customdata=hover_data,
        hovertemplate=f"%{{customdata[0]}}: <b>%{{y:.4g}} {unit}</b> %{{customdata[1]}}{note}<extra>{label}</extra>",
        name=label,
        legendgroup=label,
        legendrank=curve.connections,
        showlegend=listed,
    )


def _make_band(curve: Curve, scale: float, bottom: float) -> list[go.Scatter]:
    """Return the area between the lower and the upper ends of a line's points; empty if no point has both ends.

    Args:
        curve: The line.
        scale: The divisor of all values.
        bottom: The lowest value of the area, since a logarithmic axis has no place for 0.

    """
    edges: list[tuple[float | None, float | None]] = []
    for part in curve.parts:
        ends = [
            (corner.tail, corner.low, corner.high)
            for corner in part
            if corner.low is not None and corner.high is not None
        ]
        edges += [(place, max(high / scale, bottom)) for place, _, high in ends]
        edges += [(place, max(low / scale, bottom)) for place, low, _ in reversed(ends)]
        edges += [(None, None)] if ends else []
    red, green, blue = (int(curve.colour[start : start + 2], 16) for start in (1, 3, 5))
    area = go.Scatter(
        x=[place for place, _ in edges],
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


def _make_vertical_axis(panels: Sequence[Panel], scale: float, log_y: bool) -> dict[str, Any]:
    """Return plotly's settings for the vertical axis of some panels.

    The lower end of a logarithmic axis follows from the lines alone, since a band may reach down to 0.

    Args:
        panels: The panels.
        scale: The divisor of all values.
        log_y: Whether the axis should be logarithmic.

    """
    corners = [corner for panel in panels for curve in panel.curves for corner in curve.corners]
    values = [corner.value / scale for corner in corners if corner.value > 0]
    axis: dict[str, Any] = log_axis(values) if log_y and values else {"type": "linear", "rangemode": "tozero"}
    if axis["type"] == "log":
        top = max(value / scale for corner in corners for value in (corner.value, corner.high) if value is not None)
        axis["range"] = [log10(min(values) / MARGIN), log10(top * MARGIN)]
    return axis


def _annotate_empty_panel(figure: go.Figure, column: int, reason: str) -> None:
    """Write the reason into the middle of a panel without lines, and draw a dotted frame around the panel.

    Text and frame are positioned relative to the whole figure, since plotly has no axes for a panel without a trace.

    Args:
        figure: The figure.
        column: The number of the panel, from 1.
        reason: The reason.

    """
    layout: Any = figure.layout
    number = "" if column == 1 else column
    left, right = layout[f"xaxis{number}"].domain
    low, high = layout[f"yaxis{number}"].domain
    paper = {"xref": "paper", "yref": "paper"}
    middle = {"x": (left + right) / 2, "y": (low + high) / 2, "xanchor": "center", "yanchor": "middle"}
    figure.add_annotation(text=reason, showarrow=False, font={"size": 12}, **middle, **paper)
    line = {"color": INK, "dash": "dot", "width": 1}
    figure.add_shape(type="rect", x0=left, x1=right, y0=low, y1=high, line=line, **paper)
