"""A run and what is asked → the whole answer: how many proxies of which size, what is assumed, what to apply.

    cores needed = rate · c / utilisation        one proxy of k cores serves k · utilisation / c

c: CPU seconds of the proxy per request. This is the utilisation law (U = X·S, Denning & Buzen 1978) read backwards, linear in cores.
Between two measured loads c is linear in how idle the proxy is, since a request that finds it asleep pays for waking it (PASTA, Wolff 1982):
a model, so the interval is all that lies between the two. Outside of the measured loads the nearest one's price is a bound. Refuses to say
anything of latency, memory, bandwidth or of other machines: those are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import ceil
from statistics import median
from typing import Literal

import numpy as np

from lab.analysis.aggregate.cells import counted_alone, cpus_of, refuse_mixtures
from lab.base.errors import LabError, UsageError
from lab.base.files import reference_folder, runs_folder
from lab.model.endpoint import Tls
from lab.model.pages import PAGES
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.model.variants import hosts
from lab.records.store import RunStore, run_names
from lab.stats.paired import MIN_BLOCKS, Floats
from lab.stats.units import format_blocks
from lab.systems import workers

SIZES, ADVISED = (1, 2, 4, 8, 16), 4
"""Cores of a proxy, and which of these the advice is for, unless another size is asked for."""
MOST_THREADS = 64
"""The largest threadCount that OpenShift's operator takes (openshift/api, operator/v1/types_ingresscontroller.go)."""
HELM_VALUES = """\
# Helm values of ingress-nginx: its ConfigMap, and resources and spec.replicas of its Deployment
controller:
  config:
    worker-processes: "{cores}"
  resources:
    requests:
      cpu: {cores}
  replicaCount: {replicas}"""
DRAWS, SEED = 4000, 1982
NEAR = 0.05
"""A load whose utilisation lies as near as this to the wanted one needs no line between two."""
Bound = Literal["", "at least", "at most"]


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
        return self.point.name if self.busy is None else f"{self.point.name} ({100 * self.busy:.0f} % busy)"


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
    every = (each for each in run.record.points if each.accept_encoding == "identity")
    points = [each for each in every if not (each.disturbance or each.control or each.subject or each.answers)]
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
        if cell and arm.role not in ("reference", "again"):
            with suppress(UsageError):  # its routes do not say where TLS ends
                _, tls = hosts.chosen(hosts.routed(run.manifests(arm.variant)), True, point)
                resumption = point.resumption if tls != "none" and not point.keepalive else None
                costs_s = tuple(sample.cpu_per_request_s or 0.0 for sample in cell)
                busy = _busy(run, [sample for sample in samples if sample.variant == arm.variant], cell)
                loads.append(Load(arm, point, Kind(tls, point.keepalive, resumption), costs_s, busy, cell[0].generator))
    return loads


