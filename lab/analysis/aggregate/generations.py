"""The variance components of a variant that was paired with itself on several generations of worker processes.

Variance components are standard deviations: between repeated measurements, between generations of workers (the worker processes
between two reloads), and between bring-ups (starts from nothing).

The components are of one system. They are computed from the ratio of two alike systems that were measured at once. The noise of
the machine hits both, and the ratio varies √2 as much as one system.

A bring-up is left out if one of its measurements does not count (`whole` is the number of the others). Pairs of two different
variants are left out, too: their ratio does not show how much each of the two varies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot, isfinite, log, sqrt
from statistics import fmean

from lab.analysis.aggregate.cells import select_counted_samples
from lab.base.grouping import group_values
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.stats.components import Component, Components, estimate_components
from lab.stats.power import ASSURANCE


@dataclass(frozen=True, slots=True)
class Generation:
    """The measurements of a pair (two alike systems measured at once) on one generation of workers.

    A generation of workers is the worker processes of both sides between two reloads.

    Attributes:
        block: The number of the block (repetition), in which each system is started once.
        reload: The number of the generation within the block, from 0.
        ratios: The log-ratios of the two sides' CPU time per request, one for each repeat.
        own_s: CPU seconds per request of the arm, the mean over the repeats.
        base_s: CPU seconds per request of the arm's baseline, the mean over the repeats.

    """

    block: int
    reload: int
    ratios: tuple[float, ...]
    own_s: float
    base_s: float

    @property
    def ratio(self) -> float:
        """The log-ratio of CPU time per request of two systems measured at once: the mean over repeats on the same workers."""
        return fmean(self.ratios)


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """The variance components of one variant at one load: how much its CPU time per request varies, and at which level.

    Each is the standard deviation of the logarithm of one system's CPU time per request. There is one between repeated
    measurements, one between generations of workers (the processes between two reloads), and one between bring-ups
    (starts of the system).
    """

    arm: Arm
    """The arm of the variant that is compared with the same variant."""
    point: LoadPoint
    """The load point."""
    generations: tuple[Generation, ...]
    """The measurements from which the components are computed, by generation of workers."""
    planned: int
    """The number of bring-ups that were planned."""
    whole: int
    """The number of bring-ups of which every measurement counts."""
    found: Components | None
    """The variance components; None if there are too few measurements to compute them from."""
    bring_up_at_most: float | None = None
    """The upper limit of the standard deviation between bring-ups (`power.ASSURANCE`), for plans; None: no limit."""

    @property
    def start(self) -> float | None:
        """The standard deviation between starts of a system: of worker generations and of bring-ups combined.

        A worker generation is the worker processes between two reloads. All measurements of one start share this
        deviation, however long they take. It is None if neither part is known.
        """
        parts = [] if self.found is None else [part.sd for part in (self.found.generation, self.found.bring_up) if part]
        return hypot(*parts) if parts else None


def compute_variance_components(record: RunRecord, samples: Sequence[Sample]) -> Iterator[VarianceComponents]:
    """Yield the variance components of each variant that was measured at once with itself, by load point and arm.

    The components say how much the CPU time per request varies between repeats, worker generations (the processes
    between two reloads) and starts. Only points with several generations, or with several repeats on one generation,
    are used. At a point with several generations, pairs that only measure the noise floor are left out, because they
    have only one.
    """
    variants = {arm.name: arm.variant for arm in record.arms}
    counted, design = select_counted_samples(samples), record.designed
    for point in record.points:
        for arm in record.arms if point.generations > 1 or point.repeats > 1 else ():
            planned = design.place(arm.name, point.name, paired=True)
            alike = arm.baseline is not None and variants[arm.baseline] == arm.variant
            if not alike or planned is None or planned.generations != point.generations:
                continue
            ratios: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
            for (block, name, point_name, against, reload, repeat), sample in sorted(counted.items()):
                base = counted.get((block, planned.against, point_name, arm.name, reload, repeat))
                costs = sample.cpu_per_request_s, base.cpu_per_request_s if base else None
                if (name, point_name, against) == (arm.name, point.name, planned.against) and costs[0] and costs[1]:
                    ratios[block, reload].append((costs[0], costs[1]))
            generations = tuple(
                Generation(
                    block,
                    reload,
                    tuple(log(arm_s / base_s) for arm_s, base_s in pairs),
                    fmean(arm_s for arm_s, _ in pairs),
                    fmean(base_s for _, base_s in pairs),
                )
                for (block, reload), pairs in sorted(ratios.items())
            )
            blocks = group_values(
                (generation.block, generation.ratios)
                for generation in generations
                if len(generation.ratios) == point.repeats
            )
            complete = [block for block in blocks.values() if len(block) == point.generations]
            parts, limits = None, None
            if len(complete) * point.generations * point.repeats > 1:
                parts = _scale_to_one_system(estimate_components(complete))
                limits = _scale_to_one_system(estimate_components(complete, 2 * ASSURANCE - 1)).bring_up
            at_most = limits.high if limits and isfinite(limits.high) else None
            yield VarianceComponents(arm, point, generations, len(planned.blocks), len(complete), parts, at_most)


def _scale_to_one_system(of_two: Components) -> Components:
    """Convert the variance components of the difference between two alike systems into those of one system.

    The difference of two alike, independent systems has √2 times the standard deviation of one, so each component is
    divided by √2.
    """

    def scale(part: Component | None) -> Component | None:
        return part and Component(part.sd / sqrt(2), part.low / sqrt(2), part.high / sqrt(2), part.degrees)

    return Components(scale(of_two.repeat), scale(of_two.generation), scale(of_two.bring_up))
