"""Parameters, sweeps and knobs on several targets: a cell each, only what was shown called so; a knob for each parameter or why it is none; known
costs side by side, what of `local` is called the same elsewhere, and why a knob does something else there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Literal

import pytest

from lab.analysis import evidence
from lab.analysis.evidence import Evidence
from lab.analysis.judge.effects import EffectCost
from lab.model.plan import Shape
from lab.model.variants.knobs import knob_names, load_knob
from lab.model.variants.variants import load_variant
from lab.records import published, trials
from lab.records import published as publications
from lab.records.store import RunStore
from lab.records.trials import TargetTrial, TrialResult
from lab.report.markdown import render_markdown
from lab.studies import matrix
from lab.studies.carrying import (
    TargetEffect,
    TransferLine,
    explain_differences,
    list_transfers,
    list_undecided,
    page,
    write_sentences,
)
from lab.studies.study_files import list_studies, load_study
from lab.targets import TARGETS
from lab.tests.support.factories import make_plan, make_point
from lab.tests.support.made_runs import evidence_of, made, made_record

ROOT = Path(__file__).parents[3]


@pytest.fixture
def told_trials(monkeypatch: pytest.MonkeyPatch) -> dict[str, TargetTrial]:
    """No committed run; trials as the test says."""
    told: dict[str, TargetTrial] = {}
    monkeypatch.setattr(matrix, "read_runs", lambda: ())
    monkeypatch.setattr(trials, "read_trials", lambda: told)
    return told


def trial(variants: dict[str, TrialResult], sweeps: dict[str, TrialResult]) -> TargetTrial:
    return TargetTrial(
        target="local", tried_at="2026-01-01", git_commit=None, facts={}, variants=variants, sweeps=sweeps
    )


def cell_of(parameter: str, target: str = "local") -> matrix.MatrixCell:
    study, _, name = parameter.partition("/")
    return matrix.make_parameter_line(study, name, load_study(study)).cells[target]


def test_a_trial_says_that_it_works_or_why_not(told_trials: dict[str, TargetTrial]) -> None:
    few = TrialResult(outcome="not measurable", detail="cores: 1")
    told_trials["local"] = trial({"ingress-nginx+use-gzip": TrialResult(outcome="holds"), "qinng": few}, {})
    assert cell_of("digitalocean/use-gzip").kind == "works"
    assert cell_of("qinng/max-worker-open-files") == matrix.MatrixCell(
        "not possible", "cores: 1", "data/trials/local.json"
    )
    assert cell_of("digitalocean/use-gzip", "kind").kind == "not shown"
    told_trials["local"] = trial({}, {})
    assert cell_of("digitalocean/use-gzip") == matrix.MatrixCell("not shown"), "nothing has shown it"
    told_trials["local"] = trial({"ingress-nginx+use-gzip": TrialResult(outcome="FAILED", detail="no answer")}, {})
    assert cell_of("digitalocean/use-gzip") == matrix.MatrixCell("not shown", "no answer", "data/trials/local.json")
    told_trials["local"] = trial({}, {"nds": TrialResult(outcome="accepted", detail="on ingress-nginx")})
    assert matrix.find_cell_of_sweep("local", ["nds"], None).kind == "accepted"
    assert matrix.find_cell_of_sweep("local", ["okd"], None).kind == "not shown"


def test_a_run_counts_where_it_has_samples_that_count(
    told_trials: dict[str, TargetTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        matrix.CommittedRun("few", "local", "slow-link", {"ingress-nginx+use-gzip": 1}),
        matrix.CommittedRun("many", "local", "slow-link", {"proxy-body-size-128m+use-gzip": 9}),
        matrix.CommittedRun("none", "kind", "slow-link", {}),
    ]
    monkeypatch.setattr(matrix, "read_runs", lambda: tuple(runs))
    matrix.list_shown_variants.cache_clear()
    try:
        assert cell_of("digitalocean/use-gzip") == matrix.MatrixCell(
            "measured", "many and 1 more", "data/reference/many"
        )
        assert cell_of("digitalocean/use-gzip", "kind").kind == "not shown"
    finally:
        matrix.list_shown_variants.cache_clear()


@pytest.mark.committed
def test_no_cell_is_empty_and_every_link_leads_somewhere() -> None:
    found = matrix.make_matrix()
    assert [(line.study, line.name) for line in found[0]] == [
        (row["source"], row["parameter"]) for row in published.read_texts("parameters")
    ]
    for line in (line for lines in found for line in lines):
        assert set(line.cells) == set(TARGETS), line
        for target, cell in line.cells.items():
            assert not cell.where or (ROOT / cell.where).exists(), cell
            assert cell.said or cell.kind == "not shown", cell
            if cell.kind == "measured":
                assert RunStore.open(str(ROOT / cell.where)).record.target == target
    table = render_markdown(matrix.page())
    assert "|  |" not in table.replace("|  | |", "")


UNITS = {None: 1, "k": 1024, "MB": 1024**2}
SHIPPED = {"okd/number of routes"}


ROWS = {f"{row['source']}/{row['parameter']}": row for row in publications.read_texts("parameters")}
"""STUDY/PARAMETER → row of parameters.csv."""
REALISED = [(parameter, name) for name in knob_names() for parameter in load_knob(name).parameters]
REASONS = {f"{key}/{name}": row.why for key in list_studies() for name, row in load_study(key).not_a_knob.items()}


def test_every_published_load_and_parameter_is_realised_or_has_a_reason_why_not() -> None:
    """And never both; a reason or a knob that names another parameter is refused."""
    knobs = {parameter for parameter, _ in REALISED}
    assert [row for row in ROWS if (row in knobs) == bool(REASONS.get(row))] == []
    assert sorted((knobs | REASONS.keys()) - ROWS.keys()) == []
    rows = [(row["source"], row["sweep_id"]) for row in published.read_texts("sweeps")]
    assert sorted((key, name) for key in list_studies() for name in load_study(key).published_loads) == sorted(rows)
    kinds = [item["kind"] for item in load_variant("okd").manifests]
    assert (kinds.count("Route"),) == numbers(ROWS["okd/number of routes"]["value_used_in_test"])


def numbers(text: str) -> tuple[int, ...]:
    """What a value begins with: `15s (example)` → 15, `8 MB` → 8388608, `1024 65000` → both, `auto` → nothing."""
    found = re.match(r"(\d+(?: \d+)*) ?(k|MB)?(?![\w.])|(\d+)s\b", text)
    if found is None:
        return ()
    return tuple(int(number) * UNITS[found[2]] for number in (found[1] or found[3]).split())


@pytest.mark.parametrize("row", sorted({parameter for parameter, _ in REALISED}))
def test_a_published_number_is_what_a_knob_reads_back(row: str) -> None:
    knobs = [load_knob(knob) for parameter, knob in REALISED if parameter == row]
    read = [numbers(check.value) for knob in knobs for check in knob.readback]
    for column in ("recommended_value", "value_used_in_test"):
        wanted = numbers(ROWS[row][column])
        assert not wanted or wanted in read or row in SHIPPED, f"{column} {wanted}, read back {read}"


CEILING = make_point("ceiling", generator="wrk", rate_rps=None)
KNOB = ("keepalive", "baseline")


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three targets, of which the matrix knows nothing."""
    monkeypatch.setattr(matrix, "list_targets", lambda: ["local", "apiserver", "kind"])
    monkeypatch.setattr(
        matrix, "find_cell_of_variants", lambda target, variants: matrix.MatrixCell("not possible", f"no {target}")
    )


