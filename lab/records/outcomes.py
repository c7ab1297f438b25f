"""What came of a disturbance: a log of requests, events and usage → numbers. The one place that says what each number means.

Refuses to compare and to claim (`lab.outcome_summary`), and to guess: what the logs cannot tell is None, what a kind of
disturbance does not have is left out. All times are seconds by the lab's clock; nothing here reads one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.model.requests import good
from lab.model.sweeps import Point
from lab.records import incidents as happenings
from lab.records import propagation
from lab.stats.histogram import BEYOND

GAP_S = 0.1
"""A shorter pause between good answers is none: latencies of a busy machine vary by as much."""
ERROR_KINDS = ("connect", "read", "write", "timeout")
WINDOWS = ("before", "during", "after")

Outcome = dict[str, float | None]
Floats = npt.NDArray[np.float64]


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
changes …       `lab.propagation` says what these are
reloads …       `lab.happenings` says what these are
clock_error_s   by how much the clocks of generator and events may differ at most; all that is on one clock is free of it
"""

QUANTILES = {"p50": 0.5, "p99": 0.99}


def outcome(
    point: Point,
    requests: pl.DataFrame,
    events: pl.DataFrame,
    usage: pl.DataFrame,
    began_s: float,
    clock_error_s: float,
) -> Outcome:
    """Every number there is, by the keys of METRICS. `began_s`: when the load began (epoch); frames as their schemas say.

    Works on a control run, too: there nothing began, and `during` is when it would have. Where requests were made, the first
    one's due time is the load's beginning, so that stored logs give the same numbers again.
    """
    first_s = requests["due_s"].min()
    began_s = float(first_s) if isinstance(first_s, float) else began_s
    begin_s, end_s = window(point, events, began_s)
    frame = requests.with_columns(right=right(point, requests)).sort("due_s")
    found: Outcome = _failures(point, frame)
    found |= propagation.outcome(requests, events)
    found |= happenings.outcome(events, usage, began_s, begin_s)
    found |= _latencies(frame.filter(pl.col("right")), begin_s, end_s)
    return {name: found[name] for name in METRICS if name in found} | {"clock_error_s": clock_error_s}


def window(point: Point, events: pl.DataFrame, began_s: float) -> tuple[float, float]:
    """(begin, end) of `during`, seconds since the epoch."""
    assert point.disturbance is not None, "only a disturbance has such a time"
    said = {kind: events.filter(pl.col("kind") == kind)["at_s"].to_list() for kind in ("Begin", "End")}
    begin_s = min(said["Begin"], default=began_s + point.disturbance.at_s)
    return begin_s, max(said["End"], default=begin_s + point.disturbance.acts_s)


def right(point: Point, requests: pl.DataFrame) -> pl.Series:
    """2xx; until somebody was answered with that, also what the kind of disturbance says is right as long (`awaited`)."""
    found = good(requests)
    awaited = point.disturbance.awaited if point.disturbance is not None else frozenset[int]()
    if not awaited:
        return found
    known_s = requests.filter(found)["done_s"].min()
    early = pl.lit(value=True) if known_s is None else pl.col("sent_s") <= known_s
    awaiting = (pl.col("error") == "") & pl.col("status").is_in(sorted(awaited)) & early
    return found | requests.select(awaiting.alias("right"))["right"]


def _failures(point: Point, frame: pl.DataFrame) -> Outcome:
    bad = frame.filter(~pl.col("right"))
    kinds = dict(bad["error"].value_counts().iter_rows())
    wrong = int(kinds.get("", 0))
    named = {f"failed_{kind}": float(kinds.get(kind, 0)) for kind in ERROR_KINDS}
    spacing_s = _spacing_s(point, frame)
    due_s = bad["due_s"].to_numpy()
    return {
        "requests": float(frame.height),
        "failed": float(bad.height),
        "failed_status": float(wrong),
        **named,
        "failed_other": bad.height - wrong - sum(named.values()),
        "gap_s": _gap_s(frame, spacing_s),
        "failing_s": float(due_s[-1] - due_s[0]) + spacing_s if bad.height else 0.0,
    }


def _spacing_s(point: Point, frame: pl.DataFrame) -> float:
    """From one request to the next: the load is an open loop."""
    assert point.rate_rps is not None, "a load beside a disturbance has a rate"
    return 1 / point.rate_rps if frame.height else 0.0


def _gap_s(frame: pl.DataFrame, spacing_s: float) -> float | None:
    """The load's ends count as answers: the first request's due time, and the last's."""
    if frame.is_empty():
        return None
    done_s = np.sort(frame.filter(pl.col("right"))["done_s"].to_numpy())
    first_s, last_s = float(frame["due_s"][0]), float(frame["due_s"][-1])
    ends_s = np.concatenate([[first_s], done_s, [max(last_s, done_s[-1]) if done_s.size else last_s]])
    gap_s = float(np.diff(ends_s).max()) - spacing_s
    return gap_s if gap_s >= GAP_S else 0.0


def _latencies(frame: pl.DataFrame, begin_s: float, end_s: float) -> Outcome:
    due_s, taken_s = frame["due_s"].to_numpy(), (frame["done_s"] - frame["due_s"]).to_numpy()
    of = {"before": due_s < begin_s, "during": (due_s >= begin_s) & (due_s < end_s), "after": due_s >= end_s}
    return dict(_quantiles({window: np.sort(taken_s[mask]) for window, mask in of.items()}))


def _quantiles(windows: Mapping[str, Floats]) -> Iterator[tuple[str, float | None]]:
    for window, taken_s in windows.items():
        for name, share in QUANTILES.items():
            yield f"{name}_{window}_s", _quantile(taken_s, share)
        yield f"max_{window}_s", float(taken_s[-1]) if taken_s.size else None


def _quantile(ordered: Floats, share: float) -> float | None:
    """As `Histogram.quantile_s`, of the values themselves: at or below it lies `share` of them."""
    if ordered.size * (1 - share) < BEYOND - 1e-9:
        return None
    return float(ordered[max(1, int(np.ceil(share * ordered.size - 1e-9))) - 1])
