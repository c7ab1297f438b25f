"""The statistics against known answers, by simulation and by property."""

from collections.abc import Callable
from math import exp, log

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from lab.stats import paired as stats

values = st.floats(1e-6, 1e6)
pairs = st.lists(st.tuples(values, values), min_size=2, max_size=12)
VARIANT = [0.91, 0.95, 0.88, 0.97, 0.90, 0.93, 0.99, 0.86]
BASELINE = [1.02, 0.99, 1.01, 1.03, 0.98, 1.00, 1.05, 0.97]


def split(rows: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in rows], [b for _, b in rows]


def test_the_interval_and_p_value_are_those_of_the_paired_t_test() -> None:
    ours = stats.estimate_ratio(VARIANT, BASELINE)
    theirs = reference.ttest_rel(np.log(VARIANT), np.log(BASELINE))
    interval = theirs.confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high))
    assert ours.p_value == pytest.approx(theirs.pvalue)
    assert ours.ratio == pytest.approx(exp(np.mean(np.log(VARIANT) - np.log(BASELINE))))
    assert (ours.n, ours.notes) == (8, ())


def test_hodges_lehmann_gives_the_textbook_answer() -> None:
    """Hollander & Wolfe, table 3.1 (depression scores): estimate −0.46, interval (−0.786, −0.010) at 96.1 %."""
    x = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    y = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    estimate, low, high = stats.estimate_hodges_lehmann(y - x, 0.95)
    assert estimate == pytest.approx(-0.46, abs=5e-4)
    assert (low, high) == pytest.approx((-0.786, -0.010), abs=5e-4)


@pytest.mark.parametrize("n", [6, 9, 15])
def test_the_distribution_free_interval_inverts_wilcoxons_test(n: int) -> None:
    """Shifts just inside the interval are not rejected by scipy.stats.wilcoxon at 5 %, shifts just outside are; five blocks have none."""
    assert stats.estimate_hodges_lehmann(np.arange(5.0))[1:] == (None, None)
    d = np.random.default_rng(n).normal(0.1, 1, n)
    _, low, high = stats.estimate_hodges_lehmann(d)
    assert low is not None and high is not None
    for shift, kept in ((low - 1e-9, False), (low + 1e-9, True), (high - 1e-9, True), (high + 1e-9, False)):
        p_value = float(np.asarray(reference.wilcoxon(d - shift, method="exact"))[1])
        assert (p_value > 0.05) == kept


def test_holm_gives_the_known_answer() -> None:
    """R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")."""
    assert stats.adjust_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.adjust_by_holm([]) == []
    assert stats.adjust_by_holm([0.9, 0.8]) == [1.0, 1.0]


def test_one_block_has_no_interval_and_five_have_one_that_is_not_shown() -> None:
    one, five = stats.estimate_ratio([2.0], [1.0]), stats.estimate_ratio(VARIANT[:5], BASELINE[:5])
    assert (one.effect, one.low, one.high, one.p_value, one.interval) == (pytest.approx(log(2)), None, None, None, None)
    assert one.notes == five.notes == (stats.NEED_BLOCKS,)
    assert five.low is not None and five.p_value is not None
    assert five.interval is five.ratio_interval is None and not five.has_interval


