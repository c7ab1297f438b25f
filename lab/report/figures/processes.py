"""How many of the proxy's processes are alive, and the memory that they hold together, while it reloads."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from lab.report.figures.style import INK, axis_title, colours, dressed, gap, scaled


def processes(seen: Mapping[str, pl.DataFrame], title: str, reloads: pl.DataFrame | None = None) -> go.Figure:
    """Arm → `lab.records.incidents.looks` of one sample; `reloads`: marks whose times are lines, where it is one arm's figure."""
    present = {name: frame for name, frame in seen.items() if not frame.is_empty()}
    if not present:
        return gap(title, "nothing of this was recorded")
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    most = max(float(frame.select(pl.max("rss_bytes")).item()) for frame in present.values())
    scale, unit = scaled("bytes", most)
    for name, colour in colours(list(present)).items():
        frame = present[name]
        lines = ((1, frame["processes"], "processes", ".0f"), (2, frame["rss_bytes"] / scale, unit, ",.3g"))
        for row, values, of, form in lines:
            figure.add_trace(
                go.Scatter(
                    x=frame["t_s"].to_list(),
                    y=values.to_list(),
                    line={"color": colour, "shape": "hv", "width": 2},
                    name=name,
                    legendgroup=name,
                    showlegend=row == 1,
                    hovertemplate=f"%{{x:.0f}} s: %{{y:{form}}} {of}<extra>{name}</extra>",
                ),
                row=row,
                col=1,
            )
    dressed(figure, title, 460, "proxy's processes second by second; memory is the sum of their resident sizes")
    if reloads is not None:
        for t_s in reloads.filter(pl.col("kind") == "Reload")["t_s"]:
            figure.add_vline(x=t_s, line={"color": INK, "width": 0.7, "dash": "dot"})
    figure.update_yaxes(title=axis_title("processes", ""), rangemode="tozero", tickformat=",d", nticks=6, row=1, col=1)
    figure.update_yaxes(title=axis_title("memory", unit), rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title=axis_title("since the load began", "s"), row=2, col=1)
    return figure
