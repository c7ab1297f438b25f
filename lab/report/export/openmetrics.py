"""A run in the OpenMetrics text format 1.0: gauges and histograms, without timestamps.

    Sample(block=2, achieved_rps=998.2, …)  →  lab_achieved_requests_per_second{arm="keepalive",block="2",run="…",…} 998.2

Each number belongs to one sample, which the label `sample` names; samples are not pooled. Parsers of Prometheus' older text
format can read the output, too. That format has neither units nor an end mark, but it treats `# UNIT` and `# EOF` as comments.
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

from lab.model.metrics import find_metric
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.report.export.tables import SERIES
from lab.stats.histogram import UNIT_S, Histogram, compute_bucket_edges_s

BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""The upper bounds (`le`) of the buckets of every histogram in seconds, without `+Inf`.

They are the same for all histograms, so that these can be added. The lab's own buckets are finer (`--what histograms`).
"""

Number = float | int | None
LABELS = ("run", "target", "variant", "arm", "point", "block", "valid", "reason", "generator", "sample")


@dataclass(frozen=True, slots=True)
class Family:
    """One gauge of the OpenMetrics export: a metric with a name and labels, whose numbers are read from samples.

    Attributes:
        name: The metric's name, which ends with the unit, as the format requires.
        about: The help text.
        read: A function that returns the number of a sample. If `label` is given, it returns several numbers as a mapping: value of this
            label → number. A number that is None is left out.
        unit: The unit; empty where there is none.
        label: The name of a label in addition to LABELS; empty where there is none.

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


def render_openmetrics(
    record: RunRecord, samples: Sequence[Sample], histogram: Callable[..., Histogram | None]
) -> bytes:
    """Return the samples of a run as text in the OpenMetrics format (that of Prometheus).

    Args:
        record: The run.
        samples: The samples to export.
        histogram: A function that returns the histogram of (sample, series), or None. The series is `latency` or `service`.

    """
    facts = GaugeMetricFamily(
        "lab_run_fact", "what is known of the machine and the programs of the run", labels=("run", "fact", "value")
    )
    for fact, value in sorted(record.facts.items()):
        facts.add_metric(_make_encodable(record.id, fact, value), 1)
    gauges = (_make_gauge(family, record, samples) for family in (*GAUGES, *_yield_outcomes(samples)))
    histograms = (_make_histogram(series, record, samples, histogram) for series in SERIES)
    families = [family for family in (*gauges, facts, *histograms) if family.samples]
    return generate_latest(SimpleNamespace(collect=lambda: families))


def accumulate(histogram: Histogram) -> tuple[list[int], float]:
    """Return the cumulative counts of a histogram for the export, and the sum of all latencies in seconds.

    There is a count for each bound in `BOUNDS_S`: the number of requests that took at most this time. The time of a request is
    the upper end of its bucket in the histogram, which is at most 0.1 % too high. The sum is computed from the middles of the
    buckets, since load generators print no sum.
    """
    filled = histogram.counts.nonzero()[0]
    counts = histogram.counts[filled]
    low, high = compute_bucket_edges_s(filled)
    high_us, bounds_us = np.rint(high / UNIT_S), np.rint(np.asarray(BOUNDS_S) / UNIT_S)
    counts_up_to = [int(counts[high_us <= bound].sum()) for bound in bounds_us]
    return counts_up_to, float((counts * (low + high) / 2).sum())


def _make_encodable(*texts: str) -> list[str]:
    """Return texts with a `?` in place of each character that UTF-8 cannot encode, such as a stray byte of a command line."""
    return [text.encode("utf-8", "replace").decode() for text in texts]


def _list_label_values(record: RunRecord, sample: Sample, *more: str) -> list[str]:
    """Return a sample's values for the labels in LABELS, in their order, followed by `more` (the values of further labels)."""
    place = sample.target, sample.variant, sample.arm, sample.point.name, str(sample.block)
    state = str(sample.valid).lower(), sample.reason or "", sample.generator, sample.id
    return _make_encodable(record.id, *place, *state, *more)


def _make_gauge(family: Family, record: RunRecord, samples: Sequence[Sample]) -> Metric:
    further_labels = [family.label] if family.label else []
    metric = GaugeMetricFamily(family.name, family.about, labels=[*LABELS, *further_labels], unit=family.unit)
    for sample in samples:
        read = family.read(sample)
        for value, number in read.items() if isinstance(read, Mapping) else [("", read)]:
            if number is not None:
                metric.add_metric(_list_label_values(record, sample, *([value] if further_labels else [])), number)
    return metric


def _yield_outcomes(samples: Sequence[Sample]) -> Iterator[Family]:
    """Yield a gauge for each outcome in the samples: a number about a disruption, about streams of events or about WebSockets.

    Example: the outcome `gap_s` becomes the gauge `lab_outcome_gap_seconds`.
    """
    for name in dict.fromkeys(name for sample in samples for name in sample.outcome):
        unit = {"_s": "seconds", "_bytes": "bytes"}.get((re.search(r"_(s|bytes)$", name) or [""])[0], "")
        stem = re.sub(r"\W", "_", re.sub(r"_(s|bytes)$", "", name), flags=re.ASCII)
        metric = f"lab_outcome_{stem}_{unit}" if unit else f"lab_outcome_{stem}"
        yield Family(
            metric,
            f"of a disturbance: {find_metric(name).title}",
            lambda sample, name=name: sample.outcome.get(name),
            unit,
        )


def _make_histogram(
    series: str, record: RunRecord, samples: Sequence[Sample], histogram: Callable[..., Histogram | None]
) -> Metric:
    name = f"lab_{series}_seconds" if series == "latency" else f"lab_{series}_latency_seconds"
    since = (
        "when they were due, where the generator knows that, else sent"
        if series == "latency"
        else "when they were sent"
    )
    text = f"of answered requests, from {since}; the sum is taken from the lab's fine buckets (0.1 % wide), at their middles"
    metric = HistogramMetricFamily(name, text, labels=LABELS, unit="seconds")
    for sample in samples:
        if (of_sample := histogram(sample, series)) is not None:
            counts, sum_s = accumulate(of_sample)
            buckets = [(str(bound), count) for bound, count in zip(BOUNDS_S, counts, strict=True)]
            metric.add_metric(_list_label_values(record, sample), [*buckets, ("+Inf", of_sample.total)], sum_s)
    return metric
