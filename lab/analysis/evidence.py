"""The committed runs as evidence: they are looked up by what they measured, never by their folder's name.

A missing or damaged run is reported. A run gives a metric by block, the log of one sample on one zero, and what was in
force. The module does not judge (`lab.studies.claims` does) and does not draw (`lab.report.figures`
does). It does not hand out a block whose control run failed, manifests other than those that were applied, or numbers
whose verbatim output has been changed.
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
from lab.records.references import boot_folders
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
    """Return probe (liveness, readiness, startup) → its timeout in seconds, by the manifests that were applied.

    Kubelet's default is 1 s.
    """
    container = _find_proxy_container(run, variant)
    probes = {name: container.get(f"{name}Probe") for name in ("liveness", "readiness", "startup")}
    return {name: float(probe.get("timeoutSeconds", 1)) for name, probe in probes.items() if probe is not None}


def _find_proxy_container(run: RunStore, variant: str) -> Mapping[str, Any]:
    """Return the proxy's container as it was applied; empty if the variant has no proxy."""
    with suppress(NotMeasurableError):
        return asked.container(run.manifests(variant), "proxy")
    return {}


def _measure_least_spacing_s(run: RunStore, sample: Sample) -> float | None:
    """Return the least seconds between two reloads of one proxy; None with fewer than two.

    It is between their beginnings, or between their ends if no beginnings were reported.
    """
    events = run.events(sample).sort("at_s")
    begun = events.filter(pl.col("kind") == "Reload")
    rows = begun if begun.height else events.filter(pl.col("kind") == "Reloaded")
    return rows.select(pl.col("at_s").diff().over("object").min()).item()


def _compute_startup_allowance_s(run: RunStore, sample: Sample) -> float | None:
    """Return how many seconds the startup probe lets the proxy take, by the manifests that were applied.

    Kubelet's rule is delay + period × failures. None without a startup probe.
    """
    probe = _find_proxy_container(run, sample.variant).get("startupProbe")
    if probe is None:
        return None
    return probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)


def _read_reload_interval_s(run: RunStore, sample: Sample) -> float | None:
    """Return the reload interval that the applied manifests set; None if they set none, or there is no router."""
    with suppress(NotMeasurableError):
        return asked.configured_interval_s(run.manifests(sample.variant))
    return None


def _share_answered_while_failing(run: RunStore, sample: Sample) -> float | None:
    """Return the share of right answers among the requests due from the first failure to the last.

    None without failures.
    """
    log = run.requests(sample)
    log = log.with_columns(right=outcomes.mark_right_answers(sample.point, log))
    failed = log.filter(~pl.col("right"))["due_s"]
    if failed.is_empty():
        return None
    return log.filter(pl.col("due_s").is_between(failed.min(), failed.max())).select(pl.col("right").mean()).item()


