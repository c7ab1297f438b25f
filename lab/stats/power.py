"""Power calculations: how many blocks to plan for an effect, and the smallest effect that a number of blocks detects.

A pilot is an earlier run that shows the noise. The standard deviation of a pilot is itself an estimate, and from six blocks its
error is about a third. Half of all plans would be too short if they used the estimate directly, so plans use an upper confidence
limit of it (`compute_planned_sd`). Every function needs such a standard deviation, and no plan exceeds `MAX_BLOCKS`.
"""

from __future__ import annotations

from math import expm1, log1p, sqrt

from scipy import special

from lab.stats import paired as stats

MAX_BLOCKS = 1000
"""The largest number of blocks that is planned."""
ASSURANCE = 0.8
"""The confidence of `compute_planned_sd`, as Browne proposed.

Tests simulate that the power over all pilots is then as promised, from six blocks on.
"""


def compute_planned_sd(sd: float, blocks: int, assurance: float = ASSURANCE) -> float:
    """Return the upper confidence limit of the true standard deviation, which plans use: sd · √((n-1)/χ²).

    χ² is the (1 - assurance) quantile with n-1 degrees of freedom. A run that is planned with this limit has the
    planned power with the probability `assurance` (Browne 1995, Statistics in Medicine 14:1933; Kieser & Wassmer 1996,
    Biometrical Journal 38:941). For normal noise the limit is 1.46 times the SD for six blocks, 1.29 times for ten and
    1.11 times for forty.

    Args:
        sd: The standard deviation of one block's (repetition's) log-ratio.
        blocks: The number of blocks from which `sd` was computed, two or more. For a pooled SD, its degrees of freedom
            + 1.
        assurance: The confidence of the limit, as a fraction.

    """
    return sd * sqrt((blocks - 1) / float(special.chdtri(blocks - 1, assurance)))


def compute_mde(sd: float, blocks: int, level: float = 0.05, power: float = 0.9) -> float | None:
    """Return the minimum detectable effect: the smallest effect that a run finds significant with probability `power`.

    The power of the paired t-test follows from the noncentral t distribution. The effect is δ·sd/√n for the δ at which
    P(T(n-1, δ) > t(1-level/2)) = power (Owen 1965, Biometrika 52:437). The contribution of the other tail is
    negligible.

    Args:
        sd: The standard deviation of one block's (repetition's) log-ratio.
        blocks: The number of blocks.
        level: The significance level. For several tests together, this is 0.05 divided by their number, the first step
            of Holm's method.
        power: The probability that the effect is significant with the right sign.

    Returns:
        The effect as a fraction (0.06 = 6 %); None for fewer than six blocks.

    """
    return None if blocks < stats.MIN_BLOCKS else expm1(_find_distance(sd, blocks, level, power))


def _find_distance(sd: float, blocks: int, level: float, power: float) -> float:
    """Return the minimum detectable effect in the unit of `sd`; the arguments are those of `compute_mde`."""
    critical_t = float(special.stdtrit(blocks - 1, 1 - level / 2))
    return float(special.nctdtrinc(blocks - 1, 1 - power, critical_t)) * sd / sqrt(blocks)


def compute_mde_from_pilot(
    sd: float, pilot_blocks: int, blocks: int, level: float = 0.05, power: float = 0.9
) -> float | None:
    """Return the minimum detectable effect that a planned run may promise, given the noise of a pilot (an earlier run).

    It is `compute_mde` for the upper confidence limit of the pilot's standard deviation (`compute_planned_sd`).
    `count_blocks_for_effect` is the inverse, which returns the number of blocks for an effect.

    Args:
        sd: The standard deviation of one block's (repetition's) log-ratio in the pilot.
        pilot_blocks: The number of blocks from which `sd` was computed, two or more.
        blocks: The number of blocks of the planned run.
        level: The significance level, as in `compute_mde`.
        power: The probability that the effect is significant with the right sign.

    Returns:
        The effect as a fraction (0.06 = 6 %); None for fewer than six blocks.

    """
    return compute_mde(compute_planned_sd(sd, pilot_blocks), blocks, level, power)


def count_blocks_for_effect(
    sd_log_ratio: float, pilot_blocks: int, effect: float, level: float = 0.05, power: float = 0.9
) -> int | None:
    """Return the fewest blocks (repetitions) that detect a relative effect with probability `power`; None beyond `MAX_BLOCKS`.

    The number also holds for the negative effect: −5 % is a little farther from 0 on the logarithmic scale than +5 %.

    Args:
        sd_log_ratio: The standard deviation of one block's log-ratio.
        pilot_blocks: The number of blocks from which the standard deviation was computed, two or more.
        effect: The effect as a fraction above 0: 0.05 is 5 % more.
        level: The significance level, as in `compute_mde`.
        power: The probability that the effect is significant with the right sign.

    Returns:
        The number of blocks, at least six.

    """
    return count_blocks_to_detect(sd_log_ratio, pilot_blocks, log1p(effect), level, power)


def count_blocks_to_detect(
    sd: float, pilot_blocks: int, distance: float, level: float = 0.05, power: float = 0.9
) -> int | None:
    """Return the fewest blocks (repetitions) that detect an effect at a distance from 0; None beyond `MAX_BLOCKS`.

    It is the calculation of `count_blocks_for_effect`, for a log-ratio or a difference.

    Args:
        sd: The standard deviation of one block's effect.
        pilot_blocks: The number of blocks from which `sd` was computed, two or more.
        distance: The distance of the effect from 0, above 0, in the unit of `sd`.
        level: The significance level, as in `compute_mde`.
        power: The probability that the effect is significant with the right sign.

    """
    planned, low, high = compute_planned_sd(sd, pilot_blocks), stats.MIN_BLOCKS, MAX_BLOCKS
    while low < high:  # the detectable effect shrinks as blocks are added
        half = (low + high) // 2
        low, high = (low, half) if _find_distance(planned, half, level, power) <= distance else (half + 1, high)
    return low if _find_distance(planned, low, level, power) <= distance else None


def count_blocks_to_exclude(
    half_width: float, blocks: int, distance: float, confidence: float = 0.95, power: float = 0.9
) -> int | None:
    """Return the fewest blocks (repetitions) whose interval excludes a bound that lies a given distance from the true value.

    An interval that excludes a bound is a t-test against that bound (`count_blocks_to_detect`). For a median, whose
    interval is wider, the number is approximate.

    Args:
        half_width: The half-width, 0 or more, of the interval from an earlier run, in the unit of `distance` (for
            ratios: logarithms).
        blocks: The number of blocks of that earlier run, two or more.
        distance: The distance between the bound and the true value, above 0.
        confidence: The coverage of the interval, as a fraction.
        power: The probability that the bound is excluded.

    Returns:
        The number of blocks; None beyond `MAX_BLOCKS`.

    """
    sd = half_width * sqrt(blocks) / stats.compute_t_quantile(blocks, confidence)
    return count_blocks_to_detect(sd, blocks, distance, 1 - confidence, power)
