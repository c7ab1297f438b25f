"""The mean effect over two or more boots of a machine, with a confidence interval over boots (random-effects model).

    [(0.59, SE 0.01), (0.82, SE 0.01), (0.70, SE 0.02)]  →  0.70 [0.41, 0.99], SD between boots 0.11

One boot's interval shows how well an effect is known on that boot. From boot to boot effects differ by far more: the
SD of a ratio is 8 to 9.5 % (13 comparisons that were measured on two boots), while the standard error of a pair is 0.5
to 2 %. The effect of "the machine" is therefore known only as well as the number of boots allows. This module knows no
runs and no metrics: callers pass log-ratios or differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import special

from lab.stats.paired import Floats, compute_t_quantile

HALVINGS = 50
"""The number of times that the interval of tau² is halved: enough for double precision."""
COUNT_WORDS = ("no boot", "one boot", "two boots", "three boots")
"""The words for small numbers of boots, by number."""


@dataclass(frozen=True, slots=True)
class OverBoots:
    """The mean effect over several boots of the machine, in the unit of the effects on the single boots.

    Attributes:
        effect: The mean effect.
        low: The lower end of its confidence interval.
        high: The upper end of its confidence interval.
        boots: The number of boots.
        between: The standard deviation of the true effect from boot to boot.

    """

    effect: float
    low: float
    high: float
    boots: int
    between: float


def estimate_over_boots(effects: Sequence[float], errors: Sequence[float], confidence: float = 0.95) -> OverBoots:
    """Estimate the mean effect over boots of the machine with its confidence interval, by a random-effects model.

    The variance between boots, tau², is Paule and Mandel's (1982, J. Res. NBS 87:377). It is the value at which the
    weighted sum of squares is k - 1 for k boots. If that sum is already smaller without tau², it is 0. Weights are 1 /
    (SE² + tau²).

    The interval is Hartung and Knapp's (2001, Statist. Med. 20:3875; Sidik & Jonkman 2002): mean ± t(k - 1) · √(q /
    Σw). Here q is the weighted mean square about the mean, which is 1 if tau² > 0.

    If effects agree better than their errors suggest, q is below 1. The fixed-effect interval, mean ± z / √Σ(1 / SE²),
    can then be wider. The wider of the two is returned (Wiksten, Rücker & Schwarzer 2016, Statist. Med. 35:2503).

    Args:
        effects: A log-ratio or difference for each boot, two or more.
        errors: The standard errors of the effects. An error is 0 if every block (repetition) of a boot had the same
            value.
        confidence: The coverage of the interval, as a fraction.

    """
    y, errors_ = np.asarray(effects, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if float(np.ptp(y)) == 0 and not errors_.all():
        return OverBoots(float(y[0]), float(y[0]), float(y[0]), int(y.size), 0.0)
    variances = errors_**2
    tau2 = estimate_between_variance(y, variances)
    effect, q, total = _weigh(y, variances + tau2)
    half = compute_t_quantile(int(y.size), confidence) * sqrt(q / total)
    if variances.all():
        half = max(half, float(special.ndtri((1 + confidence) / 2)) / sqrt(float((1 / variances).sum())))
    return OverBoots(effect, effect - half, effect + half, int(y.size), sqrt(tau2))


def estimate_between_variance(effects: Floats, variances: Floats) -> float:
    """Return Paule and Mandel's estimate of the variance between boots (tau²), at which the weighted mean square is 1.

    The result is 0 if the effects differ no more than their errors explain. An error of 0 is replaced by a tiny
    positive number.

    Args:
        effects: The effect on each boot.
        variances: The squared standard error of each effect.

    """
    upper = float(effects.var(ddof=1))  # with this variance alone the mean square is at most 1
    lower = 0.0 if variances.all() else upper * 1e-12
    if upper == 0 or _weigh(effects, variances + lower)[1] <= 1:
        return lower
    for _ in range(HALVINGS):
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if _weigh(effects, variances + middle)[1] > 1 else (lower, middle)
    return (lower + upper) / 2


def _weigh(effects: Floats, variances: Floats) -> tuple[float, float, float]:
    """Return the mean weighted by 1/variance, the weighted mean square about the mean, and the sum of the weights."""
    weights = 1 / variances
    total = float(weights.sum())
    mean = float((weights * effects).sum()) / total
    return mean, float((weights * (effects - mean) ** 2).sum()) / (effects.size - 1), total


def compute_standard_error(sd: float | None, n: int) -> float | None:
    """Return the standard error of a mean: sd / √n; None for fewer than two blocks.

    Args:
        sd: The standard deviation of the blocks (repetitions), or None.
        n: The number of blocks.

    """
    return None if sd is None or n < 2 else sd / sqrt(n)


def format_boots(count: int) -> str:
    """Return the number of boots as text: `one boot`, `two boots`, `three boots`, `4 boots`."""
    return COUNT_WORDS[count] if count < len(COUNT_WORDS) else f"{count} boots"