def _find_busiest_second(run: RunStore, sample: Sample) -> float | None:
    """Return the most CPUs that any one of the proxy's processes used in any one second, as pidstat counts.

    None if no second was seen completely.
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
"""The metrics that in a claim are the proxy's only, where a table has the backend's if there is no proxy."""


# -- a run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Damaged:
    """A folder of data/reference that is no complete run.

    Attributes:
        name: The folder's name.
        why: The file, its fault and the remedy.
        record: Its run.json; None if that cannot be read.

    """

    name: str
    why: str
    record: RunRecord | None = None

    @property
    def said(self) -> str:
        """A message for people: the folder and what is wrong with it."""
        return f"{self.name} is damaged: {self.why}"

    def of(self, sweeps: Sequence[str], variants: Sequence[str], target: str | None) -> bool | None:
        """Return whether it measured these variants under one of these sweeps on `target` (None: any).

        None if that is not known, as its record cannot be read.
        """
        if self.record is None:
            return None
        arms = {arm.variant for arm in self.record.arms}
        return self.record.sweep in sweeps and arms.issuperset(variants) and target in (None, self.record.target)


def describe_damage(name: str, error: LabError, record: RunRecord | None = None) -> Damaged:
    """Return a damaged run of data/reference: which file, what is wrong with it, and what to do."""
    remedy = f"restore data/reference/{name} from a copy (git restore brings a committed one back), or measure it again"
    return Damaged(name, f"{error.place}: {error.fault}; {remedy}", record)


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one sample on one zero, the beginning of its load.

    It is what `lab.analysis.timelines` and `lab.report.figures` need of a sample.
    """

    sample: Sample
    zero_s: float
    requests: pl.DataFrame
    events: pl.DataFrame
    usage: pl.DataFrame

    @property
    def bins(self) -> pl.DataFrame:
        """The requests in bins; exactly those have failed that the sample's table counts as failed."""
        return timelines.bins(
            self.requests, self.zero_s, right=outcomes.mark_right_answers(self.sample.point, self.requests)
        )

    @property
    def marks(self) -> pl.DataFrame:
        """The events as marks."""
        return timelines.marks(self.events, self.zero_s)

    @property
    def delays(self) -> pl.DataFrame:
        """The columns t_s, delay_s of every change that answers can show."""
        return propagation.list_delays(self.requests, self.events).with_columns(t_s=pl.col("at_s") - self.zero_s)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A complete run, as evidence for claims and figures.

    Attributes:
        name: Its folder in data/reference.
        run: The stored run.
        samples: All its samples.
        counted: (block, arm, point) → the solo sample that counts.
        beside: The damaged runs that might have been taken instead, in words.
        unable: The variants that other runs of the same sweep and target could not show.

    """

    name: str
    run: RunStore
    samples: tuple[Sample, ...]
    counted: Mapping[tuple[int, str, str], Sample] = field(repr=False)
    beside: str = ""
    unable: tuple[NotMeasured, ...] = ()
    _summaries: dict[bool, Summary] = field(default_factory=dict[bool, Summary], repr=False, compare=False)

    def summary(self, disturbed: bool = False) -> Summary:
        """Return `summarise_run` of its steady loads, or of the disrupted ones, computed once; LabError as there."""
        if disturbed not in self._summaries:
            self._summaries[disturbed] = summarise_run(
                self.run.record, self.samples, self.run.histogram, disturbed, make_totals_reader(self.run)
            )
        return self._summaries[disturbed]

    @property
    def points(self) -> tuple[LoadPoint, ...]:
        """The load points of the run."""
        return self.run.record.points

    def as_pair(self, arm: str, against: str, point: str, metric: str) -> Effect | None:
        """Return the table's effect of an arm and another that were a pair.

        None if they were none, if another effect decides, or if it is not judged.
        """
        kinds = (False, True) if self.run.record.pairs else ()
        for row in (row for disturbed in kinds for row in self.summary(disturbed).rows):
            for effect in row.effects if (row.arm.name, row.point.name) == (arm, point) else ():
                of_pair = effect.scheme and effect.against == against and not effect.bound
                if effect.metric == metric:
                    return effect if of_pair and effect.decision is not Decision.NOT_JUDGED else None
        return None

    def arms(self, variant: str | None = None) -> list[str]:
        """Return the names of the arms in plan order without the A/A twins; with a variant, of its arms."""
        arms = [arm for arm in self.run.record.arms if arm.role != "again"]
        return [arm.name for arm in arms if variant in (None, arm.variant)]

    def twin(self, arm: str) -> tuple[str, str] | None:
        """Return the A/A pair for what is compared with an arm: (arm, its second measurement), else its baseline's.

        None if there is none.
        """
        arms = {candidate.name: candidate for candidate in self.run.record.arms}
        again = {candidate.baseline: candidate.name for candidate in arms.values() if candidate.role == "again"}
        base = arm if arm in again else arms[arm].baseline
        return (base, again[base]) if base is not None and base in again else None

    def blocks(self, arm: str, point: str) -> dict[int, Sample]:
        """Return block → the sample that counts; for a disruption only if the block's control run is valid, too."""
        controls = (find_control(self.points, candidate) for candidate in self.points if candidate.name == point)
        control = next(controls, None)
        return {
            block: sample
            for (block, arm_name, point_name), sample in sorted(self.counted.items())
            if (arm_name, point_name) == (arm, point)
            and (control is None or (block, arm, control.name) in self.counted)
        }

    def lost(self, arm: str, point: str) -> str:
        """Describe how many of the planned blocks count, and why the rest does not; empty if all do.

        Example: `4 of 6 blocks: steal, not measured`.
        """
        slots = self.run.record.plan().slots
        planned = {slot.block for slot in slots if (slot.arm.name, slot.point.name, slot.other) == (arm, point, "")}
        lost = sorted(planned - self.blocks(arm, point).keys())
        reasons: dict[str, None] = {}
        for block in lost:
            tried = [sample for sample in self.samples if key_of_measurement(sample)[:4] == (block, arm, point, "")]
            recorded = [str(sample.reason) for sample in tried if sample.reason is not None]
            reasons |= dict.fromkeys(recorded or ["no valid control run" if tried else "not measured"])
        return f"{len(planned) - len(lost)} of {format_blocks(len(planned))}: {', '.join(reasons)}" if lost else ""

    def unsteady(self, arm: str, point: str) -> str:
        """Describe how an arm's samples at a point are not steady, so that none counts; empty if they are steady."""
        change = find_unsteady_arms(self.samples).get((arm, point))
        return f"{arm} at {point} is not steady: {change.sentence()}" if change else ""

    def values(self, arm: str, point: str, metric: str) -> Blocks:
        """Return block → value, of the blocks that have the metric; UsageError if a log or manifest is damaged."""
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

    def told(self, variant: str, point: str, metric: str) -> list[float]:
        """Return the values of every block that has one, over all solo arms of a variant; UsageError as `values`."""
        return self._list_values(self.arms(variant), point, metric)

    def direct(self, point: str, metric: str) -> float | None:
        """Return the metric of the same load without a proxy: the median of its blocks.

        None if no valid sample has it. UsageError as `values`.
        """
        direct = [arm.name for arm in self.run.record.arms if arm.role == "reference"]
        values = self._list_values(direct, point, metric)
        return median(values) if values else None

    def _list_values(self, arms: Sequence[str], point: str, metric: str) -> list[float]:
        by_arm = (self.values(arm, point, metric).values() for arm in arms)
        return [value for values in by_arm for value in values if value is not None]

    def log(self, arm: str, point: str, block: int | None = None) -> Log | None:
        """Return one sample's log, of the first block that counts unless one is named; None without such a sample."""
        samples = self.blocks(arm, point)
        if not samples or (block is not None and block not in samples):
            return None
        sample = samples[min(samples) if block is None else block]
        requests, events = self.run.requests(sample), self.run.events(sample)
        return Log(sample, zero_s(requests), requests, events, since_load(sample, self.run.usage(sample)))

    def logs(self, arm: str, point: str) -> list[Log]:
        """Return the logs of every block that counts."""
        return [log for block in self.blocks(arm, point) if (log := self.log(arm, point, block)) is not None]

    @property
    def said(self) -> str:
        """A line for people: which run this is, and how much of it counts."""
        record = self.run.record
        invalid = sum(not sample.valid for sample in self.samples)
        gaps = f", {invalid} of {len(self.samples)} samples invalid" if invalid else ""
        planned = planned_cells(record.plan().slots)
        missing = len(planned - set(map(key_of_measurement, self.samples)))
        gaps += f", {missing} of {len(planned)} planned not measured" if missing else ""
        shape = " (shape only)" if record.blocks < MIN_BLOCKS else ""
        title = f"{record.sweep} on {record.target}, {record.created_at[:10]}, {format_blocks(record.blocks)}{shape}"
        return f"{record.id} ({self.name}): {title}{gaps}{self.beside}"


