"""A stored run as the cells that a comparison takes: each with the generator that made its load, and with the run's A/A pairs.

Refuses to compare anything, and to pool: each arm at each point keeps its own blocks, and its generator's name and version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.aggregate.absolute import Absolute
from lab.analysis.aggregate.cells import Cell, Cells, cells_of
from lab.model.metrics import METRICS
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample
from lab.records.store import RunStore
from lab.stats import paired as stats


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
        versions = {self.version, other.version} - {None}
        mine, theirs = (self.name, self.stand_in_for, self.rows), (other.name, other.stand_in_for, other.rows)
        return mine != theirs or len(versions) > 1


@dataclass(frozen=True, slots=True)
class RunCells:
    """A run, taken apart."""

    record: RunRecord
    samples: Sequence[Sample]
    cells: Cells

    @property
    def arms(self) -> Mapping[str, Arm]:
        return {arm.name: arm for arm in self.record.arms}

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
        used.sort(key=lambda sample: sample.generator_version is None)
        kept = self.record.k6_out(cell.point.name)
        rows = kept if kept != "summary" else None  # the summary costs nothing
        if used:
            return Tool(used[0].generator, used[0].generator_version, used[0].stand_in_for, rows)
        planned = self.record.generators.get(cell.point.name, {})
        name = planned.get("name") or cell.point.generator
        return Tool(name, planned.get("version"), planned.get("stand_in_for"), rows)


def run_cells(run: RunStore) -> RunCells:
    """UsageError for a damaged run, MeasuringError where its samples do not belong together."""
    samples = run.samples()
    return RunCells(run.record, samples, cells_of(run.record.plan(), samples, run.histogram))
