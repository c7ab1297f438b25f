"""Exhibits: whichever figure is made of a run names it, so that `just report` can put its id beside the figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects as go
import pytest

from lab.analysis import evidence
from lab.analysis.evidence import Evidence, Missing
from lab.studies.exhibits import exhibits
from lab.studies.exhibits.exhibits import Run
from lab.tests.support.committed import nds_story, run_of
from lab.tests.support.golden import drawn

VARIANT = "grace-period-30+host-port"
MADE: dict[str, Callable[[Run], go.Figure]] = {
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
        ((found,), _) = evidence.references()
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
