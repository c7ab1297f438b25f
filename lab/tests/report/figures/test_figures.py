"""Figures: title, axes with units and hover texts, legible on white and on black; latency by percentile, published and measured, side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest

from lab.analysis import timelines
from lab.analysis.evidence import Evidence, Missing
from lab.model.usage import Usage
from lab.records import incidents as happenings
from lab.records import published
from lab.records.sweep_files import load_sweep
from lab.report import figures
from lab.report.figures import style
from lab.report.figures.costs import GenerationDot, Rung
from lab.report.figures.intervals import Bound, MeasuredNumber, RatioRow
from lab.report.figures.percentiles import ORDERED, TICKS, Curve, Panel, PercentilePoint, reciprocal_tail
from lab.report.figures.style import choose_scale
from lab.stats.histogram import Histogram
from lab.studies.exhibits import curves, exhibits
from lab.tests.support.disturbed import ZERO_S, events, killed, requests, usage
from lab.tests.support.factories import alter, make_plan, make_point
from lab.tests.support.golden import drawn
from lab.tests.support.made_runs import MadeStore, evidence_of, made

EMPTY = requests(duration_s=0)
OUTAGE = timelines.bins(requests(out=(5.0, 7.0)), ZERO_S)
MARKS = timelines.marks(killed(5.0, 2.0), ZERO_S)
TOLD = [
    MeasuredNumber("a", "a", 30.0, 29.0, 31.0, (29.5, 30.5)),
    MeasuredNumber("b", "b", 0.0, 0.0, 0.0, (0.0,)),
    MeasuredNumber("c", "c", None),
]
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
CURVE = Curve(100, [PercentilePoint(0, 1e-3), PercentilePoint(1, 2e-3, 1e-3, 4e-3), PercentilePoint(3, 3e-3)])
CHANGES = pl.DataFrame({"t_s": [1.0, 2.0, 3.0], "delay_s": [4.0, 3.0, None]})

FULL: dict[str, Callable[[], go.Figure]] = {
    "timeline": lambda: figures.timeline(OUTAGE, MARKS, "T", timelines.find_range([OUTAGE, OUTAGE])),
    "intervals": lambda: figures.intervals(TOLD, "T", "longest gap", "s", 30.0),
    "processes": lambda: figures.processes({"okd": happenings.summarise_processes(usage([1, 2, 3, 2]))}, "T", MARKS),
    "probing": lambda: figures.probing(
        timelines.probes(PROBES, ZERO_S), timelines.marks(PROBES, ZERO_S), "T", {"liveness": 1.0}
    ),
    "delays": lambda: figures.delays({"okd": CHANGES}, "T"),
    "transfers": lambda: figures.transfers(timelines.transfers(MOVED, ZERO_S), "T"),
    "scaling": lambda: figures.scaling({"rate": [(10, TOLD[0]), (1, TOLD[0])]}, "T", "routes", "rate", "req/s"),
    "compare_published": lambda: figures.compare_published(
        [RatioRow("a", 2.0, TOLD[0]), RatioRow("b", 0.5, None, "none")], "T", "relative", "×"
    ),
    "percentiles": lambda: figures.percentiles([Panel("one", [CURVE]), Panel("none")], "T"),
    "ladder": lambda: figures.ladder(RUNGS, "T"),
    "generations": lambda: figures.generations(
        [GenerationDot("a", 1, 1, 2.5, [1.0, 4.0]), GenerationDot("b", 1, 2, -1.0)], "T"
    ),
}
BARE: dict[str, Callable[[], go.Figure]] = {
    "timeline": lambda: figures.timeline(timelines.bins(EMPTY, ZERO_S), timelines.marks(events(), ZERO_S), "T"),
    "intervals": lambda: figures.intervals([TOLD[2]], "T", "x", "s"),
    "processes": lambda: figures.processes({"okd": happenings.summarise_processes(usage([]))}, "T"),
    "probing": lambda: figures.probing(timelines.probes(events(), ZERO_S), timelines.marks(events(), ZERO_S), "T"),
    "delays": lambda: figures.delays({"okd": CHANGES.head(0)}, "T"),
    "transfers": lambda: figures.transfers(timelines.transfers(events(), ZERO_S), "T"),
    "scaling": lambda: figures.scaling({"rate": [(1, TOLD[2])]}, "T", "routes", "rate", "req/s"),
    "compare_published": lambda: figures.compare_published([RatioRow("a", None, None)], "T", "relative", "×"),
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
    assert choose_scale(unit, greatest) == (scale, written)


def test_marks_tell_what_happened_and_what_was_never_seen_stands_above_all() -> None:
    """When, what kind and who said it of what, and that of the marks under the same pointer. Failures by kind, in the bins of their due times."""
    figure = FULL["timeline"]()
    texts = trace(figure, "pods")["customdata"]
    assert len(texts) == 7 and "5.010 s: <b>Deleted</b> proxy proxy-1: grace 30 s (kubelet)" in texts[0]
    assert "<b>Created</b>" in texts[0] and "<b>Gone</b>" not in texts[0]
    (bars,) = [each for each in drawn(figure)["data"] if each["type"] == "bar"]
    hit = [x for x, y in zip(bars["x"], bars["y"], strict=True) if y]
    assert (bars["name"], min(hit), max(hit)) == ("failed: connect", pytest.approx(5.05), pytest.approx(6.95))
    assert trace(FULL["delays"](), "okd: never seen")["y"] == [pytest.approx(4.6)]
    figure = drawn(FULL["compare_published"]())
    assert figure["layout"]["yaxis"]["ticktext"] == ["a", "b"]
    assert [len(each["x"]) for each in figure["data"]] == [2, 1]
    assert figure["data"][0]["y"][0] < 0 < figure["data"][1]["y"][0]


def test_intervals_are_drawn_to_their_ends() -> None:
    """From low to high, with a ring for every block; a claim reaches from one size to another, in the line's colour and the unit of the axis."""
    figure = drawn(FULL["intervals"]())
    marked = next(each for each in figure["data"] if each.get("error_x"))
    assert (marked["error_x"]["array"][0], marked["error_x"]["arrayminus"][0]) == (1.0, 1.0)
    rings = next(each for each in figure["data"] if each["marker"]["symbol"] == "circle-open")
    assert rings["x"] == [29.5, 30.5, 0.0]
    assert "published: 30 s" in [note["text"] for note in figure["layout"]["annotations"]]
    bound = Bound("ND-04: 0.1 s", 0.1, (100, 1000), "p75")
    lines = {"p50": [(100, MeasuredNumber("a", "a", 0.02))], "p75": [(100, MeasuredNumber("a", "a", 0.03, 0.02, 0.04))]}
    shown = {"p75": [(800, MeasuredNumber("b", "b", 0.055))]}
    figure = figures.scaling(lines, "T", "requests", "time", "s", log_x=False, published=shown, bounds=[bound])
    line, mark, claim = (trace(figure, name) for name in ("p75", "p75, published", "ND-04"))
    assert line["line"]["color"] == mark["marker"]["color"] == claim["line"]["color"]
    assert (mark["y"], claim["x"], claim["y"]) == ([55], [100, 1000], [100, 100])
    assert drawn(figure)["layout"]["xaxis"]["tickvals"] == [100, 800, 1000]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (TOLD[:2], "median of the blocks with its 95 % interval"),
        ([MeasuredNumber("a", "a", 3.0, blocks=(3.0,))], "median of the blocks, too few for an interval"),
        (
            [TOLD[0], MeasuredNumber("a", "a", 3.0)],
            "median of the blocks with its 95 % interval, where they are enough for one",
        ),
    ],
)
def test_a_figure_promises_no_interval_that_it_has_not(rows: list[MeasuredNumber], said: str) -> None:
    across = figures.intervals(rows, "T", "gap", "s")
    along = figures.scaling({"a": list(enumerate(rows, 1))}, "T", "n", "gap", "s")
    assert f"diamond: {said};" in drawn(across)["layout"]["title"]["text"]
    assert drawn(along)["layout"]["title"]["text"].endswith(f"line: {said}</span>")


