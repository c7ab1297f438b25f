"""Cells made from samples: one for each arm at each point, with the value of each metric in each block.

Steady loads and disrupted ones have the same kind of cell. Where samples change within themselves (are not steady), the cell describes the
change and has no values.

Of several attempts at the same measurement the last valid one counts. A sample of an interrupted block never counts. The module does not pool different targets, generators or loads, and does not average percentiles. It does not count a
block whose control run failed: what its disruption showed may have had another cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log
from statistics import geometric_mean, median

from lab.analysis.aggregate.absolute import Absolute, compute_absolute, compute_mean
from lab.base.errors import MeasuringError
from lab.model.metrics import DELAY_RESOLUTION_S, DIFFERENCES, METRICS, RATIOS, WINDOWED, find_metric
from lab.model.plan import Arm, ArmAndPoint, Plan
from lab.model.plan import CellKey as Measured
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample, belongs_to_block, key_of_measurement
from lab.model.steadiness import CAUSES, Change
from lab.model.sweeps import LoadPoint, find_control
from lab.records.steadiness import describe_change
from lab.stats import paired as stats
from lab.stats.histogram import Histogram, Kind

READ_METRICS = (*RATIOS, "backend_cpu_per_request", "slowest_s")
"""The metrics that are read off every sample of a steady load.

Some have effects, one must be the same on both sides of a pair, and one is only shown in a table.
"""
LEAST_COUNTED_SHARE = 0.5
"""The share of a block's measurements of one pair that must count for the block to count."""
ALIKE_S = 0.5
"""The seconds by which two times of a change may differ and still be the same: looks are a second apart."""
HistogramOf = Callable[[Sample], Histogram | None]
Values = Mapping[str, Mapping[int, float | None]]
_CellPlace = tuple[str, ...]
"""A tuple of arm, point, and the arm on the other side of the pair (empty: solo)."""


