"""What a claim or a figure may ask of a sample beside `lab.model.metrics.METRICS`: from its record, its log, or the manifests applied.

Pure but for reading the run's own files. Refuses to guess: what they cannot tell is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from lab.analysis import pidstat
from lab.base.errors import NotMeasurableError
from lab.disturbances import _asked as asked
from lab.model.samples import Sample
from lab.model.variants import hosts
from lab.records import outcomes
from lab.records.store import RunStore
from lab.stats.histogram import bucket_edges_s


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


def _ratio(sample: Sample, over: str, under: str) -> float | None:
    first, second = sample.outcome.get(over), sample.outcome.get(under)
    return first / second if first is not None and second else None


def _answered_while_failing(run: RunStore, sample: Sample) -> float | None:
    """Of the requests that fell due from the first failure to the last, the share that was answered rightly; None without failures."""
    log = run.requests(sample)
    log = log.with_columns(right=outcomes.right(sample.point, log))
    failed = log.filter(~pl.col("right"))["due_s"]
    if failed.is_empty():
        return None
    return log.filter(pl.col("due_s").is_between(failed.min(), failed.max())).select(pl.col("right").mean()).item()


def _refused_share(_: RunStore, sample: Sample) -> float | None:
    """Of all large bodies, those that were answered with 413; None where none was tried."""
    tried = [sample.outcome.get(name) for name in ("transfers", "too_large", "transfers_lost")]
    total = sum(count for count in tried if count is not None)
    return (sample.outcome.get("too_large") or 0.0) / total if total else None


def _link_share(_: RunStore, sample: Sample) -> float | None:
    """How full the shaped link was towards the client, as `lab.model.bottleneck` counts it; None where none was shaped."""
    mbit, duration_s = sample.point.link_mbit, sample.duration_s
    return sample.counters.get("client/rx_bytes", 0) * 8 / (mbit * 1e6 * duration_s) if mbit and duration_s else None


def _mean_s(run: RunStore, sample: Sample) -> float | None:
    """Average latency. Of printed percentiles, what their curve integrates to: between two of them it is taken to be straight."""
    found = run.histogram(sample)
    if found is None or not found.total:
        return None
    filled = np.flatnonzero(found.counts)
    low, high = bucket_edges_s(filled)
    if found.kind == "quantiles":  # what lies between two percentiles was counted at the upper one
        low = np.concatenate([low[:1], high[:-1]])
    return float(np.average((low + high) / 2, weights=found.counts[filled]))


def _quantile_s(share: float) -> Callable[[RunStore, Sample], float | None]:
    """A percentile that no table shows; None where too few requests lie beyond it."""

    def told(run: RunStore, sample: Sample) -> float | None:
        found = run.histogram(sample)
        return found.quantile_s(share) if found is not None else None

    return told


def _slowest_s(run: RunStore, sample: Sample) -> float | None:
    """The slowest request's latency, as the table's `max`; None where none was recorded."""
    found = run.histogram(sample)
    return found.maximum_s if found is not None else None


def _failed_share(_: RunStore, sample: Sample) -> float | None:
    """Of all requests, those not answered as they should; of steady loads by what the generator counted."""
    if sample.outcome:
        return _ratio(sample, "failed", "requests")
    failed, status = sum(sample.errors.values()), sample.errors.get("status", 0)
    total = (sample.requests or 0) + failed - status
    return failed / total if total else None


def _spread(run: RunStore, sample: Sample) -> float | None:
    """p99 as a multiple of p50: 1 would be a flat line. None where too few requests lie beyond p99."""
    found = run.histogram(sample)
    middle, high = (found.quantile_s(share) if found else None for share in (0.5, 0.99))
    return high / middle if middle and high is not None else None


def _counted(name: str) -> Callable[[RunStore, Sample], float | None]:
    """What the kernel counted in the whole sample; None where nobody counted."""

    def of(_: RunStore, sample: Sample) -> float | None:
        return float(sample.counters[name]) if name in sample.counters else None

    return of


def _per_good_request(sample: Sample, amount: float | None) -> float | None:
    good = (sample.requests or 0) - sample.errors.get("status", 0)
    return amount / good if amount is not None and good > 0 else None


def _counted_per_request(*names: str) -> Callable[[RunStore, Sample], float | None]:
    """The sum of these counters for every good answer; None where nobody counted one of them.

    The proxy's are of its connections to both sides; the client's link tells what it carried towards it, headers and all.
    """

    def of(_: RunStore, sample: Sample) -> float | None:
        counted = [sample.counters[name] for name in names if name in sample.counters]
        return _per_good_request(sample, sum(counted) if len(counted) == len(names) else None)

    return of


def _backend_cpu_per_request(_: RunStore, sample: Sample) -> float | None:
    used = sample.usage.get("backend")
    return _per_good_request(sample, used.cpu_s if used else None)


def _busiest_second(run: RunStore, sample: Sample) -> float | None:
    """CPUs that any one of the proxy's processes used in any one second, as pidstat counts; None where no second was seen whole."""
    seconds = pidstat.cpu_table(run.usage(sample)).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
    most = seconds["cpu_percent"].max()
    return most / 100 if isinstance(most, float) else None


DERIVED: Mapping[str, Callable[[RunStore, Sample], float | None]] = {
    "rate": lambda _, sample: sample.goodput_rps,
    "cpu_per_request": lambda _, sample: sample.cpu_per_request_s if "proxy" in sample.usage else None,
    "memory_bytes": lambda _, sample: float(sample.usage["proxy"].rss_bytes) if "proxy" in sample.usage else None,
    "bring_up_s": lambda _, sample: sample.bring_up_s,
    "mean_s": _mean_s,
    "p75_s": _quantile_s(0.75),
    "p95_s": _quantile_s(0.95),
    "slowest_s": _slowest_s,
    "busiest_second": _busiest_second,
    "failed_share": _failed_share,
    "spread": _spread,
    "dropped_connections": _counted("proxy/ListenOverflows"),
    "opened_connections": _counted("proxy/ActiveOpens"),
    "bytes_per_request": _counted_per_request("client/rx_bytes"),
    "accepted_per_request": _counted_per_request("proxy/PassiveOpens"),
    "opened_per_request": _counted_per_request("proxy/ActiveOpens"),
    "segments_per_request": _counted_per_request("proxy/InSegs", "proxy/OutSegs"),
    "backend_cpu_per_request": _backend_cpu_per_request,
    "slowdown": lambda _, sample: _ratio(sample, "p50_during_s", "p50_before_s"),
    "answered_while_failing": _answered_while_failing,
    "refused_share": _refused_share,
    "link_share": _link_share,
    "routes": lambda run, sample: float(len(hosts.routed(run.manifests(sample.variant)))),
    "least_reload_spacing_s": _least_spacing_s,
    "startup_allowance_s": _startup_allowance_s,
    "reload_interval_s": _reload_interval_s,
}
"""What a claim may be about beside `lab.model.metrics.METRICS`, percentiles and gauges."""
