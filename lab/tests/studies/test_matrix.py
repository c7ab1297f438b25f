"""Every parameter and sweep of the studies: a cell on every target, only what was shown called so, and a knob for each parameter or why it is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.model.variants.knobs import knob_names, load_knob
from lab.model.variants.variants import load_variant
from lab.records import published, trials
from lab.records import published as publications
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


def test_a_run_counts_where_it_has_samples_that_count(shown: dict[str, Trial], monkeypatch: pytest.MonkeyPatch) -> None:
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


UNITS = {None: 1, "k": 1024, "MB": 1024**2}
SHIPPED = {"okd/number of routes"}


ROWS = {f"{row['source']}/{row['parameter']}": row for row in publications.texts("parameters")}
"""STUDY/PARAMETER → row of parameters.csv."""
REALISED = [(parameter, name) for name in knob_names() for parameter in load_knob(name).parameters]
REASONS = {f"{key}/{name}": row.why for key in study_keys() for name, row in load_study(key).file.not_a_knob.items()}


def test_every_published_parameter_is_a_knob_or_has_a_reason_why_not() -> None:
    """And never both; a reason or a knob that names another parameter is refused."""
    knobs = {parameter for parameter, _ in REALISED}
    assert [row for row in ROWS if (row in knobs) == bool(REASONS.get(row))] == []
    assert sorted((knobs | REASONS.keys()) - ROWS.keys()) == []


def numbers(text: str) -> tuple[int, ...]:
    """What a value begins with: `15s (example)` → 15, `8 MB` → 8388608, `1024 65000` → both, `auto` → nothing."""
    found = re.match(r"(\d+(?: \d+)*) ?(k|MB)?(?![\w.])|(\d+)s\b", text)
    if found is None:
        return ()
    return tuple(int(number) * UNITS[found[2]] for number in (found[1] or found[3]).split())


@pytest.mark.parametrize("row", sorted({parameter for parameter, _ in REALISED}))
def test_a_published_number_is_what_a_knob_reads_back(row: str) -> None:
    """Or what its study's variants have from the start."""
    knobs = [load_knob(knob) for parameter, knob in REALISED if parameter == row]
    read = [numbers(check.value) for knob in knobs for check in knob.readback]
    for column in ("recommended_value", "value_used_in_test"):
        wanted = numbers(ROWS[row][column])
        assert not wanted or wanted in read or row in SHIPPED, f"{column} {wanted}, read back {read}"


def test_the_number_of_routes_that_okd_published_is_the_shipped_one() -> None:
    kinds = [item["kind"] for item in load_variant("okd").manifests]
    assert (kinds.count("Route"),) == numbers(ROWS["okd/number of routes"]["value_used_in_test"])


def test_a_knob_of_a_study_says_which_of_its_parameters_it_realises() -> None:
    """Its own study's, or several; a knob of no published parameter names its study by nothing but its words."""
    for knob in map(load_knob, knob_names()):
        assert not knob.parameters or knob.study in {row.partition("/")[0] for row in knob.parameters}, knob.name
