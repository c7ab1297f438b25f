"""Variants × points × blocks → the ordered list of samples. Pure: the same seed gives the same order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.base.errors import UsageError
from lab.model.pairs import SIDES, Layout
from lab.model.sweeps import Point

AGAIN = "-again"
"""Suffix of the baseline's second name in the A/A pair."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One bring-up per block: a variant under a name, and the arm it is compared with (None = nothing)."""

    name: str
    variant: str
    role: ArmRole
    baseline: str | None


@dataclass(frozen=True, slots=True)
class Slot:
    """One planned measurement: a sample of an arm alone, or one of each side of a pair (`layout` None: alone)."""

    order: int
    block: int
    arm: Arm
    point: Point
    against: Arm | None = None
    """The arm on a pair's other side."""
    layout: Layout | None = None
    reload: int = 0
    """Of a pair: which generation of workers it is measured on, by the reloads of both sides since they came up."""
    repeat: int = 0
    """Which measurement of that generation."""

    @property
    def bring_up(self) -> tuple[int, str, str, str]:
        """Slots of one bring-up: block, arm, against which one, and, as a disturbance leaves a system changed, the point of one."""
        return self.block, self.arm.name, self.other, self.point.name if self.point.disturbance is not None else ""

    @property
    def other(self) -> str:
        """The name of the arm on the other side; empty = it is alone."""
        return self.against.name if self.against else ""

    @property
    def turned(self) -> Slot:
        """A pair's other side."""
        assert self.against is not None and self.layout is not None, "only a pair has two sides"
        return replace(self, arm=self.against, against=self.arm, layout=self.layout.turned)

    @property
    def sides(self) -> tuple[Slot, ...]:
        """Of a pair both; else itself."""
        return (self, self.turned) if self.against else (self,)

    def sample_id(self, attempt: int, generation: int = 0) -> str:
        """Folder name: order, block, arm, point; `generation` counts re-measured blocks, `attempt` re-measurements."""
        beside = f"-beside-{self.other}" if self.other else ""
        again = f"-g{generation}" if generation else ""
        retry = f"-try{attempt}" if attempt > 1 else ""
        more = (f"-reload{self.reload}" if self.reload else "") + (f"-repeat{self.repeat}" if self.repeat else "")
        return f"{self.order:04d}-b{self.block:02d}-{self.arm.name}{beside}-{self.point.name}{more}{again}{retry}"


@dataclass(frozen=True, slots=True)
class Plan:
    arms: tuple[Arm, ...]
    points: tuple[Point, ...]
    blocks: int
    seed: int
    slots: tuple[Slot, ...]

    @property
    def measuring_s(self) -> float:
        """Warm-up and measuring, without bring-ups."""
        return sum(slot.point.warmup_s + slot.point.duration_s for slot in self.slots)

    @property
    def reloads(self) -> int:
        """Of both sides of pairs, which wait for each other."""
        return len(
            {(slot.bring_up, slot.reload, side.arm.name) for slot in self.slots if slot.reload for side in slot.sides}
        )

    @property
    def bring_ups(self) -> int:
        """A pair is one: its sides come up side by side."""
        return len({slot.bring_up for slot in self.slots})


def arms_for(variants: Sequence[tuple[str, str | None]], reference: str | None) -> tuple[Arm, ...]:
    """The run's arms from (variant, its baseline) pairs, in the order asked for.

    Each baseline is measured with its variants, and a second time under another name; a variant without
    a baseline is its own baseline. A baseline that itself is asked for is not measured thrice. UsageError when a
    variant has the name of such a second measurement.
    """
    arms: dict[str, Arm] = {}
    baselines: dict[str, None] = {}
    for name, baseline in variants:
        if baseline is not None and baseline != name:
            arms[name] = Arm(name, name, "variant", baseline)
        baselines.setdefault(baseline or name)
    for name in baselines:
        own = arms.get(name)  # a baseline of one variant that is itself a variant with a baseline
        arms[name] = own or Arm(name, name, "baseline", None)
        if name + AGAIN in arms:
            fault = f"is what the second measurement of '{name}' is called in a run"
            raise UsageError(name + AGAIN, fault, "rename the overlay, or measure it apart from its baseline")
        arms[name + AGAIN] = Arm(name + AGAIN, name, "again", name)
    if reference is not None and all(arm.variant != reference for arm in arms.values()):
        arms[reference] = Arm(reference, reference, "reference", None)
    return tuple(arms.values())


Place = tuple[str, str]
"""Arm, point."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a run's blocks hold. `pairs`: arm → in how many it is paired with its baseline, at `points`. `alone`: in how many it is
    measured alone; left out: in all. `generations`: of workers that a pair is measured on; left out: as many as the point asks for.
    `fewer`: in how many of its blocks a pair is measured at a point; left out: in all.
    """

    pairs: Mapping[str, int] = field(default_factory=dict[str, int])
    points: frozenset[str] = frozenset()
    alone: Mapping[Place, int] = field(default_factory=dict[Place, int])
    generations: Mapping[Place, int] = field(default_factory=dict[Place, int])
    fewer: Mapping[Place, int] = field(default_factory=dict[Place, int])


