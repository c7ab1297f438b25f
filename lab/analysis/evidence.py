"""The committed runs as evidence: found by what they measured, never by their folder's name; a missing or damaged one is told.

What may be asked of a run: a metric by block, the log of one sample on one zero, what was in force. Refuses to judge
(`lab.studies.claims`) and to draw (`lab.report.figures`), to hand out a block whose control run failed, manifests that are not those that
were applied, and numbers whose verbatim output has been changed.
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
from lab.analysis.aggregate.cells import counted_alone, unsteady_arms
from lab.analysis.applied import AsApplied
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.thirds import seconds_in
from lab.analysis.summary import Summary, summarise_run
from lab.base.errors import LabError, NotMeasurableError
from lab.base.files import reference_folder
from lab.disturbances import _asked as asked
from lab.model.metrics import METRICS
from lab.model.run import NotMeasured, RunRecord
from lab.model.samples import Sample, cell, planned_cells
from lab.model.sweeps import Point, control_of
from lab.model.variants import hosts
from lab.model.variants.variants import of_the_node
from lab.records import outcomes, propagation
from lab.records.references import boot_folders
from lab.records.store import RunStore, run_names
from lab.records.tables import HISTOGRAMS
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks

RUNS_KEPT = 256
"""Runs whose records are kept in memory."""
Blocks = dict[int, float | None]
"""Block → what was measured (seconds, bytes, requests per second, counts); None: its logs cannot tell."""


# -- what a claim or a figure may ask of a sample beside its outcome and gauges -------------------------------


def probe_timeouts_s(run: RunStore, variant: str) -> dict[str, float]:
    """Probe (liveness, readiness, startup) → how long it may take, by the manifests that were applied (kubelet's default: 1 s)."""
    container = _proxy_container(run, variant)
    found = {name: container.get(f"{name}Probe") for name in ("liveness", "readiness", "startup")}
    return {name: float(probe.get("timeoutSeconds", 1)) for name, probe in found.items() if probe is not None}


def _proxy_container(run: RunStore, variant: str) -> Mapping[str, Any]:
    """As it was applied; empty where the variant has no proxy."""
    with suppress(NotMeasurableError):
        return asked.container(run.manifests(variant), "proxy")
    return {}


def _least_spacing_s(run: RunStore, sample: Sample) -> float | None:
    """Least time between two reloads of one proxy: their beginnings, or where nobody tells those, their ends. None with fewer than two."""
    told = run.events(sample).sort("at_s")
    begun = told.filter(pl.col("kind") == "Reload")
    rows = begun if begun.height else told.filter(pl.col("kind") == "Reloaded")
    return rows.select(pl.col("at_s").diff().over("object").min()).item()


def _startup_allowance_s(run: RunStore, sample: Sample) -> float | None:
    """How long the proxy's startup probe lets it take, by the manifests that were applied (kubelet's rule: delay + period × failures)."""
    probe = _proxy_container(run, sample.variant).get("startupProbe")
    if probe is None:
        return None
    return probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)


def _reload_interval_s(run: RunStore, sample: Sample) -> float | None:
    """What the manifests that were applied set; None where they leave it to the router, or where there is none."""
    with suppress(NotMeasurableError):
        return asked.asked_interval_s(run.manifests(sample.variant))
    return None


def _answered_while_failing(run: RunStore, sample: Sample) -> float | None:
    """Of the requests that fell due from the first failure to the last, the share that was answered rightly; None without failures."""
    log = run.requests(sample)
    log = log.with_columns(right=outcomes.right(sample.point, log))
    failed = log.filter(~pl.col("right"))["due_s"]
    if failed.is_empty():
        return None
    return log.filter(pl.col("due_s").is_between(failed.min(), failed.max())).select(pl.col("right").mean()).item()


def _busiest_second(run: RunStore, sample: Sample) -> float | None:
    """CPUs that any one of the proxy's processes used in any one second, as pidstat counts; None where no second was seen whole."""
    seconds = pidstat.cpu_table(run.usage(sample)).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
    most = seconds["cpu_percent"].max()
    return most / 100 if isinstance(most, float) else None


LOGS: Mapping[str, Callable[[RunStore, Sample], float | None]] = {
    "busiest_second": _busiest_second,
    "answered_while_failing": _answered_while_failing,
    "routes": lambda run, sample: float(len(hosts.routed(run.manifests(sample.variant)))),
    "least_reload_spacing_s": _least_spacing_s,
    "startup_allowance_s": _startup_allowance_s,
    "reload_interval_s": _reload_interval_s,
}
"""Metric → what tells it from a sample's log or the manifests applied; None: they cannot tell."""
OF_PROXY = frozenset({"cpu_per_request", "memory_bytes"})
"""What a claim means of the proxy alone, where a table has the backend's in its place."""


