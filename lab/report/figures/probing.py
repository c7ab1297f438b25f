"""What every single probe took, which of them failed, and where a container was restarted because of it."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10

import plotly.graph_objects as go
import polars as pl

from lab.report.figures.style import BAD, INK, axis, colours, drawn

UNTIMED = "no single probe was recorded (clusters count them, they do not time them)"
LEAST_S = 1e-4
"""On the log axis a probe that took less stands here."""


def probing(
    probes: pl.DataFrame, marks: pl.DataFrame, title: str, timeouts_s: Mapping[str, float] | None = None
) -> go.Figure:
    """`probes`, `marks` of one sample (`lab.analysis.timelines`); `timeouts_s`: probe → its timeout, a line each where they differ; None: unknown."""
    traces = [
        go.Scatter(
            x=some["t_s"].to_list(),
            y=some["took_s"].clip(LEAST_S).to_list(),
            mode="markers",
            marker={"color": colour if ok else BAD, "size": 8, "symbol": "circle" if ok else "x"},
            customdata=some["object"].to_list(),
            hovertemplate="%{x:.2f} s: %{y:.4f} s<br>%{customdata}<extra>" + name + "</extra>",
            name=name if ok else f"{name}, failed",
        )
        for name, colour in colours(sorted(set(probes["probe"]))).items()
        for ok in (True, False)
        if not (some := probes.filter((pl.col("probe") == name) & (pl.col("ok") == ok))).is_empty()
    ]
    below = "a dot per probe" if timeouts_s is not None else "a dot per probe; the timeouts are unknown"
    took = axis("probe took", "s", type="log", dtick=1, exponentformat="none")
    figure = drawn(traces, title, 400, below, axis("since the load began", "s"), took, UNTIMED)
    if not traces:
        return figure
    for timeout_s in sorted(set((timeouts_s or {}).values())):
        figure.add_hline(y=timeout_s, line={"color": INK, "dash": "dash", "width": 1})
        place = {"x": 0, "xref": "paper", "y": log10(timeout_s), "xanchor": "left", "yanchor": "bottom"}
        figure.add_annotation(text=f"timeout {timeout_s:g} s", showarrow=False, font={"size": 11}, **place)
    for t_s, kind, text in (
        marks.filter(pl.col("kind").is_in(["Begin", "End", "Killing"])).select("t_s", "kind", "text").rows()
    ):
        figure.add_vline(x=t_s, line={"color": BAD if kind == "Killing" else INK, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=t_s, y=1, yref="paper", text=kind, hovertext=text, showarrow=False, font={"size": 10}, yanchor="bottom"
        )
    return figure
