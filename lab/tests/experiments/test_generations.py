"""On how many generations of workers a pair is measured: by the level that scatters and what repeating it costs, and on several only where both sides can make new workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from lab.analysis import levels
from lab.analysis.generations import (
    MIN_PAIRS_S,
    BlockCosts,
    choose_blocks_and_generations,
    detectable_effect,
    divide_point,
    set_generations,
)
from lab.analysis.levels import compute_sd
from lab.base.errors import NotMeasurableError
from lab.experiments.bench import BenchRequest, prepare
from lab.experiments.bench import request as bench_request
from lab.model import facts
from lab.model.pairs import SIDES
from lab.model.variants.variants import Variant, load_overlay, load_variant, variant_names
from lab.records.levels import SystemComponents
from lab.targets.apiserver.target import ApiserverTarget
from lab.targets.cluster import target as cluster
from lab.targets.local.target import LocalTarget, vet_generations
from lab.tests.support.factories import make_point
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.sweep_texts import write_sweep

SEVERAL = [make_point("ceiling", rate_rps=None, generations=2)]


@cache
def systems() -> tuple[Variant, ...]:
    """Return every root overlay that has a proxy: the systems, as they ship and as they are made equal."""
    roots = (one for one in map(load_overlay, variant_names()) if one.baseline is None and not one.reference)
    return tuple(load_variant(one.name) for one in roots)


def refused_by(target: LocalTarget) -> Callable[[Variant], bool]:
    def refuses(variant: Variant) -> bool:
        try:
            vet_generations(target.read(variant.manifests), SEVERAL, target.renews)
        except NotMeasurableError:
            return True
        return False

    return refuses


REFUSES: dict[str, Callable[[Variant], bool]] = {
    "local": refused_by(LocalTarget()),
    "apiserver": refused_by(ApiserverTarget()),
    "kind": lambda variant: not cluster.makes_new_workers(variant.manifests),
}
"""Target → whether it refuses to measure a variant on several generations of workers, as `check_variant` asks it."""


@pytest.fixture
def scattering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Workers of every system scatter, as far as is known: all plans of this sweep would have several generations."""
    lines = tuple(
        known(target=target, variant=variant.name, bring_up=0.01, load_s=1.0)
        for target in REFUSES
        for variant in systems()
    )
    monkeypatch.setattr(levels, "read_components", lambda: lines)
    return write_sweep(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "apiserver")) for name in REFUSES]
)
def test_no_plan_of_two_systems_asks_for_a_reload_that_one_of_them_cannot_make(
    name: str, scattering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several generations where both can reload, and one where one of them cannot. What every plan reads anew is read once for all."""
    machine, loaded = facts.read_machine_facts(), {one.name: one for one in (*systems(), load_variant("direct"))}
    monkeypatch.setattr(facts, "read_machine_facts", lambda: dict(machine))
    monkeypatch.setattr(facts, "read_git_commit", lambda: None)
    monkeypatch.setattr(bench_request, "reference_name", lambda *_: "direct")
    monkeypatch.setattr(bench_request, "load_variant", lambda name, *_: loaded[name])
    fixed = frozenset(one.name for one in systems() if REFUSES[name](one))
    assert {"ingress-nginx", "traefik-ingress-nginx"} <= {one.name for one in systems()}
    assert "ingress-nginx" not in fixed and "traefik-ingress-nginx" in fixed
    tried = 0
    for number, (one, other) in enumerate(combinations(systems(), 2)):
        own, base = (one, other) if number % 2 else (other, one)
        if own.family != base.family:
            continue
        target = FakeTarget(name=name, sides=SIDES, fixed=fixed)
        made = prepare(BenchRequest((own.name,), scattering, seed=1, against=(base.name,)), target, ())
        reloading = {side.arm.variant for slot in made.plan.slots if slot.reload for side in slot.sides}
        assert not reloading & fixed, f"{own.name} against {base.name} on {name}"
        assert bool(reloading) is not bool({own.name, base.name} & fixed)
        assert set(made.design.fixed_workers) == {own.name, base.name} & fixed
        tried += 1
    assert tried > 100


@pytest.mark.parametrize(("target", "made"), [(LocalTarget(), "local"), (ApiserverTarget(), "apiserver")])
def test_a_target_says_of_every_system_beforehand_what_it_refuses_later(target: LocalTarget, made: str) -> None:
    assert {one.name: target.makes_new_workers(one) for one in systems()} == {
        one.name: not REFUSES[made](one) for one in systems()
    }


def test_one_arm_that_makes_no_new_workers_keeps_all_pairs_of_the_run_on_one_generation(scattering: str) -> None:
    target = FakeTarget(name="apiserver", sides=SIDES, fixed=frozenset({"traefik-ingress-nginx"}))
    request = BenchRequest(("keepalive", "traefik-ingress-nginx"), scattering, seed=1, against=("ingress-nginx",))
    made = prepare(request, target, ())
    assert [point.generations for point in made.plan.points] == [1] and made.plan.blocks == 6
    assert made.plan.reloads == 0
    alone = FakeTarget(
        name="apiserver", sides=SIDES, fixed=target.fixed, alone={"traefik-ingress-nginx": "it has the node's ports"}
    )
    assert prepare(request, alone, ()).plan.reloads > 0, "what is in no pair keeps no pair from it"


LOADS = (make_point("ceiling", rate_rps=None, duration_s=4.0, warmup_s=1.0),)
COSTS = BlockCosts(bring_up_s=4.0, others_s=8.0, reload_s=30.0, blocks=9, loads=LOADS)


@pytest.fixture(autouse=True)
def nothing_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "read_components", tuple[SystemComponents, ...])


def known(**changed: Any) -> SystemComponents:
    fields: dict[str, Any] = {
        "run": "r-1", "target": "apiserver", "variant": "baseline", "point": "ceiling", "scheme": "slices",
        "repeat": 0.01, "generation": 0.05, "bring_up": 0.0, "bring_ups": 8, "generations": 6, "load_s": 4.0,
    }  # fmt: skip
    return SystemComponents(**(fields | changed))


def test_a_block_scatters_by_its_levels_and_generations_average_what_lies_below_them() -> None:
    assert compute_sd(known(), 1, 4.0)[0] == pytest.approx(sqrt(2 * (0.05**2 + 0.01**2)))
    assert compute_sd(known(bring_up=0.02), 4, 4.0)[0] == pytest.approx(sqrt(2 * (0.02**2 + (0.05**2 + 0.01**2) / 4)))
    assert compute_sd(known(generation=0.0), 1, 1.0)[0] == pytest.approx(sqrt(2 * 4 * 0.01**2)), "a quarter of the time"


def test_the_load_of_one_is_shared_out_among_several_but_not_cut_to_nothing() -> None:
    (point,) = LOADS
    assert [(one.duration_s, one.warmup_s) for one in (divide_point(point, count) for count in (1, 2, 3, 9))] == [
        (4.0, 1.0), (2.0, 0.5), (1.0, 0.5), (1.0, 0.5)
    ]  # fmt: skip
    long = point.model_copy(update={"duration_s": 12.0})
    assert [divide_point(long, count).duration_s for count in (1, 5, 8)] == [12.0, 2.0, 2.0], "wrk takes whole seconds"


def test_a_plan_takes_its_pairs_the_guards_of_one_generation_and_other_points_as_often_as_was_planned() -> None:
    assert COSTS.takes_s(9, 1) == pytest.approx((9 + 6) * 17.0)
    assert COSTS.takes_s(9, 2) == pytest.approx(9 * 39.0 + 6 * 6.5 + (9 + 6) * 8.0)
    assert COSTS.takes_s(12, 2) == pytest.approx(12 * 39.0 + 6 * 6.5 + (9 + 6) * 8.0), "9 blocks were planned"
    assert COSTS.takes_s(4, 1) == pytest.approx((4 + 4) * 17.0), "no more guards than blocks"


@pytest.mark.parametrize(
    ("one", "costs", "blocks", "generations"),
    [
        (known(generation=0.009), COSTS, 9, 1),
        (known(generation=None), COSTS, 9, 1),
        (known(), COSTS, 9, 1),
        (known(bring_up=0.2), COSTS, 9, 1),
        (known(), BlockCosts(bring_up_s=4.0, others_s=8.0, reload_s=1.0, blocks=9, loads=LOADS), 6, 5),
        (known(), BlockCosts(bring_up_s=0.0, others_s=0.0, reload_s=50.0, blocks=6, loads=LOADS), 6, 1),
    ],
    ids=["workers-alike", "not-known", "reloads-dear", "starts-scatter", "reloads-cheap", "no-time"],
)
def test_the_level_that_scatters_is_repeated_where_that_tells_more_in_the_same_time(
    one: SystemComponents, costs: BlockCosts, blocks: int, generations: int
) -> None:
    found = choose_blocks_and_generations(one, costs)

    def effect(blocks: int, count: int) -> float:
        return detectable_effect(one, blocks, count, divide_point(LOADS[0], count).duration_s)

    assert effect(*found) <= effect(blocks, generations)
    if generations == 1:
        assert found == (blocks, generations)
    allowed_s = max(MIN_PAIRS_S, costs.takes_s(costs.blocks, 1))
    assert found[1] == 1 or costs.takes_s(*found) <= allowed_s + 1e-9
    assert choose_blocks_and_generations(one, replace(costs, most=costs.blocks))[0] <= costs.blocks, (
        "where arms alone are in all of them"
    )


def test_what_bring_ups_scatter_by_is_the_longest_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six bring-ups told nothing of it, thirty of that very system do: plans, promises and what one start varies by go by these."""
    mine, long = known(), known(repeat=None, bring_up=0.02, bring_ups=30, generations=24, load_s=1.0)
    monkeypatch.setattr(
        levels, "read_components", lambda: (mine, long, known(variant="workers-4", bring_up=0.5, bring_ups=50))
    )
    assert levels.start_sd(mine) == pytest.approx((0.05**2 + 0.02**2) ** 0.5)
    assert compute_sd(mine, 1, 4.0)[0] == pytest.approx(sqrt(2 * (0.02**2 + 0.05**2 + 0.01**2)))
    assert compute_sd(known(repeat=0.0, generation=0.0), 4, 4.0)[1] - 1 == 29
    costs = BlockCosts(bring_up_s=4.0, others_s=8.0, reload_s=1.0, blocks=9, loads=LOADS)
    many = choose_blocks_and_generations(mine, costs)
    monkeypatch.setattr(levels, "read_components", lambda: (mine,))
    assert (
        many[0] >= choose_blocks_and_generations(mine, costs)[0]
        and many[1] <= choose_blocks_and_generations(mine, costs)[1]
    ), "bring-ups are what is repeated"


def test_generations_count_singly_only_where_thirty_bring_ups_bound_what_they_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound's variance is held against a tenth of a bring-up's mean: of 4 generations that scatter by 5 % of 0.025², 0.79 % squared."""
    mine = known(repeat=0.0)
    for bring_ups, at_most, counts in ((30, 0.0078, True), (30, 0.0080, False), (29, 0.001, False), (30, None, False)):
        bound = known(repeat=None, bring_ups=bring_ups, generations=24, load_s=1.0, bring_up_at_most=at_most)
        for others in ((bound,), (bound.model_copy(update={"scheme": "together"}), bound)):
            monkeypatch.setattr(levels, "read_components", lambda others=others: (mine, *others))
            assert levels.counts_singly(mine, 4, 1.0) is counts
            assert levels.find_components("apiserver", {"baseline"}, "slices") is mine
            assert [set_generations(each, 4, mine).singly for each in LOADS] == [counts]
            singly = detectable_effect(mine, 6, 4, 1.0)
            assert (singly < 0.9 * detectable_effect(known(repeat=0.0, target="other"), 6, 4, 1.0)) is counts
        elsewhere = bound.model_copy(update={"variant": "workers-4"})
        monkeypatch.setattr(levels, "read_components", lambda elsewhere=elsewhere: (mine, elsewhere))
        assert not levels.counts_singly(mine, 4, 1.0), "of that very system"


def test_only_closed_loops_that_a_pair_bears_are_measured_on_generations() -> None:
    points = [
        make_point("ceiling", rate_rps=None),
        make_point("rate"),
        make_point("own", rate_rps=None, generations=2),
        make_point("alone", rate_rps=None, alone="said so"),
    ]
    assert [set_generations(point, 4, known()).generations for point in points] == [4, 1, 2, 1]
