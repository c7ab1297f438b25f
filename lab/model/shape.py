"""What each block of a run holds: pairs where they can be had, and arms alone for what a pair cannot tell.

The pair of each variant with its baseline in every block; the pair of the baseline with itself as often as its guard needs; arms alone for
the levels in a few blocks, and in all of them where they lead. Refuses to know how long anything takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lab.model.metrics import METRICS
from lab.model.pairs import SIDES, Scheme, Side
from lab.model.plan import Arm, Place, Shape
from lab.model.sweeps import Point
from lab.model.systems import runs_concurrently
from lab.stats.paired import MIN_BLOCKS

LEVELS = 2
"""Blocks whose plain samples give the levels."""
BESIDE = 3
"""Blocks with a pair whose effect only stands beside that of the arms alone."""
GUARD = MIN_BLOCKS
"""Blocks whose A/A pair guards, on one generation of workers each: the fewest with an interval."""


def shape_of(
    arms: Sequence[Arm],
    points: Sequence[Point],
    blocks: int,
    sides: Sequence[Side],
    leading: Collection[Place] = (),
    unpaired: Collection[str] = (),
    once: int | None = None,
    undecided: Collection[Place] = (),
) -> Shape | None:
    """None: every arm is alone, in every block, as nothing here can be paired, or so few blocks tell no effect anyway (but what several
    generations of workers differ by).

    `leading`: where an arm's own effect leads, alone. `unpaired`: variants of which no other can be up beside them. `once`: the blocks of
    what is measured once in each, where others are measured on several generations of workers; None: all. `undecided`: where a pair would
    decide nothing and is not measured (`lab.model.systems`); part of `leading`.
    """
    bearing = [point for point in points if not point.why_alone]
    several = any(point.generations > 1 or point.repeats > 1 for point in bearing)
    if len(sides) < len(SIDES) or not bearing or (blocks < MIN_BLOCKS and not several):
        return None
    pairs: dict[str, int] = {}
    variants = {arm.name: arm.variant for arm in arms}
    for arm in arms:
        if (
            arm.role == "variant"
            and arm.baseline is not None
            and not {arm.variant, variants[arm.baseline]} & {*unpaired}
        ):
            if all((arm.name, point.name) in undecided for point in bearing):
                continue
            beside = all((arm.name, point.name) in leading for point in bearing)
            pairs[arm.name] = min(blocks, BESIDE) if beside else blocks
    itself = not pairs and not undecided
    guards = blocks if (several and itself) or any(_is_null(arm, arms) for arm in arms) else min(blocks, GUARD)
    users = {arm.baseline for arm in arms if pairs.get(arm.name, 0) > BESIDE}
    guarded = (arm for arm in arms if arm.role == "again" and arm.variant not in unpaired)
    pairs |= {arm.name: guards for arm in guarded if itself or arm.baseline in users}
    if not pairs:
        return None
    bases = {(arm.baseline, point) for arm in arms for name, point in leading if name == arm.name}
    counts = {"again": 0, "baseline": min(blocks, LEVELS), "variant": min(blocks, LEVELS)}
    alone = {
        (arm.name, point.name): blocks if (arm.name, point.name) in {*leading, *bases} else counts[arm.role]
        for arm in arms
        for point in bearing
        if arm.role != "reference"
    }
    generations = {
        (arm.name, point.name): 1
        for arm in arms
        for point in bearing
        if not itself and arm.role == "again" and point.generations > 1
    }
    fewer = {
        (name, point.name): once
        for name, count in pairs.items()
        for point in bearing
        if once is not None and once < count and several and point.generations == 1
    }
    paired_with = {arm.name: arm.baseline for arm in arms if arm.role == "variant" and arm.name in pairs}
    fewer |= dict.fromkeys((place for place in undecided if place[0] in pairs), 0)
    fewer |= {
        (arm.name, point.name): 0
        for arm in arms
        for point in bearing
        if arm.role == "again" and arm.name in pairs
        if (users := [name for name, base in paired_with.items() if base == arm.baseline])
        if all((name, point.name) in undecided for name in users)
    }
    return Shape(pairs, frozenset(point.name for point in bearing), alone, generations, fewer)


def leads_alone(shared_cost: bool, primary: str | None, point: Point, points: Sequence[Point]) -> bool:
    """Whether a variant's effect at a point is that of the arms alone: its cost lies in what a pair shares, or it is about latency, which
    slices do not tell, in a sweep without a rate.
    """
    closed = all(other.rate_rps is None for other in points)
    return shared_cost or point.shared_cost or (closed and primary in METRICS and METRICS[primary or ""].latency)


def scheme_of(shared_cost: bool, point: Point, sides: Sequence[Side], other_system: bool = False) -> Scheme | None:
    """How a variant's effect is come by; None where the arms alone lead. `other_system`: than what it is compared with."""
    alone = (
        shared_cost
        or (other_system and runs_concurrently(point))
        or len(sides) < len(SIDES)
        or point.shared_cost
        or bool(point.why_alone)
    )
    return None if alone else point.scheme


def leading(
    arms: Sequence[Arm],
    points: Sequence[Point],
    variants: Mapping[str, tuple[bool, str | None]],
    undecided: Collection[Place] = (),
) -> frozenset[Place]:
    """Where an arm's effect is its own alone. `variants`: name → whether its cost is shared, its primary metric. `undecided`: where a pair
    would decide nothing.
    """
    return frozenset(undecided) | frozenset(
        (arm.name, point.name)
        for arm in arms
        if arm.role == "variant"
        for point in points
        if leads_alone(*variants[arm.variant], point, points)
    )


def _is_null(arm: Arm, arms: Sequence[Arm]) -> bool:
    """Whether it is compared with its own variant."""
    return arm.role == "variant" and any(other.name == arm.baseline and other.variant == arm.variant for other in arms)
