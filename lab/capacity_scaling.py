"""A run's arms, or a published table → throughput by size, and the scalability law of it.

Refuses what the proxy did not limit (a generator's ceiling is no law of the proxy's) and fewer than four sizes.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import scalability
from lab.capacity_cells import loads_of, proxy_cpus
from lab.errors import UsageError, did_you_mean
from lab.store import RunStore

PUBLISHED = Path(__file__).resolve().parents[1] / "data" / "published"
TABLES = {"qinng": ("qinng_workers.csv", "worker_cpus", "requests_per_s")}
"""Study → file, column of sizes, column of throughputs."""
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
    file, size, rate = TABLES[study]
    try:
        with (PUBLISHED / file).open(newline="", encoding="utf-8") as table:
            rows = [(float(row[size]), float(row[rate])) for row in csv.DictReader(table)]
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(f"data/published/{file}", f"cannot be read: {error}", "restore it from git") from None
    return Sized(f"published by {study}", tuple(n for n, _ in rows), tuple(x for _, x in rows))


def of_run(run: RunStore) -> Sized:
    """Every block of the point (and page and kind of request) at which most sizes reached a ceiling of the proxy's."""
    found: dict[str, list[tuple[float, float]]] = {}
    for load in loads_of([run]):
        workers = workers_of(run, load.arm.variant)
        if workers is not None:
            pairs = [(float(workers), rate) for rate in load.ceilings_rps.values()]
            found.setdefault(f"{load.point.name}, {load.kind}", []).extend(pairs)
    name, pairs = max(found.items(), key=lambda item: len({n for n, _ in item[1]}), default=("", []))
    sizes = sorted({n for n, _ in pairs})
    if len(sizes) < scalability.MIN_SIZES:
        have = ", ".join(f"{size:g}" for size in sizes) or "none"
        fault = f"{run.record.id} has ceilings of its proxy at {len(sizes)} sizes ({have}), {scalability.MIN_SIZES} are needed"
        raise UsageError("--scaling", fault, f"{MEASURE}; or --scaling published:qinng, another machine's law")
    return Sized(f"{run.record.id} at {name}", tuple(n for n, _ in pairs), tuple(x for _, x in pairs))


def workers_of(run: RunStore, variant: str) -> int | None:
    """Workers or threads of one proxy by the manifests that were applied; where they leave it to the proxy, its CPUs."""
    for obj in run.manifests(variant):
        text = _asked(obj)
        if text is not None and text.isdigit():
            return int(text)
    return proxy_cpus(run)


def _asked(obj: Mapping[str, Any]) -> str | None:
    if obj.get("kind") == "ConfigMap":
        return (obj.get("data") or {}).get("worker-processes")
    if obj.get("kind") != "Deployment":
        return None
    containers = obj["spec"]["template"]["spec"]["containers"]
    variables = (item for container in containers for item in container.get("env") or [])
    return next((str(item.get("value")) for item in variables if item["name"] == "ROUTER_THREADS"), None)