POINTS = [
    make_point(f"wrk2-c{size}", connections=size, rate_rps=float(size), duration_s=60.0) for size in (100, 500, 1000)
]
SUITES = ("original", "keepalive", "somaxconn")


def run_of(blocks: int = 6, **overrides: Any) -> Evidence:
    """baseline and keepalive under three of the sweep's loads; latencies grow with nothing but noise."""
    planned = make_plan([("keepalive", "baseline")], POINTS, blocks, reference=None)
    return evidence_of(made(planned=planned, sweep="digitalocean", **overrides))


@pytest.fixture(scope="module")
def run() -> Evidence:
    return run_of()


def lines(figure: go.Figure) -> list[Any]:
    """Its traces without the bands."""
    return [each for each in drawn(figure)["data"] if each.get("name")]


def test_places_are_the_percentiles_that_wrk2_prints() -> None:
    """The table's own column says which: all 1692 corners lie where their number says. Ten numbers of connections, as published; each asks for as many requests a second."""
    for row in published.read_frame(curves.TABLE).iter_rows(named=True):
        assert reciprocal_tail(row["vertex_index"]) == pytest.approx(row["inverse_tail_1_over_1_minus_p"], abs=0.0051)
        assert 100 * (1 - 1 / reciprocal_tail(row["vertex_index"])) == pytest.approx(row["percentile"], abs=6e-5)
    points = load_sweep("digitalocean")[1].load_points
    assert [point.connections for point in points] == [
        curve.connections for curve in curves.read_published_curves("original")
    ]
    assert all(point.rate_rps == point.connections for point in points)
    assert {point.name for point in POINTS} <= {point.name for point in points}


