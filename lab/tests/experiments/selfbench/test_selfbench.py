"""`selfbench`: that its accounts add up, and that its checks tell a kept promise from a broken one. Nothing here asserts a time."""

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from lab.__main__ import main
from lab.base.errors import MeasuringError
from lab.experiments.selfbench import effects, overhead
from lab.experiments.selfbench.overhead import Overhead
from lab.model.design import shape_of
from lab.model.pairs import SIDES
from lab.model.plan import Slot, arms_for, plan
from lab.model.samples import Reason, Sample
from lab.records.store import RunStore
from lab.records.sweep_files import load_sweep
from lab.report.tables.selfbench import known_costs as known_page
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
    found = overhead.account([first, second, again, never], 40.0)
    assert (found.samples, found.valid) == (3, 2)
    assert (found.bring_up_s, found.measuring_s, found.warm_up_s) == (5.0, 30.0, 3.0)
    assert found.own_s == pytest.approx(2.0)
    assert overhead.describe_overhead(found) == [
        "a whole run of 3 samples, 1 of them invalid, 40.0 s",
        "  bring-ups: 5.00 s, measuring: 30.0 s",
        "  the lab's own time: 667 ms per sample, 6.7% of measuring",
    ]


def test_the_overhead_is_printed_as_its_schema_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = overhead.account([make_sample(bring_up_s=2.0)], 40.0)
    monkeypatch.setattr(overhead, "measure_overhead", lambda sweep: found)
    assert main(["selfbench", "overhead", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(Overhead.model_json_schema()).validate(told)
    assert told["own_s"] == found.own_s
    assert main(["selfbench"]) == 0
    assert "the lab's own time: " in capsys.readouterr().out


def test_what_takes_long_is_given_the_time_it_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And three times as much, since samples are measured again; what hangs is ended all the same."""
    given: list[float] = []

    def fake(argv: Sequence[str], timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        given.append(timeout)
        return subprocess.CompletedProcess(argv, 2, "", "no nginx")

    monkeypatch.setattr(subprocess, "run", fake)
    with pytest.raises(MeasuringError, match="selfbench: lab bench: exit status 2: no nginx"):
        overhead.measure_overhead("quick")
    with pytest.raises(MeasuringError):
        effects.measure(tmp_path, ["extra-work-a"], 1000, 1)
    planned_s = [(4 + 1.5 + 3 + 1.5) * 7, 1000 * (3 * effects.SOLO_S + effects.PAIR_S)]
    assert all(3 * least_s < limit_s < math.inf for least_s, limit_s in zip(planned_s, given, strict=True))


def found_to_be(monkeypatch: pytest.MonkeyPatch, runs: Sequence[MadeStore], status: int = 0) -> None:
    """What the lab measured, one run for each time that it is started."""
    names, stores = list[str](), {run.record.id: run for run in runs}

    def run(argv: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        names.append(runs[len(names)].record.id)
        return subprocess.CompletedProcess(argv, status, "", "disk full")

    monkeypatch.setattr(subprocess, "run", run)
    for module in (overhead, effects):
        monkeypatch.setattr(module, "run_names", lambda _: list(names))
    monkeypatch.setattr(RunStore, "open", lambda path: stores[Path(path).name])


def stopped(run: MadeStore, after: int) -> MadeStore:
    """It ended in the middle, after so many blocks."""
    run.take(one for one in run.samples() if one.block <= after)
    return run


def by_cpu(record: Any, **knobs: tuple[str, ...]) -> Any:
    """With CPU per request as every variant's primary metric."""
    variants = {
        name: one.model_copy(update={"primary_metric": "cpu_per_request", "knobs": knobs.get(name, one.knobs)})
        for name, one in record.variants.items()
    }
    return record.model_copy(update={"variants": variants})


def test_a_run_that_stopped_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1 is of cells without a valid sample, and of a full disk; effects are gone on with."""
    found_to_be(monkeypatch, [stopped(long_run({"extra-work-a": 1.2}), 2)], status=1)
    with pytest.raises(MeasuringError, match=r"(?s): stopped with \d+ of its \d+ cells to go: .*disk full.*goes on"):
        effects.measure(tmp_path, ["extra-work-a"], 40, 1)
    found_to_be(monkeypatch, [long_run({"extra-work-a": 1.2})], status=1)
    assert effects.measure(tmp_path, ["extra-work-a"], 40, 1).record.id == "long"


# -- injected effects ----------------------------------------------------------------------------------

EXTRA = [("extra-work-a", "baseline"), ("extra-work-b", "baseline")]


def long_run(costs: Mapping[str, float], blocks: int = 40, **how: Any) -> MadeStore:
    planned = make_plan(EXTRA, [make_point("ceiling", rate_rps=None)], blocks=blocks)
    run = made("long", costs, planned, noise=0.02, **how)
    run.record = by_cpu(run.record)
    return run


def test_tens_of_a_run_are_runs_of_their_own() -> None:
    """What is there is claimed in every ten, what is not in none; the promise says so."""
    _, (large, none) = effects.read(long_run({"extra-work-a": 1.2}))
    assert (large.variant, large.claimed, large.tens) == ("extra-work-a", 4, 4)
    assert large.estimate.ratio == pytest.approx(1.2, abs=0.02) and large.promised == pytest.approx(1, abs=0.01)
    assert none.claimed == 0 and none.tens == 4 and none.promised is not None and none.promised < 0.3
    assert "claimed in 4 of 4 tens, promised 100%" in effects.line(large)
    held, text = effects.verdict(None, [large, none])
    assert held and "4 of 8 tens" in text and "--resolve" in text and "fewer" not in text
    held, text = effects.verdict(None, [replace(large, claimed=1), none])
    assert not held and "fewer than promised: extra-work-a at ceiling:" in text


LINES = {"extra-work-few": 8, "extra-work-half": 40, "extra-work-most": 80}
COSTS = {"extra-work-few": 1.1, "extra-work-half": 1.5, "extra-work-most": 2.0}


def both_ways(costs: Mapping[str, float], shown: float = 1.0) -> MadeStore:
    """Variants of known work as pairs and alone; `shown`: what a pair has of what they truly add."""
    points = load_sweep(effects.SWEEP)[1].expanded()
    arms = arms_for([(name, "baseline") for name in LINES], None)
    planned = plan(arms, points, 40, 1, shape_of(arms, points, 40, SIDES))

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
    known, found = effects.read(both_ways(COSTS))
    assert known is not None and known.slope is not None and known.slope.ratio_interval is not None
    few = known.costs[0]
    assert [one.lines for one in known.costs] == [8, 40, 80] and few.pair.n == 40
    assert all(one.agrees for one in known.costs) and known.whole
    assert few.pair.ratio == pytest.approx(1.1, abs=0.002) and few.doubt is not None and few.doubt < 0.2
    assert known.slope.ratio == pytest.approx(1, abs=0.02)
    assert known.slope.ratio_interval[0] < 1 < known.slope.ratio_interval[1]
    assert effects.verdict(known, found)[0]
    assert few.alone.sd is not None and f"{100 * few.alone.sd:.1f} %" in str(known_page(known)[0])


def test_a_pair_that_halves_a_cost_is_told() -> None:
    known, found = effects.read(both_ways(COSTS, shown=0.5))
    assert known is not None and known.slope is not None and known.slope.ratio == pytest.approx(0.5, abs=0.02)
    assert not known.whole and not any(one.agrees for one in known.costs)
    held, text = effects.verdict(known, found)
    assert not held
    assert "other as a pair than alone: extra-work-few; other as a pair than alone: extra-work-half" in text
    assert "what pairs show of a line's cost is not all of it" in text


def promising(large: effects.Injected, chance: float, claimed: int, name: str) -> effects.Injected:
    """With noise at which ten blocks claim its effect with that chance."""
    sd = large.estimate.effect / math.log1p(power.resolvable(1.0, effects.TEN, power=chance) or 0.0)
    return replace(large, variant=name, sd=sd, claimed=claimed)


def test_a_kept_promise_is_seldom_called_broken() -> None:
    """At most one time in twenty, simulated: variants as many as there are, each in four tens."""
    rng, times = np.random.default_rng(1), 1000
    _, (large, _) = effects.read(long_run({"extra-work-a": 1.2}))
    promised = [promising(large, chance, 0, str(chance)) for chance in (0.95, 0.91, 0.8, 0.6, 0.3, 0.9)]
    chances = [one.promised or 0.0 for one in promised]
    broken = 0
    for _ in range(times):
        claimed = rng.binomial(4, chances)
        broken += not effects.verdict(
            None, [replace(one, claimed=n) for one, n in zip(promised, claimed, strict=True)]
        )[0]
    assert broken <= 0.05 * times


def test_a_promise_does_not_hold_where_nothing_is_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an A/A pair nothing was promised, and without a judged ten nothing was kept: said, and exit 1."""
    run = long_run({"extra-work-a": 1.2}, change=lambda slot, one: None if slot.arm.role == "again" else one)
    _, found = effects.read(run)
    assert [one.promised for one in found] == [None] * 2
    assert effects.line(found[0]).endswith("no A/A interval, so nothing was promised")
    _, (large, none) = effects.read(long_run({"extra-work-a": 1.2}))
    for nothing in ([], found, [replace(large, claimed=0, tens=0)]):
        held, text = effects.verdict(None, nothing)
        assert not held and text.startswith("nothing is known of what `--resolve` promises")
    held, text = effects.verdict(None, [large, replace(none, sd=None)])
    assert held and text.startswith("4 of 4 tens") and "nothing is known of extra-work-b" in text
    monkeypatch.setattr(effects, "measure", lambda *_: run)
    arguments = ["selfbench", "effects", "--into", str(tmp_path)]
    assert main(arguments) == 1
    assert "\nnothing is known of what `--resolve` promises" in capsys.readouterr().out
    monkeypatch.setattr(effects, "measure", lambda *_: long_run({"extra-work-a": 1.2}))
    assert main(arguments) == 0


@pytest.mark.parametrize("wanted", [0.5, 0.9])
def test_a_power_is_that_of_the_effect_it_resolves(wanted: float) -> None:
    """The inverse of `power.resolvable`, and more with the effect."""
    needed = power.resolvable(0.03, 10, power=wanted)
    assert needed is not None
    assert effects.power(math.log1p(needed), 0.03, 10) == pytest.approx(wanted, abs=0.01)
    assert effects.power(2 * needed, 0.03, 10) > wanted > effects.power(0.0, 0.03, 10)
    assert effects.power(0.07, 0.003, 10) == effects.power(0.5, 0.003, 10) == pytest.approx(1), "and never no number"


def test_the_number_of_successes_is_that_of_trials_with_different_chances() -> None:
    """Poisson's binomial distribution by hand: of 0.5 and 0.2 none succeeds with 0.4, one with 0.5."""
    for claimed, chance in ((0, 0.4), (1, 0.9), (2, 1.0)):
        assert effects.kept(claimed, [0.5, 0.2], chance - 1e-9)
        assert not effects.kept(claimed, [0.5, 0.2], chance + 1e-9)


# -- the command ---------------------------------------------------------------------------------------
