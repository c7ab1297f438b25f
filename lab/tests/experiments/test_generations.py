"""On how many generations of workers a pair is measured: on several only where both of its sides can make new workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from lab.analysis import levels
from lab.base.errors import NotMeasurableError
from lab.experiments.bench import Request, prepare
from lab.experiments.bench import request as bench_request
from lab.model import facts
from lab.model.pairs import SIDES
from lab.model.variants.variants import Variant, load_overlay, load_variant, variant_names
from lab.records.levels import Known
from lab.targets.apiserver.target import ApiserverTarget
from lab.targets.cluster import target as cluster
from lab.targets.local import LocalTarget
from lab.targets.local.target import vet_generations
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
    "kind": lambda variant: not cluster.renews(variant.manifests),
}
"""Target → whether it refuses to measure a variant on several generations of workers, as `check_variant` asks it."""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Workers of every system scatter, as far as is known: all plans would have several generations."""
    told = {"run": "r", "point": "ceiling", "scheme": "slices", "load_s": 1.0, "bring_ups": 8, "generations": 6}
    lines = tuple(
        Known(**told, target=target, variant=variant.name, repeat=0.01, generation=0.05, bring_up=0.01)  # pyright: ignore[reportArgumentType]
        for target in REFUSES
        for variant in systems()
    )
    monkeypatch.setattr(levels, "committed", lambda: lines)
    return write_sweep(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSES)
def test_no_plan_of_two_systems_asks_for_a_reload_that_one_of_them_cannot_make(
    name: str, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several generations where both can reload, and one where one of them cannot. What every plan reads anew is read once for all."""
    machine, loaded = facts.machine(), {one.name: one for one in (*systems(), load_variant("direct"))}
    monkeypatch.setattr(facts, "machine", lambda: dict(machine))
    monkeypatch.setattr(facts, "git_commit", lambda: None)
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
        made = prepare(Request((own.name,), known, seed=1, against=(base.name,)), target, ())
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


def test_one_arm_that_makes_no_new_workers_keeps_all_pairs_of_the_run_on_one_generation(known: str) -> None:
    target = FakeTarget(name="apiserver", sides=SIDES, fixed=frozenset({"traefik-ingress-nginx"}))
    request = Request(("keepalive", "traefik-ingress-nginx"), known, seed=1, against=("ingress-nginx",))
    made = prepare(request, target, ())
    assert [point.generations for point in made.plan.points] == [1] and made.plan.blocks == 6
    assert made.plan.reloads == 0
    alone = FakeTarget(
        name="apiserver", sides=SIDES, fixed=target.fixed, alone={"traefik-ingress-nginx": "it has the node's ports"}
    )
    assert prepare(request, alone, ()).plan.reloads > 0, "what is in no pair keeps no pair from it"
