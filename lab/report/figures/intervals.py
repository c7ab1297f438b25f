"""The figures of numbers with their intervals, next to published numbers where there are any.

`intervals` has a row for each arm (variant of a run), with the value of every block (repetition). `compare_published` has rows of
published and measured ratios on one logarithmic axis. `scaling` has a number over a size (routes, requests at once, bytes of a
page), with a line for each arm, metric or target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from lab.report.figures.style import (
    COLOURS,
    FAINT,
    INK,
    axis,
    choose_scale,
    colours,
    error_bars,
    log_axis,
    make_figure,
    rows_axis,
)

PUBLISHED = {"size": 10, "symbol": "diamond-open", "line": {"width": 2}}
"""The marker of published numbers."""


@dataclass(frozen=True, slots=True)
class MeasuredNumber:
    """One number in a figure (drawn as a row or a point), measured or published, in the figure's unit.

    Attributes:
        label: The name of the row.
        group: The name that decides the colour, for example that of the arm (variant of the run).
        value: The number; None: there is none.
        low: The lower end of the 95 % interval over the blocks (repetitions). None: too few blocks, blocks in two clusters, or a published
            number.
        high: The upper end of that interval; None: as for `low`.
        blocks: The value in each block; empty for a published number.
        note: The hover text.

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
        """The number as (value, lower end of its interval, upper end); an end is None without an interval.

        The value is 0 where there is none.
        """
        return self.value or 0.0, self.low, self.high


Sizes = Sequence[tuple[float, MeasuredNumber]]
"""A sequence of (size, number) in any order."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound that a claim (a published sentence) states, such as "at most 50 ms", drawn as a horizontal line.

    Attributes:
        text: The claim in words.
        value: The bound.
        ends: The two values on the horizontal axis between which the line is drawn.
        of: The name of the measured line that the bound is about; empty: all lines.

    """

    text: str
    value: float
    ends: tuple[float, float]
    of: str = ""


@dataclass(frozen=True, slots=True)
class RatioRow:
    """A row of the figure that compares published ratios with measured ones.

    Attributes:
        label: The name of the row.
        published: The published ratio; None: there is none.
        measured: The measured ratio; None: nothing was measured.
        why: The reason why nothing was measured.

    """

    label: str
    published: float | None
    measured: MeasuredNumber | None
    why: str = ""


def describe_values(rows: Sequence[MeasuredNumber]) -> str:
    """Return a text that explains the values of a figure: medians of the blocks (repetitions), with or without intervals."""
    enough = [row.low is not None for row in rows]
    if not any(enough):
        return "median of the blocks, too few for an interval"
    return "median of the blocks with its 95 % interval" + ("" if all(enough) else ", where they are enough for one")


def intervals(
    rows: Sequence[MeasuredNumber], title: str, name: str, unit: str, published: float | None = None
) -> go.Figure:
    """Return the figure of numbers with their 95 % intervals and single blocks (repetitions), the first row at the top.

    Args:
        rows: The rows; those without a value are left out.
        title: The title of the figure.
        name: The name of the horizontal axis.
        unit: The unit of the numbers. `s`, `bytes` and `bytes/s` are scaled (ms, kB …); any other unit is written as it is.
        published: A published number to mark; None: none.

    """
    with_value = [row for row in rows if row.value is not None]
    all_values = [value for row in with_value for value in (row.value, row.high, *row.blocks) if value is not None]
    scale, written = choose_scale(unit, max(*all_values, published or 0.0, 0.0))
    points = [(value / scale, row.label, number) for row in with_value for number, value in enumerate(row.blocks, 1)]
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
        of_group = [row for row in with_value if row.group == group]
        ends = (
            "no interval"
            if row.low is None or row.high is None
            else f"[{row.low / scale:.4g}, {row.high / scale:.4g}] {written}"
            for row in of_group
        )
        traces.append(
            go.Scatter(
                x=[(row.value or 0.0) / scale for row in of_group],
                y=[row.label for row in of_group],
                mode="markers",
                marker={"color": colour, "size": 11, "symbol": "diamond"},
                error_x=error_bars([row.ends for row in of_group], scale, color=colour, thickness=2, width=6),
                customdata=list(zip(ends, (row.note for row in of_group), strict=True)),
                hovertemplate=f"%{{y}}: <b>%{{x:.4g}} {written}</b> %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
                showlegend=False,
            )
        )
    order = {"categoryorder": "array", "categoryarray": [row.label for row in reversed(with_value)]}
    figure = make_figure(
        traces if with_value else [],
        title,
        150 + 34 * len(with_value),
        f"diamond: {describe_values(with_value)}; rings: single blocks",
        axis(name, written, rangemode="tozero"),
        {**order, "automargin": True, "ticks": ""},
    )
    if with_value and published is not None:
        text = f"published: {published / scale:g} {written}"
        line, note = {"color": INK, "dash": "dash", "width": 1.5}, {"text": text, "font": {"size": 11}}
        figure.add_vline(x=published / scale, line=line, annotation=note, annotation_position="top")
    return figure


