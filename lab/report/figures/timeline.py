"""Rate, errors and latency per 100 ms around what was done to the system, with a mark for every event."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import polars as pl

from lab.analysis.timelines import BIN_S, FAILED, ROWS
from lab.report.figures.style import COLOURS, FAILURES, INK, MARKS, SYMBOLS, axis, gap, log_axis, scaled, stacked

SHADE = "rgba(128,128,128,0.16)"
"""Where the disturbance lasts, from its Begin to its End."""

NEAR_S, MOST = 0.25, 12
"""Marks so close share a hover text, of so many lines at most."""


def timeline(bins: pl.DataFrame, marks: pl.DataFrame, title: str, band: pl.DataFrame | None = None) -> go.Figure:
    """`bins`, `marks` of one sample (`lab.analysis.timelines`); `band`: the least and most good answers of any block (`across`).

    Good answers count when they arrive, failures and latencies when their requests fell due.
    """
    if bins.is_empty():
        return gap(title, "no request was logged")
    below = f"per {BIN_S * 1000:.0f} ms; answers when they arrive, failures and latency when the request fell due"
    if band is not None and not band.is_empty():
        below += "; grey: least and most of any block"
    greatest = bins["max_s"].max()
    scale, unit = scaled("s", float(greatest)) if isinstance(greatest, float) else (1e-3, "ms")
    failures = _failures(bins)
    present = [row for row in ROWS if row in set(marks["row"])]
    panels = [
        [_marks(marks.filter(pl.col("row") == row), row) for row in present],
        [*_band(band), *_rates(bins)],
        failures or [go.Scatter(x=[None], y=[None], showlegend=False, hoverinfo="skip")],  # makes the panel
        _latencies(bins, scale, unit),
    ]
    kinds = {"categoryorder": "array", "categoryarray": list(reversed(present))}
    figure = stacked(
        [(number, trace) for number, traces in enumerate(panels, 1) for trace in traces],
        title,
        640,
        below,
        axis("since the load began", "s", showticklabels=True, ticks="outside"),
        [
            kinds | {"showgrid": False, "tickfont": {"size": 11}},
            axis("rate", "req/s", rangemode="tozero"),
            axis("failed", rangemode="tozero") | ({} if failures else {"range": [0, 1], "showticklabels": False}),
            axis("latency", unit, **log_axis([*bins["p50_s"], *bins["max_s"]])),
        ],
        row_heights=[0.18, 0.3, 0.22, 0.3],
        vertical_spacing=0.045,
    )
    if not failures:
        place = {"xref": "x3 domain", "yref": "y3 domain", "x": 0.5, "y": 0.5}
        figure.add_annotation(text="no request failed", showarrow=False, **place)
    _lines(figure, marks)
    for upper in (1, 2, 3):
        figure.update_xaxes(showticklabels=False, ticks="", row=upper, col=1)
    return figure.update_layout(barmode="stack", bargap=0, hovermode="closest")


def _marks(marks: pl.DataFrame, row: str) -> go.Scatter:
    kinds = {kind: SYMBOLS[place % len(SYMBOLS)] for place, kind in enumerate(ROWS[row])}
    symbols: Any = [kinds[kind] for kind in marks["kind"]]
    return go.Scatter(
        x=marks["t_s"].to_list(),
        y=[row] * marks.height,
        mode="markers",
        marker={"color": MARKS[row], "size": 8, "symbol": symbols, "line": {"width": 1, "color": INK}},
        customdata=_together(marks.select("t_s", "kind", "text").rows()),
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
        name=row,
    )


def _together(marks: list[tuple[float, str, str]]) -> list[str]:
    """Each mark's hover text: its own and those of the marks beside it, which lie under the same pointer."""
    texts = [f"{t_s:.3f} s: <b>{kind}</b> {text}" for t_s, kind, text in marks]
    found: list[str] = []
    for t_s, _, _ in marks:
        near = [text for text, (other_s, _, _) in zip(texts, marks, strict=True) if abs(other_s - t_s) <= NEAR_S]
        more = [f"… and {len(near) - MOST} more"] if len(near) > MOST else []
        found.append("<br>".join(near[:MOST] + more))
    return found


def _band(band: pl.DataFrame | None) -> list[go.Scatter]:
    if band is None or band.is_empty():
        return []
    there, back = band["t_s"].to_list(), band["t_s"].to_list()[::-1]
    area = go.Scatter(
        x=there + back,
        y=band["high_rps"].to_list() + band["low_rps"].to_list()[::-1],
        fill="toself",
        fillcolor="rgba(128,128,128,0.3)",
        line={"width": 0},
        hoverinfo="skip",
        name="all blocks",
    )
    return [area]


def _rates(bins: pl.DataFrame) -> list[go.Scatter]:
    lines = (("due_rps", "due", INK, "dot"), ("good_rps", "good answers", COLOURS[0], "solid"))
    return [
        go.Scatter(
            x=bins["t_s"].to_list(),
            y=bins[column].to_list(),
            line={"color": colour, "width": 1.6, "dash": dash, "shape": "hv"},
            hovertemplate=f"%{{x:.1f}} s: %{{y:,.0f}} req/s<extra>{name}</extra>",
            name=name,
        )
        for column, name, colour, dash in lines
    ]


def _failures(bins: pl.DataFrame) -> list[go.Bar]:
    names = {kind: "wrong status" if kind == "status" else f"failed: {kind}" for kind in FAILED if bins[kind].sum()}
    return [
        go.Bar(
            x=(bins["t_s"] + BIN_S / 2).to_list(),
            y=bins[kind].to_list(),
            width=BIN_S,
            marker={"color": FAILURES[kind], "line": {"width": 0}},
            hovertemplate=f"%{{x:.2f}} s: %{{y}} requests<extra>{name}</extra>",
            name=name,
        )
        for kind, name in names.items()
    ]


def _latencies(bins: pl.DataFrame, scale: float, unit: str) -> list[go.Scatter]:
    return [
        go.Scatter(
            x=(bins["t_s"] + BIN_S / 2).to_list(),
            y=(bins[column] / scale).to_list(),
            mode="lines+markers",
            connectgaps=False,
            marker={"size": 3},
            line={"color": colour, "width": 1.2},
            hovertemplate=f"%{{x:.2f}} s: %{{y:.3g}} {unit}<extra>{name}</extra>",
            name=f"latency, {name}",
        )
        for column, name, colour in (("max_s", "slowest", COLOURS[1]), ("p50_s", "median", COLOURS[2]))
    ]


def _lines(figure: go.Figure, marks: pl.DataFrame) -> None:
    """The disturbance's begin and end through all rows, and what lies between shaded."""
    ends = marks.filter(pl.col("kind").is_in(["Begin", "End"]))
    for t_s in ends["t_s"]:
        figure.add_shape(
            type="line",
            xref="x",
            yref="paper",
            x0=t_s,
            x1=t_s,
            y0=0,
            y1=1,
            line={"color": INK, "width": 1, "dash": "dot"},
        )
    begun = ends.filter(pl.col("kind") == "Begin")["t_s"].min()
    ended = ends.filter(pl.col("kind") == "End")["t_s"].max()
    if isinstance(begun, float) and isinstance(ended, float) and ended > begun:
        figure.add_shape(
            type="rect", xref="x", yref="paper", x0=begun, x1=ended, y0=0, y1=1, fillcolor=SHADE, line={"width": 0}
        )
