"""A number over the size of a thing (routes, requests at once, a page), per arm, metric or target, with intervals; beside it what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from lab.report.figures.intervals import Told, medians, reach
from lab.report.figures.style import INK, axis, colours, drawn, log_axis, scaled

Sizes = Sequence[tuple[float, Told]]
"""(size, value) in any order."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What was claimed: `value` from one size to another, of one line (`of`) or of all."""

    text: str
    value: float
    ends: tuple[float, float]
    of: str = ""


def scaling(
    lines: Mapping[str, Sizes],
    title: str,
    over: str,
    name: str,
    unit: str,
    log_y: bool = False,
    log_x: bool = True,
    published: Mapping[str, Sizes] | None = None,
    bounds: Sequence[Bound] = (),
    ticks: Mapping[float, str] | None = None,
) -> go.Figure:
    """Line → its sizes; both axes' sizes are shown as they are, the sizes on a log axis unless told otherwise.

    `published`: the same of another machine, one run each, in the colour of the line of its name. `ticks`: sizes in words.
    """
    present = {line: found for line, items in lines.items() if (found := _known(items))}
    others = {line: found for line, items in (published or {}).items() if (found := _known(items))}
    told = [each for items in (*present.values(), *others.values()) for _, each in items]
    greatest = [*(each.high or each.value or 0.0 for each in told), *(bound.value for bound in bounds)]
    scale, written = scaled(unit, max(greatest, default=0.0))
    painted = colours(list(dict.fromkeys([*present, *others])))
    traces = [
        *(_line(line, items, scale, written, painted[line]) for line, items in present.items()),
        *(
            _published(line, items, scale, written, painted[line], line not in present)
            for line, items in others.items()
        ),
        *(_bound(bound, scale, written, painted.get(bound.of, INK)) for bound in bounds),
    ]
    kinds = [f"line: {medians([each for items in present.values() for _, each in items])}"] if present else []
    kinds += ["open: published"] if others else []
    kinds += ["dashed: as claimed"] if bounds else []
    seen = {size for items in (*present.values(), *others.values()) for size, _ in items}
    sizes = sorted(seen | set(ticks or ()) | {end for bound in bounds for end in bound.ends})
    texts = [(ticks or {}).get(size, f"{size:g}") for size in sizes]
    values = [*(each.value for each in told), *(bound.value for bound in bounds)]
    height: dict[str, Any] = log_axis(values) if log_y else {"rangemode": "tozero"}
    return drawn(
        traces,
        title,
        380,
        "; ".join(kinds),
        axis(over, type="log" if log_x else "linear", tickvals=sizes, ticktext=texts),
        axis(name, written, exponentformat="none", **height),
    )


def _known(items: Sizes) -> list[tuple[float, Told]]:
    return sorted((item for item in items if item[1].value is not None), key=lambda item: item[0])


def _line(line: str, items: Sizes, scale: float, unit: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=[size for size, _ in items],
        y=[(told.value or 0.0) / scale for _, told in items],
        mode="lines+markers",
        line={"color": colour, "width": 1.5},
        marker={"size": 8},
        error_y=reach([told for _, told in items], scale, colour),
        customdata=[(told.label, told.note) for _, told in items],
        hovertemplate=f"%{{customdata[0]}}: <b>%{{y:.4g}} {unit}</b><br>%{{customdata[1]}}<extra>{line}</extra>",
        name=line,
    )


def _published(line: str, items: Sizes, scale: float, unit: str, colour: str, listed: bool) -> go.Scatter:
    return go.Scatter(
        x=[size for size, _ in items],
        y=[(told.value or 0.0) / scale for _, told in items],
        mode="markers",
        marker={"color": colour, "size": 10, "symbol": "diamond-open", "line": {"width": 2}},
        customdata=[told.label for _, told in items],
        hovertemplate=f"%{{customdata}}: <b>%{{y:.4g}} {unit}</b><extra>{line}, published</extra>",
        name=f"{line}, published",
        showlegend=listed,
    )


def _bound(bound: Bound, scale: float, unit: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=list(bound.ends),
        y=[bound.value / scale] * 2,
        mode="lines",
        line={"color": colour, "dash": "dash", "width": 1.5},
        hovertemplate=f"{bound.text}: <b>%{{y:.4g}} {unit}</b><extra>as claimed</extra>",
        name=bound.text,
    )
