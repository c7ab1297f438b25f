"""The rows of a run, one for each arm at each point: its cell, its effects, and where absolute values mislead.

Table, Markdown, JSON, HTML and exhibits render these rows. The module does not decide (`effects` does), and it writes no sentences: the notes
come from `lab.analysis.explain.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, log1p

from lab.analysis.aggregate.cells import ArmCell, CellPair, UnsteadyArm
from lab.analysis.aggregate.exhaustion import Exhaustion
from lab.analysis.aggregate.order import MissingByOrder
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rulings import find_generator_limits
from lab.analysis.judge.thirds import Thirds, lasting_change
from lab.model.metrics import WINDOWED
from lab.model.plan import Arm
from lab.model.run import NotMeasured
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint, find_control

BACKEND = "backend_cpu_per_request"
"""The negative control of a pair."""
CONTRADICTION_SHARE = 0.05
"""The distance from a pair's interval at which a ratio of absolute values contradicts it, as a share.

Smaller gaps do not show in two digits.
"""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The row of one arm at one load point in a run's table: absolute values, effects against the baseline, notes.

    Attributes:
        cell: The arm's solo samples at the point, which may be a control run.
        base: The solo samples of the baseline; None: the arm is compared with nothing.
        effects: The arm's effects against the baseline, one for each metric.
        pair: The samples of the arm and its baseline as a pair; None: they were not measured as a pair.

    """

    cell: ArmCell
    base: ArmCell | None
    effects: tuple[Effect, ...]
    pair: CellPair | None = None
    exhaustion: Exhaustion | None = None
    """The time until this load would use up the proxy's local ports; None: it would not."""
    thirds: Thirds | None = None
    """The effects in each third of the samples of a sustained load; None for other loads, or if they are not known."""
    missing: MissingByOrder | None = None
    """How invalid samples of the arm or its baseline depend on what was measured before; None: they do not.

    If they do, that is the row's outcome, and no effect is judged.
    """
    notes: tuple[str, ...] = ()
    """The notes to print with the row."""

    @property
    def arm(self) -> Arm:
        """The arm that a row of a run's table is about: a variant, or the backend without a proxy (direct reference)."""
        return self.cell.arm

    @property
    def point(self) -> LoadPoint:
        """The load point at which the arm of a table's row was measured."""
        return self.cell.point

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """How samples of a row's arm, or else of its baseline, change within themselves; None: all are steady.

        If samples change, no effect is computed.
        """
        return self.cell.unsteady or (self.base.unsteady if self.base is not None else None)

    @property
    def samples(self) -> list[Sample]:
        """The samples of one arm at one point that count: its solo samples, or those of its pair if it has none.

        Empty for a disrupted load.
        """
        cells = [self.cell, *([self.pair.own] if self.pair else [])]
        counted = (list(cell.counted.values()) for cell in cells if not self.point.has_outcome)
        return next((samples for samples in counted if samples), [])

    @property
    def change(self) -> UnsteadyArm | None:
        """How an arm's samples under a sustained load change for good.

        Such samples count although they are not steady. None if they do not change, or if the load is not a sustained one (of minutes, `--sustained`).
        """
        return lasting_change(list(self.cell.counted.values())) if self.point.sustained else None

    @property
    def shown(self) -> tuple[Effect, ...]:
        """The effects that a table's effect column shows of a row: for a variant, the effect in its primary metric.

        For the baseline against itself (A/A) these are the effects in the metrics of the variants that rely on it.
        """
        return tuple(effect for effect in self.effects if effect.primary)

    @property
    def generator_limited(self) -> bool:
        """True if the load generator was the limit in any closed-loop sample that counts, of the arm or its baseline."""
        return any(True in find_generator_limits(cell.counted.values()) for cell in (self.cell, self.base) if cell)


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a run: the table of its steady loads, or of its disrupted loads, and what is printed with it.

    Rows are grouped by point in plan order, control runs last. Inside a point come the direct reference, then each baseline followed by the
    arm that repeats it (A/A), and the variants.
    """

    target: str | None
    """The target on which the run was measured; None without a sample."""
    blocks: int
    """The number of planned blocks."""
    seed: int
    """The seed of the plan's random order."""
    rows: tuple[SummaryRow, ...]
    """The rows of the table."""
    notes: tuple[str, ...]
    """The notes to print below the table."""
    snippets: Mapping[str, str]
    """Arm → the manifest snippet that a reader applies if the arm's variant is better."""
    disturbed: bool = False
    """True for the disrupted loads, False for the steady ones."""
    primary: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Arm → its primary metric, as these rows call it; None or left out where it has none here."""
    elsewhere: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arm → the sweep that its hypothesis names, if this run's is another.

    This run's load may not be able to show the effect then.
    """
    not_measurable: tuple[NotMeasured, ...] = ()
    """The variants that were asked for and cannot be shown here; they count against nothing."""
    systems: frozenset[str] = frozenset()
    """The arms that are another system than what they are compared with: there is nothing to apply."""
    nulls: frozenset[str] = frozenset()
    """The arms that are compared with their own variant: there is no effect, and any claim about them is false."""
    instruments: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arm that only serves to measure → why: nobody should apply it."""
    resume: str = ""
    """The command that measures what an interruption left out; empty: everything planned was begun."""

    @property
    def complete(self) -> bool:
        """True if a run has all samples on which the verdicts about its variants rest.

        Then each arm has a sample that counts in every planned block of each point, or another outcome there: its samples are not steady, or
        whether they are valid depends on what was measured before. The direct reference is left out, as no verdict rests on it.
        """
        return all(
            row.missing is not None or (row.cell.complete and (row.pair is None or row.pair.complete))
            for row in self.rows
            if row.arm.role != "reference"
        )

    @property
    def points(self) -> list[LoadPoint]:
        """The load points that a run's table has rows of, each point once."""
        return list({row.point.name: row.point for row in self.rows}.values())

    def at(self, point: LoadPoint) -> list[SummaryRow]:
        """Return the rows of a point."""
        return [row for row in self.rows if row.point.name == point.name]

    def control_of(self, row: SummaryRow) -> SummaryRow | None:
        """Return the control run of a row: the same arm with the same load and no disruption; None without one."""
        control = find_control(self.points, row.point)
        return next(
            (candidate for candidate in self.rows if candidate.arm == row.arm and candidate.point == control), None
        )