@pytest.mark.parametrize("suite", SUITES)
def test_published_lines_are_the_tables_rows(suite: str) -> None:
    found = {curve.connections: curve.corners for curve in curves.read_published_curves(suite)}
    rows = [row for row in published.read_rows(curves.TABLE) if row["suite"] == suite]
    assert sum(map(len, found.values())) == len(rows)
    assert list(found) == sorted({int(str(row["connections"])) for row in rows})
    for corners in found.values():
        assert all(corner.low is not None and corner.low >= 0 for corner in corners)
        assert [corner.place for corner in corners] == sorted(corner.place for corner in corners)
    if suite == "original":
        (corner,) = (corner for corner in found[100] if corner.place == 5)
        assert (corner.value, corner.low, corner.high) == pytest.approx((1.9e-3, 1.0e-3, 2.8e-3))


def test_a_corner_that_could_not_be_read_is_a_gap_and_a_ratio_has_the_errors_of_both_readings() -> None:
    """Nothing is drawn across it. A line is 1 against itself, and nothing is a ratio to what may be 0."""
    figure = figures.percentiles(
        [Panel("p", [Curve(100, [PercentilePoint(0, 1.0), PercentilePoint(1, 1.0), PercentilePoint(3, 2.0)])])], "T"
    )
    (line,) = lines(figure)
    assert line["x"] == [1.0, pytest.approx(1 / 0.9), None, pytest.approx(1 / 0.7), None]
    assert line["y"] == [1000.0, 1000.0, None, 2000.0, None]
    found = {curve.connections: curve.corners for curve in curves.read_published_curves("original", 100)}
    assert {(corner.value, corner.low, corner.high) for corner in found[100]} == {(1.0, 1.0, 1.0)}
    first, *_, last = (curve.corners for curve in curves.read_published_curves("original"))
    base, plain, corner = (next(at for at in each if at.place == 50) for each in (first, last, found[1000]))
    assert corner.value == pytest.approx(plain.value / base.value)
    assert corner.low is not None and corner.high is not None and corner.low < corner.value < corner.high
    assert curves.read_published_curves("somaxconn", 100) == () and curves.read_published_curves("somaxconn", 1000)


def test_measured_corners_are_of_the_merged_histograms(run: Evidence) -> None:
    """Each within the least and the most of its blocks; none with fewer than ten requests beyond it. A thousand requests from 1 to 1000 ms: the median is 500 ms."""
    found = curves.measure_curves(run, "baseline")
    for curve in found:
        samples = run.blocks("baseline", f"wrk2-c{curve.connections}").values()
        whole = reduce(Histogram.merge, filter(None, map(run.run.histogram, samples)))
        assert all(corner.value == whole.quantile_s(1 - 1 / corner.tail) for corner in curve.corners)
        assert whole.total / curve.corners[-1].tail >= 10 > whole.total / reciprocal_tail(curve.corners[-1].place + 1)
        banded = [corner for corner in curve.corners if corner.low is not None and corner.high is not None]
        assert banded and banded[-1].place < curve.corners[-1].place, "single blocks tell fewer percentiles"
        assert all((corner.low or 0.0) <= corner.value <= (corner.high or 0.0) for corner in banded)
    assert [curve.connections for curve in found] == [100, 500, 1000]
    assert curves.measure_curves(run, "backlog") == ()
    known = Histogram.of_values(np.arange(1, 1001) / 1000)
    sample = next(each for each in run.all_samples if each.arm == "baseline" and each.point.connections == 100)
    (curve,) = curves.measure_curves(evidence_of(MadeStore(run.run.record, [sample], {sample.id: known})), "baseline")
    at = {corner.place: corner.value for corner in curve.corners}
    assert (at[5], at[10]) == pytest.approx((0.5, 0.75), rel=1e-3)
    assert curve.corners[-1].tail <= 100 and curve.note == "1 block, 1,000 requests"


