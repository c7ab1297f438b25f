"""Arrays of one number per block → estimates: paired effects, one arm's level, and p-values of a family.

Refuses to know metrics, tools or variants, to average percentiles, and to estimate from values that cannot
be (not finite; zero or negative for a ratio). Effects on rates and latencies are differences of natural logarithms
("log-ratios"): 0.1 is about +10 %, and swapping the two sides only changes the sign. What may be 0 (requests that failed) has
differences in its own unit. Callers see an interval only from six blocks on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt

import numpy as np
import numpy.typing as npt
from scipy import special

MIN_BLOCKS = 6
"""Blocks behind an interval (README, "How to read a table", 2); also the fewest with a distribution-free 95 % interval: 2/2^6 < 0.05."""

NEED_BLOCKS = f"need >= {MIN_BLOCKS} blocks for an interval"
ALL_EQUAL = "all differences are equal"
OUTLIERS = "outliers among the blocks"
ALIKE = "neighbouring blocks are alike"
"""Then the interval is narrower than it should be: at a correlation of 0.3 about a quarter."""
ALIKE_P = 0.01

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A paired effect: log-ratios, or, from `difference`, numbers in the values' own unit, which have no `ratio`.

    `effect` is the mean over the blocks, `low` and `high` its t-interval, `sd` the blocks' standard deviation;
    these three and `p_value` are None for one block. `hl_low`, `hl_high` are None below six blocks.
    Below six blocks `low` and `high` are for planning only: show and claim nothing unless `has_interval`.
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
        return self.interval is not None

    @property
    def ratio(self) -> float:
        """Variant over baseline: 0.9 = 10 % less."""
        return exp(self.effect)

    @property
    def interval(self) -> tuple[float, float] | None:
        """(low, high) as log-ratios where they may be shown, else None."""
        if self.n < MIN_BLOCKS or self.low is None or self.high is None:
            return None
        return self.low, self.high

    @property
    def ratio_interval(self) -> tuple[float, float] | None:
        return (exp(self.interval[0]), exp(self.interval[1])) if self.interval else None


def paired(variant: npt.ArrayLike, baseline: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """The effect of `variant` against `baseline`, both shape (n,) in block order.

    ValueError for n = 0, unequal shapes and values that are zero, negative or not finite.

    Mean of the blocks' log-ratios d, with the interval mean ± t(n-1) · s/√n and the two-sided p-value of the
    paired t-test (Student 1908; Box, Hunter & Hunter, Statistics for Experimenters, §3.2: pairing removes what a
    block's two measurements share). Exact for log-normal noise; the tests hold its coverage.
    """
    first, second = _sides(variant, baseline, positive=True)
    return _estimate(np.log(first) - np.log(second), confidence)


def difference(variant: npt.ArrayLike, baseline: npt.ArrayLike, confidence: float = 0.95) -> Estimate:
    """As `paired`, of the blocks' differences variant − baseline in their own unit: for counts and times that may be 0.

    ValueError for n = 0, unequal shapes and values that are not finite. The interval is that of the mean difference; where
    every block has the same difference it has no width, and says so in its notes. Where one side alone waits, so that the
    differences are skewed, Student's t covers less than it says: for an exponential wait 89 times in 100 from six to ten blocks, 93 from
    30 on, and nearly all that it misses is larger than it says. It is of the mean all the same: the median of what happens in
    fewer than half of the blocks is 0, however many there are; and two arms of the same have no skew, so that no claim is false by it.
    """
    first, second = _sides(variant, baseline)
    return _estimate(first - second, confidence)


def _estimate(differences: Floats, confidence: float) -> Estimate:
    n = int(differences.size)
    effect = float(differences.mean())
    notes = [NEED_BLOCKS] if n < MIN_BLOCKS else []
    low = high = sd = p_value = None
    if n >= 2:
        sd = float(differences.std(ddof=1))
        if float(np.ptp(differences)) < 1e-12:  # no spread but rounding: the interval has no width
            effect, sd = float(np.median(differences)), 0.0
            p_value = 1.0 if abs(effect) < 1e-12 else 0.0
            notes.append(ALL_EQUAL)
        else:
            p_value = float(2 * special.stdtr(n - 1, -abs(effect) / (sd / sqrt(n))))
        half = t_quantile(n, confidence) * sd / sqrt(n)
        low, high = effect - half, effect + half
    told = ((OUTLIERS, has_outliers(differences)), (ALIKE, alike(differences)))
    notes += [note for note, holds in told if holds]
    shown = hodges_lehmann(differences, confidence)
    return Estimate(effect, low, high, n, confidence, sd, p_value, *shown, tuple(notes))


@dataclass(frozen=True, slots=True)
class Level:
    """One arm's level in its own unit: the blocks' geometric mean (`level`) or median (`middle`); `low` and `high` are None below six blocks."""

    value: float
    low: float | None
    high: float | None
    n: int


def apart_p(first: npt.ArrayLike, second: npt.ArrayLike) -> float | None:
    """How likely the means of two groups lie as far apart by chance: Welch's two-sided p-value (1947, Biometrika 34:28), shapes (m,), (n,).

    None below two values on either side. 1 where neither group scatters and the means are equal, 0 where they are not.
    """
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if min(x.size, y.size) < 2:
        return None
    parts = [float(side.var(ddof=1)) / side.size for side in (x, y)]
    away, spread = abs(float(x.mean() - y.mean())), sum(parts)
    if spread < 1e-24:
        return 1.0 if away < 1e-12 else 0.0
    degrees = spread**2 / sum(part**2 / (side.size - 1) for part, side in zip(parts, (x, y), strict=True))
    return float(2 * special.stdtr(degrees, -away / sqrt(spread)))


def level(values: npt.ArrayLike, confidence: float = 0.95) -> Level:
    """exp of the mean of the logarithms, and of their t-interval; shape (n,), n ≥ 1, positive and finite, else ValueError.

    The same model as `paired`: noise that multiplies. It describes this run's blocks; to compare two arms, pair them.
    """
    logs = np.log(numbers(values, positive=True))
    n, mean = int(logs.size), float(logs.mean())
    if n < MIN_BLOCKS:
        return Level(exp(mean), None, None, n)
    half = t_quantile(n, confidence) * float(logs.std(ddof=1)) / sqrt(n)
    return Level(exp(mean), exp(mean - half), exp(mean + half), n)


def middle(values: npt.ArrayLike, confidence: float = 0.95) -> Level:
    """The blocks' median and its interval by order statistics; shape (n,), n ≥ 1, finite, else ValueError.

    (x_(k), x_(n+1-k)) of the sorted values with the largest k such that P(B ≤ k-1) ≤ (1-confidence)/2 for B ~ Bin(n, ½)
    covers with `confidence` or more whatever the noise (Thompson 1936; Hollander & Wolfe, §3.6), but with 99.2 % of eight blocks.
    So each end lies a part of the way to the next value inwards, which comes within a hundredth of 95 %, however skewed or
    heavy-tailed the noise (Hettmansperger & Sheather 1986, Statistics & Probability Letters 4:75; Nyblom 1992, ibid. 14:129); of values
    in two clusters, as many in each, it may be 88 %. Between values that tie, as those do that are 0 in most blocks, and between
    counts nothing lies: there the ends are the whole order statistics, and cover with 95 % or more.
    """
    x = np.sort(numbers(values))
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


def hodges_lehmann(differences: npt.ArrayLike, confidence: float = 0.95) -> tuple[float, float | None, float | None]:
    """Median of the Walsh averages (d_i + d_j)/2, i ≤ j, and its distribution-free interval; shape (n,), n ≥ 1.

    Hodges & Lehmann 1963; the interval is (W_(k), W_(M+1-k)) of the M = n(n+1)/2 sorted averages, with the largest
    k such that P(T⁺ ≤ k-1) ≤ (1-confidence)/2 for Wilcoxon's signed-rank T⁺ (Hollander & Wolfe, Nonparametric
    Statistical Methods, §3.2–3.3). The interval is None where no k exists (n < 6 at 95 %).
    """
    d = np.asarray(differences, dtype=np.float64)
    first, second = np.triu_indices(d.size)
    walsh = np.sort((d[first] + d[second]) / 2)
    return from_both_ends(walsh, _walsh_rank(int(d.size), confidence))


def from_both_ends(ordered: Floats, k: int) -> tuple[float, float | None, float | None]:
    """The median of ascending values, and the k-th from either end; None where `k` is 0."""
    median = float(np.median(ordered))
    return (median, float(ordered[k - 1]), float(ordered[ordered.size - k])) if k else (median, None, None)


def holm(p_values: Sequence[float]) -> list[float]:
    """Step-down adjusted p-values in the order given: max over j ≤ i of min(1, (m-j+1) · p_(j)) (Holm 1979)."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return [float(value) for value in adjusted]


