"""`selfbench`: that its accounts add up, and that its checks tell a kept promise from a broken one. Nothing here asserts a time."""

import math
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lab.__main__ import main
from lab.base.errors import MeasuringError
from lab.experiments.selfbench import effects, overhead
from lab.model.design import choose_shape
from lab.model.pairs import SIDES
from lab.model.plan import Slot, list_arms, plan_samples
from lab.model.samples import Reason, Sample
from lab.records.store import RunStore
from lab.records.sweep_files import load_sweep
from lab.report.tables.selfbench import known_costs_page as known_page
from lab.stats import power
from lab.tests.support.factories import made_invalid, make_plan, make_point, make_sample
from lab.tests.support.made_runs import MadeStore, made

# -- a whole run ---------------------------------------------------------------------------------------


def test_an_account_of_a_run_adds_up() -> None:
    """Wall time is bring-ups (once each), planned measuring and warm-up of every attempt, and the lab's own."""
    point = make_point(duration_s=10.0, warmup_s=0.5)
    first = make_sample(point=point, bring_up_s=2.0)
    second = make_sample(point=point, bring_up_s=2.0, order=2)
    again = made_invalid(make_sample(point=point, arm="baseline-again", bring_up_s=3.0), Reason.STEAL)
    never = made_invalid(make_sample(point=point, arm="x", bring_up_s=None), Reason.BRING_UP_FAILED, requests=None)
    assert overhead.split_wall_time([first, second, again, never], 40.0) == [
        "a whole run of 3 samples, 1 of them invalid, 40.0 s",
        "  bring-ups: 5.00 s, measuring: 30.0 s",
        "  the lab's own time: 667 ms per sample, 6.7% of measuring",
    ]
    with pytest.raises(MeasuringError, match="no sample was measured: "):
        overhead.split_wall_time([never], 40.0)


def test_the_overhead_is_what_selfbench_prints_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(overhead, "measure_overhead", lambda sweep: [f"of {sweep}"])
    assert [main(words) for words in (["selfbench"], ["selfbench", "overhead", "--sweep", "smoke"])] == [0, 0]
    assert capsys.readouterr().out == "of quick\nof smoke\n"


def test_what_takes_long_is_given_the_time_it_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def fake(argv: Sequence[str], timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        given.append(timeout)
        return subprocess.CompletedProcess(argv, 2, "", "no nginx")

    monkeypatch.setattr(subprocess, "run", fake)
    with pytest.raises(MeasuringError, match="selfbench: lab bench: exit status 2: no nginx"):
        overhead.measure_overhead("quick")
    assert 3 * (4 + 1.5 + 3 + 1.5) * 7 < given[0] < math.inf


def test_a_run_that_stopped_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    run = long_run({"extra-work-a": 1.2}, blocks=6)
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 1, "", "disk full"))
    monkeypatch.setattr(overhead, "run_names", lambda _: ["long"])
    monkeypatch.setattr(RunStore, "open", lambda _: run)
    assert overhead.measure_overhead("quick")[0].startswith("a whole run of ")
    run.take(one for one in run.samples() if one.block <= 2)
    with pytest.raises(MeasuringError, match=r"(?s): stopped with \d+ of its \d+ cells to go: .*disk full"):
        overhead.measure_overhead("quick")


def by_cpu(record: Any, **knobs: tuple[str, ...]) -> Any:
    variants = {
        name: one.model_copy(update={"primary_metric": "cpu_per_request", "knobs": knobs.get(name, one.knobs)})
        for name, one in record.variants.items()
    }
    return record.model_copy(update={"variants": variants})


# -- injected effects ----------------------------------------------------------------------------------

EXTRA = [("extra-work-a", "baseline"), ("extra-work-b", "baseline")]


def long_run(costs: Mapping[str, float], blocks: int = 40, **how: Any) -> MadeStore:
    planned = make_plan(EXTRA, [make_point("ceiling", rate_rps=None)], blocks=blocks)
    run = made("long", costs, planned, noise=0.02, **how)
    run.record = by_cpu(run.record)
    return run