def _busy(run: RunStore, samples: Sequence[Sample], cell: Sequence[Sample]) -> float | None:
    """Return how full the CPUs were that the proxy can fill, the mean of them: as many as it had workers or threads, by what all the
    variant's `samples` counted, else by the manifests. Clock ticks miss short bursts: what the scheduler counted is the least.
    """
    own = cpus_of(run.record, "proxy")
    if not own:
        return None
    ran = [int(sample.gauges[workers.GAUGE]) for sample in samples if workers.GAUGE in sample.gauges]
    asked = min(ran) if ran else workers.asked(run.manifests(cell[0].variant))
    count, busy = min(asked or len(own), len(own)), list[float]()
    for sample in cell:
        used = sample.usage["proxy"].cpu_s / sample.duration_s if sample.duration_s else 0.0
        busy.append(min(1.0, max(sum(sample.busy.get(str(cpu), 0.0) for cpu in own), used) / count))
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
        more = "at less load a request finds the proxy asleep more often, and costs more"
        return _measured(nearest, f"AT LEAST: measured busier than asked for; {more}", "at least")
    if known[-1][0] < utilisation:
        less = "at more load a request costs less"
        return _measured(nearest, f"AT MOST: measured less busy than asked for; {less}", "at most")
    low_busy, low = next(pair for pair in reversed(known) if pair[0] < utilisation)
    high_busy, high = next(pair for pair in known if pair[0] > utilisation)
    draws, others = median_draws(low.costs_s), median_draws(high.costs_s, SEED + 1)
    between = None
    if draws is not None and others is not None:
        between = draws + (others - draws) * np.random.default_rng(SEED).uniform(size=DRAWS)
    first, second = median(low.costs_s), median(high.costs_s)
    value_s = first + (second - first) * ((utilisation - low_busy) / (high_busy - low_busy))
    blocks = min(len(low.costs_s), len(high.costs_s))
    basis = f"{low.point.page}, between {low.text} and {high.text}; {format_blocks(blocks)} of {low.arm.name}"
    caution = (
        f"no load was measured near {100 * utilisation:.0f} % busy: the price is that of the proxy's idle share between the two,"
        " which is a model; its interval is all between them"
    )
    return Cost(value_s, between, blocks, basis, caution, (low, high))


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

    The true median lies between the k-th and the next of the n sorted values with probability Bin(k; n, ½) (Thompson 1936).
    """
    x, n = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    if n < MIN_BLOCKS:
        return None
    rng = np.random.default_rng([seed, n])
    below = rng.binomial(n, 0.5, DRAWS)
    low, high = x[np.maximum(below - 1, 0)], x[np.minimum(below, n - 1)]
    return low + (high - low) * rng.uniform(size=DRAWS)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked: good answers per second, of which kind and page, with the proxies' CPUs so full at most (0 to 1)."""

    rate_rps: float
    tls: Tls
    keepalive: bool
    page: str
    utilisation: float
    resumption: bool | None = None
    variant: str | None = None

    @property
    def page_bytes(self) -> int:
        return PAGES[self.page]

    @property
    def usual(self) -> str:
        """The variant whose price it is, unless a run says otherwise."""
        plain = "ingress-nginx" if self.keepalive else "okd"
        return self.variant or (plain if self.tls == "none" else f"okd-{self.tls}")

    def fits(self, load: Load) -> bool:
        """Return whether this is the load that is asked about."""
        kind, size = load.kind, PAGES[load.point.page]
        alike = (kind.tls, kind.keepalive, size) == (self.tls, self.keepalive, self.page_bytes)
        resumption = self.resumption is None or kind.resumption in (None, self.resumption)
        return alike and resumption and self.variant in (None, load.arm.variant)


@dataclass(frozen=True, slots=True)
class Size:
    """Proxies of so many cores: what one serves (req/s) and how many it takes; intervals None below six blocks."""

    cores: int
    serves_rps: float
    serves_interval_rps: tuple[float, float] | None
    proxies: int
    proxies_interval: tuple[int, int] | None

    @property
    def advised(self) -> int:
        """The interval's upper end, and one that may be gone."""
        return (self.proxies_interval[1] if self.proxies_interval else self.proxies) + 1


@dataclass(frozen=True, slots=True)
class Answer:
    """`advised`: the size that the snippet is for."""

    wanted: Wanted
    runs: tuple[str, ...]
    cost: Cost
    cores: float
    cores_interval: tuple[float, float] | None
    sizes: tuple[Size, ...]
    advised: Size
    assumptions: tuple[str, ...]
    snippet: str


def answer(name: str | None, wanted: Wanted, cores: int | None) -> Answer:
    """Return the answer by the run of that name, or else by the first of `_runs` with an interval, or that has the price. UsageError
    where no such price was measured.
    """
    have, priced = dict[str, None](), list[tuple[RunStore, Cost]]()
    for run in [RunStore.open(name)] if name else _runs(wanted):
        try:
            loads = loads_of(run)
        except LabError:
            if name:
                raise
            continue  # a damaged run is no guide; it is reported when it is asked for
        have |= dict.fromkeys(f"{load.arm.variant}: {load.kind}, {load.point.page}" for load in loads)
        if fitting := [load for load in loads if wanted.fits(load)]:
            priced.append((run, price(fitting, wanted)))
            if priced[-1][1].draws is not None:
                break
    if not priced:
        of = f" of '{wanted.variant}'" if wanted.variant else ""
        new_tls = wanted.tls != "none" and not wanted.keepalive
        kind = Kind(wanted.tls, wanted.keepalive, wanted.resumption if new_tls else None)
        fault = f"no price{of} for {kind} was measured with {wanted.page}"
        there = f"what runs there are have: {'; '.join(have)}\n  " if have else ""
        raise UsageError("capacity", fault, f"{there}measure it: just bench {wanted.usual} with such a load (--sweep)")
    run, cost = priced[-1] if priced[-1][1].draws is not None else priced[0]
    factor, ends = wanted.rate_rps / wanted.utilisation, cost.interval_s
    sizes = tuple(size_of(cost, wanted, each) for each in ([cores] if cores else SIZES))
    advised = next((size for size in sizes if size.cores == ADVISED), sizes[0])
    return Answer(
        wanted,
        runs=(run.record.id,),
        cost=cost,
        cores=factor * cost.value_s,
        cores_interval=(factor * ends[0], factor * ends[1]) if ends else None,
        sizes=sizes,
        advised=advised,
        assumptions=tuple(_assumptions(run.record, cost, wanted)),
        snippet=snippet(run, cost.loads[0].arm.variant, advised.advised, advised.cores),
    )