def plan(arms: Sequence[Arm], points: Sequence[Point], blocks: int, seed: int, shape: Shape | None = None) -> Plan:
    """Split plot: in every block each arm comes up once, in shuffled order, and inside it every point runs once, shuffled.

    The reference arm is block 0, at every point once, before the others. Where a `shape` asks for pairs, each is one bring-up more; which
    arm has which side, which comes up and which runs first is half and half over its blocks. Which blocks, where not all, is drawn by lot.
    A pair at a point that asks for several generations of workers is measured on each of them, in its one bring-up.
    """
    shape, lots = shape or Shape(), random.Random(seed)
    some = lots.sample(range(1, blocks + 1), blocks) if shape.alone else []
    paired = {
        name: _layouts(
            lots, blocks, {point: shape.fewer.get((name, point), count) for point in sorted(shape.points)}, count
        )
        for name, count in shape.pairs.items()
    }
    slots: list[Slot] = []
    for block in range(blocks + 1):
        units: list[tuple[Arm, Arm | None]] = [(arm, None) for arm in arms if (arm.role == "reference") == (block == 0)]
        units += [(arm, _named(arms, arm.baseline)) for arm in arms if block in paired.get(arm.name, ())]
        for arm, against in lots.sample(units, len(units)):
            asked = {
                point.name: shape.generations.get((arm.name, point.name), point.generations)
                for point in points
                if against and point.name in shape.points
            }
            for point, reload, repeat in _measurements(lots, points, asked):
                if against is None:
                    count = shape.alone.get((arm.name, point.name), blocks)
                    if block == 0 or count == blocks or block in some[:count]:
                        slots.append(Slot(len(slots) + 1, block, arm, point))
                elif (layout := paired[arm.name][block].get(point.name)) is not None:
                    slots.append(Slot(len(slots) + 1, block, arm, point, against, layout, reload, repeat))
    return Plan(tuple(arms), tuple(points), blocks, seed, tuple(slots))


def _measurements(
    lots: random.Random, points: Sequence[Point], asked: Mapping[str, int]
) -> Iterator[tuple[Point, int, int]]:
    """(point, generation, repeat) of one bring-up: in each generation the points that ask for it, shuffled, each so often as it says.

    `asked`: point → generations, of those that are measured as a pair.
    """
    for reload in range(max(asked.values(), default=1)):
        for point in lots.sample(list(points), len(points)):
            if reload < asked.get(point.name, 1):
                yield from ((point, reload, repeat) for repeat in range(point.repeats if point.name in asked else 1))


def _named(arms: Sequence[Arm], name: str | None) -> Arm | None:
    return next(arm for arm in arms if arm.name == name)


def _layouts(lots: random.Random, blocks: int, counts: Mapping[str, int], most: int) -> dict[int, dict[str, Layout]]:
    """Block → point → how its pair is laid out. `counts`: in how many blocks each point is measured, of `most` that have the pair at all."""
    chosen = sorted(lots.sample(range(1, blocks + 1), min(most, blocks)))

    def halves(of: Sequence[int]) -> list[bool]:
        """One for each block, as many of one kind as of the other."""
        return lots.sample([bool(at % 2) for at in range(len(of))], len(of))

    side, first_up = (dict(zip(chosen, halves(chosen), strict=True)) for _ in range(2))
    found: dict[int, dict[str, Layout]] = {block: {} for block in chosen}
    for name, count in counts.items():
        mine = chosen if count >= len(chosen) else _half_and_half(lots, side, first_up, count)
        for block, first_slice, longer in zip(mine, halves(mine), halves(mine), strict=True):
            found[block][name] = Layout(
                side=SIDES[side[block]],
                first_up=SIDES[first_up[block]],
                first_slice=SIDES[first_slice],
                longer=longer,
            )
    return found


TRIES = 100
"""Draws of which the most even one is taken."""


def _half_and_half(
    lots: random.Random, side: Mapping[int, bool], first_up: Mapping[int, bool], count: int
) -> list[int]:
    """So many blocks by lot, not all, as many with one side as with the other, and as many in which one came up first."""
    some, others = ([block for block, own in side.items() if own is kind] for kind in (True, False))
    drawn = [lots.sample(some, count // 2) + lots.sample(others, count - count // 2) for _ in range(TRIES)]
    return sorted(min(drawn, key=lambda blocks: abs(2 * sum(first_up[block] for block in blocks) - count)))


ArmRole = Literal["variant", "baseline", "again", "reference"]

TAKES_S = 3.5
"""For forecasts: it measures for a second, and waits for two."""
