"""What was promised of an effect: how likely some blocks claim it, and whether claims were fewer than that by more than bad luck.

Refuses to know where the effect comes from; noise and effect are log-ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1

import numpy as np

from lab.stats import paired as stats


def power(effect: float, sd: float, blocks: int) -> float:
    """The chance that `blocks` (>= 6) claim an effect (log-ratio) at this noise: where `stats.resolvable` says just that effect.

    Between 1 and 99 %, to half a per cent.
    """
    low, high = 0.01, 0.99
    while high - low > 0.005:
        middle = (low + high) / 2
        needed = stats.resolvable(sd, blocks, middle)
        assert needed is not None, "six blocks at least"
        low, high = (middle, high) if needed <= expm1(abs(effect)) else (low, middle)
    return (low + high) / 2


def kept(claimed: int, chances: Sequence[float], unlikely: float) -> bool:
    """Whether P(X ≤ claimed) ≥ unlikely, X being how many of independent trials with these chances succeed.

    That is Poisson's binomial distribution, here by convolution of the trials' own (Wang 1993, Statistica Sinica 3, 295). Trials that
    share something, as variants share their baseline, vary more together than that, so that this is a little too strict of them.
    """
    spread = np.ones(1)
    for chance in chances:
        spread = np.convolve(spread, [1 - chance, chance])
    return float(spread[: claimed + 1].sum()) >= unlikely
