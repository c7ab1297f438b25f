"""What a claim or a figure may ask of a sample beside its outcome and gauges: from its record, its log, or the manifests applied.

Pure but for reading the run's own files. Refuses to guess: what they cannot tell is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from lab.analysis import pidstat
from lab.base.errors import NotMeasurableError
from lab.disturbances import _asked as asked
from lab.model.metrics import METRICS
from lab.model.samples import Sample
from lab.model.variants import hosts
from lab.records import outcomes
from lab.records.store import RunStore


def _least_spacing_s(run: RunStore, sample: Sample) -> float | None:
    """Least time between two reloads of one proxy: their beginnings, or where nobody tells those, their ends. None with fewer than two."""
    told = run.events(sample).sort("at_s")
    begun = told.filter(pl.col("kind") == "Reload")
    rows = begun if begun.height else told.filter(pl.col("kind") == "Reloaded")
    least = rows.select(pl.col("at_s").diff().over("object").min()).item()
    return least if isinstance(least, float) else None


def probe_timeouts_s(run: RunStore, variant: str) -> dict[str, float]:
    """Probe (liveness, readiness, startup) → how long it may take, by the manifests that were applied (kubelet's default: 1 s)."""
    container = _proxy_container(run, variant)
    found = {name: container.get(f"{name}Probe") for name in ("liveness", "readiness", "startup")}
    return {name: float(probe.get("timeoutSeconds", 1)) for name, probe in found.items() if probe is not None}


def _startup_allowance_s(run: RunStore, sample: Sample) -> float | None:
    """How long the proxy's startup probe lets it take, by the manifests that were applied (kubelet's rule: delay + period × failures)."""
    probe = _proxy_container(run, sample.variant).get("startupProbe")
    if probe is None:
        return None
    return probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)


def _reload_interval_s(run: RunStore, sample: Sample) -> float | None:
    """What the manifests that were applied set; None where they leave it to the router, or where there is none."""
    try:
        return asked.asked_interval_s(run.manifests(sample.variant))
    except NotMeasurableError:
        return None


def _proxy_container(run: RunStore, variant: str) -> Mapping[str, Any]:
    """As it was applied; empty where the variant has no proxy."""
    try:
        return asked.container(run.manifests(variant), "proxy")
    except NotMeasurableError:
        return {}


def _answered_while_failing(run: RunStore, sample: Sample) -> float | None:
    """Of the requests that fell due from the first failure to the last, the share that was answered rightly; None without failures."""
    log = run.requests(sample)
    log = log.with_columns(right=outcomes.right(sample.point, log))
    failed = log.filter(~pl.col("right"))["due_s"]
    if failed.is_empty():
        return None
    return log.filter(pl.col("due_s").is_between(failed.min(), failed.max())).select(pl.col("right").mean()).item()


def _busiest_second(run: RunStore, sample: Sample) -> float | None:
    """CPUs that any one of the proxy's processes used in any one second, as pidstat counts; None where no second was seen whole."""
    seconds = pidstat.cpu_table(run.usage(sample)).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
    most = seconds["cpu_percent"].max()
    return most / 100 if isinstance(most, float) else None


LOGS: Mapping[str, Callable[[RunStore, Sample], float | None]] = {
    "busiest_second": _busiest_second,
    "answered_while_failing": _answered_while_failing,
    "routes": lambda run, sample: float(len(hosts.routed(run.manifests(sample.variant)))),
    "least_reload_spacing_s": _least_spacing_s,
    "startup_allowance_s": _startup_allowance_s,
    "reload_interval_s": _reload_interval_s,
}
"""Metric → what tells it beside a sample's record and histogram."""
OF_PROXY = frozenset({"cpu_per_request", "memory_bytes"})
"""What a claim means of the proxy alone, where a table has the backend's in its place."""


def value_of(metric: str, run: RunStore, sample: Sample) -> float | None:
    """What a claim or a figure may ask of a sample. UsageError when a log or manifest that it needs is damaged."""
    if metric in LOGS:
        return LOGS[metric](run, sample)
    if metric in OF_PROXY and "proxy" not in sample.usage:
        return None
    return METRICS[metric].read(sample, run.histogram(sample) if METRICS[metric].histogram else None)
