"""The ordered list of measurements of a run, from variants, points and blocks; the same seed gives the same order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.base.errors import refuse_if
from lab.base.grouping import group_values
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
    """A variant under the name by which a run measures it.

    In one block (a repetition of all arms) an arm may be measured solo, and again in each pair (two variants at once)
    that it is part of.

    Attributes:
        name: The name in the run. It is the variant's name, except for the baseline's second measurement.
        variant: The name of the variant.
        role: "variant", "baseline", "again" (the baseline's second measurement, for the A/A pair) or "reference" (the
            backend without a proxy).
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
    """A planned measurement: either of one arm (a variant in a run) alone, or of two arms at once (a pair).

    A measurement of one arm gives one sample, a measurement of a pair gives two.
    """

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
        """The key that is equal for all planned measurements on one start of the system.

        Its parts are the number of the block, the arm (a variant in the run), the other arm of a pair (empty if solo),
        and a load point's name. The last part is empty for ordinary points, which share one start. A point with a
        disruption, streams of events or WebSockets needs a fresh system, so its name is part of the key.
        """
        return self.block, self.arm.name, self.other, self.point.name if self.point.has_outcome else ""

    @property
    def other(self) -> str:
        """The name of the arm (a variant in the run) on the other side of a pair; empty if only one arm is measured."""
        return self.against.name if self.against else ""

    @property
    def turned(self) -> Slot:
        """The planned measurement of this pair as seen from the other side: the two variants and the layout are swapped."""
        assert self.against is not None and self.layout is not None, "only a pair has two sides"
        return replace(self, arm=self.against, against=self.arm, layout=self.layout.turned)

    @property
    def sides(self) -> tuple[Slot, ...]:
        """The planned measurement as seen by each of its arms (variants in the run).

        If a single arm is measured, the tuple has only this object. For a pair (two arms at once) it also has `turned`,
        in which the two arms are swapped.
        """
        return (self, self.turned) if self.against else (self,)

    @property
    def cells(self) -> tuple[CellKey, ...]:
        """The keys (`CellKey`) of the samples of this planned measurement: one if a single arm is measured, two for a pair.

        The key of this `arm` comes first.
        """
        return tuple(
            (side.block, side.arm.name, side.point.name, side.other, side.reload, side.repeat) for side in self.sides
        )

    def sample_id(self, attempt: int, generation: int = 0) -> str:
        """Return the id of a sample of this planned measurement, such as `0012-b03-keepalive-closed`; it names a folder.

        The parts are the position in the plan, the block, the arm (a variant in the run) and the load point. Further
        parts are added where they apply: a pair's other arm, and the numbers of reload, repeat, generation and attempt.
        For example, `0012-b03-keepalive-closed-g1-try2` is the second attempt in a block that was started again once.

        Args:
            attempt: The number of the attempt, from 1; a repeated measurement counts up.
            generation: How many times the block (repetition of all measurements) was started again after an
                interruption; 0 = never.

        """
        pair = f"-beside-{self.other}" if self.other else ""
        suffixes = {
            f"-reload{self.reload}": self.reload > 0,
            f"-repeat{self.repeat}": self.repeat > 0,
            f"-g{generation}": generation > 0,
            f"-try{attempt}": attempt > 1,
        }
        end = "".join(suffix for suffix, applies in suffixes.items() if applies)
        return f"{self.order:04d}-b{self.block:02d}-{self.arm.name}{pair}-{self.point.name}{end}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurements of a run in their order, and the inputs that they were planned from."""

    arms: tuple[Arm, ...]
    points: tuple[LoadPoint, ...]
    blocks: int
    seed: int
    slots: tuple[Slot, ...]

    @property
    def reloads(self) -> int:
        """The number of reloads of proxies between this plan's measurements; a reload of both sides of a pair counts twice."""
        before: dict[tuple[int, str, str, str], Slot] = {}
        count = 0
        for slot in self.slots:
            count += needs_reload(slot, before.get(slot.bring_up)) * len(slot.sides)
            before[slot.bring_up] = slot
        return count

    @property
    def bring_ups(self) -> int:
        """The number of starts of systems in this plan; the two systems of a pair start together and count as one start."""
        return len({slot.bring_up for slot in self.slots})

    def lasts_s(self, bring_up_s: float) -> float:
        """Return the expected length of the run in seconds, if no measurement must be repeated.

        Args:
            bring_up_s: The seconds of one start of a system.

        """
        loads_s = sum(slot.point.warmup_s + slot.point.duration_s for slot in self.slots)
        lasts_s = loads_s + self.bring_ups * bring_up_s + len(self.slots) * SAMPLE_OVERHEAD_S + self.reloads * RELOAD_S
        return lasts_s + ROUNDTRIP_S * any(arm.role == "reference" for arm in self.arms)


