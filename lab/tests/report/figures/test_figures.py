"""Every figure has a title, axes with units and hover texts, and is legible on white and on black."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import polars as pl
import pytest

from lab.analysis import timelines
from lab.records import incidents as happenings
from lab.report import figures
from lab.report.figures import style
from lab.report.figures.costs import Dot, Rung
from lab.report.figures.intervals import Bound, Pair, Told
from lab.report.figures.percentiles import ORDERED, Corner, Curve, Panel
from lab.report.figures.style import scaled
from lab.tests.support.disturbed import ZERO_S, events, killed, requests, usage
from lab.tests.support.golden import drawn

EMPTY = requests(duration_s=0)
OUTAGE = timelines.bins(requests(out=(5.0, 7.0)), ZERO_S)
MARKS = timelines.marks(killed(5.0, 2.0), ZERO_S)
TOLD = [Told("a", "a", 30.0, 29.0, 31.0, (29.5, 30.5)), Told("b", "b", 0.0, 0.0, 0.0, (0.0,)), Told("c", "c", None)]
PROBES = events(
    (1.0, "kubelet", "proxy", "p", "Probe", "readiness 0.0031 ok"),
    (2.0, "kubelet", "proxy", "p", "Probe", "liveness 1.0004 no answer within 1 s"),
    (2.5, "kubelet", "proxy", "p", "Killing", "liveness"),
)
MOVED = events(
    (3.0, "lab", "", "1", "Transfer", "upload 10485760 bytes 1.2500 s first 0.0113 s status 413"),
    (4.0, "lab", "", "2", "Transfer", "upload 10485760 bytes 1.2500 s first - status 0"),
    (5.0, "lab", "", "3", "Transfer", "upload 10485760 bytes 1.5000 s first 1.4 s status 200"),
)
RUNGS = [
    *(Rung("a", 5e-5, whole=True), Rung("b", 4e-5, 5e-5, 3.9e-5, 4.1e-5)),
    *(Rung("c", 6e-5, 5e-5), Rung("d", 3e-5, 6e-5, apart=True)),
]
CURVE = Curve(100, [Corner(0, 1e-3), Corner(1, 2e-3, 1e-3, 4e-3), Corner(3, 3e-3)])
CHANGES = pl.DataFrame({"t_s": [1.0, 2.0, 3.0], "delay_s": [4.0, 3.0, None]})

FULL: dict[str, Callable[[], go.Figure]] = {
    "timeline": lambda: figures.timeline(OUTAGE, MARKS, "T", timelines.across([OUTAGE, OUTAGE])),
    "intervals": lambda: figures.intervals(TOLD, "T", "longest gap", "s", 30.0),
    "processes": lambda: figures.processes({"okd": happenings.looks(usage([1, 2, 3, 2]))}, "T", MARKS),
    "probing": lambda: figures.probing(
        timelines.probes(PROBES, ZERO_S), timelines.marks(PROBES, ZERO_S), "T", {"liveness": 1.0}
    ),
    "delays": lambda: figures.delays({"okd": CHANGES}, "T"),
    "transfers": lambda: figures.transfers(timelines.transfers(MOVED, ZERO_S), "T"),
    "scaling": lambda: figures.scaling({"rate": [(10, TOLD[0]), (1, TOLD[0])]}, "T", "routes", "rate", "req/s"),
    "beside": lambda: figures.beside([Pair("a", 2.0, TOLD[0]), Pair("b", 0.5, None, "none")], "T", "relative", "×"),
    "percentiles": lambda: figures.percentiles([Panel("one", [CURVE]), Panel("none")], "T"),
    "ladder": lambda: figures.ladder(RUNGS, "T"),
    "generations": lambda: figures.generations([Dot("a", 1, 1, 2.5, [1.0, 4.0]), Dot("b", 1, 2, -1.0)], "T"),
}
BARE: dict[str, Callable[[], go.Figure]] = {
    "timeline": lambda: figures.timeline(timelines.bins(EMPTY, ZERO_S), timelines.marks(events(), ZERO_S), "T"),
    "intervals": lambda: figures.intervals([TOLD[2]], "T", "x", "s"),
    "processes": lambda: figures.processes({"okd": happenings.looks(usage([]))}, "T"),
    "probing": lambda: figures.probing(timelines.probes(events(), ZERO_S), timelines.marks(events(), ZERO_S), "T"),
    "delays": lambda: figures.delays({"okd": CHANGES.head(0)}, "T"),
    "transfers": lambda: figures.transfers(timelines.transfers(events(), ZERO_S), "T"),
    "scaling": lambda: figures.scaling({"rate": [(1, TOLD[2])]}, "T", "routes", "rate", "req/s"),
    "beside": lambda: figures.beside([Pair("a", None, None)], "T", "relative", "×"),
    "percentiles": lambda: figures.percentiles([Panel("none")], "T"),
    "generations": lambda: figures.generations([], "T"),
    "ladder": lambda: figures.ladder([], "T"),
}


def trace(figure: go.Figure, name: str) -> Any:
    """The first whose name begins so."""
    return next(each for each in drawn(figure)["data"] if each.get("name", "").startswith(name))


@pytest.mark.parametrize("name", FULL)
def test_it_has_title_units_and_hover_texts(name: str) -> None:
    """And survives being written down; every figure is here, with something in it and with nothing."""
    assert set(FULL) == set(BARE) == set(figures.__all__)
    figure = drawn(FULL[name]())
    assert figure["layout"]["title"]["text"].startswith("T")
    axes = [axis for key, axis in figure["layout"].items() if key.startswith(("xaxis", "yaxis"))]
    assert any("(" in axis.get("title", {}).get("text", "") for axis in axes)
    assert any("<extra>" in each.get("hovertemplate", "") for each in figure["data"])


@pytest.mark.parametrize("name", BARE)
def test_without_anything_to_show_it_says_so(name: str) -> None:
    figure = drawn(BARE[name]())
    assert not figure["data"] and figure["layout"]["annotations"][0]["text"]
    assert figure["layout"]["paper_bgcolor"] == figure["layout"]["plot_bgcolor"] == "rgba(0,0,0,0)"


def luminance(colour: str) -> float:
    """WCAG 2: relative luminance."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", ["#ffffff", "#111111"])
