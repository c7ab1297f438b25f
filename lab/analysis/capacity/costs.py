"""A stored run → what one request costs the proxy: at each load, and at the utilisation that is asked for.

Between two measured loads the price is linear in how idle the proxy is: a request that finds it asleep pays for waking it, and of Poisson
arrivals that share is 1 − ρ (PASTA, Wolff 1982), so c(ρ) = s + w(1 − ρ). That is a model (few connections, which cannot queue, cost
more), so the interval is all that lies between the two. Outside of the measured loads the nearest one's price is a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Literal

import numpy as np
import numpy.typing as npt

from lab.analysis.aggregate.cells import counted_alone, refuse_mixtures
from lab.base.errors import UsageError
from lab.model.endpoint import Tls
from lab.model.plan import Arm
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.model.variants import hosts
from lab.records.store import RunStore
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks
from lab.systems import workers

Floats = npt.NDArray[np.float64]
Bound = Literal["", "at least", "at most"]
DRAWS, SEED = 4000, 1982
NEAR = 0.05
"""A load whose utilisation lies as near as this to the wanted one needs no line between two."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes requests alike but for their size. `resumption` matters to new TLS connections only, else None."""

    tls: Tls
    keepalive: bool
    resumption: bool | None

    def __str__(self) -> str:
        resumed = {None: "", True: ", TLS sessions resumed", False: ", full TLS handshakes"}[self.resumption]
        return f"TLS {self.tls}, {'keep-alive' if self.keepalive else 'a new connection per request'}{resumed}"


