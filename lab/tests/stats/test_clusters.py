"""Two clusters of values are found where there are two, and not where there is one."""

from __future__ import annotations

import numpy as np
import pytest

from lab.stats.groups import find_two_clusters


def test_the_two_levels_of_a_committed_run_are_found() -> None:
    """Of aws-a1 in data/reference/aws-a1-quick at its ceiling: no sample had the median that the table printed."""
    rates = [325.0, 55_579.0, 348.0, 58_800.0, 436.0, 61_977.0]
    assert find_two_clusters(rates) == ([325.0, 348.0, 436.0], [55_579.0, 58_800.0, 61_977.0])


def test_values_that_vary_as_usual_are_one_cluster() -> None:
    assert find_two_clusters([100.0, 104.0, 97.0, 93.0, 108.0, 101.0]) is None
    assert find_two_clusters([100.0, 100.1, 100.0, 120.0, 120.1, 120.0]) is None, "they differ by less than a half"


def test_one_odd_value_is_no_cluster() -> None:
    assert find_two_clusters([100.0, 104.0, 97.0, 93.0, 108.0, 1000.0]) is None


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 9.0, 9.0], [0.0, 0.0, 5.0, 5.0], [1.0, 1.0, np.inf, np.inf]])
def test_too_few_values_and_values_without_a_logarithm_have_no_clusters(values: list[float]) -> None:
    assert find_two_clusters(values) is None


@pytest.mark.parametrize("blocks", [6, 12])
@pytest.mark.parametrize("sd", [0.07, 0.14, 0.34])
def test_noise_rarely_has_two_clusters(blocks: int, sd: float) -> None:
    lots = np.random.default_rng(blocks)
    assert sum(find_two_clusters(np.exp(sd * lots.normal(size=blocks)).tolist()) is not None for _ in range(500)) <= 1
