"""Detection of a lasting change of the rate or the CPU time per request within one sample, from its single seconds.

    rates 520, 465, 15, 13, 16 …  →  Shift(before=2 seconds, after from second 3 on)

A change is lasting if every second after it differs from every second before it by at least a factor, in the same
direction. The smallest ratio between two such seconds decides, not a mean. So one slow second, noise, or a burst that ends
cannot cause it, and no noise has to be estimated from few seconds. Up to a quarter of the sample may be the transition
between the two parts; it belongs to neither.

The factors come from the committed samples (lab/tests/records/test_committed_steadiness.py counts them again). They
detect all of the 136 samples whose rate falls within the sample; the smallest of these falls is by a factor of 2.3. Of
2,847 other samples they detect seven, which are falls that a reader sees, too, of the same kind as the known ones. Halves
that differ by 25 % would be a poor criterion: slow links, throttled pods and TLS handshakes meet it.

A first second that is worse than the rest is no change: connections, handshakes and caches are made in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lab.stats.histogram import Floats

RATE_FACTOR = 1.6
"""The factor of a lasting change of the rate.

From a factor of 1.35 on, at most 19 other samples (the number that the test allows) change their rate by as much. Below 1.6,
pages of 10 MB and a slow link are among them. A rate that halves is detected in any noise of committed samples at saturation.
"""
CPU_FACTOR = 2.2
"""The factor of a lasting change of CPU time per request.

If the backend's CPU time is used to estimate requests, TLS handshakes make that of the first second differ by up to 2.1.
"""
TRANSITION = 0.25
"""The share of the sample's seconds that may lie between the two parts."""
START_UP = 1
"""The seconds that a load takes to begin: an improvement after them is no change."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The position of a lasting change in a series of values.

    Attributes:
        before: The number of values before the change.
        after: The index of the first value after the change. The values in between belong to the transition.

    """

    before: int
    after: int


def find_shift(values: Floats, factor: float, *, rises: int = 1, falls: int = 1) -> Shift | None:
    """Find a lasting change in a series: all values after it differ from all values before it by a factor; None without any.

    Among several candidates, the one with the shortest transition is returned. If several are as short, it is the one
    with the largest ratio.

    Args:
        values: A positive number per second, shape (n,). NaN marks an unknown second, which is ignored.
        factor: The smallest ratio between any value before the change and any value after it.
        rises: The least number of values that must precede a change upwards.
        falls: The least number of values that must precede a change downwards.

    """
    valid = np.flatnonzero(np.isfinite(values))
    logs = np.log(np.maximum(values[valid], np.finfo(np.float64).tiny))
    if len(logs) < 2 or logs.max() - logs.min() < np.log(factor):
        return None
    highest, lowest = np.maximum.accumulate(logs), np.minimum.accumulate(logs)
    highest_after, lowest_after = (
        side[::-1] for side in (np.maximum.accumulate(logs[::-1]), np.minimum.accumulate(logs[::-1]))
    )
    for transition in range(max(1, int(TRANSITION * len(logs))) + 1):
        ends = np.arange(1, len(logs) - transition)
        up = lowest_after[ends + transition] - highest[ends - 1]
        down = lowest[ends - 1] - highest_after[ends + transition]
        sizes = np.where(ends >= rises, up, -np.inf)
        sizes = np.maximum(sizes, np.where(ends >= falls, down, -np.inf))
        if len(sizes) and sizes.max() >= np.log(factor):
            end = int(ends[sizes.argmax()])
            return Shift(int(valid[end - 1]) + 1, int(valid[end + transition]))
    return None


@dataclass(frozen=True, slots=True)
class SampleSeconds:
    """The work and the CPU time of each second of a sample, as arrays of shape (n,).

    Attributes:
        end_s: The end of each second, in seconds since the load began.
        length_s: The length of each second, in seconds.
        work: The work done in each second, in any unit that is proportional to requests.
        cpu_s: The CPU seconds that the proxy used in each second; None without a proxy.

    """

    end_s: Floats
    length_s: Floats
    work: Floats
    cpu_s: Floats | None = None


@dataclass(frozen=True, slots=True)
class LastingChange:
    """A lasting change of the rate or of the CPU time per request within one sample.

    Attributes:
        at_s: The time of the change, in seconds since the load began.
        work_before: The units of work (in proportion to requests) per second before the change.
        work_after: The units of work per second after the change.
        cpu_before: The CPU seconds per unit of work before the change; None without a proxy or without work.
        cpu_after: The CPU seconds per unit of work after the change; None without a proxy or without work.
        rate: True if the rate changed by RATE_FACTOR or more.
        cpu: True if the CPU time per request changed by CPU_FACTOR or more.

    """

    at_s: float
    work_before: float
    work_after: float
    cpu_before: float | None
    cpu_after: float | None
    rate: bool
    cpu: bool


def find_change(
    seconds: SampleSeconds, *, judge_rate: bool = True, least_work: float = 0.0, start_up: int = 0
) -> LastingChange | None:
    """Find the lasting change of the rate within one sample, or else that of the CPU time per request.

    Args:
        seconds: The seconds of the sample.
        judge_rate: True to examine the rate, too. That makes sense if the rate depends only on the system: in a closed
            loop that did not alternate with the load of another system.
        least_work: The least work per second. Seconds with less have no usable CPU time per unit of work. If all
            seconds have less, no change of the rate is reported.
        start_up: The seconds that a load takes to begin. A change must come after them.

    Returns:
        The change; None if both are steady.

    """
    rate, cost_shift, later = seconds.work / seconds.length_s, None, max(START_UP, start_up) + 1
    if seconds.cpu_s is not None:
        busy = (rate >= least_work) & (seconds.work > 0)
        cost = np.where(busy, seconds.cpu_s / np.where(busy, seconds.work, 1.0), np.nan)
        cost[cost <= 0] = np.nan
        cost_shift = find_shift(cost, CPU_FACTOR, rises=start_up + 1, falls=later)
    enough = len(rate) > 0 and rate.max() >= least_work and rate.max() > 0
    rate_shift = find_shift(rate, RATE_FACTOR, rises=later, falls=start_up + 1) if judge_rate and enough else None
    shift = rate_shift or cost_shift
    if shift is None:
        return None
    parts = slice(None, shift.before), slice(shift.after, None)
    lengths, works = ([float(side[part].sum()) for part in parts] for side in (seconds.length_s, seconds.work))
    costs: list[float | None] = [None, None]
    if seconds.cpu_s is not None:
        used = (float(seconds.cpu_s[part].sum()) for part in parts)
        costs = [cpu_s / work if work > 0 else None for cpu_s, work in zip(used, works, strict=True)]
    before, after = (work / length for work, length in zip(works, lengths, strict=True))
    at_s = float(seconds.end_s[shift.before - 1])
    return LastingChange(at_s, before, after, costs[0], costs[1], rate_shift is not None, cost_shift is not None)
