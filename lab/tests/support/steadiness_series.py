"""Simulated samples, second by second: with the noise of committed ones, and with a fall within them.

The noise is that of the committed solo samples at saturation whose proxy was the limit (804 of four seconds or more, without those that
fall): from second to second the rate varies by a standard deviation that differs from sample to sample, and CPU time per request varies
against it, since a proxy that is full uses the same CPU time for more or fewer requests.
"""

from __future__ import annotations

import numpy as np

from lab.stats.steadiness import SampleSeconds

Generator = np.random.Generator
RATE_SD = ((0.0, 0.1, 0.5, 0.75, 0.9, 1.0), (0.0, 0.009, 0.03, 0.057, 0.101, 0.115))
"""Quantiles of the standard deviation of a sample's log rate from second to second. The upper 5 %, up to 0.2, are left out: those series
have a pattern (a throttled pod, a first second with handshakes), which is no noise."""
COST_SD = 0.012
"""Of what CPU time per request varies by beyond that, as a log-ratio."""
FIRST_SECOND = 0.966
"""Of the others' rate: the load begins within the first look."""
SECONDS = (2, 4, 5, 6, 8, 20)
"""Lengths of the committed samples."""
BASE_RATE, BASE_COST_S = 0.45, 2.1
"""Backend CPU seconds per second, and the proxy's for each of them."""


def simulate_sd(generator: Generator) -> float:
    """Draw how much one sample varies from second to second, as the standard deviation of its log rate."""
    return float(np.interp(generator.random(), *RATE_SD))


def simulate_seconds(
    generator: Generator,
    seconds: int,
    *,
    sd: float = RATE_SD[1][2],
    change_at: int | None = None,
    rate_factor: float = 1.0,
    cost_factor: float = 1.0,
) -> SampleSeconds:
    """Simulate one sample of so many full seconds, as `lab.stats.steadiness.find_change` takes them.

    `sd`: of its log rate from second to second. `change_at`: after how many seconds the rate and the CPU time per request are
    multiplied by their factors for good; None: never.
    """
    noise = np.exp(generator.normal(0.0, sd, seconds))
    rate = BASE_RATE * noise
    rate[:1] *= FIRST_SECOND
    cost = BASE_COST_S / noise * np.exp(generator.normal(0.0, COST_SD, seconds))
    if change_at is not None:
        rate[change_at:] *= rate_factor
        cost[change_at:] *= cost_factor
    length_s = np.ones(seconds)
    return SampleSeconds(np.cumsum(length_s), length_s, rate, rate * cost)


def simulate_sample(generator: Generator, *, drifting: bool = False) -> SampleSeconds:
    """Simulate one sample of a length that committed ones have: an ordinary one, or one that falls within it.

    A fall multiplies the rate by 0.05 to 0.5 and the CPU time per request by as much upwards, after any of its seconds, as the committed
    falls do (from 0.02 to 0.43).
    """
    many = int(generator.choice(SECONDS))
    sd = simulate_sd(generator)
    if not drifting:
        return simulate_seconds(generator, many, sd=sd)
    factor = float(np.exp(generator.uniform(np.log(0.05), np.log(0.5))))
    at = int(generator.integers(1, many))
    return simulate_seconds(generator, many, sd=sd, change_at=at, rate_factor=factor, cost_factor=1 / factor)
