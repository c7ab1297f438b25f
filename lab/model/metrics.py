"""The catalogue of metrics: name, unit, better direction, way of comparison, and how to read each from a sample.

Every table, comparison, claim and figure uses it. A new metric is a single entry here, with a `column` if the table of steady loads shows it.

    Metric("p99", "ms", scale=1e-3, kind="ratio", histogram=…).text(0.00361)            3.61
    Metric("longest gap", "s", decimals=2).change(-29.62)                                −29.6 s

This module judges nothing (a change is a number here) and reads no run's folder: values that only its logs or manifests show are read in
`lab.analysis.evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import expm1
from typing import TYPE_CHECKING, Any, Literal

from lab.model.pages import PAGES
from lab.stats.histogram import LIMIT_US, UNIT_S, Histogram
from lab.stats.units import (
    format_interval,
    format_micros,
    format_percent,
    format_rate,
    format_significant,
    format_size,
    format_three_digits,
)

if TYPE_CHECKING:
    from lab.model.samples import Sample
    from lab.model.sweeps import LoadPoint

ComparisonKind = Literal["ratio", "difference", "claim"]
OfSample = Callable[["Sample"], float | None]
OfHistogram = Callable[[Histogram], float | None]
OWN_UNITS = {"ms": "s", "µs": "s", "kB": "bytes", "MB": "bytes", "MB/s": "bytes/s", "%": "share"}
"""Displayed unit → the unit in which the lab computes, where these two differ."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its names, its unit, how it is read from a sample, and how two variants are compared in it.

    Attributes:
        title: The name in sentences.
        unit: The unit in which numbers are shown; empty for counts.
        better: Which direction is better: "less", "more" or "neither".
        decimals: The largest number of decimals of a `difference`; other metrics have three significant digits.
        scale: The size of one `unit` in the unit that the lab computes in (seconds, bytes): 1e-3 for ms.
        kind: How two variants are compared: by "ratio" (steady loads); by "difference" (outcomes of disruptions and of
            streams of events or WebSockets, which may be 0); "claim" = only where a published claim or a figure needs
            it.
        label: The name in tables; empty = the title.
        heading: The heading of its column.
        column: The position of its column in the table of steady loads; 0 = no column.
        primary: Whether it can be a variant's primary metric.
        sample: The function that reads it from a sample.
        histogram: The function that reads it from a latency histogram. Its absolute value is read from the merged
            histogram of all samples. A metric without `sample` and `histogram` is found elsewhere: an outcome in
            `Sample.outcome` by the metric's name, a claim's metric in `lab.analysis.evidence`.
        seen: What limits the resolution of a difference. `requests`: the time between two requests. `both`: that time
            and the uncertainty between the clocks of generator and events. `delays`: 1 ms (`DELAY_RESOLUTION_S`).
            `events`: nothing.
        detail: Whether the metric is a part of the metric in the row above it.
        always: Whether a difference is shown even if it is 0 for all variants.
        in_default: Whether default output has this outcome of a disruption, of streams or of WebSockets even where no
            variant differs in it.
        idle: Whether the metric is usually not 0 even without a disruption. It is then shown only if the disruption
            changed it.

    """

    title: str
    unit: str = ""
    better: Literal["less", "more", "neither"] = "less"
    decimals: int = 0
    scale: float = 1.0
    kind: ComparisonKind = "difference"
    label: str = ""
    heading: str = ""
    column: int = 0
    primary: bool = False
    sample: OfSample | None = None
    histogram: OfHistogram | None = None
    seen: Literal["requests", "events", "both", "delays"] = "events"
    detail: bool = False
    always: bool = False
    in_default: bool = False
    idle: bool = False

    @property
    def ratio(self) -> bool:
        """True if two variants are compared by their ratio in this metric, as rates and latencies of steady loads are."""
        return self.kind == "ratio"

    @property
    def cost(self) -> bool:
        """True if this metric is the CPU time per request, in µs.

        An effect on it is also shown as a time, because a percentage alone does not show how much time it is.
        """
        return self.ratio and self.unit == "µs"

    @property
    def latency(self) -> bool:
        """True if this metric is read from the latency histogram of a load.

        In a closed loop (a load that sends as fast as answers come) latencies follow from the throughput, so they show
        nothing new.
        """
        return self.histogram is not None

    @property
    def short(self) -> str:
        """The name of this metric in a table's cell: its short label, or its title if it has no label."""
        return self.label or self.title

    @property
    def own_unit(self) -> str:
        """The unit in which the lab computes this metric: `s`, `bytes`, `bytes/s`, `share`, or else the displayed unit.

        A metric displayed in ms is computed in `s`, one displayed in % as a `share` (0.05).
        """
        return OWN_UNITS.get(self.unit, self.unit)

    def read(self, sample: Sample, histogram: Histogram | None) -> float | None:
        """Return the metric's value from a sample and the sample's latency histogram.

        Returns:
            The value in the unit that the lab computes in (`own_unit`). None if it is unknown, if too few requests lie
            beyond a percentile, or if the metric is not read from samples.

        """
        if self.histogram is not None:
            return self.histogram(histogram) if histogram is not None else None
        return self.sample(sample) if self.sample is not None else None

    def text(self, value: float | None, signed: bool = False) -> str:
        """Format a value without its unit: `29.8`, `2,981`; a median of counts as `3.5`; None as `–`.

        Args:
            value: The value in the unit that the lab computes in (`own_unit`); None = unknown.
            signed: Whether a positive difference gets a `+`; a negative one always has its sign.

        """
        if value is None:
            return "–"
        if self.kind != "difference" and self.own_unit == "bytes/s":
            return format_significant(value / self.scale, 3)
        if self.kind != "difference":
            return format_rate(value) if self.unit == "req/s" else format_three_digits(value, 1 / self.scale)
        size = abs(value / self.scale)
        if not self.unit:
            digits = 0 if size.is_integer() else 1
        else:
            digits = min(self.decimals, 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3)
        text = f"{size:,.{digits}f}"
        if float(text.replace(",", "")) == 0:
            return "0"
        return f"{'−' if value < 0 else '+' if signed else ''}{text}"

    def coarse(self, value: float, count: int = 2) -> str:
        """Format a value of this metric with few digits and without its unit: `30`, `3,000`.

        A whole number below 100 of a metric that counts things stays exact. A latency at the upper end of the
        histogram's range (120 s) gets a `≥` in front, because longer latencies are recorded as this one.

        Args:
            value: The value in the unit that the lab computes in (`own_unit`).
            count: The number of significant digits.

        """
        if self.kind == "difference" and not self.unit and float(value).is_integer() and abs(value) < 100:
            return self.text(value)
        bound = "≥" if self.histogram is not None and value >= LIMIT_US * UNIT_S else ""
        return f"{bound}{format_significant(value / self.scale, count)}".replace("-", "−")

    def with_unit(self, value: float | None, signed: bool = False) -> str:
        """Format a value with its unit: `29.8 s`.

        Args:
            value: The value in the unit that the lab computes in (`own_unit`); None = unknown.
            signed: Whether a positive difference gets a `+`.

        """
        return f"{self.text(value, signed)} {self.unit}".rstrip()

    # -- effects: log-ratios, or differences in the number's internal unit -------------------------------------

    def size(self, effect: float | None) -> str:
        """Format the absolute size of an effect, a bound or a noise floor with its unit: `3.2 %`, `0.21 s`.

        Args:
            effect: The size, which callers make positive: a log-ratio for metrics compared by ratio, else a difference;
                None = unknown.

        """
        return format_size(effect) if self.ratio and effect is not None else self.with_unit(effect)

    def change(self, effect: float | None) -> str:
        """Format an effect with its sign: `−8.2 %`, `−29.6 s`.

        Args:
            effect: The effect: a log-ratio for metrics compared by ratio, else a difference; None = unknown.

        """
        return (
            f"{format_percent(effect)} %" if self.ratio and effect is not None else self.with_unit(effect, signed=True)
        )

    def time(self, effect: float, level: float | None) -> str:
        """Format an effect on the CPU time per request as a time: ` = −1.4 µs`; empty text for any other metric.

        Args:
            effect: The effect as a log-ratio.
            level: The baseline's CPU time per request in seconds; None = unknown: the text is empty.

        """
        return f" = {format_micros(level * expm1(effect))} µs" if self.cost and level is not None else ""

    def ends(self, low: float | None, high: float | None) -> str:
        """Format the interval of an effect: ` [−9.1, −7.3]`; empty text if there is no interval.

        Args:
            low: The lower end: a log-ratio for metrics compared by ratio, else a difference; None = no interval.
            high: The upper end.

        """
        if self.ratio or low is None or high is None:
            return format_interval(low, high)
        return f" [{self.text(low, signed=True)}, {self.text(high, signed=True)}]"