def zero_s(requests: pl.DataFrame) -> float:
    """Return when the load began (epoch): its first request was due, as in `lab.records.outcomes`; 0 without any."""
    first = requests["due_s"].min()
    return first if isinstance(first, float) else 0.0


def since_load(sample: Sample, usage: pl.DataFrame) -> pl.DataFrame:
    """Return a sample's usage on the log's zero: it is recorded from before the generator starts.

    It is unchanged if the sample did not record by how much.
    """
    return usage.with_columns(pl.col("t_s") - (sample.load_after_s or 0.0))


def load_references() -> tuple[list[Evidence], list[Damaged]]:
    """Return (the runs of data/reference, local ones first, then the newest; those that cannot be read)."""
    folders = [_load_evidence(reference_folder() / name) for name in run_names(reference_folder())]
    runs = [run for run in folders if isinstance(run, Evidence)]
    runs.sort(key=lambda run: run.run.record.created_at, reverse=True)
    runs.sort(key=lambda run: run.run.record.target != "local")
    return runs, [run for run in folders if isinstance(run, Damaged)]


def further_boots(run: Evidence) -> list[Evidence | Damaged]:
    """Return the runs of the same design on other boots, in the order in which they were added; empty without any."""
    return list(map(_load_evidence, boot_folders(run.run.folder)[1:]))


