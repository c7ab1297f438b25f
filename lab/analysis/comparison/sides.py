"""A stored run, steady or disturbed, as what each arm measured at each point: the sides of a comparison.

Refuses to compare anything, and to pool: each arm at each point keeps its own blocks, and its generator's name and version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from lab.analysis import judging
from lab.analysis.outcome_summary import floor_of, summarise_outcomes
from lab.analysis.summary import counted_samples, summarise_run
from lab.model.samples import Reason, Sample
from lab.stats import paired as stats
from lab.stats.units import format_blocks

if TYPE_CHECKING:
    from lab.model.plan import Arm
    from lab.model.run import RunRecord
    from lab.model.sweeps import Point
    from lab.records.store import RunStore

Values = Mapping[str, Mapping[int, float | None]]


@dataclass(frozen=True, slots=True)
class Side:
    """One arm of one run at one point, in one metric; seconds, bytes, req/s or counts. `level`: the blocks' median."""

    run: str
    arm: str
    values: Mapping[int, float]
    """Block → value, of the valid blocks."""
    level: stats.Level | None
    planned_blocks: int
    invalid: Mapping[Reason, int]
    generator: str | None


@dataclass(frozen=True, slots=True)
class Tool:
    """The generator that made a load. `version` None: it did not tell. `rows`: what k6 wrote of every request beside, which
    cost it CPU (csv, json); None = nothing.
    """

    name: str
    version: str | None
    stand_in_for: str | None
    rows: str | None

    def __str__(self) -> str:
        """`k6 1.8.1 --out csv (for wrk2)`."""
        name = " ".join(filter(None, [self.name, self.version, f"--out {self.rows}" if self.rows else ""]))
        return f"{name} (for {self.stand_in_for})" if self.stand_in_for else name

    def differs(self, other: Tool) -> bool:
        """Whether their numbers may not stand side by side. A version that nobody told is no other version."""
        versions = {self.version, other.version} - {None}
        mine, theirs = (self.name, self.stand_in_for, self.rows), (other.name, other.stand_in_for, other.rows)
        return mine != theirs or len(versions) > 1


@dataclass(frozen=True, slots=True)
class Measured:
    """One arm at one point. `values`: metric → block → number, None = it could not be told. `tried`: blocks that were
    begun; `lost`: valid ones that do not count for want of a valid control run. `failed`: requests, of the blocks that count.
    """

    run: str
    arm: Arm
    point: Point
    tool: Tool
    values: Values
    counted: Sequence[Sample]
    planned_blocks: int
    tried: int
    lost: int
    invalid: Mapping[Reason, int]
    failed: int
    cpu_of: str | None
    clock_error_s: float = 0.0

    def known(self, metric: str) -> dict[int, float]:
        """Block → number, in block order."""
        found = self.values.get(metric, {})
        return {block: value for block, value in sorted(found.items()) if value is not None and isfinite(value)}

    def untold(self, metric: str) -> int:
        """In how many blocks the metric's number could not be told."""
        return sum(value is None for value in self.values.get(metric, {}).values())

    def side(self, metric: str) -> Side:
        known = self.known(metric)
        level = stats.middle(list(known.values())) if known else None
        return Side(self.run, self.arm.name, known, level, self.planned_blocks, self.invalid, str(self.tool))

    def judging(self, medians: bool) -> judging.Side:
        """For `lab.analysis.judging.ruling`. `medians`: each metric's median instead of its blocks, for sides whose blocks are no pairs."""
        values = {metric: self.known(metric) for metric in self.values}
        if medians:
            values = {
                metric: {0: stats.middle(list(found.values())).value} for metric, found in values.items() if found
            }
        return judging.Side(self.counted, values, self.cpu_of)

    @property
    def remark(self) -> str:
        """What is missing of its blocks: `4 of 6 blocks: 3 invalid (steal 2, other-processes 1), 1 block not measured`."""
        parts: list[str] = []
        if total := sum(self.invalid.values()):
            reasons = [f"{reason} {count}" if total > 1 else str(reason) for reason, count in self.invalid.items()]
            parts.append(f"{total} invalid ({', '.join(reasons)})")
        if missing := self.planned_blocks - self.tried:
            parts.append(f"{format_blocks(missing)} not measured")
        if self.lost:
            parts.append(f"{format_blocks(self.lost)} without a valid control run")
        valid = len(self.counted)
        short = [f"{valid} of {format_blocks(self.planned_blocks)}"] if valid < self.planned_blocks else []
        return ": ".join([*short, *([", ".join(parts)] if parts else [])])


