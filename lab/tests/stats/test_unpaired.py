"""Two runs' blocks against each other: known answers, scipy's and counted ones, ties, and by property."""

from itertools import combinations
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from lab.stats import paired as stats
from lab.stats import unpaired

side = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9)
tied = st.lists(st.integers(0, 4), min_size=1, max_size=6)
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]


def counted(other: list[int], base: list[int]) -> float:
    """The p-value from its definition: every way to give the labels, one by one."""
    values = np.array([*other, *base])
    ranks = np.array([np.sum(values < v) + (np.sum(values == v) + 1) / 2 for v in values])
    sums = np.array([ranks[list(chosen)].sum() for chosen in combinations(range(values.size), len(other))])
    return float(np.mean(np.abs(sums - sums.mean()) >= abs(ranks[: len(other)].sum() - sums.mean()) - 1e-9))


def test_shift_interval_and_p_value_are_the_textbooks() -> None:
    """Hollander & Wolfe, table 4.1 (permeability of human chorioamnion): estimate 0.305; R's wilcox.test: p 0.2544 and −0.15 to 0.76."""
    found = unpaired.estimate_unpaired_difference(AT_TERM, EARLY)
    middle, low, high = unpaired.estimate_shift(np.array(AT_TERM), np.array(EARLY))
    assert middle == found.effect == pytest.approx(0.305)
    assert found.p_value == pytest.approx(0.2544, abs=5e-5)
    assert (low, high) == pytest.approx((-0.15, 0.76))
    assert (found.low, found.high, found.n) == (None, None, 5), "five blocks on one side: no interval is shown"


@pytest.mark.parametrize(("m", "n"), [(6, 6), (6, 10), (12, 7), (20, 20), (50, 50)])
def test_without_ties_the_p_value_is_scipys_exact_one(m: int, n: int) -> None:
    rng = np.random.default_rng(m + n)
    other, base = rng.normal(0.5, 1, m), rng.normal(0, 2, n)
    expected = reference.mannwhitneyu(other, base, method="exact").pvalue
    assert unpaired.compute_rank_sum_p(other, base) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_many_blocks_have_the_normal_p_value_with_ties_corrected(ties: bool) -> None:
    rng = np.random.default_rng(4)
    other, base = rng.normal(0.3, 1, 60), rng.normal(0, 1, 55)
    if ties:
        other, base = other.round(), base.round()
    expected = reference.mannwhitneyu(other, base, method="asymptotic").pvalue
    assert unpaired.compute_rank_sum_p(other, base) == pytest.approx(expected, rel=1e-9)
    assert unpaired.compute_rank_sum_p(np.ones(60), np.ones(60)) == 1.0


def test_where_counting_ends_the_normal_answer_is_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    other, base = rng.normal(0.3, 1, 40), rng.normal(0, 1, 60)
    exact = unpaired.compute_rank_sum_p(other, base), unpaired.estimate_shift(other, base)
    monkeypatch.setattr(unpaired, "EXACT_PAIRS", 0)
    unpaired._rank.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert unpaired.compute_rank_sum_p(other, base) == pytest.approx(exact[0], abs=0.002)
    assert unpaired.estimate_shift(other, base) == pytest.approx(exact[1], abs=0.03)
    unpaired._rank.cache_clear()  # pyright: ignore[reportPrivateUsage]


@given(tied, tied)
def test_with_ties_the_p_value_is_counted(other: list[int], base: list[int]) -> None:
    p = unpaired.compute_rank_sum_p(np.array(other, dtype=float), np.array(base, dtype=float))
    assert p == pytest.approx(counted(other, base), rel=1e-9)


