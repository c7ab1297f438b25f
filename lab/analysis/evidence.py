"""The committed runs as evidence: they are looked up by what they measured, never by their folder's name.

A run gives the values of a metric in each block (repetition), the log of one sample (with times from the beginning of its
load), and the settings that were applied. A block whose control run (the same load without its disruption) failed is left out.
Manifests that were not applied, and numbers whose stored output has been changed, are refused. A missing or damaged run is
reported. The module does not judge (`lab.studies.claims` does), and it does not draw (`lab.report.figures` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from lab.analysis import pidstat, rerun, timelines
from lab.analysis.aggregate.cells import find_unsteady_arms, select_counted_solo_samples
from lab.analysis.applied import AsApplied
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.thirds import make_totals_reader
from lab.analysis.sample_frames import frame_samples, make_samples_frame
from lab.analysis.summary import Summary, summarise_run
from lab.base.errors import LabError, NotMeasurableError
from lab.base.files import reference_folder
from lab.disturbances import _asked as asked
from lab.model.metrics import METRICS
from lab.model.run import NotMeasured, RunRecord
from lab.model.samples import Sample, key_of_measurement, planned_cells
from lab.model.sweeps import LoadPoint, find_control
from lab.model.variants import hosts
from lab.model.variants.variants import sets_node
from lab.records import outcomes, propagation
from lab.records.references import boot_folders, elsewhere_folders
from lab.records.store import RunStore, run_names
from lab.records.tables import HISTOGRAMS
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks

RUNS_KEPT = 256
"""The number of runs whose records are kept in memory."""
Blocks = dict[int, float | None]
"""A mapping of block → value (seconds, bytes, requests per second, counts); None: its logs cannot show it."""


# -- what claims and figures read of a sample, in addition to its outcome and gauges --------------------------


def probe_timeouts_s(run: RunStore, variant: str) -> dict[str, float]:
    """Return probe (`liveness`, `readiness`, `startup`) → its timeout in seconds, by the manifests that were applied.

    A probe without a timeout has 1 s, kubelet's default. Probes that the proxy does not have are left out.
    """
    container = _find_proxy_container(run, variant)
    probes = {name: container.get(f"{name}Probe") for name in ("liveness", "readiness", "startup")}
    return {name: float(probe.get("timeoutSeconds", 1)) for name, probe in probes.items() if probe is not None}


def _find_proxy_container(run: RunStore, variant: str) -> Mapping[str, Any]:
    """Return the specification of the proxy's container in the applied manifests; empty if the variant has no proxy."""
    with suppress(NotMeasurableError):
        return asked.container(run.manifests(variant), "proxy")
    return {}


def _measure_least_spacing_s(run: RunStore, sample: Sample) -> float | None:
    """Return the least seconds between two reloads of one proxy during a sample; None if no proxy reloaded twice.

    The time is from the beginning of one reload to the beginning of the next. If the beginnings were not recorded, it
    is from the end of one to the end of the next.
    """
    events = run.events(sample).sort("at_s")
    begun = events.filter(pl.col("kind") == "Reload")
    rows = begun if begun.height else events.filter(pl.col("kind") == "Reloaded")
    return rows.select(pl.col("at_s").diff().over("object").min()).item()


def _compute_startup_allowance_s(run: RunStore, sample: Sample) -> float | None:
    """Return how many seconds a proxy has to start until its startup probe gives up, by the applied manifests.

    Kubelet's rule is delay + period × failures. The result is None without a startup probe.
    """
    probe = _find_proxy_container(run, sample.variant).get("startupProbe")
    if probe is None:
        return None
    return probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)


def _read_reload_interval_s(run: RunStore, sample: Sample) -> float | None:
    """Return the interval between reloads, in seconds, that the applied manifests set for OKD's router; None if not set."""
    with suppress(NotMeasurableError):
        return asked.configured_interval_s(run.manifests(sample.variant))
    return None


def _share_answered_while_failing(run: RunStore, sample: Sample) -> float | None:
    """Return the share of right answers between the first and the last failed request of a sample; None without a failure.

    Requests are ordered by the time at which they were due.
    """
    log = run.requests(sample)
    log = log.with_columns(right=outcomes.mark_right_answers(sample.point, log))
    failed = log.filter(~pl.col("right"))["due_s"]
    if failed.is_empty():
        return None
    return log.filter(pl.col("due_s").is_between(failed.min(), failed.max())).select(pl.col("right").mean()).item()


