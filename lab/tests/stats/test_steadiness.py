"""The change within a sample: known answers, ordinary noise that is none, and falls that are found at any second."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.stats.steadiness import CPU_FACTOR, RATE_FACTOR, SampleSeconds, Shift, find_change, find_shift
from lab.tests.support.steadiness_series import simulate_sample, simulate_seconds


def seconds(rates: list[float], costs: list[float] | None = None) -> SampleSeconds:
    """Seconds of a sample with these rates and, unless None, these CPU times per request."""
    rate = np.array(rates)
    cpu_s = None if costs is None else rate * np.array(costs)
    length_s = np.ones(len(rate))
    return SampleSeconds(np.cumsum(length_s), length_s, rate, cpu_s)


def test_the_fall_of_port_wait_is_found_after_two_seconds() -> None:
    """Of data/reference/port-wait, 0042-b07-ports-1024-65000-wait: backend CPU per second, and the proxy's for each of it."""
    found = find_change(seconds([0.521, 0.465, 0.015, 0.013, 0.016, 0.015], [1.8, 2.1, 65, 76, 63, 67]))
    assert found is not None and found.rate and found.cpu
    assert found.at_s == 2 and found.work_before == pytest.approx(0.493) and found.work_after == pytest.approx(0.01475)
    assert found.cpu_before == pytest.approx(1.94, abs=0.01) and found.cpu_after == pytest.approx(67.5, abs=0.5)


@pytest.mark.parametrize(
    ("rates", "shift"),
    [
        ([100, 100, 50, 50], Shift(2, 2)),
        ([100, 30, 31, 30], Shift(1, 1)),  # the first second included
        ([100, 100, 100, 40], Shift(3, 3)),  # and the last
        ([100, 100, 63, 40, 40], Shift(2, 3)),  # 63 is the transition
        ([100, np.nan, 100, np.nan, 10, 10], Shift(3, 4)),  # what is not known belongs to neither part
        ([100, 100, 40, 100, 100], None),  # one slow second
        ([100, 40, 100, 40, 100], None),
        ([100, 95, 104, 99], None),
        ([100], None),
        ([], None),
    ],
)
def test_a_change_is_lasting(rates: list[float], shift: Shift | None) -> None:
    assert find_shift(np.array(rates, dtype=float), 1.6) == shift


def test_requests_that_become_dearer_are_a_change_and_a_rate_that_is_given_is_not_judged() -> None:
    found = find_change(seconds([100, 101, 99, 100], [1, 1, 3, 3]))
    assert found is not None and found.cpu and not found.rate and found.at_s == 2
    rates = [1000.0, 1000, 400, 400]
    assert find_change(seconds(rates), judge_rate=False) is None
    assert find_change(seconds(rates, [1, 1, 3, 3]), judge_rate=False, start_up=1) is not None
    assert find_change(seconds(rates, [1, 3, 3, 3]), judge_rate=False, start_up=1) is None
    # a first second that is slower is the load's beginning
    assert find_change(seconds([10, 60, 62, 61], [28, 3, 2, 3])) is None
    assert find_change(seconds([10, 10, 62, 61], [28, 28, 2, 3])) is not None
    # too little work tells nothing
    assert find_change(seconds([0.004, 0.004, 0.001, 0.001]), least_work=0.005) is None
    assert find_change(seconds([0.4, 0.4, 0.001, 0.001]), least_work=0.005) is not None


@given(
    st.integers(2, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))),
    st.sampled_from([(0.5, 1.0), (1.0, 3.0), (0.5, 3.0), (0.3, 1.0)]),
    st.integers(0, 2**32 - 1),
)
def test_a_fall_is_found_at_any_second(place: tuple[int, int], sizes: tuple[float, float], seed: int) -> None:
    """Half the rate, three times the CPU time per request, or both, with the noise of committed samples."""
    many, at = place
    (rate, cost), generator = sizes, np.random.default_rng(seed)
    found = find_change(simulate_seconds(generator, many, change_at=at, rate_factor=rate, cost_factor=cost))
    assert found is not None and found.at_s == at


@given(st.lists(st.floats(0.8, 1.25), min_size=1, max_size=30), st.lists(st.floats(0.7, 1.5), min_size=30, max_size=30))
def test_no_noise_within_the_factors_is_a_change(rates: list[float], costs: list[float]) -> None:
    assert RATE_FACTOR > 1.25 / 0.8 and CPU_FACTOR > 1.5 / 0.7
    assert find_change(seconds(rates, costs[: len(rates)])) is None


def test_of_two_thousand_ordinary_samples_none_is_flagged_and_falls_are() -> None:
    """Far below the ten runs of a thousand that all tests together may flag: a run has some hundred samples."""
    generator = np.random.default_rng(38)
    ordinary = [find_change(simulate_sample(generator)) for _ in range(2_000)]
    assert sum(found is not None for found in ordinary) == 0
    fallen = [find_change(simulate_sample(generator, drifting=True)) for _ in range(300)]
    assert sum(found is not None for found in fallen) >= 290
