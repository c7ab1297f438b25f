"""The design of a run: the decisions before its first sample, and the rules for them that need no measurement.

`--plan` prints the `Design`, and `run.json` stores it. Each variant is paired with its baseline in every block, and the baseline with
itself as often as the A/A noise floor needs. Solo samples give the absolute values in a few blocks; where they decide, they are in all
blocks. The numbers of blocks and worker generations are chosen in `lab/experiments/bench/design.py`. This module does not know how long
anything takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from lab.base.validation import Record
from lab.model.metrics import find_metric
from lab.model.pairs import SIDES, Scheme, Side
from lab.model.plan import Arm, ArmAndPoint, Plan, Shape
from lab.model.sweeps import LoadPoint
from lab.stats.paired import MIN_BLOCKS

ABSOLUTE_VALUE_BLOCKS = 2
"""The number of blocks with solo samples for the absolute values."""
SHOWN_PAIR_BLOCKS = 3
"""The number of blocks with a pair where solo samples decide and the pair's effect is only shown in addition."""
NOISE_FLOOR_BLOCKS = MIN_BLOCKS
"""The number of blocks in which an A/A pair (the baseline against itself) is measured for the noise floor.

It is the fewest blocks that give an interval. In each of them the pair is measured on one worker generation.
"""
CONCURRENT = (
    "between different systems a concurrent pair decides nothing, as each changes what the other costs:"
    " the solo samples decide"
)
"""The reason why solo samples decide between systems at an offered rate, in the words of a table.

Both sides of a pair run at the same moment there, on the same CPUs and caches. The same baseline then cost 52 µs a request when it was
paired with itself, and up to 75 µs when paired with another system (data/reference/equal-work). Two arms of one system share code and
slow each other equally.
"""
SHARED = "its cost can lie in what a pair shares: what the arms were alone leads"
LATENCY = "it is about latency, which slices do not show, and no load of the sweep has a rate"
NO_PAIR = "nothing is paired: the target has one place, or there are too few blocks"


class PlannedFor(Record):
    """The effect that the number of blocks was chosen to detect, fixed before the first sample."""

    effect: float = Field(description="as a fraction: 0.05 = 5 %")
    metric: str = Field(description="that wants the most blocks")
    point: str = Field(description="where it does")
    asked: str | None = Field(description="the metric that was named; null = the variants' own primary ones")
    power: float = Field(description="the probability that such an effect is claimed")
    from_run: str = Field(description="whose A/A pairs said how noisy it is here")


class Promise(Record):
    """The minimum detectable effect of a run in one metric at one point, fixed before the first sample."""

    metric: str
    point: str
    sd: float = Field(description="of one block's log-ratio: the upper 80 % limit of what was measured before")
    effect: float = Field(description="as a fraction: found with 90 % probability at the first step of Holm's method")


class PlannedPlace(Record):
    """The planned measurement of an arm at a point, either solo or as one side of a pair."""

    arm: str
    against: str = Field(description="the arm on the other side of a pair; empty = by itself")
    point: str
    blocks: tuple[int, ...] = Field(description="in which it is measured")
    generations: int = Field(description="of workers, in each of these blocks")
    solo_decides: str = Field(
        default="",
        description="of a variant by itself: why its effect is that of these samples; empty = that of its pair",
    )


@dataclass(frozen=True, slots=True)
class PlannedAnew:
    """The additional starts of a system (fresh bring-ups) within blocks that a plan is certain to need.

    Attributes:
        count: The number of fresh bring-ups.
        loads: The loads that are followed by a fresh bring-up, each as "variant at point".
        runs: The stored runs that show the need for them.

    """

    count: int = 0
    loads: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


