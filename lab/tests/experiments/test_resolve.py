"""What a plan finds out beforehand: how many blocks `--resolve 5%` takes by an earlier run's noise, and what a target carries for two sides at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.analysis import levels
from lab.analysis.noise import Noise
from lab.analysis.past import find_past_runs
from lab.analysis.summary import summarise_run
from lab.base.errors import MeasuringError, UsageError
from lab.experiments.bench import BenchRequest, PreparedRun, prepare
from lab.experiments.bench.probing import ProbeTrials, TrialOf, bring_up_pair, judge_trial
from lab.experiments.bench.request import Resolve, parse_resolve
from lab.generators.k6 import Out
from lab.measure.measurement import ChosenGenerator
from lab.model.endpoint import Role
from lab.model.pairs import SIDES
from lab.model.plan import Slot
from lab.model.run import ProbeTrial, RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.model.usage import USAGE_SCHEMA
from lab.model.variants.variants import Variant
from lab.records.levels import SystemComponents
from lab.records.store import RunStore
from lab.stats import power
from lab.targets.base import Target
from lab.tests.support.factories import alter, make_point, make_run, make_sample
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget
from lab.tests.support.fakes import variant as fake_variant
from lab.tests.support.golden import print_planned
from lab.tests.support.sweep_texts import RATE, TINY, write_sweep

LOG_OFF = "ingress-nginx+access-log-off"


@pytest.fixture(autouse=True)
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return write_sweep(tmp_path, monkeypatch, TINY + RATE)


def measured(made: PreparedRun, **how: Any) -> RunStore:
    run = RunStore.create(made.record, {name: variant.manifests for name, variant in made.variants.items()})
    samples, histograms = make_run(made.plan, **how)
    for sample in samples:
        run.write_sample(sample, "", {"latency": histograms[sample.id]}, pl.DataFrame(schema=USAGE_SCHEMA))
    return run


def self_compared(sweep: str, variant: str = "ingress-nginx", nulls: int = 1, **how: Any) -> RunStore:
    request = BenchRequest((variant,), sweep, blocks=10, seed=1, label=f"{variant}-aa", nulls=nulls)
    return measured(prepare(request, FakeTarget(), ()), **how)


def resolved(sweep: str, wanted: str, *variants: str) -> PreparedRun:
    return prepare(BenchRequest(variants or (LOG_OFF,), sweep, seed=1, resolve=parse_resolve(wanted)), FakeTarget(), ())


def noise_in(made: PreparedRun) -> dict[tuple[str, str], Noise]:
    assert made.design.planned_for is not None
    pasts = {past.id: past for past in find_past_runs(made.record)}
    past = pasts[made.design.planned_for.from_run]
    return {(noise.metric, noise.point): noise for noise in past.noises if not noise.why}


def test_a_percentage_and_a_metric() -> None:
    """And it can be said again, for the process inside the target; what is no percentage is refused."""
    said = {"5%": (0.05, None), "2": (0.02, None), " 2.5 %,rate": (0.025, "rate"), ".5%": (0.005, None), "100%,p99.9": (1, "p99.9")}  # fmt: skip
    for text, (effect, metric) in said.items():
        assert parse_resolve(text) == parse_resolve(str(Resolve(effect, metric))) == Resolve(effect, metric)
    for text in ("0.05", ".5", "%", "", "-5%", "5%%", "5%,", "five%", "1e2%", "nan%", "5%;rate"):
        with pytest.raises(UsageError, match="expected a percentage"):
            parse_resolve(text)


@pytest.mark.parametrize("at_most", [0.0001, None])
def test_a_system_whose_levels_are_committed_needs_no_earlier_run_and_is_measured_on_generations(
    sweep: str, monkeypatch: pytest.MonkeyPatch, at_most: float | None
) -> None:
    """Bring-ups enough that what counts, generations or they themselves, finds the effect; and what was promised is what was asked for."""
    own = SystemComponents(
        run="r", target="fake", variant="ingress-nginx", point="ceiling", scheme="slices", load_s=1.0,
        repeat=0.01, generation=0.05, bring_up=0.0, bring_ups=8, generations=6,
    )  # fmt: skip
    bound = own.model_copy(update={"repeat": None, "bring_ups": 30, "generations": 24, "bring_up_at_most": at_most})
    monkeypatch.setattr(levels, "read_components", lambda: (own, bound))
    request = BenchRequest((LOG_OFF,), sweep, seed=1, resolve=Resolve(0.02))
    made = prepare(request, FakeTarget(sides=SIDES), ())
    ceiling, rate = made.record.points
    assert ceiling.generations > 1 and rate.generations == 1 and ceiling.singly is (at_most is not None)
    planned, promised = made.design.planned_for, {one.point: one.effect for one in made.design.promised}
    assert planned is not None and planned.from_run == "data/pairs and data/levels"
    assert max(promised.values()) <= 0.02 and ceiling.counting(made.record.blocks) >= made.record.blocks >= 6
    mine = [slot for slot in made.plan.slots if slot.arm.name == LOG_OFF and slot.layout is not None]
    of_rate = len({slot.block for slot in mine if slot.point == rate})
    assert 6 <= of_rate <= made.record.blocks
    assert (of_rate < made.record.blocks) is (at_most is None), "no more than it needs itself"
    assert (f"pairs in {of_rate} of the {made.record.blocks} blocks" in print_planned(made)) is (at_most is None)
    with pytest.raises(UsageError, match="not known: no earlier run"):
        prepare(request, FakeTarget(), ())


def test_the_primary_metric_decides_at_the_point_that_wants_the_most(sweep: str) -> None:
    past = self_compared(sweep, noise=0.03)
    made = resolved(sweep, "5%")
    planned = made.design.planned_for
    assert planned is not None and planned.from_run == past.record.id
    assert (planned.effect, planned.power, planned.metric, planned.asked) == (0.05, 0.9, "cpu_per_request", None)
    known = noise_in(made)
    counts = {
        point: power.count_blocks_for_effect(
            known["cpu_per_request", point].sd or 0, known["cpu_per_request", point].pilot_blocks, 0.05, 0.05 / 2
        )  # two primary effects: Holm's first step
        for point in ("ceiling", "rate-1000")
    }
    assert made.record.blocks == made.plan.blocks == max(filter(None, counts.values())) > 6
    assert counts[planned.point] == made.record.blocks
    assert made.design.promised_by == f"from the A/A run {past.record.id}"
    promised = {(one.metric, one.point): one.effect for one in made.design.promised}
    assert set(promised) == {("cpu_per_request", "ceiling"), ("cpu_per_request", "rate-1000")}
    assert max(promised.values()) <= 0.05 < 1.2 * max(promised.values())


def test_the_metric_that_blocks_were_planned_for_is_the_one_that_claims(sweep: str) -> None:
    self_compared(sweep)
    run = measured(resolved(sweep, "9%,rate"), effects={LOG_OFF: 1.3})
    summary = summarise_run(run.record, run.samples(), run.histogram)
    (row,) = (row for row in summary.rows if (row.arm.name, row.point.name) == (LOG_OFF, "ceiling"))
    assert [(effect.metric, effect.claimed) for effect in row.shown] == [("rate", True)]


def five_blocks(slot: Slot, sample: Sample) -> Sample | None:
    return sample if slot.block <= 5 else None


LIMITED = alter(lambda slot: slot.point.rate_rps is None, lambda _: {"limited_by": "generator"})


@pytest.mark.parametrize(
    ("earlier", "asked", "variant", "says"),
    [
        ({"change": five_blocks}, "5%", LOG_OFF, "6 valid blocks"),
        ({"noise": 0.5}, "2%", LOG_OFF, "not even 1000 blocks resolve 2 % in CPU per request at .*\n.*they resolve"),
        (
            {"change": LIMITED},
            "5%,rate",
            LOG_OFF,
            "rate was not judged .*at ceiling: generator-limited.*\n.*cpu_per_request",
        ),
        ({}, "5%", "ingress-nginx", "name one: --resolve 5%,cpu_per_request"),
        ({}, "5%", "ingress-nginx+grace-period-30", "primary metric of ingress-nginx.grace-period-30 is cut"),
    ],
)
def test_what_an_earlier_run_cannot_promise_is_refused_with_the_reason(
    sweep: str, earlier: dict[str, Any], asked: str, variant: str, says: str
) -> None:
    self_compared(sweep, **earlier)
    with pytest.raises(UsageError, match=says):
        resolved(sweep, asked, variant)


def carries(most_rps: float, tried: list[float] | None = None) -> ProbeTrials:
    @contextmanager
    def trials(target: Target, variant: Variant, out: Out | None) -> Iterator[TrialOf]:
        assert variant.name == "ingress-nginx" and out is None

        def trial(point: LoadPoint) -> ProbeTrial:
            rate = point.rate_rps or 0.0
            (tried if tried is not None else []).append(rate)
            why = "" if rate <= most_rps else "412 requests dropped"
            least = min(rate, most_rps)
            return ProbeTrial(
                rate_rps=rate, achieved_rps=least, dropped=0, generator_core=0.5, carried=not why, why=why
            )

        yield trial

    return trials


def prepared(sweep: str, trials: ProbeTrials | None, target: FakeTarget | None = None) -> PreparedRun:
    return prepare(BenchRequest(("keepalive",), sweep, seed=1), target or FakeTarget(sides=SIDES), (), trials)


def pairs_at(made: PreparedRun, name: str) -> int:
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
    assert "measured without pairs: two sides at once are more than this target carries (probe)" in print_planned(
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
    found = judge_trial(1000.0, sides)
    assert (found.carried, found.why) == (not why, why)


def test_two_are_brought_up_and_loaded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'print(\'{"requests": 700, "duration_s": 1.0, "bytes": 770000, "errors": {}, "dropped": 300}\')'
    chosen = ChosenGenerator(FakeGenerator(script), FakeGenerator().binary, "1", None)
    monkeypatch.setattr("lab.experiments.bench.probing.choose_generator", lambda *_: chosen)
    target = FakeTarget(sides=SIDES, system=FakeSystem())
    with bring_up_pair(print, target, fake_variant("ingress-nginx"), None) as trial_of:
        found = trial_of(make_point(duration_s=1.0, warmup_s=0.0))
    assert target.ups == ["ingress-nginx", "ingress-nginx"] and target.ups_at == list(SIDES)
    assert not found.carried and found.dropped == 600 and "600 requests dropped" in found.why
