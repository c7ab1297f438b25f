"""Logs with known answers → what came of a disturbance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.disturbances.outage import Outage
from lab.model.disturbance import Disturbance
from lab.model.events import EVENTS_SCHEMA, Event
from lab.model.metrics import DIFFERENCES, METRICS
from lab.model.requests import REQUESTS_SCHEMA
from lab.model.sweeps import LoadPoint
from lab.model.usage import USAGE_SCHEMA
from lab.records.outcomes import compute_outcome, find_disruption_window
from lab.stats.histogram import Histogram
from lab.tests.support.factories import make_point

BEGAN_S = 1_790_000_000.0
RATE = 100.0
NO_USAGE = pl.DataFrame(schema=USAGE_SCHEMA)


def disturbed(**more: Any) -> LoadPoint:
    return make_point("outage", **{"rate_rps": RATE, "duration_s": 20.0, "disturbance": Outage(at_s=5.0), **more})


def log(
    change: Callable[[float], Mapping[str, Any]] = lambda _due: {}, rate: float = RATE, duration_s: float = 20.0
) -> pl.DataFrame:
    """Good answers after 2 ms, except where `change` (of the due time, seconds since the load began) says otherwise.

    `done_s` of a change is since the load began, too.
    """
    rows: list[dict[str, Any]] = []
    for number in range(round(rate * duration_s)):
        due_s = number / rate
        row: dict[str, Any] = {"number": number, "due_s": due_s, "sent_s": due_s, "done_s": due_s + 0.002}
        row |= {"status": 200, "error": "", "answer": "backend 9000 -", "service_s": 0.002} | dict(change(due_s))
        rows.append(row | {key: row[key] + BEGAN_S for key in ("due_s", "sent_s", "done_s")})
    return pl.DataFrame(rows, schema=REQUESTS_SCHEMA)


def told(*events: tuple[float, str, str, str]) -> pl.DataFrame:
    rows = [Event(BEGAN_S + at_s, "lab", "proxy", name, kind, detail) for at_s, kind, name, detail in sorted(events)]
    columns = {key: [getattr(row, key) for row in rows] for key in EVENTS_SCHEMA}
    return pl.DataFrame(columns, schema=EVENTS_SCHEMA)


def of(
    requests: pl.DataFrame, events: pl.DataFrame | None = None, point: LoadPoint | None = None
) -> dict[str, float | None]:
    return compute_outcome(
        point or disturbed(), requests, told() if events is None else events, NO_USAGE, BEGAN_S, 0.0004
    )


def frozen(begin_s: float, end_s: float) -> Callable[[float], Mapping[str, Any]]:
    return lambda due_s: {"done_s": end_s + 0.002} if begin_s <= due_s < end_s else {}


def refused(begin_s: float, end_s: float, error: str = "connect") -> Callable[[float], Mapping[str, Any]]:
    return lambda due_s: {"status": 0, "error": error, "answer": ""} if begin_s <= due_s < end_s else {}


def test_an_outage_of_two_seconds_is_measured_as_two_seconds() -> None:
    waited, lost = of(log(frozen(5.003, 7.003))), of(log(refused(5.003, 7.003)))
    assert waited["gap_s"] == pytest.approx(2.0, abs=0.02)
    assert waited["failed"] == waited["failing_s"] == 0
    assert waited["max_during_s"] == pytest.approx(2.0, abs=0.02)
    assert lost["gap_s"] == pytest.approx(2.0, abs=0.02)
    assert (lost["failed"], lost["failed_connect"], lost["failed_status"]) == (200, 200, 0)
    assert lost["failing_s"] == pytest.approx(2.0, abs=1e-6)


@given(st.floats(0.2, 8.0), st.floats(1.0, 10.0), st.sampled_from([20.0, 100.0, 500.0]))
@settings(max_examples=15)
def test_any_outage_is_measured_to_the_distance_of_requests(length_s: float, begin_s: float, rate: float) -> None:
    requests = log(frozen(begin_s, begin_s + length_s), rate=rate)
    gap_s = of(requests, point=disturbed(rate_rps=rate))["gap_s"]
    assert gap_s == pytest.approx(length_s, abs=1 / rate + 0.002)


def test_nothing_done_is_no_gap() -> None:
    """Latencies that vary by less than a tenth of a second are no outage, whichever they are."""
    rng = np.random.default_rng(1)
    found = of(log(lambda due_s: {"done_s": due_s + rng.uniform(0.001, 0.05)}), point=disturbed(control=True))
    assert found["requests"] == 2000
    assert {name: found[name] for name in ("failed", "gap_s", "failing_s")} == {"failed": 0, "gap_s": 0, "failing_s": 0}


def test_where_nothing_is_answered_the_gap_is_the_whole_load() -> None:
    """An outage at the load's beginning or end counts, too."""
    for begin_s, end_s in ((0.0, 3.0), (17.0, 20.0)):
        assert of(log(refused(begin_s, end_s)))["gap_s"] == pytest.approx(3.0, abs=0.02)
    found = of(log(refused(0, 20, "timeout")))
    assert found["gap_s"] == pytest.approx(20.0, abs=0.03)
    assert found["failed_timeout"] == 2000
    assert found["p50_before_s"] is None
    empty = of(log(duration_s=0))
    assert (empty["requests"], empty["gap_s"]) == (0, None)


