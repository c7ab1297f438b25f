"""A run's arms, or a published table → throughput by size, and the scalability law of it.

Refuses what the proxy did not limit (a generator's ceiling is no law of the proxy's), fewer than four sizes, and to put proxies into
one law that differ in more than their workers.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.analysis.capacity.cells import Kind, Load, loads_of
from lab.base.errors import UsageError, did_you_mean
from lab.model.variants import workers
from lab.records import published
from lab.records.store import RunStore
from lab.stats import usl as scalability

TABLES = {"qinng": ("qinng_workers", "worker_cpus", "requests_per_s")}
"""Study → table of data/published, column of sizes, column of throughputs."""
PREFIX = "published:"
MEASURE = (
    "measure four or more: just bench qinng-workers-1 qinng-workers-2 qinng-workers-4 qinng-workers-8 --sweep qinng"
)


@dataclass(frozen=True, slots=True)
class Sized:
    """Throughput (req/s) by size (workers or threads of one proxy), and where it comes from."""

    source: str
    sizes: tuple[float, ...]
    rates_rps: tuple[float, ...]

    def fit(self) -> scalability.Scaling:
        return scalability.fit(self.sizes, self.rates_rps)


def sized(name: str) -> Sized:
    """`published:STUDY` or a run. UsageError where it has fewer than four sizes."""
    if not name.startswith(PREFIX):
        return of_run(RunStore.open(name))
    study = name.removeprefix(PREFIX)
    if study not in TABLES:
        raise UsageError("--scaling", f"no published scaling of '{study}'", did_you_mean(study, TABLES))
    table, size, rate = TABLES[study]
    rows = [(float(row[size] or 0), float(row[rate] or 0)) for row in published.rows(table)]
    if len({n for n, _ in rows}) < scalability.MIN_SIZES:
        fault = f"expected {scalability.MIN_SIZES} or more sizes, found {len(rows)}"
        raise UsageError(f"data/published/{table}.csv", fault, "restore it from git")
    return Sized(f"published by {study}", tuple(n for n, _ in rows), tuple(x for _, x in rows))


def of_run(run: RunStore) -> Sized:
    """Every block in which the proxy was the limit, of the arms that differ in nothing but the number of their workers, at the
    point where most sizes have one. UsageError where fewer than four have.
    """
    found: dict[tuple[str, Kind, str], list[Load]] = {}
    for load in loads_of([run]):
        if load.workers is not None and load.ceilings_rps:
            rest = workers.without(run.manifests(load.arm.variant))
            found.setdefault((load.point.name, load.kind, rest), []).append(load)
    alike = max(found.values(), key=lambda loads: len({load.workers for load in loads}), default=[])
    sizes = sorted({load.workers or 0 for load in alike})
    if len(sizes) < scalability.MIN_SIZES:
        have = ", ".join(map(str, sizes)) or "none"
        fault = f"{run.record.id} has ceilings of its proxy at {len(sizes)} sizes ({have}), {scalability.MIN_SIZES} are needed"
        raise UsageError("--scaling", fault, f"{MEASURE}; or --scaling published:qinng, another machine's law")
    pairs = [(float(load.workers or 0), rate) for load in alike for rate in load.ceilings_rps.values()]
    variants = ", ".join(dict.fromkeys(load.arm.variant for load in alike))
    source = f"{run.record.id} at {alike[0].point.name}, {alike[0].kind} ({variants})"
    return Sized(source, tuple(n for n, _ in pairs), tuple(x for _, x in pairs))
