"""The one catalogue of metrics: what each is called, in which unit it is shown, which way is better, how two arms are compared in it,
and how it is read off a sample. Every table, comparison, claim and figure asks it: a new metric is one entry here, and a column of
the table of steady loads where it has a place there.

    Metric("p99", "ms", scale=1e-3, kind="ratio", histogram=…).text(0.00361)            3.61
    Metric("longest gap", "s", decimals=2).change(-29.62)                                −29.6 s

Refuses to judge (a change is a number here), and to know a run's folder: what only its logs or manifests tell is read in
`lab.analysis.evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import expm1
from typing import TYPE_CHECKING, Any, Literal

from lab.stats.histogram import LIMIT_US, UNIT_S
from lab.stats.units import (
    format_interval,
    format_micros,
    format_percent,
    format_rate,
    format_size,
    significant,
    three_digits,
)

if TYPE_CHECKING:
    from lab.model.samples import Sample
    from lab.model.sweeps import Point
    from lab.stats.histogram import Histogram

Kind = Literal["ratio", "difference", "claim"]
OfSample = Callable[["Sample"], float | None]
OfHistogram = Callable[["Histogram"], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """`title` in sentences, `label` in tables (the title unless given). Shown in `unit`, of which one is `scale` of the number's own
    (seconds, bytes), with three significant digits; a `difference` with `decimals` at most. `better`: less or more of it, or neither.

    `kind` how two arms are compared in it: by ratio, as of steady loads; by difference, as what came of a disturbance may be 0; or
    only where a claim or a figure asks for it. `primary`: a variant's hypothesis may be about it.

    `sample`, `histogram`: what it is read from (`histogram`: then its level is that of all blocks' together); neither: what came of a
    disturbance lies in `Sample.outcome` by its name, and what a claim asks for is `lab.analysis.evidence`'s to read.
    `column`: its place in the table of steady loads, under `heading`; 0 = none.

    Of a difference: `detail` is part of the number above it; `always` is shown even where it is 0 everywhere; `idle`: a system has it
    whether disturbed or not, so that it is shown only where a disturbance moved it away from what its control run had. `seen`: what
    it is read from decides how finely it resolves: `requests` to one request's distance from the next, `both` also to what the
    clocks of generator and events may differ by; `events` (counts as well) have no such limit.
    """

    title: str
    unit: str = ""
    better: Literal["less", "more", "neither"] = "less"
    decimals: int = 0
    scale: float = 1.0
    kind: Kind = "difference"
    label: str = ""
    heading: str = ""
    column: int = 0
    primary: bool = False
    sample: OfSample | None = None
    histogram: OfHistogram | None = None
    seen: Literal["requests", "events", "both"] = "events"
    detail: bool = False
    always: bool = False
    idle: bool = False

    @property
    def ratio(self) -> bool:
        return self.kind == "ratio"

    @property
    def cost(self) -> bool:
        """Whether it is what a request costs, so that an effect is a time, too: per cent of another level are another time."""
        return self.ratio and self.unit == "µs"

    @property
    def latency(self) -> bool:
        """Whether it is of the latencies of a load: at a closed loop these follow from its throughput."""
        return self.histogram is not None

    @property
    def short(self) -> str:
        """Its name in a table's cell."""
        return self.label or self.title

    @property
    def own_unit(self) -> str:
        """The unit of the number itself: s, bytes, bytes/s, share, or what it is shown in."""
        if self.unit in ("s", "ms", "µs"):
            return "s"
        if self.unit in ("kB", "MB", "MB/s"):
            return f"bytes{self.unit[2:]}"
        return "share" if self.unit == "%" else self.unit

    def read(self, sample: Sample, histogram: Histogram | None) -> float | None:
        """None: not known, or too few requests beyond it. Of a difference, only where `Sample.outcome` has it."""
        if self.histogram is not None:
            return self.histogram(histogram) if histogram is not None else None
        return self.sample(sample) if self.sample is not None else None

    def text(self, value: float | None, signed: bool = False) -> str:
        """The number without its unit: 29.8, 2,981, 3.5 (a median of counts), – for None; of a difference with a true sign where `signed`."""
        if value is None:
            return "–"
        if self.kind != "difference":
            return format_rate(value) if self.unit == "req/s" else three_digits(value, 1 / self.scale)
        shown = abs(value / self.scale)
        if not self.unit:
            digits = 0 if shown.is_integer() else 1
        else:
            digits = min(self.decimals, 0 if shown >= 99.95 else 1 if shown >= 9.995 else 2 if shown >= 0.9995 else 3)
        text = f"{shown:,.{digits}f}"
        if float(text.replace(",", "")) == 0:
            return "0"
        return f"{'−' if value < 0 else '+' if signed else ''}{text}"

    def coarse(self, value: float, count: int = 2) -> str:
        """Return the number with `count` significant digits and without its unit, for what few blocks show: 30, 3,000.

        A whole number below 100 that is a count stays as it is, and the histogram's end is a bound.
        """
        if self.kind == "difference" and not self.unit and float(value).is_integer() and abs(value) < 100:
            return self.text(value)
        bound = "≥" if self.histogram is not None and value >= LIMIT_US * UNIT_S else ""
        return f"{bound}{significant(value / self.scale, count)}".replace("-", "−")

    def with_unit(self, value: float | None, signed: bool = False) -> str:
        return f"{self.text(value, signed)} {self.unit}".rstrip()

    # -- effects: log-ratios, or differences in the number's own unit ------------------------------------------

    def size(self, effect: float | None) -> str:
        """How large an effect is, a floor or a bound: `3.2 %`, `0.21 s`."""
        return format_size(effect) if self.ratio and effect is not None else self.with_unit(effect)

    def change(self, effect: float | None) -> str:
        """An effect with its sign: `−8.2 %`, `−29.6 s`."""
        return (
            f"{format_percent(effect)} %" if self.ratio and effect is not None else self.with_unit(effect, signed=True)
        )

    def time(self, effect: float, level: float | None) -> str:
        """What an effect is of a cost, at this level of what it is compared with: ` = −1.4 µs`; empty of anything else."""
        return f" = {format_micros(level * expm1(effect))} µs" if self.cost and level is not None else ""

    def ends(self, low: float | None, high: float | None) -> str:
        """An effect's interval: ` [−9.1, −7.3]`; empty where there is none."""
        if self.ratio or low is None or high is None:
            return format_interval(low, high)
        return f" [{self.text(low, signed=True)}, {self.text(high, signed=True)}]"


GAP_S = 0.1
"""A shorter pause between good answers is none: latencies of a busy machine vary by as much."""
ERROR_KINDS = ("connect", "read", "write", "timeout")
WINDOWS = ("before", "during", "after")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The percentiles of steady loads that have effects."""
WINDOWED = ("p50", "p99")
"""Those that are taken before, during and after a disturbance, too."""


# -- how they are read off a sample and its histogram: None where these cannot tell, and never a guess


def quantile(share: float) -> OfHistogram:
    return lambda histogram: histogram.quantile_s(share)


def spread(histogram: Histogram) -> float | None:
    """1 would be a flat line. None where too few requests lie beyond p99."""
    middle, high = (histogram.quantile_s(share) for share in (0.5, 0.99))
    return high / middle if middle and high is not None else None


def memory_bytes(sample: Sample) -> float | None:
    """Of the proxy, or of the backend where there is none."""
    usage = sample.usage.get("proxy") or sample.usage.get("backend")
    return float(usage.rss_bytes) if usage else None


def control_memory_bytes(sample: Sample) -> float | None:
    """Of a controller's own processes, where they are counted apart from the proxy's."""
    usage = sample.usage.get("control")
    return float(usage.rss_bytes) if usage else None


def failed_share(sample: Sample) -> float | None:
    """Of all requests, those not answered as they should; of steady loads by what the generator counted."""
    if sample.outcome:
        return outcome_ratio("failed", "requests")(sample)
    failed, status = sum(sample.errors.values()), sample.errors.get("status", 0)
    total = (sample.requests or 0) + failed - status
    return failed / total if total else None


def outcome_ratio(over: str, under: str) -> OfSample:
    def of(sample: Sample) -> float | None:
        first, second = sample.outcome.get(over), sample.outcome.get(under)
        return first / second if first is not None and second else None

    return of


def refused_share(sample: Sample) -> float | None:
    """Of all large bodies; None where none was tried."""
    tried = [sample.outcome.get(name) for name in ("transfers", "too_large", "transfers_lost")]
    total = sum(count for count in tried if count is not None)
    return (sample.outcome.get("too_large") or 0.0) / total if total else None


def link_share(sample: Sample) -> float | None:
    """How full the shaped link was towards the client, as `lab.model.bottleneck` counts it; None where none was shaped."""
    mbit, duration_s = sample.point.link_mbit, sample.duration_s
    return sample.counters.get("client/rx_bytes", 0) * 8 / (mbit * 1e6 * duration_s) if mbit and duration_s else None


def counted(name: str) -> OfSample:
    """What the kernel counted in the whole sample; None where nobody counted."""
    return lambda sample: float(sample.counters[name]) if name in sample.counters else None


def per_good_request(sample: Sample, amount: float | None) -> float | None:
    good = (sample.requests or 0) - sample.errors.get("status", 0)
    return amount / good if amount is not None and good > 0 else None


def counted_per_request(*names: str) -> OfSample:
    """The sum of these counters for every good answer; None where nobody counted one of them.

    The proxy's are of its connections to both sides; the client's link tells what it carried towards it, headers and all.
    """

    def of(sample: Sample) -> float | None:
        counted = [sample.counters[name] for name in names if name in sample.counters]
        return per_good_request(sample, sum(counted) if len(counted) == len(names) else None)

    return of


def backend_cpu_per_request(sample: Sample) -> float | None:
    used = sample.usage.get("backend")
    return per_good_request(sample, used.cpu_s if used else None)


# -- the catalogue


def _ms(title: str, **more: Any) -> Metric:
    return Metric(title, "ms", scale=1e-3, **more)


def _claim(title: str, unit: str = "", scale: float = 1.0, **more: Any) -> Metric:
    return Metric(title, unit, scale=scale, kind="claim", **more)


def _latency(name: str) -> dict[str, Metric]:
    shown = "largest" if name == "max" else name
    return {f"{name}_{window}_s": _ms(f"{shown} latency {window}", decimals=2) for window in WINDOWS}


METRICS: Mapping[str, Metric] = {
    # -- of steady loads, with effects: ratios
    "rate": Metric(
        "rate", "req/s", "more", kind="ratio", column=1, heading="achieved", primary=True,
        sample=lambda sample: sample.goodput_rps,
    ),
    "cpu_per_request": Metric(
        "CPU per request", "µs", scale=1e-6, kind="ratio", column=8, label="CPU/req", primary=True,
        sample=lambda sample: sample.cpu_per_request_s,
    ),
    **{
        name: _ms(name, kind="ratio", column=column, primary=True, histogram=quantile(share))
        for column, (name, share) in enumerate(QUANTILES.items(), 2)
    },
    # -- of steady loads, never compared in a table
    "slowest_s": _ms("slowest", kind="claim", column=6, heading="max", histogram=lambda histogram: histogram.maximum_s),
    "errors": _claim("errors", column=7, primary=True, sample=lambda sample: float(sum(sample.errors.values()))),
    # -- what came of a disturbance: differences
    "requests": Metric("requests", better="neither", always=True),
    "failed": Metric("failed requests", always=True, primary=True),
    "failed_status": Metric("wrong status", detail=True),
    **{f"failed_{kind}": Metric(kind, detail=True) for kind in ERROR_KINDS},
    "failed_other": Metric("other", detail=True),
    "gap_s": Metric("longest gap", "s", decimals=2, seen="requests", always=True, primary=True),
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
    "held": Metric("long-lived connections", better="neither"),
    "cut": Metric("of them cut", detail=True, primary=True),
    "not_opened": Metric("not opened", detail=True),
    "cut_s": Metric("first cut after", "s", "more", decimals=2),
    "transfers": Metric("transfers", better="neither"),
    "transfers_lost": Metric("transfers lost", detail=True),
    "transfer_rate": Metric("throughput", "MB/s", "more", decimals=1, scale=1e6, primary=True),
    "first_byte_s": _ms("time to first byte", decimals=1, primary=True),
    "too_large": Metric("refused with 413", primary=True),
    **_latency("p50"),
    **_latency("p99"),
    **_latency("max"),
    "clock_error_s": _ms("clock error", better="neither", decimals=2),
    # -- what a claim or a figure may ask for beside these
    "memory_bytes": _claim("proxy's memory", "MB", 1e6, sample=memory_bytes),
    "control_memory_bytes": _claim("control plane's memory", "MB", 1e6, sample=control_memory_bytes),
    "bring_up_s": _claim("brought up in", "s", sample=lambda sample: sample.bring_up_s),
    "mean_s": _ms("average latency", kind="claim", histogram=lambda histogram: histogram.mean_s),
    "p75_s": _ms("p75", kind="claim", histogram=quantile(0.75)),
    "p95_s": _ms("p95", kind="claim", histogram=quantile(0.95)),
    "spread": _claim("p99 as a multiple of p50", "×", histogram=spread),
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
    # -- gauges: what a system said of itself before the load
    "proxy/config_bytes": _claim("configuration", "kB", 1e3),
    "proxy/load_s": _claim("loaded in", "ms", 1e-3),
    "proxy/workers": _claim("workers or threads that ran"),
}  # fmt: skip
"""Name → metric, in the order of comparisons, and of disturbed loads' tables. A difference is the key of `Sample.outcome`:

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

RATIOS = tuple(name for name, metric in METRICS.items() if metric.ratio)
"""What has effects at steady loads; errors are counted, never compared."""
DIFFERENCES = tuple(name for name, metric in METRICS.items() if metric.kind == "difference")
"""What came of a disturbance."""
COLUMNS = tuple(sorted((name for name in METRICS if METRICS[name].column), key=lambda name: METRICS[name].column))
"""Those with a column in the table of steady loads."""
CARRIED = {
    "p50": "p50_during_s",
    "p90": "p99_during_s",
    "p99": "p99_during_s",
    "p99.9": "p99_during_s",
    "errors": "failed",
}
"""A steady load's metric → what stands for it beside a disturbance. Rates and CPU per request have nothing there."""

if TYPE_CHECKING:
    Primary = str
    Ratio = str
else:
    Primary = Literal[tuple(name for name, metric in METRICS.items() if metric.primary)]
    Ratio = Literal[RATIOS]
"""What a variant's hypothesis may be about; what has effects at steady loads. For models of files: other names are refused."""


def compared(point: Point) -> tuple[str, ...]:
    """The metrics in which arms are compared under this load."""
    return RATIOS if point.disturbance is None else DIFFERENCES


def about(name: str) -> Metric:
    """Of any name; one that is not in the catalogue, as a gauge, is called by its own and shown as it is."""
    return METRICS.get(name) or Metric(name, kind="claim")
