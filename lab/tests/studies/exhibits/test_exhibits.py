"""Exhibits: whichever figure is made of a run names it; the explorer's parts; gains beside what was claimed, placement, tables in the published shape;
a request's cost taken apart by known steps, and what is left between two targets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
import pytest

from lab.analysis import evidence
from lab.analysis.evidence import Evidence, Missing, Shelf
from lab.base.errors import UsageError
from lab.model.plan import Shape, Slot
from lab.model.run import NotMeasured
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records.store import RunStore
from lab.report.export import tables as export
from lab.report.html import rendering as markdown
from lab.stats.paired import MIN_BLOCKS
from lab.studies.exhibits import exhibits, exploring, ladder
from lab.studies.exhibits.exhibits import RunOrMissing
from lab.studies.exhibits.ladder import (
    LEFT,
    OTHER_PROCESSES_LABEL,
    OtherTarget,
    Remainder,
    compute_level,
    compute_remainder,
)
from lab.studies.exhibits.reproduction import list_gains
from lab.tests.support.committed import nds_story, run_of
from lab.tests.support.factories import alter, costing, make_plan, make_point
from lab.tests.support.golden import drawn
from lab.tests.support.made_runs import MadeStore, evidence_of, made

VARIANT = "grace-period-30+host-port"
MADE: dict[str, Callable[[RunOrMissing], go.Figure]] = {
    "timeline": lambda run: exhibits.timeline(run, "T", VARIANT, "held"),
    "intervals": lambda run: exhibits.intervals(run, "T", "gap_s"),
    "scaling": lambda run: exhibits.scaling(run, "T", "gap_s"),
    "generations": lambda run: exhibits.generations(run, "T"),
    "ladder": lambda run: exhibits.ladder(
        {"real": (run, {"a step": (VARIANT, "ingress-nginx+grace-period-30")})}, "T", "held"
    ),
    "tails": lambda run: exhibits.tails(run, "T"),
    "processes": lambda run: exhibits.processes(run, "T"),
    "delays": lambda run: exhibits.delays(run, "T"),
    "event_delays": lambda run: exhibits.event_delays(run, "T"),
    "probing": lambda run: exhibits.probing(run, "T", VARIANT),
    "transfers": lambda run: exhibits.transfers(run, "T", VARIANT),
    "percentiles": lambda run: exhibits.percentiles(
        {VARIANT: run, "ingress-nginx+grace-period-30": run}, "T", "original"
    ),
    "gains": lambda run: exhibits.gains(run, "T", "gap_s", "*", [(VARIANT, "ingress-nginx+grace-period-30")]),
    "ratios": lambda run: exhibits.ratios(run, "T", "okd", "Transactions per second of one router"),
    "concurrency": lambda run: exhibits.concurrency(run, "T", ["p75_s", "p95_s"], [VARIANT], {"ND-04": "p75_s"}),
    "pages": lambda run: exhibits.pages(run, "T", "link_share", [VARIANT], "OK-18"),
}

PUBLISHED = {"percentiles": 2} | dict.fromkeys(["ratios", "concurrency", "pages"], 1)
"""What shows published numbers without a run, too → its gaps then."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """One of disturbances; what it has nothing of is drawn as a gap, and that is its figure, too."""
    folder: Path = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as monkeypatch:
        pairs = [(VARIANT, "ingress-nginx+grace-period-30")]
        run_of(folder, monkeypatch, "kill", pairs, nds_story, 1, "r-1", points=["held"])
        monkeypatch.setenv("LAB_REFERENCE", str(folder))
        ((found,), _) = evidence.load_references()
    return found


@pytest.mark.parametrize("name", MADE)
def test_a_figure_names_its_run(name: str, run: Evidence) -> None:
    """Once, however many panels are of it. Without one an empty panel beside what was published is counted; a whole figure needs no count."""
    assert drawn(MADE[name](run))["layout"]["meta"]["runs"] == ["r-1"]
    figure = drawn(MADE[name](Missing("nothing of it: just bench grace-period-30+host-port")))
    assert bool(figure["data"]) == (name in PUBLISHED)
    meta = figure["layout"].get("meta", {})
    assert not meta.get("runs") and len(meta.get("gaps", ())) == PUBLISHED.get(name, 0)


def test_what_was_published_is_drawn_without_a_run() -> None:
    """A claim stands at once where its run will, of a gain, too; a publication's table has a line a release, in the metric's own unit."""
    where = {"phase": ["scaling-up"], "release": ["1.7.0", "1.9.0"]}
    figure = drawn(exhibits.printed("T", "envoy_gateway_benchmark", "p50", "p50_ms", "routes", "release", where))
    found = [(line["name"], len(line["x"])) for line in figure["data"]]
    assert found == [("1.7.0, published", 6), ("1.9.0, published", 6)]
    assert figure["layout"]["meta"] == {"runs": []}
    run = Missing("nothing of it: just bench nds-replicas-4")
    told = drawn(exhibits.gains(run, "T", "mean_s", "*", [("nds-replicas-4", "ingress-nginx")], ["ND-03"]))
    assert "ND-03: 0 % change (about)" in json.dumps(told["data"])
    assert "just bench nds-replicas-4" in told["layout"]["title"]["text"]
    assert told["layout"]["meta"] == {"runs": [], "gaps": [run.said]}
    assert not drawn(exhibits.intervals(run, "T", "failing_s", claimed="ND-12"))["data"]


STEADY = "quick-keepalive"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No run of one's own, and those that are committed."""
    monkeypatch.delenv("LAB_REFERENCE", raising=False)
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    return tmp_path