def test_fewer_than_six_blocks_have_no_band() -> None:
    """And the panel says that such a run shows shapes only. The band of a ratio is over those of single blocks; nothing is against a line that is not there."""
    run = run_of(blocks=5)
    assert all(corner.low is None for curve in curves.measure_curves(run, "keepalive") for corner in curve.corners)
    notes = drawn(exhibits.percentiles({"keepalive": run}, "T", "keepalive"))["layout"]["annotations"]
    assert [each["text"] for each in notes] == ["published", "keepalive (local, 5 blocks: shape only)<br>made"]
    run = run_of(noise=0.2)
    found = {curve.connections: curve.corners for curve in curves.measure_curves(run, "baseline", 100)}
    assert {corner.value for corner in found[100]} == {1.0}
    middle = next(corner for corner in found[1000] if corner.place == 10)
    assert middle.low is not None and middle.high is not None and middle.low <= middle.value <= middle.high
    assert curves.measure_curves(run, "baseline", 300) == ()


ABSENT = Missing("nothing in data/reference of digitalocean: just bench backlog --sweep digitalocean")


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("relative_to", "linear"), [(None, True), (100, False), (1000, True)])
def test_every_suite_is_drawn_without_a_run_too(
    suite: str, relative_to: int | None, linear: bool, run: Evidence
) -> None:
    shown = {"baseline": run, "backend-200m": ABSENT}
    figure = exhibits.percentiles(shown, "T", suite, relative_to, log_y=not linear, shared_y=not linear)
    layout = drawn(figure)["layout"]
    assert layout["xaxis"]["tickvals"][:5] == list(TICKS)[:5]
    first = "yaxis" if (suite, relative_to) != ("somaxconn", 100) else "yaxis2"  # nothing published to be relative to
    assert layout[first]["title"]["text"].endswith("(ms)" if relative_to is None else "(×)")
    assert layout[first]["showticklabels"]
    texts = " ".join(each["text"] for each in layout["annotations"]).replace("<br>", " ")
    assert "just bench backlog --sweep digitalocean" in texts
    assert "baseline (local, 6 blocks) made" in texts
    listed = [line["name"] for line in lines(figure) if line["showlegend"]]
    assert len(listed) == len(set(listed)) >= 3
    nothing = [] if first == "yaxis" else ["no difference from 0 to show"]
    assert layout["meta"] == {"runs": ["run-1"], "gaps": [*nothing, ABSENT.why]}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("empty", [{1}, {3}, {1, 2}, {2, 3}])
def test_an_empty_panel_has_its_reason_in_its_own_middle(empty: set[int], shared: bool) -> None:
    """In a frame as large as the panel, whatever its place. plotly anchors a text by its place on the paper unless it is told."""
    panels = [
        Panel(f"p{at}", (), f"why {at}") if at in empty else Panel(f"p{at}", [Curve(100, [PercentilePoint(0, 1.0)])])
        for at in (1, 2, 3)
    ]
    layout = drawn(figures.percentiles(panels, "T", shared_y=shared))["layout"]
    reasons = {each["text"]: each for each in layout["annotations"] if each["text"].startswith("why")}
    assert set(reasons) == {f"why {at}" for at in empty}
    frames = {(frame["x0"], frame["x1"], frame["y0"], frame["y1"]) for frame in layout["shapes"]}
    for at in empty:
        left, right = layout["xaxis" if at == 1 else f"xaxis{at}"]["domain"]
        reason = reasons[f"why {at}"]
        assert (reason["xref"], reason["yref"]) == ("paper", "paper"), "an empty panel has no axes to refer to"
        assert (reason["xanchor"], reason["yanchor"]) == ("center", "middle")
        assert (reason["x"], reason["y"]) == (pytest.approx((left + right) / 2), pytest.approx(0.5))
        assert (left, right, 0.0, 1.0) in frames
    assert len(frames) == len(empty)
    titled = [at for at in (1, 2, 3) if "text" in layout["yaxis" if at == 1 else f"yaxis{at}"].get("title", {})]
    assert titled == ([min({1, 2, 3} - empty)] if shared else [1, 2, 3])


