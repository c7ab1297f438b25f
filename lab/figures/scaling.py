"""A number over the size of a thing (routes), per arm or target, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from lab.figures.intervals import Told
from lab.figures.style import axis_title, colours, dressed, gap, log_axis, scaled


def scaling(
    lines: Mapping[str, Sequence[tuple[float, Told]]], title: str, over: str, name: str, unit: str, log_y: bool = False
) -> go.Figure:
    """Line → its (size, value) in any order; both axes' sizes are shown as they are, the sizes on a log axis."""
    present = {line: [item for item in items if item[1].value is not None] for line, items in lines.items()}
    present = {line: sorted(items, key=lambda item: item[0]) for line, items in present.items() if items}
    if not present:
        return gap(title, "nothing of this was recorded")
    greatest = max(told.high or told.value or 0.0 for items in present.values() for _, told in items)
    scale, written = scaled(unit, greatest)
    figure = go.Figure()
    for line, colour in colours(list(present)).items():
        items = present[line]
        figure.add_trace(
            go.Scatter(
                x=[size for size, _ in items],
                y=[(told.value or 0.0) / scale for _, told in items],
                mode="lines+markers",
                line={"color": colour, "width": 1.5},
                marker={"size": 8},
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [
                        0.0 if told.high is None else (told.high - (told.value or 0.0)) / scale for _, told in items
                    ],
                    "arrayminus": [
                        0.0 if told.low is None else ((told.value or 0.0) - told.low) / scale for _, told in items
                    ],
                    "color": colour,
                },
                customdata=[(told.label, told.note) for _, told in items],
                hovertemplate=f"%{{customdata[0]}}: <b>%{{y:.4g}} {written}</b><br>%{{customdata[1]}}<extra>{line}</extra>",
                name=line,
            )
        )
    dressed(figure, title, 380, "median of the blocks with its 95 % interval")
    sizes = sorted({size for items in present.values() for size, _ in items})
    figure.update_xaxes(
        title=axis_title(over, ""), type="log", tickvals=sizes, ticktext=[f"{size:g}" for size in sizes]
    )
    values = [told.value for items in present.values() for _, told in items]
    height: dict[str, Any] = log_axis(values) if log_y else {"rangemode": "tozero"}
    figure.update_yaxes(title=axis_title(name, written), **height)
    return figure
