"""The ordered list of measurements of a run, from variants, points and blocks; the same seed gives the same order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.base.errors import UsageError
from lab.model.pairs import SIDES, Layout
from lab.model.sweeps import LoadPoint

AGAIN = "-again"
"""The suffix of the baseline's second name in the A/A pair."""
SAMPLE_OVERHEAD_S = 0.6
"""The approximate seconds of a sample besides warm-up and load: canaries, starting the generator, storing."""
ROUNDTRIP_S = 3.5
"""The seconds of the bare network's round trip, which goes with the reference: 1 s of measuring, 2 s of waiting."""
RELOAD_S = 0.15
"""The approximate seconds of a reload of one side, until only its new workers serve."""
TRIES = 100
"""The number of random draws of which the most even one is used."""
ArmRole = Literal["variant", "baseline", "again", "reference"]
"""The role of an arm; `again` is the baseline's second measurement, for the A/A pair."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A variant under the name by which a run measures it; a block may bring it up solo, and again for each pair.

    Attributes:
        name: The name in the run; it differs from the variant's for the A/A arm.
        variant: The name of the variant.
        role: The role in the run.
        baseline: The name of the arm that this one is compared with; None = nothing.

    """

    name: str
    variant: str
    role: ArmRole
    baseline: str | None


CellKey = tuple[int, str, str, str, int, int]
"""The key of a single measurement: block, arm, point, the arm on a pair's other side or empty, generation, repeat."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A planned measurement: a solo sample of an arm, or one sample of each side of a pair."""

    order: int
    """The position in the plan, from 1."""
    block: int
    """The number of the block, from 1."""
    arm: Arm
    """The arm that is measured; of a pair, the arm on this side."""
    point: LoadPoint
    against: Arm | None = None
    """The arm on a pair's other side; None = solo."""
    layout: Layout | None = None
    """The layout of a pair; None = solo."""
    reload: int = 0
    """The generation of workers that a pair's point is measured on; 0 = those already running (`needs_reload`)."""
    repeat: int = 0
    """The number of the measurement on that generation, from 0."""

    @property
    def bring_up(self) -> tuple[int, str, str, str]:
        """The key that planned measurements on one bring-up (one start of a system) share.

        It has the block, the arm, the arm on a pair's other side or empty, and the name of a point with an outcome or empty. A disruption leaves
        a system changed, and streams of events leave memory that is counted, so such a point has a bring-up to itself.
        """
        return self.block, self.arm.name, self.other, self.point.name if self.point.has_outcome else ""

    @property
    def other(self) -> str:
        """The name of the arm on the other side of a planned pair; empty for a solo measurement."""
        return self.against.name if self.against else ""

    @property
    def turned(self) -> Slot:
        """This planned measurement of a pair as seen from the pair's other side: both arms and the layout swapped."""
        assert self.against is not None and self.layout is not None, "only a pair has two sides"
        return replace(self, arm=self.against, against=self.arm, layout=self.layout.turned)

    @property
    def sides(self) -> tuple[Slot, ...]:
        """The planned measurements (slots) of both sides of a pair, or this slot alone if it is solo."""
        return (self, self.turned) if self.against else (self,)

    @property
    def cells(self) -> tuple[CellKey, ...]:
        """The keys of a slot's measurements: one for a solo slot, two for a pair, first that of `arm`."""
        return tuple(
            (side.block, side.arm.name, side.point.name, side.other, side.reload, side.repeat) for side in self.sides
        )

    def sample_id(self, attempt: int, generation: int = 0) -> str:
        """Return the id of a sample, which is its folder's name: order, block, arm, point.

        Args:
            attempt: The number of the measurement, from 1; re-measurements count up.
            generation: How often the block was begun anew.

        """
        pair = f"-beside-{self.other}" if self.other else ""
        again = f"-g{generation}" if generation else ""
        retry = f"-try{attempt}" if attempt > 1 else ""
        numbers = (f"-reload{self.reload}" if self.reload else "") + (f"-repeat{self.repeat}" if self.repeat else "")
        return f"{self.order:04d}-b{self.block:02d}-{self.arm.name}{pair}-{self.point.name}{numbers}{again}{retry}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurements of a run in order, and the inputs that they were planned from."""

    arms: tuple[Arm, ...]
    points: tuple[LoadPoint, ...]
    blocks: int
    seed: int
    slots: tuple[Slot, ...]

    @property
    def reloads(self) -> int:
        """The number of reloads that a plan has between its measurements; both sides of a pair count."""
        before: dict[tuple[int, str, str, str], Slot] = {}
        count = 0
        for slot in self.slots:
            count += needs_reload(slot, before.get(slot.bring_up)) * len(slot.sides)
            before[slot.bring_up] = slot
        return count

    @property
    def bring_ups(self) -> int:
        """The number of bring-ups (starts of a system) in a plan; the two sides of a pair count as one."""
        return len({slot.bring_up for slot in self.slots})

    def lasts_s(self, bring_up_s: float) -> float:
        """Return the forecast of the run's length in seconds, without repeated measurements.

        Args:
            bring_up_s: The seconds of one bring-up.

        """
        loads_s = sum(slot.point.warmup_s + slot.point.duration_s for slot in self.slots)
        lasts_s = loads_s + self.bring_ups * bring_up_s + len(self.slots) * SAMPLE_OVERHEAD_S
        lasts_s += self.reloads * RELOAD_S
        return lasts_s + ROUNDTRIP_S * any(arm.role == "reference" for arm in self.arms)


