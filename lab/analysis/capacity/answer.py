"""The answer to a capacity question from one run: how many proxies of which size, what is assumed, what to apply.

    cores needed = rate · c / utilisation        one proxy of k cores serves k · utilisation / c

c is the price of a request: the proxy's CPU time for it, in seconds. The formula is the utilisation law (U = X·S, Denning & Buzen
1978) solved for the cores; it is linear in cores. Between two measured rates, c follows from the proxy's idle cost and marginal
cost, the line through the cores that it used at both (`lab.analysis.rate_costs`). Between a rate and saturation, c is taken to be
linear in the proxy's idle share, because a request that finds the proxy asleep also pays for waking it (PASTA, Wolff 1982). That
is a model, so the interval covers everything between the two loads. Outside of the measured loads, the price of the nearest load
is a bound. The answer does not cover latency, memory, bandwidth or other machines: they are among its assumptions.
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

from lab.analysis.aggregate.cells import list_cpus, refuse_mixtures, select_counted_solo_samples
from lab.base.errors import LabError, UsageError, refuse_if
from lab.base.files import reference_folder, runs_folder
from lab.base.grouping import group_values
from lab.model.endpoint import Tls
from lab.model.pages import PAGES
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.model.variants import hosts
from lab.records.store import RunStore, run_names
from lab.stats.paired import MIN_BLOCKS, Floats
from lab.stats.units import format_blocks
from lab.systems import workers

SIZES, ADVISED = (1, 2, 4, 8, 16), 4
"""The sizes of a proxy in cores, and the one that the advice is for; a requested size replaces them."""
MOST_THREADS = 64
"""The largest threadCount that OpenShift's operator accepts (openshift/api, operator/v1/types_ingresscontroller.go)."""
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
"""The largest distance from the requested utilisation at which a load's own price is used, without interpolation."""
Bound = Literal["", "at least", "at most"]


@dataclass(frozen=True, slots=True)
class RequestKind:
    """The properties that requests for one page must have in common so that each costs the proxy the same CPU time.

    Attributes:
        tls: Where TLS ends: `none`, `edge`, `passthrough` or `reencrypt`.
        keepalive: True if connections are kept, False if each request has a new one.
        resumption: True if TLS sessions are resumed, False for full handshakes. None for requests without TLS or on
            kept connections.

    """

    tls: Tls
    keepalive: bool
    resumption: bool | None

    def __str__(self) -> str:
        resumed = {None: "", True: ", TLS sessions resumed", False: ", full TLS handshakes"}[self.resumption]
        return f"TLS {self.tls}, {'keep-alive' if self.keepalive else 'a new connection per request'}{resumed}"


@dataclass(frozen=True, slots=True)
class PricedLoad:
    """A load at which a run measured the price of a request (the proxy's CPU time for it) for one arm.

    Attributes:
        arm: The arm (variant in the run).
        point: The load point.
        kind: The kind of the load's requests.
        costs_s: The proxy's CPU seconds per good answer, one number per block (repetition).
        busy: The utilisation (0 to 1) of the CPUs that the proxy can use, the median over blocks. None if the proxy
            shares its CPUs with other processes.
        generator: The name of the load generator.

    """

    arm: Arm
    point: LoadPoint
    kind: RequestKind
    costs_s: tuple[float, ...]
    busy: float | None
    generator: str

    @property
    def text(self) -> str:
        """The name of the load for people, with how busy the proxy was if that is known: `ceiling (98 % busy)`."""
        return self.point.name if self.busy is None else f"{self.point.name} ({100 * self.busy:.0f} % busy)"


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The price of a request: the CPU time that one request costs a proxy at a requested utilisation of its CPUs.

    Attributes:
        value_s: The price in CPU seconds.
        draws: Random draws from the confidence distribution of the price, shape (DRAWS,); None for fewer than six
            blocks.
        blocks: The number of blocks (repetitions) from which the price is computed.
        basis: The loads from which the price is computed, for people.
        caution: What is uncertain about the price, for people. Empty if it was measured near the requested utilisation.
        loads: The loads from which the price is computed.
        bound: `at least` if the true price may be higher, `at most` if it may be lower, empty if the price is no bound.

    """

    value_s: float
    draws: Floats | None
    blocks: int
    basis: str
    caution: str
    loads: tuple[PricedLoad, ...]
    bound: Bound = ""

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The 95 % interval of the price of a request, in CPU seconds; None for fewer than six blocks (repetitions)."""
        return None if self.draws is None else interval_of_draws(self.draws)


