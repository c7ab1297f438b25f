"""The fixed buckets: no gap, no overlap, three significant digits, and merging that is addition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.stats.histogram import (
    BUCKETS,
    BUCKETS_PER_DOUBLING,
    LEAST_BEYOND,
    LIMIT_US,
    LINEAR_BUCKETS,
    UNIT_S,
    Histogram,
    compute_bucket_edges_s,
    find_buckets,
)

ALL = np.arange(BUCKETS)
LATENCIES_US = st.lists(st.integers(0, LIMIT_US), max_size=100)


def of_us(values_us: list[int]) -> Histogram:
    return Histogram.of_values(np.asarray(values_us) * UNIT_S)


def test_edges_are_contiguous_start_at_zero_and_are_the_documented_ones() -> None:
    """1 µs up to 2048 µs, then 1024 buckets a doubling, none wider than a thousandth of its value."""
    low, high = (np.round(edge / UNIT_S).astype(int) for edge in compute_bucket_edges_s(ALL))
    assert low[0] == 0
    assert (low[1:] == high[:-1] + 1).all()
    assert low[-1] <= LIMIT_US <= high[-1]
    # `find_buckets` and `compute_bucket_edges_s` are inverses
    assert (find_buckets(low) == ALL).all() and (find_buckets(high) == ALL).all()
    assert (high[:LINEAR_BUCKETS] == low[:LINEAR_BUCKETS]).all()
    assert low[LINEAR_BUCKETS + BUCKETS_PER_DOUBLING] == 2 * low[LINEAR_BUCKETS] == 2 * LINEAR_BUCKETS
    assert ((high - low)[1:] / low[1:]).max() < 1 / BUCKETS_PER_DOUBLING


@given(LATENCIES_US)
def test_every_latency_is_counted_once(values_us: list[int]) -> None:
    assert of_us(values_us).total == len(values_us)
    assert Histogram.of_counts([(value * UNIT_S, 1) for value in values_us], "exact").total == len(values_us)


@given(LATENCIES_US, LATENCIES_US, LATENCIES_US)
def test_merging_is_associative_commutative_and_adds(a: list[int], b: list[int], c: list[int]) -> None:
    one, two, three = of_us(a), of_us(b), of_us(c)
    left, right = one.merge(two).merge(three), three.merge(one.merge(two))
    assert (left.counts == right.counts).all()
    assert (left.counts == of_us(a + b + c).counts).all()
    rough = Histogram.of_counts([], "quantiles")
    assert (left.kind, left.merge(rough).kind, rough.merge(left).kind) == ("exact", "quantiles", "quantiles")


@given(st.lists(st.integers(1, LIMIT_US), min_size=LEAST_BEYOND * 2, max_size=120), st.floats(0, 1))
def test_a_quantile_is_the_order_statistic_within_a_thousandth(values_us: list[int], probability: float) -> None:
    """Never below the exact one, at most 0.1 % above; None with fewer than ten samples beyond."""
    quantile_s = of_us(values_us).quantile_s(probability)
    beyond = len(values_us) * (1 - probability)
    if quantile_s is None:
        assert beyond < LEAST_BEYOND
        return
    assert beyond > LEAST_BEYOND - 1e-6
    exact_s = sorted(values_us)[max(1, math.ceil(probability * len(values_us) - 1e-9)) - 1] * UNIT_S
    assert exact_s * (1 - 1e-9) <= quantile_s <= exact_s * 1.001


def test_a_percentile_needs_ten_samples_beyond_it() -> None:
    """1000 samples show p99 and not p99.9; nothing shows the quantile of nothing."""
    thousand = of_us(list(range(1, 1001)))
    assert thousand.quantile_s(0.99) == pytest.approx(990e-6)
    assert thousand.quantile_s(0.991) is None
    assert Histogram.of_values([]).quantile_s(0.5) is None
    assert Histogram.of_values([]).maximum_s is None


def test_latencies_beyond_the_limit_count_in_the_last_bucket() -> None:
    """A hundred hours are "120 s or more", a clock that ran back is 0, and NaN is nobody's latency."""
    long = Histogram.of_values([360_000.0, math.inf])
    assert long.counts[-1] == long.total == 2
    assert (long.maximum_s or 0) >= LIMIT_US * UNIT_S
    assert Histogram.of_values([-1.0]).counts[0] == 1
    with pytest.raises(ValueError, match="NaN"):
        Histogram.of_values([0.1, math.nan])


@given(st.lists(st.integers(1, LIMIT_US), min_size=1, max_size=100))
def test_quantile_points_keep_the_total_and_round_up(values_us: list[int]) -> None:
    """Counts laid between printed percentiles add up, and no shown percentile is below the exact one's bucket."""
    ordered = sorted(values_us)
    shares = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]
    points = [(share, ordered[math.ceil(share * len(ordered) - 1e-9) - 1] * UNIT_S) for share in shares]
    histogram = Histogram.of_quantiles(points, len(ordered))
    assert (histogram.total, histogram.kind) == (len(ordered), "quantiles")
    for share in (0.1, 0.3, 0.5):
        shown_s = histogram.quantile_s(share)
        exact_s = ordered[math.ceil(share * len(ordered) - 1e-9) - 1] * UNIT_S
        assert shown_s is None or shown_s >= exact_s * (1 - 1e-9)
