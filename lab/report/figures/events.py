"""What happened in one sample: rate, errors and latency per 100 ms around what was done to the system, with a mark for every event; how long each
change took to show in an answer, every large body's way, every probe; and the proxy's processes while it reloads.

Frames are `lab.analysis.timelines`'s, but for `processes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import Any

import plotly.graph_objects as go
import polars as pl

from lab.analysis.timelines import BIN_S, FAILED, ROWS
from lab.report.figures.style import (
    BAD,
    COLOURS,
    FAILURES,
    INK,
    MARKS,
    NOTHING,
    axis,
    colours,
    drawn,
    gap,
    log_axis,
    scaled,
    stacked,
)

NEAR_S, MOST = 0.25, 12
"""Marks so close share a hover text, of so many lines at most."""
SYMBOLS = ("circle", "diamond", "triangle-up", "square", "x", "cross", "star", "triangle-down", "pentagon")


# -- the timeline ----------------------------------------------------------------------------------------------


def timeline(bins: pl.DataFrame, marks: pl.DataFrame, title: str, band: pl.DataFrame | None = None) -> go.Figure:
    """`bins`, `marks` of one sample; `band`: the least and most good answers of any block (`across`).

    Good answers count when they arrive, failures and latencies when their requests fell due.
    """
    if bins.is_empty():
        return gap(title, "no request was logged")
    below = f"per {BIN_S * 1000:.0f} ms; answers when they arrive, failures and latency when the request fell due"
    rates = _rates(bins)
    if band is not None and not band.is_empty():
        below += "; grey: least and most of any block"
        rates = [_band(band), *rates]
    greatest = bins["max_s"].max()
    scale, unit = scaled("s", float(greatest)) if isinstance(greatest, float) else (1e-3, "ms")
    failures = _failures(bins)
    present = [row for row in ROWS if row in set(marks["row"])]
    panels = [
        [_marks(marks.filter(pl.col("row") == row), row) for row in present],
        rates,
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
    # the disturbance's begin and end through all rows, and what lies between shaded
    whole = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    ends = marks.filter(pl.col("kind").is_in(["Begin", "End"]))
    for t_s in ends["t_s"]:
        figure.add_shape(type="line", x0=t_s, x1=t_s, line={"color": INK, "width": 1, "dash": "dot"}, **whole)
    begun = ends.filter(pl.col("kind") == "Begin")["t_s"].min()
    ended = ends.filter(pl.col("kind") == "End")["t_s"].max()
    if isinstance(begun, float) and isinstance(ended, float) and ended > begun:
        shade = {"fillcolor": "rgba(128,128,128,0.16)", "line": {"width": 0}}
        figure.add_shape(type="rect", x0=begun, x1=ended, **shade, **whole)
    for upper in (1, 2, 3):
        figure.update_xaxes(showticklabels=False, ticks="", row=upper, col=1)
    return figure.update_layout(barmode="stack", bargap=0, hovermode="closest")


def _marks(marks: pl.DataFrame, row: str) -> go.Scatter:
    """A mark's hover text is its own and those of the marks beside it, which lie under the same pointer."""
    kinds = {kind: SYMBOLS[place % len(SYMBOLS)] for place, kind in enumerate(ROWS[row])}
    symbols: Any = [kinds[kind] for kind in marks["kind"]]
    told = [
        (t_s, f"{t_s:.3f} s: <b>{kind}</b> {text}") for t_s, kind, text in marks.select("t_s", "kind", "text").rows()
    ]
    hovers: list[str] = []
    for t_s, _ in told:
        near = [text for other_s, text in told if abs(other_s - t_s) <= NEAR_S]
        more = [f"… and {len(near) - MOST} more"] if len(near) > MOST else []
        hovers.append("<br>".join(near[:MOST] + more))
    return go.Scatter(
        x=marks["t_s"].to_list(),
        y=[row] * marks.height,
        mode="markers",
        marker={"color": MARKS[row], "size": 8, "symbol": symbols, "line": {"width": 1, "color": INK}},
        customdata=hovers,
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
        name=row,
    )


def _band(band: pl.DataFrame) -> go.Scatter:
    there, back = band["t_s"].to_list(), band["t_s"].to_list()[::-1]
    return go.Scatter(
        x=there + back,
        y=band["high_rps"].to_list() + band["low_rps"].to_list()[::-1],
        fill="toself",
        fillcolor="rgba(128,128,128,0.3)",
        line={"width": 0},
        hoverinfo="skip",
        name="all blocks",
    )


