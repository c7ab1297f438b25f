"""The matching of two runs for a comparison: which of their loads are the same, and what must never be compared.

Each run is grouped into cells, the samples of each arm (variant) at each load point, with the generator that made the load. To
compare arms of one run, the run is matched with itself. Refused are runs of different targets, runs without a load in common,
and systems that do different work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis import rerun
from lab.analysis.aggregate.absolute import Absolute
from lab.analysis.aggregate.cells import ArmCell, Cells, build_cells
from lab.base.errors import UsageError, refuse_if
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
    """The numbers of one side of a comparison: an arm (variant) of a run at one load point in one metric.

    Values are seconds, bytes, requests per second or counts.
    """

    run: str
    """The id of the run."""
    arm: str
    """The name of the arm."""
    values: Mapping[int, float]
    """Block → value, of the blocks that are compared and have a value."""
    level: stats.Level | None
    """The median of the arm's solo blocks with its interval; None without a value."""
    planned_blocks: int
    """The number of blocks that were planned."""
    invalid: Mapping[Reason, int]
    """The number of invalid samples by reason."""
    generator: str
    """The load generator with its version, for people."""
    absolute: Absolute | None = None
    """The arm's absolute value from solo blocks, as people see it; None without one, and for a disruption."""


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """The load generator that made the load for one arm (variant) at one load point.

    Attributes:
        name: The generator's name.
        version: The generator's version; None if it did not report one.
        stand_in_for: The generator that the sweep requested, if this one replaced it; otherwise None.
        rows: The format (`csv` or `json`) in which k6 also wrote one row for each request, which costs CPU time. None
            if it wrote no rows.

    """

    name: str
    version: str | None
    stand_in_for: str | None
    rows: str | None

    def __str__(self) -> str:
        """Return the generator's name, version and options for people: `k6 1.8.1 --out csv (for wrk2)`.

        In brackets is the generator that this one replaced.
        """
        name = " ".join(filter(None, [self.name, self.version, f"--out {self.rows}" if self.rows else ""]))
        return f"{name} (for {self.stand_in_for})" if self.stand_in_for else name

    def differs(self, second: LoadGenerator) -> bool:
        """Return whether this generator differs from a second one, so that their numbers must not be compared.

        Compared are the name, the version, the format of k6's rows (one row for each request), and the name of the
        generator that this one replaced. A version that was not reported equals any version.
        """
        identity, second_identity = (
            (self.name, self.stand_in_for, self.rows),
            (second.name, second.stand_in_for, second.rows),
        )
        return identity != second_identity or len({self.version, second.version} - {None}) > 1


