"""The plan: which arms, and the split-plot order, as properties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.model.design import choose_shape
from lab.model.pairs import SIDES, Layout
from lab.model.plan import Plan, Shape, Slot, list_arms, plan_samples
from lab.model.samples import list_bring_ups_s
from lab.records.store import RunStore
from lab.tests.support.factories import make_plan, make_point, make_sample, of_slot
from lab.tests.support.made_runs import made_record

names = st.lists(st.sampled_from(["a", "b", "c", "d+e", "f-again"]), min_size=1, max_size=4)
plans = st.builds(
    lambda variants, points, blocks, seed, reference: make_plan(
        [(name, "baseline") for name in variants],
        [make_point(f"p{number}") for number in range(points)],
        blocks,
        seed,
        reference,
    ),
    names,
    st.integers(1, 4),
    st.integers(1, 8),
    st.integers(0, 2**31),
    st.sampled_from(["direct", None]),
)
FEW = settings(max_examples=40)
CHANCES = ("side", "first_up", "first_slice", "longer")
"""What is drawn for a pair."""
REFERENCE = Path(__file__).parents[3] / "data/reference"


@st.composite
def shaped(draw: st.DrawFn) -> tuple[Plan, Shape]:
    """A run of which some arms are paired at some points, in some blocks, and measured alone in some."""
    points = [make_point(f"p{number}") for number in range(draw(st.integers(1, 3)))]
    arms = list_arms([(name, "baseline") for name in draw(names)], draw(st.sampled_from(["direct", None])))
    blocks, counts = draw(st.integers(1, 13)), st.integers(0, 14)
    shape = Shape(
        {arm.name: draw(counts) for arm in arms if arm.baseline and draw(st.booleans())},
        frozenset(draw(st.sets(st.sampled_from([point.name for point in points]), min_size=1))),
        {(arm.name, point.name): draw(counts) for arm in arms for point in points if draw(st.booleans())},
    )
    return plan_samples(arms, points, blocks, draw(st.integers(0, 2**31)), shape), shape


def described(variants: list[tuple[str, str | None]], reference: str | None = "direct") -> list[str]:
    return [
        f"{arm.name}: {arm.role} of {arm.variant}" + (f" against {arm.baseline}" if arm.baseline else "")
        for arm in list_arms(variants, reference)
    ]


A_A = "baseline-again: again of baseline against baseline"
KEEPALIVE = "keepalive: variant of keepalive against baseline"
BASELINE = "baseline: baseline of baseline"
CHAIN = [
    "v2: variant of v2 against v1",
    "v1: variant of v1 against root",
    "v1-again: again of v1 against v1",
    "root: baseline of root",
    "root-again: again of root against root",
]


@pytest.mark.parametrize(
    ("variants", "reference", "arms"),
    [
        ([("baseline", None)], "direct", [BASELINE, A_A, "direct: reference of direct"]),
        ([("keepalive", "baseline")], None, [KEEPALIVE, BASELINE, A_A]),
        ([("keepalive", "baseline")] * 3 + [("baseline", None)], None, [KEEPALIVE, BASELINE, A_A]),
        ([("v2", "v1"), ("v1", "root")], None, CHAIN),
        ([("v1", "root"), ("v2", "v1")], None, CHAIN),
        ([("direct", None)], "direct", ["direct: baseline of direct", "direct-again: again of direct against direct"]),
    ],
)
def test_a_variant_brings_its_baseline_twice_and_nothing_is_measured_thrice(
    variants: list[tuple[str, str | None]], reference: str | None, arms: list[str]
) -> None:
    assert sorted(described(variants, reference)) == sorted(arms)


def test_a_variant_with_the_name_of_an_a_a_arm_is_refused() -> None:
    with pytest.raises(UsageError, match="second measurement of 'baseline'"):
        list_arms([("baseline-again", "baseline")], None)
    with pytest.raises(UsageError, match="rename the overlay"):
        list_arms([("x", "x-again"), ("x-again", None), ("y", "x")], None)


@FEW
@given(plans)
def test_each_block_measures_each_arm_once_in_one_piece(run: Plan) -> None:
    """The reference in the first, the middle and the last block; of one block all arms have one order of points."""
    expected = sorted(arm.name for arm in run.arms if arm.role != "reference")
    for block in range(1, run.blocks + 1):
        mine = [slot for slot in run.slots if slot.block == block and slot.arm.role != "reference"]
        pieces = [(arm.name, tuple(slot.point.name for slot in slots)) for arm, slots in groupby(mine, lambda s: s.arm)]
        assert sorted(name for name, _ in pieces) == expected
        assert len({order for _, order in pieces}) == 1
    held = {1, (run.blocks + 1) // 2, run.blocks} if len(run.arms) > len(expected) else set[int]()
    reference = [slot.block for slot in run.slots if slot.arm.role == "reference"]
    assert Counter(reference) == {block: len(run.points) for block in held}
    assert run.bring_ups == run.blocks * len(expected) + len(held)
    assert all(is_even(orders) for orders in bring_ups(run).values()), "each arm begins with each point equally often"


def test_no_arm_and_no_side_has_a_fixed_place() -> None:
    """Drift inside a block hits all alike: over many blocks every arm comes first about equally often, and of many pairs half begin on the left."""
    run = make_plan([("a", "root"), ("b", "root")], [make_point()], blocks=400, reference=None)
    first = [next(slot.arm.name for slot in run.slots if slot.block == block) for block in range(1, 401)]
    assert all(70 <= first.count(arm.name) <= 130 for arm in run.arms)
    shape = Shape({"keepalive": 6}, frozenset({"rate-1000"}))
    firsts = [paired(make_plan(seed=seed, shape=shape), "keepalive", "rate-1000")[0].layout for seed in range(200)]
    for chance in CHANCES:
        counts = Counter(getattr(layout, chance) for layout in firsts)
        assert min(counts.values()) >= 70, chance


def test_a_plan_lasts_as_long_as_its_slots_and_bring_ups_and_the_round_trip() -> None:
    run = make_plan(points=[make_point(duration_s=5.0, warmup_s=1.0)], blocks=6, reference="direct")
    assert run.lasts_s(2.0) == pytest.approx((6 * 3 + 3) * (6.0 + 0.6 + 2.0) + 3.5)


def paired(run: Plan, arm: str, point: str) -> list[Slot]:
    return [slot for slot in run.slots if (slot.arm.name, slot.point.name) == (arm, point) and slot.against]


def is_halved(kinds: Iterable[object]) -> bool:
    counts = Counter(kinds)
    return len(counts) <= 2 and max(counts.values(), default=0) - (sum(counts.values()) + 1) // 2 <= 0


@FEW
@given(shaped())
def test_a_pair_is_measured_as_often_as_asked_for_with_its_baseline_and_its_chances_are_half_and_half(
    made: tuple[Plan, Shape],
) -> None:
    run, shape = made
    for arm in run.arms:
        for point in run.points:
            slots = paired(run, arm.name, point.name)
            wanted = min(shape.pairs.get(arm.name, 0), run.blocks) if point.name in shape.points else 0
            assert len({slot.block for slot in slots}) == len(slots) == wanted
            assert all(slot.other == arm.baseline and 1 <= slot.block <= run.blocks for slot in slots)
            layouts = [slot.layout or Layout() for slot in slots]
            for chance in CHANCES:
                assert is_halved(getattr(each, chance) for each in layouts)


@FEW
@given(shaped())
def test_arms_are_alone_in_as_many_blocks_as_asked_for_and_those_of_one_count_in_the_same(
    made: tuple[Plan, Shape],
) -> None:
    """So that an arm and its baseline have blocks in common."""
    run, shape = made
    blocks: dict[int, set[frozenset[int]]] = {}
    for arm in run.arms:
        for point in run.points if arm.role != "reference" else ():
            mine = [slot for slot in run.slots if slot.arm == arm and slot.point == point and not slot.against]
            wanted = min(run.blocks, shape.alone.get((arm.name, point.name), run.blocks))
            assert len(mine) == wanted
            blocks.setdefault(wanted, set()).add(frozenset(slot.block for slot in mine))
    assert all(len(sets) == 1 for sets in blocks.values())
    for few, some in blocks.items():
        assert all(next(iter(some)) <= next(iter(more)) for many, more in blocks.items() if many >= few)


@FEW
@given(shaped())
def test_what_comes_up_in_one_piece_is_measured_in_one_and_everything_once_and_a_record_gives_the_plan_again(
    made: tuple[Plan, Shape],
) -> None:
    """Of one bring-up every point has the same sides; what is measured once has a folder of its own; the same seed gives the same pairs."""
    run, shape = made
    pieces = [key for key, _ in groupby(run.slots, key=lambda slot: slot.bring_up)]
    assert len(pieces) == len(set(pieces)) == run.bring_ups
    ups: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for slot in run.slots:
        if slot.layout is not None:
            ups.setdefault(tuple(map(str, slot.bring_up)), set()).add((slot.layout.side, slot.layout.first_up))
    assert all(len(sides) == 1 for sides in ups.values())
    assert [slot.order for slot in run.slots] == list(range(1, len(run.slots) + 1))
    every = [each for slot in run.slots for each in slot.cells]
    assert len(every) == len(set(every))
    ids = [side.sample_id(attempt) for slot in run.slots for side in slot.sides for attempt in (1, 2)]
    assert len(ids) == len(set(ids)) == 2 * len(every)
    assert plan_samples(run.arms, run.points, run.blocks, run.seed, shape) == run
    record = made_record("r", run)
    assert record.plan() == run
    assert type(record).model_validate_json(record.model_dump_json()).plan() == run


def test_older_runs_keep_the_plan_that_they_were_measured_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their orders were drawn otherwise, and their reference is block 0: who resumes one goes on with the stored slots."""
    monkeypatch.setenv("LAB_RUNS", str(REFERENCE))
    for folder in REFERENCE.glob("*/run.json"):
        record = RunStore.open(folder.parent.name).record
        assert [(slot.block, slot.arm.name, slot.point.name) for slot in record.plan().slots] == list(record.slots)


