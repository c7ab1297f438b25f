"""What a program may say at all: counts and seconds that can be, percentiles that rise. Else its output is no output.

18446744073709551616, -1, 1,024, NaN      →  none of these is a count
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lab.model.load import OutputError

MOST = 2**53
"""Up to here a count is the same number as JSON, Lua and numpy have it; no run counts so far."""
COUNT = r"[0-9]{1,16}"
"""A count in a regular expression. Longer ones are none."""

Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0)]
"""Or milliseconds: whatever unit a program has."""


class Told(BaseModel):
    """A program's JSON, or the part of it that is read. Text is no number, and neither are NaN and infinity."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


def rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Quantiles (probability, latency) in their order. OutputError where a higher one is the shorter latency."""
    ordered = sorted(points)
    for (low, below), (high, above) in pairwise(ordered):
        if below > above:
            raise OutputError(f"expected latencies that rise, got {below:g} at {low:.4%} and {above:g} at {high:.4%}")
    return ordered