def _rates(bins: pl.DataFrame) -> list[go.Scatter]:
    return [
        go.Scatter(
            x=bins["t_s"].to_list(),
            y=bins[column].to_list(),
            line={"color": colour, "width": 1.6, "dash": dash, "shape": "hv"},
            hovertemplate=f"%{{x:.1f}} s: %{{y:,.0f}} req/s<extra>{name}</extra>",
            name=name,
        )
        for column, name, colour, dash in (
            ("due_rps", "due", INK, "dot"),
            ("good_rps", "good answers", COLOURS[0], "solid"),
        )
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


# -- single events ---------------------------------------------------------------------------------------------


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
    """Every large body's way through the proxy: from when until when, how fast, and what it was answered with. A bar per body."""
    rate = pl.col("size_bytes") / pl.col("took_s").clip(1e-6)
    lines = moved.sort("from_s").with_row_index("number", 1)
    lines = lines.with_columns(rate=rate, good=pl.col("status").is_between(200, 299))
    bars = [
        go.Bar(
            x=some["took_s"].to_list(),
            y=some["number"].to_list(),
            base=some["from_s"].to_list(),
            orientation="h",
            # what was refused at once would have no width
            marker={"color": colour, "line": {"width": 0 if good else 1.5, "color": colour}},
            customdata=[
                _moved(*row) for row in some.select("way", "size_bytes", "took_s", "first_s", "status", "rate").rows()
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


def _moved(way: str, size_bytes: int, took_s: float, first_s: float | None, status: int, rate: float) -> str:
    (per, unit), (whole, of) = scaled("bytes/s", rate), scaled("bytes", size_bytes)
    first = "no answer began" if first_s is None else f"first byte after {first_s:.4f} s"
    moved = f"{way} of {size_bytes / whole:.3g} {of}: {took_s:.3f} s, {rate / per:.3g} {unit}"
    return f"{moved}<br>{first}, status {status}"


def probing(
    probes: pl.DataFrame, marks: pl.DataFrame, title: str, timeouts_s: Mapping[str, float] | None = None
) -> go.Figure:
    """What every single probe took, which of them failed, and where a container was restarted because of it.

    `timeouts_s`: probe → its timeout, a line each where they differ; None: unknown.
    """
    traces = [
        go.Scatter(
            x=some["t_s"].to_list(),
            y=some["took_s"].clip(1e-4).to_list(),  # on the log axis what took less stands there
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
    untimed = "no single probe was recorded (clusters count them, they do not time them)"
    figure = drawn(traces, title, 400, below, axis("since the load began", "s"), took, untimed)
    if not traces:
        return figure
    for timeout_s in sorted(set((timeouts_s or {}).values())):
        figure.add_hline(y=timeout_s, line={"color": INK, "dash": "dash", "width": 1})
        place = {"x": 0, "xref": "paper", "y": log10(timeout_s), "xanchor": "left", "yanchor": "bottom"}
        figure.add_annotation(text=f"timeout {timeout_s:g} s", showarrow=False, font={"size": 11}, **place)
    told = marks.filter(pl.col("kind").is_in(["Begin", "End", "Killing"])).select("t_s", "kind", "text")
    for t_s, kind, text in told.rows():
        figure.add_vline(x=t_s, line={"color": BAD if kind == "Killing" else INK, "width": 1, "dash": "dot"})
        place = {"x": t_s, "y": 1, "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(text=kind, hovertext=text, showarrow=False, font={"size": 10}, **place)
    return figure


# -- processes -------------------------------------------------------------------------------------------------


def processes(seen: Mapping[str, pl.DataFrame], title: str, reloads: pl.DataFrame | None = None) -> go.Figure:
    """How many of the proxy's processes are alive, and the memory that they hold together, while it reloads.

    Arm → `lab.records.incidents.looks` of one sample; `reloads`: marks whose times are lines, where it is one arm's figure.
    """
    present = {name: frame for name, frame in seen.items() if not frame.is_empty()}
    if not present:
        return gap(title, NOTHING)
    most = max(float(frame.select(pl.max("rss_bytes")).item()) for frame in present.values())
    scale, unit = scaled("bytes", most)
    traces: list[tuple[int, go.Scatter]] = []
    for name, colour in colours(list(present)).items():
        frame = present[name]
        hovers = "%{y:.0f} processes", f"%{{y:,.3g}} {unit}"
        for panel, values in enumerate((frame["processes"], frame["rss_bytes"] / scale)):
            line = go.Scatter(
                x=frame["t_s"].to_list(),
                y=values.to_list(),
                line={"color": colour, "shape": "hv", "width": 2},
                name=name,
                legendgroup=name,
                showlegend=not panel,
                hovertemplate=f"%{{x:.0f}} s: {hovers[panel]}<extra>{name}</extra>",
            )
            traces.append((panel + 1, line))
    ys = [
        axis("processes", rangemode="tozero", tickformat=",d", nticks=6),
        axis("memory", unit, rangemode="tozero"),
    ]
    below = "proxy's processes second by second; memory is the sum of their resident sizes"
    figure = stacked(traces, title, 460, below, axis("since the load began", "s"), ys, vertical_spacing=0.08)
    for t_s in reloads.filter(pl.col("kind") == "Reload")["t_s"] if reloads is not None else ():
        figure.add_vline(x=t_s, line={"color": INK, "width": 0.7, "dash": "dot"})
    return figure
