"""The meeting of two runs: which of their loads are the same, and what must never be compared.

Each run is taken apart into its cells: each arm at each point, with the generator that made its load. One run meets itself. Refused are
runs of different targets, runs without a load in common, and systems that do different work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis import rerun
from lab.analysis.aggregate.absolute import Absolute
from lab.analysis.aggregate.cells import ArmCell, Cells, build_cells
from lab.base.errors import UsageError
from lab.model.metrics import METRICS
from lab.model.names import EQUIVALENCE_MARGIN
from lab.model.plan import Arm
from lab.model.run import RunRecord, VariantRecord
from lab.model.samples import Reason, Sample
from lab.model.sweeps import LoadPoint
from lab.records.store import RunStore
from lab.stats import paired as stats
from lab.stats.units import format_blocks

FIRST, SECOND = "base", "other"
"""The names of the two sides where they are two runs."""
TWO_MACHINES = "TWO MACHINES ARE COMPARED, not two settings"


@dataclass(frozen=True, slots=True)
class CellStats:
    """The numbers of an arm of one run at one point in one metric, in seconds, bytes, req/s or counts."""

    run: str
    arm: str
    values: Mapping[int, float]
    """Block → value, of the valid blocks."""
    level: stats.Level | None
    """The median of its solo blocks with the interval."""
    planned_blocks: int
    invalid: Mapping[Reason, int]
    generator: str
    absolute: Absolute | None = None
    """The absolute value of the solo arm, as people see it."""


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """The generator that made a load.

    Attributes:
        name: Its name.
        version: Its version; None: it did not report one.
        stand_in_for: The generator it stood in for; None: it is the sweep's generator.
        rows: The format (csv, json) in which k6 also wrote a row for every request, which cost it CPU; None: it wrote none.

    """

    name: str
    version: str | None
    stand_in_for: str | None
    rows: str | None

    def __str__(self) -> str:
        """`k6 1.8.1 --out csv (for wrk2)`."""
        name = " ".join(filter(None, [self.name, self.version, f"--out {self.rows}" if self.rows else ""]))
        return f"{name} (for {self.stand_in_for})" if self.stand_in_for else name

    def differs(self, second: LoadGenerator) -> bool:
        """Return whether the numbers of the two must not be compared; an unreported version equals any version."""
        identity, second_identity = (
            (self.name, self.stand_in_for, self.rows),
            (second.name, second.stand_in_for, second.rows),
        )
        return identity != second_identity or len({self.version, second.version} - {None}) > 1


@dataclass(frozen=True, slots=True)
class RunCells:
    """A run, taken apart into its cells."""

    record: RunRecord
    samples: Sequence[Sample]
    cells: Cells

    @staticmethod
    def of(run: RunStore) -> RunCells:
        """Read a stored run.

        Raises:
            UsageError: The run is damaged.
            MeasuringError: Its samples do not belong together.

        """
        samples = run.samples()
        return RunCells(run.record, samples, build_cells(run.record.plan(), samples, run.histogram))

    @property
    def arms(self) -> Mapping[str, Arm]:
        """The run's arms by name."""
        return {arm.name: arm for arm in self.record.arms}

    @property
    def points(self) -> list[LoadPoint]:
        """The points of loads, without control runs."""
        return [point for point in self.record.points if not point.control]

    def at(self, arm: str, point: str) -> ArmCell | None:
        """Return the solo cell of an arm at a point; None if none was planned, and for control runs."""
        cell = self.cells.cells.get((arm, point))
        return cell if cell and cell.planned and not cell.point.control else None

    @property
    def complete(self) -> bool:
        """True if every block was begun."""
        cells = (cell for cell in self.cells.cells.values() if not cell.point.control)
        return all(cell.tried >= cell.planned_blocks for cell in cells)

    def stats(self, cell: ArmCell, metric: str, side: ArmCell) -> CellStats:
        """Return the numbers of an arm at a point in one metric.

        Args:
            cell: The solo cell, which has the absolute values.
            metric: The metric's name in the catalogue.
            side: The cell that is compared, which has the blocks and the invalid samples: that of a pair, or the solo one.

        """
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

    def tool(self, cell: ArmCell) -> LoadGenerator:
        """Return the generator by the cell's samples; without any, the one that the run was going to use."""
        used = [sample for sample in cell.samples if sample.reason is not Reason.BLOCK_INTERRUPTED]
        output = self.record.k6_out(cell.point.name)
        rows = output if output != "summary" else None  # the summary costs nothing
        if used:
            sample = min(used, key=lambda sample: sample.generator_version is None)
            return LoadGenerator(sample.generator, sample.generator_version, sample.stand_in_for, rows)
        planned = self.record.generators.get(cell.point.name, {})
        name = planned.get("name") or cell.point.generator
        return LoadGenerator(name, planned.get("version"), planned.get("stand_in_for"), rows)


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Two runs and the loads that they have in common.

    Attributes:
        base: The first run.
        other: The second run; the same as `base` if one run meets itself.
        points: Name of a load in `base` → the same load as `other` has it.
        paired: Whether both are one run.

    """

    base: RunCells
    other: RunCells
    points: Mapping[str, LoadPoint]
    paired: bool
    worth: float = EQUIVALENCE_MARGIN
    """The equivalence margin, as a share."""

    @property
    def loads(self) -> list[LoadPoint]:
        """The loads that decide how a metric is judged: a run's steady loads, or those common to two runs."""
        if not self.paired:
            return list(self.points.values())
        return [point for point in self.base.record.points if point.disturbance is None]

    def name(self, cell: ArmCell, base: ArmCell) -> str:
        """Return the name of a side in a note."""
        if self.paired:
            return cell.arm.name
        return FIRST if cell is base else SECOND

    def variants(self, base: Arm, other: Arm) -> tuple[VariantRecord, VariantRecord]:
        """Return the variants of two arms, one of each run."""
        return self.base.record.variants[base.variant], self.other.record.variants[other.variant]

    def same_settings(self, base: Arm, other: Arm) -> bool:
        """Return whether two arms have the same manifests."""
        before, after = self.variants(base, other)
        return before.manifests_sha256 == after.manifests_sha256

    def shared_baseline(self, base: Arm, other: Arm) -> str | None:
        """Return the baseline of either arm that both runs have with the same manifests; None inside a run."""
        for name in () if self.paired else (base.baseline or base.name, other.baseline or other.name):
            first, second = self.base.arms.get(name), self.other.arms.get(name)
            comparable = first and second and "reference" not in (first.role, second.role)
            if first and second and comparable and self.same_settings(first, second):
                return name
        return None

    def remarks(self, base: ArmCell, other: ArmCell) -> Iterator[str]:
        """Yield what a reader must know about two sides, whatever the metric."""
        for cell in (base, other):
            if remark := _describe_missing(cell):
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
        removed, added = set(before.knobs) - set(after.knobs), set(after.knobs) - set(before.knobs)
        knobs = " ".join([*(f"−{knob}" for knob in sorted(removed)), *(f"+{knob}" for knob in sorted(added))])
        changed = f"knobs {knobs}" if knobs else f"compare manifests/{before.name}.yaml in the runs' folders"
        yield f"{base.arm.name}: the manifests differ, so that is what is compared: {changed}"