# -- a run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Damaged:
    """A folder of data/reference that is no whole run. `why`: the file, its fault and the remedy; `record`: its run.json, if that can be read."""

    name: str
    why: str
    record: RunRecord | None = None

    @property
    def said(self) -> str:
        return f"{self.name} is damaged: {self.why}"

    def of(self, sweeps: Sequence[str], variants: Sequence[str], target: str | None) -> bool | None:
        """Whether it measured these variants under one of these sweeps on `target` (None: any); None where nobody can tell."""
        if self.record is None:
            return None
        arms = {arm.variant for arm in self.record.arms}
        return self.record.sweep in sweeps and arms.issuperset(variants) and target in (None, self.record.target)


def damage(name: str, error: LabError, record: RunRecord | None = None) -> Damaged:
    """A run of data/reference of which one file was found damaged: which, what is wrong with it, and what to do."""
    remedy = f"restore data/reference/{name} from a copy (git restore brings a committed one back), or measure it again"
    return Damaged(name, f"{error.place}: {error.fault}; {remedy}", record)


@dataclass(frozen=True, slots=True)
class Log:
    """One sample on one zero, the beginning of its load: what `lab.analysis.timelines` and `lab.report.figures` need of it."""

    sample: Sample
    zero_s: float
    requests: pl.DataFrame
    events: pl.DataFrame
    usage: pl.DataFrame

    @property
    def bins(self) -> pl.DataFrame:
        """What the sample's table counts as failed, and no other request, has failed here."""
        return timelines.bins(self.requests, self.zero_s, right=outcomes.right(self.sample.point, self.requests))

    @property
    def marks(self) -> pl.DataFrame:
        return timelines.marks(self.events, self.zero_s)

    @property
    def delays(self) -> pl.DataFrame:
        """t_s, delay_s of every change that answers can show."""
        return propagation.delays(self.requests, self.events).with_columns(t_s=pl.col("at_s") - self.zero_s)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run, whole. `name`: its folder in data/reference; `beside`: what is damaged there and might have been taken instead."""

    name: str
    run: RunStore
    samples: tuple[Sample, ...]
    counted: Mapping[tuple[int, str, str], Sample] = field(repr=False)
    beside: str = ""
    unable: tuple[NotMeasured, ...] = ()
    """What others of the same sweep and target were asked for and could not show."""
    _summaries: dict[bool, Summary] = field(default_factory=dict[bool, Summary], repr=False, compare=False)

    def summary(self, disturbed: bool = False) -> Summary:
        """`summarise_run` of its steady loads, or of the disturbed ones; reckoned once, whoever asks. LabError as there."""
        if disturbed not in self._summaries:
            self._summaries[disturbed] = summarise_run(
                self.run.record, self.samples, self.run.histogram, disturbed, seconds_in(self.run)
            )
        return self._summaries[disturbed]

    @property
    def points(self) -> tuple[Point, ...]:
        return self.run.record.points

    def as_pair(self, arm: str, against: str, point: str, metric: str) -> Effect | None:
        """What the run's table has of an arm and another that were a pair; None where they were none, or another effect leads."""
        kinds = (False, True) if self.run.record.pairs else ()
        for row in (row for disturbed in kinds for row in self.summary(disturbed).rows):
            for effect in row.effects if (row.arm.name, row.point.name) == (arm, point) else ():
                told = effect.scheme and effect.against == against and not effect.bound
                if effect.metric == metric:
                    return effect if told and effect.decision is not Decision.NOT_JUDGED else None
        return None

    def arms(self, variant: str | None = None) -> list[str]:
        """Names of the arms in plan order, without the A/A twins; of one variant, its arm."""
        arms = [arm for arm in self.run.record.arms if arm.role != "again"]
        return [arm.name for arm in arms if variant in (None, arm.variant)]

    def twin(self, arm: str) -> tuple[str, str] | None:
        """(arm, its second measurement), else its baseline's: the A/A pair for what is compared with this arm; None when there is none."""
        arms = {each.name: each for each in self.run.record.arms}
        again = {each.baseline: each.name for each in arms.values() if each.role == "again"}
        base = arm if arm in again else arms[arm].baseline
        return (base, again[base]) if base is not None and base in again else None

    def blocks(self, arm: str, point: str) -> dict[int, Sample]:
        """Block → the sample that counts; beside a disturbance only where the control run of that block is valid, too."""
        controls = (control_of(self.points, each) for each in self.points if each.name == point)
        control = next(controls, None)
        return {
            block: sample
            for (block, of, at), sample in sorted(self.counted.items())
            if (of, at) == (arm, point) and (control is None or (block, arm, control.name) in self.counted)
        }

    def lost(self, arm: str, point: str) -> str:
        """How many of its planned blocks count, and why not the others: `4 of 6 blocks: steal, not measured`; empty where all do."""
        slots = self.run.record.plan().slots
        planned = {each.block for each in slots if (each.arm.name, each.point.name, each.other) == (arm, point, "")}
        lost = sorted(planned - self.blocks(arm, point).keys())
        reasons: dict[str, None] = {}
        for block in lost:
            tried = [each for each in self.samples if cell(each)[:4] == (block, arm, point, "")]
            told = [str(each.reason) for each in tried if each.reason is not None]
            reasons |= dict.fromkeys(told or ["no valid control run" if tried else "not measured"])
        return f"{len(planned) - len(lost)} of {format_blocks(len(planned))}: {', '.join(reasons)}" if lost else ""

    def unsteady(self, arm: str, point: str) -> str:
        """Say what happens where samples of an arm at a point are not steady, so that none of them counts; empty where they are."""
        found = unsteady_arms(self.samples).get((arm, point))
        return f"{arm} at {point} is not steady: {found.sentence()}" if found else ""

    def values(self, arm: str, point: str, metric: str) -> Blocks:
        """Of the blocks that have the metric. UsageError when a log or manifest that it needs is damaged."""
        read = metric in METRICS and METRICS[metric].kind != "difference"
        found: Blocks = {}
        for block, sample in self.blocks(arm, point).items():
            told = {**sample.gauges, **sample.outcome}
            if metric in told or read:
                found[block] = told[metric] if metric in told else self._read(metric, sample)
        return found

    def _read(self, metric: str, sample: Sample) -> float | None:
        if metric in LOGS:
            return LOGS[metric](self.run, sample)
        if metric in OF_PROXY and "proxy" not in sample.usage:
            return None
        return METRICS[metric].read(sample, self.run.histogram(sample) if METRICS[metric].histogram else None)

    def told(self, variant: str, point: str, metric: str) -> list[float]:
        """Of every block that tells, of all its arms that were alone. UsageError as `values`."""
        return self._told(self.arms(variant), point, metric)

    def direct(self, point: str, metric: str) -> float | None:
        """What the same load takes without a proxy: the median of its blocks; None where no valid sample tells. UsageError as `values`."""
        direct = [arm.name for arm in self.run.record.arms if arm.role == "reference"]
        found = self._told(direct, point, metric)
        return median(found) if found else None

    def _told(self, arms: Sequence[str], point: str, metric: str) -> list[float]:
        found = (self.values(arm, point, metric).values() for arm in arms)
        return [value for values in found for value in values if value is not None]

    def log(self, arm: str, point: str, block: int | None = None) -> Log | None:
        """One sample's log, of the first block that counts unless one is named; None when there is no such sample."""
        samples = self.blocks(arm, point)
        if not samples or (block is not None and block not in samples):
            return None
        sample = samples[min(samples) if block is None else block]
        requests, events = self.run.requests(sample), self.run.events(sample)
        return Log(sample, zero_s(requests), requests, events, since_load(sample, self.run.usage(sample)))

    def logs(self, arm: str, point: str) -> list[Log]:
        """Of every block that counts."""
        return [log for block in self.blocks(arm, point) if (log := self.log(arm, point, block)) is not None]

    @property
    def said(self) -> str:
        """One line for people: which run this is, and how much of it counts."""
        record = self.run.record
        invalid = sum(not sample.valid for sample in self.samples)
        rest = f", {invalid} of {len(self.samples)} samples invalid" if invalid else ""
        planned = planned_cells(record.plan().slots)
        missing = len(planned - set(map(cell, self.samples)))
        rest += f", {missing} of {len(planned)} planned not measured" if missing else ""
        shape = " (shape only)" if record.blocks < MIN_BLOCKS else ""
        what = f"{record.sweep} on {record.target}, {record.created_at[:10]}, {format_blocks(record.blocks)}{shape}"
        return f"{record.id} ({self.name}): {what}{rest}{self.beside}"


