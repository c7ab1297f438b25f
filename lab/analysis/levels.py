"""What is known of a system's levels of scatter → on how many generations of workers a pair is measured, and what a block of it scatters by.

Refuses to plan by what was not measured: a system without committed levels (`lab.records.levels`) is measured on the workers that it came up with.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, hypot, inf, sqrt

from lab.model.pairs import Scheme
from lab.model.shape import GUARD
from lab.model.sweeps import Point
from lab.records.levels import Known, committed
from lab.stats import power
from lab.stats.paired import MIN_BLOCKS

WORTHWHILE = 1.5
"""Workers that differ by no more than this many times what a repeat under the same load does are no reason to make others."""
LEAST_S = 280.0
"""What one variant's pairs and those that guard it may take together where workers scatter, however short the sweep: with `quick`'s arms
alone that is six minutes.
"""
MOST = 50
BOUNDING, SHARE = 30, 0.1
"""Generations count singly where so many bring-ups or more bound what those of one share, as a variance, below that part of a bring-up's
mean: an interval is then at most a twentieth too narrow.
"""
LEAST_LOAD_S, LEAST_WARM_UP_S = 1.0, 0.5
"""Of one generation: the load that one would have had is shared out among several."""
LONG_S = 4.0
"""A measurement of one start, about, where it is told what that start is off by however long it is measured."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: of a bring-up of both sides and what is about its first measurements, of all other points in it, of a reload and what is
    about its measurements; `blocks` as they were planned, `loads` the points that generations are made for. `most`: blocks that there may be.
    """

    bring_up_s: float
    others_s: float
    reload_s: float
    blocks: int
    loads: tuple[Point, ...]
    most: int = MOST

    @property
    def block_s(self) -> float:
        """As it was planned."""
        return self.bring_up_s + sum(each.duration_s + each.warmup_s for each in self.loads) + self.others_s

    def load_s(self, generations: int) -> float:
        """Of one of so many, the shortest point's."""
        return min(shared(point, generations).duration_s for point in self.loads)

    def of(self, generations: int, measured: int | None = None) -> float:
        """A bring-up with so many, or with fewer of them measured, and no other point."""
        short = [each.duration_s + each.warmup_s for each in (shared(point, generations) for point in self.loads)]
        count = generations if measured is None else measured
        return self.bring_up_s + count * sum(short) + (count - 1) * self.reload_s

    def takes_s(self, blocks: int, generations: int) -> float:
        """A variant's pairs in so many blocks of so many, and those that guard it (`lab.model.shape`)."""
        guards = min(blocks, GUARD)
        others = blocks if generations == 1 else min(blocks, self.blocks)
        own = blocks * self.of(generations) + guards * self.of(generations, 1)
        return own + (others + guards) * self.others_s


def known(target: str, variants: Collection[str], scheme: Scheme) -> Known | None:
    """Of these that there alone are compared, the one whose workers scatter most; None where none is known.

    What was not repeated has its repeats' scatter in its workers', and is no guide.
    """
    fitting = [one for one in _of(target, variants) if one.scheme == scheme and one.repeat is not None]
    return max(fitting, key=lambda one: one.generation or 0.0, default=None)


def _of(target: str, variants: Collection[str]) -> list[Known]:
    return [one for one in committed() if one.target == target and one.variant in variants]


def counts_singly(one: Known, generations: int, load_s: float) -> bool:
    """Whether each of so many generations of a bring-up, measured for so long, is a value of its own (BOUNDING, SHARE)."""
    starts, (_, *below) = starts_of(one), _parts(one, generations, load_s)
    bound = starts.bring_up_at_most if starts.bring_ups >= BOUNDING else None
    return bound is not None and bound**2 < SHARE * sum(variance for variance, _ in below)


def starts_of(one: Known) -> Known:
    """The same system's line of the most bring-ups, which knows best what they scatter by."""
    same = [each for each in _of(one.target, {one.variant}) if (each.scheme, each.point) == (one.scheme, one.point)]
    return max([one, *same], key=lambda each: each.bring_ups)


def shared(point: Point, generations: int) -> Point:
    """As it is on each of so many generations of workers: where that shortens it, whole seconds, as not every generator takes others."""
    if generations == 1:
        return point.model_copy(update={"generations": 1})
    return point.model_copy(
        update={
            "generations": generations,
            "duration_s": max(min(point.duration_s, LEAST_LOAD_S), float(round(point.duration_s / generations))),
            "warmup_s": max(min(point.warmup_s, LEAST_WARM_UP_S), round(point.warmup_s / generations, 1)),
        }
    )


def block_sd(one: Known, generations: int, load_s: float) -> float:
    """Of one block's log-ratio of two such systems, each generation measured once for so long: a repeat's variance as one over its time."""
    return sqrt(2 * sum(variance for variance, _ in _parts(one, generations, load_s)))


