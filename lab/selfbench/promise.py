"""What was promised of an effect: how likely some blocks claim it, and whether claims were fewer than that by more than bad luck.

Refuses to know where the effect comes from; noise and effect are log-ratios.
"""

from __future__ import annotations

from math import expm1

from scipy import special

from lab import stats

UNLIKELY = 0.05


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


def kept(claimed: int, tens: int, promised: float | None) -> bool:
    """P(X ≤ claimed) ≥ UNLIKELY for X ~ Bin(tens, promised); what was not promised is kept."""
    return promised is None or not tens or float(special.bdtr(claimed, tens, promised)) >= UNLIKELY
