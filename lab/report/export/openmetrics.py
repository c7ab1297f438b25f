"""A run in the OpenMetrics text format 1.0, which Prometheus' older text format reads as well: gauges and histograms, no timestamps.

    Sample(block=2, achieved_rps=998.2, …)  →  lab_achieved_requests_per_second{run="…",arm="keepalive",block="2",…} 998.2

One family after the other, every sample in each, by its label `sample`. Refuses to pool: a metric is one sample's. Prometheus'
text format has no units and no end; it takes `# UNIT` and `# EOF` for comments. No family is of a type that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

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

Labels = Mapping[str, str]
Told = Mapping[tuple[str, str], float | int | None]
"""(label, its value) → number; the label "" = none of its own."""
Ask = Callable[[Sample], Told]


@dataclass(frozen=True, slots=True)
class Family:
    """One gauge. `unit` ends its name, as the format wants it; empty = none."""

    name: str
    about: str
    ask: Ask
    unit: str = ""


def one(number: Callable[[Sample], float | int | None]) -> Ask:
    return lambda sample: {("", ""): number(sample)}


def by(label: str, numbers: Callable[[Sample], Mapping[str, float | int | None]]) -> Ask:
    return lambda sample: {(label, name): value for name, value in numbers(sample).items()}


GAUGES = (
    Family("lab_sample_valid", "1 where it counts; else `reason` says why not", one(lambda s: int(s.valid))),
    Family("lab_sample_started_seconds", "when, since the epoch", one(lambda s: _epoch_s(s.started_at)), "seconds"),
    Family("lab_sample_duration_seconds", "the generator's own measure of its run", one(lambda s: s.duration_s), "seconds"),
    Family("lab_bring_up_seconds", "how long this arm took to come up in this block", one(lambda s: s.bring_up_s), "seconds"),
    Family("lab_offered_requests_per_second", "absent: a closed loop", one(lambda s: s.offered_rps)),
    Family("lab_achieved_requests_per_second", "answered, with whatever status", one(lambda s: s.achieved_rps)),
    Family("lab_good_requests_per_second", "answered as they should be", one(lambda s: s.goodput_rps)),
    Family("lab_requests", "answered in this sample", one(lambda s: s.requests)),
    Family("lab_errors", "of this sample, by kind", by("kind", lambda s: s.errors)),
    Family("lab_dropped_requests", "due and never sent", one(lambda s: s.dropped)),
    Family("lab_received_bytes", "by the generator", one(lambda s: s.size_bytes), "bytes"),
    Family("lab_cpu_per_request_seconds", "of the proxy, or of the backend where there is none, per good request",
           one(lambda s: s.cpu_per_request_s), "seconds"),
    Family("lab_cpu_seconds", "used over the sample, by role", by("role", lambda s: {r: u.cpu_s for r, u in s.usage.items()}), "seconds"),
    Family("lab_memory_bytes", "at most, by role", by("role", lambda s: {r: u.rss_bytes for r, u in s.usage.items()}), "bytes"),
    Family("lab_processes", "by role", by("role", lambda s: {r: u.processes for r, u in s.usage.items()})),
    Family("lab_cpu_busy_ratio", "of each CPU over the sample", by("cpu", lambda s: s.busy), "ratio"),
    Family("lab_core_busy_ratio", "the generator's busiest CPU, the proxy's least busy one",
           by("role", lambda s: {"generator": s.generator_core, "proxy": s.proxy_core}), "ratio"),
    Family("lab_steal_ratio", "of all CPU time, taken by the hypervisor", one(lambda s: s.steal), "ratio"),
    Family("lab_other_processes_cores", "used by what is not the lab's", one(lambda s: s.others), "cores"),
    Family("lab_kernel_counter", "increase over the sample, by role/name", by("name", lambda s: s.counters)),
    Family("lab_gauge", "what the system said of itself before the load, by role/name", by("name", lambda s: s.gauges)),
)  # fmt: skip


def exposition(
    record: RunRecord, samples: Sequence[Sample], histogram: Callable[..., Histogram | None]
) -> Iterator[str]:
    """The lines, each with its end. `histogram(sample, series)` is asked once for each."""
    for family in (*GAUGES, *_outcomes(samples)):
        yield from _gauge(family, record, samples)
    yield from _head("lab_run_fact", "gauge", "", "what is known of the machine and the programs of the run")
    for fact, value in sorted(record.facts.items()):
        yield _line("lab_run_fact", {"run": record.id, "fact": fact, "value": value}, 1)
    for series in SERIES:
        yield from _histograms(series, record, samples, histogram)
    yield "# EOF\n"


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


def escaped(text: str) -> str:
    """A label's value or a help text, as the format has it: only backslash, line feed and quote may be escaped, nothing else need be."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"").encode("utf-8", "replace").decode()


