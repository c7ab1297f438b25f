"""The figures of the CPU cost of a request: its change from one variant to the next, and its scatter over starts and reloads.

`ladder` has a bar for each step from one variant to the next; a bar begins where the bar above it ends. `generations` has a dot
for each worker generation (the worker processes between two reloads), and a column for each start of the system.
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
    add_note,
    axis,
    colours,
    error_bars,
    make_figure,
    rows_axis,
    small,
)


@dataclass(frozen=True, slots=True)
class Rung:
    """A row of the figure of a ladder (a chain of variants): the entire cost of a request on one variant, or a step.

    A step is the change of this cost from one variant to the next. All numbers are in CPU seconds per request.

    Attributes:
        label: The name of the row.
        end: The cost after the step, or the entire cost of a request.
        start: The cost before the step; 0 for an entire cost.
        low: The lower end of the 95 % interval of `end`, or of the range of its blocks (repetitions) where these are
            too few for an interval. None: neither is known, or the row is an entire cost.
        high: The upper end of that interval or range; None: as for `low`.
        text: The text below the label.
        note: The hover text.
        whole: Whether the row is an entire cost instead of a step.
        apart: Whether the two sides of the step were measured separately, instead of as a pair (both at once).

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
        """The colour of the row's bar in the figure of a ladder (a chain of variants).

        A bar is grey if it is the entire cost of a request on one variant. Any other bar is a step: the change of this cost from one
        variant to the next. A step is violet if its two sides were not measured at the same time. Otherwise it is orange if the cost rises,
        and blue if not.
        """
        if self.whole or self.apart:
            return FAINT if self.whole else COLOURS[4]
        return COLOURS[0] if self.end <= self.start else COLOURS[1]


@dataclass(frozen=True, slots=True)
class GenerationDot:
    """A dot in a figure: the difference between two variants on one worker generation (the worker processes between two reloads).

    Attributes:
        group: The name of the variant.
        bring_up: The number of the bring-up (start of the system), from 1.
        generation: The number of the generation within the bring-up, from 1.
        change: The difference of one variant from the other, in per cent.
        repeats: The difference in each measurement of the generation, in per cent.

    """

    group: str
    bring_up: int
    generation: int
    change: float
    repeats: Sequence[float] = ()


def ladder(rungs: Sequence[Rung], title: str, reason: str = NOTHING) -> go.Figure:
    """Return the figure of a ladder (a chain of variants): the CPU cost of a request step by step, the first row at the top.

    Args:
        rungs: The rows.
        title: The title of the figure.
        reason: The text of the empty figure that is returned if there are no rows.

    """
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
        error_x=error_bars(ends, 1e-6, color=INK, thickness=1.5, width=5),
        hoverinfo="skip",
        showlegend=False,
    )
    figure = make_figure(
        [bars, intervals] if rungs else [],
        title,
        150 + 46 * len(rungs),
        "grey: a whole request, measured alone; a step: by its pair, from where the one before it ends (its µs: of what its baseline cost alone); thin lines: 95 %",
        axis("CPU of the proxy for a request", "µs", rangemode="tozero"),
        rows_axis([f"{rung.label}<br>{small(rung.text)}" for rung in rungs]),
        reason,
    )
    explanation = "violet: no pair's, but what one target alone counts, and what two targets' medians differ by; nothing is pooled"
    return add_note(figure, explanation) if any(rung.apart for rung in rungs) else figure


def generations(dots: Sequence[GenerationDot], title: str) -> go.Figure:
    """Return the figure with a dot for each worker generation (the worker processes between two reloads).

    Variants are next to each other, each with its bring-ups (starts of the system) in order. A thin line reaches from the
    smallest to the largest repeat of a generation.

    Args:
        dots: The dots.
        title: The title of the figure.

    """
    places = list(dict.fromkeys((dot.group, dot.bring_up) for dot in dots))
    position = {place: number for number, place in enumerate(places)}
    last_generation = {group: max(dot.generation for dot in dots if dot.group == group) for group, _ in places}
    painted = colours(list(last_generation))
    marks: list[go.Scatter] = []
    for group, colour in painted.items():
        of_group = [dot for dot in dots if dot.group == group]
        ends = [
            (dot.change, min(dot.repeats, default=dot.change), max(dot.repeats, default=dot.change)) for dot in of_group
        ]
        marks.append(
            go.Scatter(
                x=[
                    position[group, dot.bring_up] + (dot.generation - 1) / last_generation[group] * 0.7 - 0.3
                    for dot in of_group
                ],
                y=[dot.change for dot in of_group],
                customdata=[(dot.bring_up, dot.generation) for dot in of_group],
                error_y=error_bars(ends, thickness=1, width=0),
                mode="markers",
                marker={"color": colour, "size": 9},
                name=group,
                hovertemplate="bring-up %{customdata[0]}, generation %{customdata[1]}: <b>%{y:+.1f} %</b><extra></extra>",
            )
        )
    figure = make_figure(
        marks,
        title,
        420,
        "each dot: an A/A pair of one worker generation; a column: one bring-up",
        {"tickvals": list(position.values()), "ticktext": [str(bring_up) for _, bring_up in places], "ticks": ""},
        axis("CPU per request, one side against the other", "%"),
    )
    if not dots:
        return figure
    return figure.update_layout(showlegend=len(painted) > 1).add_hline(y=0, line={"color": INK, "width": 1})
