"""Levels of scatter: known answers, and intervals that cover as they say."""

from __future__ import annotations

import numpy as np
import pytest

from lab.stats.components import estimate_components


def test_a_table_that_was_reckoned_by_hand() -> None:
    """Two bring-ups of two generations, twice each: mean squares 32, 4 and 0.5."""
    found = estimate_components([[[0.5, -0.5], [2.5, 1.5]], [[4.5, 3.5], [6.5, 5.5]]])
    assert found.repeat is not None and found.generation is not None and found.bring_up is not None
    assert found.repeat.sd**2 == pytest.approx(0.5)
    assert found.generation.sd**2 == pytest.approx((4 - 0.5) / 2)
    assert found.bring_up.sd**2 == pytest.approx((32 - 4) / 4)
    assert (found.repeat.degrees, found.generation.degrees, found.bring_up.degrees) == (4, 2, 1)
    low, high = (4 * 0.5 / chi for chi in (11.143287, 0.484419))  # χ², four degrees, any table
    assert (found.repeat.low**2, found.repeat.high**2) == (pytest.approx(low, rel=1e-4), pytest.approx(high, rel=1e-4))
    found = estimate_components([[[1.0, -1.0], [1.0, -1.0]]] * 2)  # nothing differs beyond the levels below
    assert found.generation is not None and found.bring_up is not None
    assert found.generation.sd == found.generation.low == found.bring_up.sd == 0.0


@pytest.mark.parametrize(
    ("shape", "told"),
    [((6, 4, 1), "generation"), ((6, 1, 2), "repeat"), ((1, 1, 1), ""), ((1, 8, 2), "repeat generation")],
)
def test_a_level_that_was_not_repeated_is_not_told(shape: tuple[int, int, int], told: str) -> None:
    found = estimate_components(np.random.default_rng(1).normal(size=shape))
    assert {name for name in ("repeat", "generation") if getattr(found, name) is not None} == set(told.split())
    assert (found.bring_up is not None) is (shape[0] > 1)


@pytest.mark.parametrize(
    ("repeat", "generation", "bring_up"),
    [(0.9, 5.0, 0.0), (1.0, 1.0, 1.0), (1.0, 0.0, 2.0)],
    ids=["jit", "even", "two"],
)
def test_intervals_cover_as_they_say(repeat: float, generation: float, bring_up: float) -> None:
    """400 simulated runs of 8 bring-ups, 4 generations, 2 repeats: each level's true value lies in 93 of 100 intervals or more."""
    lots, runs, shape = np.random.default_rng(7), 400, (8, 4, 2)
    truth = {"repeat": repeat, "generation": generation, "bring_up": bring_up}
    covered, means = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0.0)
    for _ in range(runs):
        values = (
            lots.normal(0, repeat, shape) + lots.normal(0, generation, (8, 4, 1)) + lots.normal(0, bring_up, (8, 1, 1))
        )
        found = estimate_components(values)
        for name, sd in truth.items():
            one = getattr(found, name)
            covered[name] += one.low <= sd <= one.high
            means[name] += one.sd**2 / runs
    assert min(covered.values()) >= 0.93 * runs, covered
    assert all(means[name] == pytest.approx(sd**2, rel=0.15) for name, sd in truth.items() if sd)