def disturbed(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pairs = [("grace-period-30+host-port", "ingress-nginx+grace-period-30")]
    run_of(folder, monkeypatch, "kill", pairs, nds_story, 1, name, points=["held"])


def named(run: exhibits.RunOrMissing) -> str:
    return run.name if isinstance(run, Evidence) else run.said


@pytest.mark.slow
def test_the_newest_of_ones_own_comes_first(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its state: one without a valid sample is shown as such, a damaged one is a gap."""
    disturbed(own, monkeypatch, "20260101-a")
    disturbed(own, monkeypatch, "20260102-b")
    for path in (own / "20260102-b" / "samples").glob("*/sample.json"):
        path.write_text(path.read_text().replace('"verdict": "valid"', '"verdict": "invalid"'))
    newest = exploring.pick_run()
    assert named(newest) == "20260102-b"
    assert " samples invalid" in exploring.overview(newest)
    assert exhibits.table(newest, exploring.metrics(newest)).startswith("*nothing to show: ")
    (own / "20260103-c").mkdir()
    (own / "20260103-c" / "run.json").write_text("{")
    assert exploring.overview(exploring.pick_run()).startswith("*no run: 20260103-c: damaged: ")
    assert named(exploring.pick_run("20260101-a")) == "20260101-a"
    assert named(exploring.pick_run(str(own / "20260101-a"))) == "20260101-a"


@pytest.mark.committed
def test_without_any_a_committed_one_that_has_intervals() -> None:
    """And something to compare. Of a run by name percentiles are drawn; there is no timeline, and why is said."""
    picked = exploring.pick_run()
    assert isinstance(picked, Evidence) and picked.run.record.blocks >= MIN_BLOCKS
    assert any(arm.role == "variant" for arm in picked.run.record.arms)
    run = exploring.pick_run(STEADY)
    assert named(run) == STEADY
    assert len(drawn(exhibits.tails(run, "T", "ceiling", ["keepalive"]))["data"]) == 1
    assert "steady loads alone" in str(drawn(exhibits.timeline(run, "T", "keepalive")))
    table = exhibits.table(run, ["rate"], "ceiling", ["keepalive"])
    assert "keepalive at ceiling" in table and "ingress-nginx" not in table.replace(STEADY, "")


def test_without_any_at_all_it_says_so(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_REFERENCE", str(own))
    run = exploring.pick_run()
    metrics = exploring.metrics(run)
    tables = exploring.compare_variants(run), exhibits.table(run, metrics), exploring.verdict(run)
    for text in (exploring.overview(run), *tables):
        assert text.startswith("*no run: nothing in data/reference of any sweep")
    assert isinstance(run, Missing) and exploring.variants(run) and exploring.pairs(run) == []
    assert run.samples().height == 0 and "cpu_per_request_s" in run.samples().columns
    monkeypatch.setenv("LAB_RUNS", str(own / "none"))
    (own / "broken").mkdir()
    (own / "broken" / "run.json").write_text("{")
    assert "; broken is damaged: " in named(exploring.pick_run())
    assert "unknown run" in named(exploring.pick_run("none"))


@pytest.mark.committed
def test_the_overview_has_arms_loads_machine_and_the_runs_metrics(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = exploring.pick_run(STEADY)
    text = exploring.overview(run)
    assert "| keepalive | longer-lived client connections, shorter-lived upstream ones | ingress-nginx |" in text
    assert "| ceiling | 64 connections, closed loop, 5 s, 1kB.bin | wrk " in text and "| cpu | Intel" in text
    assert "cpu_per_request" in exploring.metrics(run)
    disturbed(own, monkeypatch, "20260101-a")
    newest = exploring.pick_run()
    assert "| held |" in exploring.overview(newest) and "gap_s" in exploring.metrics(newest)


@pytest.mark.committed
def test_the_verdict_is_the_runs_own_and_its_samples_are_a_frame() -> None:
    """The sentences without a table, what is compared with what, and a row for every sample, as `just export` has them."""
    run = exploring.pick_run(STEADY)
    assert isinstance(run, Evidence)
    text = exploring.verdict(run)
    assert "keepalive" in text and "|" not in text
    assert exploring.pairs(run) == [("keepalive", "ingress-nginx")]
    frame, recorded = run.samples(), run.run.samples()
    assert frame["sample"].to_list() == [sample.id for sample in recorded]
    assert frame["valid"].to_list() == [sample.valid for sample in recorded]
    assert frame.equals(next(export.yield_tables(run.run, "samples", recorded)))


@pytest.mark.committed
def test_variants_are_compared_with_their_baselines() -> None:
    """Only those points, metrics and variants that are asked for; a second run beside it. Looking at one row makes it no surer, and changes no advice."""
    run = exploring.pick_run(STEADY)
    text = exploring.compare_variants(run, metrics=["rate"], point="ceil*")
    assert "| keepalive against ingress-nginx | rate (req/s) |" in text
    assert "**rate-1000**" not in text and "p99 (ms)" not in text
    assert exploring.compare_variants(run, only=["direct"]).startswith("*nothing to compare: ")
    assert exploring.compare_variants(run, other=STEADY).startswith("*nothing to compare: ")
    assert exploring.compare_variants(run, other="none").startswith("*no run: ")
    whole, part = (exploring.compare_variants(run, metrics=metrics).splitlines() for metrics in ((), ["p90"]))
    rows = [line for line in part if line.startswith("| keepalive")]
    same = [line.rpartition(" | ")[0] for line in whole if "| p90 (ms) |" in line]
    assert [row.rpartition(" | ")[0] for row in rows] == same and part[-1] == whole[-1]
    assert any("Holm-adjusted over 2 and 3 comparisons" in line and line in whole for line in part)


NONE = Missing("nothing in data/reference of qinng: just bench")
WRK = make_point("wrk", generator="wrk", connections=1000, rate_rps=None, threads=4)
OWN = [("qinng-tuned", "baseline"), ("nginx", "baseline")]
WORKERS = [(f"qinng-workers-{size}", "qinng-tuned") for size in (1, 2, 4, 8)]
WORKER_TABLE = "Requests per second by workers"


def texts(figure: go.Figure) -> str:
    return " ".join(each["text"] for each in drawn(figure)["layout"].get("annotations", [])).replace("<br>", " ")


class Steered(MadeStore):
    """A run of which something was read back."""

    def readings(self, sample: Sample) -> list[dict[str, Any]]:
        steered = sample.arm == "packet-steering"
        return [{"kind": "rps", "value": "own", "observed": "own", "ok": True}] if steered else []


def closed_loop(
    arms: Sequence[tuple[str, str | None]], effects: dict[str, float] | None = None, **record: Any
) -> Evidence:
    """Six blocks at one closed loop that the proxy limited, without noise: `effects` are factors on what a request costs."""
    change = alter(lambda _: True, lambda _: {"limited_by": "proxy", "generator": "wrk"})
    store = made(planned=make_plan(arms, [WRK]), effects=effects, noise=0.001, change=change, **record)
    histograms = {sample.id: found for sample in store.samples() if (found := store.histogram(sample))}
    return evidence_of(Steered(store.record, store.samples(), histograms))


def test_gains_are_shown_beside_what_was_claimed_and_what_cannot_be_measured_here_is_named() -> None:
    """In percent, with the claim's own number and unit; one of a factor as what it adds."""
    run = closed_loop(OWN, {"qinng-tuned": 0.5, "nginx": 0.8})
    pairs = [*OWN, ("packet-steering", "baseline")]
    figure = exhibits.gains(run, "Gains", "rate", "*", pairs, ["QN-15", "AW-01"])
    shown = drawn(figure)
    marks = [each for each in shown["data"] if each.get("error_x")]
    rows = {label: value for each in marks for label, value in zip(each["y"], each["x"], strict=True)}
    assert rows == pytest.approx({"qinng-tuned against baseline": 100, "nginx against baseline": 25}, abs=1)
    assert [shape["x0"] for shape in shown["layout"]["shapes"]] == [0, 100, 30]
    assert "AW-01: 30 % (up to)" in texts(figure)
    missing = "packet-steering is not part of this run"
    assert f"packet-steering against baseline: {missing}" in shown["layout"]["xaxis"]["title"]["text"]
    (need,) = shown["layout"]["meta"]["gaps"]
    assert need.startswith(f"{missing}: just bench packet-steering")
    missing = (NotMeasured(variant="aws-a1-node", what="host-wide", why="irq-affinity is 0 here"),)
    figure = exhibits.gains(closed_loop(OWN, not_measurable=missing), "G", "rate", "*", [("aws-a1-node", "baseline")])
    said = "aws-a1-node is not measurable here (host-wide: irq-affinity is 0 here)"
    assert texts(figure) == f"aws-a1-node against baseline: {said}"
    run = closed_loop([("packet-steering", "baseline")], facts={"cpus_proxy": "0"}, not_measurable=missing)
    lines = exhibits.placement(run, ["baseline", "packet-steering", "aws-a1-node", "kernel"]).splitlines()
    assert "| a1.4xlarge, published | 0;8 | 0;8 | 0-15 |" in lines
    assert "| local, baseline | left as they are | where they arrive | as pinned: 0 |" in lines
    assert "| local, packet-steering | left as they are | the proxy's own: 0 | as pinned: 0 |" in lines
    assert "| local, aws-a1-node | not measurable here: host-wide: irq-affinity is 0 here | – | – |" in lines
    assert "| local, kernel | not part of this run | – | – |" in lines
    assert exhibits.placement(NONE, ["baseline"]).endswith("*no run: nothing in data/reference of qinng: just bench*")


@pytest.mark.committed
def test_a_gain_of_a_pair_is_what_the_runs_table_says() -> None:
    """Not of the two blocks in which each was alone, which have no interval; the other way round nothing was a pair."""
    run = evidence_of(RunStore.open("data/reference/keepalive-pairs"), "keepalive-pairs")
    (told,) = list_gains(run, "keepalive", "ingress-nginx", "cpu_per_request", "ceiling")
    pair = run.as_pair("keepalive", "ingress-nginx", "ceiling", "cpu_per_request")
    assert pair is not None and pair.estimate is not None and pair.estimate.ratio_interval is not None
    low, high = pair.estimate.ratio_interval
    assert (told.value, told.low, told.high) == tuple(100 * (end - 1) for end in (pair.estimate.ratio, low, high))
    assert not told.blocks
    (back,) = list_gains(run, "ingress-nginx", "keepalive", "cpu_per_request", "ceiling")
    assert back.low is None and len(back.blocks) == 2


def test_tables_keep_the_published_shape() -> None:
    """The set-ups as shares of the direct connection, ours beside the published ones. Without a proxy there is none: the backend's own stands in no row and no figure."""
    told = exhibits.shape(closed_loop([*OWN, *WORKERS[:1]], {"nginx": 0.5}), "qinng", "Requests per second by setup")
    assert WORKER_TABLE not in told
    assert "| direct_pod_ip |" in told
    row = next(line for line in told.splitlines() if line.startswith("| nginx_proxy |"))
    assert all(text in row for text in ("336,769", "0.99×", "1.00×"))
    run = closed_loop(OWN)
    told = exhibits.table(run, ["rate", "cpu_per_request"]).splitlines()
    assert next(line for line in told if line.startswith("| direct")).endswith("| – |")
    assert "direct" not in json.dumps(drawn(exhibits.intervals(run, "T", "cpu_per_request"))["data"])


def test_a_damaged_run_is_a_gap_beside_what_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> Any:
        raise UsageError("data/reference/made/x", "cannot be read: it is cut short", "restore it from a copy")

    run = closed_loop(WORKERS[:1])
    monkeypatch.setattr(Steered, "histogram", damaged)
    assert len(markdown.find_gaps(exhibits.effects(run))) == len(markdown.find_gaps(exhibits.effects(NONE))) == 1
    told = exhibits.shape(run, "qinng", WORKER_TABLE)
    assert "153,473" in told
    assert "*no run: made is damaged: data/reference/made/x: cannot be read: it is cut short*" in told


CEILING = make_point("ceiling", generator="wrk", rate_rps=None)
CHAIN = [("no-metrics", "baseline"), ("no-log", "no-metrics"), ("nginx", "no-log")]
COSTS = {"baseline": 2.0, "no-metrics": 1.6, "no-log": 1.2, "nginx": 0.8}
"""Times 25 µs: 50, 40, 30, 20."""
NUMBERS = count(1)
"""What is known of a run is kept by its name."""
STEPS = {"metrics": ("no-metrics", "baseline"), "log": ("no-log", "no-metrics"), "rest": ("nginx", "no-log")}


def taken_apart(
    chain: Sequence[tuple[str, str | None]] = CHAIN, costs: Mapping[str, float] = COSTS, blocks: int = 6, **record: Any
) -> Evidence:
    shape = Shape({name: blocks for name, _ in chain}, frozenset({"ceiling"}))
    planned = make_plan(chain, [CEILING], blocks=blocks, reference=None, shape=shape)
    return evidence_of(made(f"run-{next(NUMBERS)}", effects=costs, planned=planned, noise=0.001, **record))


def dearer(by: Callable[[Slot], float]) -> Callable[[Slot, Sample], Sample]:
    """Return a change by which a solo sample uses that many times the CPU."""
    return lambda slot, sample: sample if slot.other else sample.model_copy(update={**costing(by(slot))(sample)})


def test_steps_hang_where_the_one_before_ends_and_one_beside_the_chain_hangs_from_its_own_baseline() -> None:
    """What is in front costs more. A pair on a dearer machine moves no level, and arms alone that differ by something else no step."""
    rows, missing = ladder.make_rungs(taken_apart(), "real", STEPS, "ceiling")
    assert not missing
    assert [row.label for row in rows] == ["baseline, real", "metrics", "log", "rest", "nginx, real"]
    assert [row.whole for row in rows] == [True, False, False, False, True]
    assert [1e6 * row.end for row in rows] == pytest.approx([50, 40, 30, 20, 20], rel=0.005)
    assert [row.start for row in rows[1:4]] == [row.end for row in rows[:3]]
    for row in rows[1:4]:
        assert row.low is not None and row.high is not None and row.low < row.end < row.high
        assert row.high - row.low < 1e-6
    assert rows[1].text.startswith(("−10.0 µs [", "−9.9 µs [")) and rows[1].text.endswith(" %")
    assert rows[0].text.endswith(" µs") and "[" not in rows[0].text
    rows, missing = ladder.make_rungs(taken_apart(blocks=2), "real", STEPS, "ceiling")
    assert not missing and "too few blocks" in rows[1].text and rows[1].low is None and not rows[1].whole
    chain = [("in-front", "baseline"), *CHAIN]
    steps = {"in front": ("in-front", "baseline"), **STEPS}
    rows, _ = ladder.make_rungs(taken_apart(chain, {**COSTS, "in-front": 2.4}), "real", steps, "ceiling")
    ends = {row.label: (1e6 * row.start, 1e6 * row.end) for row in rows}
    assert ends["in front"] == pytest.approx((50, 60), rel=0.005)
    assert ends["metrics"] == pytest.approx((50, 40), rel=0.005)
    assert [row.label for row in rows].count("baseline, real") == 1
    change = dearer(lambda slot: 3.0 if slot.arm.variant == "no-metrics" else 1.0)
    rows, _ = ladder.make_rungs(taken_apart(change=change), "real", STEPS, "ceiling")
    assert [1e6 * row.end for row in rows] == pytest.approx([50, 40, 30, 20, 20], rel=0.005)
    # as the table: a quarter of what it cost alone
    assert rows[2].text.startswith(("−30.0 µs [", "−29.9 µs [", "−30.1 µs ["))


def test_a_step_without_a_pair_or_a_whole_run_is_a_gap_that_says_why() -> None:
    steps = {**STEPS, "Lua": ("no-lua", "no-log")}
    run = taken_apart()
    figure = exhibits.ladder({"real": (run, steps)}, "T", "ceiling")
    shown = drawn(figure)
    title = shown["layout"]["title"]["text"].replace("<br>", " ")
    assert "Lua: no pair of no-lua and no-log at ceiling in made: no-lua is not part of this run" in title
    assert shown["layout"]["meta"]["runs"] == [run.run.record.id]
    assert [gap.partition(":")[0] for gap in shown["layout"]["meta"]["gaps"]] == ["Lua"]
    missing = Shelf((), ()).of("ladder", variant=["no-metrics", "nginx"], target="apiserver")
    both = drawn(exhibits.ladder({"real": (taken_apart(), STEPS), "none": (missing, STEPS)}, "T", "ceiling"))
    command = "just bench no-metrics nginx --sweep ladder --target apiserver"
    assert command in both["layout"]["title"]["text"].replace("<br>", " ") and len(both["layout"]["meta"]["gaps"]) == 1
    alone = drawn(exhibits.ladder({"none": (missing, STEPS)}, "T", "ceiling"))
    assert not alone["data"] and command in alone["layout"]["annotations"][0]["text"].replace("<br>", " ")


THERE = {"baseline": 4.0, "no-metrics": 3.2, "no-log": 2.4, "nginx": 2.0}
"""Times 25 µs: 100, 80, 60, 50; beside the other run's 50, 40, 30, 20."""
TWO = {name: STEPS[name] for name in ("metrics", "log")}
Used = Callable[[Sample], Mapping[str, float]]


def rows(used_s: Mapping[str, float], duration_s: float = 5.0) -> pl.DataFrame:
    """Two looks at one process of each title, which had used a second before the first."""
    looks = [
        (at_s, "proxy", pid, None, title, 1, 0.0, 0.0, 1.0 + more_s, 0, 0, 0, 0, None)
        for pid, (title, cpu_s) in enumerate(used_s.items())
        for at_s, more_s in ((0.0, 0.0), (duration_s, cpu_s))
    ]
    return pl.DataFrame(looks, schema=USAGE_SCHEMA, orient="row")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Used], None]:
    """Sets what the processes of a target's samples used."""
    told: dict[str, Used] = {}

    def usage(store: RunStore, sample: Sample) -> pl.DataFrame:
        return rows(told[store.record.target](sample) if store.record.target in told else {})

    monkeypatch.setattr(RunStore, "usage", usage)
    return told.__setitem__


