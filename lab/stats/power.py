"""A pilot's noise and the effect that matters → how many blocks to plan, so that the promised power holds.

A pilot's standard deviation is itself measured, and from six blocks it errs by a third: taken at its word, half of all plans
would be too short. So plans use an upper confidence limit of it (`planned_sd`). Refuses to plan without a pilot, and more than
`MAX_BLOCKS`. What a given number of blocks resolves at a known noise is `stats.resolvable`'s.
"""

from __future__ import annotations

from math import isfinite, sqrt

from scipy import special

from lab.stats import paired as stats

MAX_BLOCKS = 1000
ASSURANCE = 0.8
"""Browne's proposal; the tests simulate that the power over all pilots is then what was promised, from six blocks on."""


def planned_sd(sd: float, blocks: int, assurance: float = ASSURANCE) -> float:
    """The upper confidence limit of the true standard deviation: sd · √((n-1)/χ²), χ² the 1-assurance quantile with n-1 degrees.

    `sd` of one block's log-ratio, measured in `blocks` ≥ 2 blocks (where it is pooled: its degrees of freedom + 1); ValueError else.
    With this the run has the planned power with the probability `assurance` (Browne 1995, Statistics in Medicine 14:1933;
    Kieser & Wassmer 1996, Biometrical Journal 38:941). For normal noise: six blocks → ·1.46, ten → ·1.29, forty → ·1.11.
    """
    if not (sd >= 0 and isfinite(sd) and blocks >= 2 and 0 < assurance < 1):
        raise ValueError("planned_sd: expected a finite sd >= 0, blocks >= 2 and 0 < assurance < 1")
    return sd * sqrt((blocks - 1) / float(special.chdtri(blocks - 1, assurance)))


def resolvable_now(sd_log_ratio: float, pilot_blocks: int, blocks: int, power: float = 0.9) -> float | None:
    """The effect (fraction: 0.06 = 6 %) that a run of `blocks` may promise to claim, from a pilot's noise; None below six blocks.

    `stats.resolvable` at `planned_sd`: at most `effect` exactly where `blocks_for(…, effect)` is at most `blocks`.
    """
    return stats.resolvable(planned_sd(sd_log_ratio, pilot_blocks), blocks, power)


def blocks_for(sd_log_ratio: float, pilot_blocks: int, effect: float, power: float = 0.9) -> int | None:
    """The fewest blocks that claim a true `effect` (fraction, > 0: 0.05 = 5 % more) with probability `power`; None beyond `MAX_BLOCKS`.

    `sd_log_ratio` is the standard deviation of one block's A/A log-ratio, measured in `pilot_blocks` ≥ 2 blocks. Never
    fewer than six. An effect of −5 % is a little farther from 0 than one of +5 %, so that the number holds for both.
    """
    if not effect > 0:
        raise ValueError(f"effect: expected a fraction > 0, got {effect}")
    planned = planned_sd(sd_log_ratio, pilot_blocks)

    def enough(blocks: int) -> bool:
        found = stats.resolvable(planned, blocks, power)
        return found is not None and found <= effect

    low, high = stats.MIN_BLOCKS, MAX_BLOCKS
    if not enough(high):
        return None
    while low < high:  # more blocks always resolve less
        half = (low + high) // 2
        low, high = (low, half) if enough(half) else (half + 1, high)
    return low
