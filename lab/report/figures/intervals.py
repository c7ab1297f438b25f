"""A number per arm with its interval, every block's own value beside it, and the published value as a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from lab.report.figures.style import FAINT, INK, axis_title, colours, dressed, gap, scaled


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


def intervals(rows: Sequence[Told], title: str, name: str, unit: str, published: float | None = None) -> go.Figure:
    """`name` and `unit` (s, bytes, bytes/s or what is to be written) head the axis; the first row stands at the top."""
    shown = [row for row in rows if row.value is not None]
    if not shown:
        return gap(title, "nothing of this was recorded")
    every = [value for row in shown for value in (row.value, row.high, *row.blocks) if value is not None]
    scale, written = scaled(unit, max(*every, published or 0.0, 0.0))
    figure, painted = go.Figure(), colours(list(dict.fromkeys(row.group for row in rows)))
    _blocks(figure, shown, scale, written)
    for group, colour in painted.items():
        of_group = [row for row in shown if row.group == group]
        figure.add_trace(
            go.Scatter(
                x=[(row.value or 0.0) / scale for row in of_group],
                y=[row.label for row in of_group],
                mode="markers",
                marker={"color": colour, "size": 11, "symbol": "diamond"},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [_beyond(row.high, row.value, scale) for row in of_group],
                    "arrayminus": [_beyond(row.value, row.low, scale) for row in of_group],
                    "color": colour,
                    "thickness": 2,
                    "width": 6,
                },
                customdata=[(_interval(row, scale, written), row.note) for row in of_group],
                hovertemplate=f"%{{y}}: <b>%{{x:.4g}} {written}</b> %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
                showlegend=False,
            )
        )
    below = f"diamond: {medians(shown)}; rings: single blocks"
    if published is not None:
        figure.add_vline(
            x=published / scale,
            line={"color": INK, "dash": "dash", "width": 1.5},
            annotation={"text": f"published: {published / scale:g} {written}", "font": {"size": 11}},
            annotation_position="top",
        )
    dressed(figure, title, 150 + 34 * len(shown), below)
    figure.update_xaxes(title=axis_title(name, written), rangemode="tozero")
    figure.update_yaxes(
        categoryorder="array", categoryarray=[row.label for row in reversed(shown)], automargin=True, ticks=""
    )
    return figure


def _blocks(figure: go.Figure, rows: Sequence[Told], scale: float, unit: str) -> None:
    points = [(value / scale, row.label, number) for row in rows for number, value in enumerate(row.blocks, 1)]
    figure.add_trace(
        go.Scatter(
            x=[point[0] for point in points],
            y=[point[1] for point in points],
            customdata=[point[2] for point in points],
            mode="markers",
            marker={"symbol": "circle-open", "size": 8, "color": FAINT, "line": {"width": 1.5}},
            hovertemplate=f"%{{y}}, block %{{customdata}}: %{{x:.4g}} {unit}<extra></extra>",
            showlegend=False,
        )
    )


def _beyond(end: float | None, start: float | None, scale: float) -> float:
    return 0.0 if end is None or start is None else (end - start) / scale


def _interval(row: Told, scale: float, unit: str) -> str:
    if row.low is None or row.high is None:
        return "no interval"
    return f"[{row.low / scale:.4g}, {row.high / scale:.4g}] {unit}"
