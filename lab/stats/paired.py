"""Estimates from one number per block (repetition): paired effects, absolute values, and p-values adjusted for many tests.

The module knows no metrics, tools or variants, and averages no percentiles. It refuses impossible values: those that
are not finite and, for a ratio, those that are not positive. Effects on rates and latencies are differences of natural
logarithms ("log-ratios"): 0.1 is about +10 %, and swapping the two sides only changes the sign. Values that may be 0,
such as failed requests, have differences in their own unit. An interval is shown only from six blocks on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt

import numpy as np
import numpy.typing as npt
from scipy import special

from lab.stats.histogram import Floats

MIN_BLOCKS = 6
"""The fewest blocks behind an interval (README, "How to read a table", 2).

Six is also the fewest with a distribution-free 95 % interval: 2/2^6 < 0.05.
"""

NEED_BLOCKS = f"need >= {MIN_BLOCKS} blocks for an interval"
ALL_EQUAL = "all differences are equal"
OUTLIERS = "outliers among the blocks"
AUTOCORRELATED = "neighbouring blocks are alike"
"""The note for a lag-1 autocorrelation above chance.

The interval is then too narrow: at a correlation of 0.3 by about a quarter.
"""
AUTOCORRELATION_ALPHA = 0.01
"""The significance level of the lag-1 autocorrelation."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of an effect: a log-ratio, or a difference in the unit of the values (from `estimate_difference`).

    It is computed from one number per block (repetition). For fewer than six blocks, `low` and `high` are for planning
    only. They must not be shown or used for a decision unless `has_interval` is True.

    Attributes:
        effect: The mean over the blocks.
        low: The lower end of the t-interval; None for one block.
        high: The upper end of the t-interval; None for one block.
        n: The number of blocks.
        confidence: The coverage of the intervals, as a fraction.
        sd: The standard deviation of the blocks; None for one block.
        p_value: The two-sided p-value of an effect of 0; None for one block.
        hodges_lehmann: The Hodges-Lehmann estimate of the effect, which outliers hardly move.
        hl_low: The lower end of the interval of `hodges_lehmann`; None for fewer than six blocks.
        hl_high: The upper end of that interval; None for fewer than six blocks.
        notes: Sentences about the estimate, such as `OUTLIERS`.

    """

    effect: float
    low: float | None
    high: float | None
    n: int
    confidence: float
    sd: float | None
    p_value: float | None
    hodges_lehmann: float
    hl_low: float | None
    hl_high: float | None
    notes: tuple[str, ...]

    @property
    def has_interval(self) -> bool:
        """True if this effect comes from at least six blocks (repetitions), which are enough to show an interval."""
        return self.interval is not None

    @property
    def ratio(self) -> float:
        """The effect as a ratio of variant to baseline: 0.9 for 10 % less. It is meaningless for a difference."""
        return exp(self.effect)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The confidence interval (low, high) of this effect, in the effect's unit; None for fewer than six blocks."""
        if self.n < MIN_BLOCKS or self.low is None or self.high is None:
            return None
        return self.low, self.high

    @property
    def excludes_zero(self) -> bool:
        """True if the confidence interval of this effect does not contain 0; False for fewer than six blocks."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def ratio_interval(self) -> tuple[float, float] | None:
        """The confidence interval (low, high) of this effect as ratios of variant to baseline; None for fewer than six blocks."""
        return (exp(self.interval[0]), exp(self.interval[1])) if self.interval else None


def estimate_ratio(variant: npt.ArrayLike, baseline: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """Estimate the effect of `variant` against `baseline` as a log-ratio, with the paired t-interval.

    The effect is the mean of the blocks' log-ratios d, with the interval mean ± t(n-1) · s/√n and the two-sided p-value
    of the paired t-test. Pairing removes what the two measurements of a block (repetition) have in common (Student
    1908; Box, Hunter & Hunter, Statistics for Experimenters, §3.2). The interval is exact for log-normal noise; tests
    simulate its coverage.

    Args:
        variant: One positive number per block, shape (n,).
        baseline: The numbers of the baseline, in the same order of blocks.
        confidence: The coverage of the interval, as a fraction.

    Raises:
        ValueError: n is 0, the shapes differ, or a value is zero, negative or not finite.

    """
    first, second = _check_sides(variant, baseline, positive=True)
    return _estimate(np.log(first) - np.log(second), confidence)


def estimate_difference(variant: npt.ArrayLike, baseline: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """Estimate the mean difference variant − baseline in the values' own unit, for counts and times that may be 0.

    The method is that of `estimate_ratio`, with differences instead of log-ratios. If every block (repetition) has the
    same difference, the interval has no width, and a note reports that.

    If one side has random waits and the other has none, the differences are skewed, and a 95 % interval contains the
    true mean less often. With exponential waits it does so 89 times in 100 for six to ten blocks, and 93 times from 30
    on. The means that it misses are nearly always larger. The mean is used nevertheless, because the median of an event
    in fewer than half of the blocks is always 0. Two equal arms have no skew, so it causes no false decisions.

    Args:
        variant: One finite number per block, shape (n,).
        baseline: The numbers of the baseline, in the same order of blocks.
        confidence: The coverage of the interval, as a fraction.

    Raises:
        ValueError: n is 0, the shapes differ, or a value is not finite.

    """
    first, second = _check_sides(variant, baseline)
    return _estimate(first - second, confidence)


def _estimate(differences: Floats, confidence: float) -> Estimate:
    n = int(differences.size)
    effect = float(differences.mean())
    notes = [NEED_BLOCKS] if n < MIN_BLOCKS else []
    low = high = sd = p_value = None
    if n >= 2:
        sd = float(differences.std(ddof=1))
        if float(np.ptp(differences)) < 1e-12:  # all equal except for rounding: the interval has no width
            effect, sd = float(np.median(differences)), 0.0
            p_value = 1.0 if abs(effect) < 1e-12 else 0.0
            notes.append(ALL_EQUAL)
        else:
            p_value = float(2 * special.stdtr(n - 1, -abs(effect) / (sd / sqrt(n))))
        half = compute_t_quantile(n, confidence) * sd / sqrt(n)
        low, high = effect - half, effect + half
    checks = ((OUTLIERS, has_outliers(differences)), (AUTOCORRELATED, is_autocorrelated(differences)))
    notes += [note for note, holds in checks if holds]
    robust = estimate_hodges_lehmann(differences, confidence)
    return Estimate(effect, low, high, n, confidence, sd, p_value, *robust, tuple(notes))


@dataclass(frozen=True, slots=True)
class Level:
    """The average of one variant's values in their own unit, with its interval.

    Attributes:
        value: The geometric mean (from `estimate_geometric_mean`) or the median (from `estimate_median`) of the blocks
            (repetitions).
        low: The lower end of the interval; None for fewer than six blocks.
        high: The upper end of the interval; None for fewer than six blocks.
        n: The number of blocks.

    """

    value: float
    low: float | None
    high: float | None
    n: int


def compute_welch_p(first: npt.ArrayLike, second: npt.ArrayLike) -> float | None:
    """Return the two-sided p-value of Welch's t-test that two groups have the same mean (1947, Biometrika 34:28).

    Args:
        first: The numbers of one group, shape (m,).
        second: The numbers of the other group, shape (n,).

    Returns:
        The p-value; None if a group has fewer than two values. If neither group varies, it is 1 for equal means and 0
        for different ones.

    """
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if min(x.size, y.size) < 2:
        return None
    parts = [float(side.var(ddof=1)) / side.size for side in (x, y)]
    distance, variance = abs(float(x.mean() - y.mean())), sum(parts)
    if variance < 1e-24:
        return 1.0 if distance < 1e-12 else 0.0
    degrees = variance**2 / sum(part**2 / (side.size - 1) for part, side in zip(parts, (x, y), strict=True))
    return float(2 * special.stdtr(degrees, -distance / sqrt(variance)))


def estimate_geometric_mean(values: npt.ArrayLike, confidence: float = 0.95) -> Level:
    """Return the geometric mean of a variant's blocks (repetitions) with its t-interval, both computed on logarithms.

    As in `estimate_ratio`, the noise is assumed to be multiplicative. The result describes one variant; to compare two
    variants, use `estimate_ratio`, which compares them block by block.

    Args:
        values: One positive, finite number per block, shape (n,), n ≥ 1.
        confidence: The coverage of the interval, as a fraction.

    Raises:
        ValueError: The values are not such numbers.

    """
    logs = np.log(check_numbers(values, positive=True))
    n, mean = int(logs.size), float(logs.mean())
    if n < MIN_BLOCKS:
        return Level(exp(mean), None, None, n)
    half = compute_t_quantile(n, confidence) * float(logs.std(ddof=1)) / sqrt(n)
    return Level(exp(mean), exp(mean - half), exp(mean + half), n)


def estimate_median(values: npt.ArrayLike, confidence: float = 0.95) -> Level:
    """Return the median of a variant's blocks (repetitions) with an interval from order statistics.

    The order statistics are (x_(k), x_(n+1-k)) of the sorted values with the largest k such that P(B ≤ k-1) ≤
    (1-confidence)/2 for B ~ Bin(n, ½). They cover with `confidence` or more for any noise (Thompson 1936; Hollander &
    Wolfe, §3.6), but for eight blocks with as much as 99.2 %.

    So each end is moved a part of the way to the next value inwards. Coverage is then within a hundredth of 95 %,
    however skewed or heavy-tailed the noise (Hettmansperger & Sheather 1986, Statistics & Probability Letters 4:75;
    Nyblom 1992, ibid. 14:129). For values in two clusters of equal size it may be 88 %. If values are tied, such as
    zeros in most blocks, or are counts, the ends stay the order statistics themselves.

    Args:
        values: One finite number per block, shape (n,), n ≥ 1.
        confidence: The coverage of the interval, as a fraction.

    Raises:
        ValueError: The values are not such numbers.

    """
    x = np.sort(check_numbers(values))
    n, median, tail = int(x.size), float(np.median(x)), (1 - confidence) / 2
    tails = special.bdtr(np.arange(n, dtype=np.float64), n, 0.5)
    k = int(np.count_nonzero(tails <= tail + 1e-12))
    if n < MIN_BLOCKS or not k:
        return Level(median, None, None, n)
    surplus, lack = (n - k) * max(0.0, tail - float(tails[k - 1])), k * (float(tails[k]) - tail)
    smooth = bool(np.all(np.diff(x) > 0) and np.any(x % 1))
    inward = surplus / (surplus + lack) if smooth else 0.0
    low, high = ((1 - inward) * x[outer] + inward * x[inner] for outer, inner in ((k - 1, k), (n - k, n - k - 1)))
    return Level(median, float(low), float(high), n)


def estimate_hodges_lehmann(
    differences: npt.ArrayLike, confidence: float = 0.95
) -> tuple[float, float | None, float | None]:
    """Return the Hodges-Lehmann estimate of an effect (1963) with its distribution-free interval.

    The estimate is the median of the Walsh averages (d_i + d_j)/2, i ≤ j. The interval is (W_(k), W_(M+1-k)) of the M =
    n(n+1)/2 sorted averages. Here k is the largest with P(T⁺ ≤ k-1) ≤ (1-confidence)/2 for Wilcoxon's signed-rank
    statistic T⁺ (Hollander & Wolfe, Nonparametric Statistical Methods, §3.2–3.3).

    Args:
        differences: One number per block (repetition), shape (n,), n ≥ 1.
        confidence: The coverage of the interval, as a fraction.

    Returns:
        The estimate and the two ends of its interval, which are None if no k exists (n < 6 at 95 %).

    """
    d = np.asarray(differences, dtype=np.float64)
    first, second = np.triu_indices(d.size)
    walsh = np.sort((d[first] + d[second]) / 2)
    return select_median_and_ends(walsh, _find_walsh_rank(int(d.size), confidence))


def select_median_and_ends(ordered: Floats, k: int) -> tuple[float, float | None, float | None]:
    """Return the median of sorted values, the k-th smallest value, and the k-th largest value.

    Args:
        ordered: The values in ascending order.
        k: The rank of both ends, from 1. If it is 0, both ends are None.

    """
    median = float(np.median(ordered))
    return (median, float(ordered[k - 1]), float(ordered[ordered.size - k])) if k else (median, None, None)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple tests by Holm's step-down method (1979), and return them in the same order.

    The i-th smallest of m becomes the maximum over j ≤ i of min(1, (m-j+1) · p_(j)).
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return [float(value) for value in adjusted]


def check_numbers(values: npt.ArrayLike, *, positive: bool = False) -> Floats:
    """Convert values, one per block (repetition), to an array of shape (n,), n ≥ 1, after a check.

    Args:
        values: The values.
        positive: True if every value must be above 0.

    Raises:
        ValueError: The shape is another one, or a value is not finite or, with `positive`, not above 0.

    """
    array = np.asarray(values, dtype=np.float64)
    valid = np.isfinite(array) & (array > 0) if positive else np.isfinite(array)
    if array.ndim != 1 or not array.size or not bool(valid.all()):
        raise ValueError(f"expected {'positive ' * positive}finite values, shape (n,), n >= 1, got {array.shape}")
    return array


def _check_sides(variant: npt.ArrayLike, baseline: npt.ArrayLike, *, positive: bool = False) -> tuple[Floats, Floats]:
    first, second = (check_numbers(side, positive=positive) for side in (variant, baseline))
    if first.shape != second.shape:
        raise ValueError(f"expected as many blocks on both sides, got {first.size} and {second.size}")
    return first, second


def compute_t_quantile(n: int, confidence: float = 0.95) -> float:
    """Return the half-width of Student's confidence interval for a mean, in standard errors.

    Args:
        n: The number of blocks (repetitions) in the mean, two or more.
        confidence: The coverage of the interval, as a fraction.

    """
    return float(special.stdtrit(n - 1, (1 + confidence) / 2))


def has_outliers(d: Floats) -> bool:
    """Return whether any modified z-score 0.6745·|d − median|/MAD is above 3.5 (Iglewicz & Hoaglin 1993).

    If MAD is 0, 1.2533 times the mean of |d − median| replaces MAD/0.6745.
    """
    distances = np.abs(d - np.median(d))
    mad, mean = float(np.median(distances)), float(distances.mean())
    if d.size < 3 or mean < 1e-12:
        return False
    return bool(distances.max() / (mad / 0.6745 if mad > 1e-12 else 1.2533 * mean) > 3.5)


def is_autocorrelated(d: Floats) -> bool:
    """Return whether neighbouring blocks are correlated: the lag-1 autocorrelation is above that of 99 in 100 random runs.

    The autocorrelation is r₁ = Σ(d_i − d̄)(d_{i+1} − d̄) / Σ(d_i − d̄)². For normal noise r₁ has the mean −1/n and the
    variance (n−2)²/(n²(n−1)) (Moran 1948, Biometrika 35:255). The variance's limit for large n, 1/n, is not used: with
    it, nothing would be significant for fewer than eight blocks.

    Args:
        d: One number per block (repetition), in the order of measurement. For fewer than six blocks the result is
            False.

    """
    deviations = d - d.mean()
    total = float((deviations**2).sum())
    if d.size < MIN_BLOCKS or total < 1e-24:
        return False
    n = int(d.size)
    limit = -1 / n - float(special.ndtri(AUTOCORRELATION_ALPHA)) * (n - 2) / (n * sqrt(n - 1))
    return float((deviations[1:] * deviations[:-1]).sum()) / total > limit


@lru_cache(maxsize=256)
def _find_walsh_rank(n: int, confidence: float) -> int:
    """Return the rank k of the ends of the Hodges-Lehmann interval; 0 if no interval exists.

    `estimate_hodges_lehmann` explains k. The null distribution of T⁺ is counted exactly: each rank 1…n is included with
    probability ½.

    Args:
        n: The number of blocks (repetitions).
        confidence: The coverage of the interval, as a fraction.

    """
    chance = np.ones(1)
    for rank in range(1, n + 1):
        chance = np.concatenate([chance, np.zeros(rank)]) / 2 + np.concatenate([np.zeros(rank), chance]) / 2
    return int(np.count_nonzero(np.cumsum(chance) <= (1 - confidence) / 2 + 1e-12))
