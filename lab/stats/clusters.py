"""Whether the values of several blocks fall into two clusters, so that no mean of them describes any block."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

LEAST_VALUES = 3
"""Values in each cluster: fewer are outliers, not a second state that a system can be in."""
LEAST_GAP_SDS = 6.0
"""Of the gap between the clusters, in standard deviations within them: of six values with normal noise 0.8 of 100 sets have such a gap, of
twelve none."""
LEAST_GAP = log(1.5)
"""Of the gap on a log scale: clusters that lie closer are described well enough by their mean."""


def find_two_clusters(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]] | None:
    """Return the values below and above the widest gap where they fall into two clusters on a log scale, else None.

    Args:
        values: one number per block; where one is not above 0 there is no log scale, and no cluster.
    """
    ordered = sorted(values)
    if len(ordered) < 2 * LEAST_VALUES or ordered[0] <= 0:
        return None
    logs = np.log(ordered)
    splits = range(LEAST_VALUES, len(ordered) - LEAST_VALUES + 1)
    at = max(splits, key=lambda place: logs[place] - logs[place - 1])
    within = sum(float(((side - side.mean()) ** 2).sum()) for side in (logs[:at], logs[at:]))
    gap, sd = float(logs[at] - logs[at - 1]), sqrt(within / (len(ordered) - 2))
    return (ordered[:at], ordered[at:]) if gap > max(LEAST_GAP, LEAST_GAP_SDS * sd) else None