def test_equal_differences_are_said_and_do_not_divide_by_zero() -> None:
    same = stats.estimate_ratio([3.0] * 6, [3.0] * 6)
    assert (same.effect, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert same.notes == (stats.ALL_EQUAL,)
    tenth = stats.estimate_ratio([1.1, 2.2, 3.3, 4.4, 5.5, 6.6], [1, 2, 3, 4, 5, 6])
    assert tenth.p_value == 0.0 and tenth.low == tenth.high == pytest.approx(log(1.1))


def test_an_outlier_is_flagged_and_hodges_lehmann_stays_near_the_rest() -> None:
    wild = stats.estimate_ratio([1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99, 5.0], [1.0] * 8)
    assert stats.OUTLIERS in wild.notes and abs(wild.hodges_lehmann) < 0.02 < wild.effect
    assert stats.OUTLIERS in stats.estimate_ratio([*[1.0] * 9, 1.5], [1.0] * 10).notes, "with a MAD of zero"


def correlated(n: int, rho: float, runs: int = 2000) -> npt.NDArray[np.float64]:
    """Blocks each of which has so much of the one before, shape (runs, n)."""
    found = np.random.default_rng(n).normal(0, 1, (runs, n))
    for block in range(1, n):
        found[:, block] = rho * found[:, block - 1] + np.sqrt(1 - rho**2) * found[:, block]
    return found


@pytest.mark.parametrize(("n", "strong"), [(6, 0.03), (7, 0.05), (12, 0.2), (40, 0.85)])
def test_blocks_that_are_alike_are_told_and_independent_ones_once_in_100_runs(n: int, strong: float) -> None:
    """`strong`: how often at a correlation of 0.6, of which few blocks can show little."""
    assert np.mean([stats.is_autocorrelated(d) for d in correlated(n, 0.0)]) <= 0.015
    assert np.mean([stats.is_autocorrelated(d) for d in correlated(n, 0.6)]) >= strong
    assert not stats.is_autocorrelated(np.array([0.0, 1, 2, 3, 4])) and not stats.is_autocorrelated(np.ones(12))
    drift = stats.estimate_ratio(np.exp(np.arange(20.0) / 100), np.ones(20))
    assert (
        stats.AUTOCORRELATED in drift.notes
        and stats.AUTOCORRELATED not in stats.estimate_ratio(VARIANT, BASELINE).notes
    )


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), None])
def test_what_is_no_number_or_has_no_logarithm_or_partner_is_refused(bad: float | None) -> None:
    values, good = [] if bad is None else [1.0, bad], [1.0, 2.0]
    refused: list[Callable[[], object]] = [
        lambda: stats.estimate_ratio(values, good),
        lambda: stats.estimate_ratio(good, values),
        lambda: stats.estimate_geometric_mean(values),
    ]
    if bad is None or not np.isfinite(bad):
        refused += [lambda: stats.estimate_difference(values, good), lambda: stats.estimate_median(values)]
    for estimate in refused:
        with pytest.raises(ValueError, match="expected"):
            estimate()