def _find_busiest_second(run: RunStore, sample: Sample) -> float | None:
    """Return the largest CPU use of one proxy process in any second, as pidstat counts it: 0.5 is half of one CPU.

    None if no second was recorded completely.
    """
    seconds = pidstat.build_cpu_table(run.usage(sample)).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
    largest = seconds["cpu_percent"].max()
    return largest / 100 if isinstance(largest, float) else None


LOGS: Mapping[str, Callable[[RunStore, Sample], float | None]] = {
    "busiest_second": _find_busiest_second,
    "answered_while_failing": _share_answered_while_failing,
    "routes": lambda run, sample: float(len(hosts.find_hosts(run.manifests(sample.variant)))),
    "least_reload_spacing_s": _measure_least_spacing_s,
    "startup_allowance_s": _compute_startup_allowance_s,
    "reload_interval_s": _read_reload_interval_s,
}
"""Metric → the function that reads it from a sample's log or the applied manifests; None: they cannot show it."""
OF_PROXY = frozenset({"cpu_per_request", "memory_bytes"})
"""The metrics that claims read of the proxy only. In a table, the backend's value replaces them if there is no proxy."""


# -- a run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Damaged:
    """A folder of data/reference (the committed runs) that cannot be read as a run.

    Attributes:
        name: The folder's name; for a repetition on another boot, such as `slow-link/boot-2`.
        why: A phrase for people with the faulty file, its fault and the remedy.
        record: The content of the folder's run.json; None if run.json cannot be read.

    """

    name: str
    why: str
    record: RunRecord | None = None

    @property
    def said(self) -> str:
        """The message for people about a damaged run: `slow-link is damaged: …`, with the faulty file and the remedy."""
        return f"{self.name} is damaged: {self.why}"

    def of(self, sweeps: Sequence[str], variants: Sequence[str], target: str | None) -> bool | None:
        """Return whether the damaged run has one of the given sweeps (lists of loads), the given target, and all given variants.

        Args:
            sweeps: The names of the sweeps, one of which must be the run's.
            variants: The variants, all of which the run must have.
            target: The target that must be the run's; None for any.

        Returns:
            The answer; None if it is unknown, because the run's record cannot be read.

        """
        if self.record is None:
            return None
        arms = {arm.variant for arm in self.record.arms}
        return self.record.sweep in sweeps and arms.issuperset(variants) and target in (None, self.record.target)


