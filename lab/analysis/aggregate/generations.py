"""A pair that was measured on several generations of workers → what it scatters by, and at which level: repeat, generation, bring-up.

What is told is the scatter of one system: two alike that were up at once differ by √2 as much, and the machine's noise hits both. Refuses
bring-ups of which a measurement does not count (`whole` says how many are left), and pairs of two variants: how much each of them
scatters, their ratio does not tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, isfinite, log, sqrt
from statistics import fmean

from lab.analysis.aggregate.cells import counted_samples
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.stats.components import Component, Components, components
from lab.stats.power import ASSURANCE


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
    bring_up_at_most: float | None = None
    """The upper limit of `found.bring_up` that a plan reckons with (`power.ASSURANCE`)."""

    @property
    def start(self) -> float | None:
        """What one start of it can be off by, for the same ever after: the sd of its workers and of its bring-up together."""
        parts = [] if self.found is None else [one.sd for one in (self.found.generation, self.found.bring_up) if one]
        return hypot(*parts) if parts else None


def levels(record: RunRecord, samples: Sequence[Sample]) -> list[Levels]:
    """Of each variant that was paired with itself on several generations or measured again on one, by arm and point, in plan order.

    Not of a pair that only guards, which is on fewer generations than the point asks for.
    """
    variants = {arm.name: arm.variant for arm in record.arms}
    counted, design = counted_samples(samples), record.designed
    found: list[Levels] = []
    for point in record.points:
        for arm in record.arms if point.generations > 1 or point.repeats > 1 else ():
            planned = design.place(arm.name, point.name, paired=True)
            alike = arm.baseline is not None and variants[arm.baseline] == arm.variant
            if not alike or planned is None or planned.generations != point.generations:
                continue
            ratios: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
            for (block, name, at, against, reload, repeat), own in sorted(counted.items()):
                base = counted.get((block, planned.against, at, arm.name, reload, repeat))
                both = own.cpu_per_request_s, base.cpu_per_request_s if base else None
                if (name, at, against) == (arm.name, point.name, planned.against) and both[0] and both[1]:
                    ratios[block, reload].append((both[0], both[1]))
            generations = tuple(
                Generation(
                    block,
                    reload,
                    tuple(log(own / base) for own, base in both),
                    fmean(own for own, _ in both),
                    fmean(base for _, base in both),
                )
                for (block, reload), both in sorted(ratios.items())
            )
            blocks: dict[int, list[tuple[float, ...]]] = defaultdict(list)
            for one in generations:
                if len(one.ratios) == point.repeats:
                    blocks[one.block].append(one.ratios)
            whole = [each for each in blocks.values() if len(each) == point.generations]
            levels_of, limits = None, None
            if len(whole) * point.generations * point.repeats > 1:
                levels_of = _one_system(components(whole))
                limits = _one_system(components(whole, 2 * ASSURANCE - 1)).bring_up
            at_most = limits.high if limits and isfinite(limits.high) else None
            found.append(Levels(arm, point, generations, len(planned.blocks), len(whole), levels_of, at_most))
    return found


def _one_system(of_two: Components) -> Components:
    """Two that are alike and independent differ by √2 as much as one varies."""

    def own(one: Component | None) -> Component | None:
        return one and Component(one.sd / sqrt(2), one.low / sqrt(2), one.high / sqrt(2), one.degrees)

    return Components(of_two.mean, own(of_two.repeat), own(of_two.generation), own(of_two.bring_up))
