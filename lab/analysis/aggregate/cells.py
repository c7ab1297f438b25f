"""Samples → cells: one for each arm at each point, metric → block → value, for steady and disturbed loads alike; or what is not steady there.

Refuses to pool different targets, generators or loads, to average percentiles, and to count a block whose control run failed: what
its disturbance showed may not have been its doing. A sample's block, arm and point name its place; of several samples there the last
valid attempt counts, and an interrupted block's never.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log
from statistics import geometric_mean, median

from lab.analysis.aggregate.absolute import Absolute, absolute_of, mean_of
from lab.base.errors import MeasuringError
from lab.model.metrics import DIFFERENCES, METRICS, RATIOS, WINDOWED, about
from lab.model.plan import Arm, Place, Plan
from lab.model.plan import Cell as Measured
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample, cell, counts
from lab.model.steadiness import CAUSES, Change
from lab.model.sweeps import Point, control_of
from lab.records.steadiness import describe_change
from lab.stats import paired as stats
from lab.stats.histogram import Histogram, Kind

READ = (*RATIOS, "backend_cpu_per_request", "slowest_s")
"""What has effects; what of a pair must be the same on both sides; and what a table shows of each block's requests beside them."""
ENOUGH = 0.5
"""Of a block's measurements of one pair, those that must count, so that the block does."""
ALIKE_S = 0.5
"""Times until a change that differ by no more are the same: looks are a second apart."""
HistogramOf = Callable[[Sample], Histogram | None]
Values = Mapping[str, Mapping[int, float | None]]
_Where = tuple[str, ...]
"""Arm, point, and against which arm (empty: alone)."""