@dataclass(frozen=True, slots=True)
class RunCells:
    """A stored run: its record, all its samples, and the samples grouped by arm (variant) and load point."""

    record: RunRecord
    samples: Sequence[Sample]
    cells: Cells

    @staticmethod
    def of(run: RunStore) -> RunCells:
        """Read a stored run and group its samples by arm (variant) and load point.

        Raises:
            UsageError: The run is damaged.
            MeasuringError: The samples are of different targets, loads or generators, or not of the run's plan.

        """
        samples = run.samples()
        return RunCells(run.record, samples, build_cells(run.record.plan(), samples, run.histogram))

    @property
    def arms(self) -> Mapping[str, Arm]:
        """Name → arm of the run, which is a variant, a baseline, or the direct reference (backend without a proxy)."""
        return {arm.name: arm for arm in self.record.arms}

    @property
    def points(self) -> list[LoadPoint]:
        """The load points of a run, without control runs (disrupted loads without their disruption)."""
        return [point for point in self.record.points if not point.control]

    def at(self, arm: str, point: str) -> ArmCell | None:
        """Return the solo samples (measured alone) of an arm (variant) at a load point.

        Args:
            arm: The name of the arm.
            point: The name of the load point.

        Returns:
            The samples; None if none was planned, and for control runs (loads without their disruption).

        """
        cell = self.cells.cells.get((arm, point))
        return cell if cell and cell.planned and not cell.point.control else None

    @property
    def complete(self) -> bool:
        """True if every planned block (repetition) of every arm (variant) of the run has a sample, valid or not.

        Control runs (loads without their disruption) are not checked.
        """
        cells = (cell for cell in self.cells.cells.values() if not cell.point.control)
        return all(cell.tried >= cell.planned_blocks for cell in cells)

    def stats(self, cell: ArmCell, metric: str, side: ArmCell) -> CellStats:
        """Return the numbers of an arm (variant) at a load point in one metric, for one side of a comparison.

        Args:
            cell: The arm's solo samples (measured alone), which give the absolute values.
            metric: The metric's name in the catalogue.
            side: The arm's samples that are compared, either those in a pair (two variants at once) or the solo ones.
                Blocks and invalid samples are taken from them.

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
        """Return the load generator that made an arm's samples at a load point; without samples, the planned one."""
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
    """The two runs of a comparison, with the loads that they have in common.

    Attributes:
        base: The first run.
        other: The second run. If arms of one run are compared, it is the first run again.
        points: Name of a load point in the first run → the point with the same load in the second run.
        paired: True if arms of one run are compared, block by block (repetition by repetition).

    """

    base: RunCells
    other: RunCells
    points: Mapping[str, LoadPoint]
    paired: bool
    margin: float = EQUIVALENCE_MARGIN
    """The equivalence margin, as a share."""

    @property
    def loads(self) -> list[LoadPoint]:
        """The load points of the comparison: all steady ones if two arms of one run are compared, or else those of both runs.

        Which metrics are compared depends on them. For example, latency is not compared at a closed loop if another
        point has an offered rate.
        """
        if not self.paired:
            return list(self.points.values())
        return [point for point in self.base.record.points if not point.has_outcome]

    def name(self, cell: ArmCell, base: ArmCell) -> str:
        """Return how a note names a side: by its arm (variant) within one run, or as `base` or `other` for two runs.

        Args:
            cell: The samples of the side to name.
            base: The samples of the first side.

        """
        if self.paired:
            return cell.arm.name
        return FIRST if cell is base else SECOND

    def variants(self, base: Arm, other: Arm) -> tuple[VariantRecord, VariantRecord]:
        """Return the variant of an arm of the first run, and the variant of an arm of the second run."""
        return self.base.record.variants[base.variant], self.other.record.variants[other.variant]

    def same_settings(self, base: Arm, other: Arm) -> bool:
        """Return whether an arm (variant) of the first run and an arm of the second run have equal manifests."""
        before, after = self.variants(base, other)
        return before.manifests_sha256 == after.manifests_sha256

    def shared_baseline(self, base: Arm, other: Arm) -> str | None:
        """Return the name of the baseline that two runs have in common with equal manifests, for an arm of each of them.

        Args:
            base: The arm of the first run, whose baseline is tried first.
            other: The arm of the second run, whose baseline is tried next.

        Returns:
            The name; None if there is no such baseline, and always None within one run.

        """
        for name in () if self.paired else (base.baseline or base.name, other.baseline or other.name):
            first, second = self.base.arms.get(name), self.other.arms.get(name)
            comparable = first and second and "reference" not in (first.role, second.role)
            if first and second and comparable and self.same_settings(first, second):
                return name
        return None

    def remarks(self, base: ArmCell, other: ArmCell) -> Iterator[str]:
        """Yield the notes about two sides of a comparison that apply to every metric, such as missing blocks (repetitions)."""
        for cell in (base, other):
            if remark := _describe_missing(cell):
                yield f"{self.name(cell, base)}: {remark}"
            if (failed := sum(cell.errors.values())) and not cell.point.has_outcome:
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
    """Describe why blocks (repetitions) of an arm have no result: `4 of 6 blocks: 1 invalid (steal), 1 block not measured`."""
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
    """Refuse two runs that cannot be compared.

    Raises:
        UsageError: The runs are of different targets, or have no load in common.

    """
    base, other = first.record, second.record
    refuse_if(
        base.target != other.target,
        base.id,
        f"is of target '{base.target}', {other.id} of '{other.target}'",
        "results of different targets are never pooled: measure both on one target",
    )
    if not match_points(first, second):
        apart = "; ".join(describe_unmatched_points(first, second)) or "no load but of control runs"
        remedy = f"measure both with the same load: {rerun.measure_command(base, 'VARIANT')}"
        raise UsageError(base.id, f"and {other.id} have no load in common: {apart}", remedy)


def refuse_other_family(meeting: ComparedRuns, base: Arm, other: Arm) -> None:
    """Refuse two arms that do different work, and so cannot be compared.

    There are two families of variants: systems as they are shipped, and systems that are set to do the same work as
    others. The direct reference, which has no proxy, may be compared with both.

    Raises:
        UsageError: The two arms are of different families.

    """
    before, after = meeting.variants(base, other)
    refuse_if(
        "reference" not in {base.role, other.role} and before.family != after.family,
        "compare",
        f"'{after.name}' is of the family '{after.family}', '{before.name}' of '{before.family}'",
        "they do different work: compare within a family",
    )


def match_points(first: RunCells, second: RunCells) -> dict[str, LoadPoint]:
    """Return name of a load point in the first run → the point with the same load in the second run.

    If the second run has several points with this load, the one with the same name is taken, or else the first. Control
    runs (loads without their disruption) are left out.
    """
    alike = {
        point.name: [candidate for candidate in second.points if _strip_load(candidate) == _strip_load(point)]
        for point in first.points
    }
    return {
        name: next((point for point in same if point.name == name), same[0]) for name, same in alike.items() if same
    }


def _strip_load(point: LoadPoint) -> LoadPoint:
    """Return a load point without the keys that do not describe its load, so that two loads can be compared.

    These keys are its name, the reason why it is not paired, the number of attempts, and its generator, because samples
    record which generator they really used.
    """
    return point.model_copy(update={"name": "", "generator": "", "alone": "", "attempts": 1})


def describe_unmatched_points(first: RunCells, second: RunCells) -> Iterator[str]:
    """Yield a phrase for each load that only one of two runs has: `ceiling is another load: duration_s 5.0 / 2.0`.

    In the example, both runs have a point named `ceiling`, which lasts 5 s in the first and 2 s in the second. Points
    without a namesake are named with `is in base only` or `is in other only`.
    """
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