def _labels(record: RunRecord, sample: Sample) -> dict[str, str]:
    return {
        "run": record.id,
        "target": sample.target,
        "variant": sample.variant,
        "arm": sample.arm,
        "point": sample.point.name,
        "block": str(sample.block),
        "valid": str(sample.valid).lower(),
        "reason": sample.reason or "",
        "generator": sample.generator,
        "sample": sample.id,
    }


def _gauge(family: Family, record: RunRecord, samples: Sequence[Sample]) -> Iterator[str]:
    lines = [
        _line(family.name, _labels(record, sample) | ({label: name} if label else {}), value)
        for sample in samples
        for (label, name), value in family.ask(sample).items()
        if value is not None
    ]
    if lines:
        yield from _head(family.name, "gauge", family.unit, family.about)
        yield from lines


def _outcomes(samples: Sequence[Sample]) -> Iterator[Family]:
    """What came of disturbances: `gap_s` → lab_outcome_gap_seconds."""
    for name in dict.fromkeys(name for sample in samples for name in sample.outcome):
        unit = {"_s": "seconds", "_bytes": "bytes"}.get((re.search(r"_(s|bytes)$", name) or [""])[0], "")
        stem = re.sub(r"\W", "_", re.sub(r"_(s|bytes)$", "", name), flags=re.ASCII)
        metric = f"lab_outcome_{stem}_{unit}" if unit else f"lab_outcome_{stem}"
        yield Family(
            metric,
            f"of a disturbance: {about(name).title}",
            one(lambda sample, name=name: sample.outcome.get(name)),
            unit,
        )


def _histograms(
    series: str, record: RunRecord, samples: Sequence[Sample], histogram: Callable[..., Histogram | None]
) -> Iterator[str]:
    name = f"lab_{series}_seconds" if series == "latency" else f"lab_{series}_latency_seconds"
    since = (
        "when they were due, where the generator knows that, else sent"
        if series == "latency"
        else "when they were sent"
    )
    about = f"of answered requests, from {since}; the sum is taken from the lab's fine buckets (0.1 % wide), at their middles"
    headed = False
    for sample in samples:
        if (found := histogram(sample, series)) is None:
            continue
        if not headed:
            yield from _head(name, "histogram", "seconds", about)
            headed = True
        labels = _labels(record, sample)
        below, sum_s = cumulative(found)
        for bound, count in zip(BOUNDS_S, below, strict=True):
            yield _line(f"{name}_bucket", labels | {"le": str(bound)}, count)
        yield _line(f"{name}_bucket", labels | {"le": "+Inf"}, found.total)
        yield _line(f"{name}_count", labels, found.total)
        yield _line(f"{name}_sum", labels, sum_s)


def _head(name: str, kind: str, unit: str, about: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}\n"
    if unit:
        yield f"# UNIT {name} {unit}\n"
    yield f"# HELP {name} {escaped(about)}\n"


def _line(name: str, labels: Labels, value: float) -> str:
    told = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{told}}} {value!r}\n"


def _epoch_s(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
