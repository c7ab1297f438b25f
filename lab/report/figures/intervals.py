"""A number per arm with its interval, every block's own value beside it, and the published value as a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from lab.report.figures.style import FAINT, INK, axis, colours, drawn, scaled


@dataclass(frozen=True, slots=True)
class Told:
    """One row: `value` and its 95 % interval over the blocks (None = too few), what every block gave, in `unit` of the figure.

    `group` gives the colour: the arm, where rows are arm and point.
    """

    label: str
    group: str
    value: float | None
    low: float | None = None
    high: float | None = None
    blocks: Sequence[float] = field(default_factory=tuple[float, ...])
    note: str = ""


def medians(rows: Sequence[Told]) -> str:
    """What a figure's values are, for the line under its title."""
    enough = [row.low is not None for row in rows]
    if not any(enough):
        return "median of the blocks, too few for an interval"
    return "median of the blocks with its 95 % interval" + ("" if all(enough) else ", where they are enough for one")


def reach(rows: Sequence[Told], scale: float, colour: str, **more: Any) -> dict[str, Any]:
    """Error bars from each row's value to the ends of its interval, without length where it has none."""
    sides = [(row.value or 0.0, row.low, row.high) for row in rows]
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if high is None else (high - value) / scale for value, _, high in sides],
        "arrayminus": [0.0 if low is None else (value - low) / scale for value, low, _ in sides],
        "color": colour,
        **more,
    }


def intervals(rows: Sequence[Told], title: str, name: str, unit: str, published: float | None = None) -> go.Figure:
    """`name` and `unit` (s, bytes, bytes/s or what is to be written) head the axis; the first row stands at the top."""
    shown = [row for row in rows if row.value is not None]
    every = [value for row in shown for value in (row.value, row.high, *row.blocks) if value is not None]
    scale, written = scaled(unit, max(*every, published or 0.0, 0.0))
    painted = colours(list(dict.fromkeys(row.group for row in rows)))
    marks = [
        _marks([row for row in shown if row.group == group], scale, written, colour)
        for group, colour in painted.items()
    ]
    figure = drawn(
        [_rings(shown, scale, written), *marks] if shown else [],
        title,
        150 + 34 * len(shown),
        f"diamond: {medians(shown)}; rings: single blocks",
        axis(name, written, rangemode="tozero"),
        {
            "categoryorder": "array",
            "categoryarray": [row.label for row in reversed(shown)],
            "automargin": True,
            "ticks": "",
        },
    )
    if shown and published is not None:
        figure.add_vline(
            x=published / scale,
            line={"color": INK, "dash": "dash", "width": 1.5},
            annotation={"text": f"published: {published / scale:g} {written}", "font": {"size": 11}},
            annotation_position="top",
        )
    return figure


def _marks(rows: Sequence[Told], scale: float, unit: str, colour: str) -> go.Scatter:
    ends = (
        f"[{row.low / scale:.4g}, {row.high / scale:.4g}] {unit}"
        if row.low is not None and row.high is not None
        else "no interval"
        for row in rows
    )
    return go.Scatter(
        x=[(row.value or 0.0) / scale for row in rows],
        y=[row.label for row in rows],
        mode="markers",
        marker={"color": colour, "size": 11, "symbol": "diamond"},
        error_x=reach(rows, scale, colour, thickness=2, width=6),
        customdata=list(zip(ends, (row.note for row in rows), strict=True)),
        hovertemplate=f"%{{y}}: <b>%{{x:.4g}} {unit}</b> %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
        showlegend=False,
    )


def _rings(rows: Sequence[Told], scale: float, unit: str) -> go.Scatter:
    points = [(value / scale, row.label, number) for row in rows for number, value in enumerate(row.blocks, 1)]
    return go.Scatter(
        x=[point[0] for point in points],
        y=[point[1] for point in points],
        customdata=[point[2] for point in points],
        mode="markers",
        marker={"symbol": "circle-open", "size": 8, "color": FAINT, "line": {"width": 1.5}},
        hovertemplate=f"%{{y}}, block %{{customdata}}: %{{x:.4g}} {unit}<extra></extra>",
        showlegend=False,
    )
