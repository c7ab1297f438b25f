"""Two runs that meet: which of their loads are the same, and what may never stand side by side. One run meets itself.

Each run is taken apart into its cells, each arm at each point with the generator that made its load. Refuses runs of different targets,
runs without a load in common, and systems that do different work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis import rerun
from lab.analysis.aggregate.absolute import Absolute
from lab.analysis.aggregate.cells import Cell, Cells, cells_of
from lab.base.errors import UsageError
from lab.model.metrics import METRICS
from lab.model.names import WORTH
from lab.model.plan import Arm
from lab.model.run import RunRecord, VariantRecord
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Point
from lab.records.store import RunStore
from lab.stats import paired as stats
from lab.stats.units import format_blocks

FIRST, SECOND = "base", "other"
"""What the two sides are called where they are two runs."""
TWO_MACHINES = "TWO MACHINES ARE COMPARED, not two settings"


@dataclass(frozen=True, slots=True)
class CellStats:
    """One arm of one run at one point, in one metric; seconds, bytes, req/s or counts. `level`: the median of its blocks alone."""

    run: str
    arm: str
    values: Mapping[int, float]
    """Block → value, of the valid blocks."""
    level: stats.Level | None
    planned_blocks: int
    invalid: Mapping[Reason, int]
    generator: str
    absolute: Absolute | None = None
    """What may be shown of its absolute value, of the arm alone."""


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
        mine, theirs = (self.name, self.stand_in_for, self.rows), (other.name, other.stand_in_for, other.rows)
        return mine != theirs or len({self.version, other.version} - {None}) > 1


@dataclass(frozen=True, slots=True)
class RunCells:
    """A run, taken apart. UsageError for a damaged run, MeasuringError where its samples do not belong together."""

    record: RunRecord
    samples: Sequence[Sample]
    cells: Cells

    @staticmethod
    def of(run: RunStore) -> RunCells:
        samples = run.samples()
        return RunCells(run.record, samples, cells_of(run.record.plan(), samples, run.histogram))

    @property
    def arms(self) -> Mapping[str, Arm]:
        return {arm.name: arm for arm in self.record.arms}

    @property
    def points(self) -> list[Point]:
        """Of loads; control runs are none."""
        return [point for point in self.record.points if not point.control]

    def at(self, arm: str, point: str) -> Cell | None:
        """None where nothing was planned, and of control runs."""
        cell = self.cells.cells.get((arm, point))
        return cell if cell and cell.planned and not cell.point.control else None

    @property
    def complete(self) -> bool:
        """Whether every block was begun."""
        cells = (cell for cell in self.cells.cells.values() if not cell.point.control)
        return all(cell.tried >= cell.planned_blocks for cell in cells)

    def stats(self, cell: Cell, metric: str, side: Cell) -> CellStats:
        """Levels are the arm's alone; blocks and what does not count are the compared side's, where that was a pair's."""
        return CellStats(
            run=self.record.id,
            arm=cell.arm.name,
            values=side.known(metric),
            level=cell.level(metric),
            planned_blocks=side.planned_blocks,
            invalid=side.invalid,
            generator=str(self.tool(cell)),
            absolute=cell.absolute(metric) if METRICS[metric].ratio else None,
        )

    def tool(self, cell: Cell) -> Tool:
        """What the samples say; where there is none, what the run was going to use."""
        used = [sample for sample in cell.samples if sample.reason is not Reason.BLOCK_INTERRUPTED]
        kept = self.record.k6_out(cell.point.name)
        rows = kept if kept != "summary" else None  # the summary costs nothing
        if used:
            one = min(used, key=lambda sample: sample.generator_version is None)
            return Tool(one.generator, one.generator_version, one.stand_in_for, rows)
        planned = self.record.generators.get(cell.point.name, {})
        name = planned.get("name") or cell.point.generator
        return Tool(name, planned.get("version"), planned.get("stand_in_for"), rows)