def zero_s(requests: pl.DataFrame) -> float:
    """When the load began (epoch): its first request was due, as `lab.records.outcomes` has it. 0 where none was made."""
    first = requests["due_s"].min()
    return first if isinstance(first, float) else 0.0


def since_load(sample: Sample, usage: pl.DataFrame) -> pl.DataFrame:
    """Usage on the log's zero: it is recorded from before the generator starts. Unmoved where the sample does not tell by how much."""
    return usage.with_columns(pl.col("t_s") - (sample.load_after_s or 0.0))


def references() -> tuple[list[Evidence], list[Damaged]]:
    """Every run of data/reference: local ones first, then the newest; and what cannot be read there."""
    found = [_evidence(reference_folder() / name) for name in run_names(reference_folder())]
    whole = [each for each in found if isinstance(each, Evidence)]
    whole.sort(key=lambda each: each.run.record.created_at, reverse=True)
    whole.sort(key=lambda each: each.run.record.target != "local")
    return whole, [each for each in found if isinstance(each, Damaged)]


def further_boots(run: Evidence) -> list[Evidence | Damaged]:
    """Return the runs of the same design on other boots, in the order in which they were added; empty where a reference has one run."""
    return list(map(_evidence, boot_folders(run.run.folder)[1:]))


def _evidence(folder: Path) -> Evidence | Damaged:
    """As long as its files, or their rights, are the same, the same: records, tables and summaries are read and reckoned once."""
    found = (path for path in sorted(folder.rglob("*")) if path.name != HISTOGRAMS or path.parent != folder)
    return _read_evidence(folder, tuple((str(path), path.lstat().st_ctime_ns) for path in found))


