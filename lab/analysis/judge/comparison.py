"""A comparison's rows, each two sides in one metric at one point: whether they may be compared, what is decided, what two runs have in common.

Refuses to compare sides that different generators measured, that the rulings exclude, or that could not be told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import comb

from lab.analysis.aggregate.absolute import split_text
from lab.analysis.aggregate.cells import Cell, Pair, paired
from lab.analysis.judge.decision import SURE_P, UNBOUNDED, Decision, Size, adjusted, decide
from lab.analysis.judge.effects import ALONE, Effect, guard, size_of, untold
from lab.analysis.judge.meeting import CellStats, Meeting
from lab.analysis.judge.rows import SoloRatio, misleading_ratio
from lab.analysis.judge.rulings import Ruling, fell, ruling
from lab.model.design import CONCURRENT
from lab.model.metrics import METRICS, QUANTILES, about, compared
from lab.model.plan import Arm
from lab.model.run import RunRecord, VariantRecord
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.histogram import BEYOND
from lab.stats.units import format_blocks
from lab.stats.unpaired import unpaired, unpaired_difference

NOT_STEADY = "not steady"
"""How the reason begins why nothing is compared where samples of an arm change within themselves."""
LONELY = "no block in which both are valid"
TWO_CLUSTERS = "its blocks fall into two clusters, so that no difference describes it"
GUARDED = "surer than chance, but the baseline against itself shows as much as"
WHY_OPEN = (GUARDED, UNBOUNDED)
"""Notes that come with a decision, by how they begin."""
TOO_FEW = "comparisons of so few blocks"


@dataclass(frozen=True, slots=True)
class Compared:
    """`other` against `base` in one metric at one point; where it is not judged, `notes` say why.

    `primary`: in what the arm's table claims, which is a family of its own. `estimate` and `size` are log-ratios where `relative`, else
    differences in the metric's own unit. `guard` of the size: the larger of the sides'. `baseline_move`: across runs, the same estimate of the baseline that both runs have with the same
    manifests. `bound`: one side's number is a bound (`lab.analysis.judge.rulings`), so that what is not resolved bounds nothing. `counted`, `begun`:
    (base, other) blocks that are valid, whatever the metric, and that were begun.
    """

    point: Point
    metric: str
    title: str
    unit: str
    more_is_better: bool
    relative: bool
    base: CellStats
    other: CellStats
    estimate: stats.Estimate | None
    size: Size
    decision: Decision
    holm_p: float | None
    notes: tuple[str, ...]
    primary: bool = False
    baseline_move: stats.Estimate | None = None
    bound: bool = False
    apart: SoloRatio | None = None
    """Where the two sides' absolute values show another difference than their pair."""
    counted: tuple[int, int] = (0, 0)
    begun: tuple[int, int] = (0, 0)

    @property
    def tested(self) -> bool:
        """Whether its p-value is one of the family that Holm's method adjusts: not where every block of both sides is the same.

        That p-value can only be 1, so that leaving it out is no selection (Tarone 1990).
        """
        has_p = self.estimate is not None and self.estimate.has_interval and self.estimate.p_value is not None
        return has_p and len({*self.base.values.values(), *self.other.values.values()}) > 1

    def decided(self, decision: Decision, holm_p: float | None, primary: bool = False) -> Compared:
        """With why nothing is resolved, where that is known. `holm_p`: adjusted; None below six blocks, and of what is not compared."""
        why = [UNBOUNDED] if decision is Decision.NOT_JUDGED else []
        if decision is Decision.CANNOT_TELL and holm_p is not None and holm_p <= SURE_P:
            why = [f"{GUARDED} {size_text(self, self.size.guard)}"]
        notes = tuple(dict.fromkeys([*self.notes, *why]))
        return replace(self, decision=decision, holm_p=holm_p, primary=primary, notes=notes)

    @property
    def pair(self) -> tuple[str, str]:
        return self.base.arm, self.other.arm

    @property
    def place(self) -> str:
        """`keepalive at ceiling`, and against what where that is another arm."""
        base, other = self.pair
        return f"{other if base == other else f'{other} against {base}'} at {self.point.name}"

    @property
    def fell(self) -> str:
        """How `other` did not do its work in more samples than `base`: `6 of 10 blocks, proxy-died 4`; empty: it did."""
        return fell(self.other.invalid, self.base.invalid, f"{self.counted[1]} of {format_blocks(self.begun[1])}")

    @property
    def unserved(self) -> bool:
        """Whether `other` has no valid block of a steady rate, as it was not served, and `base` served it."""
        base, other = self.counted
        return self.relative and base > 0 and not other and any(reason.unserved for reason in self.other.invalid)

    @property
    def beyond_baseline(self) -> bool:
        """Whether the effect's interval lies wholly beyond what the baseline's move between the runs may have been."""
        if self.baseline_move is None:
            return True
        own, moved = self.estimate.interval if self.estimate else None, self.baseline_move.interval
        if own is None or moved is None:
            return False
        most = max(map(abs, moved))
        return own[0] > most or own[1] < -most