def list_priced_loads(run: RunStore) -> Iterator[PricedLoad]:
    """Yield the loads at which a run measured the price of a request (the proxy's CPU time for it), in the plan's order.

    Loads that do not show the price of a good answer are left out:

    - second measurements of a baseline (A/A), and arms without a proxy;
    - points that examine something else, such as errors;
    - points with a disruption, and their control runs;
    - points with compressed or special answers.
    """
    points = [
        point
        for point in run.record.points
        if point.accept_encoding == "identity"
        and not (point.disturbance or point.control or point.subject or point.answers)
    ]
    if not points:
        return
    samples = run.samples()
    refuse_mixtures(run.record.plan(), samples)
    cells = group_values(
        ((arm, point), sample)
        for (_, arm, point), sample in sorted(select_counted_solo_samples(samples).items())
        if "proxy" in sample.usage and sample.cpu_per_request_s
    )
    for point, arm in product(points, run.record.arms):
        cell = cells.get((arm.name, point.name))
        if cell and arm.role not in ("reference", "again"):
            with suppress(UsageError):  # its routes do not define where TLS ends
                _, tls = hosts.choose_hosts(hosts.find_hosts(run.manifests(arm.variant)), True, point)
                resumption = point.resumption if tls != "none" and not point.keepalive else None
                kind = RequestKind(tls, point.keepalive, resumption)
                costs_s = tuple(sample.cpu_per_request_s or 0.0 for sample in cell)
                busy = _compute_utilisation(run, [sample for sample in samples if sample.variant == arm.variant], cell)
                yield PricedLoad(arm, point, kind, costs_s, busy, cell[0].generator)


def _compute_utilisation(run: RunStore, samples: Sequence[Sample], cell: Sequence[Sample]) -> float | None:
    """Return the utilisation (0 to 1) of the CPUs that a proxy can use: the median over the samples of one load.

    The proxy can use as many CPUs as it has workers or threads. Their number is the smallest one that a sample of the
    variant recorded or, without a record, the one in the manifests. CPU ticks miss short bursts, so the result is at
    least the share that follows from the CPU time that the scheduler counted.

    Args:
        run: The run.
        samples: All samples of the variant.
        cell: The samples of the load.

    Returns:
        The utilisation; None if the proxy shares its CPUs with other processes.

    """
    proxy_cpus = list_cpus(run.record, "proxy")
    if not proxy_cpus:
        return None
    worker_counts = [int(sample.gauges[workers.GAUGE]) for sample in samples if workers.GAUGE in sample.gauges]
    configured = min(worker_counts) if worker_counts else workers.count_configured(run.manifests(cell[0].variant))
    count, busy = min(configured or len(proxy_cpus), len(proxy_cpus)), list[float]()
    for sample in cell:
        used = sample.usage["proxy"].cpu_s / sample.duration_s if sample.duration_s else 0.0
        busy.append(min(1.0, max(sum(sample.busy.get(str(cpu), 0.0) for cpu in proxy_cpus), used) / count))
    return median(busy)


def compute_cost(loads: Sequence[PricedLoad], utilisation: float) -> RequestCost:
    """Compute the price of a request (the proxy's CPU time for it) at a utilisation, from measured loads of one arm.

    Args:
        loads: The loads of the arm (variant), at least one, all with requests of one kind and page size.
        utilisation: The utilisation of the proxy's CPUs, 0 to 1.

    """
    measured = [(load.busy, load) for load in loads if load.busy is not None]
    if not measured:
        fullest = max(loads, key=lambda load: (load.point.rate_rps is None, load.point.rate_rps or 0))
        caution = "how busy the proxy itself was is not known (it has no CPUs of its own): the price of the fullest load is used"
        if fullest.point.rate_rps is not None:
            return _take_cost(fullest, caution)
        return _take_cost(fullest, f"AT LEAST: {caution}, and at less load a request costs more", "at least")
    measured.sort(key=lambda pair: (pair[0], pair[1].point.name))
    nearest_busy, nearest = min(measured, key=lambda pair: abs(pair[0] - utilisation))
    if abs(nearest_busy - utilisation) <= NEAR:
        return _take_cost(nearest)
    if measured[0][0] > utilisation:
        increase = "at less load a request finds the proxy asleep more often, and costs more"
        return _take_cost(nearest, f"AT LEAST: measured busier than asked for; {increase}", "at least")
    if measured[-1][0] < utilisation:
        decrease = "at more load a request costs less"
        return _take_cost(nearest, f"AT MOST: measured less busy than asked for; {decrease}", "at most")
    low_busy, low = next(pair for pair in reversed(measured) if pair[0] < utilisation)
    high_busy, high = next(pair for pair in measured if pair[0] > utilisation)
    low_draws, high_draws = draw_medians(low.costs_s), draw_medians(high.costs_s, SEED + 1)
    low_cost_s, high_cost_s = median(low.costs_s), median(high.costs_s)
    blocks = min(len(low.costs_s), len(high.costs_s))
    basis = f"{low.point.page}, between {low.text} and {high.text}; {format_blocks(blocks)} of {low.arm.name}"
    position = (utilisation - low_busy) / (high_busy - low_busy)
    if low.point.rate_rps and high.point.rate_rps:
        upper_rps = position * high.point.rate_rps
        position = spread = upper_rps / (upper_rps + (1 - position) * low.point.rate_rps)
        caution = "no load was measured near it: the price follows from the proxy's idle cost and marginal cost, the line through both loads"
    else:
        spread = np.random.default_rng(SEED).uniform(size=DRAWS)
        caution = (
            f"no load was measured near {100 * utilisation:.0f} % busy: the price is that of the proxy's idle share between the two,"
            " which is a model; its interval is all between them"
        )
    value_s = low_cost_s + (high_cost_s - low_cost_s) * position
    draws = None if low_draws is None or high_draws is None else low_draws + (high_draws - low_draws) * spread
    return RequestCost(value_s, draws, blocks, basis, caution, (low, high))