@dataclass(frozen=True, slots=True)
class Load:
    """One arm at one point. `costs_s`: CPU seconds of the proxy per good answer, by block. `busy`: how full the CPUs were that the proxy
    can fill, the blocks' median; None where it has none of its own. `text`: `ceiling (98 % busy)`.
    """

    arm: Arm
    point: Point
    kind: Kind
    costs_s: tuple[float, ...]
    busy: float | None
    generator: str

    @property
    def text(self) -> str:
        return self.point.name if self.busy is None else f"{self.point.name} ({self.busy:.0%} busy)".replace("%", " %")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds per request. `draws`, shape (DRAWS,): its confidence distribution; None below six blocks.

    `basis`: where it comes from; `caution`: what it leaves open; `bound`: on which side of the true price it lies.
    """

    value_s: float
    draws: Floats | None
    blocks: int
    basis: str
    caution: str
    loads: tuple[Load, ...]
    bound: Bound = ""

    @property
    def interval_s(self) -> tuple[float, float] | None:
        return None if self.draws is None else interval(self.draws)


def loads_of(run: RunStore) -> list[Load]:
    """Return every load of a proxy that has a valid block, in the plan's order; A/A twins have no price of their own.

    Leaves out what is no price of a good answer: loads whose subject is errors, disturbances, compressed answers, and samples that saw
    no proxy, as the backend's CPU is not a proxy's.
    """
    points = [
        point
        for point in run.record.points
        if not (point.disturbance or point.control or point.subject or point.answers)
    ]
    if not points:
        return []
    samples = run.samples()
    refuse_mixtures(run.record.plan(), samples)
    cells: dict[tuple[str, str], list[Sample]] = {}
    for (_, arm, point), sample in sorted(counted_alone(samples).items()):
        if "proxy" in sample.usage and sample.cpu_per_request_s:
            cells.setdefault((arm, point), []).append(sample)
    loads: list[Load] = []
    for point, arm in product(points, run.record.arms):
        cell = cells.get((arm.name, point.name))
        if not cell or arm.role in ("reference", "again") or point.accept_encoding != "identity":
            continue
        try:
            _, tls = hosts.chosen(hosts.routed(run.manifests(arm.variant)), True, point)
        except UsageError:  # its routes do not say where TLS ends
            continue
        resumption = point.resumption if tls != "none" and not point.keepalive else None
        costs_s = tuple(sample.cpu_per_request_s or 0.0 for sample in cell)
        busy = _busy(run, [sample for sample in samples if sample.variant == arm.variant], cell)
        loads.append(Load(arm, point, Kind(tls, point.keepalive, resumption), costs_s, busy, cell[0].generator))
    return loads


def proxy_cpus(run: RunStore) -> frozenset[int]:
    """Return the CPUs that the proxy had to itself; none on a cluster."""
    ends = [part.split("-") for part in run.record.facts.get("cpus_proxy", "").split(",")]
    if not all(number.isdecimal() for end in ends for number in end):
        return frozenset()
    return frozenset(cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1))


def _busy(run: RunStore, samples: Sequence[Sample], cell: Sequence[Sample]) -> float | None:
    """Return how full the CPUs were that the proxy can fill: as many as it had workers or threads, by what all the variant's `samples`
    counted or, where they did not, by the manifests; at most its own CPUs.

    The mean, as U = X·S/k has it: workers that share a queue unequally leave the least busy CPU far below it. Clock ticks miss short
    bursts of work, so what the scheduler counted for the proxy is the least.
    """
    if not (own := proxy_cpus(run)):
        return None
    ran = [int(sample.gauges[workers.GAUGE]) for sample in samples if workers.GAUGE in sample.gauges]
    asked = min(ran) if ran else workers.asked(run.manifests(cell[0].variant))
    count = min(asked or len(own), len(own))
    busy: list[float] = []
    for sample in cell:
        ticked = sum(sample.busy.get(str(cpu), 0.0) for cpu in own)
        used = sample.usage["proxy"].cpu_s / sample.duration_s if sample.duration_s else 0.0
        busy.append(min(1.0, max(ticked, used) / count))
    return median(busy)


def cost_of(loads: Sequence[Load], utilisation: float) -> Cost:
    """Return what a request costs an arm at a utilisation (0 to 1 of the proxy's CPUs). `loads`: at least one, of one kind and page."""
    known = [(load.busy, load) for load in sorted(loads, key=lambda load: load.point.name) if load.busy is not None]
    if not known:
        fullest = max(loads, key=lambda load: (load.point.rate_rps is None, load.point.rate_rps or 0))
        caution = "how busy the proxy itself was is not known (it has no CPUs of its own): the price of the fullest load is used"
        if fullest.point.rate_rps is not None:
            return _measured(fullest, caution)
        return _measured(fullest, f"AT LEAST: {caution}, and at less load a request costs more", "at least")
    known.sort(key=lambda pair: pair[0])
    nearest_busy, nearest = min(known, key=lambda pair: abs(pair[0] - utilisation))
    if abs(nearest_busy - utilisation) <= NEAR:
        return _measured(nearest)
    if known[0][0] > utilisation:
        caution = "AT LEAST: measured busier than asked for; at less load a request finds the proxy asleep more often, and costs more"
        return _measured(nearest, caution, "at least")
    if known[-1][0] < utilisation:
        caution = "AT MOST: measured less busy than asked for; at more load a request costs less"
        return _measured(nearest, caution, "at most")
    low_busy, low = next(pair for pair in reversed(known) if pair[0] < utilisation)
    high_busy, high = next(pair for pair in known if pair[0] > utilisation)
    draws, others = median_draws(low.costs_s), median_draws(high.costs_s, SEED + 1)
    if draws is not None and others is not None:
        draws = draws + (others - draws) * np.random.default_rng(SEED).uniform(size=DRAWS)
    first, second = median(low.costs_s), median(high.costs_s)
    value_s = first + (second - first) * ((utilisation - low_busy) / (high_busy - low_busy))
    blocks = min(len(low.costs_s), len(high.costs_s))
    basis = f"{low.point.page}, between {low.text} and {high.text}; {format_blocks(blocks)} of {low.arm.name}"
    caution = (
        f"no load was measured near {100 * utilisation:.0f} % busy: the price is that of the proxy's idle share between the two,"
        " which is a model; its interval is all between them"
    )
    return Cost(value_s, draws if others is not None else None, blocks, basis, caution, (low, high))


def _measured(load: Load, caution: str = "", bound: Bound = "") -> Cost:
    """Return the price at a load itself: the blocks' median."""
    blocks = len(load.costs_s)
    basis = f"{load.point.page}, at {load.text}; {format_blocks(blocks)} of {load.arm.name}"
    return Cost(median(load.costs_s), median_draws(load.costs_s), blocks, basis, caution, (load,), bound)


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
