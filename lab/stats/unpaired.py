"""Effects between two runs, from one number per block (repetition) of each run, whose blocks do not belong together.

All methods are distribution-free: Hodges-Lehmann's shift, the interval that inverts the Mann-Whitney test, and that test's
p-value with exact treatment of ties (percentiles come from buckets, so equal values are common). The module refuses the same values as
`lab.stats.paired`, and gives no interval below six blocks on either side. Two runs differ by more than their arms: what drifted
between them is part of the effect, and no formula removes it. For arms of one run use `stats.paired`.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb, floor, hypot, sqrt

import numpy as np
import numpy.typing as npt
from scipy import special

from lab.stats.paired import (
    ALL_EQUAL,
    MIN_BLOCKS,
    NEED_BLOCKS,
    OUTLIERS,
    Estimate,
    Floats,
    check_numbers,
    has_outliers,
    select_median_and_ends,
)

EXACT_PAIRS = 2500
"""The number of pairs (50 blocks on both sides) up to which the null distribution is counted exactly.

Beyond it a normal distribution approximates it.
"""


def estimate_unpaired_ratio(variant: npt.ArrayLike, baseline: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """Estimate the effect of `variant` against `baseline` as a log-ratio, without pairing their blocks.

    It is for two runs, whose blocks (repetitions) do not belong together.

    Args:
        variant: One positive number per block of a run, shape (m,), m ≥ 1.
        baseline: The numbers of the other run, shape (n,), n ≥ 1.
        confidence: The coverage of the interval, as a fraction.

    Returns:
        An `Estimate`. `effect` is the median of all m·n differences of logarithms (Hodges & Lehmann 1963). `low` and
        `high` are its distribution-free interval (see `estimate_shift`), and None if m or n is below six.
        `hodges_lehmann`, `hl_low` and `hl_high` repeat these three. `n` is the smaller of m and n. `p_value` is that of
        the Wilcoxon rank sum (see `compute_rank_sum_p`). `sd` is √(s_variant² + s_baseline²), the standard deviation of
        one block's log-ratio if blocks have nothing in common. `p_value` and `sd` are None if a side has one block.

    Raises:
        ValueError: A side is empty, or a value is zero, negative or not finite.

    """
    return _estimate(
        np.log(check_numbers(variant, positive=True)), np.log(check_numbers(baseline, positive=True)), confidence
    )


def estimate_unpaired_difference(variant: npt.ArrayLike, baseline: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """Estimate the difference variant − baseline in the values' own unit, without pairing their blocks (repetitions).

    The method, arguments and fields are those of `estimate_unpaired_ratio`, with differences instead of log-ratios. It
    is for counts and times that may be 0. If most values are equal, the interval covers more often than it promises. If
    all differences are equal, the interval has no width, and a note reports that.

    Raises:
        ValueError: A side is empty, or a value is not finite.

    """
    return _estimate(check_numbers(variant), check_numbers(baseline), confidence)


def estimate_shift(
    variant: Floats, baseline: Floats, confidence: float = 0.95
) -> tuple[float, float | None, float | None]:
    """Return the median of all differences variant_i − baseline_j and the two ends of its interval.

    The interval is (D_(k), D_(M+1-k)) of the M = m·n sorted differences. Here k is the largest with P(U ≤ k-1) ≤
    (1-confidence)/2 for Mann & Whitney's U of two samples without a difference (Moses; Hollander & Wolfe, Nonparametric
    Statistical Methods, §4.2–4.3).

    Args:
        variant: One number per block (repetition) of a run, shape (m,), m ≥ 1.
        baseline: The numbers of the other run, shape (n,), n ≥ 1.
        confidence: The coverage of the interval, as a fraction.

    Returns:
        The median and the two ends. The ends are None if there is no such k (three blocks on both sides at 95 %).

    """
    differences = np.sort(np.subtract.outer(variant, baseline), axis=None)
    return select_median_and_ends(differences, _rank(int(variant.size), int(baseline.size), confidence))


def compute_rank_sum_p(variant: Floats, baseline: Floats) -> float:
    """Return the two-sided p-value of the Wilcoxon rank-sum test that two runs have the same distribution.

    For the rank sum W of `variant`, it is P(|W − E W| ≥ |w − E W|) if the labels mean nothing. Tied values have their
    midrank. Up to `EXACT_PAIRS` pairs, W's distribution is counted over all ways to choose m of the m + n midranks. It
    is therefore exact with ties, too (Hollander & Wolfe, §4.1, "exact conditional distribution"; Streitberg & Röhmel
    1986).

    Beyond that, W is taken as normal, with a continuity correction of ½. Its variance is m·n/12 · (N + 1 − Σ(t³ −
    t)/(N(N − 1))), where t are the sizes of the ties and N = m + n.

    Args:
        variant: One number per block (repetition) of a run, shape (m,).
        baseline: The numbers of the other run, shape (n,).

    """
    m, n = int(variant.size), int(baseline.size)
    _, indices, ties = np.unique(np.concatenate([variant, baseline]), return_inverse=True, return_counts=True)
    doubled = (2 * np.cumsum(ties) - ties + 1)[indices]
    distance = abs(int(doubled[:m].sum()) - m * (m + n + 1))  # twice the distance: doubled ranks have mean m + n + 1
    if m * n <= EXACT_PAIRS:
        few, many = sorted((m, n))  # both sides' sums add up to a constant, so they are equally far from their means
        counts = _count_sums(tuple(sorted(doubled.tolist())), few)
        extreme = np.abs(np.arange(counts.size) - few * (few + many + 1)) >= distance
        return float(min(1.0, counts[extreme].sum() / counts.sum()))
    total = m + n
    variance = m * n / 12 * (total + 1 - float(np.sum(ties.astype(np.float64) ** 3 - ties)) / (total * (total - 1)))
    if variance <= 0:  # all values are the same
        return 1.0
    return float(min(1.0, 2 * special.ndtr(-max(0.0, distance / 2 - 0.5) / sqrt(variance))))


def _estimate(variant: Floats, baseline: Floats, confidence: float) -> Estimate:
    n = min(int(variant.size), int(baseline.size))
    median, *ends = estimate_shift(variant, baseline, confidence)
    low, high = ends if n >= MIN_BLOCKS else (None, None)
    equal = n >= 2 and max(float(np.ptp(variant)), float(np.ptp(baseline))) < 1e-12
    outliers = has_outliers(variant) or has_outliers(baseline)
    checks = {NEED_BLOCKS: n < MIN_BLOCKS, ALL_EQUAL: equal, OUTLIERS: outliers}
    sd = hypot(float(variant.std(ddof=1)), float(baseline.std(ddof=1))) if n >= 2 else None
    p_value = compute_rank_sum_p(variant, baseline) if n >= 2 else None
    notes = tuple(note for note, holds in checks.items() if holds)
    return Estimate(median, low, high, n, confidence, sd, p_value, median, low, high, notes)


@lru_cache(maxsize=256)
def _rank(m: int, n: int, confidence: float) -> int:
    """Return the rank k that gives the confidence interval of an unpaired shift (`estimate_shift`); 0 if there is none.

    Each block of one run is subtracted from each block of the other, which gives m·n differences. The interval reaches
    from the k-th smallest difference to the k-th largest. Four blocks on both sides at 95 % give k = 1.

    The distribution of Mann & Whitney's U determines k. It is exact if m·n is at most `EXACT_PAIRS`. Above, it is the
    normal approximation with mean m·n/2 and variance m·n·(m + n + 1)/12.

    Args:
        m: The number of blocks (repetitions) of one run.
        n: The number of blocks of the other run.
        confidence: The coverage of the interval, as a fraction.

    """
    tail = (1 - confidence) / 2
    if m * n > EXACT_PAIRS:
        sigma = sqrt(m * n * (m + n + 1) / 12)
        return max(0, floor(m * n / 2 + 0.5 + float(special.ndtri(tail)) * sigma))
    few = min(m, n)
    counts = _count_sums(tuple(range(2, 2 * (m + n) + 1, 2)), few)[few * (few + 1) :: 2]  # from U = 0 on
    return int(np.count_nonzero(np.cumsum(counts) <= tail * comb(m + n, few) * (1 + 1e-12)))


@lru_cache(maxsize=64)
def _count_sums(ranks: tuple[int, ...], size: int) -> Floats:
    """Count the ways in which a fixed number of ranks add up to each possible sum.

    Args:
        ranks: The ranks in ascending order.
        size: The number of ranks in a sum.

    Returns:
        The number of ways for the sums 0, 1, 2, …; shape (largest sum + 1,).

    """
    ways = np.zeros((size + 1, sum(ranks[-size:]) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    counts = ways[size]
    counts.flags.writeable = False
    return counts