def _take_cost(load: PricedLoad, caution: str = "", bound: Bound = "") -> RequestCost:
    """Return the price of a request (its CPU time) as measured at one load: the median over blocks (repetitions).

    Args:
        load: The load.
        caution: What is uncertain about the price, for people; empty for nothing.
        bound: `at least` if the true price may be higher, `at most` if it may be lower, empty for neither.

    """
    blocks = len(load.costs_s)
    basis = f"{load.point.page}, at {load.text}; {format_blocks(blocks)} of {load.arm.name}"
    return RequestCost(median(load.costs_s), draw_medians(load.costs_s), blocks, basis, caution, (load,), bound)


def interval_of_draws(draws: Floats) -> tuple[float, float]:
    """Return the 95 % interval of a confidence distribution, from random draws: their 2.5 % and 97.5 % quantiles."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def draw_medians(values: Sequence[float], seed: int = SEED) -> Floats | None:
    """Return random draws from a distribution-free confidence distribution of the blocks' median.

    The true median lies between the k-th and the next of n sorted values with probability Bin(k; n, ½) (Thompson 1936).

    Args:
        values: One value per block (repetition).
        seed: The seed of the random draws.

    Returns:
        The draws, shape (DRAWS,); None for fewer than six blocks.

    """
    x, n = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    if n < MIN_BLOCKS:
        return None
    rng = np.random.default_rng([seed, n])
    ranks = rng.binomial(n, 0.5, DRAWS)
    low, high = x[np.maximum(ranks - 1, 0)], x[np.minimum(ranks, n - 1)]
    return low + (high - low) * rng.uniform(size=DRAWS)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The demand of a capacity question: how many requests of which kind, at which utilisation of the proxies.

    Attributes:
        rate_rps: Good answers per second, of all proxies together.
        tls: Where TLS ends: `none`, `edge`, `passthrough` or `reencrypt`.
        keepalive: True if connections are kept, False if each request has a new one.
        page: The name of the requested page.
        utilisation: The highest utilisation of the proxies' CPUs, 0 to 1.
        resumption: True if TLS sessions are resumed, False for full handshakes, None for either.
        variant: The variant whose price of a request is used; None to choose one from what the run measured.

    """

    rate_rps: float
    tls: Tls
    keepalive: bool
    page: str
    utilisation: float
    resumption: bool | None = None
    variant: str | None = None

    @property
    def page_bytes(self) -> int:
        """The size of the requested page, in bytes."""
        return PAGES[self.page]

    @property
    def usual(self) -> str:
        """The variant whose price of a request (CPU time) is used if a run has no baseline that measured this price.

        It is the variant that the demand names. If the demand names none, it is the one that usually serves such
        requests, such as `okd-edge` for edge TLS.
        """
        plain = "ingress-nginx" if self.keepalive else "okd"
        return self.variant or (plain if self.tls == "none" else f"okd-{self.tls}")

    def fits(self, load: PricedLoad) -> bool:
        """Return whether a measured load has the kind of requests, the page size and the variant of this demand."""
        kind, size = load.kind, PAGES[load.point.page]
        same_kind = (kind.tls, kind.keepalive, size) == (self.tls, self.keepalive, self.page_bytes)
        resumption = self.resumption is None or kind.resumption in (None, self.resumption)
        return same_kind and resumption and self.variant in (None, load.arm.variant)


