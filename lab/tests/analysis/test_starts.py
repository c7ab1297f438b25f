"""The rule of drained starts on stored samples, and the fresh bring-ups that a plan counts beforehand."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.analysis.starts import (
    MOST_OPENED,
    leaving_loads,
    opened_before,
    planned_anew,
    replay,
    share_left,
)
from lab.base.files import reference_folder
from lab.model.drained import OPENED
from lab.model.leftovers import Leftovers
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records.store import RunStore
from lab.tests.support.factories import make_plan, make_point, make_sample

BEGAN_FALLEN = Path(__file__).with_name("began_fallen.csv")
"""The 27 samples that collapsed at their start, by the method review, with the loads before them, as nine runs had them before these were
measured again; `backend_cpu`: at which second of the load how many seconds on a CPU."""
WAIT = make_point("wait", rate_rps=None, duration_s=4.0, connections=400)


def load(at: str, opened: int, **changed: Any) -> Sample:
    """A closed loop's sample that started at a time of day and had the proxy open so many connections."""
    fields = {"id": at, "point": WAIT, "requests": 100_000, "duration_s": 4.0, "started_at": f"2026-11-21T{at}Z"}
    return make_sample(**{**fields, "counters": {OPENED: opened}, **changed})


def usage(*backend_s: float) -> pl.DataFrame:
    """The backend's CPU seconds in each second."""
    rows = [
        {"t_s": float(at), "role": "backend", "pid": 1, "cpu_s": sum(backend_s[:at])}
        for at in range(len(backend_s) + 1)
    ]
    return pl.DataFrame(rows, schema=USAGE_SCHEMA)


def no_usage(sample: Sample) -> pl.DataFrame:
    return pl.DataFrame(schema=USAGE_SCHEMA)


def test_the_rule_prevents_every_sample_that_began_fallen() -> None:
    """All 27, which were in nine runs; by the stand-in each had nearly three times the bound, or its warm-up had."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    looks: dict[tuple[str, str], str] = {}
    fallen: dict[str, set[str]] = defaultdict(set)
    with BEGAN_FALLEN.open() as rows:
        for row in csv.DictReader(rows):
            point = make_point(row["point"], rate_rps=None, warmup_s=float(row["warmup_s"]))
            samples[row["run"]].append(
                make_sample(
                    **{name: row[name] for name in ("id", "arm", "variant", "started_at")},
                    **{name: int(row[name]) for name in ("block", "generation", "fresh_bring_ups", "attempt")},
                    point=point,
                    duration_s=float(row["duration_s"]),
                    counters={OPENED: int(row["opened"])},
                )
            )
            looks[row["run"], row["id"]] = row["backend_cpu"]
            if row["began_fallen"] == "1":
                fallen[row["run"]].add(row["id"])
    assert sum(map(len, fallen.values())) == 27
    for run, ids in fallen.items():
        stopped = replay(samples[run], lambda sample, run=run: usage_at(looks[run, sample.id]))
        assert ids <= stopped.keys()


def usage_at(looks: str) -> pl.DataFrame:
    """The backend's CPU time as `0.00:0.35 1.00:0.66` has it: seconds of the load, seconds on a CPU."""
    pairs = [map(float, look.split(":")) for look in looks.split()]
    rows = [{"t_s": at, "role": "backend", "pid": 1, "cpu_s": cpu_s} for at, cpu_s in pairs]
    return pl.DataFrame(rows, schema=USAGE_SCHEMA)


@pytest.mark.committed
def test_a_run_without_churn_keeps_all_its_starts() -> None:
    run = RunStore.open(str(reference_folder() / "keepalive-pairs"))
    assert replay(run.samples(), run.usage) == {}


def test_a_load_and_its_retry_in_one_bring_up_are_stopped_and_in_another_not() -> None:
    first, retry = load("12:00:00", 10_000), load("12:00:06", 500, id="retry", attempt=2)
    elsewhere = load("12:00:12", 500, id="fresh", fresh_bring_ups=1)
    assert list(replay([retry, elsewhere, first], no_usage)) == ["retry"]