def four_fifths(sample: Sample) -> Mapping[str, float]:
    cpu_s = sample.usage["proxy"].cpu_s
    return {"nginx": 0.8 * cpu_s, "controller": 0.15 * cpu_s}  # and the rest is whoever looked in


def serving(sample: Sample) -> Mapping[str, float]:
    return {"nginx": sample.usage["proxy"].cpu_s}


def kind(**record: Any) -> Evidence:
    return taken_apart(costs=THERE, sweep="ladder", target="kind", **record)


def elsewhere(run: Evidence | Missing | None = None, variant: str = "no-metrics") -> OtherTarget:
    return OtherTarget("bare", taken_apart(sweep="ladder", target="apiserver") if run is None else run, variant)


def left(run: Evidence, there: OtherTarget) -> Remainder:
    return compute_remainder(run, "no-log", there, "ceiling")


def ends_of(found: Remainder) -> dict[str, tuple[float, float]]:
    return {row.label: (1e6 * row.start, 1e6 * row.end) for row in found.rungs}


def width(run: Evidence, there: OtherTarget) -> float:
    row = next(row for row in left(run, there).rungs if row.label == LEFT)
    assert row.low is not None and row.high is not None and row.low < row.end < row.high
    return 1e6 * (row.high - row.low)


def noisy(by: float, variant: str = "baseline") -> Callable[[Slot, Sample], Sample]:
    """The arm alone costs up to so much more or less, by its block."""
    return dearer(lambda slot: 1 + by * (slot.block - 3.5) / 2.5 if slot.arm.variant == variant else 1.0)


