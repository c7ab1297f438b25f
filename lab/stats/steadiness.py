"""The seconds of one sample → whether its rate or its CPU time per request changed for good, and when.

    rates 520, 465, 15, 13, 16 …  →  Shift(before=2 seconds, after from second 3 on, down, factor 29)

A change is lasting where every second after it lies beyond every second before it by at least a factor. The smallest ratio between two such
seconds decides, not a mean: one slow second, noise, or a burst that ends cannot make it, and no noise has to be estimated from few seconds.
Up to a quarter of the sample may be the transition between the two parts; it belongs to neither.

The factors come from the committed samples (lab/tests/records/test_committed_steadiness.py counts them again): of the 136 that fall inside,
all are found by these factors, the least of them with 2.3; of 2,847 others seven are found, which are falls that a reader sees, too, of the
same kind as the known ones. Halves that differ by 25 % are not enough: they flag slow links, throttled pods and TLS handshakes.

Refuses to call what the first second differs by a change where it is better afterwards: connections, handshakes and caches are made in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RATE_FACTOR = 1.6
"""From 1.35 on at most the 19 other samples that are allowed change their rate by as much; below 1.6 pages of 10 MB and a slow link are among
them. Half the rate is found in any noise that committed samples at saturation have."""
CPU_FACTOR = 2.2
"""Of CPU time per request. TLS handshakes make the first second's differ by up to 2.1, where the backend's CPU time stands for requests."""
TRANSITION = 0.25
"""Of the sample's seconds, so many may lie between the two parts."""
START_UP = 1
"""Seconds that a load takes to begin: what improves after them is no change."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Where a series changes for good: its first `before` values are one part, those from index `after` on the other."""

    before: int
    after: int
    factor: float
    """The smallest ratio between a value of one part and one of the other, at least 1."""


def find_shift(values: Floats, factor: float, *, rises: int = 1, falls: int = 1) -> Shift | None:
    """Find the lasting change of a series: that of the shortest transition, of those the one of the largest ratio; None where there is none.

    `values`: one positive number per second, shape (n,), NaN: not known in that second, which then belongs to neither part. `factor`: the
    least ratio between any value before and any value after; `rises`, `falls`: so many values at least must lie before such a change.
    """
    known = np.flatnonzero(np.isfinite(values))
    logs = np.log(np.maximum(values[known], np.finfo(np.float64).tiny))
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
            at = int(sizes.argmax())
            end = int(ends[at])
            return Shift(int(known[end - 1]) + 1, int(known[end + transition]), float(np.exp(sizes[at])))
    return None


@dataclass(frozen=True, slots=True)
class Seconds:
    """What happened in each second of a sample. Arrays of shape (n,): the end of each since the load began and its length, in seconds;
    the work done in it, in any unit that is proportional to requests; CPU seconds of the proxy, None where there is none.
    """

    end_s: Floats
    length_s: Floats
    work: Floats
    cpu_s: Floats | None = None


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A lasting change within a sample. `work_…`: units of work per second; `cpu_…`: CPU seconds per unit of work, None without a proxy;
    `rate`, `cpu`: which of the two changed by its factor.
    """

    at_s: float
    work_before: float
    work_after: float
    cpu_before: float | None
    cpu_after: float | None
    rate: bool
    cpu: bool


def find_change(
    seconds: Seconds, *, judge_rate: bool = True, least_work: float = 0.0, start_up: int = 0
) -> Unsteady | None:
    """Find the lasting change of the rate within one sample, or else that of the CPU time per request; None where both are steady.

    `judge_rate`: whether the rate is the system's own, not given, and no two systems take turns. `least_work`: per second, below which CPU
    time per unit of work is too coarse to tell, and no rate changes either. `start_up`: seconds before any change; a given rate begins with them.
    """
    rate, dearer, later = seconds.work / seconds.length_s, None, max(START_UP, start_up) + 1
    if seconds.cpu_s is not None:
        told = (rate >= least_work) & (seconds.work > 0)
        cost = np.where(told, seconds.cpu_s / np.where(told, seconds.work, 1.0), np.nan)
        cost[cost <= 0] = np.nan
        dearer = find_shift(cost, CPU_FACTOR, rises=start_up + 1, falls=later)
    enough = len(rate) > 0 and rate.max() >= least_work and rate.max() > 0
    moved = find_shift(rate, RATE_FACTOR, rises=later, falls=start_up + 1) if judge_rate and enough else None
    shift = moved or dearer
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
    return Unsteady(at_s, before, after, costs[0], costs[1], moved is not None, dearer is not None)
