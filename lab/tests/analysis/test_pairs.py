"""What rounds scatter by, and what one pair repeats of it: known answers."""

from __future__ import annotations

import pytest

from lab.analysis.judge.recovery import scatter
from lab.model.pairs import Compared, Way


def compared(number: int, way: Way, repeat: int, percent: float, valid: bool = True) -> Compared:
    return Compared(
        round=number,
        variant="keepalive",
        baseline="baseline",
        point="ceiling",
        way=way,
        repeat=repeat,
        right=bool(number % 2),
        valid=valid,
        detail="" if valid else "dropped: 2 requests",
        log_ratios={"cpu_per_request": percent / 100},
    )


def pair(number: int, first: float, second: float) -> list[Compared]:
    return [compared(number, "slices", 0, first), compared(number, "slices", 1, second)]


def test_a_rounds_scatter_is_told_from_what_a_pair_repeats() -> None:
    """Means 1, 3, 5 %: mean 3, sd 2; within the pairs (±1, ±1, 0): √((2 + 2 + 0) / 3) over one degree of freedom each."""
    found = [*pair(0, 0.0, 2.0), *pair(1, 4.0, 2.0), *pair(2, 5.0, 5.0)]
    (row,) = scatter(found)
    assert (row.way, row.metric, row.rounds) == ("slices", "cpu_per_request", 3)
    assert (row.mean, row.sd) == (pytest.approx(3.0), pytest.approx(2.0))
    assert row.repeat_sd == pytest.approx((4 / 3) ** 0.5)


def test_plain_has_nothing_to_repeat_and_comes_first() -> None:
    found = [*pair(0, 1.0, 1.0), compared(0, "plain", 0, 9.0)]
    assert [(row.way, row.rounds, row.sd, row.repeat_sd) for row in scatter(found)] == [
        ("plain", 1, None, None),
        ("slices", 1, None, 0.0),
    ]


def test_what_did_not_count_is_not_used() -> None:
    """A round whose one repeat did not count has no mean of its own."""
    found = [*pair(0, 1.0, 3.0), compared(1, "slices", 0, 50.0, valid=False), compared(1, "slices", 1, 1.0)]
    assert [(row.rounds, row.mean) for row in scatter(found)] == [(1, pytest.approx(2.0))]
