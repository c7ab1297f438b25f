"""What came of a disturbance: a log of requests, events and usage → numbers. The one place that says what each number means.

Refuses to compare and to claim (`lab.analysis.outcome_summary`), and to guess: what the logs cannot tell is None, what a kind of
disturbance does not have is left out. All times are seconds by the lab's clock; nothing here reads one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.model.metrics import DIFFERENCES, ERROR_KINDS, GAP_S, QUANTILES, WINDOWED
from lab.model.requests import good
from lab.model.sweeps import Point
from lab.records import incidents as happenings
from lab.records import propagation
from lab.stats.histogram import BEYOND

Outcome = dict[str, float | None]
Floats = npt.NDArray[np.float64]


def outcome(
    point: Point,
    requests: pl.DataFrame,
    events: pl.DataFrame,
    usage: pl.DataFrame,
    began_s: float,
    clock_error_s: float,
) -> Outcome:
    """Every number there is, by the names of DIFFERENCES. `began_s`: when the load began (epoch); frames as their schemas say.

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
    return {name: found[name] for name in DIFFERENCES if name in found} | {"clock_error_s": clock_error_s}


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
    assert point.rate_rps is not None, "a load beside a disturbance has a rate"
    spacing_s = 1 / point.rate_rps if frame.height else 0.0  # of an open loop
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
    found: Outcome = {}
    for part, mask in of.items():
        ordered = np.sort(taken_s[mask])
        found |= {f"{name}_{part}_s": _quantile(ordered, QUANTILES[name]) for name in WINDOWED}
        found[f"max_{part}_s"] = float(ordered[-1]) if ordered.size else None
    return found


def _quantile(ordered: Floats, share: float) -> float | None:
    """As `Histogram.quantile_s`, of the values themselves: at or below it lies `share` of them."""
    if ordered.size * (1 - share) < BEYOND - 1e-9:
        return None
    return float(ordered[max(1, int(np.ceil(share * ordered.size - 1e-9))) - 1])
