"""Numbers with their intervals, and beside them what was published: a row per arm with every block's own value; ratios row by row, each of its
own machine, on one logarithmic axis; and a number over the size of a thing (routes, requests at once, a page), per arm, metric or target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from lab.report.figures.style import COLOURS, FAINT, INK, axis, colours, drawn, log_axis, reaching, rows_axis, scaled

PUBLISHED = {"size": 10, "symbol": "diamond-open", "line": {"width": 2}}
"""Marker of what was published."""


@dataclass(frozen=True, slots=True)
class Told:
    """One row: `value` and its 95 % interval over the blocks (None = too few), what every block gave, in `unit` of the figure.

    `group` gives the colour: the arm, where rows are arm and point.
    """

    label: str
    group: str
    value: float | None
    low: float | None = None
    high: float | None = None
    blocks: Sequence[float] = field(default_factory=tuple[float, ...])
    note: str = ""

    @property
    def ends(self) -> tuple[float, float | None, float | None]:
        return self.value or 0.0, self.low, self.high


Sizes = Sequence[tuple[float, Told]]
"""(size, value) in any order."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What was claimed: `value` from one size to another, of one line (`of`) or of all."""

    text: str
    value: float
    ends: tuple[float, float]
    of: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of ratios. `measured` carries its interval and note; None: nothing was, and `why`."""

    label: str
    published: float | None
    measured: Told | None
    why: str = ""


def medians(rows: Sequence[Told]) -> str:
    """What a figure's values are, for the line under its title."""
    enough = [row.low is not None for row in rows]
    if not any(enough):
        return "median of the blocks, too few for an interval"
    return "median of the blocks with its 95 % interval" + ("" if all(enough) else ", where they are enough for one")


def intervals(rows: Sequence[Told], title: str, name: str, unit: str, published: float | None = None) -> go.Figure:
    """`name` and `unit` (s, bytes, bytes/s or what is to be written) head the axis; the first row stands at the top."""
    shown = [row for row in rows if row.value is not None]
    every = [value for row in shown for value in (row.value, row.high, *row.blocks) if value is not None]
    scale, written = scaled(unit, max(*every, published or 0.0, 0.0))
    points = [(value / scale, row.label, number) for row in shown for number, value in enumerate(row.blocks, 1)]
    rings = go.Scatter(
        x=[value for value, _, _ in points],
        y=[label for _, label, _ in points],
        customdata=[number for _, _, number in points],
        mode="markers",
        marker={"symbol": "circle-open", "size": 8, "color": FAINT, "line": {"width": 1.5}},
        hovertemplate=f"%{{y}}, block %{{customdata}}: %{{x:.4g}} {written}<extra></extra>",
        showlegend=False,
    )
    traces = [rings]
    for group, colour in colours(list(dict.fromkeys(row.group for row in rows))).items():
        mine = [row for row in shown if row.group == group]
        ends = (
            "no interval"
            if row.low is None or row.high is None
            else f"[{row.low / scale:.4g}, {row.high / scale:.4g}] {written}"
            for row in mine
        )
        traces.append(
            go.Scatter(
                x=[(row.value or 0.0) / scale for row in mine],
                y=[row.label for row in mine],
                mode="markers",
                marker={"color": colour, "size": 11, "symbol": "diamond"},
                error_x=reaching([row.ends for row in mine], scale, color=colour, thickness=2, width=6),
                customdata=list(zip(ends, (row.note for row in mine), strict=True)),
                hovertemplate=f"%{{y}}: <b>%{{x:.4g}} {written}</b> %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
                showlegend=False,
            )
        )
    order = {"categoryorder": "array", "categoryarray": [row.label for row in reversed(shown)]}
    figure = drawn(
        traces if shown else [],
        title,
        150 + 34 * len(shown),
        f"diamond: {medians(shown)}; rings: single blocks",
        axis(name, written, rangemode="tozero"),
        {**order, "automargin": True, "ticks": ""},
    )
    if shown and published is not None:
        text = f"published: {published / scale:g} {written}"
        line, note = {"color": INK, "dash": "dash", "width": 1.5}, {"text": text, "font": {"size": 11}}
        figure.add_vline(x=published / scale, line=line, annotation=note, annotation_position="top")
    return figure