def choose_slowdown_percentile(rows: Sequence[SummaryRow]) -> str | None:
    """Choose the percentile of latency that rows show during a disruption against before it.

    Args:
        rows: The rows of all arms at one disrupted load.

    Returns:
        `p99`, or `p50` if an arm has too few answers for p99. None for control runs, and if an arm does not even have p50.

    """
    slowdowns = [set(row.cell.slowdowns) for row in rows if row.cell.valid_blocks and not row.point.control]
    return next((name for name in reversed(WINDOWED) if slowdowns and all(name in names for names in slowdowns)), None)


def compute_misleading_gaps(row: SummaryRow) -> dict[str, float]:
    """Return the metrics in which a row's absolute values contradict the effect of its pair, each with the gap.

    Solo samples of two arms are minutes apart, and vary more than a pair if only a few blocks have them. So the ratio of two rows of the
    table with absolute values may suggest something else than the difference. It contradicts the pair if it is more than 5 %
    (CONTRADICTION_SHARE) outside the pair's 95 % interval. The gap is the log of that ratio less the pair's effect.
    """
    gaps: dict[str, float] = {}
    for effect in row.effects if row.base is not None else ():
        pair = effect.estimate if effect.scheme is not None else effect.beside
        own, base = (cell.shown(effect.metric) for cell in (row.cell, row.base) if cell is not None)
        if pair is not None and pair.interval is not None and own and base:
            ratio, (low, high), slack = log(own / base), pair.interval, log1p(CONTRADICTION_SHARE)
            if not low - slack <= ratio <= high + slack:
                gaps[effect.metric] = ratio - pair.effect
    return gaps