def run_of(
    target: str,
    effects: Mapping[str, float],
    name: str = "run",
    blocks: int = 6,
    pairs: int | None = None,
    shared: bool = False,
    knob: tuple[str, str] = KNOB,
) -> Evidence:
    """25 µs a request times each variant's factor. `pairs`: blocks in which the knob is a pair with its baseline, None: all, 0: none is."""
    shape = Shape({knob[0]: blocks if pairs is None else pairs}, frozenset({"ceiling"}))
    planned = make_plan([knob], [CEILING], blocks=blocks, reference=None, shape=None if pairs == 0 else shape)
    variants = made_record(name, planned).variants
    told = {key: each.model_copy(update={"shared_cost": shared and key == knob[0]}) for key, each in variants.items()}
    store = made(name, effects=effects, planned=planned, noise=0.001, target=target, variants=told)
    return evidence_of(store, name)


@pytest.mark.usefixtures("places")
def test_seconds_and_share_are_those_of_a_pair_with_an_interval_at_the_level_of_the_baseline_alone() -> None:
    """25 µs less a fifth on one, 50 µs less a tenth on the other: the same time, and another share."""
    here_run = run_of("local", {"keepalive": 0.8}, "here")
    (found,) = list_transfers([here_run, run_of("apiserver", {"baseline": 2.0, "keepalive": 1.8})])
    here, there = found.shown["local"], found.shown["apiserver"]
    assert here.run == "here" and here.pairs == 6
    assert [here.cost.seconds[0], there.cost.seconds[0]] == pytest.approx([-5e-6, -5e-6], rel=0.02)
    assert [here.cost.level_s, there.cost.level_s] == pytest.approx([25e-6, 50e-6], rel=0.01)
    assert all(low < value < high for value, low, high in (here.cost.seconds, there.cost.seconds))
    assert (found.seconds("apiserver"), found.shares("apiserver")) == ("same", "other")
    assert found.why == {"kind": "no kind"}
    text = render_markdown(page(list_transfers([here_run, run_of("apiserver", {"keepalive": 0.8})])))
    row = next(line for line in text.splitlines() if line.startswith("| keepalive"))
    assert "| baseline | ceiling: 100 connections, closed loop, 1kB.bin | in the proxy's process |" in row
    assert "[−5.0 µs [−5." in row and "of 25; −20.0 % [−20." in row and "](data/reference/here) |" in row
    assert row.endswith("| – no kind |")
    here = run_of("local", {"keepalive": 0.8})
    assert list_transfers([here, run_of("apiserver", {"keepalive": 0.8}, pairs=0)]) == []
    assert list_transfers([here, run_of("apiserver", {"keepalive": 0.8}, blocks=5)]) == []
    system = run_of("apiserver", {"keepalive": 0.8})
    plain = {key: each.model_copy(update={"own_knobs": ()}) for key, each in system.run.record.variants.items()}
    system.run.record = system.run.record.model_copy(update={"variants": plain})
    assert list_transfers([here, system]) == [], "another system, and no knob"