def compare_published(rows: Sequence[RatioRow], title: str, name: str, unit: str) -> go.Figure:
    """Return the figure of measured ratios next to published ones, the first row at the top.

    In each row the published mark is a little above the middle, and the measured mark below. A row without any ratio is left out.

    Args:
        rows: The rows.
        title: The title of the figure.
        name: The name of the horizontal axis.
        unit: The unit of the ratios, for example `×`.

    """
    with_ratio = [row for row in rows if row.published or (row.measured and row.measured.value)]
    places = {row.label: place for place, row in enumerate(with_ratio)}
    published_ratios = [(row.label, row.published) for row in with_ratio if row.published]
    measured_ratios = [(places[row.label], row.measured) for row in with_ratio if row.measured and row.measured.value]
    published = go.Scatter(
        x=[value for _, value in published_ratios],
        y=[places[label] - 0.16 for label, _ in published_ratios],
        customdata=[label for label, _ in published_ratios],
        mode="markers",
        marker={"color": INK, **PUBLISHED},
        hovertemplate=f"%{{customdata}}: <b>%{{x:.4g}} {unit}</b><extra>published</extra>",
        name="published",
    )
    measured = go.Scatter(
        x=[ratio.value for _, ratio in measured_ratios],
        y=[place + 0.16 for place, _ in measured_ratios],
        customdata=[(ratio.label, ratio.note) for _, ratio in measured_ratios],
        mode="markers",
        marker={"color": COLOURS[0], "size": 10, "symbol": "diamond"},
        error_x=error_bars([ratio.ends for _, ratio in measured_ratios], color=COLOURS[0], thickness=2, width=5),
        hovertemplate=f"%{{customdata[0]}}: <b>%{{x:.4g}} {unit}</b><br>%{{customdata[1]}}<extra>here</extra>",
        name="here",
    )
    marks = [value for _, value in published_ratios]
    marks += [end for _, ratio in measured_ratios for end in (ratio.low, ratio.value, ratio.high) if end]
    sizes = [base * 10.0**power for power in range(-4, 5) for base in (1, 2, 5)]
    ticks = [size for size in sizes if marks and min(marks) / 2 <= size <= max(marks) * 2]
    labels = [_fold_label(label) for label in places]
    figure = make_figure(
        [published, *([measured] if measured_ratios else [])] if with_ratio else [],
        title,
        180 + (42 if any("<br>" in label for label in labels) else 34) * len(with_ratio),
        "each relative to its own machine's reference; bars: 95 %",
        axis(name, unit, type="log", tickvals=ticks, ticktext=[f"{size:g}" for size in ticks]),
        rows_axis(labels),
        "nothing of this was published or recorded",
    )
    return (
        figure.update_layout(showlegend=True).add_vline(x=1, line={"color": INK, "width": 1}) if with_ratio else figure
    )


def _fold_label(label: str) -> str:
    """Break a label of more than 24 characters into two lines before its last part: `first part · last part`.

    The line break is `<br>`, since plotly shows the label. A short label, or a label without ` · `, is returned unchanged.
    """
    head, separator, tail = label.rpartition(" · ")
    return f"{head}<br>{tail}" if separator and len(label) > 24 else label