def size_text(row: Compared, size: float) -> str:
    """A size of the row's kind, for people: `3.2 %`, or `0.21 s`."""
    return about(row.metric).size(size)


def change_text(row: Compared, estimate: stats.Estimate) -> str:
    """An effect of the row's kind with its interval where there is one: `−8.2 % [−9.1, −7.3]`."""
    metric = about(row.metric)
    return metric.change(estimate.effect) + (metric.ends(*estimate.interval) if estimate.interval else " (no interval)")


Effects = Mapping[tuple[str, str, str], Effect]
"""(arm, point, metric) → the effect as the run's table has it."""


def rows_of(
    meeting: Meeting,
    points: Sequence[Point],
    pairs: Sequence[tuple[Arm, Arm]],
    asked: Collection[str],
    effects: Effects,
) -> Iterator[Compared]:
    """Every metric's row of each pair of arms (base, other) at each of these points of `meeting.base`, not judged yet; none where an arm
    has no slot there.

    `asked`: outcomes that have a row also where they were 0 in every block. `effects`: of one run, what its table says, which is
    said here, too.
    """
    for point, (base_arm, other_arm) in product(points, pairs):
        base = meeting.base.at(base_arm.name, point.name)
        other = meeting.other.at(other_arm.name, meeting.points[point.name].name)
        if base is not None and other is not None:
            for metric in compared(point) if point.disturbance is None else _outcomes_of(base, other, asked):
                yield _row(meeting, base, other, metric, effects.get((other_arm.name, point.name, metric)))


def _outcomes_of(base: Cell, other: Cell, asked: Collection[str]) -> Iterator[str]:
    """The metrics that have a better side, and were not 0 in every block of both arms, unless `asked` or always shown by a table.

    Of two arms without a valid block, the two that say most, and what was asked for.
    """
    if not base.values and not other.values:
        yield from dict.fromkeys((*ALONE, *asked))
    for metric in compared(base.point):
        values = [*base.values.get(metric, {}).values(), *other.values.get(metric, {}).values()]
        shown = METRICS[metric].always or metric in asked or any(value != 0 for value in values)
        if METRICS[metric].better != "neither" and values and shown:
            yield metric