GAP_S = 0.1
"""The shortest pause between good answers that counts as a gap: latencies of a busy machine vary by as much."""
DELAY_RESOLUTION_S = 1e-3
"""The error with which the delay of an event is known: a known delay is measured to within it without a proxy."""
ERROR_KINDS = ("connect", "read", "write", "timeout")
WINDOWS = ("before", "during", "after")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The percentiles of steady loads that have effects."""
WINDOWED = ("p50", "p99")
"""The percentiles that are also taken before, during and after a disruption."""


# -- functions that read a metric from a sample or its histogram: None where these do not show it, never a guess


def quantile(share: float) -> OfHistogram:
    """Return a function that reads a percentile from a latency histogram.

    Args:
        share: The percentile as a fraction: 0.99 for p99.

    """
    return lambda histogram: histogram.quantile_s(share)


def read_spread(histogram: Histogram) -> float | None:
    """Return p99 divided by p50 of a latency histogram; None if too few requests lie beyond p99."""
    median, high = (histogram.quantile_s(share) for share in (0.5, 0.99))
    return high / median if median and high is not None else None


def peak_memory(*roles: str) -> OfSample:
    """Return a function that reads the peak memory of a role in a sample, in bytes; its result is None if it is unknown.

    Args:
        roles: The roles, such as "proxy" and "backend"; read is the memory of the first one that the sample has.

    """
    return lambda sample: next((float(sample.usage[role].rss_bytes) for role in roles if role in sample.usage), None)


def failed_share(sample: Sample) -> float | None:
    """Return the fraction of requests that failed or had a wrong status; None if there were no requests.

    For a load without disruption it follows from the generator's counts, otherwise from the sample's outcome.
    """
    if sample.outcome:
        return outcome_ratio("failed", "requests")(sample)
    failed, status = sum(sample.errors.values()), sample.errors.get("status", 0)
    total = (sample.requests or 0) + failed - status
    return failed / total if total else None


def outcome_ratio(over: str, under: str) -> OfSample:
    """Return a function that divides one value in `Sample.outcome` (the results of a disruption) by another.

    The result of that function is None if a value is unknown or the divisor is 0.

    Args:
        over: The key of the numerator, such as `failed`.
        under: The key of the denominator, such as `requests`.

    """

    def read_ratio(sample: Sample) -> float | None:
        first, second = sample.outcome.get(over), sample.outcome.get(under)
        return first / second if first is not None and second else None

    return read_ratio


def refused_share(sample: Sample) -> float | None:
    """Return the fraction of large uploads and downloads that were refused with status 413; None if nothing was transferred."""
    counts = [sample.outcome.get(name) for name in ("transfers", "too_large", "transfers_lost")]
    total = sum(count for count in counts if count is not None)
    return (sample.outcome.get("too_large") or 0.0) / total if total else None


def throughput(sample: Sample) -> float | None:
    """Return the speed of complete uploads or downloads of large bodies, in bytes per second; None for any other load."""
    rate = sample.goodput_rps if sample.point.transfer is not None else None
    return rate * PAGES[sample.point.page] if rate is not None else None


def link_share(sample: Sample) -> float | None:
    """Return the used fraction of the limited bandwidth towards the client, from 0 to 1; None without a bandwidth limit."""
    mbit, duration_s = sample.point.link_mbit, sample.duration_s
    return sample.counters.get("client/rx_bytes", 0) * 8 / (mbit * 1e6 * duration_s) if mbit and duration_s else None


def counted(name: str) -> OfSample:
    """Return a function that reads the increase of a counter during a sample; its result is None if the counter is missing.

    Args:
        name: The counter as `role/name`, such as `proxy/ListenOverflows`.

    """
    return lambda sample: float(sample.counters[name]) if name in sample.counters else None


def counted_per_request(*names: str) -> OfSample:
    """Return a function that reads the sum of some counters from a sample, divided by the sample's number of good answers.

    The result of that function is None if a counter is missing, or if there was no good answer. The proxy's counters
    cover its connections to clients and to backends. `client/rx_bytes` counts the bytes towards the client, with headers.

    Args:
        names: The counters as `role/name`, such as `proxy/InSegs`.

    """

    def read_counters(sample: Sample) -> float | None:
        counts = [sample.counters[name] for name in names if name in sample.counters]
        return sample.per_good_request(sum(counts) if len(counts) == len(names) else None)

    return read_counters


def backend_cpu_per_request(sample: Sample) -> float | None:
    """Return the backend's CPU seconds per request that was answered with a right status; None if unknown."""
    used = sample.usage.get("backend")
    return sample.per_good_request(used.cpu_s if used else None)