def needs_reload(slot: Slot, before: Slot | None) -> bool:
    """Return whether the proxy must reload before a planned measurement, so that new worker processes serve it.

    The first measurements at a load point use the workers that are already running. Each further worker generation (the
    workers after a reload) begins with a reload.

    Args:
        slot: The planned measurement.
        before: The previous one on that start of the system; None = `slot` is the first.

    """
    return slot.reload > 0 and (before is None or slot.reload != before.reload)


def list_arms(variants: Sequence[tuple[str, str | None]], reference: str | None) -> tuple[Arm, ...]:
    """Return the arms (variants under the names by which a run measures them): variants, then baselines, then the reference.

    The variants have the requested order. The baselines of all variants are added, each with a second arm that measures
    the baseline again under another name; both arms together are the A/A pair. A variant without a baseline is treated
    as a baseline. A baseline that was also requested as a variant is not added again.

    Args:
        variants: Pairs of a variant's name and its baseline's name (None = it has none).
        reference: The name of the variant without a proxy, for an upper limit; None = no such arm. It gets no further
            arm if it is among the variants or baselines already.

    Raises:
        UsageError: A variant's name is equal to that of a baseline's second measurement (`NAME-again`).

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
        again, fault = name + AGAIN, f"is what the second measurement of '{name}' is called in a run"
        refuse_if(again in arms, again, fault, "rename the overlay, or measure it apart from its baseline")
        arms[again] = Arm(again, name, "again", name)
    if reference is not None and all(arm.variant != reference for arm in arms.values()):
        arms[reference] = Arm(reference, reference, "reference", None)
    return tuple(arms.values())


ArmAndPoint = tuple[str, str]
"""The names of an arm and a point."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of blocks (repetitions) in which a run measures each arm as part of a pair, and in which alone (solo).

    An arm is a variant in a run. A pair is two arms that are measured at once.

    Attributes:
        pairs: Arm → the number of blocks in which it is measured in a pair with its baseline.
        points: The load points at which pairs are measured.
        alone: (arm, point) → the number of blocks with a solo measurement; absent = all blocks.
        generations: (arm, point) → the number of worker generations (workers between two reloads) on which a pair is
            measured; absent = as many as the point defines.
        fewer: (arm, point) → the number of blocks in which the arm's pair is measured at this point, if smaller than in
            `pairs`.

    """

    pairs: Mapping[str, int] = field(default_factory=dict[str, int])
    points: frozenset[str] = frozenset()
    alone: Mapping[ArmAndPoint, int] = field(default_factory=dict[ArmAndPoint, int])
    generations: Mapping[ArmAndPoint, int] = field(default_factory=dict[ArmAndPoint, int])
    fewer: Mapping[ArmAndPoint, int] = field(default_factory=dict[ArmAndPoint, int])


def plan_samples(
    arms: Sequence[Arm], points: Sequence[LoadPoint], blocks: int, seed: int, shape: Shape | None = None
) -> Plan:
    """Plan the measurements of a run in a randomized and balanced order.

    An arm is a variant in the run. The design is a split plot. In every block (a repetition of all arms) each arm
    starts once, in random order. All load points are measured on that start, but each point with a disruption, streams
    of events or WebSockets has a start to itself. Each pair in `shape` is one more start.

    - Within a block, all solo arms except the reference have one order of points. The orders come from Williams squares
      (`williams_squares`).
    - The worker generations and the repeats of one point follow each other directly.
    - The arm without a proxy (the reference) is measured in the first, the middle and the last block only.
    - Over the blocks of a pair, each arm is on either side equally often. Either side starts first equally often, and
      either side runs first equally often.
    - If a pair is measured in fewer than all blocks, these are chosen at random.

    Args:
        arms: The arms.
        points: The load points.
        blocks: The number of blocks.
        seed: The seed of all random choices; an equal seed gives an equal plan.
        shape: How many blocks measure each arm as a pair and solo; None = every arm solo, at every point of every
            block.

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
    """Draw a random order of load points for the solo measurements of each block.

    A block is a repetition of all arms (variants in the run). Orders are balanced over the blocks with equal points. In
    some blocks, an arm has only a part of the points. For these blocks, many sets of orders are drawn (`TRIES`). Used
    is the most balanced set: the one in which each of the arm's points comes first about equally often.

    Args:
        rng: The source of random numbers.
        names: The names of all points.
        measured: The points of each arm in each block: arm → block → points.

    Returns:
        Number of the block → the order of points.

    """
    every_block = next(iter(measured.values()), {})
    groups = group_values((tuple(by_block[block] for by_block in measured.values()), block) for block in every_block)
    orders: dict[int, tuple[str, ...]] = {}
    firsts: Counter[str] = Counter()
    for sets, blocks in groups.items():
        selected = [name for name in names if any(name in arm_points for arm_points in sets)]
        partial = {arm_points for arm_points in sets if 1 < len(arm_points) < len(selected)}
        draws = [draw_orders(rng, selected, len(blocks), firsts) for _ in range(TRIES if partial else 1)]
        best = min(draws, key=lambda draw: max((_unevenness(draw, arm_points) for arm_points in partial), default=0))
        orders |= dict(zip(blocks, best, strict=True))
        firsts.update(order[0] for order in best if order)
    return orders


