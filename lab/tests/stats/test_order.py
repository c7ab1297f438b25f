"""What depends on what was measured before is told from what does not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from lab.stats.groups import label_p, shares_p


def test_the_f_test_is_that_of_scipy() -> None:
    lots = np.random.default_rng(1)
    groups = [lots.normal(size=size) for size in (3, 4, 5)]
    labels = [str(at) for at, group in enumerate(groups) for _ in group]
    want = float(scipy_stats.f_oneway(*groups).pvalue)
    assert label_p(np.concatenate(groups).tolist(), labels) == pytest.approx(want)


def test_a_label_with_one_number_is_left_out() -> None:
    assert label_p([1.0, 2.0, 3.0, 90.0], ["", "", "", "ceiling"]) is None
    assert label_p([1.0, 1.0, 2.0, 2.0], ["a", "a", "b", "b"]) is None, "nothing varies"


def test_fishers_exact_test_is_that_of_scipy() -> None:
    for hits, totals in (((13, 0), (13, 17)), ((3, 1), (6, 6)), ((0, 2), (5, 9))):
        table = [[hit, total - hit] for hit, total in zip(hits, totals, strict=True)]
        want = float(scipy_stats.fisher_exact(table)[1])  # pyright: ignore[reportArgumentType, reportUnknownMemberType]
        assert shares_p(hits, totals) == pytest.approx(want)
    assert shares_p((13, 0), (13, 17)) < 1e-8


def test_three_groups_are_one_test() -> None:
    """By hand: of 3 hits in groups of 3, 3 and 3, C(9, 3) = 84 tables; all three in one group are 3 of them."""
    assert shares_p((3, 0, 0), (3, 3, 3)) == pytest.approx(3 / 84)
    assert shares_p((1, 1, 1), (3, 3, 3)) == pytest.approx(1.0)
    assert shares_p((0, 0), (4, 4)) == 1.0
