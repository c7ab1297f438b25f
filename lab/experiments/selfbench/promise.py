"""What was promised of an effect: how likely some blocks claim it, and whether claims were fewer than that by more than bad luck.

Refuses to know where the effect comes from; noise and effect are log-ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from scipy import special

SURELY = 20.0
"""Standard errors from which on an effect is missed less than once in 1e12 times; of far more scipy's distribution is no number."""


def power(effect: float, sd: float, blocks: int) -> float:
    """The chance that `blocks` (>= 6) claim the sign of an effect (log-ratio) at this noise, alone in its family: of the noncentral t."""
    if not sd:
        return float(effect != 0)
    least, expected = special.stdtrit(blocks - 1, 0.975), abs(effect) / sd * sqrt(blocks)
    return float(1 - special.nctdtr(blocks - 1, min(expected, SURELY), least))


def kept(claimed: int, chances: Sequence[float], unlikely: float) -> bool:
    """Whether P(X ≤ claimed) ≥ unlikely, X being how many of independent trials with these chances succeed.

    That is Poisson's binomial distribution, here by convolution of the trials' own (Wang 1993, Statistica Sinica 3, 295). Trials that
    share something, as variants share their baseline, vary more together than that, so that this is a little too strict of them.
    """
    spread = np.ones(1)
    for chance in chances:
        spread = np.convolve(spread, [1 - chance, chance])
    return float(spread[: claimed + 1].sum()) >= unlikely
