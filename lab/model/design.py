"""The design of a run: the decision what is measured how often, made before the first sample by rules that need no measurement.

`--plan` prints the `Design`, and `run.json` stores it. In every block (repetition), each variant and its baseline are measured
at once, as a pair. The baseline is also paired with itself, as often as the noise floor (A/A) needs. A solo sample measures one
variant alone. Solo samples give the absolute values in a few blocks; where pairs cannot show the effect, all blocks have solo
samples. The numbers of blocks and worker generations are chosen in `lab/experiments/bench`. This module does not
know how long anything takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from lab.base.validation import Record
from lab.model.metrics import find_metric
from lab.model.pairs import SIDES, Scheme, Side
from lab.model.plan import Arm, ArmAndPoint, Plan, Shape
from lab.model.sweeps import LoadPoint
from lab.stats.paired import MIN_BLOCKS

UNKNOWN = "what its own A/A pairs will show: how much an outcome varies is not known beforehand"
"""The text in place of detectable effects for loads whose outcome has a unit of its own."""
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
SHARED = "its cost can lie in what a pair shares: the solo samples decide"
"""The reason why solo samples decide for a variant whose cost can lie in what both sides of a pair share."""
STORED_SHARED = "its cost can lie in what a pair shares: what the arms were alone leads"
"""The words of `SHARED` in runs that were stored before December 2026."""
LATENCY = "it is about latency, which slices do not show, and no load of the sweep has a rate"
NO_PAIR = "nothing is paired: the target has one place, or there are too few blocks"


class PlannedFor(Record):
    """The effect that a run is to detect, from which its number of blocks (repetitions) was computed.

    It is fixed before the first sample. `effect` is a fraction (0.05 = 5 %), `power` the probability of detecting it.
    """

    effect: float = Field(description="as a fraction: 0.05 = 5 %")
    metric: str = Field(description="the metric that needs the most blocks")
    point: str = Field(description="the load point where it needs them")
    asked: str | None = Field(description="the metric that was named; null = the variants' own primary ones")
    power: float = Field(description="the probability that such an effect is claimed")
    from_run: str = Field(description="whose A/A pairs said how noisy it is here")


class Promise(Record):
    """The smallest effect that a run is expected to detect in one metric at one load point.

    It is fixed before the first sample. `effect` is a fraction (0.05 = 5 %), which is detected with 90 % probability.
    """

    metric: str
    point: str
    sd: float = Field(description="of one block's log-ratio: the upper 80 % limit of what was measured before")
    effect: float = Field(description="as a fraction: found with 90 % probability at the first step of Holm's method")


class PlannedPlace(Record):
    """The planned measurements of one arm (a variant in a run) at one load point, either alone or at once with another arm."""

    arm: str
    against: str = Field(description="the arm on the other side of a pair; empty = by itself")
    point: str
    blocks: tuple[int, ...] = Field(description="in which it is measured")
    generations: int = Field(description="of workers, in each of these blocks")
    solo_decides: str = Field(
        default="",
        description="of a variant by itself: why its effect is that of these samples; empty = that of its pair",
    )

    @field_validator("solo_decides")
    @classmethod
    def _read_stored_reason(cls, reason: str) -> str:
        """Replace the old wording of a reason, which older versions of the lab stored, by its present wording."""
        return SHARED if reason == STORED_SHARED else reason


@dataclass(frozen=True, slots=True)
class PlannedAnew:
    """The extra starts of systems that a plan is certain to need, besides those at the beginning of each block (repetition).

    A block measures every variant once, normally on one start per system. Some loads are known from earlier runs to leave
    the system unusable for the next load, so that it must be started again.

    Attributes:
        count: The number of extra starts.
        loads: The loads after which the system is started again, each as "VARIANT at POINT".
        runs: The names of the earlier runs that show the need for these starts.

    """

    count: int = 0
    loads: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


class Design(Record):
    """The design of a run, fixed before the first sample: what is measured how often, and which effects it should detect."""

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
        """Return the planned measurement of an arm (a variant in a run) at a load point; None if there is none.

        Args:
            arm: The name of the arm.
            point: The name of the load point.
            paired: Whether to return the measurement in a pair (two arms at once) instead of the solo one.

        """
        matches = (place for place in self.places if (place.arm, place.point) == (arm, point))
        return next((place for place in matches if bool(place.against) is paired), None)


def derive_design(plan: Plan, solo: Mapping[ArmAndPoint, str], systems: Collection[str], **fields: Any) -> Design:
    """Return the design of a run, which summarizes its plan: how often each variant is measured at each load, and how.

    Args:
        plan: The plan, a list of single measurements: solo ones, and pairs of two variants at once.
        solo: (arm, point) → the reason why the effect is computed from solo samples there (`find_solo_places`).
            Everywhere else it is computed from pairs.
        systems: The names of the arms (variants in the run) that run another system than the arm they are compared
            with.
        fields: Further fields of `Design` that do not follow from the plan, such as `promised`.

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
    """Return for which arms and load points the effect is computed from solo samples, with the reason in words.

    A solo sample measures one arm alone, a pair measures two arms at once. A pair does not show a cost that lies in
    what both arms share, such as the network stack. At all other points the effect is computed from pairs.
    `LoadPoint.why_alone`, which rules out pairs at a point altogether, is not considered here.

    Args:
        arms: The arms (variants in a run).
        points: The load points of the run.
        variants: Name of a variant → (whether its cost can lie in what both sides of a pair share, its primary metric
            or None).
        systems: The names of the arms that run another system than the arm they are compared with.

    Returns:
        (arm, point) → the reason. An arm and point for which the effect is computed from pairs are absent.

    """
    closed = all(point.rate_rps is None for point in points)
    reasons: dict[ArmAndPoint, str] = {}
    for arm in arms:
        for point in points if arm.role == "variant" else ():
            shared, primary = variants[arm.variant]
            rules = {
                CONCURRENT: arm.name in systems and point.concurrent,
                SHARED: shared or point.shared_cost,
                LATENCY: closed and find_metric(primary or "").latency,
            }
            if reason := next((reason for reason, holds in rules.items() if holds), None):
                reasons[arm.name, point.name] = reason
    return reasons


def choose_scheme(
    shared_cost: bool, point: LoadPoint, sides: Sequence[Side], other_system: bool = False
) -> Scheme | None:
    """Return how a variant and its baseline are loaded at a point when both run at once, as a pair; None if no pair can decide.

    If no pair can decide, the effect is computed from solo samples, which measure one variant alone.

    Args:
        shared_cost: Whether the variant's cost can lie in what both sides of a pair share.
        point: The load point.
        sides: The sides ("left", "right") on which the target can run a system; fewer than two allow no pair.
        other_system: Whether the variant runs another system than its baseline.

    Returns:
        "slices" (the sides run in alternating time slices), "together" (both run at once), or None.

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
    """Return in how many blocks each arm is measured in a pair (two arms at once), and in how many solo (one at a time).

    Args:
        arms: The arms (variants in a run).
        points: The load points of the run.
        blocks: The number of blocks (repetitions of all arms).
        sides: The sides ("left", "right") on which the target can run a system; fewer than two allow no pair.
        solo: (arm, point) → the reason why solo samples decide there. If the reason is `CONCURRENT`, no pair is
            measured.
        unpaired: The names of the variants that must not run while another variant runs.
        once: The number of blocks for the pairs at a point with a single worker generation, in a run where other points
            have several generations (worker processes between two reloads). None = all blocks.

    Returns:
        The numbers of blocks; None where no pair is measured. Then every arm is measured solo in every block.

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
