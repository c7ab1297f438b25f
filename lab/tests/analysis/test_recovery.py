"""What pairs recover of known costs, and what a baseline against itself scatters by: known answers from made comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from math import log1p

import numpy as np
import pytest

from lab.analysis.judge import rulings
from lab.analysis.judge.rulings import least_slope, list_committed_noise, recovers
from lab.model.pairs import REPEATS, Compared, Way

DOSES = {"small": 2.0, "medium": 4.0, "slope": 80.0}
PER_DOSE = 0.01
"""What a unit of dose adds to the CPU time of a request: a fraction."""


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    recovers.cache_clear()
    yield
    recovers.cache_clear()


def compared(
    way: Way, variant: str, dose: float, round_: int, *log_ratios: float, valid: bool = True
) -> list[Compared]:
    """`log_ratios`: one for each repeat, or one for all."""
    of = {"variant": variant, "dose": dose, "baseline": "extra-work", "point": "ceiling", "way": way, "valid": valid}
    told = [{"cpu_per_request": log_ratios[at % len(log_ratios)]} for at in range(1 if way == "plain" else REPEATS)]
    return [
        Compared.model_validate({**of, "round": round_, "repeat": at, "right": False, "detail": "", "log_ratios": each})
        for at, each in enumerate(told)
    ]


def made(share: float = 1.0, noise: float = 0.0, rounds: int = 8, way: Way = "slices") -> list[Compared]:
    """Known costs as the arms alone show them whole, and pairs a `share` of them; `noise` of one round's log-ratio."""
    rng = np.random.default_rng(11)
    parts: tuple[tuple[Way, float], ...] = ((way, share), ("plain", 1.0))
    return [
        one
        for variant, dose in DOSES.items()
        for round_ in range(rounds)
        for each, part in parts
        for one in compared(each, variant, dose, round_, log1p(part * dose * PER_DOSE) + float(rng.normal(0, noise)))
    ]


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0, 1.1])
def test_what_pairs_show_of_a_known_cost_is_the_slope(share: float) -> None:
    assert least_slope(made(share), "cpu_per_request", "slices") == pytest.approx(share)


def test_what_is_told_is_the_lower_limit() -> None:
    few, many = (least_slope(made(0.9, 0.02, rounds), "cpu_per_request", "slices") for rounds in (6, 60))
    assert few is not None and many is not None and few <= 0.9 and 0.85 < many <= 0.9
    assert many == least_slope(made(0.9, 0.02, 60), "cpu_per_request", "slices")


def test_what_does_not_count_is_not_in_it() -> None:
    whole = made(noise=0.02)
    others = [
        *compared("slices", "slope", 80.0, 1, 5.0, valid=False),
        *compared("together", "slope", 80.0, 1, 5.0),
        *compared("slices", "keepalive", 0.0, 1, 5.0),
    ]
    found, wanted = (least_slope(each, "cpu_per_request", "slices") for each in ([*whole, *others], whole))
    assert found == wanted


def test_without_both_ways_and_two_rounds_there_is_no_slope() -> None:
    plain, pairs = ([one for one in made() if (one.way == "plain") is each] for each in (True, False))
    for found in ([], plain, pairs, made(rounds=1)):
        assert least_slope(found, "cpu_per_request", "slices") is None
    assert least_slope(made(), "p99", "slices") is None, "a metric that was not measured"


@pytest.mark.parametrize(
    ("share", "noise", "believed"), [(1.0, 0.001, True), (0.79, 0.001, False), (0.9, 1.0, False), (0.81, 0.0, True)]
)
def test_a_pair_is_believed_where_the_slopes_lower_limit_is_four_fifths(
    share: float, noise: float, believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rulings, "read_pairs", lambda: tuple(made(share, noise)))
    assert recovers("cpu_per_request", "slices") is believed
    assert not recovers("cpu_per_request", "together") and not recovers("p99", "slices")


def test_a_baseline_against_itself_scatters_as_one_measurement_of_a_pair_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-ratios: rounds of −1, 0 and 1 % scatter by 0.01, alone and without a scheme; pairs with means of 1, 3 and 5 % by 2 %, and one
    of two repeats by half of their variance more: (2 + 2 + 0) / 3. Known costs are no scatter, nor is a round that did not count whole.
    """
    pairs = ((0.0, 0.02), (0.04, 0.02), (0.05, 0.05))
    itself = [
        *(one for round_ in range(3) for one in compared("plain", "extra-work", 0.0, round_, (round_ - 1) / 100)),
        *(one for round_, both in enumerate(pairs) for one in compared("slices", "extra-work", 0.0, round_, *both)),
        *compared("slices", "extra-work", 0.0, 9, 0.5)[:1],
        *compared("slices", "extra-work", 0.0, 9, 0.5, valid=False)[1:],
    ]
    monkeypatch.setattr(rulings, "read_pairs", lambda: (*itself, *made()))
    found = list(list_committed_noise())
    assert {(one.metric, one.rounds) for one in found} == {("cpu_per_request", 3)}
    assert [one.scheme for one in found] == [None, "slices"]
    assert [one.sd for one in found] == pytest.approx([0.01, (4 + 4 / 3 / 2) ** 0.5 / 100])
