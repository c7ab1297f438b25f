"""The catalogue of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GAP_S = 0.1
"""A shorter pause between good answers is none: latencies of a busy machine vary by as much."""

ERROR_KINDS = ("connect", "read", "write", "timeout")

WINDOWS = ("before", "during", "after")


@dataclass(frozen=True, slots=True)
class OutcomeMetric:
    """How a number of `Sample.outcome` is shown: in `unit`, which is `scale` of the number's own (seconds, bytes), with three
    significant digits and `decimals` at most. `better`: less or more of it, or neither. `detail`: part of the number above it.

    `always` is shown even where it is 0 everywhere; `idle`: a system has it whether disturbed or not, so that it is shown only
    where a disturbance moved it away from what its control run had.

    `seen`: what it is read from decides how finely it resolves a difference: `requests` to one request's distance from the
    next, `both` also to what the clocks of generator and events may differ by; `events` (counts as well) have no such limit.
    """

    title: str
    unit: str = ""
    better: Literal["less", "more", "neither"] = "less"
    decimals: int = 0
    scale: float = 1.0
    seen: Literal["requests", "events", "both"] = "events"
    detail: bool = False
    always: bool = False
    idle: bool = False

    def text(self, value: float | None, signed: bool = False) -> str:
        """The number without its unit: 29.8, 2,981, 3.5 (a median of counts), – for None; with a true sign where `signed`."""
        if value is None:
            return "–"
        shown = abs(value / self.scale)
        if not self.unit:
            digits = 0 if shown.is_integer() else 1
        else:
            digits = min(self.decimals, 0 if shown >= 99.95 else 1 if shown >= 9.995 else 2 if shown >= 0.9995 else 3)
        text = f"{shown:,.{digits}f}"
        if float(text.replace(",", "")) == 0:
            return "0"
        return f"{'−' if value < 0 else '+' if signed else ''}{text}"

    def with_unit(self, value: float | None, signed: bool = False) -> str:
        return f"{self.text(value, signed)} {self.unit}".rstrip()


def _latency(name: str) -> dict[str, OutcomeMetric]:
    shown = "largest" if name == "max" else name
    return {
        f"{name}_{window}_s": OutcomeMetric(f"{shown} latency {window}", "ms", decimals=2, scale=1e-3)
        for window in WINDOWS
    }


METRICS: Mapping[str, OutcomeMetric] = {
    "requests": OutcomeMetric("requests", better="neither", always=True),
    "failed": OutcomeMetric("failed requests", always=True),
    "failed_status": OutcomeMetric("wrong status", detail=True),
    **{f"failed_{kind}": OutcomeMetric(kind, detail=True) for kind in ERROR_KINDS},
    "failed_other": OutcomeMetric("other", detail=True),
    "gap_s": OutcomeMetric("longest gap", "s", decimals=2, seen="requests", always=True),
    "failing_s": OutcomeMetric("first to last failure", "s", decimals=2, seen="requests"),
    "changes": OutcomeMetric("changes", better="neither"),
    "correct_s": OutcomeMetric("time until correct", "s", decimals=3, seen="both"),
    "correct_max_s": OutcomeMetric("longest until correct", "s", decimals=3, seen="both"),
    "unseen": OutcomeMetric("never seen", detail=True),
    "superseded": OutcomeMetric("superseded", better="neither", detail=True),
    "old": OutcomeMetric("answers of the old state"),
    "stale": OutcomeMetric("stale answers", always=True),
    "reloads": OutcomeMetric("reloads", always=True),
    "processes": OutcomeMetric("proxy processes at once", idle=True),
    "rss_bytes": OutcomeMetric("proxy's memory", "MB", decimals=1, scale=1e6, idle=True),
    "restarts": OutcomeMetric("restarts"),
    "probe_failures": OutcomeMetric("failed probes"),
    "probe_p50_s": OutcomeMetric("probe p50", "ms", decimals=2, scale=1e-3, idle=True),
    "probe_max_s": OutcomeMetric("longest probe", "ms", decimals=2, scale=1e-3, idle=True),
    "refused_evictions": OutcomeMetric("refused evictions", better="neither"),
    "terminating_s": OutcomeMetric("terminating", "s", decimals=2),
    "pending_s": OutcomeMetric("replacement pending", "s", decimals=2),
    "replaced_s": OutcomeMetric("until replaced", "s", decimals=2),
    "held": OutcomeMetric("long-lived connections", better="neither"),
    "cut": OutcomeMetric("of them cut", detail=True),
    "not_opened": OutcomeMetric("not opened", detail=True),
    "cut_s": OutcomeMetric("first cut after", "s", better="more", decimals=2),
    "transfers": OutcomeMetric("transfers", better="neither"),
    "transfers_lost": OutcomeMetric("transfers lost", detail=True),
    "transfer_rate": OutcomeMetric("throughput", "MB/s", better="more", decimals=1, scale=1e6),
    "first_byte_s": OutcomeMetric("time to first byte", "ms", decimals=1, scale=1e-3),
    "too_large": OutcomeMetric("refused with 413"),
    **_latency("p50"),
    **_latency("p99"),
    **_latency("max"),
    "clock_error_s": OutcomeMetric("clock error", "ms", better="neither", decimals=2, scale=1e-3),
}
"""Key of `Sample.outcome` → how it is shown, in the order of tables. Here every key is listed, also those of one kind only.

requests        all that fell due, whatever became of them
failed          not answered with 2xx, nor with what is right until then (`Disturbance.awaited`); `failed_…` by what happened
gap_s           the longest time without a good answer: between two of their `done` times, or the load's ends, less the
                distance of requests; below 0.1 s it is 0
failing_s       from the first to the last failed request, both included, by when they were due
p50_before_s …  of good answers, from when they were due; None where fewer than ten lie beyond. `during`: from Begin until
                End; where none was said, as long as its kind acts (`Disturbance.acts_s`), in a control run the same time of
                the load. Recovery is `after`, but for what is done in a moment (a pod killed): there it is `during`
changes …       `lab.records.propagation` says what these are
reloads …       `lab.records.incidents` says what these are
clock_error_s   by how much the clocks of generator and events may differ at most; all that is on one clock is free of it
"""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}

LABELS = {"rate": "rate", "cpu_per_request": "CPU/req"} | {name: name for name in QUANTILES}
"""Metric → its short name in tables. These are the metrics that have effects; errors are counted, never compared."""
