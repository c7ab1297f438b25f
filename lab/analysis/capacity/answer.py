"""Runs and what is asked → the whole answer: price, sizes, assumptions, what to apply and what would narrow it.

The run, where none is named: the latest of yours that has the very page with an interval, else a committed one (of the variant that
is usual for such a request, on CPUs of its own, if there is one; the latest of these); then those without an interval; then those
that have other page sizes to go by. Runs are read until one fits; damaged ones are passed over, and said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.analysis.capacity import advice as capacity_advice
from lab.analysis.capacity import size as capacity
from lab.analysis.capacity.cells import NO_PRICE, Kind, Load, kind_of, loads_of, proxy_cpus
from lab.analysis.capacity.costs import Cost
from lab.analysis.capacity.size import Size, Wanted
from lab.base.errors import LabError, UsageError
from lab.base.files import reference_folder, runs_folder
from lab.model.run import RunRecord
from lab.records.store import RunStore, run_names

HELM_VALUES = """\
# Helm values of ingress-nginx: its ConfigMap, and resources and spec.replicas of its Deployment
controller:
  config:
    worker-processes: "{cores}"
  resources:
    requests:
      cpu: {cores}
  replicaCount: {replicas}"""
MOST_THREADS = 64
"""The largest threadCount that OpenShift's operator takes (openshift/api, operator/v1/types_ingresscontroller.go)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`advised`: the size that the snippet is for. `passed_over`: runs that could not be read."""

    wanted: Wanted
    runs: tuple[str, ...]
    cost: Cost
    cores: float
    cores_interval: tuple[float, float] | None
    sizes: tuple[Size, ...]
    advised: Size
    assumptions: tuple[str, ...]
    narrow: tuple[str, ...]
    snippet: str
    passed_over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The run or runs of one answer, and their loads."""

    runs: tuple[RunStore, ...]
    loads: tuple[Load, ...]
    passed_over: tuple[str, ...] = ()


def answer(names: Sequence[str], wanted: Wanted, cores: int | None) -> Answer:
    """UsageError where no run has such a price, or those named cannot be taken together."""
    chosen = named(names) if names else latest(wanted)
    cost = capacity.price(chosen.loads, wanted)
    needed, needed_interval = capacity.cores_needed(cost, wanted)
    sizes = tuple(capacity.size(cost, wanted, each) for each in ([cores] if cores else capacity.SIZES))
    advised = next((each for each in sizes if each.cores == capacity.ADVISED), sizes[0])
    return Answer(
        wanted=wanted,
        runs=tuple(run.record.id for run in chosen.runs),
        cost=cost,
        cores=needed,
        cores_interval=needed_interval,
        sizes=sizes,
        advised=advised,
        assumptions=tuple(_assumptions(chosen, cost, wanted)),
        narrow=tuple(capacity_advice.narrow(cost, wanted, _source(chosen, cost))),
        snippet=snippet(chosen.runs[0], cost.loads[0].arm.variant, advised.advised, advised.cores),
        passed_over=chosen.passed_over,
    )


def named(names: Sequence[str]) -> Chosen:
    """These runs together; UsageError where they differ in what matters."""
    runs = tuple(RunStore.open(name) for name in dict.fromkeys(names))
    return Chosen(runs, tuple(loads_of(runs)))


def latest(wanted: Wanted) -> Chosen:
    """The run to go by where none is named; UsageError where none has such a price."""
    passed_over: list[str] = []
    planned: dict[str, None] = {}
    refused: UsageError | None = None
    best: tuple[tuple[bool, bool], Chosen] | None = None
    for run in _every(wanted, passed_over):
        try:
            kinds = list(_planned(run))
            planned |= dict.fromkeys(f"{variant}: {kind}" for variant, kind in kinds)
            loads = loads_of([run]) if any(wanted.fits(*each) for each in kinds) else []
        except LabError as error:
            passed_over.append(f"{run.record.id}: {error.fault}")
            continue
        if not any(wanted.fits(load.arm.variant, load.kind) for load in loads):
            continue
        try:
            cost = capacity.price(loads, wanted)
        except UsageError as error:
            refused = refused or error
            continue
        rank = cost.how != "measured", cost.draws is None
        if best is None or rank < best[0]:
            best = rank, Chosen((run,), tuple(loads))
        if not any(rank):
            break
    if best is None:
        raise refused or capacity.missing(list(planned), wanted)
    return Chosen(best[1].runs, best[1].loads, tuple(passed_over))


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


def _every(wanted: Wanted, passed_over: list[str]) -> Iterator[RunStore]:
    """Yours, the latest first, then the committed ones, whose names are no times."""
    yield from _opened(runs_folder(), passed_over)
    committed = sorted(_opened(reference_folder(), passed_over), key=lambda run: run.record.created_at, reverse=True)
    usual = capacity.usual(wanted)
    yield from sorted(committed, key=lambda run: (usual not in run.record.variants, not proxy_cpus(run)))


def _opened(folder: Path, passed_over: list[str]) -> Iterator[RunStore]:
    for name in reversed(run_names(folder)):
        try:
            yield RunStore.open(str(folder / name))
        except LabError as error:
            passed_over.append(f"{name}: {error.fault}")


def _planned(run: RunStore) -> Iterator[tuple[str, Kind]]:
    """(variant, kind of request), by the plan alone, before any sample is read."""
    for arm in run.record.arms:
        for point in run.record.points:
            kind = kind_of(run, arm.variant, point) if arm.role not in NO_PRICE else None
            if kind is not None:
                yield arm.variant, kind


def _source(chosen: Chosen, cost: Cost) -> RunRecord:
    """Of several runs, the first that has the load that the price came from."""
    load = cost.loads[0]
    records = (run.record for run in chosen.runs)
    return next(record for record in records if load.arm in record.arms and load.point in record.points)


def _assumptions(chosen: Chosen, cost: Cost, wanted: Wanted) -> Iterator[str]:
    facts, first = chosen.runs[0].record.facts, cost.loads[0]
    target = facts.get("target", chosen.runs[0].record.target)
    cpu = f"{facts.get('cpu', 'unknown CPU')}, {facts.get('kernel', 'unknown kernel')}"
    yield f"measured on this target: {target}"
    yield f"measured on this machine: {cpu}; another machine has another price: measure there, and name that run"
    generators = dict.fromkeys(f"{load.generator}, {load.point.connections:,} connections" for load in cost.loads)
    yield f"requests come as in the run: {first.kind}; {'; '.join(generators)}; what they cost behind other settings is not known"
    yield from cost.cautions
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
