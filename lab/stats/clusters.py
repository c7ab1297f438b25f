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
"""The clusters' geometric means differ by at least this. Blocks of one arm have a coefficient of variation of 3 to 15 % (closed loops) in
the committed runs, and no arm there whose values fall apart by less than 1.5 has two clusters in a second metric or run too."""
ALPHA = 1e-3
"""Significance level of one arm in one metric at one point. The bound below is conservative and FACTOR rules out most of the
rest: over a whole run with noise of the committed kind about 2 in 1,000 have a false pair of clusters anywhere."""
NOISE_DF = 4
"""How many degrees of freedom a noise known from other arms counts for at most: arms differ in how much they vary."""


def find_two_clusters(
    values: Sequence[float], noise_sd: float | None = None
) -> tuple[Sequence[float], Sequence[float]] | None:
    """Split values into two clusters, the lower first, or return None where one cluster explains them.

    The best split in two groups is that with the largest sum of squares between them, on logarithms; it cuts the sorted values in
    one place. The F test of a split fixed beforehand is F = between / (within / (n - 2)) with 1 and n - 2 degrees of freedom; the best
    one is the largest over all 2^(n-1) - 1 - n splits into groups of two or more, so that its p-value is at most as many times
    that of one (Bonferroni's inequality; Engelman & Hartigan 1969, Journal of the American Statistical Association 64:1647, have
    the statistic). With a known noise the variance within is the weighted mean of both (Smyth 2004, Statistical Applications in
    Genetics and Molecular Biology 3(1):3), which keeps few values that agree by chance from looking like clusters.

    Args:
        values: One positive, finite number per block, in any order; others have no logarithm and return None.
        noise_sd: The standard deviation of the logarithms that such values are known to have, for example from the other arms at the
            same point; None where none is known.

    Returns:
        The values of the lower and of the upper cluster, each sorted, or None.

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
    within, degrees = max(0.0, float(((logs - logs.mean()) ** 2).sum() - between[best])), n - 2
    if noise_sd is not None:
        within, degrees = within + NOISE_DF * noise_sd**2, degrees + NOISE_DF
    if apart[best] < np.log(FACTOR):
        return None
    splits = 2.0 ** (n - 1) - 1 - n
    f = float(between[best]) / max(within / degrees, 1e-24)
    if splits * float(special.fdtrc(1, degrees, f)) > ALPHA:
        return None
    at = int(sizes[best])
    return x[:at].tolist(), x[at:].tolist()
