"""A run's design: pairs where they can be had, the guard as often as it needs, solo samples where they decide; and what is said by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.analysis.explain.run import format_effect, make_verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.summary import summarise_run
from lab.model.design import (
    ABSOLUTE_VALUE_BLOCKS,
    CONCURRENT,
    LATENCY,
    NO_PAIR,
    NOISE_FLOOR_BLOCKS,
    SHARED,
    SHOWN_PAIR_BLOCKS,
    STORED_SHARED,
    Design,
    PlannedPlace,
    choose_scheme,
    choose_shape,
    find_solo_places,
)
from lab.model.pairs import SIDES
from lab.model.plan import Plan, Shape, list_arms, plan_samples
from lab.model.run import RunRecord
from lab.model.sweeps import LoadPoint
from lab.tests.support.factories import make_plan, make_point, make_run
from lab.tests.support.made_runs import made_record

CEILING, RATE = make_point("ceiling", rate_rps=None), make_point()
CLOSE = make_point("close", rate_rps=None, keepalive=False)
QUEUE = make_point("queue", subject=("listen-overflow",))
ARMS = list_arms([("keepalive", "baseline")], "direct")
SYSTEMS = list_arms([("envoy", "baseline"), ("keepalive", "baseline")], None)
ASKED: dict[str, tuple[bool, str | None]] = dict.fromkeys(("envoy", "keepalive"), (False, "cpu_per_request"))


def shape(points: list[LoadPoint], blocks: int = 7, shared: bool = False, primary: str = "cpu_per_request") -> Shape:
    found = choose_shape(ARMS, points, blocks, SIDES, find_solo_places(ARMS, points, {"keepalive": (shared, primary)}))
    assert found is not None
    return found


def test_what_runs_in_the_process_is_paired_in_every_block_and_alone_for_its_levels() -> None:
    found = shape([CEILING, RATE])
    assert found.pairs == {"keepalive": 7, "baseline-again": NOISE_FLOOR_BLOCKS}
    assert found.points == {"ceiling", "rate-1000"}
    assert {found.alone[arm, point.name] for arm in ("baseline", "keepalive") for point in (CEILING, RATE)} == {
        ABSOLUTE_VALUE_BLOCKS
    }
    assert found.alone["baseline-again", "ceiling"] == 0
    assert not any(arm == "direct" for arm, _ in found.alone), "the reference is measured once, as always"


def test_what_no_pair_tells_is_alone_in_every_block_at_that_point() -> None:
    """What both sides share, of which the pair stands beside; a load that opens connections; what no pair can bear is of none of its points."""
    found = shape([CEILING, RATE], shared=True)
    assert found.pairs["keepalive"] == SHOWN_PAIR_BLOCKS
    assert {found.alone[arm, point.name] for arm in ("baseline", "keepalive") for point in (CEILING, RATE)} == {7}
    found = shape([CEILING, CLOSE])
    assert found.pairs["keepalive"] == 7, "for the other point"
    for arm in ("keepalive", "baseline"):
        assert (found.alone[arm, "ceiling"], found.alone[arm, "close"]) == (ABSOLUTE_VALUE_BLOCKS, 7)
    found = shape([CEILING, QUEUE])
    assert found.points == {"ceiling"}
    assert ("keepalive", "queue") not in found.alone, "so that it is measured alone in all blocks"


def test_what_two_of_cannot_be_up_is_alone_in_every_block_and_nothing_is_paired_where_nothing_can_be() -> None:
    arms = list_arms([("keepalive", "baseline"), ("host-network", "baseline")], None)
    solo = find_solo_places(arms, [RATE], {"keepalive": (False, "rate"), "host-network": (True, "rate")})
    found = choose_shape(arms, [RATE], 7, SIDES, solo, {"host-network"})
    assert found is not None and found.pairs == {"keepalive": 7, "baseline-again": NOISE_FLOOR_BLOCKS}
    assert (found.alone["host-network", RATE.name], found.alone["baseline", RATE.name]) == (7, 7)
    assert choose_shape(ARMS, [RATE], 7, SIDES, {}, {"baseline"}) is None
    assert choose_shape(ARMS, [QUEUE], 7, SIDES) is None
    assert choose_shape(ARMS, [CEILING], 7, SIDES[:1]) is None, "a target with one place"
    assert choose_shape(ARMS, [CEILING], 5, SIDES) is None, "so few blocks tell no effect"
    few = shape([CEILING], 6)
    assert max(few.pairs.values()) == few.pairs["baseline-again"] == 6 and max(few.alone.values()) <= 6


def test_where_a_pair_is_on_generations_its_guard_is_on_one_in_as_few_blocks_as_it_needs() -> None:
    """The A/A pair of a run that tries something; of a baseline alone it is what is asked for.

    Bring-ups are many because workers scatter: what is measured once in one is not in more of them than it needs.
    """
    several = CEILING.model_copy(update={"generations": 4})
    assert shape([several, RATE]).pairs["baseline-again"] == NOISE_FLOOR_BLOCKS
    assert shape([several, RATE]).generations == {("baseline-again", "ceiling"): 1}
    itself = choose_shape(list_arms([("baseline", None)], None), [several], 7, SIDES)
    assert itself is not None and not itself.generations and itself.pairs == {"baseline-again": 7}
    once = choose_shape(list_arms([("baseline", None)], None), [CEILING], 7, SIDES)
    assert once is not None and once.pairs == {"baseline-again": NOISE_FLOOR_BLOCKS}

    def fewer(points: list[LoadPoint], once: int | None) -> object:
        found = choose_shape(ARMS, points, 16, SIDES, find_solo_places(ARMS, points, ASKED), once=once)
        assert found is not None and found.pairs == {"keepalive": 16, "baseline-again": NOISE_FLOOR_BLOCKS}
        return found.fewer

    assert fewer([several, RATE], 9) == {("keepalive", "rate-1000"): 9}, "its guard has six anyway"
    assert fewer([several, RATE], 16) == fewer([several, RATE], None) == fewer([CEILING, RATE], 9) == {}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("point", "why"),
    [(CEILING, "slices"), (RATE, "together"), (CLOSE, None), (QUEUE, None)],
    ids=["ceiling", "rate", "close", "queue"],
)
def test_how_an_effect_is_come_by(point: LoadPoint, why: str | None, shared: bool) -> None:
    assert choose_scheme(shared, point, SIDES) == (None if shared else why)
    assert choose_scheme(shared, point, SIDES[:1]) is None
    assert choose_scheme(shared, RATE, SIDES, other_system=True) is None


def test_latency_in_a_sweep_of_closed_loops_leads_alone() -> None:
    """Slices do not tell it; where there is a rate, that is the place for it."""
    latency: dict[str, tuple[bool, str | None]] = {"keepalive": (False, "p99")}
    assert find_solo_places(ARMS, [CEILING, CLOSE], latency)["keepalive", "ceiling"] == LATENCY
    assert not find_solo_places(ARMS, [CEILING, RATE], latency)
    assert not find_solo_places(ARMS, [CEILING], ASKED)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"requests": 500, "rate_rps": None}, "no slices"),
        ({"generators": 2}, "several generators"),
        ({"control": True}, "bound to it alone"),
        ({"subject": ("errors",)}, "run out"),
        ({"of_knee": 0.5}, "more than one proxy serves"),
        ({"of_knee": 0.4}, ""),
        ({"alone": "memory is the subject"}, "memory is the subject"),
        ({}, ""),
    ],
)
def test_a_point_says_why_no_pair_can_bear_it(changed: dict[str, Any], said: str) -> None:
    why = make_point(**changed).why_alone
    assert (said in why) if said else why == ""


def planned(arms: tuple[str, ...] = ("envoy", "keepalive"), blocks: int = 8) -> Plan:
    mine, points = [arm for arm in SYSTEMS if arm.role != "variant" or arm.name in arms], [CEILING, RATE]
    solo = find_solo_places(mine, points, ASKED, {"envoy"})
    return plan_samples(mine, points, blocks, 1, choose_shape(mine, points, blocks, SIDES, solo))


def blocks_of(run: Plan, *where: str) -> int:
    return len({slot.block for slot in run.slots if (slot.arm.name, slot.point.name, slot.other) == where})


def test_at_a_rate_different_systems_are_solo_in_every_block_and_no_pair() -> None:
    run = planned()
    for arm in ("envoy", "baseline"):
        assert (blocks_of(run, arm, "rate-1000", ""), blocks_of(run, arm, "ceiling", "")) == (8, ABSOLUTE_VALUE_BLOCKS)
    assert blocks_of(run, "envoy", "rate-1000", "baseline") == 0
    assert blocks_of(run, "envoy", "ceiling", "baseline") == 8, "in turns a pair decides as before"
    assert blocks_of(run, "keepalive", "rate-1000", "baseline") == 8, "a knob of the same system keeps its pair"
    assert blocks_of(run, "baseline-again", "rate-1000", "baseline") == NOISE_FLOOR_BLOCKS, "which it is guarded by"
    alone = planned(("envoy",))
    assert blocks_of(alone, "baseline-again", "rate-1000", "baseline") == 0, "there is nothing to be guarded"
    assert blocks_of(alone, "baseline-again", "ceiling", "baseline") == NOISE_FLOOR_BLOCKS
    arms = [arm for arm in SYSTEMS if arm.name != "keepalive"]
    assert choose_shape(arms, [RATE], 8, SIDES, find_solo_places(arms, [RATE], ASKED, {"envoy"})) is None, (
        "nor of rates alone"
    )


def record_of(run: Plan, own: str, base: str) -> RunRecord:
    record = made_record("r", run)
    changes = {"keepalive": {"base": own, "primary_metric": "cpu_per_request"}, "baseline": {"base": base}}
    changed = {name: each.model_copy(update=changes.get(name, {})) for name, each in record.variants.items()}
    return record.model_copy(update={"variants": changed})


def as_measured_before() -> Plan:
    shape = choose_shape(list_arms([("keepalive", "baseline")], None), [CEILING, RATE], 8, SIDES)
    return make_plan(points=[CEILING, RATE], blocks=8, reference=None, shape=shape)


def test_a_design_says_which_blocks_have_what_and_where_solo_samples_decide_and_run_json_keeps_it() -> None:
    points = [CEILING.model_copy(update={"generations": 3}), RATE, CLOSE, QUEUE]
    shape = choose_shape(ARMS, points, 8, SIDES, {("keepalive", "close"): SHARED}, once=6)
    run = plan_samples(ARMS, points, 8, 1, shape)
    record = made_record("r", run)
    design = record.designed
    pairs = {(one.arm, one.point): (len(one.blocks), one.generations) for one in design.places if one.against}
    assert pairs["keepalive", "ceiling"] == (8, 3) and pairs["baseline-again", "ceiling"] == (NOISE_FLOOR_BLOCKS, 1)
    assert pairs["keepalive", "rate-1000"] == (6, 1) and ("keepalive", "queue") not in pairs
    for one in design.places:
        where = one.arm, one.point, one.against
        mine = [slot for slot in run.slots if (slot.arm.name, slot.point.name, slot.other) == where]
        assert [*one.blocks] == sorted({slot.block for slot in mine})
    assert (design.blocks, design.bring_ups, design.reloads) == (8, run.bring_ups, run.reloads)
    solo, reference = design.place("keepalive", "close", paired=False), design.place("direct", "close", paired=False)
    assert solo and len(solo.blocks) == 8 and reference and reference.blocks == (1, 4, 8)
    decides = {(one.arm, one.point): one.solo_decides for one in design.places if one.solo_decides}
    assert decides == {("keepalive", "close"): SHARED, ("keepalive", "queue"): QUEUE.why_alone}
    few = made_record("r", plan_samples(ARMS, [RATE], 2, 1)).designed
    assert {one.solo_decides for one in few.places} == {NO_PAIR, ""} and not any(one.against for one in few.places)
    kept = record.model_copy(update={"design": design.model_copy(update={"duration_s": 60.0, "systems": ("other",)})})
    again = RunRecord.model_validate_json(kept.model_dump_json())
    assert isinstance(again.design, Design) and again.designed == kept.design, "what was recorded is not computed anew"


def test_a_committed_pair_of_different_systems_at_a_rate_decides_nothing_and_the_table_says_so() -> None:
    run = as_measured_before()
    samples, histograms = make_run(run, {"keepalive": 1.5})
    for own, same in (("envoy", False), ("ingress-nginx", True)):
        record = record_of(run, own, "ingress-nginx")
        assert record.designed.systems == (() if same else ("keepalive",))
        summary = summarise_run(record, samples, lambda sample: histograms.get(sample.id))
        row = next(row for row in summary.rows if (row.arm.name, row.point.name) == ("keepalive", "rate-1000"))
        (effect,) = row.shown
        assert (effect.decision is Decision.NO_INTERVAL) is not same
        assert (effect.scheme is None) is not same
        assert (CONCURRENT in row.notes) is not same
        text = make_verdicts(summary)[0].text
        assert ("nothing is decided at rate-1000" in text) is not same
        if not same:
            assert "(2 blocks) (as a pair +" in format_effect(effect)
            ceiling = next(row for row in summary.rows if (row.arm.name, row.point.name) == ("keepalive", "ceiling"))
            assert ceiling.shown[0].scheme == "slices" and ceiling.shown[0].decision is Decision.WORSE


def test_an_older_record_tells_another_system_by_its_knobs() -> None:
    """Where no base is recorded: what is not its baseline with knobs added and has nothing to apply; never the same under two names."""
    assert record_of(as_measured_before(), "envoy", "").designed.systems == (), "what is not known differs from nothing"
    record = record_of(as_measured_before(), "", "")
    assert record.designed.systems == ()
    bare = record.variants["keepalive"].model_copy(update={"snippet": ""})
    for knobs, own, other in (((), (), True), (("cpu",), ("cpu",), False), (("other",), ("cpu",), True)):
        variants = record.variants | {"keepalive": bare.model_copy(update={"knobs": knobs, "own_knobs": own})}
        found = record.model_copy(update={"variants": variants}).designed.systems
        assert found == (("keepalive",) if other else ())
    same = tuple(replace(arm, variant="baseline@abc") if arm.role == "variant" else arm for arm in record.arms)
    variants = record.variants | {
        "baseline@abc": bare.model_copy(update={"name": "baseline@abc", "knobs": (), "own_knobs": ()})
    }
    assert record.model_copy(update={"arms": same, "variants": variants}).designed.systems == ()


def test_the_reason_of_an_earlier_lab_is_read_in_the_present_words() -> None:
    stored = {"arm": "keepalive", "against": "", "point": "close", "blocks": [1], "generations": 1}
    for reason in (STORED_SHARED, SHARED):
        assert PlannedPlace.model_validate(stored | {"solo_decides": reason}, strict=False).solo_decides == SHARED
    assert PlannedPlace.model_validate(stored | {"solo_decides": NO_PAIR}, strict=False).solo_decides == NO_PAIR