def _row(meeting: Meeting, base: Cell, other: Cell, metric: str, told: Effect | None) -> Compared:
    relative, point = base.point.disturbance is None, base.point
    paired_with = meeting.base.cells.pair(other.arm.name, point) if told and told.scheme else None
    sides = paired_with or Pair(other, base)
    ruled, about_it = _ruled(meeting, sides.base, sides.own, metric), METRICS[metric]
    split = "" if ruled.why else _split(meeting, sides, metric)
    move = None if ruled.why else _moved(meeting, base, other, metric)
    if told:
        size = told.size
    else:  # of itself, where it is compared with nothing
        guards = (
            guard(run.cells, cell.arm.baseline or cell.arm.name, cell.point, metric, beside=False)
            for run, cell in ((meeting.base, base), (meeting.other, other))
        )
        size = size_of(metric, sides, max(guards), meeting.worth)
    row = Compared(
        point=point,
        metric=metric,
        title=about_it.short,
        unit=about_it.unit,
        more_is_better=about_it.better == "more",
        relative=relative,
        base=meeting.base.stats(base, metric, sides.base),
        other=meeting.other.stats(other, metric, sides.own),
        estimate=None if ruled.why or split else _estimate(meeting, sides.own, sides.base, metric),
        size=size,
        decision=Decision.NOT_JUDGED,
        holm_p=None,
        notes=(),
        baseline_move=move,
        bound=ruled.bound,
        apart=misleading_ratio(other, base, told) if told and relative else None,
        counted=(len(sides.base.counted), len(sides.own.counted)),
        begun=(sides.base.tried, sides.own.tried),
    )
    lonely = "" if ruled.why or split or row.estimate else LONELY
    concurrent = CONCURRENT if told and CONCURRENT in told.note else ""
    moved = ""
    if move is not None and (move.effect, move.interval) != (0.0, (0.0, 0.0)):
        moved = f"the baseline itself, the same in both runs, moved by {change_text(row, move)}"
    said = [
        *meeting.remarks(base, other),
        ruled.why,
        ruled.note,
        split,
        lonely,
        concurrent,
        *_estimate_notes(row),
        moved,
    ]
    row = replace(row, notes=tuple(dict.fromkeys(filter(None, said))))
    return row.decided(told.decision, told.holm_p, told.primary) if told and row.estimate else row


def _split(meeting: Meeting, sides: Pair, metric: str) -> str:
    """Return which side's blocks fall into two clusters, so that no difference is estimated; empty where neither's do.

    Blocks of two runs have nothing in common, so that there each side is looked at by itself.
    """
    own, base = sides.own.known(metric), sides.base.known(metric)
    names = sides.own.arm.name, sides.base.arm.name
    apart = own if meeting.paired else {-1 - block: value for block, value in own.items()}
    found = split_text(apart, base, metric, names if names[0] != names[1] else ("other", "base"))
    return f"{TWO_CLUSTERS}: {found}" if found else ""


def _ruled(meeting: Meeting, base: Cell, other: Cell, metric: str) -> Ruling:
    """Whether the two are compared."""
    first, second = meeting.base.tool(base), meeting.other.tool(other)
    if first.differs(second):
        return Ruling(f"generators differ: {first} / {second}")
    if moved := [cell.unsteady.sentence() for cell in (base, other) if cell.unsteady]:
        return Ruling(f"{NOT_STEADY}: {'; '.join(dict.fromkeys(moved))}")
    if missing := [meeting.name(cell, base) for cell in (base, other) if not cell.counted]:
        return Ruling(f"no valid block of {' and '.join(dict.fromkeys(missing))}")
    lacking = [cell for cell in (base, other) if not cell.known(metric)]
    if base.point.disturbance is not None:
        none = f"{meeting.name(lacking[0], base)} has no such number" if lacking else ""
        return Ruling(untold(other, base, metric, pairs=meeting.paired) or none)
    if needs := next((variant.needs for variant in meeting.variants(base.arm, other.arm) if variant.needs), ""):
        return Ruling(f"needs {needs}")
    found = ruling(metric, other, base, meeting.loads, pairs=meeting.paired)
    if found.why or not lacking:
        return found
    if metric in QUANTILES:
        return Ruling(f"{metric} needs {BEYOND} requests beyond it in every sample")
    return Ruling(f"no {about(metric).title} was recorded")


def _estimate(meeting: Meeting, other: Cell, base: Cell, metric: str) -> stats.Estimate | None:
    if meeting.paired:
        return paired(other, base, metric)
    after, before = (list(cell.known(metric).values()) for cell in (other, base))
    if not after or not before:
        return None
    return unpaired(after, before) if base.point.disturbance is None else unpaired_difference(after, before)


