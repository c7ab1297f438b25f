"""The search for the knee, on simulated systems: it ends, it is as precise as promised, and hiccups do not misplace it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.stats.knee_search import (
    CONFIRMATIONS,
    MAX_TRIALS,
    MAX_UNCLEAR,
    MOST_RPS,
    KneeFound,
    KneeNotFound,
    KneeSearchSettings,
    KneeTrial,
    NextTrial,
    Verdict,
    choose_step,
    simulate_search,
)

FIVE = KneeSearchSettings(100, 0.05)


def holds(threshold: float) -> Callable[[int], Verdict]:
    """A system that passes up to a rate and fails beyond it."""
    return lambda rate: "pass" if rate <= threshold else "fail"


def test_the_ramp_doubles_the_bisection_is_geometric_and_both_sides_are_tried_again() -> None:
    """Known answer: a knee of 1000, to within a quarter."""
    step, trials = simulate_search(KneeSearchSettings(100, 0.25), holds(1000))
    rates = [trial.rate_rps for trial in trials]
    middle = round(sqrt(800 * 1600))
    quarter = round(sqrt(800 * middle))
    assert rates[:4] == [100, 200, 400, 800]
    assert rates[4:6] == [1600, 1600], "what fails is tried again"
    assert rates[6:8] == [middle, middle]
    assert rates[8] == quarter == 951
    assert rates[9:] == [middle] + [quarter] * CONFIRMATIONS, "each end once more"
    assert step == KneeFound(quarter, middle)


@settings(max_examples=100)
@given(
    threshold=st.floats(1, 3_000_000),
    start=st.integers(1, 100_000),
    precision=st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.5]),
)
def test_any_threshold_is_found_within_the_precision(threshold: float, start: int, precision: float) -> None:
    """Wherever the search starts: the knee lies between what passed and what failed, which are as near as promised."""
    step, trials = simulate_search(KneeSearchSettings(start, precision), holds(threshold))
    assert isinstance(step, KneeFound) and step.fails_rps is not None
    assert step.passes_rps <= threshold < step.fails_rps
    assert step.fails_rps <= step.passes_rps * (1 + precision) or step.fails_rps == step.passes_rps + 1
    assert len(trials) <= 80
    confirmed = [trial for trial in trials if trial == KneeTrial(step.passes_rps, "pass")]
    assert len(confirmed) > CONFIRMATIONS, "confirmations are beside the trial that found it"


@settings(max_examples=100)
@given(answers=st.binary(min_size=MAX_TRIALS, max_size=MAX_TRIALS))
def test_it_ends_whatever_happens(answers: bytes) -> None:
    verdicts: tuple[Verdict, ...] = ("pass", "fail", "unclear")
    told = iter(answers)
    step, trials = simulate_search(FIVE, lambda _: verdicts[next(told) % 3])
    assert len(trials) <= MAX_TRIALS
    assert not isinstance(step, NextTrial)
    if step.passes_rps is not None:
        assert KneeTrial(step.passes_rps, "pass") in trials
        assert step.fails_rps is None or step.passes_rps < step.fails_rps
    if step.fails_rps is not None:
        assert KneeTrial(step.fails_rps, "fail") in trials


def flaky(threshold: float, p: float, seed: int) -> Callable[[int], Verdict]:
    """As `holds`, but each trial goes the other way with probability p."""
    chance = random.Random(seed)
    right = holds(threshold)

    def verdict(rate: int) -> Verdict:
        told = right(rate)
        return told if chance.random() >= p else "fail" if told == "pass" else "pass"

    return verdict


def test_hiccups_of_one_trial_in_ten_move_the_knee_little() -> None:
    """Of 200 searches 95 % end within four steps of 5 % of the knee (a chance of 0.27 to lose a confirmation costs one), and all end."""
    near = 0
    for seed in range(200):
        threshold = 100 * 1.37 ** (seed % 20)
        step, _ = simulate_search(FIVE, flaky(threshold, 0.1, seed))
        assert not isinstance(step, NextTrial)
        near += isinstance(step, KneeFound) and threshold / 1.05**4 <= step.passes_rps <= threshold * 1.05
    assert near >= 190, near


@pytest.mark.parametrize("at", range(24))
def test_one_hiccup_wherever_it_comes_moves_the_knee_by_no_more_than_a_step(at: int) -> None:
    """A single trial that goes wrong, in either direction, at any time; only a confirmation's failure may cost a step."""
    count = iter(range(10_000))

    def verdict(rate: int) -> Verdict:
        told = holds(5000)(rate)
        return told if next(count) != at else "fail" if told == "pass" else "pass"

    step, _ = simulate_search(FIVE, verdict)
    assert isinstance(step, KneeFound)
    assert 5000 / 1.05**2 <= step.passes_rps <= 5000