def test_tens_of_a_run_are_runs_of_their_own() -> None:
    _, (large, none) = effects.read_effects(long_run({"extra-work-a": 1.2}))
    assert (large.variant, large.claimed, large.tens) == ("extra-work-a", 4, 4)
    assert large.estimate.ratio == pytest.approx(1.2, abs=0.02) and large.promised == pytest.approx(1, abs=0.01)
    assert none.claimed == 0 and none.tens == 4 and none.promised is not None and none.promised < 0.3
    assert "claimed in 4 of 4 tens, promised 100%" in effects.format_injected(large)


LINES = {"extra-work-few": 8, "extra-work-half": 40, "extra-work-most": 80}
COSTS = {"extra-work-few": 1.1, "extra-work-half": 1.5, "extra-work-most": 2.0}


def both_ways(costs: Mapping[str, float], shown: float = 1.0) -> MadeStore:
    """Variants of known work as pairs and alone; `shown`: what a pair has of what they truly add."""
    points = load_sweep(effects.SWEEP)[1].load_points
    arms = list_arms([(name, "baseline") for name in LINES], None)
    planned = plan_samples(arms, points, 40, 1, choose_shape(arms, points, 40, SIDES))

    def change(slot: Slot, one: Sample) -> Sample:
        true = costs.get(slot.arm.variant, 1.0)
        if not slot.other:
            return one
        factor = (1 + shown * (true - 1)) / true
        proxy = one.usage["proxy"]
        used = proxy.model_copy(update={"cpu_s": proxy.cpu_s * factor})
        return one.model_copy(update={"usage": {**one.usage, "proxy": used}})

    run = made("both-ways", costs, planned, noise=0.02, change=change)
    run.record = by_cpu(run.record, **{name: (f"extra-work-{lines}",) for name, lines in LINES.items()})
    return run


def test_what_pairs_show_of_known_costs_is_held_against_the_arms_alone() -> None:
    """80 lines double the cost, 8 add a tenth, alone and as a pair; the slope is 1, and each is known as well as its blocks tell."""
    known, _ = effects.read_effects(both_ways(COSTS))
    assert known is not None and known.slope is not None and known.slope.ratio_interval is not None
    few = known.costs[0]
    assert [one.lines for one in known.costs] == [8, 40, 80] and few.pair.n == 40
    assert all(one.agrees for one in known.costs) and known.whole
    assert few.pair.ratio == pytest.approx(1.1, abs=0.002) and few.doubt is not None and few.doubt < 0.2
    assert known.slope.ratio == pytest.approx(1, abs=0.02)
    assert known.slope.ratio_interval[0] < 1 < known.slope.ratio_interval[1]
    assert effects.find_faults(known) == effects.find_faults(None) == ""
    assert few.alone.sd is not None and f"{100 * few.alone.sd:.1f} %" in str(known_page(known)[0])


def test_a_pair_that_halves_a_cost_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = both_ways(COSTS, shown=0.5)
    known, _ = effects.read_effects(run)
    assert known is not None and known.slope is not None and known.slope.ratio == pytest.approx(0.5, abs=0.02)
    assert not known.whole and not any(one.agrees for one in known.costs)
    monkeypatch.setattr(RunStore, "open", lambda _: run)
    assert main(["selfbench", "effects", "both-ways"]) == 1
    said = capsys.readouterr().out
    assert "\nother as a pair than alone: extra-work-few; other as a pair than alone: extra-work-half" in said
    assert "; what pairs show of a line's cost is not all of it: do not trust" in said


def test_without_an_aa_pair_nothing_was_promised() -> None:
    run = long_run({"extra-work-a": 1.2}, change=lambda slot, one: None if slot.arm.role == "again" else one)
    assert [
        effects.format_injected(one).endswith("no A/A interval, so nothing was promised")
        for one in effects.read_effects(run)[1]
    ] == [
        True,
        True,
    ]


@pytest.mark.parametrize("wanted", [0.5, 0.9])
def test_a_power_is_that_of_the_effect_it_resolves(wanted: float) -> None:
    needed = power.compute_mde(0.03, 10, power=wanted)
    assert needed is not None
    assert effects.power(math.log1p(needed), 0.03, 10) == pytest.approx(wanted, abs=0.01)
    assert effects.power(2 * needed, 0.03, 10) > wanted > effects.power(0.0, 0.03, 10)
    assert effects.power(0.07, 0.003, 10) == effects.power(0.5, 0.003, 10) == pytest.approx(1), "and never no number"
