"""Cells made from samples: one for each arm (variant) at each load point, with each metric's value in each block.

Steady loads and disrupted ones have the same kind of cell. If samples are not steady (their rate or CPU time changes midway), the
cell describes the change and has no values.

Of several attempts at the same measurement the last valid one counts. A sample of an interrupted block never counts. The module
does not pool different targets, generators or loads, and does not average percentiles. A block whose control run (the same load
without its disruption) failed does not count: the effects of the disruption may have had another cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log
from statistics import geometric_mean, median

from lab.analysis.aggregate.absolute import Absolute, compute_absolute, compute_mean
from lab.base.errors import MeasuringError
from lab.base.grouping import group_values
from lab.model.metrics import DELAY_RESOLUTION_S, DIFFERENCES, METRICS, RATIOS, WINDOWED, find_metric
from lab.model.plan import Arm, ArmAndPoint, CellKey, Plan
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
    """The arm (variant in a run) at one load whose samples are not steady: their rate or CPU time changes midway.

    No result is computed from such samples, except under a load of minutes (`--sustained`).

    Attributes:
        changes: The change of each sample that is not steady: when it came, and the rate and CPU time before and after.
        causes: The causes of these changes, as phrases such as `local ports run out`; empty if none is known.
        judged: The number of samples that were examined, steady or not.
        pairs: True if the samples are sides of pairs (two arms measured at once), False if each was measured alone.
            Pairs are only used if no sample measured alone changed.

    """

    changes: tuple[Change, ...]
    causes: tuple[str, ...]
    judged: int
    pairs: bool

    @property
    def middle(self) -> Change:
        """The change that represents all changes within an arm's samples in texts: the one nearest to their median time.

        Such a change is a lasting move of the rate or the CPU time per request while a sample's load runs. If several
        changes are nearest (within half a second of each other), it is the one with the median rate before the change.
        If any sample changes its rate, changes of the CPU time alone are left out.
        """
        changes = [change for change in self.changes if change.rate] or self.changes
        at_s = median(change.at_s for change in changes)
        nearest = min(abs(change.at_s - at_s) for change in changes)
        candidates = [change for change in changes if abs(change.at_s - at_s) <= nearest + ALIKE_S]
        return sorted(candidates, key=lambda change: change.rate_before_rps)[len(candidates) // 2]

    @property
    def share(self) -> str:
        """The phrase with the number of samples in which the rate or CPU time changes midway: `4 of 10 samples`.

        For samples that are sides of pairs (two arms measured at once) it is `4 of 10 pairs`.
        """
        return f"{len(self.changes)} of {self.judged} {'pairs' if self.pairs else 'samples'}"

    def sentence(self) -> str:
        """Describe how the rate or CPU time changes within an arm's unsteady samples, as a sentence with numbers.

        Example: `the rate falls in 10 of 10 samples after 2 s (11,300 req/s, then 340): local ports run out`.
        """
        middle = self.middle
        what, before, after = (
            ("rate", middle.rate_before_rps, middle.rate_after_rps)
            if middle.rate
            else ("CPU time per request", middle.cpu_before_s or 0.0, middle.cpu_after_s or 0.0)
        )
        ends = sorted({round(change.at_s) for change in self.changes})
        times = " to ".join(str(end) for end in dict.fromkeys((ends[0], ends[-1])))
        causes = f": {', '.join(self.causes)}" if self.causes else ""
        event = f"the {what} {'falls' if after < before else 'rises'}"
        if middle.cause == "restart":
            event = "the proxy's container is restarted"
        return f"{event} in {self.share} after {times} s ({describe_change(middle, lasting=False)}){causes}"

    def short(self) -> str:
        """Describe the change within unsteady samples for a table: `11,300 req/s for 2 s, then 340 (10 of 10 samples)`."""
        return f"{describe_change(self.middle)} ({self.share})"


def find_unsteadiness(changes: Sequence[Change | None], pairs: bool = False) -> UnsteadyArm | None:
    """Collect the changes within the samples of one arm (variant) at one load; None if all samples are steady.

    A change is a lasting move of a sample's rate or CPU time per request while its load ran.

    Args:
        changes: One entry per sample: its change, or None if the sample is steady.
        pairs: True if the samples are sides of pairs (two arms measured at once).

    """
    changed = tuple(change for change in changes if change is not None)
    causes = dict.fromkeys(CAUSES[change.cause] for change in changed if change.cause)
    return UnsteadyArm(changed, tuple(causes), len(changes), pairs) if changed else None


def find_unsteady_arms(samples: Iterable[Sample]) -> Mapping[ArmAndPoint, UnsteadyArm]:
    """Find the arms (variants) whose rate or CPU time changes within a sample, at each load point.

    A sample of a pair (two arms measured at once) is used for the arm that it measured. If both an arm's solo samples
    (measured alone) and its samples in pairs change, only the solo samples are described.

    Returns:
        (name of the arm, name of the load point) → the changes; only for arms and points with such a change.

    """
    changes_at = group_values(
        ((sample.pair is not None, (sample.arm, sample.point.name)), sample.change)
        for sample in filter(belongs_to_block, samples)
        if sample.valid or sample.reason is Reason.NOT_STEADY
    )
    # solo samples come last: where they changed, they replace the arm's pairs
    ordered = sorted(changes_at.items(), key=lambda item: item[0], reverse=True)
    return {place: arm for (pairs, place), changes in ordered if (arm := find_unsteadiness(changes, pairs))}


@dataclass(frozen=True, slots=True)
class ArmCell:
    """The samples of one arm (variant in a run) at one load point, and the values that they give in each block.

    A block is one repetition of all arms at all loads. The samples are either solo (measured alone) or the arm's side
    of a pair (two arms measured at once). Values are seconds, bytes, requests per second, or counts.

    Attributes:
        arm: The arm.
        point: The load point. It may be a control run, which is the load without its disruption.
        planned: The numbers of the planned blocks. In a search for the knee (the highest rate within a latency bound),
            these are the blocks in which this rate was tried.
        samples: All samples of every attempt, whether or not results are computed from them.
        counted: Block → the counted sample (from which results are computed). If a block has several (repeats, or one
            per reload), this is the first of them, while `values` has their geometric mean.
        lost: The blocks whose valid sample is not used, because their control run has no valid sample.
        values: Metric → block → value, or None for a value that the samples do not show. If each worker generation of a
            pair (the workers between two reloads) is a separate value in statistics, each is a block here.
        merged: The latencies of all counted samples together; None if there are none.
        unsteady: The changes of rate or CPU time within the arm's samples at this point; None if all are steady. If
            there is a change, no sample is used, and nothing is computed.

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
        """The causes that limited the rate of a closed loop in this arm's samples at this load, such as `proxy`.

        Only samples that are used for results are examined. Each cause is a value of `Sample.limited_by`, once and in
        alphabetical order. The result is empty for an open loop (a load at an offered rate).
        """
        closed = self.counted.values() if self.point.rate_rps is None else ()
        return tuple(sorted({sample.limited_by for sample in closed if sample.limited_by}))

    def known(self, metric: str) -> dict[int, float]:
        """Return block (number of the repetition) → value of a metric in block order, without blocks whose value is unknown.

        A value of 0 is left out as well, except for metrics that are compared by difference. For all other metrics, such
        a 0 only means that the value was below the clock's resolution.

        Args:
            metric: The metric's name in the catalogue.

        """
        least = -inf if METRICS[metric].kind == "difference" else 0.0
        values = self.values.get(metric, {}).items()
        return {block: value for block, value in sorted(values) if value is not None and least < value < inf}

    def level(self, metric: str) -> stats.Level | None:
        """Return the median of a metric over the blocks (repetitions), with its interval; None if no block has a value."""
        by_block = self.known(metric)
        return stats.estimate_median(list(by_block.values())) if by_block else None

    def shown(self, metric: str) -> float | None:
        """Return a metric's absolute value as one number, for programs that cannot read a range or clusters.

        It is the percentile of all blocks' requests together for a latency, and the mean of the blocks (repetitions)
        for other metrics. The mean is geometric, or arithmetic if a value is 0 or less. The result is None if there is
        no value, or if the values fall into two clusters. `absolute` returns the form for people.
        """
        absolute = self.absolute(metric)
        if absolute is None or absolute.clusters:
            return None
        return self._read_merged(metric) or compute_mean(self._list_block_values(metric))

    def absolute(self, metric: str) -> Absolute | None:
        """Return a metric's absolute value for people: one value, a range, or two clusters; None without any value.

        A percentile needs enough requests. If single blocks (repetitions) have too few, it is computed over the
        requests of all blocks together, given at least six blocks.
        """
        values, merged = self._list_block_values(metric), self._read_merged(metric)
        if merged is not None and len(values) < len(self.counted) >= stats.MIN_BLOCKS:
            return Absolute(len(self.counted), merged, merged, merged)
        return compute_absolute(values, metric, merged)

    def _read_merged(self, metric: str) -> float | None:
        """Return a percentile over the requests of all blocks (repetitions) together; None if too few requests lie beyond it.

        The result is also None for a metric that is not a percentile of latency.
        """
        read = METRICS[metric].histogram
        return read(self.merged) if read is not None and self.merged else None

    def _list_block_values(self, metric: str) -> list[float]:
        """Return the values of a metric in block order, one for each block (repetition) that has one."""
        if metric in self.values:
            return list(self.known(metric).values())
        values = (METRICS[metric].read(sample, None) for sample in self.counted.values())
        return [value for value in values if value is not None]

    def largest(self, metric: str) -> float | None:
        """Return the largest value that a metric has in any block (repetition); None if no block has a value."""
        return max(self.known(metric).values(), default=None)

    # -- of its samples

    @property
    def valid_blocks(self) -> int:
        """The number of blocks (repetitions) in which the arm (variant) has a sample at this load that is used for results."""
        return len(self.counted)

    @property
    def planned_blocks(self) -> int:
        """The number of blocks (repetitions) in which the arm (variant) was to be measured at this load."""
        return len(self.planned)

    @property
    def outcome_blocks(self) -> int:
        """The number of blocks (repetitions) in which the arm (variant) was measured at this load with a usable result.

        A usable result is a valid sample, or a sample whose only fault is that its rate or CPU time changed midway (not
        steady). No number is computed from such an unsteady sample, but it shows that the block was measured.
        """
        settled = (sample for sample in self.samples if sample.valid or sample.reason is Reason.NOT_STEADY)
        return len(
            self.counted.keys()
            | {number_block(self.point, key_of_measurement(sample)) for sample in settled if belongs_to_block(sample)}
        )

    @property
    def tried(self) -> int:
        """The number of blocks (repetitions) in which the arm (variant) has any sample at this load, valid or not."""
        return len({number_block(self.point, key_of_measurement(sample)) for sample in self.samples})

    @property
    def invalid(self) -> dict[Reason, int]:
        """Reason of invalidity (such as `steal`) → number of the arm's invalid samples at this load.

        The reasons are in the order of `Reason`. An invalid sample is included even if its measurement was repeated.
        """
        counts = Counter(sample.reason for sample in self.samples if not sample.valid)
        return {reason: counts[reason] for reason in Reason if counts[reason]}

    @property
    def generator(self) -> str | None:
        """The name of the load generator that made the arm's samples at this load.

        It is None if the arm (variant) has no sample that is used for results, and no invalid one.
        """
        return next((sample.generator for sample in self._ordered_samples), None)

    @property
    def stand_in_for(self) -> str | None:
        """The load generator that the sweep requested, if another one replaced it.

        It is None if the requested generator was used. It is also None if the arm (variant) has no sample that is used
        for results, and no invalid one.
        """
        return next((sample.stand_in_for for sample in self._ordered_samples), None)

    @property
    def _ordered_samples(self) -> list[Sample]:
        """The arm's samples at this load: first those from which results are computed, then the invalid ones."""
        return [*self.counted.values(), *(sample for sample in self.samples if not sample.valid)]

    @property
    def notes(self) -> list[str]:
        """The notes on what the load generator's numbers omit or cannot show, from samples that are used for results."""
        return [note for sample in self.counted.values() for note in sample.notes]

    @property
    def complete(self) -> bool:
        """True if this arm (variant) was measured at this load in every planned block (repetition).

        A block counts if it has a sample that is used for results. Of an arm that is not steady (its rate or CPU time
        changes within a sample), no sample is used. Then a block counts if it has a valid sample, or a sample that is
        invalid only because of such a change.
        """
        return (self.valid_blocks if self.unsteady is None else self.outcome_blocks) >= self.planned_blocks

    # -- of a steady load

    @property
    def histogram(self) -> Kind | None:
        """The kind of histogram of the arm's latencies at this load: `exact` or `quantiles`; None without latencies."""
        return self.merged.kind if self.merged else None

    @property
    def requests(self) -> int:
        """The number of requests in the arm's samples that are used for results at this load, one sample per block."""
        return sum(sample.requests or 0 for sample in self.counted.values())

    @property
    def errors(self) -> dict[str, int]:
        """Kind of error (such as `timeout`) → number of failed requests, over the arm's samples that are used for results.

        If a block (repetition) has several such samples at this load, only the first one is included.
        """
        return _sum_errors(self.counted.values())

    @property
    def errors_invalid(self) -> dict[str, int]:
        """Kind of error (such as `timeout`) → number of failed requests, over the arm's invalid samples at this load."""
        return _sum_errors(sample for sample in self.samples if not sample.valid)

    @property
    def cpu_of(self) -> str | None:
        """The role whose CPU time and memory were measured: `proxy`, or `backend` for an arm (variant) without a proxy.

        It is None for a load with a disruption, and if no sample is used for results.
        """
        if self.point.disturbance is not None:
            return None
        used = next((sample.usage for sample in self.counted.values() if sample.usage), None)
        return None if used is None else "proxy" if used.get("proxy") else "backend"

    @property
    def gauges(self) -> dict[str, float]:
        """Name of a gauge → its median over the arm's samples at this load that are used for results and have it.

        A gauge is a value that the proxy system reported about itself before the load, such as its number of workers.
        Each system defines its gauges (`System.gauges`).
        """
        counted = self.counted.values()
        names = dict.fromkeys(name for sample in counted for name in sample.gauges)
        return {name: median(sample.gauges[name] for sample in counted if name in sample.gauges) for name in names}

    # -- of a disruption

    @property
    def clock_error_s(self) -> float:
        """The largest error, over this arm's samples, of the known offset between the generator's and the lab's clock.

        It is in seconds. Only samples that are used for results are examined. Only samples of a disrupted load record
        the error; otherwise the result is 0.
        """
        return max((sample.outcome.get("clock_error_s") or 0.0 for sample in self.counted.values()), default=0.0)

    @property
    def slowdowns(self) -> dict[str, stats.Estimate]:
        """Latency percentile (`p99`, `p50`) → estimate of the ratio by which a disruption raises it.

        The latency during the disruption is compared with the latency before it, within each block (repetition). A
        percentile is left out if a block with a usable sample lacks one of the two latencies.
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
    """Two groups of samples at one load point, an arm's (`own`) and its baseline's (`base`), to compare block by block.

    A block is a repetition.
    """

    own: ArmCell
    base: ArmCell

    @property
    def lacking(self) -> ArmCell | None:
        """The side of the pair, first the arm and then its baseline, that was not measured in every planned block; None if there is none.

        A block counts if it has a sample that is used for results. If the arm or the baseline is not steady (its rate or
        CPU time changes within a sample), no sample is used. Then a block counts if it has a valid sample, or a sample
        that is invalid only because of such a change.
        """
        for side in (self.own, self.base):
            if (side.valid_blocks if self.unsteady is None else side.outcome_blocks) < side.planned_blocks:
                return side
        return None

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """The changes of rate or CPU time within the samples of the arm, or else of its baseline; None if all are steady.

        If there is such a change, no effect of the arm (variant) against the baseline is computed.
        """
        return self.own.unsteady or self.base.unsteady

    def log_ratios(self, metric: str) -> dict[int, float]:
        """Return block (repetition) → log(arm's value / baseline's value), in block order; blocks without both are left out."""
        arm_values, baseline_values = self.own.known(metric), self.base.known(metric)
        return {
            block: log(value / baseline_values[block])
            for block, value in arm_values.items()
            if block in baseline_values
        }


@dataclass(frozen=True, slots=True)
class Cells:
    """The samples of a run, grouped by arm (variant) and load point.

    Attributes:
        plan: The run's plan.
        cells: (name of the arm, name of the point) → the arm's solo samples (measured alone), which give absolute
            values.
        pairs: (name of the arm, name of the point) → the samples of the arm and its baseline measured at once as a
            pair, which give their ratio.

    """

    plan: Plan
    cells: Mapping[ArmAndPoint, ArmCell] = field(repr=False)
    pairs: Mapping[ArmAndPoint, CellPair] = field(repr=False, default_factory=dict[ArmAndPoint, "CellPair"])

    def at(self, arm: str, point: LoadPoint) -> ArmCell:
        """Return the solo samples (measured alone) of an arm (variant) at a load point, with their values."""
        return self.cells[arm, point.name]

    def pair(self, arm: str, point: LoadPoint) -> CellPair | None:
        """Return the samples of an arm (variant) and its baseline measured at once at a load point; None if they were no pair."""
        return self.pairs.get((arm, point.name))

    def apart(self, arm: Arm, point: LoadPoint) -> CellPair:
        """Return the samples of an arm (variant) and of its baseline at a load point, for which each was measured alone."""
        assert arm.baseline is not None, "only what has a baseline is compared"
        return CellPair(self.at(arm.name, point), self.at(arm.baseline, point))


def estimate_effect(arm: ArmCell, baseline: ArmCell, metric: str) -> stats.Estimate | None:
    """Estimate the effect of an arm (variant) against a baseline in a metric, over the blocks (repetitions) of both.

    Only blocks in which both have a value are used. The effect is a difference (arm − baseline) for outcomes of a
    disruption, streams of events or WebSockets, and a log-ratio for other metrics.

    Args:
        arm: The arm's samples and values.
        baseline: The baseline's samples and values.
        metric: The metric's name in the catalogue.

    Returns:
        The estimate; None if there is no block in which both have a value.

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
    """Return the smallest difference, in seconds, that means something in an outcome of a disruption, streams or WebSockets.

    A failure shows only when a request is sent, so times are known no better than the time between two requests. Times
    that come from two clocks (the generator's and the lab's) also have the error between these clocks. More repetitions
    improve neither.

    Args:
        metric: The metric's name in the catalogue.
        point: The load point, whose offered rate gives the time between two requests.
        clock_error_s: The largest error of the offset between the clocks, in seconds.

    Returns:
        The time between two requests if the metric depends on when requests are sent, plus `clock_error_s` if it also
        depends on two clocks. `DELAY_RESOLUTION_S` for delays of streams of events. 0 for any other metric.

    """
    source = find_metric(metric).seen
    if source == "delays":
        return DELAY_RESOLUTION_S
    spacing_s = 1 / point.rate_rps if point.rate_rps is not None and source in ("requests", "both") else 0.0
    return spacing_s + (clock_error_s if source == "both" else 0.0)