def _runs(wanted: Wanted) -> Iterator[RunStore]:
    """Yield your runs, the latest first; then the committed ones, whose names are no times: first the usual variant's, on CPUs of its own."""
    for folder in (runs_folder(), reference_folder()):
        opened: list[RunStore] = []
        for name in reversed(run_names(folder)):
            with suppress(LabError):  # as above
                opened.append(RunStore.open(str(folder / name)))
        if folder == reference_folder():
            opened.sort(key=lambda run: run.record.created_at, reverse=True)
            opened.sort(key=lambda run: (wanted.usual not in run.record.variants, not cpus_of(run.record, "proxy")))
        yield from opened


def price(loads: Sequence[Load], wanted: Wanted) -> Cost:
    """Return what a request costs the baseline, where it has one of the loads, else the usual variant, else the first arm. UsageError."""
    arm = min((load.arm for load in loads), key=lambda arm: (arm.role != "baseline", arm.variant != wanted.usual))
    own = [load for load in loads if load.arm == arm]
    if len({load.kind for load in own}) > 1:
        fault = f"{arm.name} was measured with full and with resumed TLS handshakes, which cost very different amounts"
        raise UsageError("--handshakes", fault, "say which: --handshakes full, or --handshakes resumed")
    return cost_of(own, wanted.utilisation)


def size_of(cost: Cost, wanted: Wanted, cores: int) -> Size:
    """Return how many proxies of `cores` cores it takes."""
    serves = cores * wanted.utilisation / cost.value_s
    if cost.draws is None:
        return Size(cores, serves, None, whole(wanted.rate_rps / serves), None)
    low, high = interval(cores * wanted.utilisation / cost.draws)
    low, high = min(low, serves), max(high, serves)  # rounding: one draw's quantile is no point estimate
    proxies = (whole(wanted.rate_rps / high), whole(wanted.rate_rps / low))
    return Size(cores, serves, (low, high), whole(wanted.rate_rps / serves), proxies)


def whole(proxies: float) -> int:
    """Rounded up, at least one; what is a whole number but for rounding stays it."""
    return max(1, ceil(proxies * (1 - 1e-12)))


def snippet(run: RunStore, variant: str, replicas: int, cores: int) -> str:
    """How to have so many proxies of so many cores, for the system whose manifests were measured."""
    objects = run.manifests(variant)
    if any(obj.get("kind") in ("IngressController", "Route") for obj in objects):
        threads = min(cores, MOST_THREADS)
        patch = f'{{"spec":{{"replicas":{replicas},"tuningOptions":{{"threadCount":{threads}}}}}}}'
        return f"oc -n openshift-ingress-operator patch ingresscontroller/default --type=merge -p '{patch}'"
    names = [str(obj["metadata"]["name"]) for obj in objects if obj.get("kind") == "ConfigMap"]
    if any(name.startswith("ingress-nginx") for name in names):
        return HELM_VALUES.format(cores=cores, replicas=replicas)
    return (
        f"# each needs {cores} CPUs: resources.requests.cpu of its container, and as many worker processes or threads\n"
        f'kubectl -n NAMESPACE patch deployment NAME --type=merge -p \'{{"spec":{{"replicas":{replicas}}}}}\''
    )


def _assumptions(record: RunRecord, cost: Cost, wanted: Wanted) -> Iterator[str]:
    facts, first = record.facts, cost.loads[0]
    cpu = f"{facts.get('cpu', 'unknown CPU')}, {facts.get('kernel', 'unknown kernel')}"
    yield f"measured on this target: {facts.get('target', record.target)}"
    yield f"measured on this machine: {cpu}; another machine has another price: measure there, and name that run"
    generators = dict.fromkeys(f"{load.generator}, {load.point.connections:,} connections" for load in cost.loads)
    yield f"requests come as in the run: {first.kind}; {'; '.join(generators)}; what they cost behind other settings is not known"
    if cost.caution:
        yield cost.caution
    yield "LINEAR IN CORES: twice the cores are taken to serve twice as much, which was not measured (requests per second by workers: just study qinng)"
    yield f"CPU is the limit: neither the network, memory, ports nor the backends are looked at, and nothing is said of latency (just knee {first.arm.variant})"
    if wanted.utilisation > 0.85:
        yield "above 85 % there is no room for bursts: queues grow as 1/(1 − utilisation)"