def scaling(
    lines: Mapping[str, Sizes],
    title: str,
    x_name: str,
    name: str,
    unit: str,
    log_y: bool = False,
    log_x: bool = True,
    published: Mapping[str, Sizes] | None = None,
    bounds: Sequence[Bound] = (),
    ticks: Mapping[float, str] | None = None,
) -> go.Figure:
    """Return the figure of numbers over a size (connections, routes, bytes), with a line for each arm (variant of a run), metric or target.

    The ticks of the horizontal axis are the sizes themselves.

    Args:
        lines: Name of a line → (size, number) for each point.
        title: The title of the figure.
        x_name: The name of the horizontal axis.
        name: The name of the vertical axis.
        unit: The unit of the numbers. `s`, `bytes` and `bytes/s` are scaled (ms, kB …); any other unit is written as it is.
        log_y: Whether the vertical axis is logarithmic.
        log_x: Whether the horizontal axis is logarithmic.
        published: Name of a line → (size, published number) for each point, in the colour of the measured line with this name.
        bounds: Bounds that claims (published sentences) state.
        ticks: Size → the text of its tick, for sizes that have a name.

    """
    present, present_published = (
        {line: sorted_items for line, items in numbers.items() if (sorted_items := _sort_with_value(items))}
        for numbers in (lines, published or {})
    )
    all_numbers = [number for items in (*present.values(), *present_published.values()) for _, number in items]
    greatest = [*(number.high or number.value or 0.0 for number in all_numbers), *(bound.value for bound in bounds)]
    scale, written = choose_scale(unit, max(greatest, default=0.0))
    painted = colours(list(dict.fromkeys([*present, *present_published])))
    measured = [
        go.Scatter(
            x=[size for size, _ in items],
            y=[(number.value or 0.0) / scale for _, number in items],
            mode="lines+markers",
            line={"color": painted[line], "width": 1.5},
            marker={"size": 8},
            error_y=error_bars([number.ends for _, number in items], scale, color=painted[line]),
            customdata=[(number.label, number.note) for _, number in items],
            hovertemplate=f"%{{customdata[0]}}: <b>%{{y:.4g}} {written}</b><br>%{{customdata[1]}}<extra>{line}</extra>",
            name=line,
        )
        for line, items in present.items()
    ]
    published_marks = [
        go.Scatter(
            x=[size for size, _ in items],
            y=[(number.value or 0.0) / scale for _, number in items],
            mode="markers",
            marker={"color": painted[line], **PUBLISHED},
            customdata=[number.label for _, number in items],
            hovertemplate=f"%{{customdata}}: <b>%{{y:.4g}} {written}</b><extra>{line}, published</extra>",
            name=f"{line}, published",
            showlegend=line not in present,
        )
        for line, items in present_published.items()
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
    kinds = (
        [f"line: {describe_values([number for items in present.values() for _, number in items])}"] if present else []
    )
    kinds += ["open: published"] if present_published else []
    kinds += ["dashed: as claimed"] if bounds else []
    measured_sizes = {size for items in (*present.values(), *present_published.values()) for size, _ in items}
    sizes = sorted(measured_sizes | set(ticks or ()) | {end for bound in bounds for end in bound.ends})
    texts = [(ticks or {}).get(size, f"{size:g}") for size in sizes]
    values = [*(number.value for number in all_numbers), *(bound.value for bound in bounds)]
    height: dict[str, Any] = log_axis(values) if log_y else {"rangemode": "tozero"}
    return make_figure(
        [*measured, *published_marks, *claimed],
        title,
        380,
        "; ".join(kinds),
        axis(x_name, type="log" if log_x else "linear", tickvals=sizes, ticktext=texts),
        axis(name, written, exponentformat="none", **height),
    )


def _sort_with_value(items: Sizes) -> list[tuple[float, MeasuredNumber]]:
    """Return the points of a line that have a value, sorted by size."""
    return sorted((item for item in items if item[1].value is not None), key=lambda item: item[0])