def build_cells(
    plan: Plan, samples: Sequence[Sample], histogram_of: HistogramOf, disturbed: bool | None = None
) -> Cells:
    """Group the samples of a run into cells: one for each planned arm and load point, and one for each planned pair.

    A cell has the samples of one arm (variant) at one point with their values. It is empty if nothing was measured. A
    pair is two arms measured at once.

    Args:
        plan: The run's plan.
        samples: All samples of the run.
        histogram_of: The function that reads a sample's histogram of latencies. It is called for each counted sample of
            a steady load.
        disturbed: True: only the points with a disruption, streams of events or WebSockets; False: only the steady
            ones; None: all.

    Raises:
        MeasuringError: The samples mix targets, loads or generators (or versions of one), or do not belong to the plan.

    """
    refuse_mixtures(plan, samples)
    planned: dict[_CellPlace, set[int]] = defaultdict(set)
    expected: Counter[tuple[int, *_CellPlace]] = Counter()
    for slot in plan.slots:
        for block, place in ((number_block(slot.point, measured), measured[1:4]) for measured in slot.cells):
            planned[place].add(block)
            expected[block, *place] += 1
    tried = group_values((key_of_measurement(sample)[1:4], sample) for sample in samples)
    unsteady = find_unsteady_arms(samples)
    of_blocks = group_values(
        ((number_block(sample.point, measured), *measured[1:4]), sample)
        for measured, sample in sorted(select_counted_samples(samples).items())
    )
    counted: dict[_CellPlace, dict[int, list[Sample]]] = defaultdict(dict)
    for (block, *place), repeats in of_blocks.items():
        if len(repeats) >= LEAST_COUNTED_SHARE * expected[block, *place]:
            counted[tuple(place)][block] = repeats

    def read(arm: Arm, point: LoadPoint, against: str = "") -> ArmCell:
        place = arm.name, point.name, against
        control = find_control(plan.points, point)
        lost = counted[place].keys() - counted[arm.name, control.name, ""].keys() if control else set[int]()
        usable = {block: sample for block, sample in counted[place].items() if block not in lost}
        values = (_read_outcomes(usable), None) if point.has_outcome else _read_steady_load(usable, histogram_of)
        firsts = {block: repeats[0] for block, repeats in usable.items()}
        change = unsteady.get((arm.name, point.name))
        return ArmCell(
            arm,
            point,
            frozenset(planned[place]),
            tuple(tried.get(place, ())),
            firsts,
            tuple(sorted(lost)),
            *values,
            change,
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


def number_block(point: LoadPoint, measured: CellKey) -> int:
    """Return the number of the block (repetition) to which a measurement belongs in statistics.

    Usually this is the number of the planned block. It differs only for pairs (two arms measured at once) at a point
    with `singly`. There, each worker generation (the workers between two reloads) counts as a block of its own. With
    four generations per planned block, generation 1 of block 3 gets the number 3 · 4 + 1 = 13.

    Args:
        point: The load point.
        measured: The key of the measurement: block, arm, point, other arm of the pair or empty, generation, repeat.

    """
    block, _, _, against, generation, _ = measured
    return block * point.generations + generation if point.singly and against else block


def _read_steady_load(
    counted: Mapping[int, Sequence[Sample]], histogram_of: HistogramOf
) -> tuple[Values, Histogram | None]:
    """Read the metrics of a steady load from an arm's counted samples (those used for results).

    Args:
        counted: Block (number of the repetition) → the counted samples of the block.
        histogram_of: The function that reads a sample's histogram of latencies.

    Returns:
        Two parts: metric → block → value, for each of `READ_METRICS`; and the histogram of all latencies together, or
        None without any.

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
    """Return the geometric mean of the measurements of one block (repetition).

    The result is None if a measurement is missing, and 0 if one is 0. With geometric means, the log-ratio of the means
    of two variants is the mean of their log-ratios.
    """
    present = [value for value in values if value is not None]
    if len(present) < len(values) or len(present) == 1:
        return present[0] if len(values) == 1 and present else None
    return geometric_mean(present) if min(present) > 0 else 0.0


def _read_outcomes(counted: Mapping[int, Sequence[Sample]]) -> Values:
    """Return the measured outcomes of a disruption, of streams or of WebSockets: metric → block (repetition) → value.

    Only the first counted sample (used for results) of each block is read. A block is left out if that sample does not
    have the metric.

    Args:
        counted: Block → the counted samples of the block, of which there is at least one.

    """
    return {
        metric: values
        for metric in DIFFERENCES
        if (
            values := {
                block: first.outcome[metric] for block, (first, *_) in counted.items() if metric in first.outcome
            }
        )
    }


def select_counted_samples(samples: Iterable[Sample]) -> dict[CellKey, Sample]:
    """Select the sample from which results are computed for each measurement: its last valid attempt.

    Two kinds of samples are never selected. One is samples of a block that was interrupted and begun anew. The other is
    all samples of an arm at a point, alone and in pairs (two variants at once), if the rate or CPU time changes within
    one of them. The other samples may only have ended too early to show the change.

    Returns:
        Key of the measurement → the sample. The key has these parts: block (repetition), arm (variant), point (load),
        other arm of a pair or empty, worker generation (the workers between two reloads, counted from 0), repeat.

    """
    samples = sorted(samples, key=lambda sample: (sample.generation, sample.attempt, sample.id))
    unsteady = find_unsteady_arms(samples).keys()
    counted: dict[CellKey, Sample] = {}
    for sample in samples:
        arms = {sample.arm, sample.pair.against} if sample.pair else {sample.arm}
        steady = unsteady.isdisjoint((arm, sample.point.name) for arm in arms)
        if steady and sample.valid and sample.reason is not Reason.BLOCK_INTERRUPTED:
            counted[key_of_measurement(sample)] = sample
    return counted


def select_counted_solo_samples(samples: Iterable[Sample]) -> dict[tuple[int, str, str], Sample]:
    """Return (number of the block, name of the arm, name of the load point) → the solo sample used for results.

    A solo sample is of one arm (variant) that has the machine to itself. Only solo samples give absolute values.
    """
    return {measured[:3]: sample for measured, sample in select_counted_samples(samples).items() if not measured[3]}


def list_cpus(record: RunRecord, role: str) -> frozenset[int]:
    """Return the numbers of the CPUs on which a role, such as `proxy`, ran in a run; empty on a cluster.

    The record stores them as text: `0-2,5` means 0, 1, 2 and 5.
    """
    ends = [part.partition("-") for part in record.facts.get(f"cpus_{role}", "").split(",") if part]
    return frozenset(cpu for low, _, high in ends for cpu in range(int(low), int(high or low) + 1))


def refuse_mixtures(plan: Plan, samples: Sequence[Sample]) -> None:
    """Refuse samples that do not belong to the plan, or that must not be pooled with each other.

    Raises:
        MeasuringError: The samples are of different targets; those of one load point are of different generators, or of
            different versions of one; or a sample has an arm or a load that is not in the plan. The generator of a
            sample in an interrupted block does not matter.

    """
    remedy = "results of different targets, generators or loads are never pooled: summarise each run separately"
    points = {point.name: point for point in plan.points}
    arms = {arm.name for arm in plan.arms}
    targets = sorted({sample.target for sample in samples})
    if len(targets) > 1:
        raise MeasuringError("samples", f"measured on different targets: {', '.join(targets)}", remedy)
    for sample in samples:
        if sample.arm not in arms or points.get(sample.point.name) != sample.point:
            fault = f"{sample.arm} at {sample.point.name} with this load is not in the run's plan"
            raise MeasuringError(sample.id, fault, remedy)
    used = group_values(
        (sample.point.name, f"{sample.generator} {sample.generator_version or ''}".strip())
        for sample in filter(belongs_to_block, samples)
    )
    for point, generators in ((name, set(tools)) for name, tools in used.items()):
        names = {name.split()[0] for name in generators}
        if len(names) > 1 or len([name for name in generators if " " in name]) > 1:
            raise MeasuringError(point, f"measured with different generators: {', '.join(sorted(generators))}", remedy)


def _sum_errors(samples: Iterable[Sample]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update({kind: count for kind, count in sample.errors.items() if count})
    return dict(sorted(total.items()))