def describe_damage(name: str, error: LabError, record: RunRecord | None = None) -> Damaged:
    """Describe a damaged run of data/reference: which file is faulty, what is wrong with it, and what to do.

    Args:
        name: The folder's name in data/reference.
        error: The error with which the reading of the run ended.
        record: The content of the run's run.json; None if run.json cannot be read.

    """
    remedy = f"restore data/reference/{name} from a copy (git restore brings a committed one back), or measure it again"
    return Damaged(name, f"{error.place}: {error.fault}; {remedy}", record)


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one sample: its requests, events and CPU usage, for timelines and figures.

    Attributes:
        sample: The sample.
        zero_s: The time at which the sample's load began, in seconds since the epoch. Timelines start at this time.
        requests: The log of requests (`lab.model.requests`), with times since the epoch.
        events: The log of events (`lab.model.events`), with times since the epoch.
        usage: The CPU and memory used by each process, with times since `zero_s`.

    """

    sample: Sample
    zero_s: float
    requests: pl.DataFrame
    events: pl.DataFrame
    usage: pl.DataFrame

    @property
    def bins(self) -> pl.DataFrame:
        """The requests in the log of a sample, counted in bins of 100 ms (`lab.analysis.timelines.bins`).

        A request counts as failed here exactly if the run's table counts it as failed.
        """
        return timelines.bins(
            self.requests, self.zero_s, right=outcomes.mark_right_answers(self.sample.point, self.requests)
        )

    @property
    def marks(self) -> pl.DataFrame:
        """The events in the log of a sample, as marks on a timeline (`lab.analysis.timelines.marks`)."""
        return timelines.marks(self.events, self.zero_s)

    @property
    def delays(self) -> pl.DataFrame:
        """The delays of configuration changes during a sample: how long each took until answers showed it.

        There is a row for each change that answers can show. Its columns include `t_s`, the seconds since the load
        began, and `delay_s`.
        """
        return propagation.list_delays(self.requests, self.events).with_columns(t_s=pl.col("at_s") - self.zero_s)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run that can be read, as evidence for the claims of studies and for figures.

    It is a committed run; only a notebook about one run may show a run of the user instead.

    Attributes:
        name: The name of the run's folder. For a repetition on another boot, it is such as `slow-link/boot-2`.
        run: The stored run.
        all_samples: All samples of the run, valid or not.
        counted: (block, arm, point) → the solo sample used for results, for which the arm (variant) had the machine to
            itself.
        damaged: A phrase with the damaged runs that might have been used instead; empty if there are none.
        unable: The variants that other runs of the same sweep and target could not measure, with the reasons.

    """

    name: str
    run: RunStore
    all_samples: tuple[Sample, ...]
    counted: Mapping[tuple[int, str, str], Sample] = field(repr=False)
    damaged: str = ""
    unable: tuple[NotMeasured, ...] = ()
    _summaries: dict[bool, Summary] = field(default_factory=dict[bool, Summary], repr=False, compare=False)

    def samples(self) -> pl.DataFrame:
        """Return all samples of the run as a frame with one row each, as `just export RUN` writes it."""
        return frame_samples(self.run, self.all_samples)

    def summary(self, disturbed: bool = False) -> Summary:
        """Return the summary of the run's steady or disrupted loads; it is computed only once.

        Args:
            disturbed: True for the disrupted loads, False for the steady ones.

        Raises:
            LabError: The run cannot be summarised (`lab.analysis.summary.summarise_run`).

        """
        if disturbed not in self._summaries:
            self._summaries[disturbed] = summarise_run(
                self.run.record, self.all_samples, self.run.histogram, disturbed, make_totals_reader(self.run)
            )
        return self._summaries[disturbed]

    @property
    def points(self) -> tuple[LoadPoint, ...]:
        """The load points that this run measured or planned."""
        return self.run.record.points

    def as_pair(self, arm: str, against: str, point: str, metric: str) -> Effect | None:
        """Return the effect of one arm against another that was measured at the same time (as a pair), as in the run's table.

        Args:
            arm: The name of the arm (variant).
            against: The name of the arm that it is compared with.
            point: The load point's name.
            metric: The metric's name.

        Returns:
            The effect. It is None if the two were not a pair at this point, or if solo samples (measured alone) decide
            in this metric. It is also None if the effect has no decision, or is only a bound because the load generator
            limited one side.

        """
        kinds = (False, True) if self.run.record.pairs else ()
        effects = (
            effect
            for disturbed in kinds
            for row in self.summary(disturbed).rows
            if (row.arm.name, row.point.name) == (arm, point)
            for effect in row.effects
            if effect.metric == metric
        )
        effect = next(effects, None)
        of_pair = effect and effect.scheme and effect.against == against and not effect.bound
        return effect if effect and of_pair and effect.decision is not Decision.NOT_JUDGED else None

    def arms(self, variant: str | None = None) -> list[str]:
        """Return the names of the run's arms (variants) in plan order, without second measurements of a baseline (A/A).

        Args:
            variant: The variant whose arms are returned; None for the arms of all variants.

        """
        arms = [arm for arm in self.run.record.arms if arm.role != "again"]
        return [arm.name for arm in arms if variant in (None, arm.variant)]

    def twin(self, arm: str) -> tuple[str, str] | None:
        """Return the A/A pair of an arm (variant): an arm and its repetition under another name, which show the noise.

        If the arm itself was not repeated, the pair of its baseline is returned.

        Returns:
            (name of the arm that was repeated, name of the arm that repeats it); None if there is no such pair.

        """
        arms = {candidate.name: candidate for candidate in self.run.record.arms}
        again = {candidate.baseline: candidate.name for candidate in arms.values() if candidate.role == "again"}
        base = arm if arm in again else arms[arm].baseline
        return (base, again[base]) if base is not None and base in again else None

    def blocks(self, arm: str, point: str) -> dict[int, Sample]:
        """Return block (number of the repetition) → the solo sample (measured alone) used for an arm at a load point.

        For a disrupted load, a block is left out if its control run (the same load without the disruption) has no such
        sample.

        Args:
            arm: The name of the arm (variant).
            point: The name of the load point.

        """
        controls = (find_control(self.points, candidate) for candidate in self.points if candidate.name == point)
        control = next(controls, None)
        return {
            block: sample
            for (block, arm_name, point_name), sample in sorted(self.counted.items())
            if (arm_name, point_name) == (arm, point)
            and (control is None or (block, arm, control.name) in self.counted)
        }

    def lost(self, arm: str, point: str) -> str:
        """Describe in how many of an arm's planned blocks a load point has a result, and why the others have none.

        Example: `4 of 6 blocks: steal, not measured`. A block is a repetition. The text is empty if all planned blocks
        have a result.
        """
        slots = self.run.record.plan().slots
        planned = {slot.block for slot in slots if (slot.arm.name, slot.point.name, slot.other) == (arm, point, "")}
        lost = sorted(planned - self.blocks(arm, point).keys())
        reasons: dict[str, None] = {}
        for block in lost:
            tried = [sample for sample in self.all_samples if key_of_measurement(sample)[:4] == (block, arm, point, "")]
            recorded = [str(sample.reason) for sample in tried if sample.reason is not None]
            reasons |= dict.fromkeys(recorded or ["no valid control run" if tried else "not measured"])
        return f"{len(planned) - len(lost)} of {format_blocks(len(planned))}: {', '.join(reasons)}" if lost else ""

    def unsteady(self, arm: str, point: str) -> str:
        """Describe how the rate or CPU time changes within an arm's samples at a load point; empty if the samples are steady.

        No results are computed from samples that are not steady.
        """
        change = find_unsteady_arms(self.all_samples).get((arm, point))
        return f"{arm} at {point} is not steady: {change.sentence()}" if change else ""

    def values(self, arm: str, point: str, metric: str) -> Blocks:
        """Return block (number of the repetition) → value of a metric, for an arm's solo samples at a load point.

        A solo sample is measured alone, not at once with another arm.

        Args:
            arm: The name of the arm (variant).
            point: The name of the load point.
            metric: The metric's name.

        Returns:
            The blocks whose sample has the metric. A value is None if the sample's logs cannot show it.

        Raises:
            UsageError: A log or manifest is damaged.

        """
        read = metric in METRICS and METRICS[metric].kind != "difference"
        values: Blocks = {}
        for block, sample in self.blocks(arm, point).items():
            recorded = {**sample.gauges, **sample.outcome}
            if metric in recorded or read:
                values[block] = recorded[metric] if metric in recorded else self._read(metric, sample)
        return values

    def _read(self, metric: str, sample: Sample) -> float | None:
        if metric in LOGS:
            return LOGS[metric](self.run, sample)
        if metric in OF_PROXY and "proxy" not in sample.usage:
            return None
        return METRICS[metric].read(sample, self.run.histogram(sample) if METRICS[metric].histogram else None)

    def list_solo_values(self, variant: str, point: str, metric: str) -> list[float]:
        """Return all values of a metric that the solo samples (measured alone) of a variant have at a load point.

        Args:
            variant: The name of the variant, which may have several arms (names in the run).
            point: The name of the load point.
            metric: The metric's name. Each block (repetition) of each arm has one value; unknown values are left out.

        Raises:
            UsageError: A log or manifest is damaged.

        """
        return self._list_values(self.arms(variant), point, metric)

    def direct(self, point: str, metric: str) -> float | None:
        """Return the median of a metric over the blocks (repetitions) of the direct reference, the backend without a proxy.

        Args:
            point: The load point's name.
            metric: The metric's name.

        Returns:
            The median; None if no valid sample of the reference has the metric.

        Raises:
            UsageError: A log or manifest is damaged.

        """
        direct = [arm.name for arm in self.run.record.arms if arm.role == "reference"]
        values = self._list_values(direct, point, metric)
        return median(values) if values else None

    def _list_values(self, arms: Sequence[str], point: str, metric: str) -> list[float]:
        return [value for arm in arms for value in self.values(arm, point, metric).values() if value is not None]

    def log(self, arm: str, point: str, block: int | None = None) -> Log | None:
        """Return the log of the sample used for an arm (variant) at a load point in one block (repetition).

        Args:
            arm: The arm's name.
            point: The load point's name.
            block: The number of the block; None for the first block with a result.

        Returns:
            The log; None if there is no such sample.

        """
        samples = self.blocks(arm, point)
        if not samples or (block is not None and block not in samples):
            return None
        sample = samples[min(samples) if block is None else block]
        requests, events = self.run.requests(sample), self.run.events(sample)
        return Log(sample, zero_s(requests), requests, events, since_load(sample, self.run.usage(sample)))

    def logs(self, arm: str, point: str) -> list[Log]:
        """Return the logs of the samples used for an arm (variant) at a load point, one for each block (repetition)."""
        return [log for block in self.blocks(arm, point) if (log := self.log(arm, point, block)) is not None]

    @property
    def said(self) -> str:
        """The line for people about this run: id, sweep, target, date, and how much of the plan was measured."""
        record = self.run.record
        invalid = sum(not sample.valid for sample in self.all_samples)
        gaps = f", {invalid} of {len(self.all_samples)} samples invalid" if invalid else ""
        planned = planned_cells(record.plan().slots)
        missing = len(planned - set(map(key_of_measurement, self.all_samples)))
        gaps += f", {missing} of {len(planned)} planned not measured" if missing else ""
        shape = " (shape only)" if record.blocks < MIN_BLOCKS else ""
        title = f"{record.sweep} on {record.target}, {record.created_at[:10]}, {format_blocks(record.blocks)}{shape}"
        return f"{record.id} ({self.name}): {title}{gaps}{self.damaged}"