def test_how_far_two_groups_are_apart_is_welchs_test() -> None:
    rng = np.random.default_rng(5)
    for m, n in ((2, 2), (3, 3), (3, 9), (20, 5)):
        first, second = rng.normal(0, 1, m), rng.normal(0.5, 3, n)
        expected = float(np.asarray(reference.ttest_ind(first, second, equal_var=False))[1])
        assert stats.compute_welch_p(first, second) == stats.compute_welch_p(second, first) == pytest.approx(expected)
    assert stats.compute_welch_p([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert stats.compute_welch_p([1.0, 1.0], [2.0, 2.0]) == 0.0
    assert stats.compute_welch_p([1.0], [2.0, 2.1]) is stats.compute_welch_p([1.0, 1.1], []) is None, (
        "one value does not scatter"
    )


@given(pairs, st.floats(1e-3, 1e3))
def test_swapping_gives_the_reciprocal_units_do_not_matter_and_every_interval_holds_its_estimate(
    rows: list[tuple[float, float]], factor: float
) -> None:
    left, right = split(rows)
    one, two = stats.estimate_ratio(left, right), stats.estimate_ratio(right, left)
    assert one.ratio * two.ratio == pytest.approx(1)
    assert one.low == pytest.approx(-(two.high or 0), abs=1e-9)
    assert one.p_value == pytest.approx(two.p_value, abs=1e-9)
    assert one.hodges_lehmann == pytest.approx(-two.hodges_lehmann, abs=1e-9)
    assert one.notes == two.notes
    scaled = stats.estimate_ratio([factor * value for value in left], [factor * value for value in right])
    assert (scaled.effect, scaled.low, scaled.high) == pytest.approx((one.effect, one.low, one.high), abs=1e-9)
    assert one.low is not None and one.high is not None and one.low <= one.effect <= one.high
    if one.hl_low is not None and one.hl_high is not None:
        assert one.hl_low <= one.hodges_lehmann <= one.hl_high


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_keeps_the_order_and_never_lowers(p_values: list[float]) -> None:
    adjusted = stats.adjust_by_holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    ranked = [a for _, a in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


def test_a_level_is_the_geometric_mean_with_the_t_interval_of_the_logarithms() -> None:
    """Against scipy.stats.gmean and the one-sample t interval; t(7) at 95 % is 2.3646 (any table)."""
    found = stats.estimate_geometric_mean(BASELINE)
    logs = np.log(BASELINE)
    assert found.value == pytest.approx(float(reference.gmean(BASELINE)))
    low, high = reference.t.interval(0.95, 7, loc=logs.mean(), scale=reference.sem(logs))
    assert (found.low, found.high) == pytest.approx((exp(low), exp(high)))
    assert found.n == 8 and stats.compute_t_quantile(8) == pytest.approx(2.364624, abs=1e-6)
    few, equal = stats.estimate_geometric_mean([4.0, 1.0, 2.0, 2.0, 2.0]), stats.estimate_geometric_mean([2.0] * 6)
    assert (few.value, few.low, few.high, few.n) == (pytest.approx(2.0), None, None, 5)
    assert (equal.value, equal.low, equal.high) == pytest.approx((2.0, 2.0, 2.0))


def test_a_difference_is_the_paired_t_interval_in_the_values_own_unit() -> None:
    left, right = np.array([0.0, 3, 0, 1, 2, 0, 4]), np.array([12.0, 10, 13, 11, 9, 12, 12])
    found = stats.estimate_difference(left, right)
    expected = reference.ttest_rel(left, right)
    low, high = expected.confidence_interval(0.95)
    assert found.effect == pytest.approx(float(np.mean(left - right)))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.p_value == pytest.approx(expected.pvalue)
    found = stats.estimate_difference([0.0] * 6, [37.0] * 6)
    assert (found.effect, found.interval, found.p_value) == (-37.0, (-37.0, -37.0), 0.0)
    assert stats.ALL_EQUAL in found.notes
    nothing = stats.estimate_difference([0.0] * 6, [0.0] * 6)
    assert (nothing.interval, nothing.p_value) == ((0.0, 0.0), 1.0)


def test_a_middle_is_the_median_with_its_order_statistics() -> None:
    """Ranks as in Hollander & Wolfe's table of the sign test: 1 and 6 of 6, 1 and 8 of 8, 2 and 9 of 10, 6 and 15 of 20.

    Of counts and where values tie just these, else between them and the next.
    """
    for n, (low, high) in {6: (1, 6), 8: (1, 8), 10: (2, 9), 20: (6, 15)}.items():
        counts = stats.estimate_median(np.arange(n, 0, -1))
        assert (counts.value, counts.low, counts.high, counts.n) == ((n + 1) / 2, low, high, n)
        tied = stats.estimate_median([*np.arange(n, 1, -1) / 4, 0.5])
        assert (tied.low, tied.high) == (max(2, low) / 4, high / 4)
        found = stats.estimate_median(np.arange(n, 0, -1) / 4)
        assert found.low is not None and found.high is not None and found.value == (n + 1) / 8
        assert low / 4 < found.low < (low + 1) / 4 and found.low + found.high == pytest.approx((n + 1) / 4)
    few = stats.estimate_median([3.0, 1.0, 2.0])
    assert (few.value, few.low, few.high) == (2.0, None, None)


def test_a_middles_interval_is_the_published_one() -> None:
    """Minitab's help on its 1-Sample Sign: of 12 values ranks 4 and 9 cover 85.40 % (17.5, 18.1), 3 and 10 96.14 % (17.4, 19).

    Interpolated to 95 %: (17.4263, 18.7632).
    """
    found = stats.estimate_median([17.0, 17.2, 17.4, 17.5, 17.6, 17.65, 17.75, 17.8, 18.1, 19.0, 19.2, 19.4])
    assert (found.value, found.low, found.high) == pytest.approx((17.7, 17.4263, 18.7632), abs=5e-5)