def _describe_missing(cell: ArmCell) -> str:
    """Describe a cell's missing blocks: `4 of 6 blocks: 3 invalid (steal 2, dropped 1), 1 block not measured`."""
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


def refuse_incomparable_runs(first: RunCells, second: RunCells) -> None:
    """Refuse, with UsageError, runs of different targets and runs without a load in common."""
    base, other = first.record, second.record
    if base.target != other.target:
        fault = f"is of target '{base.target}', {other.id} of '{other.target}'"
        raise UsageError(base.id, fault, "results of different targets are never pooled: measure both on one target")
    if not match_points(first, second):
        apart = "; ".join(describe_unmatched_points(first, second)) or "no load but of control runs"
        remedy = f"measure both with the same load: {rerun.measure_command(base, 'VARIANT')}"
        raise UsageError(base.id, f"and {other.id} have no load in common: {apart}", remedy)


def refuse_other_family(meeting: ComparedRuns, base: Arm, other: Arm) -> None:
    """Refuse, with UsageError, to compare a system as it is shipped with one made to do the same work as others.

    An arm without a proxy belongs to neither family.
    """
    before, after = meeting.variants(base, other)
    if "reference" not in {base.role, other.role} and before.family != after.family:
        fault = f"'{after.name}' is of the family '{after.family}', '{before.name}' of '{before.family}'"
        raise UsageError("compare", fault, "they do different work: compare within a family")


def match_points(first: RunCells, second: RunCells) -> dict[str, LoadPoint]:
    """Return name in the first run → the second run's point of the same load, without control runs.

    Of several such points the one with the same name is taken.
    """
    points: dict[str, LoadPoint] = {}
    for point in first.points:
        same = [candidate for candidate in second.points if _strip_load(candidate) == _strip_load(point)]
        if same:
            points[point.name] = next((candidate for candidate in same if candidate.name == point.name), same[0])
    return points


def _strip_load(point: LoadPoint) -> LoadPoint:
    """Return a point with only those keys that make its load.

    The generator is compared sample by sample. That the point supports no pairing, and how often it is tried, is no part of the load.
    """
    return point.model_copy(update={"name": "", "generator": "", "alone": "", "attempts": 1})


def describe_unmatched_points(first: RunCells, second: RunCells) -> Iterator[str]:
    """Yield a phrase for each load that only one run has: `ceiling is another load: duration_s 5.0 / 2.0`."""
    first_points, second_points = ({point.name: point for point in run.points} for run in (first, second))
    common = match_points(first, second)
    met = {point.name for point in common.values()}
    for name in (name for name in first_points if name not in common):
        if name in second_points and name not in met:
            load, second_load = (
                _strip_load(first_points[name]).model_dump(mode="json"),
                _strip_load(second_points[name]).model_dump(mode="json"),
            )
            keys = [f"{key} {load[key]} / {second_load[key]}" for key in load if load[key] != second_load[key]]
            yield f"{name} is another load: {', '.join(keys)}"
        else:
            yield f"{name} is in {FIRST} only"
    yield from (f"{name} is in {SECOND} only" for name in second_points if name not in met and name not in first_points)
