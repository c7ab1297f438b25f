"""One number per block → the two clusters that the numbers fall into, where they do.

A mean of two clusters is a value that no block had, and its interval bounds nothing. Refuses to call one odd value a cluster, and to
split what ordinary noise spreads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

LEAST = 2
"""Values of the smaller cluster: one value that is far away is an outlier."""
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
    at = int(sizes[best])
    lower, upper = x[:at].tolist(), x[at:].tolist()
    if apart[best] < np.log(FACTOR):
        return None
    splits = 2.0 ** (n - 1) - 1 - n
    variance = max(float(((logs - logs.mean()) ** 2).sum() - between[best]) / (n - 2), 1e-24)
    return (lower, upper) if splits * float(special.fdtrc(1, n - 2, between[best] / variance)) <= ALPHA else None