def numbers(values: npt.ArrayLike, *, positive: bool = False) -> Floats:
    """One number per block, shape (n,), n ≥ 1; ValueError for what is not finite, and for 0 and less where it has to be `positive`."""
    given = np.asarray(values, dtype=np.float64)
    fitting = np.isfinite(given) & (given > 0) if positive else np.isfinite(given)
    if given.ndim != 1 or not given.size or not bool(fitting.all()):
        raise ValueError(f"expected {'positive ' * positive}finite values, shape (n,), n >= 1, got {given.shape}")
    return given


def _sides(variant: npt.ArrayLike, baseline: npt.ArrayLike, *, positive: bool = False) -> tuple[Floats, Floats]:
    first, second = (numbers(side, positive=positive) for side in (variant, baseline))
    if first.shape != second.shape:
        raise ValueError(f"expected as many blocks on both sides, got {first.size} and {second.size}")
    return first, second


def t_quantile(n: int, confidence: float = 0.95) -> float:
    """Return how many standard errors of a mean of `n` blocks, two or more, lie on each side of it in Student's interval."""
    return float(special.stdtrit(n - 1, (1 + confidence) / 2))


def has_outliers(d: Floats) -> bool:
    """Any modified z-score 0.6745·|d − median|/MAD above 3.5 (Iglewicz & Hoaglin 1993).

    Where MAD = 0, 1.2533 times the mean of |d − median| takes the place of MAD/0.6745.
    """
    away = np.abs(d - np.median(d))
    mad, mean = float(np.median(away)), float(away.mean())
    if d.size < 3 or mean < 1e-12:
        return False
    return bool(away.max() / (mad / 0.6745 if mad > 1e-12 else 1.2533 * mean) > 3.5)


