"""Two arrays of one number per block, of different runs → the effect between them: nothing pairs their blocks.

Distribution-free throughout: Hodges-Lehmann's shift, the interval that inverts the Mann-Whitney test, and that test's
p-value with ties counted as they are (percentiles come from buckets, so that equal values are common). Refuses what `lab.stats`
refuses, and to give an interval below six blocks on either side. Two runs differ by more than their arms: what drifted
between them is part of the effect, and no formula takes it out again. Arms of one run belong into `stats.paired`.
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
    from_both_ends,
    has_outliers,
    numbers,
)

EXACT_PAIRS = 2500
"""Up to so many pairs (50 blocks on both sides) the null distribution is counted, beyond it is taken as normal."""


def unpaired(other: npt.ArrayLike, base: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """The effect of `other`, shape (m,), against `base`, shape (n,), as a log-ratio; any m, n ≥ 1.

    ValueError for an empty side and for values that are zero, negative or not finite.

    `effect` is the median of all m·n differences of logarithms (Hodges & Lehmann 1963), `low` and `high` its distribution-free
    interval (see `shift`): for two arms whose noise has the same shape, whatever shape that is. `hodges_lehmann`, `hl_low`
    and `hl_high` repeat them. `n` is the smaller of m and n; below six the bounds are None. `p_value` is that of the Wilcoxon rank
    sum (see `rank_sum_p`), `sd` √(s_other² + s_base²): the standard deviation of one block's log-ratio if the blocks
    had nothing in common, so never less than what pairing them in one run leaves. Both are None for a side of one block.
    """
    return _estimate(np.log(numbers(other, positive=True)), np.log(numbers(base, positive=True)), confidence)


def unpaired_difference(other: npt.ArrayLike, base: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """As `unpaired`, of the differences other − base in their own unit: for counts and times that may be 0.

    ValueError for an empty side and for values that are not finite. Where most values are the same the interval covers more
    often than it says; where all differences are equal it has no width, and the notes say so.
    """
    return _estimate(numbers(other), numbers(base), confidence)


def shift(other: Floats, base: Floats, confidence: float = 0.95) -> tuple[float, float | None, float | None]:
    """The median of all differences other_i − base_j and its interval; shapes (m,) and (n,), m, n ≥ 1.

    The interval is (D_(k), D_(M+1-k)) of the M = m·n sorted differences, with the largest k such that P(U ≤ k-1) ≤ (1-confidence)/2
    for Mann & Whitney's U of two samples without a difference (Moses; Hollander & Wolfe, Nonparametric Statistical Methods,
    §4.2–4.3). None where there is no such k (three on both sides at 95 %).
    """
    differences = np.sort(np.subtract.outer(other, base), axis=None)
    return from_both_ends(differences, _rank(int(other.size), int(base.size), confidence))


def rank_sum_p(other: Floats, base: Floats) -> float:
    """Two-sided p-value of the Wilcoxon rank sum W of `other`: P(|W − E W| ≥ |w − E W|) if the labels mean nothing.

    Ties share their midrank. Up to `EXACT_PAIRS` W's distribution over all ways to choose m of the m + n midranks is counted, so
    that it is exact with ties too (Hollander & Wolfe, §4.1, "exact conditional distribution"; Streitberg & Röhmel 1986). Beyond,
    W is normal with variance m·n/12 · (N + 1 − Σ(t³ − t)/(N(N − 1))), t the sizes of the ties, and a continuity correction of ½.
    """
    m, n = int(other.size), int(base.size)
    _, which, ties = np.unique(np.concatenate([other, base]), return_inverse=True, return_counts=True)
    doubled = (2 * np.cumsum(ties) - ties + 1)[which]
    away = abs(int(doubled[:m].sum()) - m * (m + n + 1))  # twice the distance: doubled ranks have mean m + n + 1
    if m * n <= EXACT_PAIRS:
        few, many = sorted((m, n))  # the two sides' sums add up to a constant: they are equally far from their means
        counts = _sums(tuple(sorted(doubled.tolist())), few)
        far = np.abs(np.arange(counts.size) - few * (few + many + 1)) >= away
        return float(min(1.0, counts[far].sum() / counts.sum()))
    total = m + n
    variance = m * n / 12 * (total + 1 - float(np.sum(ties.astype(np.float64) ** 3 - ties)) / (total * (total - 1)))
    if variance <= 0:  # one value everywhere
        return 1.0
    return float(min(1.0, 2 * special.ndtr(-max(0.0, away / 2 - 0.5) / sqrt(variance))))


def _estimate(other: Floats, base: Floats, confidence: float) -> Estimate:
    n = min(int(other.size), int(base.size))
    middle, *ends = shift(other, base, confidence)
    low, high = ends if n >= MIN_BLOCKS else (None, None)
    equal = n >= 2 and max(float(np.ptp(other)), float(np.ptp(base))) < 1e-12
    outliers = has_outliers(other) or has_outliers(base)
    said = {NEED_BLOCKS: n < MIN_BLOCKS, ALL_EQUAL: equal, OUTLIERS: outliers}
    sd = hypot(float(other.std(ddof=1)), float(base.std(ddof=1))) if n >= 2 else None
    p_value = rank_sum_p(other, base) if n >= 2 else None
    notes = tuple(note for note, holds in said.items() if holds)
    return Estimate(middle, low, high, n, confidence, sd, p_value, middle, low, high, notes)


@lru_cache(maxsize=256)
def _rank(m: int, n: int, confidence: float) -> int:
    """k of `shift`, 0 = none; beyond `EXACT_PAIRS` from the normal U with mean m·n/2 and variance m·n(m + n + 1)/12."""
    tail = (1 - confidence) / 2
    if m * n > EXACT_PAIRS:
        sigma = sqrt(m * n * (m + n + 1) / 12)
        return max(0, floor(m * n / 2 + 0.5 + float(special.ndtri(tail)) * sigma))
    few = min(m, n)
    counts = _sums(tuple(range(2, 2 * (m + n) + 1, 2)), few)[few * (few + 1) :: 2]  # from U = 0 on
    return int(np.count_nonzero(np.cumsum(counts) <= tail * comb(m + n, few) * (1 + 1e-12)))


@lru_cache(maxsize=64)
def _sums(ranks: tuple[int, ...], size: int) -> Floats:
    """In how many ways `size` of the `ranks` add up to 0, 1, 2, …; shape (largest sum + 1,). One rank after the other."""
    ways = np.zeros((size + 1, sum(ranks[-size:]) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    counts = ways[size]
    counts.flags.writeable = False
    return counts