def test_what_is_left_is_the_levels_difference_and_who_is_uncounted_is_apart(used: Callable[[str, Used], None]) -> None:
    """These are a row apart, by the names of those that it counts: the controller and whoever looked in are a fifth here."""
    found = left(kind(), elsewhere())
    assert ends_of(found) == {
        LEFT: (pytest.approx(60, rel=0.01), pytest.approx(40, rel=0.01)),
        "no-metrics, bare": (0, pytest.approx(40, rel=0.01)),
    }
    assert [(row.apart, row.whole) for row in found.rungs] == [(True, False), (False, True)]
    assert found.rungs[0].text.startswith(("−20", "−19.9")) and "[" in found.rungs[0].text
    assert not found.missing and not found.notes
    used("kind", four_fifths)
    used("apiserver", serving)
    found = ends_of(left(kind(), elsewhere()))
    assert found[OTHER_PROCESSES_LABEL] == (pytest.approx(60, rel=0.01), pytest.approx(48, rel=0.01))
    assert found[LEFT] == (found[OTHER_PROCESSES_LABEL][1], pytest.approx(40, rel=0.01))


@pytest.mark.usefixtures("used")
def test_an_interval_has_both_levels_and_every_step_and_pairs_carry_a_level_from_what_was_alone() -> None:
    """An arm alone that is off by something else moves none that pairs lead to; a variant without a pair is by itself."""
    still, alone = elsewhere(), noisy(0.1)
    quiet = width(kind(), still)
    noisy_there = elsewhere(taken_apart(target="apiserver", change=alone))
    here, there = width(kind(change=alone), still), width(kind(), noisy_there)
    both = width(kind(change=alone), noisy_there)
    assert quiet < 1 < there < here < both
    assert both**2 == pytest.approx(here**2 + there**2, rel=0.05)
    change = dearer(lambda slot: 1.0 if slot.arm.variant == "baseline" else 3.0)
    found = compute_level(kind(change=change), "no-log", "ceiling")
    assert found is not None and 1e6 * found.value == pytest.approx(60, rel=0.01)
    root = compute_level(kind(), "baseline", "ceiling")
    assert root is not None and 1e6 * root.value == pytest.approx(100, rel=0.01)
    assert compute_level(kind(), "nobody", "ceiling") is None and compute_level(kind(), "baseline", "nowhere") is None


@pytest.mark.usefixtures("used")
def test_the_figure_takes_it_below_the_last_panels_steps_and_names_both_runs() -> None:
    run, there = kind(), elsewhere()
    shown = drawn(exhibits.ladder({"on kind": (run, TWO)}, "T", "ceiling", there))
    labels = [text.partition("<br>")[0] for text in shown["layout"]["yaxis"]["ticktext"]]
    assert labels == ["baseline, on kind", "metrics", "log", "no-log, on kind", LEFT, "no-metrics, bare"]
    assert len(shown["layout"]["meta"]["runs"]) == 2 and not shown["layout"]["meta"].get("gaps")
    alone = drawn(exhibits.ladder({"on kind": (run, TWO)}, "T", "ceiling"))
    titles = [each["layout"]["title"]["text"] for each in (shown, alone)]
    assert ["nothing is pooled" in title for title in titles] == [True, False]