@pytest.mark.usefixtures("places")
def test_the_sentence_is_counted_for_each_kind_of_cost_and_target() -> None:
    """Two whose time is the same and whose share is not; one in what a pair shares, of which the arms alone lead."""
    names = [("keepalive", "baseline"), ("backlog", "baseline")]
    runs = [run_of("local", {name: 0.8}, f"{name}-here", knob=(name, base)) for name, base in names]
    runs += [run_of("apiserver", {"baseline": 2.0, name: 1.8}, name, knob=(name, base)) for name, base in names]
    runs += [run_of(each, {"gzip": 1.5}, each, knob=("gzip", "baseline"), shared=True) for each in ("local", "kind")]
    lines = list_transfers(runs)
    kinds = [("backlog", "process"), ("gzip", "shared"), ("keepalive", "process")]
    assert [(line.variant, line.kind) for line in lines] == kinds
    process, shared = write_sentences(lines)
    assert process == (
        "apiserver: of 2 knobs whose cost can lie in the proxy's process local's time is that there for 2; its share is another for 2:"
        " local's µs predict apiserver better."
    )
    assert shared == (
        "kind: of 1 knob whose cost can lie also in what a pair shares local's time is that there for 1; its share is that there for 1:"
        " which of the two predicts kind is inconclusive."
    )


def shown(level_us: float, change: float, half: float, pairs: int = 9) -> TargetEffect:
    """Return an effect: a share of what a request costs, with half the width of its interval as a log-ratio."""
    value = log(1 + change)
    return TargetEffect("run", pairs, EffectCost(level_us * 1e-6, (value, value - half, value + half)), doubt=0.0)