@lru_cache(RUNS_KEPT)
def _read_evidence(folder: Path, _state: tuple[tuple[str, int], ...]) -> Evidence | Damaged:
    # `slow-link`; of a further boot `slow-link/boot-2`
    name = folder.name if folder.parent == reference_folder() else f"{folder.parent.name}/{folder.name}"
    run = None
    try:
        run = AsApplied.open(str(folder))
        samples = tuple(run.samples())
    except LabError as error:
        return damage(name, error, run.record if run else None)
    return Evidence(name, run, samples, counted_alone(samples))


def matching(
    among: Sequence[Evidence], sweeps: Sequence[str], variant: str | None = None, target: str | None = None
) -> list[Evidence]:
    """Those that measured `variant` (None: any) under one of `sweeps` on `target` (None: any), in the order given."""
    return [
        each
        for each in among
        if each.run.record.sweep in sweeps
        and target in (None, each.run.record.target)
        and (variant is None or each.arms(variant))
    ]


@dataclass(frozen=True, slots=True)
class Missing:
    """What stands in a run's place where there is none: what was looked for, and how to get it."""

    why: str

    @property
    def said(self) -> str:
        return f"no run: {self.why}"


@dataclass(frozen=True, slots=True)
class Shelf:
    """All of data/reference, read once."""

    runs: tuple[Evidence, ...]
    damaged: tuple[Damaged, ...]

    def of(
        self, *sweeps: str, variant: str | Sequence[str] | None = None, target: str | None = None, shape: bool = False
    ) -> Evidence | Missing:
        """The run that measured `variant`, or all of them, under the first of these sweeps that there is one of, as `references` orders them.

        One with blocks enough for intervals comes before one that has a shape alone, unless its `shape` is what is wanted.
        """
        wanted = [variant] if isinstance(variant, str) else list(variant or ())
        hurt = "".join(f"; {each.said}" for each in self.damaged if each.of(sweeps, wanted, target) is not False)
        there = (run for sweep in sweeps for run in matching(self.runs, [sweep], target=target))
        found = [run for run in there if all(map(run.arms, wanted))]
        if found:
            taken = found[0] if shape else max(found, key=lambda run: run.run.record.blocks >= MIN_BLOCKS)
            alike = matching(self.runs, [taken.run.record.sweep], target=taken.run.record.target)
            unable = tuple(item for run in alike if run is not taken for item in run.run.record.not_measurable)
            return replace(taken, beside=hurt, unable=unable) if hurt or unable else taken
        where = f" on {target}" if target else ""
        node = target is None and any(map(of_the_node, wanted))
        command = rerun.bench(" ".join(wanted) or "VARIANT", sweeps[0], "kind" if node else target)
        return Missing(f"nothing in data/reference of {' or '.join(sweeps)}{where}: {command}{hurt}")


def shelf() -> Shelf:
    runs, damaged = references()
    return Shelf(tuple(runs), tuple(damaged))


def listed(*runs: Evidence | Missing) -> str:
    """Markdown: every run once, in the order given."""
    return "\n".join(dict.fromkeys(f"- {run.said}" for run in runs))
