"""What is decided of a run before its first sample: the `Design` that `--plan` prints and `run.json` keeps, and the rules that need no measurement.

Each variant is paired with its baseline in every block, the baseline with itself as often as its guard needs. Solo samples give the
absolute values in a few blocks; where they decide, they are in all of them. How many blocks and generations of workers a run has is
decided in `lab/experiments/bench/design.py`. Refuses to know how long anything takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from lab.base.validation import Record
from lab.model.metrics import about
from lab.model.pairs import SIDES, Scheme, Side
from lab.model.plan import Arm, Place, Plan, Shape
from lab.model.sweeps import Point
from lab.stats.paired import MIN_BLOCKS

LEVELS = 2
"""Blocks whose plain samples give the levels."""
BESIDE = 3
"""Blocks with a pair whose effect only stands beside that of the arms alone."""
GUARD = MIN_BLOCKS
"""Blocks whose A/A pair guards, on one generation of workers each: the fewest with an interval."""
CONCURRENT = (
    "between different systems a concurrent pair decides nothing, as each changes what the other costs:"
    " the solo samples decide"
)
"""Why solo samples decide between systems at an offered rate, as a table says it.

Both sides of a pair run at the same moment there, on the same CPUs and caches. The same baseline then cost 52 µs a request beside itself
and up to 75 µs beside another system (data/reference/equal-work), while two arms of one system share code and disturb each other alike.
"""
SHARED = "its cost can lie in what a pair shares: what the arms were alone leads"
LATENCY = "it is about latency, which slices do not show, and no load of the sweep has a rate"
NO_PAIR = "nothing is paired: the target has one place, or there are too few blocks"


class PlannedFor(Record):
    """Why a run has the number of blocks that it has: which effect it was to find, fixed before its first sample."""

    effect: float = Field(description="as a fraction: 0.05 = 5 %")
    metric: str = Field(description="that wants the most blocks")
    point: str = Field(description="where it does")
    asked: str | None = Field(description="the metric that was named; null = the variants' own primary ones")
    power: float = Field(description="the probability that such an effect is claimed")
    from_run: str = Field(description="whose A/A pairs said how noisy it is here")


class Promise(Record):
    """What a run was planned to find in one metric at one point, and by which scatter; fixed before its first sample."""

    metric: str
    point: str
    sd: float = Field(description="of one block's log-ratio: the upper 80 % limit of what was measured before")
    effect: float = Field(description="as a fraction: found with 90 % probability at the first step of Holm's method")


class PlannedPlace(Record):
    """An arm at a point: by itself, or as one side of a pair."""

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
    """The fresh bring-ups that a plan's loads make certain: how many, "variant at point" of each load after which there is one, and the
    stored runs that show it.
    """

    count: int = 0
    loads: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


class Design(Record):
    """What a run measures and what it is expected to show, decided before its first sample."""

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
        """Return how an arm is measured at a point: as a pair's first side, or by itself. None: not so."""
        fitting = (one for one in self.places if (one.arm, one.point) == (arm, point))
        return next((one for one in fitting if bool(one.against) is paired), None)