@dataclass(frozen=True, slots=True)
class UnsteadyArm:
    """How the samples of one arm at one load point change within themselves, so that no number is computed of them.

    Attributes:
        changes: The change of each sample that is not steady: when, and the rate or CPU time before and after.
        causes: The causes of these changes, as phrases; empty if none is known.
        judged: The number of samples that were examined, steady or not.
        pairs: Whether the samples are sides of pairs. They are used only if no solo sample of the arm changed.

    """

    changes: tuple[Change, ...]
    causes: tuple[str, ...]
    judged: int
    pairs: bool

    @property
    def middle(self) -> Change:
        """The one change of an unsteady arm that stands for the changes of all its samples.

        It is the change of median time and rate. Changes of CPU time are considered only if no sample's rate changes.
        """
        changes = [change for change in self.changes if change.rate] or self.changes
        at_s = median(change.at_s for change in changes)
        nearest = min(abs(change.at_s - at_s) for change in changes)
        candidates = [change for change in changes if abs(change.at_s - at_s) <= nearest + ALIKE_S]
        return sorted(candidates, key=lambda change: change.rate_before_rps)[len(candidates) // 2]

    @property
    def share(self) -> str:
        """The phrase with how many samples of an unsteady arm changed within themselves: `4 of 10 samples`."""
        return f"{len(self.changes)} of {self.judged} {'pairs' if self.pairs else 'samples'}"

    def sentence(self) -> str:
        """Describe how the samples change, as a sentence with numbers.

        Example: `the rate falls in 10 of 10 samples after 2 s (11,300 req/s, then 340): local ports run out`.
        """
        middle = self.middle
        down = middle.rate_after_rps < middle.rate_before_rps
        if not middle.rate:
            down = (middle.cpu_after_s or 0.0) < (middle.cpu_before_s or 0.0)
        event = f"the {'rate' if middle.rate else 'CPU time per request'} {'falls' if down else 'rises'}"
        ends = sorted({round(change.at_s) for change in self.changes})
        after = " to ".join(str(end) for end in dict.fromkeys((ends[0], ends[-1])))
        causes = f": {', '.join(self.causes)}" if self.causes else ""
        return f"{event} in {self.share} after {after} s ({describe_change(middle, lasting=False)}){causes}"

    def short(self) -> str:
        """Describe how the samples change, for a table's cell: `11,300 req/s for 2 s, then 340 (10 of 10 samples)`."""
        return f"{describe_change(self.middle)} ({self.share})"


def find_unsteadiness(changes: Sequence[Change | None], pairs: bool = False) -> UnsteadyArm | None:
    """Return how an arm's samples at a point change within themselves; None if all are steady.

    Args:
        changes: The change within each sample, None for a sample that is steady.
        pairs: Whether the samples are sides of pairs.

    """
    changed = tuple(change for change in changes if change is not None)
    causes = dict.fromkeys(CAUSES[change.cause] for change in changed if change.cause)
    return UnsteadyArm(changed, tuple(causes), len(changes), pairs) if changed else None


def find_unsteady_arms(samples: Iterable[Sample]) -> Mapping[ArmAndPoint, UnsteadyArm]:
    """Return (arm, point) → how the arm's samples there change within themselves, where at least one does.

    The samples of a pair belong to the side that was measured. Solo samples that change go before those of pairs.
    """
    changes_at: dict[tuple[bool, ArmAndPoint], list[Change | None]] = defaultdict(list)
    for sample in filter(belongs_to_block, samples):
        if sample.valid or sample.reason is Reason.NOT_STEADY:
            changes_at[sample.pair is not None, (sample.arm, sample.point.name)].append(sample.change)
    arms: dict[ArmAndPoint, UnsteadyArm] = {}
    for (pairs, place), changes in sorted(changes_at.items(), key=lambda item: item[0], reverse=True):
        # solo samples come last: where they changed, they replace the arm's pairs
        if arm := find_unsteadiness(changes, pairs):
            arms[place] = arm
    return arms


@dataclass(frozen=True, slots=True)
class ArmCell:
    """The cell of one arm at one load point: its samples, solo or as one side of a pair, and their values by block.

    Values are seconds, bytes, requests per second, or counts.

    Attributes:
        arm: The arm.
        point: The load point, which may be a control run (the same load without its disruption).
        planned: The numbers of the planned blocks; of a search for the knee, those in which this rate was tried.
        samples: All samples, counted or not, of every attempt.
        counted: Block → the sample that counts. If a block has several (generations of workers, repeats), this is the first
            of them, and `values` has their geometric mean.
        lost: The blocks with a valid sample that does not count, because the block has no valid control run.
        values: Metric → block → value; None if the samples could not show the metric. Where the generations of workers of a
            pair count singly, each generation is a block.
        merged: The latencies of all counted samples together; None if there are none.
        unsteady: How samples of the arm at the point change within themselves, solo or in a pair; None if they are steady.
            If samples change, no sample counts, and nothing is computed.

    """

    arm: Arm
    point: LoadPoint
    planned: frozenset[int] = frozenset()
    samples: tuple[Sample, ...] = ()
    counted: Mapping[int, Sample] = field(default_factory=dict[int, Sample])
    lost: tuple[int, ...] = ()
    values: Values = field(default_factory=dict[str, Mapping[int, float | None]])
    merged: Histogram | None = None
    unsteady: UnsteadyArm | None = None

    # -- in one metric

    @property
    def limits(self) -> tuple[str, ...]:
        """The limits of the rate in the counted samples of an arm, such as `proxy` or `generator`.

        Each is a value of `Sample.limited_by`. Empty for an open loop.
        """
        closed = self.counted.values() if self.point.rate_rps is None else ()
        return tuple(sorted({sample.limited_by for sample in closed if sample.limited_by}))

    def known(self, metric: str) -> dict[int, float]:
        """Return block → value of a metric in block order, without blocks whose value is not known.

        For metrics that are compared by ratios a value of 0 is left out, too: it only lies below the clock's resolution.
        """
        least = -inf if METRICS[metric].kind == "difference" else 0.0
        values = self.values.get(metric, {}).items()
        return {block: value for block, value in sorted(values) if value is not None and least < value < inf}

    def level(self, metric: str) -> stats.Level | None:
        """Return the median of a metric over the blocks, with its interval; None if no block has a value."""
        by_block = self.known(metric)
        return stats.estimate_median(list(by_block.values())) if by_block else None

    def shown(self, metric: str) -> float | None:
        """Return a metric's absolute value as one number for programs, which cannot read a range or clusters.

        It is the percentile of all blocks' requests together, or the mean of the blocks. None where `absolute` is None, and where
        the blocks fall into two clusters. For people there is `absolute`.
        """
        absolute = self.absolute(metric)
        if absolute is None or absolute.clusters:
            return None
        return self._read_merged(metric) or compute_mean(self._list_block_values(metric))

    def absolute(self, metric: str) -> Absolute | None:
        """Return a metric's absolute value for people: a value, a range or two clusters.

        It is None if no block has a value. A percentile is also computed from six blocks or more that have too few requests each, but enough together.
        """
        values, merged = self._list_block_values(metric), self._read_merged(metric)
        if merged is not None and len(values) < len(self.counted) >= stats.MIN_BLOCKS:
            return Absolute(len(self.counted), merged, merged, merged)
        return compute_absolute(values, metric, merged)

    def _read_merged(self, metric: str) -> float | None:
        """Return a percentile over all blocks' requests; None if too few lie beyond it, or for other metrics."""
        read = METRICS[metric].histogram
        return read(self.merged) if read is not None and self.merged else None

    def _list_block_values(self, metric: str) -> list[float]:
        """Return a metric's values, one for each block that has one."""
        if metric in self.values:
            return list(self.known(metric).values())
        values = (METRICS[metric].read(sample, None) for sample in self.counted.values())
        return [value for value in values if value is not None]

    def largest(self, metric: str) -> float | None:
        """Return the largest value of a metric in any block; None if no block has a value."""
        return max(self.known(metric).values(), default=None)

    # -- of its samples

    @property
    def valid_blocks(self) -> int:
        """The number of blocks in which an arm has a sample that counts at a point."""
        return len(self.counted)

    @property
    def planned_blocks(self) -> int:
        """The number of blocks that are planned for an arm at a point."""
        return len(self.planned)

    @property
    def outcome_blocks(self) -> int:
        """The number of blocks of an arm at a point with a sample that is valid, or invalid only as not steady.

        Of an unsteady arm no sample counts, so these blocks are counted to see whether all that was planned was measured.
        """
        settled = (sample for sample in self.samples if sample.valid or sample.reason is Reason.NOT_STEADY)
        return len(
            self.counted.keys()
            | {number_block(self.point, key_of_measurement(sample)) for sample in settled if belongs_to_block(sample)}
        )

    @property
    def tried(self) -> int:
        """The number of blocks in which an arm has any sample at a point, valid or not."""
        return len({number_block(self.point, key_of_measurement(sample)) for sample in self.samples})

    @property
    def invalid(self) -> dict[Reason, int]:
        """The number of an arm's invalid samples at a point by reason, whether or not they were measured again."""
        counts = Counter(sample.reason for sample in self.samples if not sample.valid)
        return {reason: counts[reason] for reason in Reason if counts[reason]}

    @property
    def generator(self) -> str | None:
        """The name of the load generator that made the samples of an arm at a point; None without a sample."""
        return next((sample.generator for sample in self._ordered_samples), None)

    @property
    def stand_in_for(self) -> str | None:
        """The load generator that the sweep asked for, where another one stood in for it; None if none did."""
        return next((sample.stand_in_for for sample in self._ordered_samples), None)

    @property
    def _ordered_samples(self) -> list[Sample]:
        """The samples of an arm at a point: first those that count, then the invalid ones."""
        return [*self.counted.values(), *(sample for sample in self.samples if not sample.valid)]

    @property
    def notes(self) -> list[str]:
        """The notes of the counted samples about what the load generator's numbers leave out or cannot show."""
        return [note for sample in self.counted.values() for note in sample.notes]

    @property
    def complete(self) -> bool:
        """True if an arm has a sample that counts in every block that is planned for it at a point.

        If the arm's samples are not steady, so that none counts, samples that are valid or not steady suffice.
        """
        return (self.valid_blocks if self.unsteady is None else self.outcome_blocks) >= self.planned_blocks

    # -- of a steady load

    @property
    def histogram(self) -> Kind | None:
        """The kind of histogram in which the latencies of a cell are stored; None without latencies."""
        return self.merged.kind if self.merged else None

    @property
    def requests(self) -> int:
        """The number of requests in all samples of a cell that count."""
        return sum(sample.requests or 0 for sample in self.counted.values())

    @property
    def errors(self) -> dict[str, int]:
        """The number of failed requests by kind of error, over all samples of a cell that count."""
        return _sum_errors(self.counted.values())

    @property
    def errors_invalid(self) -> dict[str, int]:
        """The number of failed requests by kind of error, over all invalid samples of a cell."""
        return _sum_errors(sample for sample in self.samples if not sample.valid)

    @property
    def cpu_of(self) -> str | None:
        """Whose CPU time and memory the values of a cell are: `proxy`, or `backend` where there is no proxy.

        None for a disrupted load, and where no sample counts.
        """
        if self.point.disturbance is not None:
            return None
        used = next((sample.usage for sample in self.counted.values() if sample.usage), None)
        return None if used is None else "proxy" if used.get("proxy") else "backend"

    @property
    def gauges(self) -> dict[str, float]:
        """The gauges of a cell by name: values that the system reported about itself before the load.

        Systems define them (`System.gauges`). Each is the median over the counted samples that have the gauge.
        """
        counted = self.counted.values()
        names = dict.fromkeys(name for sample in counted for name in sample.gauges)
        return {name: median(sample.gauges[name] for sample in counted if name in sample.gauges) for name in names}

    # -- of a disruption

    @property
    def clock_error_s(self) -> float:
        """The largest error, in seconds, of the offset between clocks in any counted sample of a disrupted load."""
        return max((sample.outcome.get("clock_error_s") or 0.0 for sample in self.counted.values()), default=0.0)

    @property
    def slowdowns(self) -> dict[str, stats.Estimate]:
        """The slowdown that a disruption causes: percentile (`p99`, `p50`) → latency during it against before it.

        In each block the two values of that block are compared. A percentile is left out unless every block that counts has
        both values.
        """
        slowdowns: dict[str, stats.Estimate] = {}
        for name in reversed(WINDOWED):
            during, before = (self.known(f"{name}_{part}_s") for part in ("during", "before"))
            blocks = [block for block in during if during[block] and before.get(block)]
            if blocks and len(blocks) == self.valid_blocks:
                slowdowns[name] = stats.estimate_ratio(
                    [during[block] for block in blocks], [before[block] for block in blocks]
                )
        return slowdowns


@dataclass(frozen=True, slots=True)
class CellPair:
    """Two cells whose blocks are compared: the cell of an arm (`own`) and the cell of its baseline (`base`)."""

    own: ArmCell
    base: ArmCell

    @property
    def complete(self) -> bool:
        """True if both cells have a sample that counts in every planned block.

        If samples of either are not steady, so that none counts, samples that are valid or not steady suffice.
        """
        sides = (
            (side, side.valid_blocks if self.unsteady is None else side.outcome_blocks)
            for side in (self.own, self.base)
        )
        return all(blocks >= side.planned_blocks for side, blocks in sides)

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """How samples of an arm, or else of its baseline, change within themselves; None if all are steady.

        If samples change, no effect between the two is computed.
        """
        return self.own.unsteady or self.base.unsteady

    def log_ratios(self, metric: str) -> dict[int, float]:
        """Return block → log(value of the arm / value of the baseline) in block order, where both have a value."""
        arm_values, baseline_values = self.own.known(metric), self.base.known(metric)
        return {
            block: log(value / baseline_values[block])
            for block, value in arm_values.items()
            if block in baseline_values
        }


@dataclass(frozen=True, slots=True)
class Cells:
    """All cells of a run: what was measured of each arm at each load point.

    Attributes:
        plan: The run's plan.
        cells: (arm, point) → the cell of the arm's solo samples, from which absolute values come.
        pairs: (arm, point) → the two cells of the arm and its baseline as a pair, from which their ratio comes.

    """

    plan: Plan
    cells: Mapping[ArmAndPoint, ArmCell] = field(repr=False)
    pairs: Mapping[ArmAndPoint, CellPair] = field(repr=False, default_factory=dict[ArmAndPoint, "CellPair"])

    def at(self, arm: str, point: LoadPoint) -> ArmCell:
        """Return the solo cell of an arm at a point."""
        return self.cells[arm, point.name]

    def pair(self, arm: str, point: LoadPoint) -> CellPair | None:
        """Return the pair of an arm and its baseline at a point; None if the arm is not paired."""
        return self.pairs.get((arm, point.name))

    def apart(self, arm: Arm, point: LoadPoint) -> CellPair:
        """Return the solo cells of an arm and of its baseline at a point, which were measured apart, not as a pair."""
        assert arm.baseline is not None, "only what has a baseline is compared"
        return CellPair(self.at(arm.name, point), self.at(arm.baseline, point))


def estimate_effect(arm: ArmCell, baseline: ArmCell, metric: str) -> stats.Estimate | None:
    """Estimate the effect of an arm against a baseline in a metric, over the blocks in which both have a value.

    It is a difference (arm − baseline) for outcomes of a disruption, and a log-ratio for other metrics.

    Returns:
        None if there is no block in which both have a value.

    """
    arm_values, baseline_values = arm.known(metric), baseline.known(metric)
    blocks = sorted(arm_values.keys() & baseline_values.keys())
    estimate = stats.estimate_difference if METRICS[metric].kind == "difference" else stats.estimate_ratio
    return (
        estimate([arm_values[block] for block in blocks], [baseline_values[block] for block in blocks])
        if blocks
        else None
    )


def compute_resolution_s(metric: str, point: LoadPoint, clock_error_s: float) -> float:
    """Return the resolution of a disruption's outcome: smaller differences mean nothing, however often they repeat.

    Requests come one at a time, and clocks are known only to within an error.

    Args:
        metric: The metric's name in the catalogue.
        point: The load point, whose rate is that of the requests.
        clock_error_s: The largest error of the offset between clocks, in seconds.

    Returns:
        Seconds; 0 for a metric that depends neither on when requests come nor on clocks.

    """
    source = find_metric(metric).seen
    if source == "delays":
        return DELAY_RESOLUTION_S
    spacing_s = 1 / point.rate_rps if point.rate_rps is not None and source in ("requests", "both") else 0.0
    return spacing_s + (clock_error_s if source == "both" else 0.0)


def build_cells(
    plan: Plan, samples: Sequence[Sample], histogram_of: HistogramOf, disturbed: bool | None = None
) -> Cells:
    """Build the cells of a run: one for every arm at every point of its plan, measured or not, and those of pairs.

    Args:
        plan: The run's plan.
        samples: All samples of the run.
        histogram_of: The function that reads a sample's histogram of latencies. It is called once per counted sample of a
            steady load.
        disturbed: True: only the disrupted points; False: only the steady ones; None: all.

    Raises:
        MeasuringError: Samples do not belong together, or not to the plan.

    """
    refuse_mixtures(plan, samples)
    planned: dict[_CellPlace, set[int]] = defaultdict(set)
    tried: dict[_CellPlace, list[Sample]] = defaultdict(list)
    expected: Counter[tuple[int, *_CellPlace]] = Counter()
    for slot in plan.slots:
        for block, place in ((number_block(slot.point, measured), measured[1:4]) for measured in slot.cells):
            planned[place].add(block)
            expected[block, *place] += 1
    for sample in samples:
        tried[key_of_measurement(sample)[1:4]].append(sample)
    unsteady = find_unsteady_arms(samples)
    counted: dict[_CellPlace, dict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for measured, sample in sorted(select_counted_samples(samples).items()):
        counted[measured[1:4]][number_block(sample.point, measured)].append(sample)
    for place, blocks in counted.items():
        for block in [
            block for block, repeats in blocks.items() if len(repeats) < LEAST_COUNTED_SHARE * expected[block, *place]
        ]:
            del blocks[block]

    def read(arm: Arm, point: LoadPoint, against: str = "") -> ArmCell:
        place = arm.name, point.name, against
        control = find_control(plan.points, point)
        lost = counted[place].keys() - counted[arm.name, control.name, ""].keys() if control else set[int]()
        usable = {block: sample for block, sample in counted[place].items() if block not in lost}
        values = (_read_outcomes(usable), None) if point.has_outcome else _read_steady_load(usable, histogram_of)
        firsts = {block: repeats[0] for block, repeats in usable.items()}
        change = unsteady.get((arm.name, point.name))
        return ArmCell(
            arm, point, frozenset(planned[place]), tuple(tried[place]), firsts, tuple(sorted(lost)), *values, change
        )

    points = [point for point in plan.points if disturbed is None or point.has_outcome is disturbed]
    places = [(arm, point) for point in points for arm in plan.arms]
    base = {arm.name: arm for arm in plan.arms}
    return Cells(
        plan,
        {(arm.name, point.name): read(arm, point) for arm, point in places},
        {
            (arm.name, point.name): CellPair(read(arm, point, arm.baseline), read(base[arm.baseline], point, arm.name))
            for arm, point in places
            if arm.baseline and planned[arm.name, point.name, arm.baseline]
        },
    )


def number_block(point: LoadPoint, measured: Measured) -> int:
    """Return the number of the block to which a measurement belongs in statistics.

    It is the number of the bring-up. Where the generations of workers of a pair count singly, each generation is a block for statistics,
    and blocks are numbered consecutively.

    Args:
        point: The load point.
        measured: The key of the measurement: block, arm, point, other arm of the pair, generation, repeat.

    """
    block, _, _, against, generation, _ = measured
    return block * point.generations + generation if point.singly and against else block


def _read_steady_load(
    counted: Mapping[int, Sequence[Sample]], histogram_of: HistogramOf
) -> tuple[Values, Histogram | None]:
    """Read the metrics of a steady load off its samples.

    Args:
        counted: Block → the samples of the block that count.
        histogram_of: The function that reads a sample's histogram of latencies.

    Returns:
        (metric → block → value, for `READ_METRICS`; the histogram of all latencies together, None without any).

    """
    values: dict[str, dict[int, float | None]] = {metric: {} for metric in READ_METRICS}
    merged: Histogram | None = None
    for block, samples in counted.items():
        histograms = [histogram_of(sample) for sample in samples]
        for metric, by_block in values.items():
            by_block[block] = _average_block(
                [METRICS[metric].read(*reading) for reading in zip(samples, histograms, strict=True)]
            )
        for histogram in histograms:
            if histogram is not None:
                merged = merged.merge(histogram) if merged else histogram
    return values, merged


def _average_block(values: Sequence[float | None]) -> float | None:
    """Return the geometric mean of a block's measurements; None if one of them is missing, 0 if one of them is 0.

    It is geometric so that the log of two arms' ratio of means is the mean of their log-ratios.
    """
    present = [value for value in values if value is not None]
    if len(present) < len(values) or len(present) == 1:
        return present[0] if len(values) == 1 and present else None
    return geometric_mean(present) if min(present) > 0 else 0.0


def _read_outcomes(counted: Mapping[int, Sequence[Sample]]) -> Values:
    """Return metric → block → outcome of a disruption, for the blocks whose (first) sample has the metric."""
    return {
        metric: values
        for metric in DIFFERENCES
        if (
            values := {
                block: first.outcome[metric] for block, (first, *_) in counted.items() if metric in first.outcome
            }
        )
    }


def select_counted_samples(samples: Iterable[Sample]) -> dict[Measured, Sample]:
    """Return key of a measurement → the sample that counts for it: the last valid attempt.

    A sample of an interrupted block never counts. If any sample of an arm at a point is not steady, none of the arm's samples at the point
    counts: the others may only have ended too early to show the change.
    """
    samples = sorted(samples, key=lambda sample: (sample.generation, sample.attempt, sample.id))
    unsteady = find_unsteady_arms(samples).keys()
    counted: dict[Measured, Sample] = {}
    for sample in samples:
        arms = {sample.arm, sample.pair.against} if sample.pair else {sample.arm}
        steady = unsteady.isdisjoint((arm, sample.point.name) for arm in arms)
        if steady and sample.valid and sample.reason is not Reason.BLOCK_INTERRUPTED:
            counted[key_of_measurement(sample)] = sample
    return counted


def select_counted_solo_samples(samples: Iterable[Sample]) -> dict[tuple[int, str, str], Sample]:
    """Return (block, arm, point) → the solo sample that counts: only solo samples have absolute values."""
    return {measured[:3]: sample for measured, sample in select_counted_samples(samples).items() if not measured[3]}


def list_cpus(record: RunRecord, role: str) -> frozenset[int]:
    """Return the numbers of the CPUs on which a role, such as `proxy`, ran; empty on a cluster.

    The record has them as text: `0-2,5` means 0, 1, 2 and 5.
    """
    ends = [part.partition("-") for part in record.facts.get(f"cpus_{role}", "").split(",") if part]
    return frozenset(cpu for low, _, high in ends for cpu in range(int(low), int(high or low) + 1))


def refuse_mixtures(plan: Plan, samples: Sequence[Sample]) -> None:
    """Check that samples belong to a plan and to each other.

    Raises:
        MeasuringError: The samples are of different targets, loads or generators, or one is not in the plan.

    """
    remedy = "results of different targets, generators or loads are never pooled: summarise each run separately"
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


def _sum_errors(samples: Iterable[Sample]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update({kind: count for kind, count in sample.errors.items() if count})
    return dict(sorted(total.items()))
