"""The one rule of decision: what is the same, what is better or worse, what nobody can tell, and that nothing else decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis.judge.decision import (
    ALPHA,
    Decision,
    Thresholds,
    adjust_p_values,
    compute_noise_floor,
    decide,
    to_log_margin,
)
from lab.stats import paired as stats

BASE = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99]
FASTER = stats.estimate_ratio([0.8 * value * (1 + step / 1000) for step, value in enumerate(BASE)], BASE)
"""About −20 %, with a narrow interval."""
TWO = Thresholds(to_log_margin(0.02))


@pytest.mark.parametrize("more_is_better", [True, False])
def test_less_is_worse_where_more_is_better_and_a_sign_needs_a_p(more_is_better: bool) -> None:
    found = decide(FASTER, TWO, ALPHA, more_is_better=more_is_better)
    assert found is (Decision.WORSE if more_is_better else Decision.BETTER) and found.resolved and found.judged
    for adjusted_p in (None, ALPHA + 1e-9):
        found = decide(FASTER, TWO, adjusted_p, more_is_better=more_is_better)
        assert found is Decision.INCONCLUSIVE and found.judged and not found.resolved


def test_what_lies_within_the_worth_is_the_same_whatever_its_sign() -> None:
    assert FASTER.interval is not None
    far = max(map(abs, FASTER.interval))
    for adjusted_p in (0.0, 1.0, None):
        assert decide(FASTER, Thresholds(far), adjusted_p, more_is_better=False) is Decision.EQUIVALENT
    assert decide(FASTER, Thresholds(far * 0.999), 0.0, more_is_better=False) is Decision.BETTER


def test_same_is_not_said_where_it_cannot_be_known() -> None:
    assert decide(FASTER, Thresholds(1.0, may_be_equivalent=False), 1.0, more_is_better=False) is Decision.INCONCLUSIVE
    assert decide(FASTER, Thresholds(1.0, noise_floor=1.1), 0.0, more_is_better=False) is Decision.INCONCLUSIVE
    for size in (Thresholds(1.0), TWO):
        assert decide(FASTER, size, 1.0, more_is_better=False, bound=True) is Decision.NOT_JUDGED
    assert decide(FASTER, TWO, 0.0, more_is_better=False, bound=True) is Decision.BETTER


def test_the_guard_is_the_far_end_of_an_interval_that_excludes_nothing_and_nothing_smaller_is_claimed() -> None:
    apart = stats.estimate_ratio([1.05 * value * (1 + step / 1000) for step, value in enumerate(BASE)], BASE)
    assert apart.interval is not None and compute_noise_floor(apart) == apart.interval[1] > 0
    assert compute_noise_floor(stats.estimate_ratio(BASE[::-1], BASE)) == 0.0
    assert compute_noise_floor(stats.estimate_ratio([2.0] * 5, [1.0] * 5)) == 0.0, "five blocks have no interval"
    assert compute_noise_floor(None) == 0.0
    for guard, word in ((-FASTER.effect, Decision.INCONCLUSIVE), (-FASTER.effect - 1e-9, Decision.BETTER)):
        assert decide(FASTER, Thresholds(0.0, noise_floor=guard), 0.0, more_is_better=False) is word


def test_nothing_is_decided_without_an_interval() -> None:
    few = decide(stats.estimate_ratio(BASE[:5], BASE[1:]), TWO, 0.0, more_is_better=False, bound=True)
    assert few is Decision.NO_INTERVAL and not few.judged


@given(st.lists(st.floats(-0.5, 0.5), min_size=6, max_size=20), st.floats(0, 1), st.floats(0, 0.3), st.floats(0, 0.3))
def test_a_word_follows_from_two_facts(logs: list[float], p_value: float, margin: float, guard: float) -> None:
    estimate = stats.estimate_difference(logs, [0.0] * len(logs))
    mirrored = stats.estimate_difference([-each for each in logs], [0.0] * len(logs))
    words = [
        decide(each, Thresholds(margin, guard), p_value, more_is_better=more)
        for each, more in ((estimate, True), (mirrored, False))
    ]
    assert words[0] is words[1]
    assert estimate.interval is not None
    if words[0] is Decision.EQUIVALENT:
        assert all(abs(end) <= margin for end in estimate.interval)
    if words[0].resolved:
        assert p_value <= ALPHA and abs(estimate.effect) > guard


def test_holm_is_over_what_has_a_p() -> None:
    assert adjust_p_values([0.01, None, 0.04, 0.03, None, 0.005]) == [
        None if p is None else pytest.approx(p) for p in (0.03, None, 0.06, 0.06, None, 0.02)
    ]
    assert adjust_p_values([None]) == [None]
