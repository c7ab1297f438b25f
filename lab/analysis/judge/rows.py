"""The rows of a run, one for each arm at each point: its cell, its effects, and where absolute values mislead.

Table, Markdown, JSON, HTML and exhibits render these rows. The module does not decide (`effects` does), and it words nothing: `notes` come
from `lab.analysis.explain.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, log1p

from lab.analysis.aggregate.absolute import Absolute
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
from lab.stats import paired as stats

BACKEND = "backend_cpu_per_request"
"""The negative control of a pair."""
CONTRADICTION_SHARE = 0.05
"""The distance from a pair's interval at which a ratio of absolute values contradicts it, as a share.

Smaller gaps do not show in two digits.
"""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The results of one arm at one point, which may be a control run.

    Attributes:
        cell: The arm's solo cell.
        base: The cell that it is compared with; None: it is compared with nothing.
        effects: Its effects against the baseline, metric by metric.
        pair: The two as a pair; None: they were none.

    """

    cell: ArmCell
    base: ArmCell | None
    effects: tuple[Effect, ...]
    pair: CellPair | None = None
    exhaustion: Exhaustion | None = None
    """The time until this load would use up the proxy's local ports; None: it would not."""
    thirds: Thirds | None = None
    """The effects within the sample, for a sustained load."""
    missing: MissingByOrder | None = None
    """The dependence of invalid samples of the arm or its baseline on what was measured before.

    If there is one, it is the row's outcome.
    """
    notes: tuple[str, ...] = ()
    """The notes to print with the row."""

    @property
    def arm(self) -> Arm:
        """The arm."""
        return self.cell.arm

    @property
    def point(self) -> LoadPoint:
        """The load point."""
        return self.cell.point

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """The unsteadiness of the arm, or of its baseline, that rules out an effect; None: both are steady."""
        return self.cell.unsteady or (self.base.unsteady if self.base is not None else None)

    @property
    def samples(self) -> list[Sample]:
        """The samples of a steady load that count: the arm's solo ones, or without any, those of its pair."""
        cells = [self.cell, *([self.pair.own] if self.pair else [])]
        counted = (list(cell.counted.values()) for cell in cells if self.point.disturbance is None)
        return next((samples for samples in counted if samples), [])

    @property
    def change(self) -> UnsteadyArm | None:
        """The lasting change of the arm's sustained samples, which count all the same.

        None where they do not change, or are not sustained.
        """
        return lasting_change(list(self.cell.counted.values())) if self.point.sustained else None

    @property
    def shown(self) -> tuple[Effect, ...]:
        """The effects in the effect column: that of the primary metric, or the baseline against itself."""
        return tuple(effect for effect in self.effects if effect.primary)

    @property
    def generator_limited(self) -> bool:
        """True if the generator was the limit of any valid closed-loop sample of the arm or its baseline."""
        return any(True in find_generator_limits(cell.counted.values()) for cell in (self.cell, self.base) if cell)


@dataclass(frozen=True, slots=True)
class Summary:
    """The rows of a run's steady loads, or of its disrupted ones, with what is printed around them.

    Rows are grouped by point in plan order, control runs last. Inside a point come the reference, the baselines each with its A/A arm, and the
    variants.
    """

    target: str | None
    blocks: int
    seed: int
    rows: tuple[SummaryRow, ...]
    notes: tuple[str, ...]
    snippets: Mapping[str, str]
    """Arm → what to apply."""
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
        """True if every verdict has its samples.

        Then each cell has all its valid blocks, or an outcome instead: it is not steady, or its invalid samples depend on what was measured
        before. No verdict rests on the direct reference.
        """
        return all(
            row.missing is not None or (row.cell.complete and (row.pair is None or row.pair.complete))
            for row in self.rows
            if row.arm.role != "reference"
        )

    @property
    def points(self) -> list[LoadPoint]:
        """The points of the rows, each once."""
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
    """Return the percentile that is compared with its value before the disruption.

    It is p99, or p50 where an arm has too few answers. None in control runs, and if not even p50 is known.
    """
    slowdowns = [set(row.cell.slowdowns) for row in rows if row.cell.valid_blocks and not row.point.control]
    return next((name for name in reversed(WINDOWED) if slowdowns and all(name in names for names in slowdowns)), None)


@dataclass(frozen=True, slots=True)
class SoloRatio:
    """The ratio of two arms' absolute values in one metric, where it leaves the interval of their pair.

    Solo samples of two arms lie minutes apart, and where few blocks have them they vary by more than a pair does. The columns of a table then
    invite a conclusion that its effect column denies.

    Attributes:
        metric: The metric.
        against: The arm that is compared with.
        own: The absolute value of the arm.
        base: That of its baseline.
        ratio: Their log-ratio.
        pair: The pair's effect.

    """

    metric: str
    against: str
    own: Absolute
    base: Absolute
    ratio: float
    pair: stats.Estimate


def list_misleading_ratios(row: SummaryRow) -> tuple[SoloRatio, ...]:
    """Return the ratios of a row's absolute values that leave the pair's 95 % interval by more than 5 %."""
    if row.base is None:
        return ()
    ratios = (find_misleading_ratio(row.cell, row.base, effect) for effect in row.effects)
    return tuple(ratio for ratio in ratios if ratio is not None)


def find_misleading_ratio(arm: ArmCell, base: ArmCell, effect: Effect) -> SoloRatio | None:
    """Return the ratio of two arms' absolute values where it leaves the interval of their pair.

    None where it does not, and where a value or the interval is missing.

    Args:
        arm: The solo cell of the arm.
        base: The solo cell of what it is compared with.
        effect: The effect between the two in one metric. Their pair is the effect itself, or is reported with it.

    """
    pair = effect.estimate if effect.scheme is not None else effect.beside
    values = arm.shown(effect.metric), base.shown(effect.metric)
    if pair is None or pair.interval is None or not values[0] or not values[1]:
        return None
    ratio, (low, high) = log(values[0] / values[1]), pair.interval
    absolutes = arm.absolute(effect.metric), base.absolute(effect.metric)
    if (
        low - log1p(CONTRADICTION_SHARE) <= ratio <= high + log1p(CONTRADICTION_SHARE)
        or absolutes[0] is None
        or absolutes[1] is None
    ):
        return None
    return SoloRatio(effect.metric, effect.against, absolutes[0], absolutes[1], ratio, pair)
