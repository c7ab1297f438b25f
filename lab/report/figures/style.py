"""How the lab's figures look, in one place: colours that stand off white and black alike, and the frame around a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

INK = "#7b7b7b"
"""Text: 4.2 : 1 against white, 4.5 : 1 against #111 (WCAG's relative luminance)."""
GRID = "rgba(128,128,128,0.25)"
COLOURS = ("#2b83ba", "#d7722c", "#3a9a5b", "#c2477f", "#8a6fc7", "#a1862b", "#3aa0a0", "#b5554a")
"""For arms, in their order: each at least 3 : 1 against white and against #111."""
BAD, FAINT = "#d64545", "rgba(128,128,128,0.55)"
FAILURES = {
    "status": "#d7722c",
    "connect": "#d64545",
    "read": "#c2477f",
    "write": "#8a6fc7",
    "timeout": "#a1862b",
    "other": "#7b7b7b",
}
"""By the kinds of `lab.analysis.timelines.FAILED`."""
MARKS = {
    "disturbance": "#c2477f",
    "pods": "#2b83ba",
    "probes": "#d64545",
    "endpoints": "#3aa0a0",
    "reloads": "#8a6fc7",
    "connections": "#d7722c",
}
NOTHING = "nothing of this was recorded"
LINE = 22
"""Pixels of a line below a title: plotly spaces small text as it does the title's own."""


def dressed(figure: go.Figure, title: str, height: int = 380, below: str = "") -> go.Figure:
    """The figure with the lab's frame: title, `below` it a line of what is shown, legend under the plot."""
    shown = f"<br>{small(below)}" if below else ""
    figure.update_layout(
        template="none",
        title={
            "text": f"{title}{shown}",
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
        margin={"l": 80, "r": 30, "t": 84 if below else 62, "b": 70},
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


def drawn(
    traces: Sequence[Any],
    title: str,
    height: int,
    below: str,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    why: str = NOTHING,
) -> go.Figure:
    """These traces in the lab's frame, `x` and `y` what is to be said of its axes; without a trace the gap and `why`."""
    if not traces:
        return gap(title, why)
    figure = dressed(go.Figure(traces), title, height, below)
    return figure.update_xaxes(x).update_yaxes(y)


def stacked(
    traces: Sequence[tuple[int, Any]],
    title: str,
    height: int,
    below: str,
    x: Mapping[str, Any],
    ys: Sequence[Mapping[str, Any]],
    **spaced: Any,
) -> go.Figure:
    """As `drawn`, panels above one another over the same `x`: (panel from 1 on, trace), and a `ys` for each panel.

    `spaced`: as plotly's `make_subplots` has it.
    """
    figure = make_subplots(rows=len(ys), cols=1, shared_xaxes=True, **spaced)
    for panel, trace in traces:
        figure.add_trace(trace, row=panel, col=1)
    dressed(figure, title, height, below)
    for panel, y in enumerate(ys, 1):
        figure.update_yaxes(y, row=panel, col=1)
    return figure.update_xaxes(x, row=len(ys), col=1)


def colours(names: Sequence[str]) -> dict[str, str]:
    """Name → colour, by its place."""
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def reaching(
    ends: Sequence[tuple[float, float | None, float | None]], scale: float = 1.0, **more: Any
) -> dict[str, Any]:
    """Error bars from each (value, low, high) to the ends of its interval, without length where it has none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if high is None else (high - value) / scale for value, _, high in ends],
        "arrayminus": [0.0 if low is None else (value - low) / scale for value, low, _ in ends],
        **more,
    }


def rows_axis(labels: Sequence[str]) -> dict[str, Any]:
    """A vertical axis of rows, the first at the top."""
    rows = {"tickvals": list(range(len(labels))), "ticktext": list(labels), "automargin": True, "ticks": ""}
    return {"range": [len(labels) - 0.5, -0.5], **rows}


def gap(title: str, why: str) -> go.Figure:
    """What stands where a figure would: there is nothing to show, and why."""
    figure = go.Figure()
    figure.add_annotation(text=why, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"size": 14})
    dressed(figure, title, 220)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_shape(
        type="rect", xref="paper", yref="paper", x0=0, x1=1, y0=0, y1=1, line={"color": INK, "dash": "dot", "width": 1}
    )
    return figure


def noted(figure: go.Figure, text: str, gaps: Sequence[str] = ()) -> go.Figure:
    """The figure with a text below its title, or in its middle where it is a gap. `gaps`: what each of its empty rows or lines lacks."""
    shown: Any = figure.layout
    if text and not figure.data:
        shown.annotations[0].text += f"<br>{text}"
    elif text:
        shown.title.text += f"<br>{small(text)}"
        more = LINE * (1 + text.count("<br>"))
        figure.update_layout(height=shown.height + more, margin_t=shown.margin.t + more, meta={"gaps": list(gaps)})
    return figure


def small(text: str) -> str:
    """In a size below the rest."""
    return f"<span style='font-size:12px'>{text}</span>"


def scaled(unit: str, greatest: float) -> tuple[float, str]:
    """(what to divide by, the unit to write) for values up to `greatest` in `unit`: s, bytes, bytes/s or any other."""
    size = abs(greatest)
    if unit == "s":
        return (1e-6, "µs") if size < 1e-3 else (1e-3, "ms") if size < 1 else (1.0, "s")
    if unit in ("bytes", "bytes/s"):
        power = min(3, max(0, floor(log10(size) / 3))) if size >= 1 else 0
        return 1000.0**power, unit.replace("bytes", ("B", "kB", "MB", "GB")[power])
    return 1.0, unit


def log_axis(values: Sequence[float | None]) -> dict[str, Any]:
    """A log axis with a tick per decade, or at 1, 2 and 5 where there are few of them; below a factor of 5 a linear one."""
    present = [value for value in values if value is not None and value > 0]
    span = max(present) / min(present) if present else 1.0
    return (
        {"type": "linear", "rangemode": "tozero"} if span < 5 else {"type": "log", "dtick": 1 if span > 100 else "D2"}
    )


def axis_title(name: str, unit: str) -> dict[str, Any]:
    return {"text": f"{name} ({unit})" if unit else name, "standoff": 8}


def axis(name: str, unit: str = "", **more: Any) -> dict[str, Any]:
    """What is said of an axis: its title, and `more` as plotly has it (`rangemode`, `type`, …)."""
    return {"title": axis_title(name, unit), **more}