def needs_reload(slot: Slot, before: Slot | None) -> bool:
    """Return whether the proxy must reload before a slot, so that new worker processes serve it.

    The first worker generation of a point consists of the workers that are already running.

    Args:
        slot: The slot to measure.
        before: The slot measured before it in its bring-up; None = it is the first.

    """
    return slot.reload > 0 and (before is None or slot.reload != before.reload)


def list_arms(variants: Sequence[tuple[str, str | None]], reference: str | None) -> tuple[Arm, ...]:
    """Return the run's arms in the requested order.

    Each baseline is measured with its variants, and a second time under another name (the A/A pair). A variant without
    a baseline is its baseline itself. A baseline that is also a requested variant is not measured three times.

    Args:
        variants: Pairs of a variant and its baseline (None = it has none).
        reference: The variant of the direct reference; None = none.

    Raises:
        UsageError: A variant has the name of a baseline's second measurement.

    """
    arms: dict[str, Arm] = {}
    baselines: dict[str, None] = {}
    for name, baseline in variants:
        if baseline is not None and baseline != name:
            arms[name] = Arm(name, name, "variant", baseline)
        baselines.setdefault(baseline or name)
    for name in baselines:
        arm = arms.get(name)  # a baseline of one variant that is itself a variant with a baseline
        arms[name] = arm or Arm(name, name, "baseline", None)
        if name + AGAIN in arms:
            fault = f"is what the second measurement of '{name}' is called in a run"
            raise UsageError(name + AGAIN, fault, "rename the overlay, or measure it apart from its baseline")
        arms[name + AGAIN] = Arm(name + AGAIN, name, "again", name)
    if reference is not None and all(arm.variant != reference for arm in arms.values()):
        arms[reference] = Arm(reference, reference, "reference", None)
    return tuple(arms.values())


ArmAndPoint = tuple[str, str]
"""The names of an arm and a point."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a run's blocks in which each arm is measured as a pair and solo (with the machine to itself).

    Attributes:
        pairs: The number of blocks in which an arm is paired with its baseline, by arm.
        points: The points at which pairs are measured.
        alone: The number of blocks in which an arm is measured solo, by arm and point; absent = all.
        generations: The number of worker generations that a pair is measured on, by arm and point; absent = as many as the point has.
        fewer: The number of a pair's blocks in which it is measured at a point, by arm and point; absent = all.

    """

    pairs: Mapping[str, int] = field(default_factory=dict[str, int])
    points: frozenset[str] = frozenset()
    alone: Mapping[ArmAndPoint, int] = field(default_factory=dict[ArmAndPoint, int])
    generations: Mapping[ArmAndPoint, int] = field(default_factory=dict[ArmAndPoint, int])
    fewer: Mapping[ArmAndPoint, int] = field(default_factory=dict[ArmAndPoint, int])