def test_failures_are_told_by_kind_and_add_up() -> None:
    kinds = [("", 503), ("connect", 0), ("read", 0), ("write", 0), ("timeout", 0), ("other", 0)]

    def change(due_s: float) -> Mapping[str, Any]:
        error, status = kinds[round(due_s * RATE) % 10] if round(due_s * RATE) % 10 < 6 else ("", 200)
        return {"error": error, "status": status}

    found = of(log(change))
    parts = [found[f"failed_{kind}"] for kind in ("status", "connect", "read", "write", "timeout", "other")]
    assert (found["failed"], parts) == (1200, [200] * 6)


def test_latency_windows_follow_the_disturbance() -> None:
    """Of good answers, from when they were due: 2 ms before, 30 ms from Begin to End, 4 ms while it recovers."""
    events = told((6.0, "Begin", "", ""), (8.0, "End", "", ""))
    assert find_disruption_window(disturbed(), events, BEGAN_S) == (BEGAN_S + 6, BEGAN_S + 8)

    def change(due_s: float) -> Mapping[str, Any]:
        if due_s == 7.0:
            return {"error": "timeout", "status": 0, "done_s": 17.0}
        return {"done_s": due_s + (0.002 if due_s < 6 else 0.03 if due_s < 8 else 0.004)}

    found = of(log(change), events)
    windows = [found[f"p50_{name}_s"] for name in ("before", "during", "after")]
    assert windows == pytest.approx([0.002, 0.03, 0.004], abs=1e-6)
    assert found["max_during_s"] == pytest.approx(0.03, abs=1e-6), "what failed has no latency"
    assert found["p99_during_s"] is None, "two of 200 lie beyond"
    assert found["p99_after_s"] == pytest.approx(0.004, abs=1e-6)


def test_the_time_ends_with_the_end_and_without_one_as_long_as_the_kind_acts() -> None:
    ended = told((5.0, "Begin", "", ""), (11.0, "End", "", ""))
    assert find_disruption_window(disturbed(), ended, BEGAN_S) == (BEGAN_S + 5, BEGAN_S + 11)
    assert find_disruption_window(disturbed(control=True), told(), BEGAN_S) == (BEGAN_S + 5, BEGAN_S + 7)
    assert find_disruption_window(disturbed(), told((5.5, "Begin", "", "")), BEGAN_S) == (BEGAN_S + 5.5, BEGAN_S + 7.5)


def test_percentiles_are_those_of_the_histogram() -> None:
    took_s = np.random.default_rng(3).exponential(0.01, 2000)
    found = of(log(lambda due_s: {"done_s": due_s + took_s[round(due_s * RATE)]}))
    after = took_s[round(7 * RATE) :]
    assert found["p99_after_s"] == pytest.approx(Histogram.of_values(after).quantile_s(0.99), rel=2e-3)


class Awaiting(Disturbance):
    kind: str = "awaiting"

    @property
    def lasts_s(self) -> float:
        return 5.0

    @property
    def acts_s(self) -> float:
        return 5.0

    awaited: ClassVar[frozenset[int]] = frozenset({404})


def test_what_is_awaited_is_right_until_the_first_good_answer() -> None:
    def change(due_s: float) -> Mapping[str, Any]:
        return {"status": 404} if due_s < 8 or due_s == 10.0 else {}

    point = disturbed(disturbance=Awaiting())
    found = of(log(change), told((6.0, "Begin", "", ""), (6.0, "Change", "1", "status of it")), point)
    assert (found["failed"], found["gap_s"], found["stale"]) == (1, 0, 1)
    assert found["correct_s"] == pytest.approx(2.002, abs=0.011)
    never = of(log(lambda _due: {"status": 404}), told((6.0, "Change", "1", "status")), point)
    assert (never["failed"], never["gap_s"], never["unseen"], never["correct_s"]) == (0, 0, 1, None)


def test_every_number_has_a_title_and_is_told_in_the_tables_order() -> None:
    found = of(log())
    assert list(found)[:-1] == [name for name in DIFFERENCES if name in found][:-1]
    assert found["clock_error_s"] == 0.0004
    assert len({METRICS[name].title for name in DIFFERENCES}) == len(DIFFERENCES)
