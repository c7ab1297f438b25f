"""Latency histograms with fixed log-linear buckets, so that merging two of them is addition.

The layout is that of HdrHistogram with three significant digits: buckets of 1 µs up to 2048 µs, and from there 1024 buckets for
every doubling, up to 120 s. A longer latency counts in the last bucket, and `maximum_s` then returns 120 s, which means "120 s or
more". Percentiles are never averaged: they come from merged counts only.
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
"""The width of the narrowest bucket in seconds."""
LINEAR_BUCKETS = 2048
"""The number of buckets that are one unit wide; also the first value whose bucket is two units wide."""
BUCKETS_PER_DOUBLING = LINEAR_BUCKETS // 2
"""The number of buckets per doubling beyond `LINEAR_BUCKETS`."""
LIMIT_US = 120_000_000
"""The longest latency that has a bucket, in µs; longer ones count in the same bucket."""
LEAST_BEYOND = 10
"""The number of samples that must lie beyond a percentile for it to be shown (README, "How to read a table", 4)."""

Kind = Literal["exact", "quantiles"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def find_buckets(value_us: npt.ArrayLike) -> Ints:
    """Return the bucket numbers of latencies, as an array of the same shape.

    Negative latencies count as 0, those longer than 120 s as 120 s.

    Args:
        value_us: The latencies in µs.

    Raises:
        ValueError: A latency is NaN.

    """
    latency = np.asarray(value_us, dtype=np.float64)
    if np.isnan(latency).any():
        raise ValueError("a latency is NaN")
    value = np.clip(latency, 0, LIMIT_US).astype(np.int64)
    shift = np.zeros_like(value)
    large = value >= LINEAR_BUCKETS
    shift[large] = np.floor(np.log2(value[large])).astype(np.int64) - 10  # log2(BUCKETS_PER_DOUBLING) == 10
    return np.where(
        large, LINEAR_BUCKETS + (shift - 1) * BUCKETS_PER_DOUBLING + (value >> shift) - BUCKETS_PER_DOUBLING, value
    )


def compute_bucket_edges_s(bucket: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the lowest and the highest latency of each given bucket, as two arrays in seconds.

    Both ends are whole µs and belong to the bucket.
    """
    number = np.asarray(bucket, dtype=np.int64)
    shift = np.maximum((number - LINEAR_BUCKETS) // BUCKETS_PER_DOUBLING + 1, 0)
    low = np.where(
        number < LINEAR_BUCKETS,
        number,
        ((number - LINEAR_BUCKETS) % BUCKETS_PER_DOUBLING + BUCKETS_PER_DOUBLING) << shift,
    )
    high = low + (np.int64(1) << shift) - 1
    return low.astype(np.float64) * UNIT_S, high.astype(np.float64) * UNIT_S


BUCKETS = int(find_buckets(np.asarray([LIMIT_US]))[0]) + 1
"""The number of buckets."""
HIGHEST_S = compute_bucket_edges_s(np.arange(BUCKETS))[1]
"""The longest latency of each bucket in seconds, shape (BUCKETS,)."""


@dataclass(frozen=True)  # without slots, which would forbid the cached property `up_to`
class Histogram:
    """A latency histogram: integer counts over fixed buckets, and where the counts came from.

    Attributes:
        counts: The requests in each bucket, int64, shape (BUCKETS,).
        kind: `exact` if every latency was counted. `quantiles` if the counts were derived from percentiles that a
            program printed. Requests between two printed percentiles then count at the upper one, so percentiles
            between the two are rounded up.

    """

    counts: Ints
    kind: Kind

    @staticmethod
    def of_values(values_s: npt.ArrayLike) -> Histogram:
        """Build an exact latency histogram from single latencies in seconds, shape (n,)."""
        number = find_buckets(np.round(np.asarray(values_s, dtype=np.float64) / UNIT_S))
        return Histogram(np.bincount(number, minlength=BUCKETS).astype(np.int64), "exact")

    @staticmethod
    def of_counts(pairs: Iterable[tuple[float, int]] | Floats, kind: Kind) -> Histogram:
        """Build a latency histogram from latencies and the number of requests with each latency.

        Args:
            pairs: Pairs of a latency in seconds and a count, or an array of such pairs, shape (n, 2).
            kind: `exact`, or `quantiles` if the counts were derived from printed percentiles.

        """
        counts = np.zeros(BUCKETS, dtype=np.int64)
        rows = pairs if isinstance(pairs, np.ndarray) else list(pairs)
        table = np.asarray(rows, dtype=np.float64).reshape(-1, 2)
        np.add.at(counts, find_buckets(np.round(table[:, 0] / UNIT_S)), table[:, 1].astype(np.int64))
        return Histogram(counts, kind)

    @staticmethod
    def of_quantiles(points: Iterable[tuple[float, float]], total: int) -> Histogram:
        """Build a latency histogram from the percentiles that a program printed.

        The requests between two percentiles count at the upper one.

        Args:
            points: Pairs of a probability (0 to 1) and a latency in seconds, in any order; the last should have probability 1.
            total: The number of requests that the percentiles describe.

        """
        ordered = sorted(points)
        ranks = [0, *(math.ceil(probability * total - 1e-9) for probability, _ in ordered)]
        steps = zip(ordered, ranks, ranks[1:], strict=False)
        return Histogram.of_counts(((value, after - before) for (_, value), before, after in steps), "quantiles")

    @cached_property
    def up_to(self) -> Ints:
        """The cumulative counts of this histogram: the requests in each bucket and all lower ones, shape (BUCKETS,).

        Every percentile is computed from these counts.
        """
        return np.cumsum(self.counts)

    @property
    def total(self) -> int:
        """The number of requests in this latency histogram."""
        return int(self.up_to[-1])

    def merge(self, histogram: Histogram) -> Histogram:
        """Return the sum of two histograms; it is `exact` only if both are."""
        kind: Kind = "exact" if self.kind == histogram.kind == "exact" else "quantiles"
        return Histogram(self.counts + histogram.counts, kind)

    def quantile_s(self, probability: float) -> float | None:
        """Return a percentile of the latencies in seconds, rounded up to the top of its bucket.

        Args:
            probability: The share of requests (0 to 1) that take no longer.

        Returns:
            The latency; None if fewer than `LEAST_BEYOND` requests lie beyond it, which are too few to know it.

        """
        total = self.total
        if total * (1 - probability) < LEAST_BEYOND - 1e-9:
            return None
        rank = max(1, math.ceil(probability * total - 1e-9))
        return float(HIGHEST_S[np.searchsorted(self.up_to, rank)])

    @property
    def maximum_s(self) -> float | None:
        """The longest latency in seconds: the top of this histogram's highest filled bucket; None without a request."""
        filled = np.flatnonzero(self.counts)
        return float(compute_bucket_edges_s(filled[-1])[1]) if filled.size else None

    @property
    def mean_s(self) -> float | None:
        """The mean latency of this histogram's requests in seconds; None without a request.

        For counts from printed percentiles, it is the integral of the curve through them, with straight lines between
        neighbours.
        """
        if not self.total:
            return None
        filled = np.flatnonzero(self.counts)
        low, high = compute_bucket_edges_s(filled)
        if self.kind == "quantiles":  # requests between two percentiles were counted at the upper one
            low = np.concatenate([low[:1], high[:-1]])
        return float(np.average((low + high) / 2, weights=self.counts[filled]))
