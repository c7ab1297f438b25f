"""The choice of the number of worker generations and blocks that a pair is measured on, and the duration of a run.

A worker generation consists of the worker processes between two reloads of the proxy; a pair is two arms (variants) measured
at once. The choice follows from the committed variance components (`lab.analysis.levels`) and from the time that bring-ups
(starts of a system), reloads and loads take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

from lab.analysis import levels
from lab.model.design import NOISE_FLOOR_BLOCKS, choose_shape
from lab.model.names import BRING_UP_S
from lab.model.pairs import SIDES, Side
from lab.model.plan import RELOAD_S, SAMPLE_OVERHEAD_S, plan_samples
from lab.model.run import RunRecord
from lab.model.sweeps import LoadPoint
from lab.records.levels import SystemComponents
from lab.stats import power
from lab.stats.paired import MIN_BLOCKS

MIN_PAIRS_S = 280.0
"""The seconds that a variant's pairs and their A/A pairs may always take, if worker generations vary.

They may take as long even in a short sweep. With the arms of `quick` alone this makes six minutes.
"""
MAX_PLANNED = 50
"""The maximum number of blocks, and of generations per block, in a plan with several generations."""
LEAST_LOAD_S, LEAST_WARM_UP_S = 1.0, 0.5
"""The minimum seconds of load and warm-up on a generation, when the time of a point is divided among several."""


@dataclass(frozen=True, slots=True)
class Place:
    """The properties of a target (place to measure on) that matter for measuring pairs (two arms measured at once).

    Attributes:
        sides: The places for the two sides of a pair.
        bring_up_s: The seconds of a bring-up (start of a system).
        makes_new_workers: A function that returns whether a reload starts new worker processes of a variant's proxy.

    """

    sides: Sequence[Side]
    bring_up_s: float
    makes_new_workers: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """The durations of the parts of a run's block (one repetition), to choose the numbers of worker generations and blocks.

    A worker generation consists of the worker processes between two reloads of the proxy.

    Attributes:
        bring_up_s: The seconds of a bring-up (start) of both sides of a pair, with the overhead of the first
            measurements on it.
        others_s: The seconds of all points in a bring-up that are measured on a single generation.
        reload_s: The seconds of a reload, with the overhead of the measurements after it.
        blocks: The planned number of blocks.
        loads: The load points that can be measured on several generations.
        most: The maximum number of blocks.

    """

    bring_up_s: float
    others_s: float
    reload_s: float
    blocks: int
    loads: tuple[LoadPoint, ...]
    most: int = MAX_PLANNED

    def load_s(self, generations: int) -> float:
        """Return the shortest time, in seconds, that a worker generation is under load at any of the load points.

        Each point in `loads` divides its duration among the worker generations (see `divide_point`).

        Args:
            generations: The number of worker generations (worker processes between two reloads) in each bring-up (start
                of a system).

        """
        return min(divide_point(point, generations).duration_s for point in self.loads)

    def takes_s(self, blocks: int, generations: int) -> float:
        """Return how many seconds the pairs of one variant take, together with the pairs of the baseline with itself (A/A).

        A pair is two arms measured at once. A pair of the baseline with itself is always measured on one worker
        generation (`lab.model.design`).

        Args:
            blocks: The number of blocks (repetitions).
            generations: The number of worker generations (worker processes between two reloads) in each block.

        """
        loads_s = sum(
            point.duration_s + point.warmup_s for point in (divide_point(load, generations) for load in self.loads)
        )
        block_s = self.bring_up_s + generations * loads_s + (generations - 1) * self.reload_s
        aa_blocks, other_blocks = (
            min(blocks, NOISE_FLOOR_BLOCKS),
            blocks if generations == 1 else min(blocks, self.blocks),
        )
        pairs_s = blocks * block_s + aa_blocks * (self.bring_up_s + loads_s)
        return pairs_s + (other_blocks + aa_blocks) * self.others_s


def choose_generations(
    record: RunRecord,
    sweep_blocks: int,
    solo: bool,
    place: Place,
    blocks: int | None = None,
    detect: tuple[float, float] | None = None,
) -> tuple[tuple[LoadPoint, ...], int, tuple[str, ...]]:
    """Choose the number of worker generations for the closed loops, and the number of blocks that fits it.

    A worker generation is the worker processes between two reloads; a block is one repetition. The generations follow
    from the known variance components of the systems, and the blocks follow from the generations.

    If the user named a number of blocks, that number stays, and the generations are those for the sweep's number of
    blocks. If the user named an effect to detect, the caller decides about the blocks.

    All pairs (two arms measured at once) have equally many generations at a point. So if a reload makes no new workers
    for one of the paired variants, no pair has several generations.

    Args:
        record: The record of the run, whose plan has no measurements yet.
        sweep_blocks: The number of blocks of the sweep.
        solo: True if solo samples decide at some point. They are in every block, so more blocks mean more solo samples.
        place: Where it is measured.
        blocks: The number of blocks that the user named, or None.
        detect: The effect that the user named, as a fraction, and the significance level for it; or None.

    Returns:
        The load points, the number of blocks, and the variants that prevent several generations.

    """
    fewest = blocks or sweep_blocks
    steady = not any(point.has_outcome for point in record.points)
    pairable = [point for point in record.points if not point.why_alone]
    slices = [point for point in pairable if point.scheme == "slices" and point.generations == 1]
    if not (steady and slices and len(place.sides) == len(SIDES)) or fewest < MIN_BLOCKS:
        return record.points, fewest, ()
    arms = {arm.name: arm for arm in record.arms}
    pairs = [(arm.variant, arms[arm.baseline].variant) for arm in record.arms if arm.baseline is not None]
    components = levels.find_components(record.target, {base for _, base in pairs}, "slices")
    if components is None:
        return record.points, fewest, ()
    single = [point for point in pairable if point not in slices]
    single_s = sum(point.warmup_s + point.duration_s + SAMPLE_OVERHEAD_S for point in single)
    overhead_s = SAMPLE_OVERHEAD_S * len(slices)
    reload_s = len(slices) * len(SIDES) * RELOAD_S + overhead_s  # every point has reloads for its generations alone
    unpaired = {name for name, variant in record.variants.items() if variant.unpaired}
    max_blocks = sweep_blocks if solo or unpaired or len(pairable) < len(record.points) else MAX_PLANNED
    costs = BlockCosts(place.bring_up_s + overhead_s, single_s, reload_s, sweep_blocks, tuple(slices), max_blocks)
    planned, generations = choose_blocks_and_generations(components, costs)
    if detect is not None:
        generations = choose_cheapest_generations(components, costs, *detect)
    if generations > 1:
        paired = dict.fromkeys(name for pair in pairs if {*pair}.isdisjoint(unpaired) for name in pair)
        fixed = tuple(name for name in paired if not place.makes_new_workers(name))
        if fixed:
            return record.points, fewest, fixed
    points = tuple(set_generations(point, generations, components) for point in record.points)
    return points, blocks or planned, ()


def estimate_duration_s(record: RunRecord, sweep_blocks: int) -> float:
    """Estimate how many seconds a run takes, without access to its target, rendered variants or earlier runs.

    Args:
        record: The record of the run, whose plan has no measurements yet. It is assumed that a reload makes new workers
            for every variant.
        sweep_blocks: The number of blocks (repetitions) of its sweep.

    """
    solo, place = record.solo, Place(SIDES, BRING_UP_S[record.target], lambda _: True)
    points, blocks, _ = choose_generations(record, sweep_blocks, bool(solo), place)
    shape = choose_shape(record.arms, points, blocks, SIDES, solo, (), sweep_blocks)
    return plan_samples(record.arms, points, blocks, 0, shape).lasts_s(place.bring_up_s)


def choose_blocks_and_generations(components: SystemComponents, costs: BlockCosts) -> tuple[int, int]:
    """Choose the numbers of blocks, and of worker generations per block, that detect the smallest effect in a given time.

    A worker generation is the worker processes between two reloads. The given time is what the planned blocks
    (repetitions) take, but at least MIN_PAIRS_S. The method is that of Kalibera & Jones 2013, §9: repeat the level that
    varies (here new workers by a reload), as far as its cost allows.

    There are at least MIN_BLOCKS blocks, each with one start of the system. More blocks than planned are chosen only
    together with several generations. Points with a single generation are then still measured in as many blocks as
    planned. If generations vary little more than repeats, the plan stays unchanged.

    Args:
        components: The variance components of the system.
        costs: The time that the parts of a block take.

    Returns:
        (number of blocks, number of worker generations per block).

    """
    if (components.generation or 0.0) <= levels.WORTHWHILE * levels.repeat_sd(components, costs.load_s(1)):
        return costs.blocks, 1
    block_s = costs.bring_up_s + sum(load.duration_s + load.warmup_s for load in costs.loads) + costs.others_s
    allowed_s = max(MIN_PAIRS_S, (costs.blocks + min(NOISE_FLOOR_BLOCKS, costs.blocks)) * block_s)
    choices = [
        (blocks, generations)
        for blocks in range(MIN_BLOCKS, max(MIN_BLOCKS, costs.most) + 1)
        for generations in range(1, MAX_PLANNED + 1)
        if (
            blocks <= max(MIN_BLOCKS, costs.blocks)
            if generations == 1
            else costs.takes_s(blocks, generations) <= allowed_s
        )
    ]
    return min(
        choices, key=lambda choice: (detectable_effect(components, *choice, costs.load_s(choice[1])), -choice[0])
    )


def detectable_effect(components: SystemComponents, blocks: int, generations: int, load_s: float) -> float:
    """Return the minimum detectable effect for a number of starts of a system, each with some worker generations.

    Args:
        components: The variance components of the system: how much repeats, generations and bring-ups vary.
        blocks: The number of starts.
        generations: The number of worker generations (the worker processes between two reloads) in each start.
        load_s: The seconds of load on each generation.

    Returns:
        The effect as a fraction; infinite if the number of values gives no interval.

    """
    singly = levels.counts_singly(components, generations, load_s)
    sd, pilot = levels.compute_sd(components, generations, load_s, singly)
    return power.compute_mde_from_pilot(sd, pilot, blocks * (generations if singly else 1)) or inf


def choose_cheapest_generations(components: SystemComponents, costs: BlockCosts, effect: float, level: float) -> int:
    """Choose the number of worker generations per start of the system that detects an effect in the shortest time.

    A worker generation is the worker processes between two reloads.

    Args:
        components: The variance components of the system: how much repeats, generations and bring-ups vary.
        costs: The time that the parts of a block take.
        effect: The effect as a fraction.
        level: The significance level (see `power.count_blocks_for_effect`).

    """

    def takes_s(count: int) -> float:
        load_s = costs.load_s(count)
        singly = levels.counts_singly(components, count, load_s)
        values = power.count_blocks_for_effect(*levels.compute_sd(components, count, load_s, singly), effect, level)
        blocks = None if values is None else max(MIN_BLOCKS, ceil(values / (count if singly else 1)))
        return inf if blocks is None else costs.takes_s(blocks, count)

    return min(range(1, MAX_PLANNED + 1), key=takes_s)


def set_generations(point: LoadPoint, generations: int, components: SystemComponents) -> LoadPoint:
    """Return a load point with a number of worker generations (worker processes between two reloads).

    A point is changed only if it has the components' kind of pair (two arms measured at once). A point that is not
    paired, or that sets generations itself, is returned unchanged.

    Args:
        point: The load point.
        generations: The number of worker generations.
        components: The variance components of the system, for one kind of pair.

    """
    if point.scheme != components.scheme or point.why_alone or point.generations > 1:
        return point
    short = divide_point(point, generations)
    singly = generations > 1 and levels.counts_singly(components, generations, short.duration_s)
    return short.model_copy(update={"singly": singly})


def divide_point(point: LoadPoint, generations: int) -> LoadPoint:
    """Return a load point with its time divided among a number of worker generations.

    The divided duration is a whole number of seconds, because some generators accept no others. The divided warm-up has
    one decimal.

    Args:
        point: The load point.
        generations: The number of worker generations (worker processes between two reloads).

    """
    if generations == 1:
        return point.model_copy(update={"generations": 1})
    return point.model_copy(
        update={
            "generations": generations,
            "duration_s": max(min(point.duration_s, LEAST_LOAD_S), float(round(point.duration_s / generations))),
            "warmup_s": max(min(point.warmup_s, LEAST_WARM_UP_S), round(point.warmup_s / generations, 1)),
        }
    )