def beside(rows: Sequence[Pair], title: str, name: str, unit: str) -> go.Figure:
    """The first row stands at the top; a row without either side is left out. A row's two marks stand apart from its middle."""
    shown = [row for row in rows if row.published or (row.measured and row.measured.value)]
    places = {row.label: place for place, row in enumerate(shown)}
    told = [(row.label, row.published) for row in shown if row.published]
    ours = [(places[row.label], row.measured) for row in shown if row.measured and row.measured.value]
    published = go.Scatter(
        x=[value for _, value in told],
        y=[places[label] - 0.16 for label, _ in told],
        customdata=[label for label, _ in told],
        mode="markers",
        marker={"color": INK, **PUBLISHED},
        hovertemplate=f"%{{customdata}}: <b>%{{x:.4g}} {unit}</b><extra>published</extra>",
        name="published",
    )
    measured = go.Scatter(
        x=[each.value for _, each in ours],
        y=[place + 0.16 for place, _ in ours],
        customdata=[(each.label, each.note) for _, each in ours],
        mode="markers",
        marker={"color": COLOURS[0], "size": 10, "symbol": "diamond"},
        error_x=reaching([each.ends for _, each in ours], color=COLOURS[0], thickness=2, width=5),
        hovertemplate=f"%{{customdata[0]}}: <b>%{{x:.4g}} {unit}</b><br>%{{customdata[1]}}<extra>here</extra>",
        name="here",
    )
    marks = [value for _, value in told]
    marks += [end for _, each in ours for end in (each.low, each.value, each.high) if end]
    sizes = [base * 10.0**power for power in range(-4, 5) for base in (1, 2, 5)]
    ticks = [size for size in sizes if marks and min(marks) / 2 <= size <= max(marks) * 2]
    labels = [_folded(label) for label in places]
    figure = drawn(
        [published, *([measured] if ours else [])] if shown else [],
        title,
        180 + (42 if any("<br>" in label for label in labels) else 34) * len(shown),
        "each relative to its own machine's reference; bars: 95 %",
        axis(name, unit, type="log", tickvals=ticks, ticktext=[f"{size:g}" for size in ticks]),
        rows_axis(labels),
        "nothing of this was published or recorded",
    )
    return figure.update_layout(showlegend=True).add_vline(x=1, line={"color": INK, "width": 1}) if shown else figure


def _folded(label: str) -> str:
    """Its last part on a line of its own, where a phone would have no room for both."""
    head, between, tail = label.rpartition(" · ")
    return f"{head}<br>{tail}" if between and len(label) > 24 else label


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
    present, others = (
        {line: found for line, items in each.items() if (found := _known(items))} for each in (lines, published or {})
    )
    told = [each for items in (*present.values(), *others.values()) for _, each in items]
    greatest = [*(each.high or each.value or 0.0 for each in told), *(bound.value for bound in bounds)]
    scale, written = scaled(unit, max(greatest, default=0.0))
    painted = colours(list(dict.fromkeys([*present, *others])))
    measured = [
        go.Scatter(
            x=[size for size, _ in items],
            y=[(told.value or 0.0) / scale for _, told in items],
            mode="lines+markers",
            line={"color": painted[line], "width": 1.5},
            marker={"size": 8},
            error_y=reaching([told.ends for _, told in items], scale, color=painted[line]),
            customdata=[(told.label, told.note) for _, told in items],
            hovertemplate=f"%{{customdata[0]}}: <b>%{{y:.4g}} {written}</b><br>%{{customdata[1]}}<extra>{line}</extra>",
            name=line,
        )
        for line, items in present.items()
    ]
    of_others = [
        go.Scatter(
            x=[size for size, _ in items],
            y=[(told.value or 0.0) / scale for _, told in items],
            mode="markers",
            marker={"color": painted[line], **PUBLISHED},
            customdata=[told.label for _, told in items],
            hovertemplate=f"%{{customdata}}: <b>%{{y:.4g}} {written}</b><extra>{line}, published</extra>",
            name=f"{line}, published",
            showlegend=line not in present,
        )
        for line, items in others.items()
    ]
    claimed = [
        go.Scatter(
            x=list(bound.ends),
            y=[bound.value / scale] * 2,
            mode="lines",
            line={"color": painted.get(bound.of, INK), "dash": "dash", "width": 1.5},
            hovertemplate=f"{bound.text}: <b>%{{y:.4g}} {written}</b><extra>as claimed</extra>",
            name=bound.text,
        )
        for bound in bounds
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
        [*measured, *of_others, *claimed],
        title,
        380,
        "; ".join(kinds),
        axis(over, type="log" if log_x else "linear", tickvals=sizes, ticktext=texts),
        axis(name, written, exponentformat="none", **height),
    )


def _known(items: Sizes) -> list[tuple[float, Told]]:
    return sorted((item for item in items if item[1].value is not None), key=lambda item: item[0])
