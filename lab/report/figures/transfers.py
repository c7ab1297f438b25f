"""Every large body's way through the proxy: from when until when, how fast, and what it was answered with."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from lab.report.figures.style import BAD, COLOURS, INK, axis, drawn, scaled


def transfers(moved: pl.DataFrame, title: str) -> go.Figure:
    """`moved`: `lab.analysis.timelines.transfers` of one sample. A bar per body."""
    lines = (
        moved.sort("from_s")
        .with_row_index("number", 1)
        .with_columns(
            rate=pl.col("size_bytes") / pl.col("took_s").clip(1e-6), good=pl.col("status").is_between(200, 299)
        )
    )
    bars = [
        go.Bar(
            x=some["took_s"].to_list(),
            y=some["number"].to_list(),
            base=some["from_s"].to_list(),
            orientation="h",
            # what was refused at once would have no width
            marker={"color": colour, "line": {"width": 0 if good else 1.5, "color": colour}},
            customdata=[
                _told(*row) for row in some.select("way", "size_bytes", "took_s", "first_s", "status", "rate").rows()
            ],
            hovertemplate="%{customdata}<extra></extra>",
            name=name,
        )
        for good, colour, name in ((True, COLOURS[0], "answered 2xx"), (False, BAD, "refused or failed"))
        if not (some := lines.filter(pl.col("good") == good)).is_empty()
    ]
    begun = go.Scatter(
        x=(lines["from_s"] + lines["first_s"]).to_list(),
        y=lines["number"].to_list(),
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 7, "color": INK, "line": {"width": 1.5}},
        hoverinfo="skip",
        name="first byte of the answer",
    )
    return drawn(
        [*bars, begun] if bars else [],
        title,
        min(700, 200 + 8 * lines.height),
        "a bar per body, from its begin to its end",
        axis("since the load began", "s"),
        axis("body", "in order", autorange="reversed"),
    )


def _told(way: str, size_bytes: int, took_s: float, first_s: float | None, status: int, rate: float) -> str:
    per, unit = scaled("bytes/s", rate)
    whole, of = scaled("bytes", size_bytes)
    first = "no answer began" if first_s is None else f"first byte after {first_s:.4f} s"
    return (
        f"{way} of {size_bytes / whole:.3g} {of}: {took_s:.3f} s, {rate / per:.3g} {unit}<br>{first}, status {status}"
    )
