"""A comparison's rows, decided, and what the two runs that they are of have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from lab.analysis.judge.compared import Compared
from lab.analysis.judge.decision import SURE_P, adjusted, decide
from lab.model.run import RunRecord, VariantRecord
from lab.model.sweeps import Point
from lab.stats import paired as stats

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
