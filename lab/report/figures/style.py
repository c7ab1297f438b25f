"""The appearance of all figures: colours that are legible on white and on black, and the frame around a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

INK = "#7b7b7b"
"""The colour of text; its contrast is 4.2 : 1 against white and 4.5 : 1 against #111 (WCAG's relative luminance)."""
GRID = "rgba(128,128,128,0.25)"
COLOURS = ("#2b83ba", "#d7722c", "#3a9a5b", "#c2477f", "#8a6fc7", "#a1862b", "#3aa0a0", "#b5554a")
"""The colours of arms in their order, each with a contrast of at least 3 : 1 against white and against #111."""
BAD, FAINT = "#d64545", "rgba(128,128,128,0.55)"
FAILURES = {
    "status": "#d7722c",
    "connect": "#d64545",
    "read": "#c2477f",
    "write": "#8a6fc7",
    "timeout": "#a1862b",
    "other": "#7b7b7b",
}
"""The colours of failures, by the kinds of `lab.analysis.timelines.FAILED`."""
MARKS = {
    "disturbance": "#c2477f",
    "pods": "#2b83ba",
    "probes": "#d64545",
    "endpoints": "#3aa0a0",
    "reloads": "#8a6fc7",
    "connections": "#d7722c",
}
NOTHING = "nothing of this was recorded"
LINE_HEIGHT = 22
"""The height in pixels of a line below a title: plotly gives small text the line spacing of the title."""


def add_frame(figure: go.Figure, title: str, height: int = 380, subtitle: str = "") -> go.Figure:
    """Give a figure the lab's common style (title, subtitle, colours, axes, legend below the plot), and return it.

    Args:
        figure: The figure, which is changed.
        title: The title.
        height: The height in pixels.
        subtitle: A line below the title; empty: none.

    """
    second_line = f"<br>{small(subtitle)}" if subtitle else ""
    figure.update_layout(
        template="none",
        title={
            "text": f"{title}{second_line}",
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 16},
        },
        font={"color": INK, "size": 13},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=COLOURS,
        height=height,
        margin={"l": 80, "r": 30, "t": 84 if subtitle else 62, "b": 70},
        legend={"orientation": "h", "yanchor": "top", "y": -60 / max(1, height - 150), "x": 0},
        hoverlabel={"font": {"color": "#ffffff"}, "bgcolor": "#444444"},
        hovermode="closest",
    )
    axis: dict[str, Any] = {
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": INK,
        "ticks": "outside",
        "tickcolor": INK,
    }
    figure.update_xaxes(showline=True, **axis)
    figure.update_yaxes(showline=True, **axis)
    return figure


def make_figure(
    traces: Sequence[Any],
    title: str,
    height: int,
    subtitle: str,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    reason: str = NOTHING,
) -> go.Figure:
    """Return a figure in the lab's common style, made from plotly traces; without any trace, an empty figure with the reason.

    Args:
        traces: The traces.
        title: The title.
        height: The height in pixels.
        subtitle: The line below the title.
        x: Plotly's settings for the horizontal axis.
        y: Plotly's settings for the vertical axis.
        reason: The reason why there are no traces.

    """
    if not traces:
        return make_empty_figure(title, reason)
    return add_frame(go.Figure(traces), title, height, subtitle).update_xaxes(x).update_yaxes(y)


def make_stacked_figure(
    traces: Sequence[tuple[int, Any]],
    title: str,
    height: int,
    subtitle: str,
    x: Mapping[str, Any],
    ys: Sequence[Mapping[str, Any]],
    **spacing: Any,
) -> go.Figure:
    """Return a figure with panels above each other that share the horizontal axis, in the lab's common style.

    Args:
        traces: (number of its panel from 1, trace) for each trace.
        title: The title.
        height: The height in pixels.
        subtitle: The line below the title.
        x: Plotly's settings for the horizontal axis.
        ys: Plotly's settings for the vertical axis of each panel.
        **spacing: Further arguments of plotly's `make_subplots`.

    """
    figure = make_subplots(rows=len(ys), cols=1, shared_xaxes=True, **spacing)
    for panel, trace in traces:
        figure.add_trace(trace, row=panel, col=1)
    add_frame(figure, title, height, subtitle)
    for panel, y in enumerate(ys, 1):
        figure.update_yaxes(y, row=panel, col=1)
    return figure.update_xaxes(x, row=len(ys), col=1)


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name: name → colour such as `#2b83ba`. The colours repeat if there are more names than colours."""
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def error_bars(
    ends: Sequence[tuple[float, float | None, float | None]], scale: float = 1.0, **settings: Any
) -> dict[str, Any]:
    """Return plotly's settings for error bars from each value to the ends of its interval.

    A value without an interval has bars of length 0.

    Args:
        ends: (value, lower end, upper end) for each value.
        scale: The divisor of all lengths.
        **settings: Further settings of the bars.

    """
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if high is None else (high - value) / scale for value, _, high in ends],
        "arrayminus": [0.0 if low is None else (value - low) / scale for value, low, _ in ends],
        **settings,
    }


def rows_axis(labels: Sequence[str]) -> dict[str, Any]:
    """Return plotly's settings for a vertical axis with one labelled row below the other, the first row at the top."""
    rows = {"tickvals": list(range(len(labels))), "ticktext": list(labels), "automargin": True, "ticks": ""}
    return {"range": [len(labels) - 0.5, -0.5], **rows}


