"""A run in the OpenMetrics text format 1.0, which Prometheus' older text format reads as well: gauges and histograms, no timestamps.

    Sample(block=2, achieved_rps=998.2, …)  →  lab_achieved_requests_per_second{arm="keepalive",block="2",run="…",…} 998.2

One family after the other, every sample in each, by its label `sample`. Refuses to pool: a metric is one sample's. Prometheus'
text format has no units and no end; it takes `# UNIT` and `# EOF` for comments. No family is of a type that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace

import numpy as np
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest

from lab.model.metrics import about
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.report.export.tables import SERIES
from lab.stats.histogram import UNIT_S, Histogram, bucket_edges_s

BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""`le` of every histogram, `+Inf` beside: the same for all, so that they add up. The lab's own buckets are finer (`--what histograms`)."""

Number = float | int | None
LABELS = ("run", "target", "variant", "arm", "point", "block", "valid", "reason", "generator", "sample")


@dataclass(frozen=True, slots=True)
class Family:
    """One gauge: a number of each sample, or, with a `label` of its own, one of each value of that; None is not there.

    `unit` ends its name, as the format wants it; empty = none.
    """

    name: str
    about: str
    read: Callable[[Sample], Number | Mapping[str, Number]]
    unit: str = ""
    label: str = ""


GAUGES = (
    Family("lab_sample_valid", "1 where it counts; else `reason` says why not", lambda s: int(s.valid)),
    Family("lab_sample_started_seconds", "when, since the epoch",
           lambda s: datetime.fromisoformat(s.started_at).timestamp(), "seconds"),
    Family("lab_sample_duration_seconds", "the generator's own measure of its run", lambda s: s.duration_s, "seconds"),
    Family("lab_bring_up_seconds", "how long this arm took to come up in this block", lambda s: s.bring_up_s, "seconds"),
    Family("lab_offered_requests_per_second", "absent: a closed loop", lambda s: s.offered_rps),
    Family("lab_achieved_requests_per_second", "answered, with whatever status", lambda s: s.achieved_rps),
    Family("lab_good_requests_per_second", "answered as they should be", lambda s: s.goodput_rps),
    Family("lab_requests", "answered in this sample", lambda s: s.requests),
    Family("lab_errors", "of this sample, by kind", lambda s: s.errors, label="kind"),
    Family("lab_dropped_requests", "due and never sent", lambda s: s.dropped),
    Family("lab_received_bytes", "by the generator", lambda s: s.size_bytes, "bytes"),
    Family("lab_cpu_per_request_seconds", "of the proxy, or of the backend where there is none, per good request",
           lambda s: s.cpu_per_request_s, "seconds"),
    Family("lab_cpu_seconds", "used over the sample, by role", lambda s: {r: u.cpu_s for r, u in s.usage.items()}, "seconds", label="role"),
    Family("lab_memory_bytes", "at most, by role", lambda s: {r: u.rss_bytes for r, u in s.usage.items()}, "bytes", label="role"),
    Family("lab_processes", "by role", lambda s: {r: u.processes for r, u in s.usage.items()}, label="role"),
    Family("lab_cpu_busy_ratio", "of each CPU over the sample", lambda s: s.busy, "ratio", label="cpu"),
    Family("lab_core_busy_ratio", "the generator's busiest CPU, the proxy's least busy one",
           lambda s: {"generator": s.generator_core, "proxy": s.proxy_core}, "ratio", label="role"),
    Family("lab_steal_ratio", "of all CPU time, taken by the hypervisor", lambda s: s.steal, "ratio"),
    Family("lab_other_processes_cores", "used by what is not the lab's", lambda s: s.others, "cores"),
    Family("lab_kernel_counter", "increase over the sample, by role/name", lambda s: s.counters, label="name"),
    Family("lab_gauge", "what the system said of itself before the load, by role/name", lambda s: s.gauges, label="name"),
)  # fmt: skip


