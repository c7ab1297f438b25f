"""Figures as SVG: well-formed, every value at its place, nothing of a text lost, and what it cannot draw refused."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import plotly.graph_objects as go
import pytest

from lab.base.errors import UsageError
from lab.report import figures
from lab.report.figures.costs import Rung
from lab.report.figures.intervals import Bound, MeasuredNumber, RatioRow
from lab.report.figures.svg import TOP, WIDTH, render_svg

SVG = "{http://www.w3.org/2000/svg}"
LONG = "envoy-gateway+envoy-gateway-circuit-breakers-65536 against envoy-gateway · rate-1000"
ROWS = [MeasuredNumber(LONG, "a", -3.0, -4.0, -2.0, (-3.5, -2.5)), MeasuredNumber("b & <c>", "b", 1.0, 0.0, 2.0)]


def drawn(figure: go.Figure) -> ET.Element:
    root = ET.fromstring(render_svg(figure))
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}" and width == WIDTH
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "")) <= width and 0 <= float(text.get("y", "")) <= height
    return root


def texts(root: ET.Element) -> list[str]:
    return [str(text.text) for text in root.iter(f"{SVG}text")]


def bars(root: ET.Element) -> list[tuple[float, float]]:
    """The ends in pixels of every horizontal error bar."""
    paths = [str(path.get("d")) for group in root.iter(f"{SVG}g") for path in group.iter(f"{SVG}path")]
    ends = [path[1:].replace("H", " ").split() for path in paths if "H" in path]
    return [(float(left), float(right)) for left, _, right in ends]


def test_rows_have_whole_labels_and_values_at_their_places() -> None:
    root = drawn(figures.intervals(ROWS, "T", "change", "%").add_vline(x=0))
    shown = texts(root)
    assert LONG in shown and "b & <c>" in shown and "change (%)" in shown
    place = {str(text.text): float(text.get("x", "")) for text in root.iter(f"{SVG}text")}
    per_unit = place["1"] - place["0"]
    assert per_unit == pytest.approx(place["-2"] - place["-3"], abs=0.2)
    for row, (low, high) in zip(ROWS, bars(root), strict=True):
        assert row.low is not None and row.high is not None
        assert low == pytest.approx(place["0"] + row.low * per_unit, abs=0.5)
        assert high == pytest.approx(place["0"] + row.high * per_unit, abs=0.5)
    line = next(path for path in root.iter(f"{SVG}path") if path.get("d", "").startswith(f"M{place['0']} {TOP}V"))
    assert line is not None
    order = [text for text in shown if text in (LONG, "b & <c>")]
    height = {str(text.text): float(text.get("y", "")) for text in root.iter(f"{SVG}text")}
    assert height[LONG] < height["b & <c>"] and len(order) == 2


def test_lines_over_a_size_have_both_axes_a_legend_and_logarithmic_places() -> None:
    lines = {
        "one": [
            (size, MeasuredNumber("x", "x", size * 1e-3, size * 0.9e-3, size * 1.1e-3)) for size in (1.0, 10.0, 100.0)
        ],
        "two": [(1.0, MeasuredNumber("y", "y", 2e-3))],
    }
    bounds = [Bound("at most", 0.05, (1.0, 100.0))]
    root = drawn(figures.scaling(lines, "T", "requests at once", "latency", "s", log_y=True, bounds=bounds))
    shown = texts(root)
    assert {"requests at once", "latency (ms)", "one", "two", "at most", "1", "10", "100"} <= {*shown}
    first = str(next(root.iter(f"{SVG}polyline")).get("points")).split()
    (x1, y1), (x2, y2), (x3, y3) = (map(float, point.split(",")) for point in first)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) and y1 - y2 == pytest.approx(y2 - y3, abs=0.2) and y1 > y3
    assert len([*root.iter(f"{SVG}polyline")]) == 3


def test_published_ratios_stand_apart_from_those_measured_here() -> None:
    rows = [
        RatioRow("a · b", 1.2, MeasuredNumber("x", "here", 1.3, 1.1, 1.5)),
        RatioRow("c", 0.7, None, "not measured"),
    ]
    root = drawn(figures.compare_published(rows, "T", "relative", "×"))
    assert {"a · b", "c", "published", "here"} <= {*texts(root)}
    assert len(bars(root)) == 1
    marks = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("d", "").endswith("z")]
    assert len(marks) == 3 + 2  # the legend has one of each


def test_a_text_of_a_figure_cannot_be_markup() -> None:
    text = render_svg(figures.intervals([MeasuredNumber("<script>", "a", 1.0)], "T", "<b>", "%"))
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_what_it_cannot_draw_is_refused() -> None:
    ladder = figures.ladder([Rung("a", 5e-5, whole=True), Rung("b", 4e-5, 5e-5, 3.9e-5, 4.1e-5)], "T")
    area = go.Figure([go.Scatter(x=[1, 2], y=[1, 2], fill="toself")])
    for figure in (ladder, area, figures.intervals([], "T", "change", "%")):
        with pytest.raises(UsageError, match="has no marks, or bars, areas or panels"):
            render_svg(figure)
