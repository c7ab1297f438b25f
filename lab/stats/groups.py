"""Tests for groups among numbers: two clusters in a series, and groups by a label such as the previous point.

If values fall into two clusters, their mean is a value that no block had, and its interval bounds nothing. A single odd
value is no cluster, the spread of ordinary noise is not split, and a label with a single number is not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb, prod

import numpy as np
from scipy import special

LEAST_VALUES = 2
"""The smallest number of values in a cluster or with a label: a single value may be an outlier."""
LEAST_CLUSTER_RATIO = 1.5
"""The smallest ratio between the clusters' geometric means.

In the committed runs, each arm with two clusters in rate and CPU time has clusters that differ by a factor of 2 or
more. Gaps below 1.4 occurred in one metric of one run.
"""
CLUSTER_ALPHA = 2e-4
"""The significance level of one arm in one metric at one point.

A whole run with noise of the committed kind has some 40 of them, and shows a false pair of clusters in at most 3 of 1,000 cases
(lab/tests/stats/test_method_simulation.py).
"""


def find_two_clusters(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]] | None:
    """Split values into two clusters, the lower one first; None if a single group explains them.

    The result is also None if the clusters' geometric means differ by less than a factor of LEAST_CLUSTER_RATIO, or if
    there are fewer than four values.

    The best split maximises the sum of squares between two groups of logarithms, and cuts the sorted values in one
    place. The F test of a split fixed beforehand is F = between / (within / (n - 2)) with 1 and n - 2 degrees of
    freedom.

    The best split is chosen among all 2^(n-1) - 1 - n splits into groups of two or more. Its p-value is therefore at
    most that many times the p-value of one split (Bonferroni's inequality). The statistic is that of Engelman &
    Hartigan 1969, Journal of the American Statistical Association 64:1647.

    Args:
        values: One positive, finite number per block (repetition), in any order. If there are other numbers, which have
            no logarithm, the result is None.

    """
    x = np.sort(np.asarray(values, dtype=np.float64))
    n = int(x.size)
    if n < 2 * LEAST_VALUES or not bool(np.all(np.isfinite(x) & (x > 0))):
        return None
    logs = np.log(x)
    sizes = np.arange(LEAST_VALUES, n - LEAST_VALUES + 1)
    sums = np.cumsum(logs)[sizes - 1]
    distances = (float(logs.sum()) - sums) / (n - sizes) - sums / sizes
    between = distances**2 * sizes * (n - sizes) / n
    best = int(between.argmax())
    splits = 2.0 ** (n - 1) - 1 - n
    variance = max(float(((logs - logs.mean()) ** 2).sum() - between[best]) / (n - 2), 1e-24)
    p_value = splits * float(special.fdtrc(1, n - 2, between[best] / variance))
    if distances[best] < np.log(LEAST_CLUSTER_RATIO) or p_value > CLUSTER_ALPHA:
        return None
    return x[: int(sizes[best])].tolist(), x[int(sizes[best]) :].tolist()


def compute_label_p(values: Sequence[float], labels: Sequence[str]) -> float | None:
    """Return the p-value of a one-way analysis of variance: whether means differ by label more than noise explains.

    F = (between / (k - 1)) / (within / (n - k)) with k - 1 and n - k degrees of freedom (Fisher 1925, Statistical
    Methods for Research Workers, chapter VII).

    Args:
        values: One number per block (repetition). It should be a logarithm if the noise is multiplicative.
        labels: The label of each block. Labels with fewer than `LEAST_VALUES` numbers are left out.

    Returns:
        The p-value; None if fewer than two labels remain, or if the numbers within each label are all equal.

    """
    by_label: dict[str, list[float]] = {}
    for value, label in zip(values, labels, strict=True):
        by_label.setdefault(label, []).append(value)
    groups = [np.asarray(group) for group in by_label.values() if len(group) >= LEAST_VALUES]
    if len(groups) < 2:
        return None
    n, grand = sum(group.size for group in groups), float(np.concatenate(groups).mean())
    between = sum(group.size * (float(group.mean()) - grand) ** 2 for group in groups)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    degrees = len(groups) - 1, n - len(groups)
    if within < 1e-24:
        return None
    return float(special.fdtrc(*degrees, between / degrees[0] / (within / degrees[1])))


def compute_shares_p(hits: Sequence[int], totals: Sequence[int]) -> float:
    """Return the two-sided p-value of Fisher's exact test that several groups have the same share of hits.

    With all margins given, the probability that each group i has h_i hits is proportional to the product of C(totals_i,
    h_i) (Freeman & Halton 1951, Biometrika 38:141). The p-value is the probability of all tables that are no more
    likely than the observed one.

    Args:
        hits: The number of hits in each group.
        totals: The size of each group, in the same order.

    """
    all_hits = sum(hits)
    observed_weight = prod(comb(total, hit) for total, hit in zip(totals, hits, strict=True))
    ways = 0
    for later_hits in product(*(range(min(total, all_hits) + 1) for total in totals[1:])):
        first = all_hits - sum(later_hits)
        if 0 <= first <= totals[0]:
            weight = prod(comb(total, hit) for total, hit in zip(totals, (first, *later_hits), strict=True))
            ways += weight if weight <= observed_weight else 0
    return ways / comb(sum(totals), all_hits)
