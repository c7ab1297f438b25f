"""Two arms side by side, in one run or across two: every metric's two levels, the effect between them, and what may be said of it.

Refuses to pool: two runs stay two sides, and sides whose loads, targets or generators differ are not compared. Paired by block
inside a run; across runs there are no pairs (`lab.stats.unpaired`), and what moved between the runs is part of the effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import comb

from lab.analysis.comparison.meeting import (
    Meeting,
    between_notes,
    common_points,
    refuse_apart,
    refuse_families,
    run_notes,
)
from lab.analysis.comparison.rows import Compared as Compared
from lab.analysis.comparison.rows import rows_at
from lab.analysis.comparison.run_cells import RunCells, run_cells
from lab.analysis.decision import SURE_P, adjusted, decide
from lab.analysis.summary import decided
from lab.base.errors import UsageError, refuse_unknown
from lab.model.plan import Arm
from lab.model.run import RunRecord, VariantRecord
from lab.model.sweeps import Point
from lab.records.store import RunStore
from lab.stats import paired as stats
from lab.stats.units import format_blocks

TOO_FEW = "comparisons of so few blocks"


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


def compare_runs(
    base: RunStore,
    other: RunStore | None,
    base_arm: str | None = None,
    other_arm: str | None = None,
    asked: Collection[str] = (),
) -> Comparison:
    """Every arm pair at every point that both have.

    One run: each variant (or `base_arm` alone) against its baseline; with both arms `other_arm` against `base_arm`, paired by
    block. Two runs: arms of the same name (only the one that is named), or `other_arm` of `other` against `base_arm` of `base`.
    `asked`: outcomes of disturbances that have a row also where they were 0 in every block.
    UsageError for what cannot be compared at all (README, "Limits that change a decision": different targets are never pooled) and for a damaged run.
    """
    first, second = run_cells(base), run_cells(other) if other else None
    if (
        other
        and second
        and base.folder.resolve() != other.folder.resolve()
        and (first.record, first.samples) != (second.record, second.samples)
    ):
        return _across(first, second, base_arm or other_arm, other_arm or base_arm, asked)
    if second and (base_arm is None or other_arm is None or base_arm == other_arm):
        fault = "is the same run twice: nothing differs from itself"
        remedy = f"name two runs, one alone (`just compare {base.record.id}`), or two of its arms as RUN:ARM RUN:ARM"
        raise UsageError(base.record.id, fault, remedy)
    return _inside(first, base_arm, other_arm, asked)


def judged(rows: Sequence[Compared]) -> list[Compared]:
    """The rows decided: all of these that have a p-value are the family of Holm's method."""
    holm_p = adjusted([row.estimate.p_value if row.estimate and row.tested else None for row in rows])
    return [_decided(row, own) for row, own in zip(rows, holm_p, strict=True)]


def _decided(row: Compared, holm_p: float | None) -> Compared:
    """By the rule. `holm_p` None: no part of the family."""
    if row.estimate is None:
        return row
    if holm_p is None and row.estimate.has_interval:
        holm_p = 1.0
    decision = decide(row.estimate, row.size, holm_p, more_is_better=row.more_is_better, bound=row.bound)
    return row.decided(decision, holm_p)


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


# -- which sides meet ---------------------------------------------------------------------------------------


def _inside(run: RunCells, base_arm: str | None, other_arm: str | None, asked: Collection[str]) -> Comparison:
    """One run: arms share blocks. What a table of it has is decided there."""
    pairs = list(_pairs_inside(run, base_arm, other_arm))
    worth = run.record.worth
    meeting = Meeting(run, run, {point.name: point for point in _points(run)}, paired=True, worth=worth)
    as_in_table = all(other.role == "variant" and other.baseline == base.name for base, other in pairs)
    effects = decided(run.record, run.cells) if as_in_table else {}
    rows = [row for point in _points(run) for pair in pairs for row in rows_at(meeting, point, *pair, asked, effects)]
    if as_in_table:
        known = [one.primary for one in effects.values() if one.holm_p is not None]
        family = tuple(filter(None, (known.count(each) for each in (True, False))))
    else:
        family = (sum(row.tested for row in rows),)
        rows = judged(rows)
    return Comparison(run.record, run.record, True, tuple(rows), tuple(run_notes(run, "")), family)