# -- the catalogue


def _ms(title: str, **fields: Any) -> Metric:
    return Metric(title, "ms", scale=1e-3, **fields)


def _claim(title: str, unit: str = "", scale: float = 1.0, **fields: Any) -> Metric:
    return Metric(title, unit, scale=scale, kind="claim", **fields)


def _latency(name: str) -> dict[str, Metric]:
    adjective = "largest" if name == "max" else name
    return {f"{name}_{window}_s": _ms(f"{adjective} latency {window}", decimals=2) for window in WINDOWS}


METRICS: Mapping[str, Metric] = {
    # -- metrics of steady loads with effects: ratios
    "rate": Metric(
        "rate", "req/s", "more", kind="ratio", column=1, heading="achieved", primary=True,
        sample=lambda sample: sample.goodput_rps,
    ),
    "throughput": Metric(
        "throughput", "MB/s", "more", scale=1e6, kind="ratio", primary=True, sample=throughput,
    ),
    "cpu_per_request": Metric(
        "CPU per request", "µs", scale=1e-6, kind="ratio", column=8, label="CPU/req", primary=True,
        sample=lambda sample: sample.cpu_per_request_s,
    ),
    **{
        name: _ms(name, kind="ratio", column=column, primary=True, histogram=quantile(share))
        for column, (name, share) in enumerate(QUANTILES.items(), 2)
    },
    # -- metrics of steady loads that no table compares
    "slowest_s": _ms("slowest", kind="claim", column=6, heading="max", histogram=lambda histogram: histogram.maximum_s),
    "errors": _claim("errors", column=7, primary=True, sample=lambda sample: float(sum(sample.errors.values()))),
    # -- outcomes of a disruption: differences
    "requests": Metric("requests", better="neither", always=True, in_default=True),
    "failed": Metric("failed requests", always=True, primary=True, in_default=True),
    "failed_status": Metric("wrong status", detail=True),
    **{f"failed_{kind}": Metric(kind, detail=True) for kind in ERROR_KINDS},
    "failed_other": Metric("other", detail=True),
    "gap_s": Metric("longest gap", "s", decimals=2, seen="requests", always=True, primary=True, in_default=True),
    "failing_s": Metric("first to last failure", "s", decimals=2, seen="requests", primary=True),
    "changes": Metric("changes", better="neither"),
    "correct_s": Metric("time until correct", "s", decimals=3, seen="both", primary=True),
    "correct_max_s": Metric("longest until correct", "s", decimals=3, seen="both"),
    "unseen": Metric("never seen", detail=True),
    "superseded": Metric("superseded", better="neither", detail=True),
    "old": Metric("answers of the old state"),
    "stale": Metric("stale answers", always=True, primary=True),
    "reloads": Metric("reloads", always=True),
    "processes": Metric("proxy processes at once", idle=True, primary=True),
    "rss_bytes": Metric("proxy's memory", "MB", decimals=1, scale=1e6, idle=True, primary=True),
    "api_rss_bytes": Metric("API server's memory", "MB", decimals=1, scale=1e6, idle=True),
    "restarts": Metric("restarts", primary=True),
    "probe_failures": Metric("failed probes", primary=True),
    "probe_p50_s": _ms("probe p50", decimals=2, idle=True),
    "probe_max_s": _ms("longest probe", decimals=2, idle=True),
    "refused_evictions": Metric("refused evictions", better="neither"),
    "terminating_s": Metric("terminating", "s", decimals=2),
    "pending_s": Metric("replacement pending", "s", decimals=2),
    "replaced_s": Metric("until replaced", "s", decimals=2, primary=True),
    "streams": Metric("streams", better="neither", always=True),
    "websockets": Metric("WebSockets", better="neither", always=True),
    "held": Metric("long-lived connections", better="neither"),
    "cut": Metric("of them cut", detail=True, primary=True, in_default=True),
    "not_opened": Metric("not opened", detail=True, primary=True),
    "cut_s": Metric("first cut after", "s", "more", decimals=2),
    "cut_idle_s": Metric("silence before a cut", "s", "more", decimals=2, detail=True),
    "first_event_s": _ms("time to first event", decimals=2, seen="delays", always=True, primary=True, in_default=True),
    "first_event_max_s": _ms("longest to first event", decimals=2, seen="delays", detail=True),
    "delay_p50_s": _ms("delay of an event, p50", decimals=2, seen="delays", always=True, primary=True, in_default=True),
    "delay_p99_s": _ms("delay of an event, p99", decimals=2, seen="delays", always=True, primary=True, in_default=True),
    "delay_max_s": _ms("longest delay of an event", decimals=2, seen="delays", detail=True),
    "stream_gap_s": _ms("longest gap in a stream", decimals=1, seen="delays", always=True, primary=True),
    "coalesced_share": Metric("events that came with the one before", "%", decimals=2, scale=0.01, always=True, primary=True, in_default=True),
    "cpu_per_event_s": Metric("CPU per event", "µs", decimals=1, scale=1e-6, always=True, primary=True),
    "stream_bytes": Metric("memory per open stream", "kB", decimals=1, scale=1e3, always=True, primary=True),
    "lost_messages": Metric("messages lost", always=True, primary=True, in_default=True),
    "opening_s": _ms("time to open a WebSocket", decimals=2, always=True, primary=True),
    "round_trip_p50_s": _ms("round trip of a message, p50", decimals=2, always=True, primary=True, in_default=True),
    "round_trip_p99_s": _ms("round trip of a message, p99", decimals=2, always=True, primary=True, in_default=True),
    "round_trip_max_s": _ms("longest round trip", decimals=2, detail=True),
    "cpu_per_message_s": Metric("CPU per message", "µs", decimals=1, scale=1e-6, always=True, primary=True),
    "websocket_bytes": Metric("memory per open WebSocket", "kB", decimals=1, scale=1e3, always=True, primary=True),
    "transfers": Metric("transfers", better="neither"),
    "transfers_lost": Metric("transfers lost", detail=True),
    "transfer_rate": Metric("throughput", "MB/s", "more", decimals=1, scale=1e6, primary=True),
    "first_byte_s": _ms("time to first byte", decimals=1, primary=True),
    "too_large": Metric("refused with 413", primary=True),
    **_latency("p50"),
    **_latency("p99"),
    **_latency("max"),
    "clock_error_s": _ms("clock error", better="neither", decimals=2),
    # -- further metrics for claims and figures
    "memory_bytes": _claim("proxy's memory", "MB", 1e6, sample=peak_memory("proxy", "backend")),
    "control_memory_bytes": _claim("control plane's memory", "MB", 1e6, sample=peak_memory("control")),
    "bring_up_s": _claim("brought up in", "s", sample=lambda sample: sample.bring_up_s),
    "mean_s": _ms("average latency", kind="claim", histogram=lambda histogram: histogram.mean_s),
    "p75_s": _ms("p75", kind="claim", histogram=quantile(0.75)),
    "p95_s": _ms("p95", kind="claim", histogram=quantile(0.95)),
    "spread": _claim("p99 as a multiple of p50", "×", histogram=read_spread),
    "busiest_second": _claim("a process in its busiest second", "% of a core", 0.01),
    "failed_share": _claim("share that failed", "%", 0.01, sample=failed_share),
    "dropped_connections": _claim(
        "connections dropped at a full accept queue", sample=counted("proxy/ListenOverflows")
    ),
    "opened_connections": _claim("upstream connections opened", sample=counted("proxy/ActiveOpens")),
    "bytes_per_request": _claim(
        "bytes on the link per good answer", "kB", 1e3, sample=counted_per_request("client/rx_bytes")
    ),
    "accepted_per_request": _claim(
        "clients' connections per 1000 good answers",
        scale=1e-3,
        sample=counted_per_request("proxy/PassiveOpens"),
    ),
    "opened_per_request": _claim(
        "upstream connections per 1000 good answers",
        scale=1e-3,
        sample=counted_per_request("proxy/ActiveOpens"),
    ),
    "segments_per_request": _claim(
        "TCP segments in and out of the proxy per good answer",
        sample=counted_per_request("proxy/InSegs", "proxy/OutSegs"),
    ),
    "backend_cpu_per_request": _claim(
        "CPU of the backend per request", "µs", 1e-6, sample=backend_cpu_per_request
    ),
    "slowdown": _claim(
        "p50 during against before", "×", sample=outcome_ratio("p50_during_s", "p50_before_s")
    ),
    "answered_while_failing": _claim("answered between the first failure and the last", "%", 0.01),
    "refused_share": _claim("large bodies refused with 413", "%", 0.01, sample=refused_share),
    "link_share": _claim("of the link filled", "%", 0.01, sample=link_share),
    "routes": _claim("routes"),
    "least_reload_spacing_s": _claim("between two reloads at least", "s"),
    "startup_allowance_s": _claim("startup probe allows", "s"),
    "reload_interval_s": _claim("reload interval set", "s"),
    # -- gauges: what a system reported of itself before the load
    "proxy/config_bytes": _claim("configuration", "kB", 1e3),
    "proxy/load_s": _claim("loaded in", "ms", 1e-3),
    "proxy/workers": _claim("workers or threads that ran"),
}  # fmt: skip
"""The metrics by name, in the order of comparisons and of disrupted loads' tables.

The name of a difference is its key in `Sample.outcome`:

requests        all requests that fell due, with any result
failed          requests that were not answered with 2xx, nor with a status that is right until then (`Disturbance.awaited`);
                `failed_…` by what happened
gap_s           the longest time without a good answer: between two of their `done` times, or the load's ends, less the
                distance of requests; below 0.1 s it is 0
failing_s       the time from the first to the last failed request, both included, by when they were due
p50_before_s …  percentiles of good answers, counted from when they were due; None where fewer than ten lie beyond. `during` is
                the time from Begin until End. Without an End it is as long as the kind acts (`Disturbance.acts_s`), and in
                a control run the same time of the load. Recovery is `after`, except for momentary disruptions (a pod killed),
                where it is `during`
changes …       `lab.records.propagation` defines these
reloads …       `lab.records.incidents` defines these
streams …       of streams of events, with cut, not_opened, cut_s and all up to stream_bytes (`lab.records.outcomes.compute_stream_outcome`)
websockets …    of WebSockets, with the same of cuts, and lost_messages up to websocket_bytes (`lab.records.outcomes.compute_websocket_outcome`)
clock_error_s   the largest possible difference between the clocks of generator and events; values on one clock are free of it
"""