def exposition(record: RunRecord, samples: Sequence[Sample], histogram: Callable[..., Histogram | None]) -> bytes:
    """Return the whole text. `histogram(sample, series)` is asked once for each."""
    facts = GaugeMetricFamily(
        "lab_run_fact", "what is known of the machine and the programs of the run", labels=("run", "fact", "value")
    )
    for fact, value in sorted(record.facts.items()):
        facts.add_metric(_encodable(record.id, fact, value), 1)
    gauges = (_gauge(family, record, samples) for family in (*GAUGES, *_outcomes(samples)))
    histograms = (_histogram(series, record, samples, histogram) for series in SERIES)
    families = [family for family in (*gauges, facts, *histograms) if family.samples]
    return generate_latest(SimpleNamespace(collect=lambda: families))


def cumulative(histogram: Histogram) -> tuple[list[int], float]:
    """(how many lie at or below each of `BOUNDS_S`, the sum in seconds).

    A request counts by the upper end of its fine bucket (at most 0.1 % high), so never too early. The generators print no sum: it
    is that of the buckets' middles times their counts.
    """
    filled = histogram.counts.nonzero()[0]
    counts = histogram.counts[filled]
    low, high = bucket_edges_s(filled)
    high_us, bounds_us = np.rint(high / UNIT_S), np.rint(np.asarray(BOUNDS_S) / UNIT_S)
    below = [int(counts[high_us <= bound].sum()) for bound in bounds_us]
    return below, float((counts * (low + high) / 2).sum())


def _encodable(*texts: str) -> list[str]:
    """Return labels' values without what UTF-8 cannot say: bytes of a command's that were no text."""
    return [text.encode("utf-8", "replace").decode() for text in texts]


def _labels(record: RunRecord, sample: Sample, *more: str) -> list[str]:
    """Return the values of LABELS, and of a family's own label."""
    place = sample.target, sample.variant, sample.arm, sample.point.name, str(sample.block)
    state = str(sample.valid).lower(), sample.reason or "", sample.generator, sample.id
    return _encodable(record.id, *place, *state, *more)


def _gauge(family: Family, record: RunRecord, samples: Sequence[Sample]) -> Metric:
    own = [family.label] if family.label else []
    made = GaugeMetricFamily(family.name, family.about, labels=[*LABELS, *own], unit=family.unit)
    for sample in samples:
        read = family.read(sample)
        for value, number in read.items() if isinstance(read, Mapping) else [("", read)]:
            if number is not None:
                made.add_metric(_labels(record, sample, *([value] if own else [])), number)
    return made


def _outcomes(samples: Sequence[Sample]) -> Iterator[Family]:
    """What came of disturbances: `gap_s` → lab_outcome_gap_seconds."""
    for name in dict.fromkeys(name for sample in samples for name in sample.outcome):
        unit = {"_s": "seconds", "_bytes": "bytes"}.get((re.search(r"_(s|bytes)$", name) or [""])[0], "")
        stem = re.sub(r"\W", "_", re.sub(r"_(s|bytes)$", "", name), flags=re.ASCII)
        metric = f"lab_outcome_{stem}_{unit}" if unit else f"lab_outcome_{stem}"
        yield Family(
            metric,
            f"of a disturbance: {about(name).title}",
            lambda sample, name=name: sample.outcome.get(name),
            unit,
        )


def _histogram(
    series: str, record: RunRecord, samples: Sequence[Sample], histogram: Callable[..., Histogram | None]
) -> Metric:
    name = f"lab_{series}_seconds" if series == "latency" else f"lab_{series}_latency_seconds"
    since = (
        "when they were due, where the generator knows that, else sent"
        if series == "latency"
        else "when they were sent"
    )
    about = f"of answered requests, from {since}; the sum is taken from the lab's fine buckets (0.1 % wide), at their middles"
    made = HistogramMetricFamily(name, about, labels=LABELS, unit="seconds")
    for sample in samples:
        if (found := histogram(sample, series)) is not None:
            below, sum_s = cumulative(found)
            buckets = [(str(bound), count) for bound, count in zip(BOUNDS_S, below, strict=True)]
            made.add_metric(_labels(record, sample), [*buckets, ("+Inf", found.total)], sum_s)
    return made