def _pairs_inside(run: RunCells, base_arm: str | None, other_arm: str | None) -> Iterator[tuple[Arm, Arm]]:
    if base_arm is not None and other_arm is not None:
        yield _arm(run, base_arm), _arm(run, other_arm)
        return
    named = base_arm or other_arm
    chosen = [_arm(run, named)] if named else [arm for arm in run.record.arms if arm.role == "variant"]
    if not chosen:
        remedy = "`just table` shows it against itself; name a second run, or two of its arms as RUN:ARM RUN:ARM"
        raise UsageError(run.record.id, "has a baseline and no variant to compare with it", remedy)
    for arm in chosen:
        if arm.baseline is None:
            fault = f"'{arm.name}' is compared with nothing in its run"
            raise UsageError(run.record.id, fault, f"name the other side too: RUN:ARM RUN:{arm.name}")
        yield run.arms[arm.baseline], arm


def _across(
    first: RunCells, second: RunCells, base_arm: str | None, other_arm: str | None, asked: Collection[str]
) -> Comparison:
    """Two runs: their blocks have nothing in common."""
    refuse_apart(first, second)
    if base_arm is not None and other_arm is not None:
        pairs = [(_arm(first, base_arm), _arm(second, other_arm))]
    else:
        pairs = [(arm, second.arms[arm.name]) for arm in first.record.arms if _meets(arm, second)]
    if not pairs:
        sides = (", ".join(run.arms) for run in (first, second))
        fault = f"and {second.record.id} have no arm in common ({' / '.join(sides)})"
        raise UsageError(first.record.id, fault, "name two arms: RUN:ARM RUN:ARM")
    meeting = Meeting(first, second, common_points(first, second), paired=False)
    for pair in pairs:
        refuse_families(meeting, *pair)
    points = [point for point in _points(first) if point.name in meeting.points]
    rows = judged([row for point in points for pair in pairs for row in rows_at(meeting, point, *pair, asked)])
    too_few = (
        f"{sum(row.tested for row in rows)} {TOO_FEW}: not even sides without any overlap would be resolved;"
        f" compare one arm (RUN:ARM), or measure {format_blocks(needed)} or more in both runs"
        if (needed := blocks_wanted(rows))
        else ""
    )
    gone = [arm.name for arm in first.record.arms if _compares(arm) and not _meets(arm, second)]
    return Comparison(
        first.record,
        second.record,
        False,
        tuple(rows),
        notes=(*between_notes(meeting), *filter(None, [too_few])),
        family=(sum(row.tested for row in rows),),
        missing_arms=() if base_arm else tuple(gone),
        missing_points=tuple(point for point in _points(first) if any(_lacks(meeting, *pair, point) for pair in pairs)),
    )


def _lacks(meeting: Meeting, base: Arm, other: Arm, point: Point) -> bool:
    """Whether `base` was to be measured at a point and `other` was not."""
    there = meeting.points.get(point.name)
    planned = there is not None and meeting.other.at(other.name, there.name) is not None
    return meeting.base.at(base.name, point.name) is not None and not planned


def _meets(arm: Arm, other: RunCells) -> bool:
    """An arm that both runs have to compare."""
    theirs = other.arms.get(arm.name)
    return theirs is not None and _compares(arm) and _compares(theirs)


def _compares(arm: Arm) -> bool:
    """Not an A/A twin, and not what is measured only once per run."""
    return arm.role not in {"again", "reference"}


def _arm(run: RunCells, name: str) -> Arm:
    refuse_unknown(name, run.arms, run.record.id, f"has no arm '{name}'")
    return run.arms[name]


def _points(run: RunCells) -> list[Point]:
    return [point for point in run.record.points if not point.control]
