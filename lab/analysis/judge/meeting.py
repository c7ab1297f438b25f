"""Two runs that meet: which of their loads are the same, and what may never stand side by side. One run meets itself.

Refuses runs of different targets, runs without a load in common, and systems that do different work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab.analysis import rerun
from lab.analysis.aggregate.cells import Cell
from lab.analysis.aggregate.run_cells import RunCells
from lab.base.errors import UsageError
from lab.model.names import WORTH
from lab.model.plan import Arm
from lab.model.run import VariantRecord
from lab.model.sweeps import Point
from lab.stats.units import format_blocks

FIRST, SECOND = "base", "other"
"""What the two sides are called where they are two runs."""
TWO_MACHINES = "TWO MACHINES ARE COMPARED, not two settings"


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

    def shared_baseline(self, base: Arm, other: Arm) -> str | None:
        """The baseline of either arm that both runs have with the same manifests; None inside a run."""
        if self.paired:
            return None
        for name in (base.baseline or base.name, other.baseline or other.name):
            mine, theirs = self.base.arms.get(name), self.other.arms.get(name)
            if mine and theirs and mine.role != "reference" and theirs.role != "reference":
                before, after = self.variants(mine, theirs)
                if before.manifests_sha256 == after.manifests_sha256:
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
        if self.paired or base.arm.name != other.arm.name:
            return
        before, after = self.variants(base.arm, other.arm)
        if before.manifests_sha256 != after.manifests_sha256:
            gone, come = set(before.knobs) - set(after.knobs), set(after.knobs) - set(before.knobs)
            knobs = [*(f"−{knob}" for knob in sorted(gone)), *(f"+{knob}" for knob in sorted(come))]
            changed = (
                f"knobs {' '.join(knobs)}" if knobs else f"compare manifests/{before.name}.yaml in the runs' folders"
            )
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
    if "reference" in {base.role, other.role}:
        return
    before, after = meeting.variants(base, other)
    if before.family != after.family:
        fault = f"'{after.name}' is of the family '{after.family}', '{before.name}' of '{before.family}'"
        raise UsageError("compare", fault, "they do different work: compare within a family")


def common_points(first: RunCells, second: RunCells) -> dict[str, Point]:
    """Name in the first run → the second's point of the same load, of the same name if it can be. Control runs are left out."""
    theirs = [point for point in second.record.points if not point.control]
    found: dict[str, Point] = {}
    for point in first.record.points:
        same = [other for other in theirs if not point.control and _load(other) == _load(point)]
        same.sort(key=lambda other: other.name != point.name)
        if same:
            found[point.name] = same[0]
    return found


def _load(point: Point) -> Point:
    """Every key of a load. Who makes it is looked at sample by sample; that no pair bears it, and how often it is tried, is none of the load."""
    return point.model_copy(update={"name": "", "generator": "", "alone": "", "attempts": 1})


def points_apart(first: RunCells, second: RunCells) -> Iterator[str]:
    """Loads that only one run has: `ceiling: duration_s 5.0 / 2.0`."""
    mine, theirs = ({p.name: p for p in run.record.points if not p.control} for run in (first, second))
    common = common_points(first, second)
    met = {point.name for point in common.values()}
    for name, point in mine.items():
        if name in common:
            continue
        if name in theirs and name not in met:
            one, two = _load(point).model_dump(mode="json"), _load(theirs[name]).model_dump(mode="json")
            keys = [f"{key} {one[key]} / {two[key]}" for key in one if one[key] != two[key]]
            yield f"{name} is another load: {', '.join(keys)}"
        else:
            yield f"{name} is in {FIRST} only"
    yield from (f"{name} is in {SECOND} only" for name in theirs if name not in met and name not in mine)
