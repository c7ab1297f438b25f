"""The figures of what happened in one sample: its timeline, its single events, and the proxy's processes.

The timeline has rate, errors and latency per 100 ms around a disruption, with a mark for every event. Further figures show the
delay until an answer shows a configuration change, the transfer of every large body, every probe, and the proxy's processes
during reloads. Except for `processes`, the functions need frames of `lab.analysis.timelines`.
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
    choose_scale,
    colours,
    log_axis,
    make_empty_figure,
    make_figure,
    make_stacked_figure,
)

NEAR_S, MOST_HOVER_LINES = 0.25, 12
"""The seconds within which marks share a hover text, and the largest number of its lines."""
SYMBOLS = ("circle", "diamond", "triangle-up", "square", "x", "cross", "star", "triangle-down", "pentagon")


# -- the timeline ----------------------------------------------------------------------------------------------


def timeline(bins: pl.DataFrame, marks: pl.DataFrame, title: str, band: pl.DataFrame | None = None) -> go.Figure:
    """Return the figure of one disrupted sample over time: events, rates, failures and latencies in rows below each other.

    A good answer is drawn at the time when it arrived. Failures and latencies are drawn at the time when their request was due.

    Args:
        bins: Counts and latencies per interval of BIN_S seconds.
        marks: The events of the sample.
        title: The title of the figure.
        band: Per interval, the smallest and largest rate of good answers in any block (repetition); None: not shown.

    """
    if bins.is_empty():
        return make_empty_figure(title, "no request was logged")
    subtitle = f"per {BIN_S * 1000:.0f} ms; answers when they arrive, failures and latency when the request fell due"
    rates = _make_rates(bins)
    if band is not None and not band.is_empty():
        subtitle += "; grey: least and most of any block"
        rates = [_make_band(band), *rates]
    greatest = bins["max_s"].max()
    scale, unit = choose_scale("s", float(greatest)) if isinstance(greatest, float) else (1e-3, "ms")
    failures = _make_failures(bins)
    present = [row for row in ROWS if row in set(marks["row"])]
    panels = [
        [_make_marks(marks.filter(pl.col("row") == row), row) for row in present],
        rates,
        failures or [go.Scatter(x=[None], y=[None], showlegend=False, hoverinfo="skip")],  # makes the panel
        _make_latencies(bins, scale, unit),
    ]
    kinds = {"categoryorder": "array", "categoryarray": list(reversed(present))}
    figure = make_stacked_figure(
        [(number, trace) for number, traces in enumerate(panels, 1) for trace in traces],
        title,
        640,
        subtitle,
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
    # lines at begin and end of the disruption through all rows, with a shade between them
    full_height = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    ends = marks.filter(pl.col("kind").is_in(["Begin", "End"]))
    for t_s in ends["t_s"]:
        figure.add_shape(type="line", x0=t_s, x1=t_s, line={"color": INK, "width": 1, "dash": "dot"}, **full_height)
    begun = ends.filter(pl.col("kind") == "Begin")["t_s"].min()
    ended = ends.filter(pl.col("kind") == "End")["t_s"].max()
    if isinstance(begun, float) and isinstance(ended, float) and ended > begun:
        shade = {"fillcolor": "rgba(128,128,128,0.16)", "line": {"width": 0}}
        figure.add_shape(type="rect", x0=begun, x1=ended, **shade, **full_height)
    for upper in (1, 2, 3):
        figure.update_xaxes(showticklabels=False, ticks="", row=upper, col=1)
    return figure.update_layout(barmode="stack", bargap=0, hovermode="closest")


def _make_marks(marks: pl.DataFrame, row: str) -> go.Scatter:
    """Return the marks (one for each event) of one row of the timeline.

    The mouse cannot select a single mark among marks that are close to each other. So the hover text of a mark describes all
    marks near it.

    Args:
        marks: The events of the row.
        row: The name of the row.

    """
    kinds = {kind: SYMBOLS[place % len(SYMBOLS)] for place, kind in enumerate(ROWS[row])}
    symbols: Any = [kinds[kind] for kind in marks["kind"]]
    texts = [
        (t_s, f"{t_s:.3f} s: <b>{kind}</b> {text}") for t_s, kind, text in marks.select("t_s", "kind", "text").rows()
    ]
    hovers: list[str] = []
    for t_s, _ in texts:
        near = [text for near_s, text in texts if abs(near_s - t_s) <= NEAR_S]
        omitted = [f"… and {len(near) - MOST_HOVER_LINES} more"] if len(near) > MOST_HOVER_LINES else []
        hovers.append("<br>".join(near[:MOST_HOVER_LINES] + omitted))
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


def _make_band(band: pl.DataFrame) -> go.Scatter:
    forth, back = band["t_s"].to_list(), band["t_s"].to_list()[::-1]
    return go.Scatter(
        x=forth + back,
        y=band["high_rps"].to_list() + band["low_rps"].to_list()[::-1],
        fill="toself",
        fillcolor="rgba(128,128,128,0.3)",
        line={"width": 0},
        hoverinfo="skip",
        name="all blocks",
    )


def _make_rates(bins: pl.DataFrame) -> list[go.Scatter]:
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


def _make_failures(bins: pl.DataFrame) -> list[go.Bar]:
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


def _make_latencies(bins: pl.DataFrame, scale: float, unit: str) -> list[go.Scatter]:
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
    """Return the figure of delays: for each configuration change, the time until an answer showed it.

    The horizontal axis is the time of the change. A change that no answer showed is drawn at the upper edge.

    Args:
        changes: Arm (variant of the run) → its changes, with the columns `t_s` (when the change was accepted) and `delay_s` (null: no
            answer showed it).
        title: The title of the figure.

    """
    present = {name: frame for name, frame in changes.items() if not frame.is_empty()}
    tops = [float(top) for frame in present.values() if isinstance(top := frame["delay_s"].max(), float)]
    traces = [
        go.Scatter(
            x=selected["t_s"].to_list(),
            y=selected["delay_s"].fill_null(1.15 * max(tops, default=1.0)).to_list(),
            mode="markers",
            marker={"color": colour, "size": 6, "symbol": "circle" if visible else "x-thin-open"},
            name=name if visible else f"{name}: never seen",
            hovertemplate=f"made at %{{x:.2f}} s<br>{'first seen after %{y:.3f} s' if visible else 'never seen'}"
            f"<extra>{name}</extra>",
        )
        for name, colour in colours(list(present)).items()
        for visible in (True, False)
        if not (selected := present[name].filter(pl.col("delay_s").is_not_null() == visible)).is_empty()
    ]
    return make_figure(
        traces,
        title,
        400,
        "a dot per change: from its acceptance to the first answer that shows it or a later one",
        axis("change made, since the load began", "s"),
        axis("until an answer shows it", "s", rangemode="tozero"),
    )


def transfers(bodies: pl.DataFrame, title: str) -> go.Figure:
    """Return the figure of the transfers of large request or response bodies, with a bar from the begin to the end of each.

    The hover text has the rate of the transfer and the status of the answer.

    Args:
        bodies: The transfers of one sample.
        title: The title of the figure.

    """
    rate = pl.col("size_bytes") / pl.col("took_s").clip(1e-6)
    lines = bodies.sort("from_s").with_row_index("number", 1)
    lines = lines.with_columns(rate=rate, good=pl.col("status").is_between(200, 299))
    bars = [
        go.Bar(
            x=selected["took_s"].to_list(),
            y=selected["number"].to_list(),
            base=selected["from_s"].to_list(),
            orientation="h",
            # a transfer that was refused at once would have no width
            marker={"color": colour, "line": {"width": 0 if good else 1.5, "color": colour}},
            customdata=[
                _describe_transfer(*row)
                for row in selected.select("way", "size_bytes", "took_s", "first_s", "status", "rate").rows()
            ],
            hovertemplate="%{customdata}<extra></extra>",
            name=name,
        )
        for good, colour, name in ((True, COLOURS[0], "answered 2xx"), (False, BAD, "refused or failed"))
        if not (selected := lines.filter(pl.col("good") == good)).is_empty()
    ]
    first_bytes = go.Scatter(
        x=(lines["from_s"] + lines["first_s"]).to_list(),
        y=lines["number"].to_list(),
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 7, "color": INK, "line": {"width": 1.5}},
        hoverinfo="skip",
        name="first byte of the answer",
    )
    return make_figure(
        [*bars, first_bytes] if bars else [],
        title,
        min(700, 200 + 8 * lines.height),
        "a bar per body, from its begin to its end",
        axis("since the load began", "s"),
        axis("body", "in order", autorange="reversed"),
    )


def _describe_transfer(
    way: str, size_bytes: int, took_s: float, first_s: float | None, status: int, rate: float
) -> str:
    (rate_scale, rate_unit), (size_scale, size_unit) = choose_scale("bytes/s", rate), choose_scale("bytes", size_bytes)
    first = "no answer began" if first_s is None else f"first byte after {first_s:.4f} s"
    summary = f"{way} of {size_bytes / size_scale:.3g} {size_unit}: {took_s:.3f} s, {rate / rate_scale:.3g} {rate_unit}"
    return f"{summary}<br>{first}, status {status}"


def probing(
    probes: pl.DataFrame, marks: pl.DataFrame, title: str, timeouts_s: Mapping[str, float] | None = None
) -> go.Figure:
    """Return the figure of liveness and readiness probes: how long each took, which failed, and when containers were restarted.

    Args:
        probes: The probes of one sample.
        marks: The events of the sample.
        title: The title of the figure.
        timeouts_s: Probe → its timeout in seconds; a line is drawn for each different timeout. None: unknown.

    """
    traces = [
        go.Scatter(
            x=selected["t_s"].to_list(),
            y=selected["took_s"].clip(1e-4).to_list(),  # shorter times stand there on the log axis
            mode="markers",
            marker={"color": colour if ok else BAD, "size": 8, "symbol": "circle" if ok else "x"},
            customdata=selected["object"].to_list(),
            hovertemplate="%{x:.2f} s: %{y:.4f} s<br>%{customdata}<extra>" + name + "</extra>",
            name=name if ok else f"{name}, failed",
        )
        for name, colour in colours(sorted(set(probes["probe"]))).items()
        for ok in (True, False)
        if not (selected := probes.filter((pl.col("probe") == name) & (pl.col("ok") == ok))).is_empty()
    ]
    subtitle = "a dot per probe" if timeouts_s is not None else "a dot per probe; the timeouts are unknown"
    took = axis("probe took", "s", type="log", dtick=1, exponentformat="none")
    untimed = "no single probe was recorded (clusters count them, they do not time them)"
    figure = make_figure(traces, title, 400, subtitle, axis("since the load began", "s"), took, untimed)
    if not traces:
        return figure
    for timeout_s in sorted(set((timeouts_s or {}).values())):
        figure.add_hline(y=timeout_s, line={"color": INK, "dash": "dash", "width": 1})
        place = {"x": 0, "xref": "paper", "y": log10(timeout_s), "xanchor": "left", "yanchor": "bottom"}
        figure.add_annotation(text=f"timeout {timeout_s:g} s", showarrow=False, font={"size": 11}, **place)
    shown_marks = marks.filter(pl.col("kind").is_in(["Begin", "End", "Killing"])).select("t_s", "kind", "text")
    for t_s, kind, text in shown_marks.rows():
        figure.add_vline(x=t_s, line={"color": BAD if kind == "Killing" else INK, "width": 1, "dash": "dot"})
        place = {"x": t_s, "y": 1, "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(text=kind, hovertext=text, showarrow=False, font={"size": 10}, **place)
    return figure


# -- processes -------------------------------------------------------------------------------------------------


def processes(looks: Mapping[str, pl.DataFrame], title: str, reloads: pl.DataFrame | None = None) -> go.Figure:
    """Return the figure of the number and the total memory of the proxy's processes over time, while the proxy reloads.

    Args:
        looks: Arm (variant of the run) → the observed numbers, second by second.
        title: The title of the figure.
        reloads: The events of reloads, drawn as lines; None for a figure of several arms.

    """
    present = {name: frame for name, frame in looks.items() if not frame.is_empty()}
    if not present:
        return make_empty_figure(title, NOTHING)
    largest = max(float(frame.select(pl.max("rss_bytes")).item()) for frame in present.values())
    scale, unit = choose_scale("bytes", largest)
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
    subtitle = "proxy's processes second by second; memory is the sum of their resident sizes"
    figure = make_stacked_figure(
        traces, title, 460, subtitle, axis("since the load began", "s"), ys, vertical_spacing=0.08
    )
    for t_s in reloads.filter(pl.col("kind") == "Reload")["t_s"] if reloads is not None else ():
        figure.add_vline(x=t_s, line={"color": INK, "width": 0.7, "dash": "dot"})
    return figure