def zero_s(requests: pl.DataFrame) -> float:
    """Return the time at which a load began, in seconds since the epoch: when its first request was due.

    Args:
        requests: The log of the load's requests. If it is empty, the result is 0.

    """
    first = requests["due_s"].min()
    return first if isinstance(first, float) else 0.0


def since_load(sample: Sample, usage: pl.DataFrame) -> pl.DataFrame:
    """Return the table of a sample's CPU and memory usage with times relative to the beginning of the load.

    Usage is recorded from a moment before the generator starts. If the sample did not record how long before, the times
    stay unchanged.
    """
    return usage.with_columns(pl.col("t_s") - (sample.load_after_s or 0.0))


def load_references() -> tuple[list[Evidence], list[Damaged]]:
    """Return the runs of data/reference, the folder of committed runs.

    The repetitions of a run on other boots of the machine (`NAME/boot-2`, …) are not included; `further_boots` returns them,
    and `runs_elsewhere` those of other machines.

    Returns:
        Two lists: the runs that can be read, and those that cannot. In the first list, runs of the target `local` come
        first, and then newer runs come before older ones.

    """
    folders = [_load_evidence(reference_folder() / name) for name in run_names(reference_folder())]
    runs = [run for run in folders if isinstance(run, Evidence)]
    runs.sort(key=lambda run: run.run.record.created_at, reverse=True)
    runs.sort(key=lambda run: run.run.record.target != "local")
    return runs, [run for run in folders if isinstance(run, Damaged)]


