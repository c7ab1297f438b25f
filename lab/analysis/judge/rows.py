"""The rows of a run's table, one for each arm at each load: its values, its effects, and where absolute values mislead.

Table, Markdown, JSON, HTML and exhibits render these rows. The module does not decide (`effects` does), and it writes no
sentences: the notes come from `lab.analysis.explain.notes`.
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
    """The row of one arm (variant) at one load point in a run's table: absolute values, effects against the baseline, notes.

    Attributes:
        cell: The arm's solo samples (measured alone) at the point, which may be a control run (the load without its
            disruption).
        base: The solo samples of the baseline; None if the arm is compared with nothing.
        effects: The arm's effects against the baseline, one for each metric.
        pair: The samples of the arm and its baseline measured at once as a pair; None if there is no pair.

    """

    cell: ArmCell
    base: ArmCell | None
    effects: tuple[Effect, ...]
    pair: CellPair | None = None
    exhaustion: Exhaustion | None = None
    """The time until this load would use up the proxy's local ports; None if it would not."""
    thirds: Thirds | None = None
    """The effects in each third of the samples of a sustained load; None for other loads, or if they are not known."""
    missing: MissingByOrder | None = None
    """The dependence of invalid samples of the arm or its baseline on what was measured before; None if there is none.

    A dependence is the row's outcome, and no effect is judged.
    """
    notes: tuple[str, ...] = ()
    """The notes to print with the row."""

    @property
    def arm(self) -> Arm:
        """The arm that a row of a run's table is about: a variant, or the backend without a proxy (direct reference)."""
        return self.cell.arm

    @property
    def point(self) -> LoadPoint:
        """The load point at which the arm (variant) of a table's row was measured."""
        return self.cell.point

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """The changes of rate or CPU time within the samples of the row's arm, or else of its baseline; None if all are steady.

        If there is such a change, no effect of the arm (variant) is computed.
        """
        return self.cell.unsteady or (self.base.unsteady if self.base is not None else None)

    @property
    def samples(self) -> list[Sample]:
        """The samples of the row's arm (variant) that are used for results: solo samples or, without any, samples in pairs.

        A solo sample is measured alone, a pair is two arms measured at once. The result is empty for a load with a
        disruption, with streams of events or with WebSockets.
        """
        cells = [self.cell, *([self.pair.own] if self.pair else [])]
        counted = (list(cell.counted.values()) for cell in cells if not self.point.has_outcome)
        return next((samples for samples in counted if samples), [])

    @property
    def change(self) -> UnsteadyArm | None:
        """The lasting changes of rate or CPU time within an arm's samples under a sustained load (minutes, `--sustained`).

        Results are computed from such samples although they are not steady. The property is None if there is no such
        change, and for any other load.
        """
        return lasting_change(list(self.cell.counted.values())) if self.point.sustained else None

    @property
    def shown(self) -> tuple[Effect, ...]:
        """The effects that the effect column of the table shows in this row: for a variant, the one in its primary metric.

        For the baseline against itself (A/A), they are the effects in the primary metrics of all variants with this
        baseline, as far as they get a decision. If no metric remains, they are the effects in default metrics of the
        load.
        """
        return tuple(effect for effect in self.effects if effect.primary)

    @property
    def generator_limited(self) -> bool:
        """True if the load generator was the limit in a closed-loop sample of the row's arm (variant) or of its baseline.

        Only solo samples (measured alone) from which results are computed are examined, and no pairs (two arms at
        once).
        """
        return any(True in find_generator_limits(cell.counted.values()) for cell in (self.cell, self.base) if cell)


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a run: the table of its steady loads, or that of its disrupted loads, with notes.

    Loads with streams of events or WebSockets are in the table of the disrupted loads. Rows are grouped by load point
    in plan order, with control runs (loads without their disruption) last. Within a point, the order is: the direct
    reference (no proxy), each baseline with its repetition (A/A), and the variants.
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
    """True for the loads with a disruption, streams of events or WebSockets; False for the steady ones."""
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
        """True if every row of the table is complete; the direct reference (no proxy) is not checked, as no verdict needs it.

        A row is complete if there is a usable sample in every planned block (repetition), solo and on both sides of its
        pair. In two cases it is complete without usable samples, because it has another result:

        - Samples of the arm are not steady. Then a sample that is invalid only for this reason is enough for its block.
        - Whether samples are valid depends on what was measured before them (`missing`).
        """
        return all(
            row.missing is not None or (row.cell.complete and (row.pair is None or row.pair.lacking is None))
            for row in self.rows
            if row.arm.role != "reference"
        )

    @property
    def points(self) -> list[LoadPoint]:
        """The load points that the table of the run has rows for, each once."""
        return list({row.point.name: row.point for row in self.rows}.values())

    def at(self, point: LoadPoint) -> list[SummaryRow]:
        """Return the rows of the table at a load point."""
        return [row for row in self.rows if row.point.name == point.name]

    def control_of(self, row: SummaryRow) -> SummaryRow | None:
        """Return the row of the same arm (variant) under the same load without its disruption (control run); None without one."""
        control = find_control(self.points, row.point)
        return next(
            (candidate for candidate in self.rows if candidate.arm == row.arm and candidate.point == control), None
        )


def choose_slowdown_percentile(rows: Sequence[SummaryRow]) -> str | None:
    """Choose the latency percentile in which rows of a table compare a disruption with the time before it.

    Args:
        rows: The rows of all arms at one disrupted load.

    Returns:
        `p99`, or `p50` if an arm has too few answers for p99. It is None if an arm has too few for `p50` as well, and
        for control runs (loads without their disruption). Arms without a usable sample are not considered; None if
        there is no other arm.

    """
    slowdowns = [set(row.cell.slowdowns) for row in rows if row.cell.valid_blocks and not row.point.control]
    return next((name for name in reversed(WINDOWED) if slowdowns and all(name in names for names in slowdowns)), None)


def compute_misleading_gaps(row: SummaryRow) -> dict[str, float]:
    """Return metric → gap, for metrics in which a row's absolute values contradict the effect that its pair shows.

    A pair is two arms (variants) measured at once. Absolute values come from solo samples (measured alone), minutes
    apart, so the ratio of two rows of the table varies more. The ratio contradicts the pair if it is more than 5 %
    (CONTRADICTION_SHARE) outside the pair's 95 % interval. The gap is the log of that ratio minus the pair's effect.
    """
    gaps: dict[str, float] = {}
    for effect in row.effects if row.base is not None else ():
        pair = effect.estimate if effect.scheme is not None else effect.pair_estimate
        own, base = (cell.shown(effect.metric) for cell in (row.cell, row.base) if cell is not None)
        if pair is not None and pair.interval is not None and own and base:
            ratio, (low, high), slack = log(own / base), pair.interval, log1p(CONTRADICTION_SHARE)
            if not low - slack <= ratio <= high + slack:
                gaps[effect.metric] = ratio - pair.effect
    return gaps