def line(
    variant: str, local: TargetEffect, kind: TargetEffect, cost: Literal["process", "shared"] = "process"
) -> TransferLine:
    return TransferLine(variant, "baseline", cost, CEILING, {"local": local, "kind": kind}, {})


@pytest.mark.committed
def test_the_committed_runs_explain_the_logs_pipe_and_say_what_would_decide_the_open_ones() -> None:
    """In shares: the pipe and the log itself, each measured by a step of its own; whether they fit is the runs' to say."""
    runs = evidence.load_references()[0]
    lines = list_transfers(runs)
    found = {each.variant: each for each in explain_differences(lines, runs, "kind")}
    log_off = found["ingress-nginx+access-log-off"]
    assert log_off.share and log_off.predicted is not None
    value, low, high = log_off.predicted
    assert low < value < high < 0
    undecided = list(list_undecided(lines, "kind"))
    assert found.keys().isdisjoint(variant for variant, *_ in undecided)
    assert all(blocks is None or blocks > measured for _, measured, blocks, _ in undecided)


def test_known_work_tells_what_time_is_worth_there_and_twice_the_interval_takes_four_times_the_blocks() -> None:
    """Twice as dear on kind; a knob that is twice as dear, too, is explained, one that is four times as dear is not."""
    work = line("ingress-nginx+extra-work-80", shown(20, 1.0, 0.01), shown(100, 0.4, 0.01))
    alike = line("gzip", shown(20, 0.5, 0.01), shown(100, 0.2, 0.01))
    dearer = line("tls", shown(20, 0.5, 0.01), shown(100, 0.4, 0.01))
    found = {each.variant: each.fits for each in explain_differences([work, alike, dearer], [], "kind")}
    assert found == {"ingress-nginx+extra-work-80": False, "gzip": True, "tls": False}
    narrow = line("a", shown(20, 0.10, 0.001), shown(100, 0.05, 0.04))
    wide = line("b", shown(20, 0.10, 0.001), shown(100, 0.05, 0.08))
    one, four = (blocks for _, _, blocks, _ in list_undecided([narrow, wide], "kind"))
    assert one is not None and four is not None and 3.7 < four / one < 4.3


def test_where_locals_interval_is_too_wide_the_blocks_on_both_or_the_baselines_cost_are_named() -> None:
    by_pairs = line("a", shown(20, 0.10, 0.1), shown(100, 0.05, 0.04))
    by_baseline = line("b", replace(shown(20, 0.10, 0.001), doubt=0.95, run="known-costs"), shown(100, 0.05, 0.04))
    (_, _, none, both), (*_, baseline) = list_undecided([by_pairs, by_baseline], "kind")
    assert none is None and re.fullmatch(r"\d+, and \d+ on local \(now 9\)", both)
    assert baseline.endswith("µs is needed (known-costs knows the baseline's cost to ± 95 %)"), baseline


def test_an_unexplained_difference_names_what_comes_once_for_each_connection() -> None:
    """64 handshakes in a short sample are a part of each request's cost; the page counts what is explained."""
    work = line("ingress-nginx+extra-work-80", shown(20, 1.0, 0.01), shown(100, 0.4, 0.01))
    local, kind = replace(shown(20, 0.5, 0.01), requests=1127.4), replace(shown(100, 0.4, 0.01), requests=48.0)
    (_, tls) = explain_differences([work, line("tls", local, kind)], [], "kind")
    assert tls.by.endswith(
        "the handshake of each connection, which comes once in 48 requests there, and once in 1,127 on local"
    )
    elsewhere: dict[str, str] = {target: "not measured there" for target in TARGETS if target not in ("local", "kind")}
    lines = [replace(each, why=elsewhere) for each in (work, line("tls", local, kind))]
    text = render_markdown(page(lines, [evidence_of(made())]))
    assert "kind: of 2 other effects by the ladder's steps, or else by the known work: 2 not explained." in text