def test_a_pairs_other_side_is_the_same_slot_turned() -> None:
    run = make_plan(shape=Shape({"keepalive": 6}, frozenset({"rate-1000"})))
    slot = paired(run, "keepalive", "rate-1000")[0]
    one, other = slot.sides
    assert one == slot == other.turned and (one.arm, other.arm) == (slot.arm, slot.against)
    assert one.layout and other.layout and {one.layout.side, other.layout.side} == {"left", "right"}
    assert (one.bring_up[0], one.layout.first_up) == (other.bring_up[0], other.layout.first_up)
    assert run.slots[0].sides == (run.slots[0],), "who is alone has one side"


def test_a_pair_is_measured_on_each_of_its_generations_of_workers_in_one_bring_up() -> None:
    """Reload by reload, each so often as the point says; what is alone, and another point, once. The record has it all."""
    points = [make_point("ceiling", rate_rps=None, generations=3, repeats=2), make_point()]
    shape = Shape({"baseline-again": 2}, frozenset({"ceiling", "rate-1000"}))
    made = make_plan([("baseline", None)], points, 2, reference=None, shape=shape)
    for block in (1, 2):
        mine = [slot for slot in made.slots if slot.block == block and slot.layout is not None]
        assert [(slot.reload, slot.repeat) for slot in mine if slot.point.name == "ceiling"] == [
            (reload, repeat) for reload in range(3) for repeat in range(2)
        ]
        assert len(list(groupby(mine, key=lambda slot: slot.point.name))) == 2, "those of one point stand together"
        assert len([slot for slot in mine if slot.point.name == "rate-1000"]) == 1
        assert len({slot.bring_up for slot in mine}) == 1 and len({slot.cells for slot in mine}) == 7
    assert {slot.reload for slot in made.slots if slot.layout is None} == {0}
    assert made.reloads == 2 * 2 * 2
    assert made_record("run-1", made).plan() == made
    assert len({slot.sample_id(1) for slot in made.slots}) == len(made.slots)


