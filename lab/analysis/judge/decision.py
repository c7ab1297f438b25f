"""The one rule of decision. Two facts: how sure an effect's sign is, and how large it can be → same, better, worse, or nobody can tell.

Whoever says that something made a difference asks it: tables, comparisons, the gate, ablations, studies, the report. Refuses to
decide without an interval, and to let one run be told two things: its decisions are made once, over one family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log1p

from lab.stats import paired as stats

SURE_P = 0.05
"""A sign is claimed at an adjusted p of at most that: at most 5 of 100 runs of nothing claim one anywhere."""
UNBOUNDED = "not resolved, and no bound: the faster side was limited by the generator"


class Decision(StrEnum):
    """What is said of an effect; from `NO_INTERVAL` on nothing is decided. An effect says itself why it is not judged."""

    SAME = "same"
    """Whatever its sign, it is smaller than what is worth knowing."""
    BETTER = "better"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    NO_INTERVAL = "no interval"
    """Fewer than six blocks."""
    BIMODAL = "two clusters"
    """The blocks of an arm fall into two clusters, which no mean and no interval describes: the clusters are the outcome."""
    A_A = "a/a"
    """The baseline against itself: the guard."""
    NOT_JUDGED = "not judged"
    NOT_AVAILABLE = "not available"
    """There is no estimate."""

    @property
    def resolved(self) -> bool:
        """Whether it is a difference that is worth knowing."""
        return self in {Decision.BETTER, Decision.WORSE}

    @property
    def judged(self) -> bool:
        """Whether it is a decision at all."""
        return self.resolved or self in {Decision.SAME, Decision.CANNOT_TELL}


@dataclass(frozen=True, slots=True)
class Size:
    """What an effect's size is held to; each ≥ 0 and of the estimate's kind.

    `worth`: what is smaller is not worth knowing. `guard`: nothing smaller is claimed, as the baseline against itself showed as much
    (`guard_of`), or as the metric resolves no less. `same`: whether *same* may be said at all: not of what a pair shares.
    """

    worth: float
    guard: float = 0.0
    same: bool = True


def worth_of(share: float) -> float:
    """The log-ratio of a share that is worth knowing: 0.02 = 2 %."""
    return log1p(share)


def guard_of(again: stats.Estimate | None) -> float:
    """What the baseline against itself forbids to claim: the far end of its interval where that excludes 0, else nothing."""
    if again is None or again.interval is None or again.interval[0] <= 0 <= again.interval[1]:
        return 0.0
    return max(map(abs, again.interval))


def decide(
    estimate: stats.Estimate, size: Size, adjusted_p: float | None, *, more_is_better: bool, bound: bool = False
) -> Decision:
    """Same within `size.worth` where the interval lies inside it; else better or worse where the sign is sure (`adjusted_p`, as
    `adjusted` over its family, is at most SURE_P) and the effect beyond the guard; else nobody can tell.

    `bound`: one side's number is a bound, so that what is not resolved is bounded by nothing, and not judged (UNBOUNDED).
    """
    if estimate.interval is None:
        return Decision.NO_INTERVAL
    within = max(map(abs, estimate.interval)) <= size.worth
    if within and size.guard <= size.worth and size.same and not bound:
        return Decision.SAME
    if adjusted_p is not None and adjusted_p <= SURE_P and abs(estimate.effect) > size.guard:
        return Decision.BETTER if (estimate.effect > 0) == more_is_better else Decision.WORSE
    return Decision.NOT_JUDGED if bound else Decision.CANNOT_TELL


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value of a family, adjusted by Holm's method (1979) over those that are there."""
    holm = iter(stats.holm([p_value for p_value in p_values if p_value is not None]))
    return [None if p_value is None else next(holm) for p_value in p_values]
