"""The plan: which arms, and the split-plot order, as properties."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.model.plan import AGAIN, Plan, arms_for, plan
from lab.tests.support.factories import make_plan, make_point

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


def described(variants: list[tuple[str, str | None]], reference: str | None = "direct") -> list[str]:
    """Each arm as `name: role of variant [against baseline]`."""
    return [
        f"{arm.name}: {arm.role} of {arm.variant}" + (f" against {arm.baseline}" if arm.baseline else "")
        for arm in arms_for(variants, reference)
    ]


def test_a_root_is_measured_twice() -> None:
    assert described([("baseline", None)]) == [
        "baseline: baseline of baseline",
        "baseline-again: again of baseline against baseline",
        "direct: reference of direct",
    ]


def test_a_variant_brings_its_baseline_twice() -> None:
    assert described([("keepalive", "baseline")], None) == [
        "keepalive: variant of keepalive against baseline",
        "baseline: baseline of baseline",
        "baseline-again: again of baseline against baseline",
    ]


def test_two_variants_share_a_baseline_even_when_it_is_asked_for_too() -> None:
    want = [
        "keepalive: variant of keepalive against baseline",
        "backlog: variant of backlog against baseline",
        "baseline: baseline of baseline",
        "baseline-again: again of baseline against baseline",
    ]
    assert described([("keepalive", "baseline"), ("backlog", "baseline")], None) == want
    assert described([("keepalive", "baseline"), ("baseline", None), ("backlog", "baseline")], None) == want


@pytest.mark.parametrize("swap", [False, True])
def test_a_baseline_that_is_a_variant_asked_for_is_measured_twice_not_thrice(swap: bool) -> None:
    pairs: list[tuple[str, str | None]] = [("v2", "v1"), ("v1", "root")]
    arms = described(pairs[::-1] if swap else pairs, None)
    assert sorted(arms) == [
        "root-again: again of root against root",
        "root: baseline of root",
        "v1-again: again of v1 against v1",
        "v1: variant of v1 against root",
        "v2: variant of v2 against v1",
    ]


def test_a_variant_asked_for_twice_is_measured_once() -> None:
    assert described([("keepalive", "baseline")] * 3) == described([("keepalive", "baseline")])


def test_a_reference_that_is_measured_anyway_is_not_measured_once_more() -> None:
    assert described([("direct", None)]) == described([("direct", None)], None)
    assert "direct: reference of direct" not in described([("nginx", "direct")])


def test_every_baseline_is_an_arm_and_has_its_a_a_arm() -> None:
    arms = {arm.name: arm for arm in arms_for([("v3", "v2"), ("v2", "v1"), ("w", "root"), ("root", None)], "direct")}
    for arm in arms.values():
        if arm.baseline is not None:
            assert arms[arm.baseline].variant == arm.baseline
            assert arms[arm.baseline + AGAIN].role == "again"


def test_a_variant_with_the_name_of_an_a_a_arm_is_refused() -> None:
    """It would have taken the A/A arm's place, or lost its own, without a word."""
    with pytest.raises(UsageError, match="second measurement of 'baseline'"):
        arms_for([("baseline-again", "baseline")], None)
    with pytest.raises(UsageError, match="rename the overlay"):
        arms_for([("x", "x-again"), ("x-again", None), ("y", "x")], None)


@given(plans)
def test_each_block_measures_each_arm_once_in_one_piece(run: Plan) -> None:
    expected = sorted(arm.name for arm in run.arms if arm.role != "reference")
    for block in range(1, run.blocks + 1):
        pieces = [name for name, _ in groupby(slot.arm.name for slot in run.slots if slot.block == block)]
        assert sorted(pieces) == expected
    assert run.bring_ups == run.blocks * len(expected) + len(run.arms) - len(expected)


@given(plans)
def test_each_point_is_measured_once_per_arm_and_block(run: Plan) -> None:
    cells = [(slot.block, slot.arm.name, slot.point.name) for slot in run.slots]
    assert len(cells) == len(set(cells))
    measured = [arm.name for arm in run.arms if arm.role != "reference"]
    wanted = {(b, a, p.name) for b in range(1, run.blocks + 1) for a in measured for p in run.points}
    assert {cell for cell in cells if cell[0] > 0} == wanted


@given(plans)
def test_the_reference_is_measured_once_before_everything_else(run: Plan) -> None:
    first = [slot for slot in run.slots if slot.arm.role == "reference"]
    wanted = len(run.points) if any(arm.role == "reference" for arm in run.arms) else 0
    assert len(first) == wanted
    assert first == list(run.slots[:wanted])
    assert all((slot.block == 0) == (slot in first) for slot in run.slots)


@given(plans)
def test_blocks_follow_each_other_and_orders_count_up(run: Plan) -> None:
    assert [slot.order for slot in run.slots] == list(range(1, len(run.slots) + 1))
    assert [slot.block for slot in run.slots] == sorted(slot.block for slot in run.slots)
    ids = {slot.sample_id(attempt, again) for slot in run.slots for attempt in (1, 2, 3) for again in (0, 1)}
    assert len(ids) == 6 * len(run.slots), "no two samples share a folder"


@given(plans)
def test_the_same_seed_gives_the_same_order(run: Plan) -> None:
    assert plan(run.arms, run.points, run.blocks, run.seed) == run


def test_other_seeds_give_other_orders() -> None:
    orders = {make_plan(seed=seed).slots for seed in range(20)}
    assert len(orders) == 20


def test_no_arm_has_a_fixed_place() -> None:
    """Over many blocks every arm comes first about equally often: drift inside a block hits all alike."""
    run = make_plan([("a", "root"), ("b", "root")], [make_point()], blocks=400, reference=None)
    first = [next(slot.arm.name for slot in run.slots if slot.block == block) for block in range(1, 401)]
    assert all(70 <= first.count(arm.name) <= 130 for arm in run.arms)


def test_the_time_to_measure_is_warm_up_and_duration_of_every_slot() -> None:
    run = make_plan(points=[make_point(duration_s=5.0, warmup_s=1.0)], blocks=6, reference="direct")
    assert run.measuring_s == pytest.approx((6 * 3 + 1) * 6.0)
