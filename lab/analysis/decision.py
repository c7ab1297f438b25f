"""The one rule of decision: an estimate, the A/A floor and how sure it is → better, worse, or nobody can tell.

Whoever says that something made a difference asks it: tables, comparisons, the gate, ablations, studies, the report. Refuses to
decide without an interval or a floor, and to let one run be told two things: its decisions are made once, over one family.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lab.stats import paired as stats

MARK_P = 0.05
"""What is not the primary metric is decided at an adjusted p of at most that."""
UNBOUNDED = "not resolved, and no bound: the faster side was limited by the generator"


class Decision(StrEnum):
    """What is said of an effect; from `NO_INTERVAL` on nothing is decided. An effect says itself why it is not judged."""

    BETTER = "better"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    NO_INTERVAL = "no interval"
    """Fewer than six blocks."""
    A_A = "a/a"
    """The baseline against itself: what the floor comes from."""
    NOT_JUDGED = "not judged"
    NOT_AVAILABLE = "not available"
    """There is no estimate."""

    @property
    def resolved(self) -> bool:
        """Whether it is a difference."""
        return self in {Decision.BETTER, Decision.WORSE}

    @property
    def judged(self) -> bool:
        """Whether it is a decision at all."""
        return self.resolved or self is Decision.CANNOT_TELL


def decide(
    estimate: stats.Estimate,
    floor: float | None,
    *,
    more_is_better: bool,
    primary: bool = False,
    adjusted_p: float | None = None,
    bound: bool = False,
) -> Decision:
    """A primary metric is resolved where its interval lies wholly beyond the floor (≥ 0, of the estimate's kind). Any other where
    `adjusted_p` (as `adjusted` over its family) is at most MARK_P and the effect larger than the floor. Nothing is without a floor.

    `bound`: one side's number is a bound, so that what is not resolved is bounded by nothing, and not judged (UNBOUNDED).
    """
    if estimate.interval is None:
        return Decision.NO_INTERVAL
    sure = adjusted_p is not None and adjusted_p <= MARK_P
    larger = floor is not None and abs(estimate.effect) > floor
    if stats.beyond(estimate, floor) if primary else sure and larger:
        return Decision.BETTER if (estimate.effect > 0) == more_is_better else Decision.WORSE
    return Decision.NOT_JUDGED if bound else Decision.CANNOT_TELL


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value of a family, adjusted by Holm's method (1979) over those that are there."""
    holm = iter(stats.holm([p_value for p_value in p_values if p_value is not None]))
    return [None if p_value is None else next(holm) for p_value in p_values]
