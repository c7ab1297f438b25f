"""What single events of one sample show: how long each change took to show in an answer, every large body's way, every probe."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10

import plotly.graph_objects as go
import polars as pl

from lab.report.figures.style import BAD, COLOURS, INK, axis, colours, drawn, scaled

UNTIMED = "no single probe was recorded (clusters count them, they do not time them)"
LEAST_S = 1e-4
"""On the log axis a probe that took less stands here."""


def delays(changes: Mapping[str, pl.DataFrame], title: str) -> go.Figure:
    """How long each change took to show in an answer, over the time at which it was made.

    Arm → its changes in one sample: columns `t_s` (when it was accepted), `delay_s` (null: no answer showed it).

    What no answer showed before the load ended stands on the upper edge.
    """
    present = {name: frame for name, frame in changes.items() if not frame.is_empty()}
    tops = [float(top) for frame in present.values() if isinstance(top := frame["delay_s"].max(), float)]
    traces = [
        go.Scatter(
            x=some["t_s"].to_list(),
            y=some["delay_s"].fill_null(1.15 * max(tops, default=1.0)).to_list(),
            mode="markers",
            marker={"color": colour, "size": 6, "symbol": "circle" if shown else "x-thin-open"},
            name=name if shown else f"{name}: never seen",
            hovertemplate=f"made at %{{x:.2f}} s<br>{'first seen after %{y:.3f} s' if shown else 'never seen'}"
            f"<extra>{name}</extra>",
        )
        for name, colour in colours(list(present)).items()
        for shown in (True, False)
        if not (some := present[name].filter(pl.col("delay_s").is_not_null() == shown)).is_empty()
    ]
    return drawn(
        traces,
        title,
        400,
        "a dot per change: from its acceptance to the first answer that shows it or a later one",
        axis("change made, since the load began", "s"),
        axis("until an answer shows it", "s", rangemode="tozero"),
    )


def transfers(moved: pl.DataFrame, title: str) -> go.Figure:
    """Every large body's way through the proxy: from when until when, how fast, and what it was answered with.

    `moved`: `lab.analysis.timelines.transfers` of one sample. A bar per body.
    """
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


def probing(
    probes: pl.DataFrame, marks: pl.DataFrame, title: str, timeouts_s: Mapping[str, float] | None = None
) -> go.Figure:
    """What every single probe took, which of them failed, and where a container was restarted because of it.

    `probes`, `marks` of one sample (`lab.analysis.timelines`); `timeouts_s`: probe → its timeout, a line each where they differ; None: unknown.
    """
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
