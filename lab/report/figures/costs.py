"""What a request costs: taken apart, one bar for each step between two systems, each hanging where the one above it ends; and what two alike
differ by, each dot the workers between two reloads, one column for each bring-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from lab.report.figures.style import (
    COLOURS,
    FAINT,
    INK,
    NOTHING,
    axis,
    colours,
    drawn,
    noted,
    reaching,
    rows_axis,
    small,
)


@dataclass(frozen=True, slots=True)
class Rung:
    """A row, in seconds a request: a `whole` cost from 0 on, or a step from `start` to `end`, whose 95 % interval is `low` to `high`
    (None: too few blocks for one). `text` is written below its label, `note` seen by who points at it. `apart`: no pair told it, but two
    levels, each measured by itself.
    """

    label: str
    end: float
    start: float = 0.0
    low: float | None = None
    high: float | None = None
    text: str = ""
    note: str = ""
    whole: bool = False
    apart: bool = False

    @property
    def colour(self) -> str:
        if self.whole or self.apart:
            return FAINT if self.whole else COLOURS[4]
        return COLOURS[0] if self.end <= self.start else COLOURS[1]


@dataclass(frozen=True, slots=True)
class Dot:
    """`bring_up` and `generation` from 1; `change`: of one side against the other, per cent; `repeats`: each measurement's."""

    group: str
    bring_up: int
    generation: int
    change: float
    repeats: Sequence[float] = ()


def ladder(rungs: Sequence[Rung], title: str, why: str = NOTHING) -> go.Figure:
    """The first stands at the top. `why`: what is written where there is none."""
    places = list(range(len(rungs)))
    bars = go.Bar(
        orientation="h",
        y=places,
        base=[1e6 * min(rung.start, rung.end) for rung in rungs],
        x=[1e6 * abs(rung.end - rung.start) for rung in rungs],
        marker={"color": [rung.colour for rung in rungs]},
        width=0.55,
        customdata=[(rung.label, rung.text, rung.note) for rung in rungs],
        hovertemplate="%{customdata[0]}: <b>%{customdata[1]}</b><br>%{customdata[2]}<extra></extra>",
        showlegend=False,
    )
    ends = [(rung.end, None, None) if rung.high is None else (rung.end, rung.low, rung.high) for rung in rungs]
    intervals = go.Scatter(
        x=[1e6 * rung.end for rung in rungs],
        y=places,
        mode="markers",
        marker={"color": INK, "size": 1},
        error_x=reaching(ends, 1e-6, color=INK, thickness=1.5, width=5),
        hoverinfo="skip",
        showlegend=False,
    )
    figure = drawn(
        [bars, intervals] if rungs else [],
        title,
        150 + 46 * len(rungs),
        "grey: a whole request, measured alone; a step: by its pair, from where the one before it ends (its µs: of what its baseline cost alone); thin lines: 95 %",
        axis("CPU of the proxy for a request", "µs", rangemode="tozero"),
        rows_axis([f"{rung.label}<br>{small(rung.text)}" for rung in rungs]),
        why,
    )
    apart = "violet: no pair's, but what one target alone counts, and what two targets' medians differ by; nothing is pooled"
    return noted(figure, apart) if any(rung.apart for rung in rungs) else figure


def generations(dots: Sequence[Dot], title: str) -> go.Figure:
    """The groups (variants) side by side in their order, in each the bring-ups; thin lines: from the least to the most of its repeats."""
    places = list(dict.fromkeys((dot.group, dot.bring_up) for dot in dots))
    at = {place: number for number, place in enumerate(places)}
    most = {group: max(dot.generation for dot in dots if dot.group == group) for group, _ in places}
    painted = colours(list(most))
    marks: list[go.Scatter] = []
    for group, colour in painted.items():
        mine = [dot for dot in dots if dot.group == group]
        ends = [
            (dot.change, min(dot.repeats, default=dot.change), max(dot.repeats, default=dot.change)) for dot in mine
        ]
        marks.append(
            go.Scatter(
                x=[at[group, dot.bring_up] + (dot.generation - 1) / most[group] * 0.7 - 0.3 for dot in mine],
                y=[dot.change for dot in mine],
                customdata=[(dot.bring_up, dot.generation) for dot in mine],
                error_y=reaching(ends, thickness=1, width=0),
                mode="markers",
                marker={"color": colour, "size": 9},
                name=group,
                hovertemplate="bring-up %{customdata[0]}, generation %{customdata[1]}: <b>%{y:+.1f} %</b><extra></extra>",
            )
        )
    figure = drawn(
        marks,
        title,
        420,
        "each dot: the workers of both sides between two reloads, twins otherwise; a column: one bring-up",
        {"tickvals": list(at.values()), "ticktext": [str(bring_up) for _, bring_up in places], "ticks": ""},
        axis("CPU per request, one against its twin", "%"),
    )
    if not dots:
        return figure
    return figure.update_layout(showlegend=len(painted) > 1).add_hline(y=0, line={"color": INK, "width": 1})
