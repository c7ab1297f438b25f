"""A pair that was measured on several generations of workers → what it scatters by, and at which level: repeat, generation, bring-up.

What is told is the scatter of one system: two alike that were up at once differ by √2 as much, and the machine's noise hits both. Refuses
bring-ups of which a measurement does not count (`whole` says how many are left), and pairs of two variants: how much each of them
scatters, their ratio does not tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import fmean

from lab.analysis.cells import counted_samples
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.stats.components import Component, Components, components

METRIC = "cpu_per_request"
"""What slices and rates both tell."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Both sides' workers between two reloads: log-ratios of CPU per request, one for each repeat, and seconds a request of each side."""

    block: int
    reload: int
    ratios: tuple[float, ...]
    own_s: float
    base_s: float

    @property
    def ratio(self) -> float:
        return fmean(self.ratios)


@dataclass(frozen=True, slots=True)
class Levels:
    """Of one variant at one point. Standard deviations of one system's CPU per request, as log-ratios; None: nothing to reckon with."""

    arm: Arm
    point: Point
    generations: tuple[Generation, ...]
    planned: int
    whole: int
    """Bring-ups, and those of which every measurement counts."""
    found: Components | None

    @property
    def start(self) -> float | None:
        """What one start of it can be off by, for the same ever after: the sd of its workers and of its bring-up together."""
        parts = [] if self.found is None else [self.found.generation, self.found.bring_up]
        return sqrt(sum(one.sd**2 for one in parts if one)) if any(parts) else None


def levels(record: RunRecord, samples: Sequence[Sample]) -> list[Levels]:
    """Of each variant that was paired with itself on several generations or measured again on one, by arm and point, in plan order."""
    variants = {arm.name: arm.variant for arm in record.arms}
    counted = counted_samples(samples)
    found: list[Levels] = []
    for point in record.points:
        for arm in record.arms if point.generations > 1 or point.repeats > 1 else ():
            if arm.baseline is None or variants[arm.baseline] != arm.variant:
                continue
            ratios: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
            for (block, name, at, against, reload, repeat), own in sorted(counted.items()):
                base = counted.get((block, arm.baseline, at, arm.name, reload, repeat))
                both = own.cpu_per_request_s, base.cpu_per_request_s if base else None
                if (name, at, against) == (arm.name, point.name, arm.baseline) and both[0] and both[1]:
                    ratios[block, reload].append((both[0], both[1]))
            planned = {slot.block for slot in record.plan().slots if slot.layout and slot.arm == arm}
            if planned:
                found.append(_levels(arm, point, ratios, len(planned)))
    return found


def _levels(
    arm: Arm, point: Point, measured: Mapping[tuple[int, int], Sequence[tuple[float, float]]], planned: int
) -> Levels:
    generations = tuple(
        Generation(
            block,
            reload,
            tuple(log(own / base) for own, base in both),
            fmean(own for own, _ in both),
            fmean(base for _, base in both),
        )
        for (block, reload), both in sorted(measured.items())
    )
    blocks: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for one in generations:
        if len(one.ratios) == point.repeats:
            blocks[one.block].append(one.ratios)
    whole = [each for each in blocks.values() if len(each) == point.generations]
    told = len(whole) * point.generations * point.repeats > 1
    return Levels(arm, point, generations, planned, len(whole), _one_system(components(whole)) if told else None)


def _one_system(of_two: Components) -> Components:
    """Two that are alike and independent differ by √2 as much as one varies."""

    def own(one: Component | None) -> Component | None:
        return one and Component(one.sd / sqrt(2), one.low / sqrt(2), one.high / sqrt(2), one.degrees)

    return Components(of_two.mean, own(of_two.repeat), own(of_two.generation), own(of_two.bring_up))
