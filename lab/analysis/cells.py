"""Samples → cells: one for each arm at each point, metric → block → value, for steady and disturbed loads alike.

Refuses to pool different targets, generators or loads, to average percentiles, and to count a block whose control run failed: what
its disturbance showed may not have been its doing. A sample's block, arm and point name its place; of several samples there the last
valid attempt counts, and an interrupted block's never.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from lab.base.errors import MeasuringError
from lab.model.metrics import DIFFERENCES, METRICS, RATIOS, WINDOWED, about
from lab.model.plan import Arm, Plan
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Point, control_of
from lab.stats import paired as stats
from lab.stats.histogram import Histogram, Kind

HistogramOf = Callable[[Sample], Histogram | None]
Values = Mapping[str, Mapping[int, float | None]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm at one point, which may be a control run. Seconds, bytes, requests per second, counts.

    `planned`: its blocks; of a search, those of the trials of this arm at this rate. `samples`: every attempt. `counted`: block → the
    sample that counts. `lost`: blocks with a valid sample that does not count for want of a valid control run. `values`: metric →
    block → number, None = it could not be told. `merged`: the counted samples' latencies together.
    """

    arm: Arm
    point: Point
    planned: frozenset[int] = frozenset()
    samples: tuple[Sample, ...] = ()
    counted: Mapping[int, Sample] = field(default_factory=dict[int, Sample])
    lost: tuple[int, ...] = ()
    values: Values = field(default_factory=dict[str, Mapping[int, float | None]])
    merged: Histogram | None = None

    # -- in one metric

    def known(self, metric: str) -> dict[int, float]:
        """Block → number, in block order. A ratio needs one above 0, which would lie below the clock's resolution."""
        least = 0.0 if METRICS[metric].ratio else -inf
        found = self.values.get(metric, {}).items()
        return {block: value for block, value in sorted(found) if value is not None and least < value < inf}

    def untold(self, metric: str) -> int:
        """In how many blocks the metric's number could not be told."""
        return sum(value is None for value in self.values.get(metric, {}).values())

    def level(self, metric: str) -> stats.Level | None:
        """The blocks' median with its interval; None where no block tells."""
        known = self.known(metric)
        return stats.middle(list(known.values())) if known else None

    def shown(self, metric: str) -> float | None:
        """What a table of steady loads shows: a percentile of the merged histogram, else the median over the blocks that count."""
        entry = METRICS[metric]
        if entry.histogram is not None:
            return entry.histogram(self.merged) if self.merged else None
        known = [value for sample in self.counted.values() if (value := entry.read(sample, None)) is not None]
        return median(known) if known else None

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
    def tried(self) -> int:
        """Blocks that were begun."""
        return len({sample.block for sample in self.samples})

    @property
    def _invalid(self) -> list[Sample]:
        return [sample for sample in self.samples if not sample.valid]

    @property
    def invalid(self) -> dict[Reason, int]:
        """Samples by reason, re-measured ones included."""
        counts = Counter(sample.reason for sample in self._invalid)
        return {reason: counts[reason] for reason in Reason if counts[reason]}

    @property
    def _told(self) -> Sample | None:
        return next(iter([*self.counted.values(), *self._invalid]), None)

    @property
    def generator(self) -> str | None:
        return self._told.generator if self._told else None

    @property
    def stand_in_for(self) -> str | None:
        return self._told.stand_in_for if self._told else None

    @property
    def notes(self) -> list[str]:
        """What the generator's numbers leave out or cannot tell."""
        return [note for sample in self.counted.values() for note in sample.notes]

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
        return _errors(self._invalid)

    @property
    def cpu_of(self) -> str | None:
        """Whose CPU and memory these are: the backend's where there is no proxy."""
        if self.point.disturbance is not None:
            return None
        used = next((sample.usage for sample in self.counted.values() if sample.usage), None)
        return None if used is None else "proxy" if used.get("proxy") else "backend"

    @property
    def limits(self) -> tuple[str, ...]:
        """What limited this arm itself in any valid block of a closed loop, as in `Sample.limited_by`."""
        closed = self.counted.values() if self.point.rate_rps is None else ()
        return tuple(sorted({sample.limited_by for sample in closed if sample.limited_by}))

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
class Cells:
    """All of a run's, by (arm, point)."""

    plan: Plan
    cells: Mapping[tuple[str, str], Cell] = field(repr=False)

    def at(self, arm: str, point: Point) -> Cell:
        return self.cells[arm, point.name]

    def again(self, baseline: str) -> str | None:
        """The second measurement of a baseline; None where it has none."""
        return next((arm.name for arm in self.plan.arms if arm.role == "again" and arm.baseline == baseline), None)

    def floor(self, baseline: str, point: Point, metric: str, clock_error_s: float) -> float | None:
        """The A/A δ of what is compared with `baseline`, of the metric's kind; None below six A/A blocks."""
        again = self.again(baseline)
        aa = paired(self.at(again, point), self.at(baseline, point), metric) if again else None
        return floor_of(metric, point, aa, clock_error_s)