@dataclass(frozen=True, slots=True)
class UnsteadyArm:
    """An arm at a point of which samples are not steady. `changes`: of those that changed; `judged`: so many counted until then, those
    included; `pairs`: they are sides of pairs, as no solo sample of it changed. In words, as no number comes of it.
    """

    changes: tuple[Change, ...]
    causes: tuple[str, ...]
    judged: int
    pairs: bool

    @property
    def middle(self) -> Change:
        """The sample that stands for all: of those whose rate changes, where any does, the one of median time and rate."""
        shown = [change for change in self.changes if change.rate] or self.changes
        at_s = median(change.at_s for change in shown)
        nearest = min(abs(change.at_s - at_s) for change in shown)
        among = [change for change in shown if abs(change.at_s - at_s) <= nearest + ALIKE_S]
        return sorted(among, key=lambda change: change.rate_before_rps)[len(among) // 2]

    @property
    def share(self) -> str:
        """`4 of 10 samples`."""
        return f"{len(self.changes)} of {self.judged} {'pairs' if self.pairs else 'samples'}"

    def sentence(self) -> str:
        """Say what happens: `the rate falls in 10 of 10 samples after 2 s (11,300 req/s, then 340): local ports run out`."""
        middle = self.middle
        down = middle.rate_after_rps < middle.rate_before_rps
        if not middle.rate:
            down = (middle.cpu_after_s or 0.0) < (middle.cpu_before_s or 0.0)
        what = f"the {'rate' if middle.rate else 'CPU time per request'} {'falls' if down else 'rises'}"
        ends = sorted({round(change.at_s) for change in self.changes})
        after = " to ".join(str(end) for end in dict.fromkeys((ends[0], ends[-1])))
        why = f": {', '.join(self.causes)}" if self.causes else ""
        return f"{what} in {self.share} after {after} s ({describe_change(middle, lasting=False)}){why}"

    def short(self) -> str:
        """Say it in a table's cell: `11,300 req/s for 2 s, then 340 (10 of 10 samples)`."""
        return f"{describe_change(self.middle)} ({self.share})"


def unsteady_arm(changes: Sequence[Change | None], pairs: bool = False) -> UnsteadyArm | None:
    """`changes`: of every sample that counted, None where it is steady. None where all are."""
    found = tuple(change for change in changes if change is not None)
    causes = dict.fromkeys(CAUSES[change.cause] for change in found if change.cause)
    return UnsteadyArm(found, tuple(causes), len(changes), pairs) if found else None


def unsteady_arms(samples: Iterable[Sample]) -> Mapping[Place, UnsteadyArm]:
    """Find the arms, each at a point, of which a sample of its own changed for good; of pairs, by that side which did."""
    found: dict[tuple[bool, Place], list[Change | None]] = defaultdict(list)
    for sample in filter(counts, samples):
        if sample.valid or sample.reason is Reason.NOT_STEADY:
            found[sample.pair is not None, (sample.arm, sample.point.name)].append(sample.change)
    arms: dict[Place, UnsteadyArm] = {}
    for (pairs, place), changes in sorted(found.items(), key=lambda item: item[0], reverse=True):
        if arm := unsteady_arm(
            changes, pairs
        ):  # solo samples last: where they changed, they are told, and not its pairs
            arms[place] = arm
    return arms


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm at one point, which may be a control run. Seconds, bytes, requests per second, counts.

    `planned`: its blocks; of a search, those of the trials of this arm at this rate. `samples`: every attempt. `counted`: block → the
    sample that counts, of several (generations of workers, repeats) the first; `values` are then their geometric mean. `lost`: blocks with a valid sample that does not count for want of a valid control run. `values`: metric →
    block → number, None = it could not be told; each generation is a block where a pair's count singly. `merged`: the counted samples' latencies together.
    """

    arm: Arm
    point: Point
    planned: frozenset[int] = frozenset()
    samples: tuple[Sample, ...] = ()
    counted: Mapping[int, Sample] = field(default_factory=dict[int, Sample])
    lost: tuple[int, ...] = ()
    values: Values = field(default_factory=dict[str, Mapping[int, float | None]])
    merged: Histogram | None = None
    unsteady: UnsteadyArm | None = None
    """Where a sample of this arm at this point is not steady, alone or in any pair: then no sample counts, and nothing is computed."""

    # -- in one metric

    @property
    def limits(self) -> tuple[str, ...]:
        """What limited this arm itself in any valid block of a closed loop, as in `Sample.limited_by`."""
        closed = self.counted.values() if self.point.rate_rps is None else ()
        return tuple(sorted({sample.limited_by for sample in closed if sample.limited_by}))

    def known(self, metric: str) -> dict[int, float]:
        """Block → number, in block order. A ratio needs one above 0, which would lie below the clock's resolution."""
        least = -inf if METRICS[metric].kind == "difference" else 0.0
        found = self.values.get(metric, {}).items()
        return {block: value for block, value in sorted(found) if value is not None and least < value < inf}

    def level(self, metric: str) -> stats.Level | None:
        """The blocks' median with its interval; None where no block tells."""
        known = self.known(metric)
        return stats.middle(list(known.values())) if known else None

    def shown(self, metric: str) -> float | None:
        """Return one absolute value for programs: a percentile of all requests together, else the mean that effects are ratios of.

        None where no block tells, and where the blocks fall into two clusters. People see `absolute`.
        """
        found = self.absolute(metric)
        if found is None or found.clusters:
            return None
        return self._merged(metric) or mean_of(self._told_by_block(metric))

    def absolute(self, metric: str) -> Absolute | None:
        """Return what may be shown of the metric's absolute value; None where no block tells."""
        known, merged = self._told_by_block(metric), self._merged(metric)
        if merged is not None and len(known) < len(self.counted) >= stats.MIN_BLOCKS:
            return Absolute(len(self.counted), merged, merged, merged)
        return absolute_of(known, metric, merged)

    def _merged(self, metric: str) -> float | None:
        """Return what all requests together have; None of what is no percentile, or with too few requests beyond it."""
        read = METRICS[metric].histogram
        return read(self.merged) if read is not None and self.merged else None

    def _told_by_block(self, metric: str) -> list[float]:
        """Return each block's number, of the blocks that tell."""
        if metric in self.values:
            return list(self.known(metric).values())
        found = (METRICS[metric].read(sample, None) for sample in self.counted.values())
        return [value for value in found if value is not None]

    def largest(self, metric: str) -> float | None:
        return max(self.known(metric).values(), default=None)

    # -- of its samples

    @property
    def valid_blocks(self) -> int:
        return len(self.counted)

    @property
    def planned_blocks(self) -> int:
        return len(self.planned)

    @property
    def outcome_blocks(self) -> int:
        """Blocks that have an outcome: a sample that counts, or one that is not steady or would count beside others that are."""
        settled = (sample for sample in self.samples if sample.valid or sample.reason is Reason.NOT_STEADY)
        return len(self.counted.keys() | {block_of(self.point, cell(sample)) for sample in settled if counts(sample)})

    @property
    def tried(self) -> int:
        """Blocks that were begun."""
        return len({block_of(self.point, cell(sample)) for sample in self.samples})

    @property
    def invalid(self) -> dict[Reason, int]:
        """Samples by reason, re-measured ones included."""
        counts = Counter(sample.reason for sample in self.samples if not sample.valid)
        return {reason: counts[reason] for reason in Reason if counts[reason]}

    @property
    def generator(self) -> str | None:
        return next((sample.generator for sample in self._told), None)

    @property
    def stand_in_for(self) -> str | None:
        return next((sample.stand_in_for for sample in self._told), None)

    @property
    def _told(self) -> list[Sample]:
        return [*self.counted.values(), *(sample for sample in self.samples if not sample.valid)]

    @property
    def notes(self) -> list[str]:
        """What the generator's numbers leave out or cannot tell."""
        return [note for sample in self.counted.values() for note in sample.notes]

    @property
    def complete(self) -> bool:
        """Whether every planned block has what it was measured for."""
        return (self.valid_blocks if self.unsteady is None else self.outcome_blocks) >= self.planned_blocks

    # -- of a steady load

    @property
    def histogram(self) -> Kind | None:
        return self.merged.kind if self.merged else None

    @property
    def requests(self) -> int:
        return sum(sample.requests or 0 for sample in self.counted.values())

    @property
    def errors(self) -> dict[str, int]:
        """Requests by what happened, over the samples that count."""
        return _errors(self.counted.values())

    @property
    def errors_invalid(self) -> dict[str, int]:
        return _errors(sample for sample in self.samples if not sample.valid)

    @property
    def cpu_of(self) -> str | None:
        """Whose CPU and memory these are: the backend's where there is no proxy."""
        if self.point.disturbance is not None:
            return None
        used = next((sample.usage for sample in self.counted.values() if sample.usage), None)
        return None if used is None else "proxy" if used.get("proxy") else "backend"

    @property
    def gauges(self) -> dict[str, float]:
        """What the system said of itself before the load (`System.gauges`): medians over the valid blocks that told."""
        counted = self.counted.values()
        names = dict.fromkeys(name for sample in counted for name in sample.gauges)
        return {name: median(sample.gauges[name] for sample in counted if name in sample.gauges) for name in names}

    # -- of a disturbance

    @property
    def clock_error_s(self) -> float:
        """The largest."""
        return max((sample.outcome.get("clock_error_s") or 0.0 for sample in self.counted.values()), default=0.0)

    @property
    def slowdowns(self) -> dict[str, stats.Estimate]:
        """p99, p50 → latency during against before, of each block's own two; only what every block that counts can tell."""
        found: dict[str, stats.Estimate] = {}
        for name in reversed(WINDOWED):
            during, before = (self.known(f"{name}_{part}_s") for part in ("during", "before"))
            both = [block for block in during if during[block] and before.get(block)]
            if both and len(both) == self.valid_blocks:
                found[name] = stats.paired([during[block] for block in both], [before[block] for block in both])
        return found


@dataclass(frozen=True, slots=True)
class Pair:
    """Two cells whose blocks are compared: an arm's own, and its baseline's."""

    own: Cell
    base: Cell

    @property
    def complete(self) -> bool:
        sides = (
            (side, side.valid_blocks if self.unsteady is None else side.outcome_blocks)
            for side in (self.own, self.base)
        )
        return all(blocks >= side.planned_blocks for side, blocks in sides)

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """What makes an effect between the two impossible, the own one's first; None: both are steady."""
        return self.own.unsteady or self.base.unsteady

    def log_ratios(self, metric: str) -> dict[int, float]:
        """Block → log of own over base, in block order, of the blocks that both have."""
        mine, theirs = self.own.known(metric), self.base.known(metric)
        return {block: log(value / theirs[block]) for block, value in mine.items() if block in theirs}


@dataclass(frozen=True, slots=True)
class Cells:
    """All of a run's, by (arm, point): of the arm alone, which has its levels, and of its pair with its baseline, which has ratios."""

    plan: Plan
    cells: Mapping[Place, Cell] = field(repr=False)
    pairs: Mapping[Place, Pair] = field(repr=False, default_factory=dict[Place, "Pair"])

    def at(self, arm: str, point: Point) -> Cell:
        return self.cells[arm, point.name]

    def pair(self, arm: str, point: Point) -> Pair | None:
        """None where the arm is not paired."""
        return self.pairs.get((arm, point.name))

    def apart(self, arm: Arm, point: Point) -> Pair:
        """The arm and its baseline, each alone."""
        assert arm.baseline is not None, "only what has a baseline is compared"
        return Pair(self.at(arm.name, point), self.at(arm.baseline, point))


def paired(own: Cell, base: Cell, metric: str) -> stats.Estimate | None:
    """The effect over the blocks that both have: a difference of what came of a disturbance, else a log-ratio. None without such a block."""
    mine, theirs = own.known(metric), base.known(metric)
    both = sorted(mine.keys() & theirs.keys())
    estimate = stats.difference if METRICS[metric].kind == "difference" else stats.paired
    return estimate([mine[block] for block in both], [theirs[block] for block in both]) if both else None


def resolution_s(metric: str, point: Point, clock_error_s: float) -> float:
    """Below this a difference is none, however often it repeats: requests come one by one, and clocks are known so well only."""
    seen = about(metric).seen
    spacing_s = 1 / point.rate_rps if point.rate_rps is not None and seen in ("requests", "both") else 0.0
    return spacing_s + (clock_error_s if seen == "both" else 0.0)


def cells_of(plan: Plan, samples: Sequence[Sample], histogram_of: HistogramOf, disturbed: bool | None = None) -> Cells:
    """Every arm at every point, measured or not. `histogram_of` is called once per counted sample of a steady load.

    `disturbed`: of such points only, or of steady ones; None: of all.

    MeasuringError when samples do not belong together.
    """
    refuse_mixtures(plan, samples)
    planned: dict[_Where, set[int]] = defaultdict(set)
    tried: dict[_Where, list[Sample]] = defaultdict(list)
    wanted: Counter[tuple[int, *_Where]] = Counter()
    for slot in plan.slots:
        for block, where in ((block_of(slot.point, each), each[1:4]) for each in slot.cells):
            planned[where].add(block)
            wanted[block, *where] += 1
    for sample in samples:
        tried[cell(sample)[1:4]].append(sample)
    unsteady = unsteady_arms(samples)
    counted: dict[_Where, dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for place, sample in sorted(counted_samples(samples).items()):
        counted[place[1:4]][block_of(sample.point, place)].append(sample)
    for where, blocks in counted.items():
        for block in [block for block, found in blocks.items() if len(found) < ENOUGH * wanted[block, *where]]:
            del blocks[block]

    def read(arm: Arm, point: Point, against: str = "") -> Cell:
        where = arm.name, point.name, against
        control = control_of(plan.points, point)
        lost = counted[where].keys() - counted[arm.name, control.name, ""].keys() if control else set[int]()
        kept = {block: sample for block, sample in counted[where].items() if block not in lost}
        values = _steady(kept, histogram_of) if point.disturbance is None else (_outcomes(kept), None)
        firsts = {block: found[0] for block, found in kept.items()}
        told = unsteady.get((arm.name, point.name))
        return Cell(
            arm, point, frozenset(planned[where]), tuple(tried[where]), firsts, tuple(sorted(lost)), *values, told
        )

    points = [point for point in plan.points if disturbed is None or (point.disturbance is not None) is disturbed]
    places = [(arm, point) for point in points for arm in plan.arms]
    base = {arm.name: arm for arm in plan.arms}
    return Cells(
        plan,
        {(arm.name, point.name): read(arm, point) for arm, point in places},
        {
            (arm.name, point.name): Pair(read(arm, point, arm.baseline), read(base[arm.baseline], point, arm.name))
            for arm, point in places
            if arm.baseline and planned[arm.name, point.name, arm.baseline]
        },
    )


def block_of(point: Point, measured: Measured) -> int:
    """What statistics take for a block: of a pair whose generations count singly each, numbered through, else the bring-up's own."""
    block, _, _, against, generation, _ = measured
    return block * point.generations + generation if point.singly and against else block


def _steady(counted: Mapping[int, Sequence[Sample]], histogram_of: HistogramOf) -> tuple[Values, Histogram | None]:
    values: dict[str, dict[int, float | None]] = {metric: {} for metric in READ}
    merged: Histogram | None = None
    for block, found in counted.items():
        histograms = [histogram_of(sample) for sample in found]
        for metric, by_block in values.items():
            by_block[block] = _middle([METRICS[metric].read(*each) for each in zip(found, histograms, strict=True)])
        for histogram in histograms:
            if histogram is not None:
                merged = merged.merge(histogram) if merged else histogram
    return values, merged


def _middle(values: Sequence[float | None]) -> float | None:
    """Of a block's measurements: the geometric mean, so that the ratio of two arms' is the mean of their log-ratios; None without all."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or len(known) == 1:
        return known[0] if len(values) == 1 and known else None
    return geometric_mean(known) if min(known) > 0 else 0.0


def _outcomes(counted: Mapping[int, Sequence[Sample]]) -> Values:
    """Only of the blocks whose sample has the metric."""
    return {
        metric: values
        for metric in DIFFERENCES
        if (values := {block: one.outcome[metric] for block, (one, *_) in counted.items() if metric in one.outcome})
    }


def counted_samples(samples: Iterable[Sample]) -> dict[Measured, Sample]:
    """What is measured once → the sample that counts: the last valid attempt, never one of an interrupted block, and none of an arm at a point
    where another sample of it is not steady: the others may only have ended too early to show it.
    """
    samples = sorted(samples, key=lambda sample: (sample.generation, sample.attempt, sample.id))
    unsteady = unsteady_arms(samples).keys()
    found: dict[Measured, Sample] = {}
    for sample in samples:
        arms = {sample.arm, sample.pair.against} if sample.pair else {sample.arm}
        steady = unsteady.isdisjoint((arm, sample.point.name) for arm in arms)
        if steady and sample.valid and sample.reason is not Reason.BLOCK_INTERRUPTED:
            found[cell(sample)] = sample
    return found


def counted_alone(samples: Iterable[Sample]) -> dict[tuple[int, str, str], Sample]:
    """(block, arm, point) → the sample that counts, of those that were no side of a pair: only they have levels."""
    return {place[:3]: sample for place, sample in counted_samples(samples).items() if not place[3]}


def cpus_of(record: RunRecord, role: str) -> frozenset[int]:
    """Return the CPUs that a role had to itself, of `0-2,5` 0, 1, 2 and 5; none on a cluster."""
    ends = [part.partition("-") for part in record.facts.get(f"cpus_{role}", "").split(",") if part]
    return frozenset(cpu for low, _, high in ends for cpu in range(int(low), int(high or low) + 1))


def refuse_mixtures(plan: Plan, samples: Sequence[Sample]) -> None:
    """MeasuringError when samples do not belong together, or not to the plan."""
    remedy = "results of different targets, generators or loads are never pooled: summarise each run by itself"
    points = {point.name: point for point in plan.points}
    arms = {arm.name for arm in plan.arms}
    targets = sorted({sample.target for sample in samples})
    if len(targets) > 1:
        raise MeasuringError("samples", f"measured on different targets: {', '.join(targets)}", remedy)
    used: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        if sample.arm not in arms or points.get(sample.point.name) != sample.point:
            fault = f"{sample.arm} at {sample.point.name} with this load is not in the run's plan"
            raise MeasuringError(sample.id, fault, remedy)
        if sample.reason is not Reason.BLOCK_INTERRUPTED:
            used[sample.point.name].add(f"{sample.generator} {sample.generator_version or ''}".strip())
    for point, generators in used.items():
        names = {name.split()[0] for name in generators}
        if len(names) > 1 or len([name for name in generators if " " in name]) > 1:
            raise MeasuringError(point, f"measured with different generators: {', '.join(sorted(generators))}", remedy)


def _errors(samples: Iterable[Sample]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update({kind: count for kind, count in sample.errors.items() if count})
    return dict(sorted(total.items()))