def plan_samples(
    arms: Sequence[Arm], points: Sequence[LoadPoint], blocks: int, seed: int, shape: Shape | None = None
) -> Plan:
    """Plan the measurements of a run as a split plot with randomized, counterbalanced orders.

    In every block each arm comes up once, in shuffled order. Inside the bring-up every point is measured, but each disrupted point has
    a bring-up to itself. Solo arms have the same order of points within a block. That order, like the order of each pair, is drawn from
    Williams squares (`williams_squares`). The worker
    generations and the repeats of one point follow each other directly: each later point begins on the workers that are already
    running. The reference arm is measured in the first, the middle and the last block.

    Each pair that a `shape` requests is one more bring-up. Which arm has which side, which side comes up first and which runs first is half
    and half over its blocks. If a pair is not in all blocks, its blocks are randomized.

    Args:
        arms: The arms.
        points: The load points.
        blocks: The number of blocks.
        seed: The seed of all random choices.
        shape: The content of the blocks; None = every arm solo, at every point of every block.

    """
    shape, rng = shape or Shape(), random.Random(seed)
    block_order = rng.sample(range(1, blocks + 1), blocks)
    layouts = {
        name: _draw_layouts(
            rng, blocks, {point: shape.fewer.get((name, point), count) for point in sorted(shape.points)}, count
        )
        for name, count in shape.pairs.items()
    }
    measured = {
        arm.name: {
            block: frozenset(point.name for point in points if shape.alone.get((arm.name, point.name), blocks) > index)
            for index, block in enumerate(block_order)
        }
        for arm in arms
        if arm.role != "reference"
    }
    names = [point.name for point in points]
    solo = _draw_solo_orders(rng, names, measured)
    # the reference has several blocks so that a drift shows in it
    reference_blocks = sorted({1, (blocks + 1) // 2, blocks}) if blocks else list[int]()
    reference = dict(zip(reference_blocks, draw_orders(rng, names, len(reference_blocks)), strict=True))
    pair_orders = {
        name: _draw_pair_orders(rng, names, by_block, solo, measured[name]) for name, by_block in layouts.items()
    }
    points_by_name = {point.name: point for point in points}
    arms_by_name: dict[str | None, Arm] = {arm.name: arm for arm in arms}
    slots: list[Slot] = []
    for block in range(1, blocks + 1):
        units: list[tuple[Arm, Arm | None]] = [
            (arm, None) for arm in arms if arm.role != "reference" or block in reference_blocks
        ]
        units += [(arm, arms_by_name[arm.baseline]) for arm in arms if block in layouts.get(arm.name, ())]
        for arm, against in rng.sample(units, len(units)):
            if against is None:
                order = reference[block] if arm.role == "reference" else solo[block]
                for name in order:
                    if arm.role == "reference" or name in measured[arm.name][block]:
                        slots.append(Slot(len(slots) + 1, block, arm, points_by_name[name]))
                continue
            for name in pair_orders[arm.name][block]:
                point, layout = points_by_name[name], layouts[arm.name][block][name]
                for reload in range(shape.generations.get((arm.name, name), point.generations)):
                    for repeat in range(point.repeats):
                        slots.append(Slot(len(slots) + 1, block, arm, point, against, layout, reload, repeat))
    return Plan(tuple(arms), tuple(points), blocks, seed, tuple(slots))


def _draw_solo_orders(
    rng: random.Random, names: Sequence[str], measured: Mapping[str, Mapping[int, frozenset[str]]]
) -> dict[int, tuple[str, ...]]:
    """Draw the order of points of all solo arms, by block.

    Blocks in which every arm has the same points are balanced together. Where an arm has only a part of its block's points, `TRIES` orders
    are drawn, and the one whose first points are most evenly distributed for such arms is used.

    Args:
        rng: The source of random numbers.
        names: The names of all points.
        measured: The points of each arm in each block, by arm and block.

    """
    groups: dict[tuple[frozenset[str], ...], list[int]] = {}
    for block in next(iter(measured.values()), {}):
        groups.setdefault(tuple(by_block[block] for by_block in measured.values()), []).append(block)
    orders: dict[int, tuple[str, ...]] = {}
    firsts: Counter[str] = Counter()
    for sets, blocks in groups.items():
        selected = [name for name in names if any(name in arm_points for arm_points in sets)]
        if not selected:
            orders |= dict.fromkeys(blocks, ())
            continue
        partial = {arm_points for arm_points in sets if 1 < len(arm_points) < len(selected)}
        draws = [draw_orders(rng, selected, len(blocks), firsts) for _ in range(TRIES if partial else 1)]
        best = min(draws, key=lambda draw: max((_unevenness(draw, arm_points) for arm_points in partial), default=0))
        orders |= dict(zip(blocks, best, strict=True))
        firsts.update(order[0] for order in best)
    return orders


def _unevenness(orders: Sequence[Sequence[str]], names: frozenset[str]) -> int:
    """Return how unevenly the first place is distributed among some points: the largest count less the smallest.

    Args:
        orders: The orders of points.
        names: The points that count; all others in an order are skipped.

    """
    firsts = Counter(next(name for name in order if name in names) for order in orders)
    return max(firsts[name] for name in names) - min(firsts[name] for name in names)


def _draw_pair_orders(
    rng: random.Random,
    names: Sequence[str],
    layouts: Mapping[int, Mapping[str, Layout]],
    solo: Mapping[int, Sequence[str]],
    measured: Mapping[int, frozenset[str]],
) -> dict[int, tuple[str, ...]]:
    """Draw the order of a pair's points, by block.

    Together with the solo samples of its arm, each point is first equally often.

    Args:
        rng: The source of random numbers.
        names: The names of all points.
        layouts: The layout of the pair, by block and point.
        solo: The order of all solo samples, by block.
        measured: The points at which the pair's arm has solo samples, by block.

    """
    arm_orders = ([name for name in order if name in measured[block]] for block, order in solo.items())
    firsts = Counter(order[0] for order in arm_orders if order)
    groups: dict[tuple[str, ...], list[int]] = {}
    for block, by_point in layouts.items():
        groups.setdefault(tuple(name for name in names if name in by_point), []).append(block)
    orders: dict[int, tuple[str, ...]] = {}
    for selected, blocks in groups.items():
        drawn = draw_orders(rng, selected, len(blocks), firsts) if selected else [()] * len(blocks)
        orders |= dict(zip(blocks, drawn, strict=True))
        firsts.update(order[0] for order in drawn if order)
    return orders


def _draw_layouts(
    rng: random.Random, blocks: int, counts: Mapping[str, int], pair_blocks: int
) -> dict[int, dict[str, Layout]]:
    """Draw the layouts of one pair, by block and point.

    A layout is the choice which side each arm has, and which side is first. A point may be measured in fewer blocks than the pair has.
    Then the pair's arm has the left side in half of these blocks and the right side in the other half. The side that comes up first is
    balanced in the same way, as far as the draws allow.

    Args:
        rng: The source of random numbers.
        blocks: The number of blocks of the run.
        counts: The number of blocks in which each point is measured.
        pair_blocks: The number of blocks that have the pair at all.

    """
    chosen = sorted(rng.sample(range(1, blocks + 1), min(pair_blocks, blocks)))

    def halves(items: Sequence[int]) -> list[bool]:
        """Return a random flag for each block, half of them True."""
        return rng.sample([bool(index % 2) for index in range(len(items))], len(items))

    side, first_up = (dict(zip(chosen, halves(chosen), strict=True)) for _ in range(2))
    layouts: dict[int, dict[str, Layout]] = {block: {} for block in chosen}
    for name, count in counts.items():
        point_blocks = chosen
        if count < len(chosen):
            right, left = ([block for block in chosen if side[block] is kind] for kind in (True, False))
            drawn = [rng.sample(right, count // 2) + rng.sample(left, count - count // 2) for _ in range(TRIES)]
            uneven = [abs(2 * sum(first_up[block] for block in draw) - count) for draw in drawn]
            point_blocks = sorted(drawn[uneven.index(min(uneven))])
        for block, first_slice, longer in zip(point_blocks, halves(point_blocks), halves(point_blocks), strict=True):
            layouts[block][name] = Layout(
                side=SIDES[side[block]],
                first_up=SIDES[first_up[block]],
                first_slice=SIDES[first_slice],
                longer=longer,
            )
    return layouts


def williams_squares(size: int) -> list[list[tuple[int, ...]]]:
    """Return the Latin squares of a Williams design for `size` points: one for an even size, two for an odd one.

    The leftovers of a load may change what the next point shows. In such a design (Williams 1949, Australian Journal of Scientific
    Research A 2:149) they affect every point alike, and an effect of the previous point can be separated from the rest. Over all rows each
    point is in each position equally often, and directly follows each other point equally often.

    The first row is 0, 1, n-1, 2, n-2, ...; each later row adds one to it, modulo n. The second square has the rows of the first one
    backwards.
    """
    steps = [(index + 1) // 2 if index % 2 else -(index // 2) for index in range(size)]
    square = [tuple((row + step) % size for step in steps) for row in range(size)]
    return [square, [row[::-1] for row in square]] if size % 2 and size > 1 else [square]


def draw_orders(
    rng: random.Random, names: Sequence[str], count: int, firsts: Mapping[str, int] | None = None
) -> list[tuple[str, ...]]:
    """Draw `count` random orders of the names from Williams designs.

    Complete designs come first, as far as they go, then rows of another square. The rows of one square begin with different names, so
    that the numbers of times that names are first differ by one at most.

    Args:
        rng: The source of random numbers.
        names: The names.
        count: The number of orders.
        firsts: How often each name was first elsewhere. The rows of an incomplete square begin with the names that were first least often.

    """
    first_counts, orders = Counter(firsts), list[tuple[str, ...]]()
    while len(orders) < count:
        labels = rng.sample(names, len(names))
        squares = williams_squares(len(names))
        for square in rng.sample(squares, len(squares)):
            rows = [tuple(labels[index] for index in row) for row in rng.sample(square, len(square))]
            rows.sort(key=lambda row: first_counts[row[0]])  # stable: among equals the draw decides
            orders += rows[: count - len(orders)]
    return rng.sample(orders, len(orders))
