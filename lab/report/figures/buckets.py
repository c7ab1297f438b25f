"""A histogram as boom prints it: the share of the responses in each step from the fastest to the slowest, published beside measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from lab.report.figures.intervals import Told
from lab.report.figures.style import INK, axis_title, colours, dressed, gap


@dataclass(frozen=True, slots=True)
class Bucket:
    """`upper_s`: its upper edge on its own machine; `share` (0…1) of all responses, over the blocks where it was measured."""

    upper_s: float
    share: Told


def buckets(lines: Mapping[str, Sequence[Bucket]], title: str) -> go.Figure:
    """Line → its buckets, in order: the fastest response's own first, then steps of the same width to the slowest."""
    present = {name: found for name, found in lines.items() if found}
    if not present:
        return gap(title, "nothing of this was recorded")
    figure = go.Figure()
    for name, colour in colours(list(present)).items():
        found = present[name]
        shares = [100 * (each.share.value or 0.0) for each in found]
        figure.add_trace(
            go.Bar(
                x=list(range(len(found))),
                y=shares,
                marker={"color": colour},
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [_beyond(each.share.value, each.share.high) for each in found],
                    "arrayminus": [_beyond(each.share.low, each.share.value) for each in found],
                    "color": INK,
                    "visible": any(each.share.low is not None for each in found),
                },
                customdata=[(f"{each.upper_s:.4g}", each.share.note) for each in found],
                hovertemplate="to %{customdata[0]} s: <b>%{y:.3g} %</b><br>%{customdata[1]}<extra>" + name + "</extra>",
                name=name,
            )
        )
    steps = max(len(found) for found in present.values())
    dressed(figure, title, 380, "each in steps from its own fastest to its own slowest response; bars: 95 %")
    figure.update_layout(showlegend=True)
    texts = ["fastest", *(f"{100 * step / (steps - 1):.0f} %" for step in range(1, steps))]
    figure.update_xaxes(
        title=axis_title("up to so far from the fastest to the slowest", "% of the way"),
        tickvals=list(range(steps)),
        ticktext=texts,
    )
    figure.update_yaxes(title=axis_title("responses", "%"), rangemode="tozero")
    return figure


def _beyond(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else 100 * (high - low)