def paired(own: Cell, base: Cell, metric: str) -> stats.Estimate | None:
    """The effect over the blocks that both have: a log-ratio, or a difference. None without such a block."""
    mine, theirs = own.known(metric), base.known(metric)
    both = sorted(mine.keys() & theirs.keys())
    estimate = stats.paired if METRICS[metric].ratio else stats.difference
    return estimate([mine[block] for block in both], [theirs[block] for block in both]) if both else None


def floor_of(metric: str, point: Point, aa: stats.Estimate | None, clock_error_s: float) -> float | None:
    """The larger of the A/A pair's δ and of what the metric resolves; None below six A/A blocks."""
    floor = stats.floor_of(aa) if aa is not None else None
    return None if floor is None else max(floor, resolution_s(metric, point, clock_error_s))


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
    planned: dict[tuple[str, str], set[int]] = defaultdict(set)
    tried: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    counted: dict[tuple[str, str], dict[int, Sample]] = defaultdict(dict)
    for slot in plan.slots:
        planned[slot.arm.name, slot.point.name].add(slot.block)
    for sample in samples:
        tried[sample.arm, sample.point.name].append(sample)
    for (block, *place), sample in sorted(counted_samples(samples).items()):
        counted[place[0], place[1]][block] = sample
    found: dict[tuple[str, str], Cell] = {}
    for point in plan.points:
        if disturbed is not None and (point.disturbance is not None) is not disturbed:
            continue
        control = control_of(plan.points, point)
        for arm in plan.arms:
            place = arm.name, point.name
            lost = counted[place].keys() - counted[arm.name, control.name].keys() if control else set[int]()
            kept = {block: sample for block, sample in counted[place].items() if block not in lost}
            read = _steady(kept, histogram_of) if point.disturbance is None else (_outcomes(kept), None)
            found[place] = Cell(
                arm, point, frozenset(planned[place]), tuple(tried[place]), kept, tuple(sorted(lost)), *read
            )
    return Cells(plan, found)


def _steady(counted: Mapping[int, Sample], histogram_of: HistogramOf) -> tuple[Values, Histogram | None]:
    values: dict[str, dict[int, float | None]] = {metric: {} for metric in RATIOS}
    merged: Histogram | None = None
    for block, sample in counted.items():
        histogram = histogram_of(sample)
        for metric in RATIOS:
            values[metric][block] = METRICS[metric].read(sample, histogram)
        if histogram is not None:
            merged = merged.merge(histogram) if merged else histogram
    return values, merged


def _outcomes(counted: Mapping[int, Sample]) -> Values:
    """Only of the blocks whose sample has the metric."""
    return {
        metric: values
        for metric in DIFFERENCES
        if (values := {block: one.outcome[metric] for block, one in counted.items() if metric in one.outcome})
    }


def counted_samples(samples: Iterable[Sample]) -> dict[tuple[int, str, str], Sample]:
    """(block, arm, point) → the sample that counts: the last valid attempt, never one of an interrupted block."""
    found: dict[tuple[int, str, str], Sample] = {}
    for sample in sorted(samples, key=lambda sample: (sample.generation, sample.attempt, sample.id)):
        if sample.valid and sample.reason is not Reason.BLOCK_INTERRUPTED:
            found[sample.block, sample.arm, sample.point.name] = sample
    return found


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