def test_a_failed_confirmation_means_a_step_down() -> None:
    seen: Counter[int] = Counter()

    def verdict(rate: int) -> Verdict:
        seen[rate] += 1
        return "pass" if rate <= 1000 and not (rate > 900 and seen[rate] == 3) else "fail"

    step, trials = simulate_search(FIVE, verdict)
    assert isinstance(step, KneeFound)
    assert step.passes_rps <= 900 < (step.fails_rps or 0)
    assert trials.count(KneeTrial(step.passes_rps, "pass")) == 1 + CONFIRMATIONS


def test_a_knee_below_the_start_is_found_and_a_system_that_never_passes_is_told() -> None:
    assert simulate_search(KneeSearchSettings(1000, 0.05), holds(40))[0] == KneeFound(40, 42)
    assert simulate_search(KneeSearchSettings(1000, 0.05), holds(0))[0] == KneeNotFound(None, 1, "nothing")
    assert simulate_search(KneeSearchSettings(1000, 0.05, least_rps=100), holds(40))[0] == KneeNotFound(
        None, 100, "nothing"
    )
    assert simulate_search(KneeSearchSettings(100, 0.05), holds(1e9))[0] == KneeFound(MOST_RPS, None)


def test_what_cannot_be_told_is_tried_beside_and_then_ends_the_search() -> None:
    """Twice beside it; a third time in a row says that this machine inconclusive. One that failed once bounds what was not resolved."""
    step, trials = simulate_search(FIVE, lambda rate: "pass" if rate <= 400 else "unclear")
    assert step == KneeNotFound(400, None, "unclear")
    assert [trial.rate_rps for trial in trials[-MAX_UNCLEAR:]] == [800, 720, 880]
    count = iter(range(100))
    step, _ = simulate_search(FIVE, lambda rate: "unclear" if next(count) > 4 else holds(1000)(rate))
    assert step == KneeNotFound(800, 1600, "unclear")
    for dark in (800, 1131):  # it can go on beside these
        step, _ = simulate_search(FIVE, lambda rate, dark=dark: "unclear" if rate == dark else holds(1000)(rate))
        assert isinstance(step, KneeFound)
        assert step.passes_rps <= 1000 < (step.fails_rps or 0) <= step.passes_rps * 1.05


def test_confirmations_are_on_fresh_systems_and_trials_that_would_not_have_been_made_count_as_what_they_show() -> None:
    _, known = simulate_search(FIVE, holds(1000))
    for begun in (list[KneeTrial](), known[3:]):
        trials, fresh = list(begun), list[bool]()
        while isinstance(step := choose_step(FIVE, trials), NextTrial):
            fresh.append(step.fresh)
            trials.append(KneeTrial(step.rate_rps, holds(1000)(step.rate_rps)))
        assert isinstance(step, KneeFound) and step.passes_rps <= 1000 < (step.fails_rps or 0)
        if not begun:
            assert fresh == [False] * (len(fresh) - CONFIRMATIONS - 1) + [True] * (CONFIRMATIONS + 1)
