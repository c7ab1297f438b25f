"""Exhibits: whichever figure is made of a run names it, so that `just report` can put its id beside the figure."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from lab import evidence, exhibits
from lab.evidence import Evidence, Missing
from lab.exhibits import Run
from lab.tests.committed import nds_story, run_of

VARIANT = "kill-nds"
MADE: dict[str, Callable[[Run], go.Figure]] = {
    "timeline": lambda run: exhibits.timeline(run, "T", VARIANT, "held"),
    "intervals": lambda run: exhibits.intervals(run, "T", "gap_s"),
    "scaling": lambda run: exhibits.scaling(run, "T", "gap_s"),
    "tails": lambda run: exhibits.tails(run, "T"),
    "processes": lambda run: exhibits.processes(run, "T"),
    "delays": lambda run: exhibits.delays(run, "T"),
    "probing": lambda run: exhibits.probing(run, "T", VARIANT),
    "transfers": lambda run: exhibits.transfers(run, "T", VARIANT),
    "percentiles": lambda run: exhibits.percentiles({VARIANT: run, "kill-grace-30": run}, "T", "original"),
    "gains": lambda run: exhibits.gains(run, "T", "gap_s", "*", [(VARIANT, "kill-grace-30")]),
    "law": lambda run: exhibits.law(run, "T", "qinng"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """One of disturbances; what it has nothing of is drawn as a gap, and that is its figure, too."""
    folder: Path = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_of(folder, monkeypatch, "kill", [(VARIANT, "kill-grace-30")], nds_story, 1, "r-1", points=["held"])
        monkeypatch.setenv("LAB_REFERENCE", str(folder))
        ((found,), _) = evidence.references()
    return found


def meta(figure: go.Figure) -> dict[str, Any]:
    return json.loads(figure.to_json() or "")["layout"].get("meta", {})


def test_every_exhibit_that_is_a_figure_is_made_here() -> None:
    """A new one must be added to MADE."""
    public = {name: made for name, made in vars(exhibits).items() if inspect.isfunction(made) and name[0] != "_"}
    shown = {name for name, made in public.items() if inspect.signature(made).return_annotation == "go.Figure"}
    assert shown - {"gap"} == set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_a_figure_names_its_run(name: str, run: Evidence) -> None:
    """Once, however many panels are of it."""
    assert meta(MADE[name](run))["runs"] == ["r-1"]


@pytest.mark.parametrize("name", MADE)
def test_without_a_run_a_figure_names_none_and_what_is_empty_is_counted(name: str) -> None:
    """A whole figure needs no count; beside what was published, an empty panel or line does."""
    figure = MADE[name](Missing("nothing of it: just bench kill-nds"))
    drawn = bool(json.loads(figure.to_json() or "")["data"])
    assert drawn == (name in ("percentiles", "law"))
    assert not meta(figure).get("runs")
    assert meta(figure).get("gaps", 0) == {"percentiles": 2, "law": 1}.get(name, 0)
