"""Every parameter and sweep of the studies on every target: a cell each, and only what was shown is called so."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.records import published, trials
from lab.records.store import RunStore
from lab.records.trials import Trial, Tried
from lab.report.markdown import markdown
from lab.studies import matrix as made
from lab.studies.matrix import page
from lab.studies.study_files import load_study, study_keys
from lab.targets import TARGETS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, Trial]:
    """No committed run; trials as the test says."""
    told: dict[str, Trial] = {}
    monkeypatch.setattr(made, "runs", lambda: ())
    monkeypatch.setattr(trials, "committed", lambda: told)
    return told


def trial(variants: dict[str, Tried], sweeps: dict[str, Tried]) -> Trial:
    return Trial(target="local", tried_at="2026-01-01", git_commit=None, facts={}, variants=variants, sweeps=sweeps)


def cell_of(parameter: str, target: str = "local") -> made.Cell:
    study, _, name = parameter.partition("/")
    return made.parameter_line(study, name, load_study(study).file).cells[target]


def test_a_trial_says_that_it_works_or_why_not(shown: dict[str, Trial]) -> None:
    """A sweep that a target takes is not called measured."""
    few = Tried(outcome="not measurable", detail="cores: 1")
    shown["local"] = trial({"ingress-nginx+use-gzip": Tried(outcome="holds"), "qinng": few}, {})
    assert cell_of("digitalocean/use-gzip").kind == "works"
    assert cell_of("qinng/max-worker-open-files") == made.Cell("not possible", "cores: 1", "data/trials/local.json")
    assert cell_of("digitalocean/use-gzip", "kind").kind == "not shown"
    shown["local"] = trial({}, {})
    assert cell_of("digitalocean/use-gzip") == made.Cell("not shown"), "nothing has shown it"
    shown["local"] = trial({"ingress-nginx+use-gzip": Tried(outcome="FAILED", detail="no answer")}, {})
    assert cell_of("digitalocean/use-gzip") == made.Cell("not shown", "no answer", "data/trials/local.json")
    shown["local"] = trial({}, {"nds": Tried(outcome="accepted", detail="on ingress-nginx")})
    assert made.of_sweep("local", ["nds"], None).kind == "accepted"
    assert made.of_sweep("local", ["okd"], None).kind == "not shown"


def test_a_run_counts_where_it_was_measured_and_only_with_samples_that_count(
    shown: dict[str, Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        made.Measured("few", "local", "slow-link", {"ingress-nginx+use-gzip": 1}),
        made.Measured("many", "local", "slow-link", {"proxy-body-size-128m+use-gzip": 9}),
        made.Measured("none", "kind", "slow-link", {}),
    ]
    monkeypatch.setattr(made, "runs", lambda: tuple(runs))
    made.shown_variants.cache_clear()
    try:
        assert cell_of("digitalocean/use-gzip") == made.Cell("measured", "many and 1 more", "data/reference/many")
        assert cell_of("digitalocean/use-gzip", "kind").kind == "not shown"
    finally:
        made.shown_variants.cache_clear()


def test_each_published_load_is_made_or_the_study_says_why_not() -> None:
    rows = [(row["source"], row["sweep_id"]) for row in published.texts("sweeps")]
    assert sorted((key, name) for key in study_keys() for name in load_study(key).file.published_loads) == sorted(rows)


@pytest.mark.committed
def test_no_cell_is_empty_and_every_link_leads_somewhere() -> None:
    found = made.matrix()
    assert [(line.study, line.name) for line in found[0]] == [
        (row["source"], row["parameter"]) for row in published.texts("parameters")
    ]
    for line in (line for lines in found for line in lines):
        assert set(line.cells) == set(TARGETS), line
        for target, cell in line.cells.items():
            assert not cell.where or (ROOT / cell.where).exists(), cell
            assert cell.said or cell.kind == "not shown", cell
            if cell.kind == "measured":
                assert RunStore.open(str(ROOT / cell.where)).record.target == target
    table = markdown(page())
    assert "|  |" not in table.replace("|  | |", "")