def test_every_colour_stands_off(paper: str) -> None:
    """Text 4 : 1 and more, lines and marks 3 : 1 (WCAG 2, 1.4.11), on both papers; ten loads that grow have ten colours."""
    assert contrast(style.INK, paper) >= 4
    assert len({Curve(size, ()).colour for size in range(100, 1001, 100)}) == len(set(ORDERED)) == 10
    for colour in (*style.COLOURS, style.BAD, *style.FAILURES.values(), *style.MARKS.values(), *ORDERED):
        assert contrast(colour, paper) >= 3, f"{colour} on {paper}"


@pytest.mark.parametrize(
    ("unit", "greatest", "scale", "written"),
    [
        ("s", 30.0, 1.0, "s"),
        ("s", 0.02, 1e-3, "ms"),
        ("s", 2e-5, 1e-6, "µs"),
        ("s", 0.0, 1e-6, "µs"),
        ("bytes", 3e7, 1e6, "MB"),
        ("bytes/s", 3e9, 1e9, "GB/s"),
        ("bytes", 0, 1.0, "B"),
        ("req/s", 20_000, 1.0, "req/s"),
    ],
)
def test_units_become_readable(unit: str, greatest: float, scale: float, written: str) -> None:
    assert scaled(unit, greatest) == (scale, written)


def test_every_mark_tells_what_happened() -> None:
    """When, what kind and who said it of what, and that of the marks under the same pointer. Failures by kind, in the bins of their due times."""
    figure = FULL["timeline"]()
    texts = trace(figure, "pods")["customdata"]
    assert len(texts) == 7 and "5.010 s: <b>Deleted</b> proxy proxy-1: grace 30 s (kubelet)" in texts[0]
    assert "<b>Created</b>" in texts[0] and "<b>Gone</b>" not in texts[0]
    (bars,) = [each for each in drawn(figure)["data"] if each["type"] == "bar"]
    hit = [x for x, y in zip(bars["x"], bars["y"], strict=True) if y]
    assert (bars["name"], min(hit), max(hit)) == ("failed: connect", pytest.approx(5.05), pytest.approx(6.95))


def test_intervals_are_drawn_to_their_ends() -> None:
    """From low to high, with a ring for every block; a claim reaches from one size to another, in the line's colour and the unit of the axis."""
    figure = drawn(FULL["intervals"]())
    marked = next(each for each in figure["data"] if each.get("error_x"))
    assert (marked["error_x"]["array"][0], marked["error_x"]["arrayminus"][0]) == (1.0, 1.0)
    rings = next(each for each in figure["data"] if each["marker"]["symbol"] == "circle-open")
    assert rings["x"] == [29.5, 30.5, 0.0]
    assert "published: 30 s" in [note["text"] for note in figure["layout"]["annotations"]]
    bound = Bound("ND-04: 0.1 s", 0.1, (100, 1000), "p75")
    lines = {"p50": [(100, Told("a", "a", 0.02))], "p75": [(100, Told("a", "a", 0.03, 0.02, 0.04))]}
    shown = {"p75": [(800, Told("b", "b", 0.055))]}
    figure = figures.scaling(lines, "T", "requests", "time", "s", log_x=False, published=shown, bounds=[bound])
    line, mark, claim = (trace(figure, name) for name in ("p75", "p75, published", "ND-04"))
    assert line["line"]["color"] == mark["marker"]["color"] == claim["line"]["color"]
    assert (mark["y"], claim["x"], claim["y"]) == ([55], [100, 1000], [100, 100])
    assert drawn(figure)["layout"]["xaxis"]["tickvals"] == [100, 800, 1000]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (TOLD[:2], "median of the blocks with its 95 % interval"),
        ([Told("a", "a", 3.0, blocks=(3.0,))], "median of the blocks, too few for an interval"),
        ([TOLD[0], Told("a", "a", 3.0)], "median of the blocks with its 95 % interval, where they are enough for one"),
    ],
)
def test_a_figure_promises_no_interval_that_it_has_not(rows: list[Told], said: str) -> None:
    across = figures.intervals(rows, "T", "gap", "s")
    along = figures.scaling({"a": list(enumerate(rows, 1))}, "T", "n", "gap", "s")
    assert f"diamond: {said};" in drawn(across)["layout"]["title"]["text"]
    assert drawn(along)["layout"]["title"]["text"].endswith(f"line: {said}</span>")


def test_what_was_never_seen_stands_above_all() -> None:
    """Published stands above measured, each row's name once."""
    assert trace(FULL["delays"](), "okd: never seen")["y"] == [pytest.approx(4.6)]
    figure = drawn(FULL["beside"]())
    assert figure["layout"]["yaxis"]["ticktext"] == ["a", "b"]
    assert [len(each["x"]) for each in figure["data"]] == [2, 1]
    assert figure["data"][0]["y"][0] < 0 < figure["data"][1]["y"][0]
