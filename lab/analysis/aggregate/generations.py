"""The variance components of a pair that was measured on several generations of workers.

They are the standard deviations of repeats, generations and bring-ups.

They hold for one system: two alike systems that were up at once differ by √2 as much, and the machine's noise hits both.

Bring-ups of which a measurement does not count are left out (`whole` is the number that remains). Pairs of two different variants are left
out too: their ratio does not show how much each of them varies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, isfinite, log, sqrt
from statistics import fmean

from lab.analysis.aggregate.cells import select_counted_samples
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.stats.components import Component, Components, estimate_components
from lab.stats.power import ASSURANCE


@dataclass(frozen=True, slots=True)
class Generation:
    """The measurements of both sides' workers between two reloads.

    Attributes:
        block: The block, which is one bring-up.
        reload: The number of the generation within it.
        ratios: The log-ratios of CPU per request, one for each repeat.
        own_s: CPU seconds per request of the arm, the mean over the repeats.
        base_s: The same of its baseline.

    """

    block: int
    reload: int
    ratios: tuple[float, ...]
    own_s: float
    base_s: float

    @property
    def ratio(self) -> float:
        """The mean log-ratio over the repeats."""
        return fmean(self.ratios)


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """The variance components of one variant at one point.

    They are standard deviations of one system's CPU per request, as log-ratios; None where there is nothing to compute them from.
    """

    arm: Arm
    point: LoadPoint
    generations: tuple[Generation, ...]
    planned: int
    """The number of bring-ups that were planned."""
    whole: int
    """The number of bring-ups of which every measurement counts."""
    found: Components | None
    """The variance components."""
    bring_up_at_most: float | None = None
    """The upper limit of `found.bring_up` that a plan uses (`power.ASSURANCE`)."""

    @property
    def start(self) -> float | None:
        """The standard deviation of one start: that of its workers and of its bring-up together.

        All measurements of a start share it, however long they take.
        """
        parts = [] if self.found is None else [part.sd for part in (self.found.generation, self.found.bring_up) if part]
        return hypot(*parts) if parts else None


def compute_variance_components(record: RunRecord, samples: Sequence[Sample]) -> list[VarianceComponents]:
    """Return the variance components of each variant that was paired with itself, by arm and point in plan order.

    It needs a point with several generations of workers, or with repeats on one. An A/A pair that only measures the noise floor is left
    out: it is on fewer generations than the point asks for.
    """
    variants = {arm.name: arm.variant for arm in record.arms}
    counted, design = select_counted_samples(samples), record.designed
    results: list[VarianceComponents] = []
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
            blocks: dict[int, list[tuple[float, ...]]] = defaultdict(list)
            for generation in generations:
                if len(generation.ratios) == point.repeats:
                    blocks[generation.block].append(generation.ratios)
            complete = [block for block in blocks.values() if len(block) == point.generations]
            parts, limits = None, None
            if len(complete) * point.generations * point.repeats > 1:
                parts = _scale_to_one_system(estimate_components(complete))
                limits = _scale_to_one_system(estimate_components(complete, 2 * ASSURANCE - 1)).bring_up
            at_most = limits.high if limits and isfinite(limits.high) else None
            results.append(
                VarianceComponents(arm, point, generations, len(planned.blocks), len(complete), parts, at_most)
            )
    return results


def _scale_to_one_system(of_two: Components) -> Components:
    """Return the variance components of one system, given those of the difference of two.

    Two that are alike and independent differ by √2 as much as one varies.
    """

    def scale(part: Component | None) -> Component | None:
        return part and Component(part.sd / sqrt(2), part.low / sqrt(2), part.high / sqrt(2), part.degrees)

    return Components(of_two.mean, scale(of_two.repeat), scale(of_two.generation), scale(of_two.bring_up))
