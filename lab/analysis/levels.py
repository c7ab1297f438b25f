"""What is known of a system's levels of scatter → on how many generations of workers a pair is measured, and what a block of it scatters by.

Refuses to plan by what was not measured: a system without committed levels (`lab.records.levels`) is measured on the workers that it came up with.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import sqrt

from lab.model.pairs import Scheme
from lab.model.sweeps import Point
from lab.records.levels import Known, committed
from lab.stats.paired import MIN_BLOCKS

WORTHWHILE = 1.5
"""Workers that differ by no more than this many times what a repeat does are no reason to make others."""
LEAST_S = 150.0
"""What one variant's pairs may take where workers scatter, however short the sweep: a variant and its A/A pair in some five minutes."""
MOST = 50


LEAST_LOAD_S, LEAST_WARM_UP_S = 1.0, 0.5
"""Of one generation: the load that one would have had is shared out among several."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: of a bring-up of both sides with all points once, of a reload and what is about its measurements; `blocks` as they were
    planned, `loads` the points that generations are made for.
    """

    block_s: float
    reload_s: float
    blocks: int
    loads: tuple[Point, ...]

    def of(self, generations: int) -> float:
        """A block with so many."""
        loads = [each.duration_s + each.warmup_s for each in self.loads]
        short = [each.duration_s + each.warmup_s for each in (shared(point, generations) for point in self.loads)]
        return self.block_s - sum(loads) + generations * sum(short) + (generations - 1) * self.reload_s


def known(target: str, variants: Collection[str], scheme: Scheme) -> Known | None:
    """Of these that there alone are compared, the one whose workers scatter most; None where none is known."""
    fitting = [one for one in committed() if (one.target, one.scheme) == (target, scheme) and one.variant in variants]
    return max(fitting, key=lambda one: one.generation or 0.0, default=None)


def shared(point: Point, generations: int) -> Point:
    """As it is on each of so many generations of workers."""
    return point.model_copy(
        update={
            "generations": generations,
            "duration_s": max(min(point.duration_s, LEAST_LOAD_S), round(point.duration_s / generations, 1)),
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
    return [
        ((one.bring_up or 0.0) ** 2, one.bring_ups - 1),
        ((one.generation or 0.0) ** 2 / generations, one.bring_ups * (one.generations - 1)),
        ((one.repeat or 0.0) ** 2 * one.load_s / load_s / generations, one.bring_ups * one.generations),
    ]


def plan_of(one: Known, costs: Costs) -> tuple[int, int]:
    """(blocks, generations in each) that tell most in the time that the planned blocks take, or LEAST_S where that is less.

    The variance of the mean, σ²/blocks, least over what fits (Kalibera & Jones 2013, §9: repeat the level that scatters, as its cost allows);
    never fewer than MIN_BLOCKS, as an interval is over bring-ups. One generation where workers scatter no more than repeats do.
    """
    if (one.generation or 0.0) <= WORTHWHILE * (one.repeat or 0.0):
        return costs.blocks, 1
    allowed_s = max(LEAST_S, costs.blocks * costs.block_s)
    choices = [
        (blocks, generations)
        for blocks in range(MIN_BLOCKS, max(MIN_BLOCKS, costs.blocks) + 1)
        for generations in range(1, MOST + 1)
        if generations == 1 or blocks * costs.of(generations) <= allowed_s
    ]

    def variance(blocks: int, count: int) -> float:
        return block_sd(one, count, min(shared(point, count).duration_s for point in costs.loads)) ** 2 / blocks

    return min(choices, key=lambda each: (variance(*each), -each[0]))


def on_generations(points: Sequence[Point], generations: int, scheme: Scheme) -> tuple[Point, ...]:
    """The points that a pair bears in that way, each on so many generations of workers; others, and those that ask for some, as they are."""
    return tuple(
        shared(point, generations)
        if point.scheme == scheme and not point.why_alone and point.generations == 1
        else point
        for point in points
    )


def start_sd(one: Known) -> float:
    """What one start of it is off by for ever after: its workers and its bring-up together."""
    return sqrt((one.generation or 0.0) ** 2 + (one.bring_up or 0.0) ** 2)


def notes(target: str, variants: Collection[str]) -> list[str]:
    """What one start of each can be off by, where that is known and more than a repeat is."""
    found: list[str] = []
    for one in committed():
        start = start_sd(one)
        if one.target == target and one.variant in variants and start > WORTHWHILE * (one.repeat or 0.0):
            said = f"{one.variant}: one start of it is off by {100 * start:.1f} % in CPU per request (standard deviation, {one.scheme}; {one.run})"
            found.append(f"{said}, however long it is measured: starts and reloads must be repeated")
    return found
