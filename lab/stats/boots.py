"""Estimates of several boots → one effect whose interval is over boots: random effects, k = 2 or more.

    [(0.59, SE 0.01), (0.82, SE 0.01), (0.70, SE 0.02)]  →  0.70 [0.41, 0.99], SD between boots 0.11

One boot's interval says how well an effect is known on that boot. From boot to boot effects differ by far more (an SD of 8 to 9.5 % of a
ratio [measured: 13 comparisons that were measured on two boots], where a pair's standard error is 0.5 to 2 %), so that an effect of "the
machine" is known no better than boots are many. Refuses to know runs and metrics: callers hand log-ratios or differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import special

from lab.stats.paired import Floats, t_quantile

HALVINGS = 50
"""Of the interval in which tau² lies: as close as double precision has it."""
COUNTS = ("no boot", "one boot", "two boots", "three boots")


@dataclass(frozen=True, slots=True)
class OverBoots:
    """An effect over boots, in the unit of the effects that it was made of. `between`: SD of the true effect from boot to boot."""

    effect: float
    low: float
    high: float
    boots: int
    between: float


def over_boots(effects: Sequence[float], errors: Sequence[float], confidence: float = 0.95) -> OverBoots:
    """Return the mean effect over boots with its confidence interval, by a random-effects model.

    The variance between boots, tau², is Paule and Mandel's (1982, J. Res. NBS 87:377): the one at which the weighted sum of squares is
    k - 1, and 0 where it is below that without any. Weights are 1 / (SE² + tau²). The interval is Hartung and Knapp's (2001, Statist. Med.
    20:3875; Sidik & Jonkman 2002): mean ± t(k - 1) · √(q / Σw), with q the weighted mean square about the mean, which is 1 where tau² > 0.
    Where effects agree better than their errors say, q is below 1, and the fixed-effect interval, mean ± z / √Σ(1 / SE²), can be wider:
    then it is that one (Wiksten, Rücker & Schwarzer 2016, Statist. Med. 35:2503), so that it is never narrower.

    `effects`: one log-ratio or difference for each boot, two or more; `errors`: their standard errors, 0 where every block of a boot had
    the same. ValueError for others.
    """
    y, errors_ = np.asarray(effects, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if y.size < 2 or y.shape != errors_.shape or not np.isfinite([y, errors_]).all() or (errors_ < 0).any():
        raise ValueError(
            "over_boots: expected finite effects of two boots or more, each with a standard error of 0 or more"
        )
    if float(np.ptp(y)) == 0 and not errors_.all():
        return OverBoots(float(y[0]), float(y[0]), float(y[0]), int(y.size), 0.0)
    variances = errors_**2
    tau2 = between_variance(y, variances)
    effect, q, total = _weighted(y, variances + tau2)
    half = t_quantile(int(y.size), confidence) * sqrt(q / total)
    if variances.all():
        half = max(half, float(special.ndtri((1 + confidence) / 2)) / sqrt(float((1 / variances).sum())))
    return OverBoots(effect, effect - half, effect + half, int(y.size), sqrt(tau2))


def between_variance(effects: Floats, variances: Floats) -> float:
    """Return Paule and Mandel's tau²: the variance between boots that makes the weighted mean square about the mean 1, or 0."""
    most = float(effects.var(ddof=1))
    """With it alone the mean square is at most 1."""
    least = 0.0 if variances.all() else most * 1e-12
    if most == 0 or _weighted(effects, variances + least)[1] <= 1:
        return least
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if _weighted(effects, variances + middle)[1] > 1 else (least, middle)
    return (least + most) / 2


def _weighted(effects: Floats, variances: Floats) -> tuple[float, float, float]:
    """(weighted mean, weighted mean square about it, sum of the weights)"""
    weights = 1 / variances
    total = float(weights.sum())
    mean = float((weights * effects).sum()) / total
    return mean, float((weights * (effects - mean) ** 2).sum()) / (effects.size - 1), total


def standard_error(sd: float | None, n: int) -> float | None:
    """Return the standard error of a mean of `n` blocks with that standard deviation; None where one block has none."""
    return None if sd is None or n < 2 else sd / sqrt(n)


def format_boots(count: int) -> str:
    """Return `one boot`, `two boots`, `three boots`, `4 boots`."""
    return COUNTS[count] if count < len(COUNTS) else f"{count} boots"