@dataclass(frozen=True, slots=True)
class Meeting:
    """`points`: name of a load in `base` → the same load as `other` has it. `paired`: both are one run."""

    base: RunCells
    other: RunCells
    points: Mapping[str, Point]
    paired: bool
    worth: float = WORTH
    """The share from which on an effect is worth knowing."""

    @property
    def loads(self) -> list[Point]:
        """What says how a metric is judged: inside a run its steady loads, of two runs what they have in common."""
        if not self.paired:
            return list(self.points.values())
        return [point for point in self.base.record.points if point.disturbance is None]

    def name(self, cell: Cell, base: Cell) -> str:
        """What a side is called in a note."""
        if self.paired:
            return cell.arm.name
        return FIRST if cell is base else SECOND

    def variants(self, base: Arm, other: Arm) -> tuple[VariantRecord, VariantRecord]:
        return self.base.record.variants[base.variant], self.other.record.variants[other.variant]

    def same_settings(self, base: Arm, other: Arm) -> bool:
        before, after = self.variants(base, other)
        return before.manifests_sha256 == after.manifests_sha256

    def shared_baseline(self, base: Arm, other: Arm) -> str | None:
        """The baseline of either arm that both runs have with the same manifests; None inside a run."""
        for name in () if self.paired else (base.baseline or base.name, other.baseline or other.name):
            mine, theirs = self.base.arms.get(name), self.other.arms.get(name)
            known = mine and theirs and "reference" not in (mine.role, theirs.role)
            if mine and theirs and known and self.same_settings(mine, theirs):
                return name
        return None

    def remarks(self, base: Cell, other: Cell) -> Iterator[str]:
        """What of two sides a reader has to know, whatever the metric."""
        for cell in (base, other):
            if remark := _remark(cell):
                yield f"{self.name(cell, base)}: {remark}"
            if (failed := sum(cell.errors.values())) and cell.point.disturbance is None:
                yield f"{self.name(cell, base)}: {failed:,} requests failed"
        for cell in (base, other):
            yield from dict.fromkeys(cell.notes)
        if {base.cpu_of, other.cpu_of} == {"backend"}:
            yield "no proxy: CPU per request is the backend's"
        if self.paired or base.arm.name != other.arm.name or self.same_settings(base.arm, other.arm):
            return
        before, after = self.variants(base.arm, other.arm)
        gone, come = set(before.knobs) - set(after.knobs), set(after.knobs) - set(before.knobs)
        knobs = " ".join([*(f"−{knob}" for knob in sorted(gone)), *(f"+{knob}" for knob in sorted(come))])
        changed = f"knobs {knobs}" if knobs else f"compare manifests/{before.name}.yaml in the runs' folders"
        yield f"{base.arm.name}: the manifests differ, so that is what is compared: {changed}"


def _remark(cell: Cell) -> str:
    """What is missing of its blocks: `4 of 6 blocks: 3 invalid (steal 2, other-processes 1), 1 block not measured`."""
    total, missing = sum(cell.invalid.values()), cell.planned_blocks - cell.tried
    reasons = [f"{reason} {count}" if total > 1 else str(reason) for reason, count in cell.invalid.items()]
    parts = [
        f"{total} invalid ({', '.join(reasons)})" if total else "",
        f"{format_blocks(missing)} not measured" if missing else "",
        f"{format_blocks(len(cell.lost))} without a valid control run" if cell.lost else "",
    ]
    short = cell.valid_blocks < cell.planned_blocks
    count = f"{cell.valid_blocks} of {format_blocks(cell.planned_blocks)}" if short else ""
    return ": ".join(filter(None, [count, ", ".join(filter(None, parts))]))


def refuse_apart(first: RunCells, second: RunCells) -> None:
    """UsageError for runs that have nothing to say about each other."""
    one, two = first.record, second.record
    if one.target != two.target:
        fault = f"is of target '{one.target}', {two.id} of '{two.target}'"
        raise UsageError(one.id, fault, "results of different targets are never pooled: measure both on one target")
    if not common_points(first, second):
        apart = "; ".join(points_apart(first, second)) or "no load but of control runs"
        remedy = f"measure both with the same load: {rerun.measure(one, 'VARIANT')}"
        raise UsageError(one.id, f"and {two.id} have no load in common: {apart}", remedy)


def refuse_families(meeting: Meeting, base: Arm, other: Arm) -> None:
    """UsageError for a system as it is shipped beside one made to do the same work as others; what has no proxy is of neither."""
    before, after = meeting.variants(base, other)
    if "reference" not in {base.role, other.role} and before.family != after.family:
        fault = f"'{after.name}' is of the family '{after.family}', '{before.name}' of '{before.family}'"
        raise UsageError("compare", fault, "they do different work: compare within a family")


def common_points(first: RunCells, second: RunCells) -> dict[str, Point]:
    """Name in the first run → the second's point of the same load, of the same name if it can be. Control runs are left out."""
    found: dict[str, Point] = {}
    for point in first.points:
        same = [other for other in second.points if _load(other) == _load(point)]
        if same:
            found[point.name] = next((other for other in same if other.name == point.name), same[0])
    return found


def _load(point: Point) -> Point:
    """Every key of a load. Who makes it is looked at sample by sample; that no pair bears it, and how often it is tried, is none of the load."""
    return point.model_copy(update={"name": "", "generator": "", "alone": "", "attempts": 1})


def points_apart(first: RunCells, second: RunCells) -> Iterator[str]:
    """Loads that only one run has: `ceiling: duration_s 5.0 / 2.0`."""
    mine, theirs = ({point.name: point for point in run.points} for run in (first, second))
    common = common_points(first, second)
    met = {point.name for point in common.values()}
    for name in (name for name in mine if name not in common):
        if name in theirs and name not in met:
            one, two = _load(mine[name]).model_dump(mode="json"), _load(theirs[name]).model_dump(mode="json")
            keys = [f"{key} {one[key]} / {two[key]}" for key in one if one[key] != two[key]]
            yield f"{name} is another load: {', '.join(keys)}"
        else:
            yield f"{name} is in {FIRST} only"
    yield from (f"{name} is in {SECOND} only" for name in theirs if name not in met and name not in mine)
