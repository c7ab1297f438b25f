"""What a target carries for two sides at once, before a plan is fixed: the rate stays, is lowered, or the arms are measured one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.base.errors import MeasuringError
from lab.experiments.bench import Prepared, Request, prepare
from lab.experiments.bench.probing import TrialOf, Trials, pair_trials, trial_of_samples
from lab.generators.k6 import Out
from lab.measure.measurement import ChosenGenerator
from lab.model.endpoint import Role
from lab.model.pairs import SIDES
from lab.model.run import ProbeTrial, RunRecord
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.targets.base import Target
from lab.tests.support.factories import make_point, make_sample
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget
from lab.tests.support.fakes import variant as fake_variant
from lab.tests.support.golden import print_planned
from lab.tests.support.sweep_texts import RATE, TINY, write_sweep


@pytest.fixture(autouse=True)
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return write_sweep(tmp_path, monkeypatch, TINY + RATE)


def carries(most_rps: float, tried: list[float] | None = None) -> Trials:
    @contextmanager
    def trials(target: Target, variant: Variant, out: Out | None) -> Iterator[TrialOf]:
        assert variant.name == "ingress-nginx" and out is None

        def trial(point: Point) -> ProbeTrial:
            rate = point.rate_rps or 0.0
            (tried if tried is not None else []).append(rate)
            why = "" if rate <= most_rps else "412 requests dropped"
            least = min(rate, most_rps)
            return ProbeTrial(
                rate_rps=rate, achieved_rps=least, dropped=0, generator_core=0.5, carried=not why, why=why
            )

        yield trial

    return trials


def prepared(sweep: str, trials: Trials | None, target: FakeTarget | None = None) -> Prepared:
    return prepare(Request(("keepalive",), sweep, seed=1), target or FakeTarget(sides=SIDES), (), trials)


def pairs_at(made: Prepared, name: str) -> int:
    return sum(slot.against is not None for slot in made.plan.slots if slot.point.name == name)


def test_a_rate_that_is_carried_stays_and_nothing_else_is_tried(sweep: str) -> None:
    made = prepared(sweep, carries(1000, tried := []))
    assert tried == [1000] and [point.rate_rps for point in made.plan.points] == [None, 1000]
    (probe,) = made.record.probes
    assert (probe.decided, probe.carried_rps) == ("as-asked", 1000) and pairs_at(made, "rate-1000") >= 6
    assert "rate-1000: 1,000 req/s on two sides at once are carried" in print_planned(made, 300)


def test_a_rate_that_is_not_carried_is_lowered_and_the_plan_says_so(sweep: str) -> None:
    made = prepared(sweep, carries(300, tried := []))
    assert tried == [1000, 220], "three quarters of what was achieved"
    assert [(point.name, point.rate_rps) for point in made.plan.points] == [("ceiling", None), ("rate-220", 220)]
    assert pairs_at(made, "rate-220") >= 6 and set(made.record.generators) == {"ceiling", "rate-220"}
    assert "not carried (412 requests dropped): pairs at 220 req/s" in print_planned(made, 300)
    stored = RunRecord.model_validate_json(made.record.model_dump_json())
    assert [trial.carried for trial in stored.probes[0].trials] == [False, True]


def test_where_no_rate_is_carried_arms_are_measured_one_after_the_other(sweep: str) -> None:
    """At the lowest rate that was tried: half of what the pair would have been is the least that there is."""
    made = prepared(sweep, carries(10, tried := []))
    assert tried == [1000, 100] and pairs_at(made, "rate-100") == 0 and pairs_at(made, "ceiling") >= 6
    assert [slot for slot in made.plan.slots if slot.point.name == "rate-100"]
    assert "arms are measured one after the other, at that rate" in print_planned(made, 300)
    assert "no pair can bear it: two sides at once are more than this target carries (probe)" in print_planned(
        made, 300
    )


class Pinned(FakeTarget):
    def cpus(self) -> Mapping[Role, frozenset[int]]:
        return {"proxy": frozenset({0}), "generator": frozenset({1}), "backend": frozenset({1})}


def nobody(target: Target, variant: Variant, out: Out | None) -> None:
    raise AssertionError("nothing is to be tried")


@pytest.mark.parametrize(
    "target", [Pinned(sides=SIDES), FakeTarget(), FakeTarget(sides=SIDES, alone={"ingress-nginx": "x"})]
)
def test_what_is_certain_beforehand_or_never_paired_is_not_probed(sweep: str, target: FakeTarget) -> None:
    made = prepared(sweep, nobody, target)  # type: ignore[arg-type]
    assert made.record.probes == () and made.to_probe == ()


def test_what_a_recent_run_found_out_under_the_same_facts_is_not_tried_again(sweep: str) -> None:
    first = prepared(sweep, carries(300))
    with RunStore.create(first.record, {}).locked():
        pass
    again = prepared(sweep, carries(300, tried := []))
    assert tried == [] and again.record.probes[0].from_run == first.record.id
    assert f"as {first.record.id} found" in print_planned(again, 300) and pairs_at(again, "rate-220") >= 6
    elsewhere = FakeTarget(name="other", sides=SIDES)
    prepared(sweep, carries(300, tried), elsewhere)
    assert tried == [1000, 220], "another target"


def test_a_probe_that_cannot_be_made_leaves_the_load_as_it_was_and_says_why(sweep: str) -> None:
    @contextmanager
    def failing(target: Target, variant: Variant, out: Out | None) -> Iterator[TrialOf]:
        raise MeasuringError("ingress-nginx", "did not come up", "nothing was logged")
        yield  # pyright: ignore[reportUnreachable]

    made = prepared(sweep, failing)
    assert made.record.probes[0].decided == "as-asked" and made.record.probes[0].trials == ()
    assert "the probe could not be made (did not come up)" in print_planned(made, 300)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"achieved_rps": 985.0}, "985 req/s on a side"),
        ({"dropped": 3}, "6 requests dropped"),
        ({"generator_core": 0.85}, "generator 85% busy"),
        ({"achieved_rps": None, "detail": "it crashed"}, "nothing was measured: it crashed"),
    ],
)
def test_a_load_is_carried_where_both_sides_have_their_rate(changes: dict[str, object], why: str) -> None:
    own = {"achieved_rps": 1000.0, "dropped": 0, "generator_core": 0.5, **changes}
    sides = [make_sample().model_copy(update=own) for _ in SIDES]
    found = trial_of_samples(1000.0, sides)
    assert (found.carried, found.why) == (not why, why)


def test_two_are_brought_up_and_loaded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'print(\'{"requests": 700, "duration_s": 1.0, "bytes": 770000, "errors": {}, "dropped": 300}\')'
    chosen = ChosenGenerator(FakeGenerator(script), FakeGenerator().binary, "1", None)
    monkeypatch.setattr("lab.experiments.bench.probing.choose", lambda *_: chosen)
    target = FakeTarget(sides=SIDES, system=FakeSystem())
    with pair_trials(print, target, fake_variant("ingress-nginx"), None) as trial_of:
        found = trial_of(make_point(duration_s=1.0, warmup_s=0.0))
    assert target.ups == ["ingress-nginx", "ingress-nginx"] and target.ups_at == list(SIDES)
    assert not found.carried and found.dropped == 600 and "600 requests dropped" in found.why
