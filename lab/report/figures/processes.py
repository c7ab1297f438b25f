"""How many of the proxy's processes are alive, and the memory that they hold together, while it reloads."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from lab.report.figures.style import INK, NOTHING, axis, colours, gap, scaled, stacked


def processes(seen: Mapping[str, pl.DataFrame], title: str, reloads: pl.DataFrame | None = None) -> go.Figure:
    """Arm → `lab.records.incidents.looks` of one sample; `reloads`: marks whose times are lines, where it is one arm's figure."""
    present = {name: frame for name, frame in seen.items() if not frame.is_empty()}
    if not present:
        return gap(title, NOTHING)
    most = max(float(frame.select(pl.max("rss_bytes")).item()) for frame in present.values())
    scale, unit = scaled("bytes", most)
    traces = [
        trace
        for (name, colour), frame in zip(colours(list(present)).items(), present.values(), strict=True)
        for trace in (
            (1, _line(name, colour, frame["t_s"], frame["processes"], "%{y:.0f} processes", listed=True)),
            (2, _line(name, colour, frame["t_s"], frame["rss_bytes"] / scale, f"%{{y:,.3g}} {unit}", listed=False)),
        )
    ]
    ys = [
        axis("processes", rangemode="tozero", tickformat=",d", nticks=6),
        axis("memory", unit, rangemode="tozero"),
    ]
    below = "proxy's processes second by second; memory is the sum of their resident sizes"
    figure = stacked(traces, title, 460, below, axis("since the load began", "s"), ys, vertical_spacing=0.08)
    if reloads is not None:
        for t_s in reloads.filter(pl.col("kind") == "Reload")["t_s"]:
            figure.add_vline(x=t_s, line={"color": INK, "width": 0.7, "dash": "dot"})
    return figure


def _line(arm: str, colour: str, t_s: pl.Series, values: pl.Series, hover: str, listed: bool) -> go.Scatter:
    return go.Scatter(
        x=t_s.to_list(),
        y=values.to_list(),
        line={"color": colour, "shape": "hv", "width": 2},
        name=arm,
        legendgroup=arm,
        showlegend=listed,
        hovertemplate=f"%{{x:.0f}} s: {hover}<extra>{arm}</extra>",
    )
