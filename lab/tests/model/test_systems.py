"""Between different systems a concurrent pair decides nothing: which arms these are, and what their plan holds instead."""

from __future__ import annotations

from dataclasses import replace

from lab.analysis.decision import Decision
from lab.analysis.summary import summarise_run
from lab.analysis.verdicts import effect_text, verdicts
from lab.model.pairs import SIDES
from lab.model.plan import Plan, arms_for, plan
from lab.model.run import RunRecord
from lab.model.shape import GUARD, LEVELS, leading, shape_of
from lab.model.systems import CONCURRENT, different_systems, undecided_pairs
from lab.stats.paired import MIN_BLOCKS
from lab.tests.support.factories import make_plan, make_point, make_run
from lab.tests.support.made_runs import made_record

CEILING, RATE = make_point("ceiling", rate_rps=None), make_point()
ARMS = arms_for([("envoy", "baseline"), ("keepalive", "baseline")], None)
BASES = {"envoy": "envoy", "baseline": "ingress-nginx", "keepalive": "ingress-nginx"}
ASKED: dict[str, tuple[bool, str | None]] = {
    "envoy": (False, "cpu_per_request"),
    "keepalive": (False, "cpu_per_request"),
}


def planned(blocks: int = 8, arms: tuple[str, ...] = ("envoy", "keepalive")) -> Plan:
    mine = [arm for arm in ARMS if arm.role != "variant" or arm.name in arms]
    undecided = undecided_pairs(different_systems(mine, BASES), [CEILING, RATE])
    led = leading(mine, [CEILING, RATE], ASKED, undecided)
    shape = shape_of(mine, [CEILING, RATE], blocks, SIDES, led, undecided=undecided)
    return plan(mine, [CEILING, RATE], blocks, 1, shape)


def blocks_of(run: Plan, arm: str, point: str, against: str = "") -> int:
    return len(
        {slot.block for slot in run.slots if (slot.arm.name, slot.point.name, slot.other) == (arm, point, against)}
    )


def test_arms_of_another_base_are_different_systems() -> None:
    assert different_systems(ARMS, BASES) == {"envoy"}
    assert different_systems(ARMS, BASES | {"envoy": ""}) == set(), "what is not known differs from nothing"


def test_at_a_rate_different_systems_are_solo_in_every_block_and_no_pair() -> None:
    run = planned()
    for arm in ("envoy", "baseline"):
        assert blocks_of(run, arm, "rate-1000") == 8 >= MIN_BLOCKS
        assert blocks_of(run, arm, "ceiling") == LEVELS
    assert blocks_of(run, "envoy", "rate-1000", "baseline") == 0
    assert blocks_of(run, "envoy", "ceiling", "baseline") == 8, "in turns a pair decides as before"
    assert blocks_of(run, "keepalive", "rate-1000", "baseline") == 8, "a knob of the same system keeps its pair"
    assert blocks_of(run, "baseline-again", "rate-1000", "baseline") == GUARD, "which it is guarded by"


def test_where_every_arm_is_another_system_no_pair_guards_at_the_rate() -> None:
    run = planned(arms=("envoy",))
    assert blocks_of(run, "baseline-again", "rate-1000", "baseline") == 0
    assert blocks_of(run, "baseline-again", "ceiling", "baseline") == GUARD


def test_a_sweep_of_rates_alone_measures_different_systems_solo_throughout() -> None:
    arms = [arm for arm in ARMS if arm.name != "keepalive"]
    undecided = undecided_pairs(different_systems(arms, BASES), [RATE])
    assert shape_of(arms, [RATE], 8, SIDES, leading(arms, [RATE], ASKED, undecided), undecided=undecided) is None


# -- what is said of a run -----------------------------------------------------------------------------------


def record_of(run: Plan, own: str, base: str) -> RunRecord:
    record = made_record("r", run)
    bases = {"keepalive": own, "baseline": base}
    changed = {name: each.model_copy(update={"base": bases.get(name, "")}) for name, each in record.variants.items()}
    return record.model_copy(update={"variants": changed})


def as_measured_before() -> Plan:
    """As runs were planned before: pairs in every block, solo samples in two."""
    shape = shape_of(arms_for([("keepalive", "baseline")], None), [CEILING, RATE], 8, SIDES, ())
    return make_plan(points=[CEILING, RATE], blocks=8, reference=None, shape=shape)


def test_a_committed_pair_of_different_systems_at_a_rate_decides_nothing_and_the_table_says_so() -> None:
    run = as_measured_before()
    samples, histograms = make_run(run, {"keepalive": 1.5})
    for own, same in (("envoy", False), ("ingress-nginx", True)):
        record = record_of(run, own, "ingress-nginx")
        assert record.different_systems == (frozenset() if same else {"keepalive"})
        record = record.model_copy(
            update={
                "variants": {
                    name: each.model_copy(update={"primary_metric": "cpu_per_request"})
                    for name, each in record.variants.items()
                }
            }
        )
        summary = summarise_run(record, samples, lambda sample: histograms.get(sample.id))
        row = next(row for row in summary.rows if (row.arm.name, row.point.name) == ("keepalive", "rate-1000"))
        (effect,) = row.shown
        assert (effect.decision is Decision.NO_INTERVAL) is not same
        assert (effect.scheme is None) is not same
        assert (CONCURRENT in row.notes) is not same
        text = verdicts(summary)[0].text
        assert ("nothing is decided at rate-1000" in text) is not same
        if not same:
            assert "(2 blocks) (as a pair +" in effect_text(effect)
            ceiling = next(row for row in summary.rows if (row.arm.name, row.point.name) == ("keepalive", "ceiling"))
            assert ceiling.shown[0].scheme == "slices" and ceiling.shown[0].decision is Decision.WORSE


def test_an_older_record_tells_another_system_by_its_knobs() -> None:
    """Where no base is recorded: what is not its baseline with knobs added and has nothing to apply; never the same under two names."""
    record = record_of(as_measured_before(), "", "")
    assert record.different_systems == frozenset()
    bare = record.variants["keepalive"].model_copy(update={"snippet": ""})
    for knobs, own, other in (((), (), True), (("cpu",), ("cpu",), False), (("other",), ("cpu",), True)):
        variants = record.variants | {"keepalive": bare.model_copy(update={"knobs": knobs, "own_knobs": own})}
        found = record.model_copy(update={"variants": variants}).different_systems
        assert found == (frozenset({"keepalive"}) if other else frozenset())
    same = tuple(replace(arm, variant="baseline@abc") if arm.role == "variant" else arm for arm in record.arms)
    variants = record.variants | {
        "baseline@abc": bare.model_copy(update={"name": "baseline@abc", "knobs": (), "own_knobs": ()})
    }
    assert record.model_copy(update={"arms": same, "variants": variants}).different_systems == frozenset()