def alike(d: Floats) -> bool:
    """Whether neighbouring blocks' correlation is above what chance leaves to independent ones in 99 of 100 runs, from six blocks on.

    r₁ = Σ(d_i − d̄)(d_{i+1} − d̄) / Σ(d_i − d̄)², of normal noise with mean −1/n and variance (n−2)²/(n²(n−1)) (Moran 1948, Biometrika
    35:255; by 1/n, its limit, nothing could be told below eight blocks).
    """
    away = d - d.mean()
    total = float((away**2).sum())
    if d.size < MIN_BLOCKS or total < 1e-24:
        return False
    n = int(d.size)
    most = -1 / n - float(special.ndtri(ALIKE_P)) * (n - 2) / (n * sqrt(n - 1))
    return float((away[1:] * away[:-1]).sum()) / total > most


@lru_cache(maxsize=256)
def _walsh_rank(n: int, confidence: float) -> int:
    """k of `hodges_lehmann`, 0 = none, from T⁺'s exact null distribution: each rank 1…n in or out with chance ½."""
    chance = np.ones(1)
    for rank in range(1, n + 1):
        chance = np.concatenate([chance, np.zeros(rank)]) / 2 + np.concatenate([np.zeros(rank), chance]) / 2
    return int(np.count_nonzero(np.cumsum(chance) <= (1 - confidence) / 2 + 1e-12))