@pytest.mark.parametrize(("m", "n"), [(6, 6), (7, 12), (15, 10)])
def test_the_interval_inverts_the_test(m: int, n: int) -> None:
    """Shifts just inside are not rejected by scipy.stats.mannwhitneyu at 5 %, shifts just outside are."""
    rng = np.random.default_rng(m * n)
    other, base = rng.normal(0.1, 1, m), rng.normal(0, 1, n)
    found = unpaired.estimate_unpaired_difference(other, base)
    assert found.low is not None and found.high is not None
    inside, outside = (found.low + 1e-9, found.high - 1e-9), (found.low - 1e-9, found.high + 1e-9)
    for offset, kept in (*((each, True) for each in inside), *((each, False) for each in outside)):
        assert (reference.mannwhitneyu(other - offset, base, method="exact").pvalue > 0.05) == kept


def test_below_six_blocks_on_either_side_there_is_no_interval() -> None:
    few, many = [1.1, 1.2, 1.3, 1.4, 1.5], [float(value) for value in range(1, 21)]
    for sides in ((few, many), (many, few)):
        found = unpaired.estimate_unpaired_ratio(*sides)
        assert (found.n, found.interval, found.hl_low) == (5, None, None)
        assert stats.NEED_BLOCKS in found.notes and found.p_value is not None
    assert unpaired.estimate_unpaired_ratio([1.0, 2.0], [1.0, 4.0]).sd == pytest.approx(log(2) * (1 / 2 + 2) ** 0.5)
    one = unpaired.estimate_unpaired_ratio([2.0], many)
    assert (one.sd, one.p_value, one.n) == (None, None, 1)
    assert unpaired.estimate_unpaired_ratio([*few, 1.6], many).interval is not None


def test_without_spread_the_interval_has_no_width_and_says_so() -> None:
    found = unpaired.estimate_unpaired_ratio([2.0] * 6, [1.0] * 6)
    assert found.interval == pytest.approx((log(2), log(2))) and found.notes == (stats.ALL_EQUAL,)
    assert found.p_value == pytest.approx(2 / 924), "the two most extreme of the ways to choose 6 of 12"
    uneven = unpaired.estimate_unpaired_ratio([2.0] * 6, [1.0] * 7).p_value
    assert uneven == pytest.approx(1 / 1716), "the other end, 6 of the 7 equal ones, is nearer to the mean"
    assert unpaired.estimate_unpaired_ratio([3.0] * 6, [3.0] * 6).p_value == 1.0
    zeros = unpaired.estimate_unpaired_difference([0.0] * 6, [0.0] * 6)
    assert (zeros.interval, zeros.p_value) == ((0.0, 0.0), 1.0)


def test_an_outlier_on_either_side_is_said_and_moves_little() -> None:
    calm, wild = [1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99], [1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 9.0]
    for sides in ((wild, calm), (calm, wild)):
        found = unpaired.estimate_unpaired_ratio(*sides)
        assert stats.OUTLIERS in found.notes and abs(found.effect) < 0.02


@given(side, side, st.floats(1e-2, 1e2))
def test_swapping_the_sides_gives_the_reciprocal_and_units_do_not_matter(
    left: list[float], right: list[float], factor: float
) -> None:
    one, two = unpaired.estimate_unpaired_ratio(left, right), unpaired.estimate_unpaired_ratio(right, left)
    assert one.effect == pytest.approx(-two.effect, abs=1e-9)
    assert one.p_value == pytest.approx(two.p_value, rel=1e-9) if one.p_value else two.p_value is None
    if one.low is not None and two.high is not None:
        assert one.low == pytest.approx(-two.high, abs=1e-9)
        assert one.low <= one.effect <= (one.high or exp(9))
    scaled = unpaired.estimate_unpaired_ratio([factor * value for value in left], [factor * value for value in right])
    assert scaled.effect == pytest.approx(one.effect, abs=1e-9)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_values_are_refused(bad: float) -> None:
    for sides in (([1.0, bad], [1.0]), ([1.0], [1.0, bad])):
        with pytest.raises(ValueError, match="finite"):
            unpaired.estimate_unpaired_ratio(*sides)
    with pytest.raises(ValueError, match=r"shape \(n,\)"):
        unpaired.estimate_unpaired_ratio([], [1.0])