RATIOS = tuple(name for name, metric in METRICS.items() if metric.ratio)
"""The names of the metrics that have effects at steady loads; errors are counted, never compared."""
DIFFERENCES = tuple(name for name, metric in METRICS.items() if metric.kind == "difference")
"""The names of the outcomes of disruptions, of streams of events and of WebSockets."""
COLUMNS = tuple(sorted((name for name in METRICS if METRICS[name].column), key=lambda name: METRICS[name].column))
"""The names of the metrics with a column in the table of steady loads, in order."""
OUTCOME_OF_METRIC = {
    "p50": "p50_during_s",
    "p90": "p99_during_s",
    "p99": "p99_during_s",
    "p99.9": "p99_during_s",
    "errors": "failed",
}
"""The outcome of a disruption that corresponds to a metric of steady loads.

Rates and CPU per request have no such outcome.
"""
EVENT_OUTCOME_OF_METRIC = {
    **dict.fromkeys(("p50", "p90"), "delay_p50_s"),
    **dict.fromkeys(("p99", "p99.9"), "delay_p99_s"),
    "errors": "cut",
    "cpu_per_request": "cpu_per_event_s",
}
"""The outcome of streams of events that corresponds to a metric of steady loads."""
MESSAGE_OUTCOME_OF_METRIC = {
    **dict.fromkeys(("p50", "p90"), "round_trip_p50_s"),
    **dict.fromkeys(("p99", "p99.9"), "round_trip_p99_s"),
    "errors": "cut",
    "cpu_per_request": "cpu_per_message_s",
}
"""The outcome of WebSockets that corresponds to a metric of steady loads."""

if TYPE_CHECKING:
    Primary = str
    Ratio = str
else:
    Primary = Literal[tuple(name for name, metric in METRICS.items() if metric.primary)]
    Ratio = Literal[RATIOS]
"""The types of names in files: of a variant's primary metric, and of a metric with effects at steady loads.

Any other name is refused.
"""


def list_compared_metrics(point: LoadPoint) -> tuple[str, ...]:
    """Return the names of the metrics in which variants are compared under this load."""
    if point.has_outcome:
        return DIFFERENCES
    return tuple(name for name in RATIOS if point.transfer is not None or name != "throughput")


def find_metric(name: str) -> Metric:
    """Return the metric with a name; an unknown name, such as a value that one proxy reports, gets a new metric without unit."""
    return METRICS.get(name) or Metric(name, kind="claim")
