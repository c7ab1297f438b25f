"""Does a pair show the whole of an effect? What `just selfbench pairs` recovered of known ones → whether a pair may say *same*.

Refuses to believe it of what was not measured: a scheme and metric without a committed measurement recovers nothing.
"""

from __future__ import annotations

from lab.model.pairs import Scheme

LEAST_SLOPE = 0.8
"""The lower 95 % limit of paired on injected effects from which on a pair may say *same*."""


def recovers(metric: str, scheme: Scheme) -> bool:
    """Whether effects in the metric are recovered where both ran by turns, or at once."""
    return metric == "cpu_per_request" and scheme == "slices"
