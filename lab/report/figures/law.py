"""Throughput over the number of workers, with the Universal Scalability Law (`lab.stats.usl`) of each line that has one.

Points with their intervals, the fitted curve, the band in which 95 % of the refitted ones lie, and a star at its peak. Refuses to
draw a curve where nothing was fitted: the reason stands in the figure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from lab.report.figures.intervals import Told
from lab.report.figures.style import INK, axis_title, colours, dressed, faded, gap, log_axis
from lab.stats.usl import Coefficient, Scaling

GRID_SIZES = 80
"""Points of a curve."""
ROOM = 1.8
"""How far the axis reaches beyond points, where reasons stand above them."""
FAR = 4.0
"""A peak beyond so many times the largest size is told, not drawn."""


@dataclass(frozen=True, slots=True)
class Sized:
    """One system: (size, throughput) at each size, and the law fitted to it, or `why` there is none."""

    name: str
    points: Sequence[tuple[float, Told]]
    fit: Scaling | None = None
    why: str = ""

    @property
    def share(self) -> float:
        """What one of the smallest size serves: what a speed-up is over."""
        return min((size, told.value / size) for size, told in self.points if told.value)[1]


def law(
    lines: Sequence[Sized], title: str, over: str, name: str, unit: str, relative: bool = False, log: bool = False
) -> go.Figure:
    """`name` and `unit` of the throughput; `relative`: each line's as a multiple of what one of its smallest size serves."""
    shown = [line for line in lines if any(told.value for _, told in line.points)]
    reasons = [f"{line.name}: {line.why}" for line in lines if line.why]
    if not shown:
        return gap(title, "<br>".join(_folded(reason) for reason in reasons) or "nothing of this was recorded")
    sizes = sorted({size for line in shown for size, told in line.points if told.value})
    end = 1.1 * max([sizes[-1], *(peak for line in shown if (peak := _near_peak(line, sizes[-1])))])
    figure = go.Figure()
    for line, colour in zip(shown, colours([line.name for line in shown]).values(), strict=True):
        scale = line.share if relative else 1.0
        if line.fit is not None:
            _curve(figure, line.name, line.fit, (sizes[0], end), scale, colour)
        _points(figure, line, scale, colour, "times" if relative else unit)
        if line.fit is not None and (peak := _near_peak(line, sizes[-1])) is not None:
            _star(figure, line.name, line.fit, peak, scale, colour)
    if relative:
        ends = [sizes[0], end]
        style = {"color": INK, "dash": "dash", "width": 1}
        figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line=style, name="linear", hoverinfo="skip"))
    below = (
        "points: median of the blocks with its 95 % interval, published: one run; band: 95 % of what the points allow"
    )
    dressed(figure, title, 460, below)
    ticks: dict[str, Any] = {"rangemode": "tozero"}
    if log:  # plotly wants the range of a log axis in powers of ten
        ticks = {"type": "log", "range": [float(np.log10(sizes[0] / 1.15)), float(np.log10(end))]}
        ticks |= {"tickvals": sizes, "ticktext": [f"{size:g}" for size in sizes]}
    figure.update_xaxes(title=axis_title(over, ""), **ticks)
    values = [told.value / (line.share if relative else 1.0) for line in shown for _, told in line.points if told.value]
    height: dict[str, Any] = log_axis(values) if log else {"rangemode": "tozero"}
    if (
        reasons and height.get("type") != "log" and all(line.fit is None for line in shown)
    ):  # room for them above the points
        height = {"range": [0, ROOM * max(values)]}
    figure.update_yaxes(title=axis_title(name, "times" if relative else unit), **height)
    for place, reason in enumerate(reasons):
        figure.add_annotation(
            text=_folded(reason),
            x=0.02,
            y=0.98 - 0.16 * place,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="top",
            align="left",
            showarrow=False,
            font={"size": 12},
        )
    return figure


def _points(figure: go.Figure, line: Sized, scale: float, colour: str, unit: str) -> None:
    told = [(size, each, each.value) for size, each in sorted(line.points, key=lambda item: item[0]) if each.value]
    figure.add_trace(
        go.Scatter(
            x=[size for size, _, _ in told],
            y=[value / scale for _, _, value in told],
            mode="markers",
            marker={"color": colour, "size": 9},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [0.0 if each.high is None else (each.high - value) / scale for _, each, value in told],
                "arrayminus": [0.0 if each.low is None else (value - each.low) / scale for _, each, value in told],
                "color": colour,
            },
            customdata=[(each.label, each.note) for _, each, _ in told],
            hovertemplate=f"%{{customdata[0]}}: <b>%{{y:.4g}} {unit}</b><br>%{{customdata[1]}}<extra>{line.name}</extra>",
            name=line.name,
        )
    )


def _curve(figure: go.Figure, name: str, fit: Scaling, ends: tuple[float, float], scale: float, colour: str) -> None:
    grid = np.asarray(np.geomspace(ends[0], ends[1], GRID_SIZES), dtype=np.float64)
    low, high = _band(fit, grid)
    figure.add_trace(
        go.Scatter(
            x=[*grid.tolist(), *grid[::-1].tolist()],
            y=[*(high / scale).tolist(), *(low[::-1] / scale).tolist()],
            fill="toself",
            fillcolor=faded(colour),
            mode="lines",
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            name=f"{name}: band",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=grid.tolist(),
            y=[fit.throughput(size) / scale for size in grid.tolist()],
            mode="lines",
            line={"color": colour, "width": 2},
            hoverinfo="skip",
            name=f"{name}: law<br>{said(fit)}",
        )
    )


def _band(fit: Scaling, grid: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """At each size the interval of the draws' throughputs, both of the grid's shape."""
    gamma, sigma, kappa = (fit.draws[:, [column]] for column in range(3))
    drawn = gamma * grid / (1 + (grid - 1) * (sigma + kappa * grid))
    tail = (1 - fit.confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return low, high


def _star(figure: go.Figure, name: str, fit: Scaling, peak: float, scale: float, colour: str) -> None:
    figure.add_trace(
        go.Scatter(
            x=[peak],
            y=[fit.throughput(peak) / scale],
            mode="markers",
            marker={"symbol": "star", "size": 14, "color": colour},
            customdata=[_peak(fit)],
            hovertemplate=f"<b>%{{customdata}}</b><extra>{name}</extra>",
            showlegend=False,
            name=f"{name}: peak",
        )
    )


def said(fit: Scaling) -> str:
    """The law in words, folded for a legend: coefficients with their intervals, and its peak."""
    gamma = f"γ {fit.gamma.value:,.0f} [{fit.gamma.low:,.0f}, {fit.gamma.high:,.0f}]"
    return f"{gamma}, σ {_ends(fit.sigma)}<br>κ {_ends(fit.kappa)}, {_peak(fit)}"


def _ends(of: Coefficient) -> str:
    return f"{of.value:.2g} [{of.low:.2g}, {of.high:.2g}]"


def _peak(fit: Scaling) -> str:
    low, high = fit.peak_interval
    beyond = "no end" if high is None else f"{high:,.0f}"
    if fit.peak is None:
        return f"no peak to be seen [{low:,.0f}, {beyond}]" if high is not None else "no peak to be seen"
    return f"peak at {fit.peak:,.0f} [{low:,.0f}, {beyond}]"


def _near_peak(line: Sized, largest: float) -> float | None:
    peak = line.fit.peak if line.fit is not None else None
    return peak if peak is not None and peak <= FAR * largest else None


def _folded(text: str, width: int = 90) -> str:
    return "<br>".join(textwrap.wrap(text, width, break_on_hyphens=False))