def degrees(one: Known, generations: int, load_s: float) -> float:
    """Of freedom that `block_sd` is known with, as each level's variance has its own (Satterthwaite 1946, Biometrics 2:110); at least 1."""
    parts = _parts(one, generations, load_s)
    own = sum(variance**2 / freedom for variance, freedom in parts if freedom)
    return max(1.0, sum(variance for variance, _ in parts) ** 2 / own) if own else float(max(1, one.bring_ups - 1))


def _parts(one: Known, generations: int, load_s: float) -> list[tuple[float, int]]:
    """Of one system's block, each level's (variance, degrees of freedom that it is known with)."""
    starts = starts_of(one)
    return [
        ((starts.bring_up or 0.0) ** 2, starts.bring_ups - 1),
        ((one.generation or 0.0) ** 2 / generations, one.bring_ups * (one.generations - 1)),
        (_repeat(one, load_s) ** 2 / generations, one.bring_ups * one.generations),
    ]


def _repeat(one: Known, load_s: float) -> float:
    """A repeat's standard deviation under a load of so long: its variance is as one over the time."""
    return (one.repeat or 0.0) * sqrt(one.load_s / load_s)


def scatter(one: Known, generations: int, singly: bool, load_s: float) -> tuple[float, int]:
    """(standard deviation, pilot blocks that know it as well) of what counts as one value: a generation, or a block of so many."""
    each = 1 if singly else generations
    return block_sd(one, each, load_s), round(degrees(one, each, load_s)) + 1


def resolvable(one: Known, blocks: int, generations: int, load_s: float) -> float:
    """The effect (fraction) that is found in so many bring-ups of so many generations, as far as these levels are known."""
    singly = counts_singly(one, generations, load_s)
    return (
        power.resolvable_now(*scatter(one, generations, singly, load_s), blocks * (generations if singly else 1)) or inf
    )


def plan_of(one: Known, costs: Costs) -> tuple[int, int]:
    """(blocks, generations in each) that tell most in the time that the planned blocks take, or LEAST_S where that is less.

    The effect that is found, least over what fits (Kalibera & Jones 2013, §9: repeat the level that scatters, as its cost allows); never
    fewer bring-ups than MIN_BLOCKS, and more than were planned where what is measured once in them is not measured more often. As planned
    where workers scatter no more than repeats do.
    """
    if (one.generation or 0.0) <= WORTHWHILE * _repeat(one, costs.load_s(1)):
        return costs.blocks, 1
    allowed_s = max(LEAST_S, (costs.blocks + min(GUARD, costs.blocks)) * costs.block_s)
    choices = [
        (blocks, generations)
        for blocks in range(MIN_BLOCKS, max(MIN_BLOCKS, costs.most) + 1)
        for generations in range(1, MOST + 1)
        if (
            blocks <= max(MIN_BLOCKS, costs.blocks)
            if generations == 1
            else costs.takes_s(blocks, generations) <= allowed_s
        )
    ]
    return min(choices, key=lambda each: (resolvable(one, *each, costs.load_s(each[1])), -each[0]))


def cheapest(one: Known, costs: Costs, effect: float, level: float) -> int:
    """Generations in each bring-up with which that effect (fraction) is found soonest, at that `level` (`power.blocks_for`)."""

    def takes_s(count: int) -> float:
        load_s = costs.load_s(count)
        singly = counts_singly(one, count, load_s)
        values = power.blocks_for(*scatter(one, count, singly, load_s), effect, level)
        blocks = None if values is None else max(MIN_BLOCKS, ceil(values / (count if singly else 1)))
        return inf if blocks is None else costs.takes_s(blocks, count)

    return min(range(1, MOST + 1), key=takes_s)


def on_generations(points: Sequence[Point], generations: int, one: Known) -> tuple[Point, ...]:
    """The points that a pair bears as `one` was measured, each on so many generations of workers; others, and those that ask for some, as they are."""

    def made(point: Point) -> Point:
        short = shared(point, generations)
        return short.model_copy(
            update={"singly": generations > 1 and counts_singly(one, generations, short.duration_s)}
        )

    return tuple(
        made(point) if point.scheme == one.scheme and not point.why_alone and point.generations == 1 else point
        for point in points
    )


def start_sd(one: Known) -> float:
    """What one start of it is off by for ever after: its workers and its bring-up together."""
    return hypot(one.generation or 0.0, starts_of(one).bring_up or 0.0)


def notes(target: str, variants: Collection[str]) -> list[str]:
    """What one start of each can be off by, where that is known and more than a repeat is."""
    found: list[str] = []
    for one in _of(target, variants):
        start = start_sd(one)
        if one.repeat is not None and start > WORTHWHILE * _repeat(one, LONG_S):
            said = f"{one.variant}: one start of it is off by {100 * start:.1f} % in CPU per request (standard deviation, {one.scheme}; {one.run})"
            found.append(f"{said}, however long it is measured: starts and reloads must be repeated")
    return found