def _moved(meeting: Meeting, base: Cell, other: Cell, metric: str) -> stats.Estimate | None:
    """How the baseline that both runs have moved between them; None inside a run, and of the baseline itself."""
    name = meeting.shared_baseline(base.arm, other.arm)
    if name is None or base.arm.name == other.arm.name == name:
        return None
    before, after = meeting.base.at(name, base.point.name), meeting.other.at(name, other.point.name)
    if before is None or after is None or _ruled(meeting, before, after, metric).why:
        return None
    return _estimate(meeting, after, before, metric)


def _estimate_notes(row: Compared) -> Iterator[str]:
    estimate = row.estimate
    if estimate is None:
        return
    if not estimate.has_interval:
        yield stats.NEED_BLOCKS
        return
    if stats.ALL_EQUAL in estimate.notes:
        yield f"{stats.ALL_EQUAL}: the interval has no width"
    if stats.OUTLIERS in estimate.notes:
        middle = replace(estimate, effect=estimate.hodges_lehmann, low=estimate.hl_low, high=estimate.hl_high)
        beside = "" if middle.effect == estimate.effect else f": Hodges–Lehmann {change_text(row, middle)}"
        yield f"{stats.OUTLIERS}{beside}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`rows` by point in plan order, then arm pair, then metric. One run: `other` is `base`. `notes`: what differs between the runs.
    `family`: how many p-values were adjusted together; of a run with steady and disturbed loads, in each of its tables.

    `missing_arms` (where none were named), `missing_points`: of two runs, what would have a row if `other` had it, too.
    """

    base: RunRecord
    other: RunRecord
    paired: bool
    rows: tuple[Compared, ...]
    notes: tuple[str, ...]
    family: tuple[int, ...]
    missing_arms: tuple[str, ...] = ()
    missing_points: tuple[Point, ...] = ()

    def variants(self, pair: tuple[str, str]) -> tuple[VariantRecord, VariantRecord]:
        """Those of an arm pair."""
        sides = zip((self.base, self.other), pair, strict=True)
        before, after = (
            record.variants[next(arm.variant for arm in record.arms if arm.name == name)] for record, name in sides
        )
        return before, after

    def same_settings(self, pair: tuple[str, str]) -> bool:
        """Whether an arm pair is one thing measured twice: what differs is no setting's doing, and inside a run nothing's."""
        before, after = self.variants(pair)
        return before.manifests_sha256 == after.manifests_sha256


def judged(rows: Sequence[Compared]) -> list[Compared]:
    """The rows decided: all of these that have a p-value are the family of Holm's method."""
    found: list[Compared] = []
    holm_p = adjusted([row.estimate.p_value if row.estimate and row.tested else None for row in rows])
    for row, own in zip(rows, holm_p, strict=True):
        if row.estimate is None:
            found.append(row)
            continue
        p_value = 1.0 if own is None and row.estimate.has_interval else own  # it is no part of the family
        decision = decide(row.estimate, row.size, p_value, more_is_better=row.more_is_better, bound=row.bound)
        found.append(row.decided(decision, p_value))
    return found


def blocks_wanted(rows: Sequence[Compared]) -> int:
    """Across runs: how many blocks on both sides so many comparisons need to be resolved at all; 0: these have them.

    No rank sum is surer than two of the C(m+n, m) orders, the extremes, and Holm multiplies that by the number of comparisons.
    """
    family = [row for row in rows if row.tested]
    sizes = [(len(row.other.values), len(row.base.values)) for row in family]
    least = min((2 / comb(m + n, m) for m, n in sizes), default=0.0)
    if least * len(family) <= SURE_P:
        return 0
    return next(k for k in range(stats.MIN_BLOCKS, 100) if 2 / comb(2 * k, k) * len(family) <= SURE_P)
