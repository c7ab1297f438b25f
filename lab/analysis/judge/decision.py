"""The one rule of decision: an effect's p-value and its interval → equivalent, better, worse, or inconclusive.

Everything that reports whether something made a difference uses this rule: tables, comparisons, the gate, ablations, studies, the report. It
does not decide without an interval. A run never gets two answers: its decisions are made once, over one family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log1p

from lab.stats import paired as stats

ALPHA = 0.05
"""The significance level (alpha): a sign is claimed if its adjusted p-value is at most this.

Then at most 5 of 100 runs without any true effect claim one anywhere.
"""
UNBOUNDED = "not resolved, and no bound: the faster side was limited by the generator"


class Decision(StrEnum):
    """The decision about an effect; from `NO_INTERVAL` on nothing is decided, and the effect has the reason."""

    EQUIVALENT = "equivalent"
    """Equivalent: the effect is smaller than the equivalence margin, whatever its sign."""
    BETTER = "better"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    """Inconclusive: neither equivalent, nor better or worse."""
    NO_INTERVAL = "no interval"
    """Undecided, as there are fewer than six blocks."""
    BIMODAL = "two clusters"
    """Undecided, as the blocks of an arm fall into two clusters.

    No mean and no interval describes them: the clusters are the outcome.
    """
    A_A = "a/a"
    """Undecided, as it is the baseline against itself: the A/A noise floor."""
    NOT_JUDGED = "not judged"
    NOT_AVAILABLE = "not available"
    """Undecided, as there is no estimate."""

    @property
    def resolved(self) -> bool:
        """True if it is a difference: better or worse."""
        return self in {Decision.BETTER, Decision.WORSE}

    @property
    def judged(self) -> bool:
        """True if it is a decision at all: better, worse, equivalent or inconclusive."""
        return self.resolved or self in {Decision.EQUIVALENT, Decision.INCONCLUSIVE}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds that an effect is compared with, on the scale of the estimate (log-ratio or difference).

    Attributes:
        worth: The equivalence margin, ≥ 0: smaller effects do not matter.
        guard: The A/A noise floor, ≥ 0: nothing smaller is claimed, as the baseline against itself showed as much
            (`compute_noise_floor`), or as the metric resolves no less.
        same: Whether *equivalent* may be decided; not in a pair that may not show all of a cost.

    """

    worth: float
    guard: float = 0.0
    same: bool = True


def to_log_margin(share: float) -> float:
    """Return the equivalence margin as a log-ratio, given as a share: 0.02 = 2 %."""
    return log1p(share)


def compute_noise_floor(again: stats.Estimate | None) -> float:
    """Return the A/A noise floor: the far end of the interval of the baseline against itself.

    It is 0 where that interval includes 0, or where there is none.
    """
    if again is None or again.interval is None or again.interval[0] <= 0 <= again.interval[1]:
        return 0.0
    return max(map(abs, again.interval))


def decide(
    estimate: stats.Estimate, size: Thresholds, adjusted_p: float | None, *, more_is_better: bool, bound: bool = False
) -> Decision:
    """Decide about an effect.

    It is equivalent if its interval lies within `size.worth`. Else it is better or worse if its sign is significant and the effect is beyond
    the noise floor. Else it is inconclusive.

    Args:
        estimate: The effect with its interval.
        size: The thresholds that it is compared with.
        adjusted_p: The p-value, adjusted over its family (`adjust_p_values`); its sign is significant if this is at most SURE_P.
        more_is_better: Whether a positive effect is an improvement.
        bound: Whether one side's number is only a bound. Then an effect that is not resolved has no bound, and is not judged
            (UNBOUNDED).

    """
    if estimate.interval is None:
        return Decision.NO_INTERVAL
    within = max(map(abs, estimate.interval)) <= size.worth
    if within and size.guard <= size.worth and size.same and not bound:
        return Decision.EQUIVALENT
    if adjusted_p is not None and adjusted_p <= ALPHA and abs(estimate.effect) > size.guard:
        return Decision.BETTER if (estimate.effect > 0) == more_is_better else Decision.WORSE
    return Decision.NOT_JUDGED if bound else Decision.INCONCLUSIVE


def adjust_p_values(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p-values of a family, adjusted by Holm's method (1979); None stays None, outside the family."""
    holm = iter(stats.adjust_by_holm([p_value for p_value in p_values if p_value is not None]))
    return [None if p_value is None else next(holm) for p_value in p_values]
