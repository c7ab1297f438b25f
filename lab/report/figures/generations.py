"""What two alike differ by, generation by generation: each dot the workers between two reloads, one column for each bring-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from lab.report.figures.style import INK, axis, colours, drawn


@dataclass(frozen=True, slots=True)
class Dot:
    """`bring_up` and `generation` from 1; `change`: of one side against the other, per cent; `repeats`: each measurement's."""

    group: str
    bring_up: int
    generation: int
    change: float
    repeats: Sequence[float] = ()


def generations(dots: Sequence[Dot], title: str) -> go.Figure:
    """The groups (variants) side by side in their order, in each the bring-ups; thin lines: from the least to the most of its repeats."""
    places = list(dict.fromkeys((dot.group, dot.bring_up) for dot in dots))
    at = {place: number for number, place in enumerate(places)}
    most = {group: max((dot.generation for dot in dots if dot.group == group), default=1) for group, _ in places}
    painted = colours(list(dict.fromkeys(dot.group for dot in dots)))
    marks = [
        go.Scatter(
            x=[at[dot.group, dot.bring_up] + (dot.generation - 1) / most[group] * 0.7 - 0.3 for dot in mine],
            y=[dot.change for dot in mine],
            customdata=[(dot.bring_up, dot.generation) for dot in mine],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [max(dot.repeats, default=dot.change) - dot.change for dot in mine],
                "arrayminus": [dot.change - min(dot.repeats, default=dot.change) for dot in mine],
                "thickness": 1,
                "width": 0,
            },
            mode="markers",
            marker={"color": colour, "size": 9},
            name=group,
            hovertemplate="bring-up %{customdata[0]}, generation %{customdata[1]}: <b>%{y:+.1f} %</b><extra></extra>",
        )
        for group, colour in painted.items()
        for mine in [[dot for dot in dots if dot.group == group]]
    ]
    figure = drawn(
        marks,
        title,
        420,
        "each dot: the workers of both sides between two reloads, twins otherwise; a column: one bring-up",
        {"tickvals": list(at.values()), "ticktext": [str(bring_up) for _, bring_up in places], "ticks": ""},
        axis("CPU per request, one against its twin", "%"),
    )
    return (
        figure.update_layout(showlegend=len(painted) > 1).add_hline(y=0, line={"color": INK, "width": 1})
        if dots
        else figure
    )