def make_empty_figure(title: str, reason: str) -> go.Figure:
    """Return a figure without data: a title, a frame, and in its middle the reason why there is nothing to show."""
    figure = go.Figure()
    figure.add_annotation(text=reason, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 14})
    add_frame(figure, title, 220)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_shape(
        type="rect", xref="paper", yref="paper", x0=0, x1=1, y0=0, y1=1, line={"color": INK, "dash": "dot", "width": 1}
    )
    return figure


def add_note(figure: go.Figure, text: str, gaps: Sequence[str] = ()) -> go.Figure:
    """Add a text below a figure's title, and return the figure. In a figure without data the text is added in the middle.

    Args:
        figure: The figure, which is changed.
        text: The text; empty: nothing is added.
        gaps: A text about what is missing, for each empty row or line of the figure. The texts are stored in the figure's
            metadata, where the report reads them.

    """
    layout: Any = figure.layout
    if text and not figure.data:
        layout.annotations[0].text += f"<br>{text}"
    elif text:
        layout.title.text += f"<br>{small(text)}"
        added_height = LINE_HEIGHT * (1 + text.count("<br>"))
        figure.update_layout(
            height=layout.height + added_height, margin_t=layout.margin.t + added_height, meta={"gaps": list(gaps)}
        )
    return figure


def small(text: str) -> str:
    """Return a text as HTML in a small font size."""
    return f"<span style='font-size:12px'>{text}</span>"


def choose_scale(unit: str, greatest: float) -> tuple[float, str]:
    """Return (divisor, unit) with which values up to `greatest` are easy to read: `('s', 0.02) → (0.001, 'ms')`.

    Seconds, bytes and bytes/s are scaled. Any other unit stays, with the divisor 1.

    Args:
        unit: The unit of the values.
        greatest: The greatest value.

    """
    size = abs(greatest)
    if unit == "s":
        return (1e-6, "µs") if size < 1e-3 else (1e-3, "ms") if size < 1 else (1.0, "s")
    if unit in ("bytes", "bytes/s"):
        power = min(3, max(0, floor(log10(size) / 3))) if size >= 1 else 0
        return 1000.0**power, unit.replace("bytes", ("B", "kB", "MB", "GB")[power])
    return 1.0, unit


def log_axis(values: Sequence[float | None]) -> dict[str, Any]:
    """Return plotly's settings for an axis that shows some values: logarithmic if they span a factor of 5 or more, else linear.

    A logarithmic axis has a tick for each power of ten. If the values span a factor of 100 or less, it also has ticks at 2 and 5
    times these powers. Values that are None, 0 or negative are ignored.
    """
    present = [value for value in values if value is not None and value > 0]
    span = max(present) / min(present) if present else 1.0
    return (
        {"type": "linear", "rangemode": "tozero"} if span < 5 else {"type": "log", "dtick": 1 if span > 100 else "D2"}
    )


def axis_title(name: str, unit: str) -> dict[str, Any]:
    """Return plotly's settings for the title of an axis, which is `name (unit)`; without a unit, the name alone."""
    return {"text": f"{name} ({unit})" if unit else name, "standoff": 8}


def axis(name: str, unit: str = "", **settings: Any) -> dict[str, Any]:
    """Return plotly's settings for an axis: its title, and any further settings (`rangemode`, `type`, …)."""
    return {"title": axis_title(name, unit), **settings}
