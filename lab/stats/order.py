"""Numbers and counts that carry a label (what was measured before) → how likely they differ by label by chance alone.

Refuses to know points and samples, and to compare a label that has only one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb, prod

import numpy as np
from scipy import special

LEAST = 2
"""Numbers of a label that is compared: one number alone may be an outlier."""


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