def further_boots(run: Evidence) -> list[Evidence | Damaged]:
    """Return the committed runs that repeat a run on other boots of the machine, in the order in which they were added.

    A run that cannot be read is returned as `Damaged`.
    """
    return list(map(_load_evidence, boot_folders(run.run.folder)[1:]))


def runs_elsewhere(run: Evidence) -> list[Evidence]:
    """Return the readable committed runs of other machines, targets or programs that measure arms and loads of a run, in their order."""
    others = map(_load_evidence, elsewhere_folders(run.run.folder))
    return [other for other in others if isinstance(other, Evidence)]


def _load_evidence(folder: Path) -> Evidence | Damaged:
    """Return the run in a folder of data/reference or, if it cannot be read, what is wrong with the folder.

    The result is kept in memory as long as the folder's files stay the same.
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.name != HISTOGRAMS or path.parent != folder)
    return _read_evidence(folder, tuple((str(path), path.lstat().st_ctime_ns) for path in paths))


@lru_cache(RUNS_KEPT)
def _read_evidence(folder: Path, _state: tuple[tuple[str, int], ...]) -> Evidence | Damaged:
    # `slow-link`; of a further boot `slow-link/boot-2`
    name = folder.name if folder.parent == reference_folder() else f"{folder.parent.name}/{folder.name}"
    run = None
    try:
        run = AsApplied.open(str(folder))
        samples = tuple(run.samples())
    except LabError as error:
        return describe_damage(name, error, run.record if run else None)
    return Evidence(name, run, samples, select_counted_solo_samples(samples))


def select_runs(runs: Sequence[Evidence], sweeps: Sequence[str], target: str | None) -> list[Evidence]:
    """Return the runs that have one of the given sweeps (lists of loads) and a given target.

    Args:
        runs: The runs to select from. The result has the same order.
        sweeps: The names of the sweeps.
        target: The target; None for any.

    """
    return [run for run in runs if run.run.record.sweep in sweeps and target in (None, run.run.record.target)]


@dataclass(frozen=True, slots=True)
class Missing:
    """The answer to a search in data/reference, the folder of committed runs, that found no run.

    In a notebook about one run, it is also the answer if the requested run cannot be read.

    Attributes:
        why: A phrase with what was searched for and the command that measures it, or with the fault of the run.

    """

    why: str

    def samples(self) -> pl.DataFrame:
        """Return a frame without rows that has the columns of a run's samples, because no run was found."""
        return make_samples_frame([])

    @property
    def said(self) -> str:
        """The line for people about a run that was not found: what was searched for, and how to measure it."""
        return f"no run: {self.why}"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The runs of data/reference, the folder of committed runs, read once, without repetitions on other boots.

    Attributes:
        runs: The runs that can be read, in the order of `load_references`.
        damaged: The runs that cannot be read.

    """

    runs: tuple[Evidence, ...]
    damaged: tuple[Damaged, ...]

    def of(
        self, *sweeps: str, variant: str | Sequence[str] | None = None, target: str | None = None, shape: bool = False
    ) -> Evidence | Missing:
        """Return the best committed run that has one of the given sweeps (lists of loads), all given variants and the target.

        Runs of the first sweep come first, and runs of one sweep are in the order of `load_references`. The first of them
        with six blocks (repetitions) or more is returned, because so many are enough for intervals. If none has so
        many, or if `shape` is set, the first of all is returned.

        Args:
            sweeps: The sweeps to search for, the preferred first.
            variant: The variant, or variants, that the run must have measured; None for any.
            target: The target of the run; None for any.
            shape: True if only the shape of the results is needed (as for a figure), and intervals are not.

        Returns:
            The run, or an explanation of what was not found and how to measure it.

        """
        variants = [variant] if isinstance(variant, str) else list(variant or ())
        hurt = "".join(f"; {run.said}" for run in self.damaged if run.of(sweeps, variants, target) is not False)
        candidates = (run for sweep in sweeps for run in select_runs(self.runs, [sweep], target=target))
        matches = [run for run in candidates if all(map(run.arms, variants))]
        if matches:
            taken = matches[0] if shape else max(matches, key=lambda run: run.run.record.blocks >= MIN_BLOCKS)
            alike = select_runs(self.runs, [taken.run.record.sweep], target=taken.run.record.target)
            unable = tuple(item for run in alike if run is not taken for item in run.run.record.not_measurable)
            return replace(taken, damaged=hurt, unable=unable) if hurt or unable else taken
        on_target = f" on {target}" if target else ""
        node = target is None and any(map(sets_node, variants))
        command = rerun.bench(" ".join(variants) or "VARIANT", sweeps[0], "kind" if node else target)
        return Missing(f"nothing in data/reference of {' or '.join(sweeps)}{on_target}: {command}{hurt}")


def shelf() -> Shelf:
    """Read the runs of data/reference, the folder of committed runs, and return them.

    The repetitions of a run on other boots of the machine (`NAME/boot-2`, …) are not included.
    """
    runs, damaged = load_references()
    return Shelf(tuple(runs), tuple(damaged))


def format_list(*runs: Evidence | Missing) -> str:
    """Return a Markdown list with one line about each run (or run that was not found), in the given order."""
    return "\n".join(dict.fromkeys(f"- {run.said}" for run in runs))