def test_after_a_minute_ports_are_free_again() -> None:
    first = load("12:00:00", 10_000)
    assert opened_before(load("12:00:30", 0), [first]) == 12_500, "a warm-up of a second counts like one of the four"
    assert opened_before(load("12:01:03", 0), [first]) == pytest.approx(5_000), "two of its five seconds"
    assert opened_before(load("12:01:06", 0), [first]) == 0
    assert opened_before(load("12:00:30", 0), [first.model_copy(update={"warmed_up": False})]) == 10_000


def test_a_warm_up_that_alone_opens_too_many_is_found_by_the_fastest_second() -> None:
    """20 s of which only the first opened: the mean over them would hide it."""
    point = make_point("wait", rate_rps=None, duration_s=20.0)
    fell = load("12:00:00", 2_000, point=point, duration_s=20.0)
    at_first, even = usage(0.9, *[0.1 / 19] * 19), usage(*[0.05] * 20)
    assert "its warm-up alone" in replay([fell], lambda _: at_first)[fell.id]
    assert replay([fell], lambda _: even) == {}


def test_what_was_recorded_decides_before_the_stand_in() -> None:
    waiting = Leftovers(time_wait={"proxy": {"10.64.0.3:80": 1_500}}, port_range={"proxy": 28_232})
    begun = load("12:00:06", 0, id="begun", leftovers={"before": waiting})
    clean = load("12:00:12", 0, id="clean", leftovers={"before": Leftovers()})
    assert list(replay([load("12:00:00", 20_000), begun, clean], no_usage)) == ["begun"]


def test_who_closes_is_not_known_of_a_connection_for_each_request() -> None:
    assert share_left(load("12:00:00", 90_000)) == pytest.approx(90_000 * 1.25 / 28_232)
    assert share_left(load("12:00:00", 96_000)) is None
    end = Leftovers(time_wait={"proxy": {"10.64.0.3:80": 2_000}}, port_range={"proxy": 20_000})
    assert share_left(load("12:00:00", 96_000, leftovers={"end": end})) == 0.1
    unseen = Leftovers(unseen={"proxy": "no shell"})
    assert share_left(load("12:00:00", 90_000, leftovers={"end": unseen})) is None


def test_a_load_is_known_when_every_sample_of_it_left_too_much() -> None:
    many, few = load("12:00:00", 10_000), load("12:00:10", round(MOST_OPENED / 2))
    assert list(leaving_loads([many, many]).values()) == [pytest.approx(12_500 / 28_232)]
    assert leaving_loads([many]) == {} and leaving_loads([many, many, few]) == {}


def test_a_plan_counts_a_bring_up_after_each_such_load_but_the_last() -> None:
    """In each bring-up of the variant one of two points leaves too much: a fresh system is certain where the other comes after it."""
    points = [WAIT, make_point("calm", rate_rps=None, connections=4)]
    planned = make_plan((("baseline", None),), points=points, blocks=6, reference=None)
    known = leaving_loads([load("12:00:00", 10_000)] * 2)
    found = planned_anew(planned, known, ("run-1",))
    ups = [
        [slot.point.name for slot in planned.slots if slot.bring_up == up] for up in {s.bring_up for s in planned.slots}
    ]
    assert found.count == sum(names == ["wait", "calm"] for names in ups) > 0
    assert (found.loads, found.runs) == (("baseline at wait",), ("run-1",))
    other = make_plan((("nginx", None),), points=points, blocks=6, reference=None)
    assert planned_anew(other, known).count == 0


@pytest.mark.parametrize(
    ("changed", "leaves"),
    [
        ({"connections": 800}, True),
        ({"connections": 399}, False),
        ({"duration_s": 2.0}, True),
        ({"duration_s": 1.0, "warmup_s": 0.0}, True),
        ({"keepalive": False}, False),
        ({"rate_rps": 100.0}, False),
    ],
)
def test_a_load_of_more_connections_leaves_as_much(changed: dict[str, Any], leaves: bool) -> None:
    """A shorter one in proportion: of 44 % a fifth is still more than 5 %."""
    points = [WAIT.model_copy(update=changed), WAIT.model_copy(update={"name": "other", **changed})]
    planned = make_plan((("baseline", None),), points=points, blocks=1, reference=None)
    assert bool(planned_anew(planned, leaving_loads([load("12:00:00", 10_000)] * 2)).count) is leaves
