"""The conversion of a plotly figure to SVG without a browser, for pages that run no scripts, such as those that GitHub shows.

    go.Figure([go.Scatter(x=[1, 2], y=[3, 4], mode="markers")])  →  <svg …><circle cx="106" …/>…</svg>

The SVG has marks and lines with error bars, vertical lines, a legend, and two axes. An axis may be logarithmic, or have a text
for each row. The text of a row is above the row, so that it is never cut. The title is not drawn, since the page has it. Any
other figure, such as one with bars or several panels, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor, log10
from pathlib import Path
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from lab.base.errors import UsageError
from lab.report.html.rendering import fill_template

WIDTH, TOP, ROW, PLOT = 860, 20, 42, 300
"""The sizes in pixels: the figure's width, the space above the plot, the height of a row, and of a plot without rows."""
CHARACTER = 6.6
"""The width of a character in pixels, on average."""
TICKS = 6
"""About how many round numbers an axis shows that has no ticks in its settings."""

Axis = tuple[Callable[[Any], float], Sequence[tuple[float, str]]]
"""The function that returns the pixel of a value on an axis, and (pixel, text) of the axis' ticks."""


def render_svg(figure: go.Figure) -> str:
    """Return a plotly figure as SVG that is legible on a white and on a black background.

    Raises:
        UsageError: The figure has no data, or it has bars, areas or several panels.

    """
    layout: Any = figure.layout
    data: Any = figure.data
    traces = [trace for trace in data if trace.x is not None and len(trace.x)]
    if not traces or any(
        not trace.type.startswith("scatter") or trace.fill or trace.yaxis not in (None, "y") for trace in traces
    ):
        raise UsageError("figure", f"'{layout.title.text}' has no marks, or bars, areas or panels", "do not publish it")
    rows = len(layout.yaxis.categoryarray or layout.yaxis.ticktext or ())
    left, bottom = (12 if rows else 76), TOP + (ROW * rows or PLOT)
    named = [trace for trace in traces if trace.name and trace.showlegend is not False]
    return fill_template(
        "figure.svg",
        Path(__file__).parent / "templates",
        layout=layout,
        traces=traces,
        legend=named if len(named) > 1 else [],
        columns=int(WIDTH / (CHARACTER * max((len(trace.name) for trace in named), default=1) + 30)) or 1,
        x=_make_axis(layout.xaxis, traces, "x", (left, WIDTH - 24)),
        y=_make_axis(layout.yaxis, traces, "y", (bottom, TOP)),
        lines=[line for text in layout.xaxis.title.text.split("<br>") for line in wrap(text, int(WIDTH / CHARACTER))],
        bars=_list_bars,
        rows=rows,
        width=WIDTH,
        top=TOP,
        row=ROW,
        left=left,
        bottom=bottom,
    )


def _make_axis(settings: Any, traces: Sequence[Any], name: str, pixels: tuple[float, float]) -> Axis:
    """Return an axis that contains all values of some traces: (function from a value to its pixel, (pixel, text) of each tick).

    Args:
        settings: The axis in plotly's layout.
        traces: The traces.
        name: The traces' attribute with the values for this axis: `x` or `y`.
        pixels: The pixels at the axis' lower and upper end.

    """
    names, is_log, is_whole = settings.categoryarray or (), settings.type == "log", settings.rangemode == "tozero"

    def number(value: Any) -> float:
        return float(names.index(value)) if names else log10(value) if is_log else float(value)

    def place(value: Any) -> float:
        return round(pixels[0] + (number(value) - low) / (high - low) * (pixels[1] - pixels[0]), 1)

    values = [*names, *(end for trace in traces for ends in (trace[name], *_list_bars(trace, name)) for end in ends)]
    numbers = [0.0] * is_whole + [
        number(value) for value in values if value is not None and (value if is_log else True)
    ]
    margin = 0.5 if names else 0.06 * (max(numbers) - min(numbers)) or 0.5
    low, high = settings.range or (min(numbers) - margin * (min(numbers) != 0 or not is_whole), max(numbers) + margin)
    texts: dict[Any, str] = dict(zip(settings.tickvals or names, settings.ticktext or names, strict=True))
    ticks = [tick for tick in texts if min(low, high) <= number(tick) <= max(low, high)]
    if is_log and len(ticks) < TICKS / 2:
        bases = (1, 2, 5) if high - low > 1 else range(1, 10)
        sizes = [base * 10.0**power for power in range(floor(low), ceil(high)) for base in bases]
        ticks = [size for size in sizes if low <= log10(size) <= high]
    elif not ticks:
        step = float(f"{(high - low) / TICKS:.0e}")
        ticks = [step * count for count in range(ceil(low / step), floor(high / step) + 1)]
    return place, [(place(tick), (texts.get(tick) or f"{tick:,.6g}").replace("<br>", " ")) for tick in ticks]


def _list_bars(trace: Any, name: str) -> list[tuple[float, float]]:
    """Return (lower end, upper end) of each error bar of a trace, in the order of its values; empty without error bars.

    Args:
        trace: The trace.
        name: The direction of the error bars: `x` or `y`.

    """
    bars = trace[f"error_{name}"]
    errors = zip(trace[name], bars.arrayminus, bars.array, strict=True) if bars.array is not None else ()
    return [(value - minus, value + plus) for value, minus, plus in errors]
