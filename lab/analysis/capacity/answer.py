"""A run and what is asked → the whole answer: how many proxies of which size, what is assumed, what to apply.

    cores needed = rate · c / utilisation        one proxy of k cores serves k · utilisation / c

c: CPU seconds of the proxy per request (`costs`). This is the utilisation law (U = X·S, Denning & Buzen 1978) read backwards, linear in
cores, which is said. Refuses to say anything of latency, memory, bandwidth or of other machines: those are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from lab.analysis.capacity.costs import Cost, Kind, Load, cost_of, interval, loads_of, proxy_cpus
from lab.base.errors import LabError, UsageError
from lab.base.files import reference_folder, runs_folder
from lab.model.endpoint import Tls
from lab.model.pages import PAGES
from lab.model.run import RunRecord
from lab.records.store import RunStore, run_names

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
    """Return the answer by the run of that name, or by the one to go by. UsageError where no such price was measured."""
    run, cost = _priced(name, wanted)
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


def _priced(name: str | None, wanted: Wanted) -> tuple[RunStore, Cost]:
    """Return a run and its price: the run of that name, or the first of `_runs` with an interval, else the first that has the price."""
    have: dict[str, None] = {}
    best: tuple[RunStore, Cost] | None = None
    for run in [RunStore.open(name)] if name else _runs(wanted):
        try:
            loads = loads_of(run)
        except LabError:
            if name:
                raise
            continue  # a damaged run is no guide; it is reported when it is asked for
        have |= dict.fromkeys(f"{load.arm.variant}: {load.kind}, {load.point.page}" for load in loads)
        if fitting := [load for load in loads if wanted.fits(load)]:
            cost = price(fitting, wanted)
            if cost.draws is not None:
                return run, cost
            best = best or (run, cost)
    if best is None:
        of = f" of '{wanted.variant}'" if wanted.variant else ""
        new_tls = wanted.tls != "none" and not wanted.keepalive
        kind = Kind(wanted.tls, wanted.keepalive, wanted.resumption if new_tls else None)
        fault = f"no price{of} for {kind} was measured with {wanted.page}"
        there = f"what runs there are have: {'; '.join(have)}\n  " if have else ""
        raise UsageError("capacity", fault, f"{there}measure it: just bench {wanted.usual} with such a load (--sweep)")
    return best


def _runs(wanted: Wanted) -> Iterator[RunStore]:
    """Yield your runs, the latest first; then the committed ones, whose names are no times: first the usual variant's, on CPUs of its own."""
    for folder in (runs_folder(), reference_folder()):
        opened: list[RunStore] = []
        for name in reversed(run_names(folder)):
            with suppress(LabError):  # as above
                opened.append(RunStore.open(str(folder / name)))
        if folder == reference_folder():
            opened.sort(key=lambda run: run.record.created_at, reverse=True)
            opened.sort(key=lambda run: (wanted.usual not in run.record.variants, not proxy_cpus(run)))
        yield from opened


def price(loads: Sequence[Load], wanted: Wanted) -> Cost:
    """Return what a request costs the baseline, where it has one of the loads (at least one), else the usual variant, else the first arm.

    UsageError where it was measured with two kinds of handshakes.
    """
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
    yield (
        "LINEAR IN CORES: twice the cores are taken to serve twice as much, which was not measured (requests per second by"
        " workers: just study qinng)"
    )
    yield (
        "CPU is the limit: neither the network, memory, ports nor the backends are looked at, and nothing is said of latency"
        f" (just knee {first.arm.variant})"
    )
    if wanted.utilisation > 0.85:
        yield "above 85 % there is no room for bursts: queues grow as 1/(1 − utilisation)"