@dataclass(frozen=True, slots=True)
class Measurements:
    """A run, taken apart."""

    record: RunRecord
    samples: Sequence[Sample]
    cells: Mapping[tuple[str, str], Measured] = field(repr=False)
    """(arm, point) → what was measured there; without control runs."""

    @property
    def arms(self) -> Mapping[str, Arm]:
        return {arm.name: arm for arm in self.record.arms}

    def same_as(self, other: Measurements) -> bool:
        """Whether one is a copy of the other."""
        return self.record == other.record and self.samples == other.samples

    @property
    def complete(self) -> bool:
        """Whether every block was begun."""
        return all(cell.tried >= cell.planned_blocks for cell in self.cells.values())

    def floor(self, arm: Arm, point: Point, metric: str, clock_error_s: float) -> float | None:
        """The A/A δ of what `arm` is compared with (itself, where with nothing); None below six A/A blocks.

        A log-ratio; of disturbed loads a difference, and no less than what the metric resolves (`lab.analysis.outcome_summary.floor_of`).
        """
        name = arm.baseline or arm.name
        again = next((a.name for a in self.record.arms if a.role == "again" and a.baseline == name), None)
        one, other = self.cells.get((name, point.name)), self.cells.get((again or "", point.name))
        aa = paired(other, one, metric) if one and other else None
        if point.disturbance is not None:
            return floor_of(metric, point, aa, clock_error_s)
        return stats.floor_of(aa) if aa else None


def paired(own: Measured, base: Measured, metric: str) -> stats.Estimate | None:
    """The effect over the blocks that both have: of disturbed loads a difference, else a log-ratio. None without such a block."""
    mine, theirs = own.known(metric), base.known(metric)
    both = sorted(mine.keys() & theirs.keys())
    estimate = stats.difference if own.point.disturbance is not None else stats.paired
    return estimate([mine[block] for block in both], [theirs[block] for block in both]) if both else None


def measurements(run: RunStore) -> Measurements:
    """UsageError for a damaged run, MeasuringError where its samples do not belong together."""
    record, samples = run.record, run.samples()
    cells = {(cell.arm.name, cell.point.name): cell for cell in _steady(run, samples)}
    cells |= {(cell.arm.name, cell.point.name): cell for cell in _disturbed(record, samples)}
    return Measurements(record, samples, cells)


def _steady(run: RunStore, samples: Sequence[Sample]) -> Iterator[Measured]:
    counted = counted_samples(samples)
    for row in summarise_run(run.record, samples, run.histogram).rows:
        at = (row.arm.name, row.point.name)
        mine = [sample for sample in samples if (sample.arm, sample.point.name) == at]
        yield Measured(
            run=run.record.id,
            arm=row.arm,
            point=row.point,
            tool=_tool(run.record, row.point, mine),
            values=row.values,
            counted=[sample for (_, *cell), sample in sorted(counted.items()) if tuple(cell) == at],
            planned_blocks=row.planned_blocks,
            tried=len({sample.block for sample in mine}),
            lost=0,
            invalid=row.invalid,
            failed=sum(row.errors.values()),
            cpu_of=row.cpu_of,
        )


def _disturbed(record: RunRecord, samples: Sequence[Sample]) -> Iterator[Measured]:
    found, counted = summarise_outcomes(record, samples), counted_samples(samples)
    for row in found.rows if found else ():
        if row.point.control:
            continue
        at = (row.arm.name, row.point.name)
        mine = [sample for sample in samples if (sample.arm, sample.point.name) == at]
        valid = {block: sample for (block, *cell), sample in sorted(counted.items()) if tuple(cell) == at}
        kept = {block for blocks in row.values.values() for block in blocks}
        yield Measured(
            run=record.id,
            arm=row.arm,
            point=row.point,
            tool=_tool(record, row.point, mine),
            values=row.values,
            counted=[sample for block, sample in valid.items() if block in kept],
            planned_blocks=row.planned_blocks,
            tried=len({sample.block for sample in mine}),
            lost=len(valid.keys() - kept),
            invalid=row.invalid,
            failed=0,  # the outcome
            cpu_of=None,
            clock_error_s=row.clock_error_s,
        )


def _tool(record: RunRecord, point: Point, samples: Sequence[Sample]) -> Tool:
    """What the samples say; where there is none, what the run was going to use."""
    used = sorted((sample for sample in samples if sample.reason is not Reason.BLOCK_INTERRUPTED), key=_untold)
    kept = record.k6_out(point.name)
    rows = kept if kept != "summary" else None  # the summary costs nothing
    if used:
        return Tool(used[0].generator, used[0].generator_version, used[0].stand_in_for, rows)
    planned = record.generators.get(point.name, {})
    return Tool(planned.get("name") or point.generator, planned.get("version"), planned.get("stand_in_for"), rows)


def _untold(sample: Sample) -> bool:
    return sample.generator_version is None