@dataclass(frozen=True, slots=True)
class ProxySize:
    """A size of a proxy in cores, with the number of such proxies that a demand needs.

    Attributes:
        cores: The cores of each proxy.
        serves_rps: The requests per second that one proxy serves at the highest utilisation.
        serves_interval_rps: The 95 % interval of `serves_rps`; None for fewer than six blocks (repetitions).
        proxies: The number of proxies needed.
        proxies_interval: The 95 % interval of `proxies`; None for fewer than six blocks.

    """

    cores: int
    serves_rps: float
    serves_interval_rps: tuple[float, float] | None
    proxies: int
    proxies_interval: tuple[int, int] | None

    @property
    def advised(self) -> int:
        """The number of proxies of this size to run: the upper end of the number needed, and one spare.

        The upper end is that of the 95 % interval; without an interval it is the number needed itself.
        """
        return (self.proxies_interval[1] if self.proxies_interval else self.proxies) + 1


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a capacity question: how many cores and proxies a demand needs, by the measured price of a request.

    Attributes:
        wanted: The demand.
        runs: The ids of the runs in which the price was measured.
        cost: The price of a request: the proxy's CPU time for it.
        cores: The number of cores needed in all.
        cores_interval: The 95 % interval of `cores`; None for fewer than six blocks (repetitions).
        sizes: For each size of a proxy, how many proxies the demand needs.
        advised: The size of a proxy that the snippet is for.
        assumptions: Everything that the answer assumes, as sentences.
        snippet: The command or configuration that sets up the advised number of proxies.

    """

    wanted: Wanted
    runs: tuple[str, ...]
    cost: RequestCost
    cores: float
    cores_interval: tuple[float, float] | None
    sizes: tuple[ProxySize, ...]
    advised: ProxySize
    assumptions: tuple[str, ...]
    snippet: str


def compute_capacity(name: str | None, demand: Wanted, cores: int | None) -> Answer:
    """Compute how many proxies a demand needs, from the price of a request (CPU time) that one run measured.

    Args:
        name: The name or folder of the run. If it is None, runs are searched, the user's own before the committed ones.
            The first one that has the price with an interval is used, or else the first that has the price.
        demand: The demand.
        cores: The cores of each proxy; None to compute several sizes (SIZES).

    Raises:
        UsageError: No run measured the price of such a request.

    """
    available, priced = dict[str, None](), list[tuple[RunStore, RequestCost]]()
    for run in [RunStore.open(name)] if name else _iterate_runs(demand):
        try:
            loads = list(list_priced_loads(run))
        except LabError:
            if name:
                raise
            continue  # a damaged run is passed over, and reported only where it was named
        available |= dict.fromkeys(f"{load.arm.variant}: {load.kind}, {load.point.page}" for load in loads)
        if fitting := [load for load in loads if demand.fits(load)]:
            priced.append((run, choose_price(fitting, demand)))
            if priced[-1][1].draws is not None:
                break
    if not priced:
        variant_text = f" of '{demand.variant}'" if demand.variant else ""
        new_tls = demand.tls != "none" and not demand.keepalive
        kind = RequestKind(demand.tls, demand.keepalive, demand.resumption if new_tls else None)
        fault = f"no price{variant_text} for {kind} was measured with {demand.page}"
        hint = f"what runs there are have: {'; '.join(available)}\n  " if available else ""
        raise UsageError("capacity", fault, f"{hint}measure it: just bench {demand.usual} with such a load (--sweep)")
    run, cost = priced[-1] if priced[-1][1].draws is not None else priced[0]
    factor, ends = demand.rate_rps / demand.utilisation, cost.interval_s
    sizes = tuple(compute_size(cost, demand, count) for count in ([cores] if cores else SIZES))
    advised = next((size for size in sizes if size.cores == ADVISED), sizes[0])
    return Answer(
        demand,
        runs=(run.record.id,),
        cost=cost,
        cores=factor * cost.value_s,
        cores_interval=(factor * ends[0], factor * ends[1]) if ends else None,
        sizes=sizes,
        advised=advised,
        assumptions=_list_assumptions(run.record, cost, demand),
        snippet=make_snippet(run, cost.loads[0].arm.variant, advised.advised, advised.cores),
    )


def _iterate_runs(demand: Wanted) -> Iterator[RunStore]:
    """Yield the runs that may have measured the price of a request (CPU time): first the user's own, then committed ones.

    Of the user's own runs, the latest comes first. Of the committed runs, those with the variant that usually serves
    such requests (`Wanted.usual`, for example `okd-edge` for edge TLS) come before the others. Within each of these two
    groups of committed runs, runs whose proxy had CPUs to itself come first, and then the latest ones.

    Args:
        demand: The demand of the capacity question.

    """
    for folder in (runs_folder(), reference_folder()):
        opened: list[RunStore] = []
        for name in reversed(run_names(folder)):
            with suppress(LabError):  # a damaged run is passed over, as in `compute_capacity`
                opened.append(RunStore.open(str(folder / name)))
        if folder == reference_folder():
            opened.sort(key=lambda run: run.record.created_at, reverse=True)
            opened.sort(key=lambda run: (demand.usual not in run.record.variants, not list_cpus(run.record, "proxy")))
        yield from opened


def choose_price(loads: Sequence[PricedLoad], demand: Wanted) -> RequestCost:
    """Compute the price of a request (its CPU time) for one arm (variant in a run).

    The arm is the baseline. If no load is the baseline's, it is the variant that usually serves such requests
    (`Wanted.usual`), or else the first arm.

    Args:
        loads: The loads that fit the demand, at least one; an arm without a load is not considered.
        demand: The demand.

    Raises:
        UsageError: The arm was measured both with full and with resumed TLS handshakes.

    """
    arm = min((load.arm for load in loads), key=lambda arm: (arm.role != "baseline", arm.variant != demand.usual))
    arm_loads = [load for load in loads if load.arm == arm]
    refuse_if(
        len({load.kind for load in arm_loads}) > 1,
        "--handshakes",
        f"{arm.name} was measured with full and with resumed TLS handshakes, which cost very different amounts",
        "say which: --handshakes full, or --handshakes resumed",
    )
    return compute_cost(arm_loads, demand.utilisation)


def compute_size(cost: RequestCost, demand: Wanted, cores: int) -> ProxySize:
    """Compute how many proxies of a size a demand needs, given the price of a request (its CPU time).

    Args:
        cost: The price of a request.
        demand: The demand.
        cores: The cores of each proxy.

    """
    serves = cores * demand.utilisation / cost.value_s
    if cost.draws is None:
        return ProxySize(cores, serves, None, round_up(demand.rate_rps / serves), None)
    low, high = interval_of_draws(cores * demand.utilisation / cost.draws)
    low, high = (
        min(low, serves),
        max(high, serves),
    )  # a quantile of draws may lie on the wrong side of the estimate by rounding
    proxies = (round_up(demand.rate_rps / high), round_up(demand.rate_rps / low))
    return ProxySize(cores, serves, (low, high), round_up(demand.rate_rps / serves), proxies)


def round_up(proxies: float) -> int:
    """Round a number of proxies up to an integer, at least 1.

    A number that exceeds an integer only by a rounding error is rounded to that integer.
    """
    return max(1, ceil(proxies * (1 - 1e-12)))


def make_snippet(run: RunStore, variant: str, replicas: int, cores: int) -> str:
    """Return the command or configuration that sets up a number of proxies of a size, for the system that a run measured.

    Args:
        run: The run.
        variant: The variant whose manifests show which system it is.
        replicas: The number of proxies.
        cores: The cores of each proxy.

    """
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


def _list_assumptions(record: RunRecord, cost: RequestCost, demand: Wanted) -> tuple[str, ...]:
    facts, first = record.facts, cost.loads[0]
    cpu = f"{facts.get('cpu', 'unknown CPU')}, {facts.get('kernel', 'unknown kernel')}"
    generators = dict.fromkeys(f"{load.generator}, {load.point.connections:,} connections" for load in cost.loads)
    crowded = "above 85 % there is no room for bursts: queues grow as 1/(1 − utilisation)"
    assumptions = (
        f"measured on this target: {facts.get('target', record.target)}",
        f"measured on this machine: {cpu}; another machine has another price: measure there, and name that run",
        f"requests come as in the run: {first.kind}; {'; '.join(generators)}; what they cost behind other settings is not known",
        cost.caution,
        "LINEAR IN CORES: twice the cores are taken to serve twice as much, which was not measured (requests per second by workers: just study qinng)",
        f"CPU is the limit: neither the network, memory, ports nor the backends are looked at, and nothing is said of latency (just knee {first.arm.variant})",
        crowded if demand.utilisation > 0.85 else "",
    )
    return tuple(filter(None, assumptions))
