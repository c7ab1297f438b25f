"""CPU and memory of processes second by second, as pidstat's two tables have them: what was published beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.report.figures.style import axis_title, colours, dressed, gap

MB = 1e6
KIB = 1024


@dataclass(frozen=True, slots=True)
class Watched:
    """One process: (second, % of one CPU), and (second, resident KiB); each table may have seconds of its own."""

    cpu: Sequence[tuple[float, float]]
    memory: Sequence[tuple[float, float]]


def watched(panels: Mapping[str, Mapping[str, Watched]], title: str) -> go.Figure:
    """Panel → process → what was seen of it. The panels share their vertical axes; an empty one is left out."""
    present = {name: seen for name, seen in panels.items() if any(each.cpu or each.memory for each in seen.values())}
    if not present:
        return gap(title, "no process was looked at for a whole second")
    figure = make_subplots(
        rows=2,
        cols=len(present),
        shared_yaxes=True,
        shared_xaxes=True,
        subplot_titles=list(present),
        vertical_spacing=0.08,
        horizontal_spacing=0.05,
    )
    figure.update_annotations(font_size=12)
    dressed(figure, title, 460, "a line per process; resident: pages that it shares counted in")
    figure.update_layout(margin={"t": 104})
    painted = colours(list(dict.fromkeys(name for seen in present.values() for name in seen)))
    for column, seen in enumerate(present.values(), 1):
        for name, each in seen.items():
            for row, values, unit in (
                (1, each.cpu, "%"),
                (2, [(t_s, kib * KIB / MB) for t_s, kib in each.memory], "MB"),
            ):
                figure.add_trace(
                    go.Scatter(
                        x=[t_s for t_s, _ in values],
                        y=[value for _, value in values],
                        mode="lines+markers",
                        line={"color": painted[name], "width": 1.5},
                        marker={"size": 5},
                        hovertemplate=f"%{{x:.0f}} s: <b>%{{y:.3g}} {unit}</b><extra>{name}</extra>",
                        name=name,
                        legendgroup=name,
                        showlegend=row == 1,
                    ),
                    row=row,
                    col=column,
                )
        figure.update_xaxes(title=axis_title("looked at for", "s"), row=2, col=column)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(title=axis_title("CPU", "% of one"), rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title=axis_title("resident", "MB"), rangemode="tozero", row=2, col=1)
    figure.update_yaxes(rangemode="tozero")
    return figure