@pytest.mark.parametrize("seed", range(5))
def test_a_point_in_fewer_blocks_has_its_chances_half_and_half_too(seed: int) -> None:
    ceiling, rate = make_point("ceiling", rate_rps=None, generations=3), make_point("rate")
    shape = Shape({"keepalive": 16}, frozenset({"ceiling", "rate"}), fewer={("keepalive", "rate"): 9})
    made = plan_samples(list_arms([("keepalive", "baseline")], None), [ceiling, rate], 16, seed, shape)
    mine = [slot for slot in made.slots if slot.layout]
    assert Counter(slot.point.name for slot in mine) == {"ceiling": 48, "rate": 9}
    rates = [slot.layout for slot in mine if slot.layout and slot.point.name == "rate"]
    for drawn in CHANCES:
        assert sorted(Counter(getattr(one, drawn) for one in rates).values()) == [4, 5], drawn
    bring_ups = {(slot.block, slot.layout.side, slot.layout.first_up) for slot in mine if slot.layout}
    assert len(bring_ups) == 16, "of one bring-up every point has the same sides"


def bring_ups(run: Plan) -> dict[tuple[str, str], list[list[str]]]:
    """(arm, beside whom or empty) → of each bring-up the points in their order."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    for (_, arm, other, _), slots in groupby(run.slots, key=lambda slot: slot.bring_up):
        found.setdefault((arm, other), []).append([name for name, _ in groupby(slot.point.name for slot in slots)])
    return found


def is_even(orders: list[list[str]]) -> bool:
    """Whether each of the points is first equally often, within one."""
    firsts = Counter({name: 0 for order in orders for name in order} | Counter(order[0] for order in orders))
    return max(firsts.values()) - min(firsts.values()) <= 1


@FEW
@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 2**31), st.booleans())
def test_over_whole_designs_each_point_follows_each_other_equally_often(
    size: int, designs: int, seed: int, beside: bool
) -> None:
    points = [make_point(f"p{number}") for number in range(size)]
    blocks = designs * (size if size % 2 == 0 else 2 * size)
    shape = Shape({"keepalive": blocks}, frozenset(point.name for point in points)) if beside else None
    run = make_plan([("keepalive", "baseline")], points, blocks, seed, None, shape)
    for orders in bring_ups(run).values():
        follows = Counter(pair for order in orders for pair in pairwise(order))
        assert len(follows) == size * (size - 1) and set(follows.values()) == {blocks // size}


@FEW
@given(st.integers(1, 4), st.integers(6, 13), st.integers(0, 2**31), st.booleans())
def test_in_a_run_with_pairs_each_arm_begins_with_each_point_equally_often(
    size: int, blocks: int, seed: int, closed: bool
) -> None:
    """Solo samples are in two blocks, the pair that guards in six; an arm's pairs and solo samples together are even, too."""
    points = [make_point(f"p{number}", rate_rps=None if closed else 1000.0) for number in range(size)]
    arms = list_arms([("keepalive", "baseline"), ("backlog", "baseline")], "direct")
    run = plan_samples(arms, points, blocks, seed, choose_shape(arms, points, blocks, SIDES))
    ups = bring_ups(run)
    assert ups["keepalive", "baseline"] and all(is_even(orders) for orders in ups.values())
    for arm in ("keepalive", "backlog"):
        assert is_even(ups[arm, ""] + ups[arm, "baseline"])
    for block in range(1, blocks + 1):
        solo = (slot for slot in run.slots if slot.block == block and not slot.against and slot.arm.role != "reference")
        assert len({tuple(each.point.name for each in own) for _, own in groupby(solo, key=lambda slot: slot.arm)}) <= 1


def test_a_pair_is_one_bring_up_of_both_sides_together_and_what_is_measured_on_one_counts_it_once() -> None:
    arms, points = list_arms([("keepalive", "baseline")], None), [make_point("rate")]
    planned = plan_samples(arms, points, 6, 1, choose_shape(arms, points, 6, SIDES))
    slot = next(slot for slot in planned.slots if slot.layout is not None)
    pair = [make_sample(**of_slot(side) | {"bring_up_s": 2.0}) for side in slot.sides]
    alone = make_sample(arm="baseline", bring_up_s=3.0)
    failed = make_sample(arm="other", bring_up_s=None)
    assert sorted(list_bring_ups_s([*pair, alone, failed])) == [3.0, 4.0]
    twice = [make_sample(order=order, bring_up_s=2.0) for order in (1, 2)]
    begun_anew = make_sample(order=1, generation=1, bring_up_s=5.0)
    assert sorted(list_bring_ups_s([*twice, begun_anew])) == [2.0, 5.0]
