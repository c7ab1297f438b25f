"""Knobs on several targets side by side: known costs in made-up runs, and what of `local` is called the same elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.analysis.aggregate.cells import counted_alone
from lab.analysis.evidence import Evidence
from lab.model.plan import Shape
from lab.report.markdown import markdown
from lab.studies import matrix
from lab.studies.carrying import Carried, carried, page, predicted, sentence
from lab.tests.support.factories import make_plan, make_point
from lab.tests.support.made_runs import made, made_record

CEILING, RATE = make_point("ceiling", generator="wrk", rate_rps=None), make_point()
KNOB = ("keepalive", "baseline")


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three targets, of which the matrix knows nothing."""
    monkeypatch.setattr(matrix, "places", lambda: ["local", "apiserver", "kind"])
    monkeypatch.setattr(matrix, "of_variants", lambda target, variants: matrix.Cell("not possible", f"no {target}"))


def run_of(
    target: str,
    effects: Mapping[str, float],
    name: str = "run",
    blocks: int = 6,
    pairs: int | None = None,
    shared: bool = False,
    noise: float = 0.001,
    points: tuple[str, ...] = ("ceiling",),
    knob: tuple[str, str] = KNOB,
    duration_s: float = 5.0,
) -> Evidence:
    """25 µs a request times each variant's factor. `pairs`: blocks in which the knob is a pair with its baseline, None: all, 0: none is."""
    asked = (point.model_copy(update={"duration_s": duration_s}) for point in (CEILING, RATE))
    loads = [point for point in asked if point.name in points]
    shape = Shape({knob[0]: blocks if pairs is None else pairs}, frozenset(points))
    planned = make_plan([knob], loads, blocks=blocks, reference=None, shape=None if pairs == 0 else shape)
    variants = made_record(name, planned).variants
    told = {key: each.model_copy(update={"shared_cost": shared and key == knob[0]}) for key, each in variants.items()}
    store = made(name, effects=effects, planned=planned, noise=noise, target=target, variants=told)
    samples = tuple(store.samples())
    return Evidence(name, store, samples, counted_alone(samples))


def one(*runs: Evidence) -> Carried:
    (found,) = carried(runs)
    return found


def test_seconds_and_share_are_those_of_the_pair_at_the_level_of_the_baseline_alone() -> None:
    """25 µs less a fifth on one, 50 µs less a tenth on the other: the same time, and another share."""
    found = one(run_of("local", {"keepalive": 0.8}, "here"), run_of("apiserver", {"baseline": 2.0, "keepalive": 1.8}))
    here, there = found.shown["local"], found.shown["apiserver"]
    assert here.run == "here" and here.pairs == 6
    assert [here.cost.seconds[0], there.cost.seconds[0]] == pytest.approx([-5e-6, -5e-6], rel=0.02)
    assert [here.cost.level_s, there.cost.level_s] == pytest.approx([25e-6, 50e-6], rel=0.01)
    assert all(low < value < high for value, low, high in (here.cost.seconds, there.cost.seconds))
    assert (found.seconds("apiserver"), found.shares("apiserver")) == ("same", "other")
    assert found.why == {"kind": "no kind"}


def test_only_pairs_of_a_knob_with_its_own_baseline_count_and_only_with_an_interval() -> None:
    here = run_of("local", {"keepalive": 0.8})
    assert carried([here, run_of("apiserver", {"keepalive": 0.8}, pairs=0)]) == []
    assert carried([here, run_of("apiserver", {"keepalive": 0.8}, blocks=5)]) == []
    system = run_of("apiserver", {"keepalive": 0.8})
    plain = {key: each.model_copy(update={"own_knobs": ()}) for key, each in system.run.record.variants.items()}
    system.run.record = system.run.record.model_copy(update={"variants": plain})
    assert carried([here, system]) == [], "another system, and no knob"


def test_the_sentence_is_counted_for_each_kind_of_cost_and_target() -> None:
    """Two whose time is the same and whose share is not; one in what a pair shares, of which the arms alone lead."""
    names = [("keepalive", "baseline"), ("backlog", "baseline")]
    runs = [run_of("local", {name: 0.8}, f"{name}-here", knob=(name, base)) for name, base in names]
    runs += [run_of("apiserver", {"baseline": 2.0, name: 1.8}, name, knob=(name, base)) for name, base in names]
    runs += [run_of(each, {"gzip": 1.5}, each, knob=("gzip", "baseline"), shared=True) for each in ("local", "kind")]
    lines = carried(runs)
    assert [(line.variant, line.kind) for line in lines] == [
        ("backlog", "process"),
        ("gzip", "shared"),
        ("keepalive", "process"),
    ]
    process, shared = predicted(lines)
    assert (process.target, process.knobs, process.seconds, process.shares) == (
        "apiserver",
        2,
        {"same": 2},
        {"other": 2},
    )
    assert sentence(process) == (
        "apiserver: of 2 knobs whose cost can lie in the proxy's process local's time is that there for 2; its share is another for 2:"
        " local's µs predict apiserver better."
    )
    assert (shared.kind, shared.target, shared.seconds, shared.shares) == ("shared", "kind", {"same": 1}, {"same": 1})
    assert sentence(shared).endswith("which of the two predicts kind, this does not tell.")


def test_the_table_has_a_row_a_knob_and_a_reason_where_there_is_nothing() -> None:
    text = markdown(
        page(carried([run_of("local", {"keepalive": 0.8}, "here"), run_of("apiserver", {"keepalive": 0.8})]))
    )
    row = next(line for line in text.splitlines() if line.startswith("| keepalive"))
    assert "| baseline | ceiling: 100 connections, closed loop, 1kB.bin | in the proxy's process |" in row
    assert "[−5.0 µs [−5." in row and "of 25; −20.0 % [−20." in row and "](data/reference/here) |" in row
    assert row.endswith("| – no kind |")
