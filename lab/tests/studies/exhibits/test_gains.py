"""Gains beside what was claimed, placement, and tables in the published shape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import pytest

from lab.analysis.evidence import Evidence, Missing
from lab.base.errors import UsageError
from lab.model.run import NotMeasured
from lab.model.samples import Sample
from lab.records.store import RunStore
from lab.report.html import rendering as markdown
from lab.studies.exhibits import exhibits
from lab.studies.exhibits.reproduction import told_gains
from lab.tests.support.factories import alter, make_plan, make_point
from lab.tests.support.golden import drawn
from lab.tests.support.made_runs import MadeStore, evidence_of, made

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


def run_of(
    variants: Sequence[tuple[str, str | None]], effects: dict[str, float] | None = None, **record: Any
) -> Evidence:
    """Six blocks at one closed loop that the proxy limited, without noise: `effects` are factors on what a request costs."""
    change = alter(lambda _: True, lambda _: {"limited_by": "proxy", "generator": "wrk"})
    store = made(planned=make_plan(variants, [WRK]), effects=effects, noise=0.001, change=change, **record)
    histograms = {sample.id: found for sample in store.samples() if (found := store.histogram(sample))}
    return evidence_of(Steered(store.record, store.samples(), histograms))


def test_gains_are_shown_beside_what_was_claimed() -> None:
    """In percent, with the claim's own number and unit; one of a factor as what it adds."""
    run = run_of(OWN, {"qinng-tuned": 0.5, "nginx": 0.8})
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


@pytest.mark.committed
def test_a_gain_of_a_pair_is_what_the_runs_table_says() -> None:
    """Not of the two blocks in which each was alone, which have no interval; the other way round nothing was a pair."""
    run = evidence_of(RunStore.open("data/reference/keepalive-pairs"), "keepalive-pairs")
    (told,) = told_gains(run, "keepalive", "ingress-nginx", "cpu_per_request", "ceiling")
    pair = run.as_pair("keepalive", "ingress-nginx", "ceiling", "cpu_per_request")
    assert pair is not None and pair.estimate is not None and pair.estimate.ratio_interval is not None
    low, high = pair.estimate.ratio_interval
    assert (told.value, told.low, told.high) == tuple(100 * (end - 1) for end in (pair.estimate.ratio, low, high))
    assert not told.blocks
    (back,) = told_gains(run, "ingress-nginx", "keepalive", "cpu_per_request", "ceiling")
    assert back.low is None and len(back.blocks) == 2


def test_what_cannot_be_measured_here_is_named() -> None:
    """Below the plot, or in its place. Of a variant that was not measured stands why."""
    missing = (NotMeasured(variant="aws-a1-node", what="host-wide", why="irq-affinity is 0 here"),)
    figure = exhibits.gains(run_of(OWN, not_measurable=missing), "G", "rate", "*", [("aws-a1-node", "baseline")])
    said = "aws-a1-node is not measurable here (host-wide: irq-affinity is 0 here)"
    assert texts(figure) == f"aws-a1-node against baseline: {said}"
    run = run_of([("packet-steering", "baseline")], facts={"cpus_proxy": "0"}, not_measurable=missing)
    lines = exhibits.placement(run, ["baseline", "packet-steering", "aws-a1-node", "kernel"]).splitlines()
    assert "| a1.4xlarge, published | 0;8 | 0;8 | 0-15 |" in lines
    assert "| local, baseline | left as they are | where they arrive | as pinned: 0 |" in lines
    assert "| local, packet-steering | left as they are | the proxy's own: 0 | as pinned: 0 |" in lines
    assert "| local, aws-a1-node | not measurable here: host-wide: irq-affinity is 0 here | – | – |" in lines
    assert "| local, kernel | not part of this run | – | – |" in lines
    assert exhibits.placement(NONE, ["baseline"]).endswith("*no run: nothing in data/reference of qinng: just bench*")


def test_tables_keep_the_published_shape() -> None:
    """The set-ups as shares of the direct connection, ours beside the published ones. Without a proxy there is none: the backend's own stands in no row and no figure."""
    told = exhibits.shape(run_of([*OWN, *WORKERS[:1]], {"nginx": 0.5}), "qinng", "Requests per second by setup")
    assert WORKER_TABLE not in told
    assert "| direct_pod_ip |" in told
    row = next(line for line in told.splitlines() if line.startswith("| nginx_proxy |"))
    assert all(text in row for text in ("336,769", "0.99×", "1.00×"))
    run = run_of(OWN)
    told = exhibits.table(run, ["rate", "cpu_per_request"]).splitlines()
    assert next(line for line in told if line.startswith("| direct")).endswith("| – |")
    assert "direct" not in json.dumps(drawn(exhibits.intervals(run, "T", "cpu_per_request"))["data"])


def test_a_damaged_run_is_a_gap_beside_what_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is named, and the published numbers stand; its effects are one gap, as `just report` counts it."""

    def damaged(*_: object) -> Any:
        raise UsageError("data/reference/made/x", "cannot be read: it is cut short", "restore it from a copy")

    run = run_of(WORKERS[:1])
    monkeypatch.setattr(Steered, "histogram", damaged)
    assert len(markdown.gaps(exhibits.effects(run))) == len(markdown.gaps(exhibits.effects(NONE))) == 1
    told = exhibits.shape(run, "qinng", WORKER_TABLE)
    assert "153,473" in told
    assert "*no run: made is damaged: data/reference/made/x: cannot be read: it is cut short*" in told