def _unevenness(orders: Sequence[Sequence[str]], names: frozenset[str]) -> int:
    """Return how unevenly load points come first in several orders; 0 = each point is first equally often.

    The result is a difference: how often the most frequent first point is first, less how often the rarest one is.

    Args:
        orders: The orders of points.
        names: The points to examine. All other points in the orders are ignored.

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
    """Draw a random order of load points for one pair in each of its blocks (repetitions).

    A pair is an arm (variant in the run) and its baseline, measured at once. The arm is also measured alone (solo). As
    far as possible, each point comes first equally often, counted over both kinds of measurements. For example, a point
    that is often first in the solo measurements is less often first in the pair.

    Args:
        rng: The source of random numbers.
        names: The names of all points.
        layouts: Block → point → the layout of the pair (such as its sides). Only the blocks and points are used here:
            they are those in which the pair is measured.
        solo: Block → the order of points in solo measurements, which is the same for all arms.
        measured: Block → the points at which the pair's arm is measured solo. The arm skips all other points of `solo`.

    Returns:
        Number of the block → the order of points.

    """
    arm_orders = ([name for name in order if name in measured[block]] for block, order in solo.items())
    firsts = Counter(order[0] for order in arm_orders if order)
    groups = group_values(
        (tuple(name for name in names if name in by_point), block) for block, by_point in layouts.items()
    )
    orders: dict[int, tuple[str, ...]] = {}
    for selected, blocks in groups.items():
        drawn = draw_orders(rng, selected, len(blocks), firsts)
        orders |= dict(zip(blocks, drawn, strict=True))
        firsts.update(order[0] for order in drawn if order)
    return orders


def _draw_layouts(
    rng: random.Random, blocks: int, counts: Mapping[str, int], pair_blocks: int
) -> dict[int, dict[str, Layout]]:
    """Draw the layouts of one pair of variants: on which side each variant is, and which side is first.

    Every choice is balanced: half of the blocks (repetitions) have one value and half have the other. With an odd
    number of blocks, one value has one block more. A load point may be measured in only some of the pair's blocks,
    which are drawn at random. Then the side is balanced over these blocks, too. The side that starts first is balanced
    over them as well as possible: of several draws (`TRIES`), the most even one is used.

    Args:
        rng: The source of random numbers.
        blocks: The number of blocks of the run.
        counts: The number of blocks in which each point is measured: point → blocks.
        pair_blocks: The number of blocks in which the pair is measured.

    Returns:
        Block → point → layout.

    """
    chosen = sorted(rng.sample(range(1, blocks + 1), min(pair_blocks, blocks)))

    def halves(items: Sequence[int]) -> list[bool]:
        """Return a random list with one flag for each item, half of them True."""
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
    """Return the Latin squares of a Williams design: orders of `size` load points that are balanced for carry-over effects.

    A load may leave something behind that changes the next result. Over all rows of the design, each point is in each
    position equally often, and directly follows each other point equally often. So such an effect hits all points alike
    (Williams 1949, Australian Journal of Scientific Research A 2:149).

    The first row is 0, 1, n-1, 2, n-2, ...; each later row adds one to it, modulo n. An even size needs one such
    square. An odd one needs a second square, with the rows of the first backwards.

    Args:
        size: The number of points.

    Returns:
        The squares. Each is a list of rows, and a row is an order of points by their numbers from 0.

    """
    steps = [(index + 1) // 2 if index % 2 else -(index // 2) for index in range(size)]
    square = [tuple((row + step) % size for step in steps) for row in range(size)]
    return [square, [row[::-1] for row in square]] if size % 2 and size > 1 else [square]


def draw_orders(
    rng: random.Random, names: Sequence[str], count: int, firsts: Mapping[str, int] | None = None
) -> list[tuple[str, ...]]:
    """Draw random orders of names that are balanced by Williams designs (`williams_squares`).

    The orders are the rows of one complete design after another, until there are `count` of them. They are returned in
    random order. The rows of one square begin with different names. So in the result, all names are first about equally
    often: the numbers differ by one at most.

    Args:
        rng: The source of random numbers.
        names: The names. Without a name all orders are empty, and nothing is drawn.
        count: The number of orders to return.
        firsts: How often each name was first in other orders. An incomplete square begins with the names that were
            first least often.

    """
    if not names:
        return [()] * count
    first_counts, orders = Counter(firsts), list[tuple[str, ...]]()
    while len(orders) < count:
        labels = rng.sample(names, len(names))
        squares = williams_squares(len(names))
        for square in rng.sample(squares, len(squares)):
            rows = [tuple(labels[index] for index in row) for row in rng.sample(square, len(square))]
            rows.sort(key=lambda row: first_counts[row[0]])  # stable: among equals the draw decides
            orders += rows[: count - len(orders)]
    return rng.sample(orders, len(orders))
