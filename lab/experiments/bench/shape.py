"""What each block of a run holds: pairs where they can be had, and arms alone for what a pair cannot tell.

The pair of each variant with its baseline in every block; the pair of the baseline with itself as often as its guard needs; plain samples for
the levels in a few blocks, and in all of them where a cost can lie in what a pair shares. Refuses to know how long anything takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.model.pairs import SIDES, Scheme, Side
from lab.model.plan import Arm, Shape
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.stats.paired import MIN_BLOCKS

LEVELS = 2
"""Blocks whose plain samples give the levels."""
GUARD = MIN_BLOCKS
"""Blocks whose A/A pair guards: the fewest with an interval."""


def shape_of(
    arms: Sequence[Arm], points: Sequence[Point], variants: Mapping[str, Variant], blocks: int, sides: Sequence[Side]
) -> Shape | None:
    """None: every arm is alone, in every block, as nothing here can be paired. `variants`: by name."""
    bearing = [point for point in points if not point.why_alone]
    if len(sides) < len(SIDES) or not bearing:
        return None
    nulls = {arm.name for arm in arms if arm.role == "variant" and _is_null(arm, arms)}
    pairs = {
        arm.name: min(blocks, GUARD) if arm.role == "again" and not nulls else blocks
        for arm in arms
        if arm.baseline is not None
    }
    shared = {arm.name for arm in arms if arm.role == "variant" and variants[arm.variant].shared_cost}
    shared |= {arm.baseline for arm in arms if arm.name in shared and arm.baseline}
    alone = {
        (arm.name, point.name): _alone(arm, point, blocks, arm.name in shared)
        for arm in arms
        for point in bearing
        if arm.role != "reference"
    }
    return Shape(pairs, frozenset(point.name for point in bearing), alone)


def schemes_of(variant: Variant, points: Sequence[Point], sides: Sequence[Side]) -> Mapping[str, Scheme | None]:
    """Point → how the variant's effect is come by there; None where the arms alone lead."""
    alone = variant.shared_cost or len(sides) < len(SIDES)
    return {point.name: None if alone or point.shared_cost or point.why_alone else point.scheme for point in points}


def _alone(arm: Arm, point: Point, blocks: int, shared: bool) -> int:
    if arm.role == "again":
        return 0
    return blocks if shared or point.shared_cost else min(blocks, LEVELS)


def _is_null(arm: Arm, arms: Sequence[Arm]) -> bool:
    """Whether it is compared with its own variant."""
    return any(other.name == arm.baseline and other.variant == arm.variant for other in arms)
