"""Two clusters of values, and what depends on what was measured before, are found where there are any, and not where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from lab.stats.groups import compute_label_p, compute_shares_p, find_two_clusters


def test_the_two_levels_of_a_committed_run_are_found() -> None:
    """Of aws-a1 in data/reference/aws-a1-quick at its ceiling: no sample had the median that the table printed."""
    rates = [325.0, 55_579.0, 348.0, 58_800.0, 436.0, 61_977.0]
    assert find_two_clusters(rates) == ([325.0, 348.0, 436.0], [55_579.0, 58_800.0, 61_977.0])


@pytest.mark.parametrize(
    "values",
    [
        [100.0, 104.0, 97.0, 93.0, 108.0, 101.0],
        [100.0, 100.1, 100.0, 120.0, 120.1, 120.0],  # they differ by less than a half
        [100.0, 104.0, 97.0, 93.0, 108.0, 1000.0],  # one odd value
        [],
        [1.0, 9.0, 9.0],
        [0.0, 0.0, 5.0, 5.0],
        [1.0, 1.0, np.inf, np.inf],
    ],
)
def test_values_that_vary_as_usual_too_few_and_those_without_a_logarithm_are_one_cluster(values: list[float]) -> None:
    assert find_two_clusters(values) is None


@pytest.mark.parametrize("blocks", [6, 12])
def test_noise_rarely_has_two_clusters(blocks: int) -> None:
    lots = np.random.default_rng(blocks)
    for sd in (0.07, 0.14, 0.34):
        draws = np.exp(sd * lots.normal(size=(300, blocks)))
        assert sum(find_two_clusters(draw.tolist()) is not None for draw in draws) <= 1


def test_the_f_test_is_that_of_scipy() -> None:
    lots = np.random.default_rng(1)
    groups = [lots.normal(size=size) for size in (3, 4, 5)]
    labels = [str(at) for at, group in enumerate(groups) for _ in group]
    want = float(scipy_stats.f_oneway(*groups).pvalue)
    assert compute_label_p(np.concatenate(groups).tolist(), labels) == pytest.approx(want)
    assert compute_label_p([1.0, 2.0, 3.0, 90.0], ["", "", "", "ceiling"]) is None, "one number of a label"
    assert compute_label_p([1.0, 1.0, 2.0, 2.0], ["a", "a", "b", "b"]) is None, "nothing varies"


def test_fishers_exact_test_is_that_of_scipy() -> None:
    """By hand: of 3 hits in groups of 3, 3 and 3, C(9, 3) = 84 tables; all three in one group are 3 of them."""
    for hits, totals in (((13, 0), (13, 17)), ((3, 1), (6, 6)), ((0, 2), (5, 9))):
        table = [[hit, total - hit] for hit, total in zip(hits, totals, strict=True)]
        want = float(scipy_stats.fisher_exact(table)[1])  # pyright: ignore[reportArgumentType, reportUnknownMemberType]
        assert compute_shares_p(hits, totals) == pytest.approx(want)
    assert compute_shares_p((13, 0), (13, 17)) < 1e-8 and compute_shares_p((0, 0), (4, 4)) == 1.0
    assert (compute_shares_p((3, 0, 0), (3, 3, 3)), compute_shares_p((1, 1, 1), (3, 3, 3))) == pytest.approx(
        (3 / 84, 1.0)
    )
