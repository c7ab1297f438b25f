"""The numbers that describe the outcome of a load with a disruption, with event streams or with WebSockets.

Those of a disruption are computed from logs of requests, events and usage, the others from the generator's report. This is the
only place that defines each number. Comparing and claiming are left to `lab.analysis.summary`. Nothing is guessed: a number that
the logs do not show is None, and a number that a kind of disruption does not have is left out. All times are seconds by the
lab's clock; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from lab.model.leftovers import Leftovers
from lab.model.load import StreamReport
from lab.model.metrics import DIFFERENCES, ERROR_KINDS, GAP_S, QUANTILES, WINDOWED
from lab.model.requests import good
from lab.model.sweeps import LoadPoint
from lab.model.usage import Usage
from lab.records import propagation
from lab.records.incidents import Outcome, compute_incidents
from lab.stats.histogram import LEAST_BEYOND, Floats, Histogram


def compute_outcome(
    point: LoadPoint,
    requests: pl.DataFrame,
    events: pl.DataFrame,
    usage: pl.DataFrame,
    began_s: float,
    clock_error_s: float,
) -> Outcome:
    """Return all numbers by which a disrupted load is judged: failed requests, gaps, latencies, reloads and so on.

    They are computed for control runs (the load without the disruption), too. There the time "during" is the time at
    which the disruption would act. The load's beginning is the time when the first request was due, so that a stored
    log always gives the same numbers.

    Args:
        point: The load point, which has a disruption.
        requests: The log of requests (`REQUESTS_SCHEMA`), by the lab's clock.
        events: The events of the sample (`EVENTS_SCHEMA`).
        usage: The CPU and memory of each process, second by second (`USAGE_SCHEMA`).
        began_s: When the load began, in seconds since the epoch; used only if no request was made.
        clock_error_s: The largest error between the clocks of generator and lab, in seconds; it is added to the result.

    Returns:
        The name of the metric (`DIFFERENCES`) → number. None = the logs do not show it; absent = it does not apply.

    """
    first_s = requests["due_s"].min()
    began_s = float(first_s) if isinstance(first_s, float) else began_s
    begin_s, end_s = find_disruption_window(point, events, began_s)
    frame = requests.with_columns(right=mark_right_answers(point, requests)).sort("due_s")
    numbers = (
        _count_failures(point, frame)
        | propagation.compute_propagation(requests, events)
        | compute_incidents(events, usage, began_s, begin_s)
        | _measure_latencies(frame.filter(pl.col("right")), begin_s, end_s)
    )
    return {name: numbers[name] for name in DIFFERENCES if name in numbers} | {"clock_error_s": clock_error_s}


def compute_stream_outcome(
    report: StreamReport, delays: Histogram, usage: Mapping[str, Usage], before: Leftovers | None
) -> Outcome:
    """Return all numbers by which a load with streams of Server-Sent Events is judged: delays, cuts and costs.

    Args:
        report: The generator's report on the streams.
        delays: The delays of all events from the backend to the client.
        usage: The CPU and memory of each role during the load. Costs are the proxy's, or the backend's without a proxy.
        before: The state before the load, with each role's memory at that time; None = unknown.

    Returns:
        The name of the metric (`DIFFERENCES`) → number. None = unknown; absent = it does not apply.

    """
    events = delays.total
    cpu_s, open_bytes = _share_usage(report, events, usage, before)
    first_s = np.sort(np.array(report.first_s))
    followed = events - first_s.size
    return {
        "streams": float(report.asked),
        **_count_ends(report),
        "first_event_s": float(np.median(first_s)) if first_s.size else None,
        "first_event_max_s": float(first_s[-1]) if first_s.size else None,
        "delay_p50_s": delays.quantile_s(0.5),
        "delay_p99_s": delays.quantile_s(0.99),
        "delay_max_s": delays.maximum_s,
        "stream_gap_s": report.gap_s if followed else None,
        "coalesced_share": report.coalesced / followed if followed else None,
        "cpu_per_event_s": cpu_s,
        "stream_bytes": open_bytes,
    }


def choose_stream_outcome(point: LoadPoint) -> Callable[..., Outcome]:
    """Return the function that computes the outcome of a load: the one for WebSockets or the one for streams of events."""
    return compute_websocket_outcome if point.websocket else compute_stream_outcome


def compute_websocket_outcome(
    report: StreamReport, round_trips: Histogram, usage: Mapping[str, Usage], before: Leftovers | None
) -> Outcome:
    """Return all numbers by which a load with WebSockets is judged: cuts, lost messages, round trips and costs.

    Args:
        report: The generator's report on its WebSockets.
        round_trips: The round-trip times of all messages.
        usage: The CPU and memory of each role during the load. Costs are the proxy's, or the backend's without a proxy.
        before: The state before the WebSockets, with each role's memory at that time; None = unknown.

    Returns:
        Name of the metric (`DIFFERENCES`) → number. None = unknown; absent = it does not apply.

    """
    cpu_s, open_bytes = _share_usage(report, round_trips.total, usage, before)
    return {
        "websockets": float(report.asked),
        **_count_ends(report),
        "lost_messages": float(report.lost),
        "opening_s": float(np.median(report.first_s)) if report.first_s else None,
        "round_trip_p50_s": round_trips.quantile_s(0.5),
        "round_trip_p99_s": round_trips.quantile_s(0.99),
        "round_trip_max_s": round_trips.maximum_s,
        "cpu_per_message_s": cpu_s,
        "websocket_bytes": open_bytes,
    }


def _count_ends(report: StreamReport) -> Outcome:
    """Return the numbers of streams of events or WebSockets that were cut and that were not opened, by metric.

    If any was cut, the result also has the shortest times until a cut (`cut_s`) and of silence before it (`cut_idle_s`).
    """
    times = {"cut_s": report.cut_s, "cut_idle_s": report.cut_idle_s} if report.cut else {}
    return {"cut": float(report.cut), "not_opened": float(report.refused), **times}


def _share_usage(
    report: StreamReport, messages: int, usage: Mapping[str, Usage], before: Leftovers | None
) -> tuple[float | None, float | None]:
    """Return the CPU seconds per event or message, and the bytes of memory per opened stream or WebSocket; None = unknown.

    Both are the proxy's, or the backend's without a proxy. The memory is the increase since before the load.
    """
    role, opened = "proxy" if "proxy" in usage else "backend", report.asked - report.refused
    used, held_bytes = usage.get(role), before.memory_bytes.get(role) if before is not None else None
    cpu_s = used.cpu_s / messages if used is not None and messages else None
    return cpu_s, (used.rss_bytes - held_bytes) / opened if used and held_bytes is not None and opened else None


def find_disruption_window(point: LoadPoint, events: pl.DataFrame, began_s: float) -> tuple[float, float]:
    """Return the begin and the end of the time that counts as "during" the disruption, in seconds since the epoch.

    They are the times of the events Begin and End. Without these events they follow from the settings of the
    disruption.

    Args:
        point: The load point, which has a disruption.
        events: The events of the sample (`EVENTS_SCHEMA`).
        began_s: When the load began, in seconds since the epoch.

    """
    assert point.disturbance is not None, "only a disturbance has such a time"
    times_s = {kind: events.filter(pl.col("kind") == kind)["at_s"].to_list() for kind in ("Begin", "End")}
    begin_s = min(times_s["Begin"], default=began_s + point.disturbance.at_s)
    return begin_s, max(times_s["End"], default=begin_s + point.disturbance.acts_s)


def mark_right_answers(point: LoadPoint, requests: pl.DataFrame) -> pl.Series:
    """Return for each request whether its answer was right: a 2xx status, or one that the disruption makes acceptable.

    A disruption may list such other statuses (`Disturbance.awaited`): 404 until a new route is served, for example.
    They are right only for requests that were sent before the first 2xx answer arrived.

    Args:
        point: The load point.
        requests: The log of requests (`REQUESTS_SCHEMA`).

    """
    is_good = good(requests)
    awaited = point.disturbance.awaited if point.disturbance is not None else frozenset[int]()
    if not awaited:
        return is_good
    first_good_s = requests.filter(is_good)["done_s"].min()
    early = pl.lit(value=True) if first_good_s is None else pl.col("sent_s") <= first_good_s
    awaiting = (pl.col("error") == "") & pl.col("status").is_in(sorted(awaited)) & early
    return is_good | requests.select(awaiting.alias("right"))["right"]


def _count_failures(point: LoadPoint, frame: pl.DataFrame) -> Outcome:
    bad = frame.filter(~pl.col("right"))
    kinds = dict(bad["error"].value_counts().iter_rows())
    wrong = int(kinds.get("", 0))
    by_kind = {f"failed_{kind}": float(kinds.get(kind, 0)) for kind in ERROR_KINDS}
    assert point.rate_rps is not None, "a load with a disturbance has a rate"
    spacing_s = 1 / point.rate_rps if frame.height else 0.0  # of an open loop
    due_s = bad["due_s"].to_numpy()
    return {
        "requests": float(frame.height),
        "failed": float(bad.height),
        "failed_status": float(wrong),
        **by_kind,
        "failed_other": bad.height - wrong - sum(by_kind.values()),
        "gap_s": _measure_gap_s(frame, spacing_s),
        "failing_s": float(due_s[-1] - due_s[0]) + spacing_s if bad.height else 0.0,
    }


def _measure_gap_s(frame: pl.DataFrame, spacing_s: float) -> float | None:
    """Return the longest time without a right answer, in seconds, less the normal time between two requests.

    Two further times are examined: from the first request to the first right answer, and from the last right answer to
    the last request. A result below `GAP_S` becomes 0.

    Args:
        frame: The log of requests, with a column `right`, sorted by `due_s`.
        spacing_s: The time between two requests.

    Returns:
        None if there were no requests.

    """
    if frame.is_empty():
        return None
    done_s = np.sort(frame.filter(pl.col("right"))["done_s"].to_numpy())
    first_s, last_s = float(frame["due_s"][0]), float(frame["due_s"][-1])
    ends_s = np.concatenate([[first_s], done_s, [max(last_s, done_s[-1]) if done_s.size else last_s]])
    gap_s = float(np.diff(ends_s).max()) - spacing_s
    return gap_s if gap_s >= GAP_S else 0.0


def _measure_latencies(frame: pl.DataFrame, begin_s: float, end_s: float) -> Outcome:
    due_s, taken_s = frame["due_s"].to_numpy(), (frame["done_s"] - frame["due_s"]).to_numpy()
    masks = {"before": due_s < begin_s, "during": (due_s >= begin_s) & (due_s < end_s), "after": due_s >= end_s}
    latencies: Outcome = {}
    for part, mask in masks.items():
        ordered = np.sort(taken_s[mask])
        latencies |= {f"{name}_{part}_s": _find_quantile(ordered, QUANTILES[name]) for name in WINDOWED}
        latencies[f"max_{part}_s"] = float(ordered[-1]) if ordered.size else None
    return latencies


def _find_quantile(ordered: Floats, share: float) -> float | None:
    """Return a quantile of sorted values: the smallest value with the given share of all values at or below it.

    Args:
        ordered: The values in ascending order, shape (n,).
        share: The share, from 0 to 1.

    Returns:
        None if fewer than `LEAST_BEYOND` values lie beyond the quantile.

    """
    if ordered.size * (1 - share) < LEAST_BEYOND - 1e-9:
        return None
    return float(ordered[max(1, int(np.ceil(share * ordered.size - 1e-9))) - 1])
