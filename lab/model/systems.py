"""Which arms run another system than the arm that they are compared with, and where that forbids a pair to decide.

At an offered rate both sides of a pair run at the same moment, on the same CPUs and caches. The same baseline then cost 52 µs a request
beside itself and up to 75 µs beside another system (data/reference/equal-work), while two arms of one system share code and disturb each
other alike. So between different systems a concurrent pair decides nothing; samples of each system alone do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.model.plan import Arm, Place
from lab.model.sweeps import Point

CONCURRENT = (
    "between different systems a concurrent pair decides nothing, as each changes what the other costs:"
    " the solo samples decide"
)
"""The sentence that a table has of such an effect."""


def runs_concurrently(point: Point) -> bool:
    """Return whether the two sides of a pair run at the same moment at this point, instead of in turns."""
    return point.scheme == "together" and not point.why_alone


def different_systems(arms: Sequence[Arm], bases: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the arms whose base differs from that of the arm that they are compared with.

    `bases`: variant -> the folder in manifests/bases that it stands on; empty: not known, which differs from nothing.
    """
    base_of = {arm.name: bases.get(arm.variant, "") for arm in arms}
    return frozenset(
        arm.name
        for arm in arms
        if arm.role == "variant" and arm.baseline
        for own, other in [(base_of[arm.name], base_of.get(arm.baseline, ""))]
        if own and other and own != other
    )


def undecided_pairs(systems: frozenset[str], points: Sequence[Point]) -> frozenset[Place]:
    """Return where pairs would decide nothing: each arm that is a different system at each point where pairs run concurrently."""
    return frozenset((arm, point.name) for arm in systems for point in points if runs_concurrently(point))
