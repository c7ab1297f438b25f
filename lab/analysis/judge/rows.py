"""A run's rows, one for each arm at each point: its cell, the effects against its baseline, and where absolute values mislead.

Table, Markdown, JSON, HTML and exhibits render these rows. Refuses to decide (`effects`), and to word anything: `notes` come from
`lab.analysis.explain.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, log1p

from lab.analysis.aggregate.absolute import Absolute
from lab.analysis.aggregate.cells import Cell, Pair, UnsteadyArm
from lab.analysis.aggregate.exhaustion import Exhaustion
from lab.analysis.aggregate.order import MissingByOrder
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rulings import limited
from lab.analysis.judge.thirds import Thirds, lasting_change
from lab.model.metrics import WINDOWED
from lab.model.plan import Arm
from lab.model.run import NotMeasured
from lab.model.samples import Sample
from lab.model.sweeps import Point, control_of
from lab.stats import paired as stats

BACKEND = "backend_cpu_per_request"
"""The negative control of a pair."""
LIMIT = 0.05
"""A ratio of absolute values contradicts a pair's interval where it lies outside by more than that: smaller gaps do not show in two digits."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arm at one point, which may be a control run. `base`: the cell that it is compared with; None = it is compared with nothing.
    `pair`: the two as a pair; None = they were none.
    """

    cell: Cell
    base: Cell | None
    effects: tuple[Effect, ...]
    pair: Pair | None = None
    exhaustion: Exhaustion | None = None
    """Where this load would use up the proxy's local ports: how soon."""
    thirds: Thirds | None = None
    """Of a sustained load: its effects within the sample."""
    missing: MissingByOrder | None = None
    """Where samples of the arm or its baseline are invalid by what was measured before: this is the row's outcome."""
    notes: tuple[str, ...] = ()
    """What has to be said with it."""

    @property
    def arm(self) -> Arm:
        return self.cell.arm

    @property
    def point(self) -> Point:
        return self.cell.point

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """What makes an effect here impossible: that this arm, or what it is compared with, is not steady; None: both are."""
        return self.cell.unsteady or (self.base.unsteady if self.base is not None else None)

    @property
    def samples(self) -> list[Sample]:
        """The samples of a steady load that count: of the arm alone, or where there are none, of its pair."""
        cells = [self.cell, *([self.pair.own] if self.pair else [])]
        counted = (list(cell.counted.values()) for cell in cells if self.point.disturbance is None)
        return next((samples for samples in counted if samples), [])

    @property
    def change(self) -> UnsteadyArm | None:
        """How the arm's sustained samples, which count all the same, change for good; None where they do not, or are not sustained."""
        return lasting_change(list(self.cell.counted.values())) if self.point.sustained else None

    @property
    def shown(self) -> tuple[Effect, ...]:
        """What the effect column carries: the primary metric's effect, or the baseline against itself."""
        return tuple(effect for effect in self.effects if effect.primary)

    @property
    def generator_limited(self) -> bool:
        """At a closed loop: whether any valid sample of the arm or its baseline was."""
        return any(True in limited(cell.counted.values()) for cell in (self.cell, self.base) if cell)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's steady loads, or its `disturbed` ones. Rows are grouped by point in plan order, control runs last; inside, reference,
    baselines with their A/A, variants.
    """

    target: str | None
    blocks: int
    seed: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    snippets: Mapping[str, str]
    disturbed: bool = False
    primary: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Arm → its primary metric, as these rows call it; None or left out where it has none here."""
    elsewhere: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arm → the sweep that its hypothesis names, where this run's is another: its load may not be able to show the effect."""
    not_measurable: tuple[NotMeasured, ...] = ()
    """What was asked for and cannot be shown here. It counts against nothing."""
    systems: frozenset[str] = frozenset()
    """Arms that are another system than what they are compared with: there is nothing to apply."""
    nulls: frozenset[str] = frozenset()
    """Arms that are compared with their own variant: there is no effect, and what is claimed of them is false."""
    instruments: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arms that are only to measure by → why: nobody should apply them."""
    resume: str = ""
    """The command that measures what an interruption left out; empty = everything planned was begun."""

    @property
    def complete(self) -> bool:
        """Return whether every verdict has its samples: every cell all its valid blocks, or an outcome instead (it is not steady, or
        which samples are invalid depends on what was measured before). No verdict rests on the direct reference.
        """
        return all(
            row.missing is not None or (row.cell.complete and (row.pair is None or row.pair.complete))
            for row in self.rows
            if row.arm.role != "reference"
        )

    @property
    def points(self) -> list[Point]:
        return list({row.point.name: row.point for row in self.rows}.values())

    def at(self, point: Point) -> list[Row]:
        return [row for row in self.rows if row.point.name == point.name]

    def control_of(self, row: Row) -> Row | None:
        """The same arm with the same load and nothing done."""
        control = control_of(self.points, row.point)
        return next((other for other in self.rows if other.arm == row.arm and other.point == control), None)


def slowed_by(rows: Sequence[Row]) -> str | None:
    """p99, or p50 where an arm has too few answers for it: what is compared with before the disturbance. None in control runs."""
    told = [set(row.cell.slowdowns) for row in rows if row.cell.valid_blocks and not row.point.control]
    return next((name for name in reversed(WINDOWED) if told and all(name in names for names in told)), None)


@dataclass(frozen=True, slots=True)
class SoloRatio:
    """Absolute values of an arm and its baseline in one metric, their log-ratio, and the pair's effect whose interval that leaves.

    Solo samples of two arms lie minutes apart, and where few blocks have them they vary by more than a pair does: the columns of a table
    then invite a conclusion that its effect column denies.
    """

    metric: str
    against: str
    own: Absolute
    base: Absolute
    ratio: float
    pair: stats.Estimate


def misleading_ratios(row: Row) -> tuple[SoloRatio, ...]:
    """Return the metrics of a row in which the ratio of the absolute values leaves the pair's 95 % interval by more than 5 %."""
    if row.base is None:
        return ()
    found = (misleading_ratio(row.cell, row.base, effect) for effect in row.effects)
    return tuple(each for each in found if each is not None)


def misleading_ratio(own: Cell, base: Cell, effect: Effect) -> SoloRatio | None:
    """Return the ratio of what two arms show alone where it leaves the interval of their pair; None where it does not, or nothing tells.

    `own`, `base`: the solo samples of the arm and of what it is compared with. `effect`: of the two in one metric, whose pair either is
    the effect or stands beside it.
    """
    pair = effect.estimate if effect.scheme is not None else effect.beside
    values = own.shown(effect.metric), base.shown(effect.metric)
    if pair is None or pair.interval is None or not values[0] or not values[1]:
        return None
    ratio, (low, high) = log(values[0] / values[1]), pair.interval
    shown = own.absolute(effect.metric), base.absolute(effect.metric)
    if low - log1p(LIMIT) <= ratio <= high + log1p(LIMIT) or shown[0] is None or shown[1] is None:
        return None
    return SoloRatio(effect.metric, effect.against, shown[0], shown[1], ratio, pair)
