"""How much of a scatter lies at which level: nested measurements → the variance of each level, with its interval.

    bring-ups × generations × repeats          sd of a repeat, of a generation, of a bring-up

Each level's variance is what its means differ by beyond what the levels below make them differ by (Searle, Casella & McCulloch, Variance
Components, §4.4: the ANOVA estimator of a balanced nested design). Refuses designs that are not balanced.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy import special


@dataclass(frozen=True, slots=True)
class Component:
    """One level's standard deviation with its interval; `sd` 0 where its means differ by less than the levels below explain. `degrees` of freedom."""

    sd: float
    low: float
    high: float
    degrees: int


@dataclass(frozen=True, slots=True)
class Components:
    """None of a level that was not repeated. `mean`: of all."""

    mean: float
    repeat: Component | None
    generation: Component | None
    bring_up: Component | None


def components(values: npt.ArrayLike, confidence: float = 0.95) -> Components:
    """`values`: shape (bring-ups, generations, repeats), finite.

    Intervals: of the lowest level that was repeated χ², exact; of those above the modified large-sample limits for a difference of mean squares
    (Ting, Burdick, Graybill, Jeyaratnam & Lu 1990, J. Stat. Comput. Simul. 35:135; Burdick & Graybill 1992, §3.3), below 0 cut to 0. Where
    nothing is repeated below a level, its scatter has theirs in it.
    """
    found = np.asarray(values, dtype=float)
    blocks, generations, repeats = found.shape
    of_generations, of_blocks = found.mean(axis=2), found.mean(axis=(1, 2))
    squares = (
        repeats * generations * ((of_blocks - found.mean()) ** 2).sum(),
        repeats * ((of_generations - of_blocks[:, None]) ** 2).sum(),
        ((found - of_generations[:, :, None]) ** 2).sum(),
    )
    degrees = (blocks - 1, blocks * (generations - 1), blocks * generations * (repeats - 1))
    sizes = (repeats * generations, repeats, 1)
    told: list[Component | None] = [None, None, None]
    below: tuple[float, int] | None = None
    for level in (2, 1, 0):
        if degrees[level]:
            own = float(squares[level]) / degrees[level], degrees[level]
            told[level] = _component(own, below, sizes[level], confidence)
            below = own
    return Components(float(found.mean()), told[2], told[1], told[0])


def _component(own: tuple[float, int], below: tuple[float, int] | None, size: int, confidence: float) -> Component:
    """Of the level with this (mean square, its degrees of freedom), of `size` values a mean; `below`: of the next one down that there is."""
    (first, n1), tail = own, (1 - confidence) / 2
    if below is None:
        low, high = (n1 * first / _chi_above(each, n1) for each in (tail, 1 - tail))
        return Component(sqrt(first / size), sqrt(low / size), sqrt(high / size), n1)
    second, n2 = below
    g1, g2 = (1 - n / _chi_above(tail, n) for n in (n1, n2))
    h1, h2 = (n / _chi_above(1 - tail, n) - 1 for n in (n1, n2))
    upper, lower = (float(special.fdtri(n1, n2, share)) for share in (1 - tail, tail))
    g12 = ((upper - 1) ** 2 - g1**2 * upper**2 - h2**2) / upper
    h12 = ((1 - lower) ** 2 - h1**2 * lower**2 - g2**2) / lower
    down = g1**2 * first**2 + h2**2 * second**2 + g12 * first * second
    up = h1**2 * first**2 + g2**2 * second**2 + h12 * first * second
    variance = (first - second) / size
    low, high = variance - sqrt(max(0.0, down)) / size, variance + sqrt(max(0.0, up)) / size
    return Component(sqrt(max(0.0, variance)), sqrt(max(0.0, low)), sqrt(max(0.0, high)), n1)


def _chi_above(tail: float, degrees: int) -> float:
    """χ² that is exceeded with that probability. (`scipy.special`, as `scipy.stats` takes a second to load.)"""
    return float(special.chdtri(degrees, tail))