def _load_evidence(folder: Path) -> Evidence | Damaged:
    """Return a stored run.

    Records, tables and summaries are read and computed once, as long as its files and their rights stay the same.
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


def select_runs(
    runs: Sequence[Evidence], sweeps: Sequence[str], variant: str | None = None, target: str | None = None
) -> list[Evidence]:
    """Return the runs that measured `variant` (None: any) under one of `sweeps` on `target` (None: any), in order."""
    return [
        run
        for run in runs
        if run.run.record.sweep in sweeps
        and target in (None, run.run.record.target)
        and (variant is None or run.arms(variant))
    ]


@dataclass(frozen=True, slots=True)
class Missing:
    """A placeholder for a run that does not exist: what was looked for, and how to get it."""

    why: str

    @property
    def said(self) -> str:
        """A line for people."""
        return f"no run: {self.why}"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The contents of data/reference, read once."""

    runs: tuple[Evidence, ...]
    damaged: tuple[Damaged, ...]

    def of(
        self, *sweeps: str, variant: str | Sequence[str] | None = None, target: str | None = None, shape: bool = False
    ) -> Evidence | Missing:
        """Return the first run that measured what is asked for, in the order of the sweeps and of `load_references`.

        A run with enough blocks for intervals comes before one that has only a shape, unless `shape` is set.

        Args:
            sweeps: The sweeps to look for, the preferred first.
            variant: The variant, or variants, that it must have measured; None: any.
            target: The target; None: any.
            shape: Whether the shape of the results is enough.

        """
        variants = [variant] if isinstance(variant, str) else list(variant or ())
        hurt = "".join(f"; {run.said}" for run in self.damaged if run.of(sweeps, variants, target) is not False)
        candidates = (run for sweep in sweeps for run in select_runs(self.runs, [sweep], target=target))
        matches = [run for run in candidates if all(map(run.arms, variants))]
        if matches:
            taken = matches[0] if shape else max(matches, key=lambda run: run.run.record.blocks >= MIN_BLOCKS)
            alike = select_runs(self.runs, [taken.run.record.sweep], target=taken.run.record.target)
            unable = tuple(item for run in alike if run is not taken for item in run.run.record.not_measurable)
            return replace(taken, beside=hurt, unable=unable) if hurt or unable else taken
        on_target = f" on {target}" if target else ""
        node = target is None and any(map(sets_node, variants))
        command = rerun.bench(" ".join(variants) or "VARIANT", sweeps[0], "kind" if node else target)
        return Missing(f"nothing in data/reference of {' or '.join(sweeps)}{on_target}: {command}{hurt}")


def shelf() -> Shelf:
    """Read all of data/reference."""
    runs, damaged = load_references()
    return Shelf(tuple(runs), tuple(damaged))


def format_list(*runs: Evidence | Missing) -> str:
    """Return a Markdown list with every run once, in the order given."""
    return "\n".join(dict.fromkeys(f"- {run.said}" for run in runs))
