"""Variance components of nested measurements: how much values vary between repeats, worker generations and bring-ups.

    bring-ups × generations × repeats          SD of a repeat, of a generation, of a bring-up

The variance of a component is the variance of its means that the components below it do not explain (Searle, Casella &
McCulloch, Variance Components, §4.4: the ANOVA estimator of a balanced nested design). The design must be balanced:
the input is a full array.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy import special


@dataclass(frozen=True, slots=True)
class Component:
    """One variance component: the variation between repeats, between worker generations, or between bring-ups.

    A worker generation is the worker processes between two reloads; a bring-up is one start of the system.

    Attributes:
        sd: The standard deviation; 0 if the means differ less than the variation at the lower levels explains.
        low: The lower end of the confidence interval of `sd`.
        high: The upper end of the confidence interval of `sd`.
        degrees: The degrees of freedom of the component's mean square.

    """

    sd: float
    low: float
    high: float
    degrees: int


@dataclass(frozen=True, slots=True)
class Components:
    """The variation of values between repeats, between worker generations and between bring-ups.

    A worker generation is the worker processes between two reloads; a bring-up is one start of the system.

    Attributes:
        repeat: The variation between repeats in one generation; None if nothing was repeated.
        generation: The variation between worker generations in one bring-up; None for one generation per bring-up.
        bring_up: The variation between bring-ups; None for a single bring-up.

    """

    repeat: Component | None
    generation: Component | None
    bring_up: Component | None


def estimate_components(values: npt.ArrayLike, confidence: float = 0.95) -> Components:
    """Estimate the variance components of a balanced nested design, with their confidence intervals.

    The design is repeats within worker generations (the worker processes between two reloads) within bring-ups (starts
    of a system). If nothing was repeated at a lower level, a component includes the variation of that level.

    The lowest component that is repeated has the exact χ² interval. The components above have the modified large-sample
    limits for a difference of mean squares, and limits below 0 become 0. (Ting, Burdick, Graybill, Jeyaratnam & Lu
    1990, J. Stat. Comput. Simul. 35:135; Burdick & Graybill 1992, §3.3.)

    Args:
        values: Finite numbers, shape (bring-ups, generations, repeats).
        confidence: The coverage of the intervals, as a fraction.

    """
    array = np.asarray(values, dtype=float)
    blocks, generations, repeats = array.shape
    generation_means, block_means = array.mean(axis=2), array.mean(axis=(1, 2))
    squares = (
        repeats * generations * ((block_means - array.mean()) ** 2).sum(),
        repeats * ((generation_means - block_means[:, None]) ** 2).sum(),
        ((array - generation_means[:, :, None]) ** 2).sum(),
    )
    degrees = (blocks - 1, blocks * (generations - 1), blocks * generations * (repeats - 1))
    sizes = (repeats * generations, repeats, 1)
    estimates: list[Component | None] = [None, None, None]
    lower: tuple[float, int] | None = None
    for level in (2, 1, 0):
        if degrees[level]:
            mean_square = float(squares[level]) / degrees[level], degrees[level]
            estimates[level] = _estimate_component(mean_square, lower, sizes[level], confidence)
            lower = mean_square
    return Components(estimates[2], estimates[1], estimates[0])


def _estimate_component(
    mean_square: tuple[float, int], lower_square: tuple[float, int] | None, size: int, confidence: float
) -> Component:
    """Compute one variance component (how much values vary at one level) from its mean square and that of the level below.

    Args:
        mean_square: (mean square of the component, its degrees of freedom).
        lower_square: The same for the next repeated component below; None if this component is the lowest.
        size: The number of values in one mean of the component.
        confidence: The coverage of the interval, as a fraction.

    """
    (first, n1), tail = mean_square, (1 - confidence) / 2
    if lower_square is None:
        low, high = (n1 * first / _chi_square_above(probability, n1) for probability in (tail, 1 - tail))
        return Component(sqrt(first / size), sqrt(low / size), sqrt(high / size), n1)
    second, n2 = lower_square
    g1, g2 = (1 - n / _chi_square_above(tail, n) for n in (n1, n2))
    h1, h2 = (n / _chi_square_above(1 - tail, n) - 1 for n in (n1, n2))
    upper, lower = (float(special.fdtri(n1, n2, probability)) for probability in (1 - tail, tail))
    g12 = ((upper - 1) ** 2 - g1**2 * upper**2 - h2**2) / upper
    h12 = ((1 - lower) ** 2 - h1**2 * lower**2 - g2**2) / lower
    down = g1**2 * first**2 + h2**2 * second**2 + g12 * first * second
    up = h1**2 * first**2 + g2**2 * second**2 + h12 * first * second
    variance = (first - second) / size
    low, high = variance - sqrt(max(0.0, down)) / size, variance + sqrt(max(0.0, up)) / size
    return Component(sqrt(max(0.0, variance)), sqrt(max(0.0, low)), sqrt(max(0.0, high)), n1)


def _chi_square_above(tail: float, degrees: int) -> float:
    """Return the χ² value that is exceeded with a given probability.

    `scipy.stats` has the same function, but takes a second to import.

    Args:
        tail: The probability.
        degrees: The degrees of freedom.

    """
    return float(special.chdtri(degrees, tail))
