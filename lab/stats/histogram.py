"""Latency histograms with fixed log-linear buckets, so that merging is addition.

Layout (that of HdrHistogram with three significant digits): 1 µs wide up to 2048 µs, and from there
1024 buckets for every doubling, up to 120 s. A longer latency counts in the last bucket and is
reported as "120 s or more" by `maximum_s`. Refuses to average anything: percentiles come from merged counts only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

UNIT_S = 1e-6
LINEAR = 2048  # buckets of one unit; also the first value whose bucket is two units wide
HALF = LINEAR // 2  # buckets per doubling after that
LIMIT_US = 120_000_000
BEYOND = 10  # samples that must lie beyond a percentile for it to be shown (README, "How to read a table", 3)

Kind = Literal["exact", "quantiles"]


def bucket_of(value_us: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Bucket numbers of latencies in µs (any shape); negative ones count as 0, long ones as 120 s.

    Raises ValueError for NaN: a latency that was not measured has no bucket.
    """
    latency = np.asarray(value_us, dtype=np.float64)
    if np.isnan(latency).any():
        raise ValueError("a latency is NaN")
    value = np.clip(latency, 0, LIMIT_US).astype(np.int64)
    shift = np.zeros_like(value)
    large = value >= LINEAR
    shift[large] = np.floor(np.log2(value[large])).astype(np.int64) - 10  # log2(HALF) == 10
    return np.where(large, LINEAR + (shift - 1) * HALF + (value >> shift) - HALF, value)


def bucket_edges_s(bucket: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Lowest and highest latency (s, both included, whole µs) that fall into the given buckets."""
    number = np.asarray(bucket, dtype=np.int64)
    shift = np.maximum((number - LINEAR) // HALF + 1, 0)
    low = np.where(number < LINEAR, number, ((number - LINEAR) % HALF + HALF) << shift)
    high = low + (np.int64(1) << shift) - 1
    return low.astype(np.float64) * UNIT_S, high.astype(np.float64) * UNIT_S


BUCKETS = int(bucket_of(np.asarray([LIMIT_US]))[0]) + 1
HIGHEST_S = bucket_edges_s(np.arange(BUCKETS))[1]
"""The longest latency of each bucket, shape (BUCKETS,)."""


@dataclass(frozen=True)  # without slots: `up_to` is kept
class Histogram:
    """Integer counts over the fixed buckets. `kind` says where they came from.

    `counts`: int64, shape (BUCKETS,). `exact`: every latency was counted; `quantiles`: counts were
    laid between printed percentiles, at the upper one, so percentiles between are rounded up.
    """

    counts: npt.NDArray[np.int64]
    kind: Kind

    @staticmethod
    def empty(kind: Kind = "exact") -> Histogram:
        return Histogram(np.zeros(BUCKETS, dtype=np.int64), kind)

    @staticmethod
    def of_values(values_s: npt.ArrayLike) -> Histogram:
        """From single latencies in seconds, shape (n,)."""
        number = bucket_of(np.round(np.asarray(values_s, dtype=np.float64) / UNIT_S))
        return Histogram(np.bincount(number, minlength=BUCKETS).astype(np.int64), "exact")

    @staticmethod
    def of_counts(pairs: Iterable[tuple[float, int]] | npt.NDArray[np.float64], kind: Kind) -> Histogram:
        """From (latency in s, count) pairs, or an array of them, shape (n, 2)."""
        counts = np.zeros(BUCKETS, dtype=np.int64)
        rows = pairs if isinstance(pairs, np.ndarray) else list(pairs)
        table = np.asarray(rows, dtype=np.float64).reshape(-1, 2)
        np.add.at(counts, bucket_of(np.round(table[:, 0] / UNIT_S)), table[:, 1].astype(np.int64))
        return Histogram(counts, kind)

    @staticmethod
    def of_quantiles(points: Iterable[tuple[float, float]], total: int) -> Histogram:
        """From (probability 0…1, latency in s) pairs over `total` requests; the last should be probability 1.

        What lies between two points is counted at the upper one.
        """
        ordered = sorted(points)
        below = [0, *(math.ceil(probability * total - 1e-9) for probability, _ in ordered)]
        steps = zip(ordered, below, below[1:], strict=False)
        return Histogram.of_counts(((value, after - before) for (_, value), before, after in steps), "quantiles")

    @cached_property
    def up_to(self) -> npt.NDArray[np.int64]:
        """How many lie in each bucket or below it, shape (BUCKETS,): every percentile asks for it."""
        return np.cumsum(self.counts)

    @property
    def total(self) -> int:
        return int(self.up_to[-1])

    def merge(self, other: Histogram) -> Histogram:
        kind: Kind = "exact" if self.kind == other.kind == "exact" else "quantiles"
        return Histogram(self.counts + other.counts, kind)

    def quantile_s(self, probability: float) -> float | None:
        """The latency (s) at or below which `probability` of the requests lie: the top of its bucket.

        None when fewer than ten samples lie beyond it, which is too few to show it.
        """
        total = self.total
        if total * (1 - probability) < BEYOND - 1e-9:
            return None
        rank = max(1, math.ceil(probability * total - 1e-9))
        return float(HIGHEST_S[np.searchsorted(self.up_to, rank)])

    @property
    def maximum_s(self) -> float | None:
        """Top of the highest bucket that holds a request; None when there is none."""
        filled = np.flatnonzero(self.counts)
        return float(bucket_edges_s(filled[-1])[1]) if filled.size else None

    @property
    def mean_s(self) -> float | None:
        """Of printed percentiles, what their curve integrates to: between two of them it is taken to be straight. None without a request."""
        if not self.total:
            return None
        filled = np.flatnonzero(self.counts)
        low, high = bucket_edges_s(filled)
        if self.kind == "quantiles":  # what lies between two percentiles was counted at the upper one
            low = np.concatenate([low[:1], high[:-1]])
        return float(np.average((low + high) / 2, weights=self.counts[filled]))