class Design(Record):
    """The measurements of a run and the effects that it is expected to detect, decided before the first sample."""

    blocks: int
    places: tuple[PlannedPlace, ...] = Field(description="what is measured where; of a search its first trial")
    systems: tuple[str, ...] = Field(description="arms that run another system than the arm they are compared with")
    fixed_workers: tuple[str, ...] = Field(
        default=(),
        description="variants of which no reload makes new workers, so that every pair is measured on one generation",
    )
    bring_ups: int = Field(description="a pair's two sides are one")
    fresh: PlannedAnew = Field(
        default=PlannedAnew(),
        description="bring-ups within blocks, after loads that are known to leave too many local ports waiting",
    )
    reloads: int = Field(description="of both sides of pairs")
    duration_s: float = Field(default=0.0, description="without what is measured again; 0 = not recorded")
    planned_for: PlannedFor | None = Field(
        default=None, description="what the number of blocks was chosen for; null = it was named, or the sweep's"
    )
    promised: tuple[Promise, ...] = Field(default=(), description="what it was planned to find")
    promised_by: str = Field(default="", description="what that is known from, or why nothing is promised")
    taught_by: tuple[str, ...] = Field(
        default=(), description="earlier runs whose noise and bring-ups it goes by, the newest first"
    )

    def place(self, arm: str, point: str, paired: bool) -> PlannedPlace | None:
        """Return the planned measurement of an arm at a point, as a pair's first side or solo; None without one."""
        matches = (place for place in self.places if (place.arm, place.point) == (arm, point))
        return next((place for place in matches if bool(place.against) is paired), None)


def derive_design(plan: Plan, solo: Mapping[ArmAndPoint, str], systems: Collection[str], **fields: Any) -> Design:
    """Return the design that follows from a plan's slots (planned measurements).

    Args:
        plan: The plan.
        solo: The places where solo samples decide, and the reason, as `find_solo_places` returns them.
        systems: The arms that run another system than the arm they are compared with.
        fields: The fields of the design that no slot shows.

    """
    measured: dict[tuple[str, str, str], dict[int, int]] = {}
    for slot in plan.slots:
        generations = measured.setdefault((slot.arm.name, slot.other, slot.point.name), {})
        generations[slot.block] = max(generations.get(slot.block, 0), slot.reload + 1)
    paired = {(arm, point) for arm, against, point in measured if against}
    reasons = {
        (arm.name, "", point.name): point.why_alone
        or solo.get((arm.name, point.name), "" if (arm.name, point.name) in paired else NO_PAIR)
        for arm in plan.arms
        if arm.role == "variant"
        for point in plan.points
    }
    return Design(
        blocks=plan.blocks,
        places=tuple(
            PlannedPlace(
                arm=place[0],
                against=place[1],
                point=place[2],
                blocks=tuple(by_block),
                generations=max(by_block.values()),
                solo_decides=reasons.get(place, ""),
            )
            for place, by_block in measured.items()
        ),
        systems=tuple(arm.name for arm in plan.arms if arm.name in systems),
        bring_ups=plan.bring_ups,
        reloads=plan.reloads,
        **fields,
    )


def find_solo_places(
    arms: Sequence[Arm],
    points: Sequence[LoadPoint],
    variants: Mapping[str, tuple[bool, str | None]],
    systems: Collection[str] = (),
) -> dict[ArmAndPoint, str]:
    """Return the reason why solo samples, not pairs, decide a variant's effect, by arm and point; absent = pairs do.

    The property of a point that it supports no pairing (`LoadPoint.why_alone`) is not among these reasons.

    Args:
        arms: The arms of the run.
        points: The points of the run.
        variants: By name, whether the variant can have a shared-resource cost (one that lies in what both sides of a pair share), and
            its primary metric.
        systems: The arms that run another system than the arm they are compared with.

    """
    closed = all(point.rate_rps is None for point in points)
    reasons: dict[ArmAndPoint, str] = {}
    for arm in arms:
        for point in points if arm.role == "variant" else ():
            shared, primary = variants[arm.variant]
            reason = CONCURRENT if arm.name in systems and point.concurrent else ""
            reason = reason or (SHARED if shared or point.shared_cost else "")
            if reason := reason or (LATENCY if closed and find_metric(primary or "").latency else ""):
                reasons[arm.name, point.name] = reason
    return reasons


