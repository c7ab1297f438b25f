"""Loads → what one request costs at a given page size and utilisation, with its interval and how it was come by.

At a page that was measured: the blocks' median. Between two measured loads of the proxy the price is linear in how idle it
is: a request that finds the proxy asleep pays for waking it; of Poisson arrivals that share is 1 − ρ (PASTA, Wolff 1982).
So c(ρ) = s + w(1−ρ). That is a model (few connections, which cannot queue, cost more), so the interval is all that lies between
the two, and only a load nearer to what is asked for narrows it. Outside of the measured loads the nearest one's price stands: a bound.

At another page: a straight line of the measured sizes, c = a + b·bytes, least squares of the relative errors. Refuses sizes beyond
twice the largest or below half the smallest that was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
import numpy.typing as npt

from lab.analysis.capacity.cells import Load
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks

Floats = npt.NDArray[np.float64]
Bound = Literal["", "at least", "at most"]
DRAWS, SEED = 4000, 1982
NEAR = 0.05
"""Loads whose utilisation lies as near as this to the wanted one (or to each other) need no line between them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds per request. `draws`, shape (DRAWS,): its confidence distribution; None below six blocks.

    `bound`: on which side of the true price this one lies, where the loads were all busier or all less busy than asked for.
    `how`: measured at this page, or on a line of sizes. `basis`: where it comes from, for people; `cautions`: what it leaves open.
    """

    value_s: float
    draws: Floats | None
    blocks: int
    how: Literal["measured", "between sizes", "beyond sizes"]
    basis: str
    cautions: tuple[str, ...]
    loads: tuple[Load, ...]
    bound: Bound = ""

    @property
    def interval_s(self) -> tuple[float, float] | None:
        return None if self.draws is None else interval(self.draws)


class OutOfRangeError(Exception):
    """A page that the measured sizes say nothing of; the text says why."""


def interval(draws: Floats) -> tuple[float, float]:
    """95 %."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def median_draws(values: Sequence[float], seed: int = SEED) -> Floats | None:
    """The confidence distribution of the blocks' median, distribution-free; None below six blocks.

    The true median lies between the k-th and the next of the n sorted values with probability Bin(k; n, ½) (Thompson 1936), and
    anywhere between the two (as the interpolated intervals of Hettmansperger & Sheather 1986); it is not sought beyond the ends.
    """
    x, n = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    if n < MIN_BLOCKS:
        return None
    rng = np.random.default_rng([seed, n])
    below = rng.binomial(n, 0.5, DRAWS)
    low, high = x[np.maximum(below - 1, 0)], x[np.minimum(below, n - 1)]
    return low + (high - low) * rng.uniform(size=DRAWS)


def cost_of(loads: Sequence[Load], page_bytes: int, utilisation: float) -> Cost:
    """What a request of this size costs an arm, whose loads of one kind these are (at least one); OutOfRangeError.

    `utilisation`: 0 to 1 (of the proxy's CPUs).
    """
    sizes = sorted({load.page_bytes for load in loads})
    at = {size: _at_size([load for load in loads if load.page_bytes == size], utilisation) for size in sizes}
    if page_bytes in at:
        return at[page_bytes]
    if len(sizes) < 2:
        raise OutOfRangeError("only one size was measured")
    if page_bytes > 2 * sizes[-1]:
        raise OutOfRangeError("it is more than twice the largest page that was measured")
    if page_bytes < sizes[0] / 2:
        raise OutOfRangeError("it is less than half of the smallest page that was measured")
    return _on_the_line(at, page_bytes)


def _at_size(loads: Sequence[Load], utilisation: float) -> Cost:
    known = sorted(
        (load for load in loads if load.busy is not None), key=lambda load: (load.busy or 0, load.point.name)
    )
    if not known:
        chosen = max(loads, key=lambda load: (load.point.rate_rps is None, load.point.rate_rps or 0))
        closed = chosen.point.rate_rps is None
        caution = (
            f"{'AT LEAST: ' if closed else ''}how busy the proxy itself was is not known (it has no CPUs of its own): the price of"
            f" the fullest load is used{', and at less load a request costs more' if closed else ''}"
        )
        return _measured(chosen, "at least" if closed else "", (caution,))
    low = max(
        (load for load in known if (load.busy or 0) <= utilisation), key=lambda load: load.busy or 0, default=None
    )
    high = min(
        (load for load in known if (load.busy or 0) >= utilisation), key=lambda load: load.busy or 0, default=None
    )
    nearest = min(known, key=lambda load: abs((load.busy or 0) - utilisation))
    if low is not None and high is not None and abs((nearest.busy or 0) - utilisation) > NEAR:
        return _between(low, high, utilisation)
    away = (nearest.busy or 0) - utilisation
    bound: Bound = "at least" if away > NEAR else "at most" if away < -NEAR else ""
    caution = {
        "": (),
        "at least": (
            "AT LEAST: measured busier than asked for; at less load a request finds the proxy asleep more often, and costs more",
        ),
        "at most": ("AT MOST: measured less busy than asked for; at more load a request costs less",),
    }[bound]
    return _measured(nearest, bound, caution)