def test_panels_share_an_axis_or_not() -> None:
    """Shared, all lie within one range; else each has its own. What may be 0 reaches down to its end."""
    small, large = (
        Curve(100, [PercentilePoint(0, 1e-3), PercentilePoint(1, 9e-3)]),
        Curve(200, [PercentilePoint(0, 1.0), PercentilePoint(1, 9.0)]),
    )
    panels = [Panel("a", [small]), Panel("b", [large])]
    shared = drawn(figures.percentiles(panels, "T"))["layout"]
    assert shared["yaxis2"]["matches"] == "y"
    assert shared["yaxis"]["range"] == shared["yaxis2"]["range"]
    assert 10 ** shared["yaxis"]["range"][0] < 1 < 9000 < 10 ** shared["yaxis"]["range"][1]
    apart = drawn(figures.percentiles(panels, "T", shared_y=False))["layout"]
    assert "matches" not in apart["yaxis2"]
    assert apart["yaxis"]["range"] != apart["yaxis2"]["range"]
    assert drawn(figures.percentiles(panels, "T", log_y=False))["layout"]["yaxis"]["rangemode"] == "tozero"
    figure = figures.percentiles(
        [Panel("p", [Curve(100, [PercentilePoint(0, 1.0, 0.0, 3.0), PercentilePoint(1, 9.0, 0.0, 30.0)])])], "T"
    )
    band = next(each for each in drawn(figure)["data"] if not each.get("name"))
    bottom, top = (10**end for end in drawn(figure)["layout"]["yaxis"]["range"])
    assert min(value for value in band["y"] if value is not None) == pytest.approx(bottom)
    assert max(value for value in band["y"] if value is not None) <= top


def test_effects_are_told_as_the_runs_table_judges_them() -> None:
    run = run_of(effects={"keepalive": 0.5})
    text = exhibits.effects(run, "*c1000")
    assert "| keepalive at wrk2-c1000 | baseline | p99 −" in text
    assert "wrk2-c100 |" not in text
    assert exhibits.effects(ABSENT) == f"*{ABSENT.said}*"
    none = exhibits.effects(run, variants=["backlog"])
    assert "*nothing to show: backlog is not part of this run: just bench backlog" in none


def test_what_claims_ask_of_steady_loads() -> None:
    """20 of 1000 answers had a wrong status and 10 requests had none. What nobody counted, as on another target, is not told."""
    opened = {"proxy/PassiveOpens": 49, "proxy/ActiveOpens": 980, "backend/PassiveOpens": 980}
    counted = {"client/rx_bytes": 1470, "proxy/InSegs": 4900, "proxy/OutSegs": 4900, **opened}
    counted |= {"proxy/ListenOverflows": 7, "backend/ListenOverflows": 9}
    used = {"backend": Usage(cpu_s=0.98, rss_bytes=1, processes=1)}
    had = {"requests": 1000, "errors": {"status": 20, "timeout": 10}, "counters": counted, "usage": used}
    run = run_of(blocks=1, change=alter(lambda _: True, lambda _: had))
    bare = run_of(blocks=1, change=alter(lambda _: True, lambda _: {"counters": {}, "usage": {}}))
    for metric, value in {
        "failed_share": 30 / 1010,
        "opened_connections": 980.0,
        "accepted_per_request": 0.05,
        "opened_per_request": 1.0,
        "dropped_connections": 7.0,
        "bytes_per_request": 1.5,
        "segments_per_request": 10.0,
        "backend_cpu_per_request": 1e-3,
    }.items():
        assert run.values("baseline", "wrk2-c100", metric) == {1: pytest.approx(value)}, metric
    for metric in ("dropped_connections", "bytes_per_request", "segments_per_request", "backend_cpu_per_request"):
        assert set(bare.values("baseline", "wrk2-c100", metric).values()) == {None}, metric
