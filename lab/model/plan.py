"""Variants × points × blocks → the ordered list of samples. Pure: the same seed gives the same order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.base.errors import UsageError
from lab.model.pairs import SIDES, Layout
from lab.model.sweeps import Point

AGAIN = "-again"
"""Suffix of the baseline's second name in the A/A pair."""
SAMPLE_OVERHEAD_S = 0.6  # canaries, starting the generator, storing
ROUNDTRIP_S = 3.5
"""The bare network's round trip beside the reference: it measures for a second, and waits for two."""
RELOAD_S = 0.15
"""Of one side, until its new workers alone serve, about."""
TRIES = 100
"""Draws of which the most even one is taken."""
ArmRole = Literal["variant", "baseline", "again", "reference"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One bring-up per block: a variant under a name, and the arm it is compared with (None = nothing)."""

    name: str
    variant: str
    role: ArmRole
    baseline: str | None


Cell = tuple[int, str, str, str, int, int]
"""What is measured once: block, arm, point, the arm on a pair's other side or empty, generation of workers, repeat."""


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
    """Of a pair: which generation of workers this point is measured on; 0 = those that are there when it begins (`needs_reload`)."""
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

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of a pair both sides', its own arm's first."""
        return tuple(
            (side.block, side.arm.name, side.point.name, side.other, side.reload, side.repeat) for side in self.sides
        )

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
    def reloads(self) -> int:
        """Of both sides of pairs, which wait for each other."""
        before: dict[tuple[int, str, str, str], Slot] = {}
        count = 0
        for slot in self.slots:
            count += needs_reload(slot, before.get(slot.bring_up)) * len(slot.sides)
            before[slot.bring_up] = slot
        return count

    @property
    def bring_ups(self) -> int:
        """A pair is one: its sides come up side by side."""
        return len({slot.bring_up for slot in self.slots})

    def lasts_s(self, bring_up_s: float) -> float:
        """Return how long all of it takes, without what has to be measured again. `bring_up_s`: of one bring-up."""
        loads_s = sum(slot.point.warmup_s + slot.point.duration_s for slot in self.slots)
        lasts_s = loads_s + self.bring_ups * bring_up_s + len(self.slots) * SAMPLE_OVERHEAD_S
        lasts_s += self.reloads * RELOAD_S
        return lasts_s + ROUNDTRIP_S * any(arm.role == "reference" for arm in self.arms)


def needs_reload(slot: Slot, before: Slot | None) -> bool:
    """Return whether the workers must be renewed for a slot, given the one measured before it in its bring-up (None: none was).

    The first generation of a point is measured on the workers that are there.
    """
    return slot.reload > 0 and (before is None or slot.reload != before.reload)


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
    """Split plot: in every block each arm comes up once, in shuffled order, and inside it every point is measured, in a counterbalanced one.

    Arms that are alone have the same order of points within a block; which order, is drawn by lot from Williams squares
    (`williams_squares`), as it is for each pair. The generations of workers and the repeats of one point stand together: each
    point after the first begins on the workers that are there. The reference arm is measured in the first, the middle and the last block.
    Where a `shape` asks for pairs, each is one bring-up more; which arm has which side, which comes up and which runs first is half and
    half over its blocks. Which blocks, where not all, is drawn by lot.
    """
    shape, lots = shape or Shape(), random.Random(seed)
    some = lots.sample(range(1, blocks + 1), blocks)
    paired = {
        name: _layouts(
            lots, blocks, {point: shape.fewer.get((name, point), count) for point in sorted(shape.points)}, count
        )
        for name, count in shape.pairs.items()
    }
    measured = {
        arm.name: {
            block: frozenset(point.name for point in points if shape.alone.get((arm.name, point.name), blocks) > at)
            for at, block in enumerate(some)
        }
        for arm in arms
        if arm.role != "reference"
    }
    names = [point.name for point in points]
    solo = _solo_orders(lots, names, measured)
    held = sorted({1, (blocks + 1) // 2, blocks}) if blocks else list[int]()  # so that a drift shows in the reference
    reference = dict(zip(held, draw_orders(lots, names, len(held)), strict=True))
    beside = {name: _pair_orders(lots, names, found, solo, measured[name]) for name, found in paired.items()}
    named = {point.name: point for point in points}
    by_name: dict[str | None, Arm] = {arm.name: arm for arm in arms}
    slots: list[Slot] = []
    for block in range(1, blocks + 1):
        units: list[tuple[Arm, Arm | None]] = [(arm, None) for arm in arms if arm.role != "reference" or block in held]
        units += [(arm, by_name[arm.baseline]) for arm in arms if block in paired.get(arm.name, ())]
        for arm, against in lots.sample(units, len(units)):
            if against is None:
                order = reference[block] if arm.role == "reference" else solo[block]
                for name in order:
                    if arm.role == "reference" or name in measured[arm.name][block]:
                        slots.append(Slot(len(slots) + 1, block, arm, named[name]))
                continue
            for name in beside[arm.name][block]:
                point, layout = named[name], paired[arm.name][block][name]
                for reload in range(shape.generations.get((arm.name, name), point.generations)):
                    for repeat in range(point.repeats):
                        slots.append(Slot(len(slots) + 1, block, arm, point, against, layout, reload, repeat))
    return Plan(tuple(arms), tuple(points), blocks, seed, tuple(slots))


def _solo_orders(
    lots: random.Random, names: Sequence[str], measured: Mapping[str, Mapping[int, frozenset[str]]]
) -> dict[int, tuple[str, ...]]:
    """Return block → the order in which every arm that is alone has its points there.

    `measured`: arm → block → its points. Blocks in which every arm has the same points as in others are balanced among these; where an
    arm has only a part of its block's points, of TRIES draws the one is taken in which its first places are most even.
    """
    alike: dict[tuple[frozenset[str], ...], list[int]] = {}
    for block in next(iter(measured.values()), {}):
        alike.setdefault(tuple(own[block] for own in measured.values()), []).append(block)
    orders: dict[int, tuple[str, ...]] = {}
    firsts: Counter[str] = Counter()
    for sets, blocks in alike.items():
        wanted = [name for name in names if any(name in own for own in sets)]
        if not wanted:
            orders |= dict.fromkeys(blocks, ())
            continue
        partial = {own for own in sets if 1 < len(own) < len(wanted)}
        draws = [draw_orders(lots, wanted, len(blocks), firsts) for _ in range(TRIES if partial else 1)]
        best = min(draws, key=lambda drawn: max((_unevenness(drawn, own) for own in partial), default=0))
        orders |= dict(zip(blocks, best, strict=True))
        firsts.update(order[0] for order in best)
    return orders


def _unevenness(orders: Sequence[Sequence[str]], own: frozenset[str]) -> int:
    """Return by how much the most frequent first of these points exceeds the rarest."""
    firsts = Counter(next(name for name in order if name in own) for order in orders)
    return max(firsts[name] for name in own) - min(firsts[name] for name in own)


def _pair_orders(
    lots: random.Random,
    names: Sequence[str],
    found: Mapping[int, Mapping[str, Layout]],
    solo: Mapping[int, Sequence[str]],
    measured: Mapping[int, frozenset[str]],
) -> dict[int, tuple[str, ...]]:
    """Return block → the order of a pair's points there, so that with its arm's own solo samples each is first equally often.

    `found`: block → point → layout. `solo`, `measured`: block → the order of all solo samples, and which of these are the arm's.
    """
    own = ([name for name in order if name in measured[block]] for block, order in solo.items())
    firsts = Counter(order[0] for order in own if order)
    alike: dict[tuple[str, ...], list[int]] = {}
    for block, layouts in found.items():
        alike.setdefault(tuple(name for name in names if name in layouts), []).append(block)
    orders: dict[int, tuple[str, ...]] = {}
    for wanted, blocks in alike.items():
        drawn = draw_orders(lots, wanted, len(blocks), firsts) if wanted else [()] * len(blocks)
        orders |= dict(zip(blocks, drawn, strict=True))
        firsts.update(order[0] for order in drawn if order)
    return orders


def _layouts(lots: random.Random, blocks: int, counts: Mapping[str, int], most: int) -> dict[int, dict[str, Layout]]:
    """Block → point → how its pair is laid out. `counts`: in how many blocks each point is measured, of `most` that have the pair at all.

    Where a point is not in all of these, it is in as many with one side as with the other, and in as many in which one came up first.
    """
    chosen = sorted(lots.sample(range(1, blocks + 1), min(most, blocks)))

    def halves(of: Sequence[int]) -> list[bool]:
        """One for each block, as many of one kind as of the other."""
        return lots.sample([bool(at % 2) for at in range(len(of))], len(of))

    side, first_up = (dict(zip(chosen, halves(chosen), strict=True)) for _ in range(2))
    found: dict[int, dict[str, Layout]] = {block: {} for block in chosen}
    for name, count in counts.items():
        mine = chosen
        if count < len(chosen):
            some, others = ([block for block in chosen if side[block] is kind] for kind in (True, False))
            drawn = [lots.sample(some, count // 2) + lots.sample(others, count - count // 2) for _ in range(TRIES)]
            uneven = [abs(2 * sum(first_up[block] for block in each) - count) for each in drawn]
            mine = sorted(drawn[uneven.index(min(uneven))])
        for block, first_slice, longer in zip(mine, halves(mine), halves(mine), strict=True):
            found[block][name] = Layout(
                side=SIDES[side[block]],
                first_up=SIDES[first_up[block]],
                first_slice=SIDES[first_slice],
                longer=longer,
            )
    return found


def williams_squares(size: int) -> list[list[tuple[int, ...]]]:
    """Return the Latin squares of a Williams design for `size` points: one where their number is even, two where it is odd.

    What a load leaves behind may change what the next point shows. In such a design (Williams 1949, Australian Journal of Scientific
    Research A 2:149) this falls on every point alike, and what depends on the point before can be told from what does not. Over all rows each point stands in each place equally often and directly follows each other point equally often. The first row
    is 0, 1, n-1, 2, n-2, ...; each other row adds one to it, modulo n. The second square has the rows of the first one backwards.
    """
    steps = [(at + 1) // 2 if at % 2 else -(at // 2) for at in range(size)]
    square = [tuple((row + step) % size for step in steps) for row in range(size)]
    return [square, [row[::-1] for row in square]] if size % 2 and size > 1 else [square]


def draw_orders(
    lots: random.Random, names: Sequence[str], count: int, firsts: Mapping[str, int] | None = None
) -> list[tuple[str, ...]]:
    """Draw `count` orders of the names by lot: whole Williams designs as far as they go, then rows of a further square.

    The rows of one square begin with different names, so that each name is first equally often, within one. `firsts`: name → how often it was
    first elsewhere: where rows are left over, those begin with the names that were least.
    """
    seen, orders = Counter(firsts), list[tuple[str, ...]]()
    while len(orders) < count:
        labels = lots.sample(names, len(names))
        squares = williams_squares(len(names))
        for square in lots.sample(squares, len(squares)):
            rows = [tuple(labels[at] for at in row) for row in lots.sample(square, len(square))]
            rows.sort(key=lambda row: seen[row[0]])  # stable: among equals the draw decides
            orders += rows[: count - len(orders)]
    return lots.sample(orders, len(orders))
