"""Numbers that fall into groups: the two clusters that they make by themselves, and groups by a label, such as what was measured before.

A mean of two clusters is a value that no block had, and its interval bounds nothing. Refuses to call one odd value a cluster, to split
what ordinary noise spreads, and to compare a label that has only one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb, prod

import numpy as np
from scipy import special

LEAST = 2
"""Values of a cluster, and numbers of a label that is compared: one alone may be an outlier."""
FACTOR = 1.5
"""The clusters' geometric means differ by at least this. In the committed runs every arm that has two clusters in rate and CPU time
differs by a factor of 2 or more; gaps below 1.4 were in one metric of one run."""
ALPHA = 2e-4
"""Significance level of one arm in one metric at one point, so that a whole run with noise of the committed kind (some 40 of them)
has a false pair of clusters in at most 3 of 1,000 (lab/tests/stats/test_method_simulation.py)."""


def find_two_clusters(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]] | None:
    """Split values into two clusters, the lower first, or return None where one cluster explains them.

    The best split in two groups is that with the largest sum of squares between them, on logarithms; it cuts the sorted values in
    one place. The F test of a split fixed beforehand is F = between / (within / (n - 2)) with 1 and n - 2 degrees of freedom; the best
    one is the largest over all 2^(n-1) - 1 - n splits into groups of two or more, so that its p-value is at most as many times
    that of one (Bonferroni's inequality; Engelman & Hartigan 1969, Journal of the American Statistical Association 64:1647, have
    the statistic). `values`: a positive, finite number per block, in any order; others have no logarithm: None.
    """
    x = np.sort(np.asarray(values, dtype=np.float64))
    n = int(x.size)
    if n < 2 * LEAST or not bool(np.all(np.isfinite(x) & (x > 0))):
        return None
    logs = np.log(x)
    sizes = np.arange(LEAST, n - LEAST + 1)
    sums = np.cumsum(logs)[sizes - 1]
    apart = (float(logs.sum()) - sums) / (n - sizes) - sums / sizes
    between = apart**2 * sizes * (n - sizes) / n
    best = int(between.argmax())
    if apart[best] < np.log(FACTOR):
        return None
    splits = 2.0 ** (n - 1) - 1 - n
    variance = max(float(((logs - logs.mean()) ** 2).sum() - between[best]) / (n - 2), 1e-24)
    if splits * float(special.fdtrc(1, n - 2, between[best] / variance)) > ALPHA:
        return None
    return x[: int(sizes[best])].tolist(), x[int(sizes[best]) :].tolist()


def label_p(values: Sequence[float], labels: Sequence[str]) -> float | None:
    """Return the p-value of one-way analysis of variance: do the means differ by label more than the numbers within one do?

    F = (between / (k - 1)) / (within / (n - k)) with k - 1 and n - k degrees of freedom (Fisher 1925, Statistical Methods for Research
    Workers, chapter VII). `values`: one per block, logarithms where noise multiplies. Labels with fewer than LEAST numbers are left out.
    None where fewer than two remain, or the numbers within them do not vary.
    """
    groups: dict[str, list[float]] = {}
    for value, label in zip(values, labels, strict=True):
        groups.setdefault(label, []).append(value)
    kept = [np.asarray(group) for group in groups.values() if len(group) >= LEAST]
    if len(kept) < 2:
        return None
    n, grand = sum(group.size for group in kept), float(np.concatenate(kept).mean())
    between = sum(group.size * (float(group.mean()) - grand) ** 2 for group in kept)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in kept)
    degrees = len(kept) - 1, n - len(kept)
    if within < 1e-24:
        return None
    return float(special.fdtrc(*degrees, between / degrees[0] / (within / degrees[1])))


def shares_p(hits: Sequence[int], totals: Sequence[int]) -> float:
    """Return the p-value of Fisher's exact test that several groups have one share of hits (two-sided; Freeman & Halton 1951).

    With all margins given, group i has h_i hits with a probability in proportion to the product of C(totals_i, h_i) (Biometrika
    38:141). The p-value is the probability of all tables that are no more likely than the one that was seen.
    """
    every = sum(hits)
    weight = prod(comb(total, hit) for total, hit in zip(totals, hits, strict=True))
    ways = 0
    for others in product(*(range(min(total, every) + 1) for total in totals[1:])):
        first = every - sum(others)
        if 0 <= first <= totals[0]:
            each = prod(comb(total, hit) for total, hit in zip(totals, (first, *others), strict=True))
            ways += each if each <= weight else 0
    return ways / comb(sum(totals), every)
