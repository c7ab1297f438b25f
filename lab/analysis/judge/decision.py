"""The one rule of decision: an effect's p-value and its interval → equivalent, better, worse, or inconclusive.

Everything that reports whether something made a difference uses this rule: tables, comparisons, the gate, ablations, studies, the
report. Without an interval, the rule decides nothing. A run never gets two answers: its p-values are adjusted once, those of
primary metrics together, and all others together.
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
    """The decision about an effect (of a variant against its baseline), or the reason why there is no decision.

    The decisions are equivalent, better, worse and inconclusive. `NO_INTERVAL` and the members after it are reasons.
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
        """True if the decision says that there is a difference: better or worse."""
        return self in {Decision.BETTER, Decision.WORSE}

    @property
    def judged(self) -> bool:
        """True if this is one of the four decisions: better, worse, equivalent or inconclusive.

        It is False for the members that are reasons why there is no decision.
        """
        return self.resolved or self in {Decision.EQUIVALENT, Decision.INCONCLUSIVE}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds that an effect is compared with for a decision, on the effect's scale (log-ratio or difference).

    Attributes:
        margin: The equivalence margin, ≥ 0: smaller effects do not matter.
        noise_floor: The smallest effect that may be claimed as better or worse, ≥ 0. It is the A/A noise floor, which is the
            effect that the baseline shows against itself (`compute_noise_floor`). For some metrics it is the smallest
            difference that the metric resolves.
        may_be_equivalent: True if the decision *equivalent* is allowed. It is False for a pair (two arms measured at once) in a
            metric in which pairs may hide a part of a cost.
        floor_measured: True if the baseline was measured against itself in the way that the effect was, in pairs or solo, in at
            least six blocks. If it is False, the true noise floor is unknown and may be higher than `noise_floor`.

    """

    margin: float
    noise_floor: float = 0.0
    may_be_equivalent: bool = True
    floor_measured: bool = True


def to_log_margin(share: float) -> float:
    """Convert an equivalence margin from a share into a log-ratio: 0.02 (2 %) → log(1.02)."""
    return log1p(share)


def compute_noise_floor(again: stats.Estimate | None) -> float:
    """Return the A/A noise floor, which is the smallest effect that a run may claim.

    The baseline is compared with itself (A/A). The noise floor is the end of that effect's interval that is farther
    from 0. It is 0 if the interval includes 0.

    Args:
        again: The effect of the baseline against itself. If it is None or has no interval, the noise floor is 0.

    """
    if again is None or again.interval is None or not again.excludes_zero:
        return 0.0
    return max(map(abs, again.interval))


def decide(
    estimate: stats.Estimate, size: Thresholds, adjusted_p: float | None, *, more_is_better: bool, bound: bool = False
) -> Decision:
    """Decide whether an effect is equivalent, better, worse or inconclusive, by its interval and its p-value.

    1. It is equivalent if its interval lies within the equivalence margin (`size.margin`). That is not allowed if the noise
       floor (`size.noise_floor`) is larger than the margin, if `size.may_be_equivalent` is False, or if `bound` is True.
    2. Otherwise, it is better or worse if it is significant and larger than the noise floor.
    3. Otherwise, it is inconclusive.

    Args:
        estimate: The effect with its interval; without an interval nothing is decided (`NO_INTERVAL`).
        size: The thresholds that the effect is compared with.
        adjusted_p: The p-value, adjusted over all comparisons made together (`adjust_p_values`). The effect is
            significant if it is at most ALPHA, and not significant if it is None.
        more_is_better: True if a positive effect is an improvement.
        bound: True if the load generator limited one side, so that this side's number is only a bound. An effect that
            is neither better nor worse may then have any size, and the result is `NOT_JUDGED`.

    """
    if estimate.interval is None:
        return Decision.NO_INTERVAL
    within = max(map(abs, estimate.interval)) <= size.margin
    if within and size.noise_floor <= size.margin and size.may_be_equivalent and not bound:
        return Decision.EQUIVALENT
    if adjusted_p is not None and adjusted_p <= ALPHA and abs(estimate.effect) > size.noise_floor:
        return Decision.BETTER if (estimate.effect > 0) == more_is_better else Decision.WORSE
    return Decision.NOT_JUDGED if bound else Decision.INCONCLUSIVE


def adjust_p_values(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of comparisons that are made together (a family), by Holm's method (1979).

    Args:
        p_values: A p-value per comparison, or None for one that is not part of the family.

    Returns:
        The adjusted p-values in the same order, with None in the places of None.

    """
    holm = iter(stats.adjust_by_holm([p_value for p_value in p_values if p_value is not None]))
    return [None if p_value is None else next(holm) for p_value in p_values]
