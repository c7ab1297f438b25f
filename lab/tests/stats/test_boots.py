"""The interval over boots: how often it contains the true effect, that it is never narrower than the fixed-effect one, and its edges."""

from math import log, sqrt

import numpy as np
import pytest

from lab.stats.boots import compute_standard_error, estimate_over_boots, format_boots

BETWEEN = (0.08, 0.095)
"""SD of a ratio from boot to boot, as 13 comparisons that were measured on two boots have it beyond their errors."""
WITHIN = (0.005, 0.01, 0.02)
"""Standard errors of a pair on one boot."""
BLOCKS = 8
TRUTH = log(1.8)


def coverage(boots: int, between: float, within: float, runs: int, seed: int) -> float:
    """The share of intervals that contain the true effect; standard errors are estimated from blocks, as a run has them."""
    rng = np.random.default_rng(seed)
    effects = TRUTH + rng.normal(0, between, (runs, boots)) + rng.normal(0, within, (runs, boots))
    errors = within * np.sqrt(rng.chisquare(BLOCKS - 1, (runs, boots)) / (BLOCKS - 1))
    found = [estimate_over_boots(list(y), list(se)) for y, se in zip(effects, errors, strict=True)]
    return float(np.mean([one.low <= TRUTH <= one.high for one in found]))


def test_from_three_boots_it_contains_the_true_effect_in_93_to_97_of_100() -> None:
    assert 0.93 <= coverage(3, BETWEEN[0], 0.01, 600, 1) <= 0.97


@pytest.mark.long
@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("boots", [2, 3, 4])
def test_10000_references_are_covered_as_promised(boots: int, between: float, within: float) -> None:
    assert 0.94 <= coverage(boots, between, within, 10_000, 2) <= 0.965


def test_it_is_never_narrower_than_the_fixed_effect_interval_and_is_that_one_where_boots_agree() -> None:
    """Hartung and Knapp's would be narrower where they are closer to each other than their errors say."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        errors = rng.uniform(0.005, 0.02, int(rng.integers(2, 6)))
        found = estimate_over_boots(list(rng.normal(0.2, rng.choice([0, 0.01, 0.08]), errors.size)), list(errors))
        assert found.high - found.effect >= 1.95996 / sqrt(float((1 / errors**2).sum())) * (1 - 1e-5)
        assert found.low < found.effect < found.high
    found = estimate_over_boots([0.5, 0.5001, 0.4999], [0.02, 0.02, 0.02])
    assert found.between == 0
    assert found.high - found.low == pytest.approx(2 * 1.95996 * 0.02 / sqrt(3), rel=1e-4)


def test_three_boots_far_apart_are_students_t_of_three_values() -> None:
    """Errors are nothing beside what boots differ by: 4.30 standard deviations over the root of three."""
    values = [0.59, 0.82, 0.70]
    found = estimate_over_boots(values, [1e-6] * 3)
    half = 4.302653 * float(np.std(values, ddof=1)) / sqrt(3)
    assert found.effect == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx((found.effect - half, found.effect + half), rel=1e-4)
    assert found.between == pytest.approx(float(np.std(values, ddof=1)), rel=1e-4)


def test_boots_without_an_error_have_equal_weights() -> None:
    assert estimate_over_boots([32.0, 32.0], [0.0, 0.0]) == estimate_over_boots([32.0, 32.0], [0.0, 1.0])
    found = estimate_over_boots([31.0, 33.0, 32.0], [0.0, 0.0, 0.0])
    assert found.effect == pytest.approx(32)
    assert found.low < 31 < 33 < found.high


def test_numbers_of_boots_in_words_and_standard_errors_of_their_blocks() -> None:
    assert [format_boots(count) for count in range(1, 5)] == ["one boot", "two boots", "three boots", "4 boots"]
    assert compute_standard_error(0.1, 4) == 0.05
    assert compute_standard_error(0.1, 1) is None and compute_standard_error(None, 4) is None
