"""Stored runs → what a request cost the proxy: one load per arm and point, with its CPU seconds per request by block.

Refuses to mix runs of different targets, generators or facts, and leaves out what is no price of a good answer: loads whose
subject is errors, disturbances, compressed answers, and samples that saw no proxy (the backend's CPU is not a proxy's).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from lab.analysis.cells import counted_alone, refuse_mixtures
from lab.base.errors import UsageError
from lab.model.endpoint import Tls
from lab.model.facts import EVERY_BOOT
from lab.model.pages import PAGES
from lab.model.plan import Arm
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.model.variants import hosts, workers
from lab.records.store import RunStore

VOLATILE = (*EVERY_BOOT, "open_files", "privilege")
"""Facts that no request's price depends on."""
NO_PRICE = ("reference", "again")
"""Roles of arms without a proxy, and of those whose price is another arm's."""


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
    """One arm at one point. `costs_s`: CPU seconds of the proxy per good answer, a value per block. `busy`: how full those of the proxy's own
    CPUs were on average that it can fill (`workers_of`), the blocks' median; None where the proxy has none of its own.
    """

    arm: Arm
    point: Point
    kind: Kind
    page_bytes: int
    costs_s: tuple[float, ...]
    busy: float | None
    generator: str

    @property
    def text(self) -> str:
        """`ceiling (98 % busy)`."""
        return self.point.name if self.busy is None else f"{self.point.name} ({self.busy:.0%} busy)".replace("%", " %")


def loads_of(runs: Sequence[RunStore]) -> list[Load]:
    """Every load of a proxy that has a valid block, in the plans' order, without A/A twins; of several runs the blocks of all."""
    refuse_different(runs)
    found: dict[tuple[str, str], list[Load]] = {}
    for run in runs:
        for load in _of(run):
            found.setdefault((load.arm.name, load.point.name), []).append(load)
    return [_merged(loads) for loads in found.values()]


def refuse_different(runs: Sequence[RunStore]) -> None:
    """UsageError where runs differ in what a request's price may depend on."""
    for other in runs[1:]:
        first, second = runs[0].record, other.record
        keys = [name for name in first.facts | second.facts if name not in VOLATILE]
        different = [name for name in keys if first.facts.get(name) != second.facts.get(name)]
        different += ["target"] if first.target != second.target else []
        points = {point.name: point for point in first.points}
        different += [f"point {p.name}" for p in second.points if points.get(p.name, p) != p]
        shared = first.generators.keys() & second.generators.keys()
        different += [
            f"generator at {name}" for name in sorted(shared) if first.generators[name] != second.generators[name]
        ]
        shared = first.variants.keys() & second.variants.keys()
        hashes = ((name, first.variants[name], second.variants[name]) for name in sorted(shared))
        different += [f"manifests of {name}" for name, a, b in hashes if a.manifests_sha256 != b.manifests_sha256]
        if different:
            raise UsageError(
                "--run",
                f"{first.id} and {second.id} differ in {', '.join(dict.fromkeys(different))}",
                "such runs are never mixed: name one, or runs made alike",
            )


def kind_of(run: RunStore, variant: str, point: Point) -> Kind | None:
    """None where the variant's routes cannot serve the point, or its load is no price of a good answer."""
    if not has_price(point):
        return None
    try:
        _, tls = hosts.chosen(hosts.routed(run.manifests(variant)), True, point)
    except UsageError:
        return None
    return Kind(tls, point.keepalive, point.resumption if tls != "none" and not point.keepalive else None)


def has_price(point: Point) -> bool:
    """Whether nothing but good, uncompressed answers is what a load is about."""
    return (
        point.disturbance is None
        and not (point.control or point.subject or point.answers)
        and point.accept_encoding == "identity"
    )


def proxy_cpus(run: RunStore) -> frozenset[int]:
    """The CPUs that the proxy had to itself; none on a cluster."""
    listed = run.record.facts.get("cpus_proxy", "")
    try:
        ends = [part.split("-") for part in listed.split(",") if part]
        return frozenset(cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1))
    except ValueError:
        return frozenset()


def workers_of(run: RunStore, variant: str, samples: Sequence[Sample]) -> int | None:
    """How many CPUs a variant's proxy can fill: as many as it had workers or threads, by what its samples counted or, where they did
    not, by the manifests that were applied, at most its own CPUs, which it fills where they leave it to the proxy. None: not known.
    """
    ran = [int(one.gauges[workers.GAUGE]) for one in samples if one.variant == variant and workers.GAUGE in one.gauges]
    found = (min(ran) if ran else workers.asked(run.manifests(variant)), len(proxy_cpus(run)))
    return min((count for count in found if count), default=None)


def _of(run: RunStore) -> list[Load]:
    samples = run.samples()
    refuse_mixtures(run.record.plan(), samples)
    own = proxy_cpus(run)
    cells: dict[tuple[str, str], list[Sample]] = {}
    for (_, arm, point), sample in sorted(counted_alone(samples).items()):
        if "proxy" in sample.usage and sample.cpu_per_request_s:
            cells.setdefault((arm, point), []).append(sample)
    counts = {variant: workers_of(run, variant, samples) for variant in {cell[0].variant for cell in cells.values()}}
    found: list[Load] = []
    for point in run.record.points:
        for arm in run.record.arms:
            cell = cells.get((arm.name, point.name), [])
            kind = kind_of(run, arm.variant, point) if cell and arm.role not in NO_PRICE else None
            if kind is None:
                continue
            count = counts[arm.variant]
            busy = [_busy(sample, own, count) for sample in cell] if own and count else []
            found.append(
                Load(
                    arm,
                    point,
                    kind,
                    PAGES[point.page],
                    tuple(sample.cpu_per_request_s or 0.0 for sample in cell),
                    median(busy) if busy else None,
                    cell[0].generator,
                )
            )
    return found


def _busy(sample: Sample, own: frozenset[int], count: int) -> float:
    """The mean, as U = X·S/k has it: workers that share a queue unequally leave the least busy CPU far below it.

    Clock ticks miss short bursts of work, so what the scheduler counted for the proxy is the least.
    """
    ticked = sum(sample.busy.get(str(cpu), 0.0) for cpu in own)
    used = sample.usage["proxy"].cpu_s / sample.duration_s if sample.duration_s else 0.0
    return min(1.0, max(ticked, used) / count)


def _merged(loads: Sequence[Load]) -> Load:
    busy = [load.busy for load in loads if load.busy is not None]
    return replace(
        loads[0],
        costs_s=tuple(cost for load in loads for cost in load.costs_s),
        busy=median(busy) if busy else None,
    )