def _between(low: Load, high: Load, utilisation: float) -> Cost:
    """On the line of the idle share between two loads' medians; anything between their own draws is possible."""
    share = (utilisation - (low.busy or 0)) / ((high.busy or 0) - (low.busy or 0))
    first, second = median(low.costs_s), median(high.costs_s)
    ends = median_draws(low.costs_s), median_draws(high.costs_s, SEED + 1)
    draws = None
    if ends[0] is not None and ends[1] is not None:
        draws = ends[0] + (ends[1] - ends[0]) * np.random.default_rng(SEED).uniform(size=DRAWS)
    blocks = min(len(low.costs_s), len(high.costs_s))
    caution = (
        f"no load was measured near {100 * utilisation:.0f} % busy: the price is that of the proxy's idle share between the two,"
        " which is a model; its interval is all between them"
    )
    basis = f"{low.point.page}, between {low.text} and {high.text}; {format_blocks(blocks)} of {low.arm.name}"
    return Cost(first + (second - first) * share, draws, blocks, "measured", basis, (caution,), (low, high))


def _measured(load: Load, bound: Bound, cautions: tuple[str, ...]) -> Cost:
    """At the load itself."""
    values = load.costs_s
    basis = f"{load.point.page}, at {load.text}; {format_blocks(len(values))} of {load.arm.name}"
    return Cost(median(values), median_draws(values), len(values), "measured", basis, cautions, (load,), bound)


def _on_the_line(at: dict[int, Cost], page_bytes: int) -> Cost:
    """The prediction of a weighted regression on size (Draper & Smith, Applied Regression Analysis, §9.2 and 1.4): relative errors
    of one size, Student's t with n − 2 degrees of freedom. A larger page costs no less: no draw lies beyond the neighbours' own.

    Of two sizes there is no telling how straight the line is: then all between the neighbours is possible, and beyond them nothing said.
    """
    sizes = sorted(at)
    bytes_, costs = np.array(sizes, dtype=np.float64), np.array([at[size].value_s for size in sizes])
    below, above = [at[s] for s in sizes if s < page_bytes], [at[s] for s in sizes if s > page_bytes]
    inside, freedom = bool(below and above), len(sizes) - 2
    if not inside and freedom < 1:
        raise OutOfRangeError("two sizes do not tell how straight the line beyond them is")
    columns = np.column_stack([np.ones_like(bytes_), bytes_ / bytes_[-1]])
    weighted = columns / costs[:, None]
    solution = np.linalg.lstsq(weighted, np.ones_like(costs), rcond=None)[0]
    at_page = np.array([1.0, page_bytes / bytes_[-1]])
    low_end = below[-1].value_s if below else 0.0
    high_end = above[0].value_s if above else np.inf
    value = float(np.clip(at_page @ solution, low_end, high_end))
    floors, tops = (
        (below[-1].draws if below else np.zeros(DRAWS)),
        (above[0].draws if above else np.full(DRAWS, np.inf)),
    )
    draws = None
    if floors is not None and tops is not None and all(cost.draws is not None for cost in at.values()):
        rng = np.random.default_rng([SEED, len(sizes)])
        if freedom < 1:
            draws = floors + (tops - floors) * rng.uniform(size=DRAWS)
        else:
            noise = float(np.sum((1 - weighted @ solution) ** 2)) / freedom
            spread = at_page @ np.linalg.inv(weighted.T @ weighted) @ at_page
            drawn = value + rng.standard_t(freedom, DRAWS) * np.sqrt(noise * (value**2 + spread))
            draws = np.clip(drawn, np.minimum(floors, tops), np.maximum(floors, tops))
            draws = np.maximum(draws, float(costs.min()) / 2)
    span = ", ".join(dict.fromkeys(load.point.page for size in sizes for load in at[size].loads))
    cautions = (
        *dict.fromkeys(caution for size in sizes for caution in at[size].cautions),
        f"this page was not measured: its price lies on a line of the sizes {span}"
        + ("; of two sizes there is no telling how straight it is" if freedom < 1 else ""),
    )
    loads = tuple(load for size in sizes for load in at[size].loads)
    blocks = min(cost.blocks for cost in at.values())
    basis = f"on a line of {len(sizes)} page sizes ({span}); {format_blocks(blocks)} each of {loads[0].arm.name}"
    first = at[sizes[0]].bound
    bound: Bound = first if all(cost.bound == first for cost in at.values()) else ""
    return Cost(value, draws, blocks, "between sizes" if inside else "beyond sizes", basis, cautions, loads, bound)
