"""The one rule of decision: an effect's p-value and its interval → equivalent, better, worse, or inconclusive.

Everything that reports whether something made a difference uses this rule: tables, comparisons, the gate, ablations, studies, the report. The
rule does not decide without an interval. A run never gets two answers: its p-values are adjusted once, over all its comparisons.
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
    """The decision about an effect: equivalent, better, worse or inconclusive, or why there is no decision.

    For `NO_INTERVAL` and the members after it there is no decision.
    """

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
        """True if a decision is that there is a difference: better or worse."""
        return self in {Decision.BETTER, Decision.WORSE}

    @property
    def judged(self) -> bool:
        """True if an effect has a decision: better, worse, equivalent or inconclusive.

        False for the members that are reasons why there is no decision.
        """
        return self.resolved or self in {Decision.EQUIVALENT, Decision.INCONCLUSIVE}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds that an effect is compared with for a decision, on its own scale (log-ratio or difference).

    Attributes:
        worth: The equivalence margin, ≥ 0: smaller effects do not matter.
        guard: The least effect that may be claimed as better or worse, ≥ 0: the A/A noise floor (the baseline against itself shows as
            much, `compute_noise_floor`), or the smallest difference that the metric resolves.
        same: Whether *equivalent* may be decided. It may not for a pair that is not known to show all of a cost.

    """

    worth: float
    guard: float = 0.0
    same: bool = True


def to_log_margin(share: float) -> float:
    """Return the equivalence margin as a log-ratio, for a margin given as a share (0.02 = 2 %)."""
    return log1p(share)


def compute_noise_floor(again: stats.Estimate | None) -> float:
    """Return the A/A noise floor: the smallest effect that a run may claim.

    The baseline compared with itself shows effects of that size. It is the end that is farther from 0 of the interval of this comparison. It is 0 if the interval includes 0.

    Args:
        again: The effect of the baseline against itself; None, or one without an interval: the floor is 0.

    """
    if again is None or again.interval is None or again.interval[0] <= 0 <= again.interval[1]:
        return 0.0
    return max(map(abs, again.interval))


def decide(
    estimate: stats.Estimate, size: Thresholds, adjusted_p: float | None, *, more_is_better: bool, bound: bool = False
) -> Decision:
    """Decide whether an effect is equivalent, better, worse or inconclusive, by its interval and its p-value.

    An effect is equivalent if its interval lies within the equivalence margin (`size.worth`), unless the noise floor is larger than the
    margin, or `size.same` or `bound` rules that out. If it is not equivalent, it is better or worse if its sign is significant and the
    effect is beyond the noise floor (`size.guard`). If it is neither, it is inconclusive.

    Args:
        estimate: The effect with its interval; without an interval nothing is decided.
        size: The thresholds that the effect is compared with.
        adjusted_p: The effect's p-value, adjusted over all comparisons that were made together (`adjust_p_values`). The sign is
            significant if it is at most ALPHA; None: it is not significant.
        more_is_better: Whether a positive effect is an improvement.
        bound: Whether the number of one side is only a bound, as the generator limited it. Then an effect that is neither better nor
            worse may be of any size, so that it is not judged (UNBOUNDED).

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
    """Adjust the p-values of comparisons that are made together (a family), by Holm's method (1979).

    Args:
        p_values: A p-value per comparison; None: the comparison is not part of the family.

    Returns:
        The adjusted p-values in the same order, None where None was given.

    """
    holm = iter(stats.adjust_by_holm([p_value for p_value in p_values if p_value is not None]))
    return [None if p_value is None else next(holm) for p_value in p_values]
