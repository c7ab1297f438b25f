"""A pilot's noise and the effect that matters → how many blocks to plan, so that the promised power holds.

A pilot's standard deviation is itself measured, and from six blocks it errs by a third: taken at its word, half of all plans
would be too short. So plans use an upper confidence limit of it (`planned_sd`). Refuses to plan without a pilot, and more than
`MAX_BLOCKS`.
"""

from __future__ import annotations

from math import expm1, log1p, sqrt

from scipy import special

from lab.stats import paired as stats

MAX_BLOCKS = 1000
ASSURANCE = 0.8
"""Browne's proposal; the tests simulate that the power over all pilots is then what was promised, from six blocks on."""


def planned_sd(sd: float, blocks: int, assurance: float = ASSURANCE) -> float:
    """The upper confidence limit of the true standard deviation: sd · √((n-1)/χ²), χ² the 1-assurance quantile with n-1 degrees.

    `sd` of one block's log-ratio, measured in `blocks` ≥ 2 blocks (where it is pooled: its degrees of freedom + 1).
    With this the run has the planned power with the probability `assurance` (Browne 1995, Statistics in Medicine 14:1933;
    Kieser & Wassmer 1996, Biometrical Journal 38:941). For normal noise: six blocks → ·1.46, ten → ·1.29, forty → ·1.11.
    """
    return sd * sqrt((blocks - 1) / float(special.chdtri(blocks - 1, assurance)))


def resolvable(sd: float, blocks: int, level: float = 0.05, power: float = 0.9) -> float | None:
    """The smallest effect (fraction: 0.06 = 6 %) whose sign a run claims with probability `power`; None below six blocks.

    `sd` is the standard deviation of one block's log-ratio, `level` the p at which a sign is claimed: of a family that of Holm's first step,
    0.05 over its size. The paired t-test's power is the noncentral t distribution's: the effect is δ·sd/√n for the δ at which
    P(T(n-1, δ) > t(1-level/2)) = power (Owen 1965, Biometrika 52:437); the other tail adds nothing that one could see.
    """
    return None if blocks < stats.MIN_BLOCKS else expm1(_resolved(sd, blocks, level, power))


def _resolved(sd: float, blocks: int, level: float, power: float) -> float:
    """In the unit of `sd`."""
    least = float(special.stdtrit(blocks - 1, 1 - level / 2))
    return float(special.nctdtrinc(blocks - 1, 1 - power, least)) * sd / sqrt(blocks)


def resolvable_now(sd: float, pilot_blocks: int, blocks: int, level: float = 0.05, power: float = 0.9) -> float | None:
    """The effect (fraction: 0.06 = 6 %) that a run of `blocks` may promise to claim, from a pilot's noise; None below six blocks.

    `resolvable` at `planned_sd`: at most `effect` exactly where `blocks_for(…, effect)` is at most `blocks`.
    """
    return resolvable(planned_sd(sd, pilot_blocks), blocks, level, power)


def blocks_for(
    sd_log_ratio: float, pilot_blocks: int, effect: float, level: float = 0.05, power: float = 0.9
) -> int | None:
    """The fewest blocks that claim a true `effect` (fraction, > 0: 0.05 = 5 % more) with probability `power`; None beyond `MAX_BLOCKS`.

    `sd_log_ratio` is the standard deviation of one block's log-ratio, measured in `pilot_blocks` ≥ 2 blocks; `level` as `resolvable`. Never
    fewer than six. An effect of −5 % is a little farther from 0 than one of +5 %, so that the number holds for both.
    """
    return blocks_to_resolve(sd_log_ratio, pilot_blocks, log1p(effect), level, power)


def blocks_to_resolve(
    sd: float, pilot_blocks: int, distance: float, level: float = 0.05, power: float = 0.9
) -> int | None:
    """As `blocks_for`, of what lies `distance` > 0 from 0 in the unit of `sd`: a log-ratio, or a difference."""
    planned, low, high = planned_sd(sd, pilot_blocks), stats.MIN_BLOCKS, MAX_BLOCKS
    while low < high:  # more blocks always resolve less
        half = (low + high) // 2
        low, high = (low, half) if _resolved(planned, half, level, power) <= distance else (half + 1, high)
    return low if _resolved(planned, low, level, power) <= distance else None


def blocks_to_leave_out(
    half_width: float, blocks: int, distance: float, confidence: float = 0.95, power: float = 0.9
) -> int | None:
    """The fewest blocks whose interval leaves out, with probability `power`, a bound that lies `distance` > 0 from the truth; None beyond
    `MAX_BLOCKS`.

    `half_width` ≥ 0 is that of the interval which `blocks` ≥ 2 gave, in the unit of `distance` (of ratios: logarithms). An interval that
    leaves a bound out is a t-test of it (`blocks_to_resolve`); of a median, whose interval is wider, this is about right.
    """
    sd = half_width * sqrt(blocks) / stats.t_quantile(blocks, confidence)
    return blocks_to_resolve(sd, blocks, distance, 1 - confidence, power)