def design_of(plan: Plan, solo: Mapping[Place, str], systems: Collection[str], **more: Any) -> Design:
    """Return the design that a plan's slots show. `solo`: as `solo_places` tells; `systems`: the arms that run another system than the arm
    they are compared with; `more`: fields that no slot shows.
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
                blocks=tuple(found),
                generations=max(found.values()),
                solo_decides=reasons.get(place, ""),
            )
            for place, found in measured.items()
        ),
        systems=tuple(arm.name for arm in plan.arms if arm.name in systems),
        bring_ups=plan.bring_ups,
        reloads=plan.reloads,
        **more,
    )


def solo_places(
    arms: Sequence[Arm],
    points: Sequence[Point],
    variants: Mapping[str, tuple[bool, str | None]],
    systems: Collection[str] = (),
) -> dict[Place, str]:
    """Return the places at which a variant's effect is that of its solo samples, with the reason; those that no pair can bear aside.

    `variants`: name → whether its cost can lie in what a pair shares, and its primary metric; `systems`: as in `design_of`.
    """
    closed = all(point.rate_rps is None for point in points)
    found: dict[Place, str] = {}
    for arm in arms:
        for point in points if arm.role == "variant" else ():
            shared, primary = variants[arm.variant]
            why = CONCURRENT if arm.name in systems and point.concurrent else ""
            why = why or (SHARED if shared or point.shared_cost else "")
            if why := why or (LATENCY if closed and about(primary or "").latency else ""):
                found[arm.name, point.name] = why
    return found


def scheme_of(shared_cost: bool, point: Point, sides: Sequence[Side], other_system: bool = False) -> Scheme | None:
    """How a variant's effect is come by; None where the arms alone lead. `other_system`: than what it is compared with."""
    shared = shared_cost or point.shared_cost or (other_system and point.concurrent)
    return None if shared or point.why_alone or len(sides) < len(SIDES) else point.scheme


def shape_of(
    arms: Sequence[Arm],
    points: Sequence[Point],
    blocks: int,
    sides: Sequence[Side],
    solo: Mapping[Place, str] | None = None,
    unpaired: Collection[str] = (),
    once: int | None = None,
) -> Shape | None:
    """None: every arm is alone, in every block, as nothing here can be paired, or so few blocks tell no effect anyway (but what several
    generations of workers differ by).

    `solo`: where an arm's own effect leads, alone, and why; where the reason is CONCURRENT a pair is not measured. `unpaired`: variants of
    which no other can be up beside them. `once`: the blocks of what is measured once in each, where others are measured on several
    generations of workers; None: all.
    """
    bearing = [point for point in points if not point.why_alone]
    several = any(point.generations > 1 or point.repeats > 1 for point in bearing)
    if len(sides) < len(SIDES) or not bearing or (blocks < MIN_BLOCKS and not several):
        return None
    solo = solo or {}
    undecided = {place for place, why in solo.items() if why == CONCURRENT}
    variant_of: dict[str | None, str] = {arm.name: arm.variant for arm in arms}
    tried = [arm for arm in arms if arm.role == "variant" and arm.baseline is not None]
    pairs: dict[str, int] = {}
    for arm in tried:
        places = [(arm.name, point.name) for point in bearing]
        if {arm.variant, variant_of[arm.baseline]}.isdisjoint(unpaired) and not undecided.issuperset(places):
            pairs[arm.name] = min(blocks, BESIDE) if all(place in solo for place in places) else blocks
    itself = not pairs and not undecided
    null = any(variant_of[arm.baseline] == arm.variant for arm in tried)
    guards = blocks if (several and itself) or null else min(blocks, GUARD)
    users = {arm.baseline for arm in arms if pairs.get(arm.name, 0) > BESIDE}
    guarded = [arm for arm in arms if arm.role == "again" and arm.variant not in unpaired]
    pairs |= {arm.name: guards for arm in guarded if itself or arm.baseline in users}
    if not pairs:
        return None
    led = {*solo, *((arm.baseline, point) for arm in arms for name, point in solo if name == arm.name)}
    alone: dict[Place, int] = {}
    generations: dict[Place, int] = {}
    fewer: dict[Place, int] = {}
    for arm in arms:
        paired_with = [one.name for one in tried if one.name in pairs and one.baseline == arm.baseline]
        for point in bearing:
            place = arm.name, point.name
            if arm.role != "reference":
                alone[place] = blocks if place in led else 0 if arm.role == "again" else min(blocks, LEVELS)
            if arm.role == "again" and point.generations > 1 and not itself:
                generations[place] = 1
            if once is not None and once < pairs.get(arm.name, 0) and several and point.generations == 1:
                fewer[place] = once
            concerned = paired_with if arm.role == "again" else [arm.name]
            if arm.name in pairs and concerned and all((name, point.name) in undecided for name in concerned):
                fewer[place] = 0
    return Shape(pairs, frozenset(point.name for point in bearing), alone, generations, fewer)