def choose_scheme(
    shared_cost: bool, point: LoadPoint, sides: Sequence[Side], other_system: bool = False
) -> Scheme | None:
    """Return the pairing scheme by which a variant's effect is measured; None where the solo samples decide.

    Args:
        shared_cost: Whether the variant can have a shared-resource cost.
        point: The load point.
        sides: The sides that the target has; fewer than two allow no pair.
        other_system: Whether the variant runs another system than its baseline.

    """
    shared = shared_cost or point.shared_cost or (other_system and point.concurrent)
    return None if shared or point.why_alone or len(sides) < len(SIDES) else point.scheme


def choose_shape(
    arms: Sequence[Arm],
    points: Sequence[LoadPoint],
    blocks: int,
    sides: Sequence[Side],
    solo: Mapping[ArmAndPoint, str] | None = None,
    unpaired: Collection[str] = (),
    once: int | None = None,
) -> Shape | None:
    """Return the numbers of blocks in which each arm is measured as a pair and solo (with the machine to itself).

    Args:
        arms: The arms of the run.
        points: The points of the run.
        blocks: The number of blocks.
        sides: The sides that the target has; fewer than two allow no pair.
        solo: The places where solo samples decide, and the reason; where it is `CONCURRENT` no pair is measured.
        unpaired: The variants that allow no other variant to be up at the same time.
        once: The number of blocks of a point with a single generation, in a run where other points have several; None = all blocks.

    Returns:
        None where every arm is solo in every block. Then nothing can be paired, or there are too few blocks for an effect, and no point
        compares several worker generations.

    """
    pairable = [point for point in points if not point.why_alone]
    several = any(point.generations > 1 or point.repeats > 1 for point in pairable)
    if len(sides) < len(SIDES) or not pairable or (blocks < MIN_BLOCKS and not several):
        return None
    solo = solo or {}
    undecided = {place for place, reason in solo.items() if reason == CONCURRENT}
    variant_of: dict[str | None, str] = {arm.name: arm.variant for arm in arms}
    variant_arms = [arm for arm in arms if arm.role == "variant" and arm.baseline is not None]
    pairs: dict[str, int] = {}
    for arm in variant_arms:
        places = [(arm.name, point.name) for point in pairable]
        if {arm.variant, variant_of[arm.baseline]}.isdisjoint(unpaired) and not undecided.issuperset(places):
            pairs[arm.name] = min(blocks, SHOWN_PAIR_BLOCKS) if all(place in solo for place in places) else blocks
    only_baseline = not pairs and not undecided
    null = any(variant_of[arm.baseline] == arm.variant for arm in variant_arms)
    floor_blocks = blocks if (several and only_baseline) or null else min(blocks, NOISE_FLOOR_BLOCKS)
    users = {arm.baseline for arm in arms if pairs.get(arm.name, 0) > SHOWN_PAIR_BLOCKS}
    again_arms = [arm for arm in arms if arm.role == "again" and arm.variant not in unpaired]
    pairs |= {arm.name: floor_blocks for arm in again_arms if only_baseline or arm.baseline in users}
    if not pairs:
        return None
    solo_decides = {*solo, *((arm.baseline, point) for arm in arms for name, point in solo if name == arm.name)}
    alone: dict[ArmAndPoint, int] = {}
    generations: dict[ArmAndPoint, int] = {}
    fewer: dict[ArmAndPoint, int] = {}
    for arm in arms:
        paired_with = [tried.name for tried in variant_arms if tried.name in pairs and tried.baseline == arm.baseline]
        for point in pairable:
            place = arm.name, point.name
            if arm.role != "reference":
                alone[place] = (
                    blocks
                    if place in solo_decides
                    else 0
                    if arm.role == "again"
                    else min(blocks, ABSOLUTE_VALUE_BLOCKS)
                )
            if arm.role == "again" and point.generations > 1 and not only_baseline:
                generations[place] = 1
            if once is not None and once < pairs.get(arm.name, 0) and several and point.generations == 1:
                fewer[place] = once
            concerned = paired_with if arm.role == "again" else [arm.name]
            if arm.name in pairs and concerned and all((name, point.name) in undecided for name in concerned):
                fewer[place] = 0
    return Shape(pairs, frozenset(point.name for point in pairable), alone, generations, fewer)
