"""The rule of drained starts on stored samples, and the fresh bring-ups that a plan counts beforehand."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lab.analysis.past import count_fresh_bring_ups, leaving_loads, share_left
from lab.model.leftovers import DEFAULT_PORTS, OPENED, PORT_SHARE, WAITING_S, Leftovers
from lab.model.samples import Sample
from lab.tests.support.factories import make_plan, make_point, make_sample

BEGAN_FALLEN = Path(__file__).with_name("began_fallen.csv")
"""The 27 samples that collapsed at their start, by the method review, with the loads before them, as nine runs had them before these were
measured again; `backend_cpu`: at which second of the load how many seconds on a CPU."""
MOST_OPENED = PORT_SHARE * DEFAULT_PORTS
WAIT = make_point("wait", rate_rps=None, duration_s=4.0, connections=400)


def load(at: str, opened: int, **changed: Any) -> Sample:
    """A closed loop's sample that started at a time of day and had the proxy open so many connections."""
    fields = {"id": at, "point": WAIT, "requests": 100_000, "duration_s": 4.0, "started_at": f"2026-11-21T{at}Z"}
    return make_sample(**{**fields, "counters": {OPENED: opened}, **changed})


def test_the_rule_prevents_every_sample_that_began_fallen() -> None:
    """All 27, which were in nine runs: connections opened in the minute before stand for TIME_WAIT sockets, which nobody counted then.

    Each had nearly three times the bound, or its warm-up had, at the rate of the fastest second of any sample of that load: over its
    seconds a sample's count is spread as the backend's CPU time is.
    """
    loads: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    fastest: dict[tuple[str, ...], float] = defaultdict(float)
    with BEGAN_FALLEN.open() as rows:
        for row in sorted(csv.DictReader(rows), key=lambda row: row["started_at"]):
            loads[tuple(row[name] for name in ("run", "block", "generation", "arm", "fresh_bring_ups"))].append(row)
            looks = [tuple(map(float, look.split(":"))) for look in row["backend_cpu"].split()]
            seconds = [(to[0] - at[0], to[1] - at[1]) for at, to in pairwise(looks)]
            shares = [used / took for took, used in seconds if took >= 0.9]
            if int(row["opened"]) >= MOST_OPENED and float(row["warmup_s"]) and shares:
                per_s = int(row["opened"]) * max(shares) / sum(used for _, used in seconds)
                load = row["run"], row["variant"], row["point"]
                fastest[load] = max(fastest[load], per_s)
    prevented = fallen = 0
    for bring_up in loads.values():
        for number, row in enumerate(bring_up):
            warm = fastest[row["run"], row["variant"], row["point"]] * float(row["warmup_s"])
            if row["began_fallen"] == "1":
                fallen += 1
                prevented += max(opened_before(row, bring_up[:number]), warm) >= MOST_OPENED
    assert prevented == fallen == 27


def opened_before(row: dict[str, str], earlier: list[dict[str, str]]) -> float:
    """How many connections the proxy opened in the 60 s before a sample; a load that lies only partly in them counts in proportion."""
    opened, start = 0.0, datetime.fromisoformat(row["started_at"]).timestamp()
    for one in earlier:
        lasts_s, warmup_s = float(one["duration_s"]), float(one["warmup_s"])
        ended = datetime.fromisoformat(one["started_at"]).timestamp() + warmup_s + lasts_s
        within_s = min(warmup_s + lasts_s, max(0.0, ended - (start - WAITING_S)))
        opened += int(one["opened"]) * within_s / lasts_s
    return opened


def test_who_closes_is_not_known_of_a_connection_for_each_request() -> None:
    assert share_left(load("12:00:00", 90_000)) == pytest.approx(90_000 * 1.25 / 28_232)
    assert share_left(load("12:00:00", 96_000)) is None
    end = Leftovers(time_wait={"proxy": {"10.64.0.3:80": 2_000}}, port_range={"proxy": 20_000})
    assert share_left(load("12:00:00", 96_000, leftovers={"end": end})) == 0.1
    unseen = Leftovers(unseen={"proxy": "no shell"})
    assert share_left(load("12:00:00", 90_000, leftovers={"end": unseen})) is None


def test_a_plan_counts_a_bring_up_after_each_such_load_but_the_last() -> None:
    points = [WAIT, make_point("calm", rate_rps=None, connections=4)]
    planned = make_plan((("baseline", None),), points=points, blocks=6, reference=None)
    many, few = load("12:00:00", 10_000), load("12:00:10", round(MOST_OPENED / 2))
    assert leaving_loads([many]) == {} and leaving_loads([many, many, few]) == {}, "every sample of it must"
    known = leaving_loads([many, many])
    assert list(known.values()) == [pytest.approx(12_500 / 28_232)]
    found = count_fresh_bring_ups(planned, known, ("run-1",))
    ups = defaultdict[tuple[object, ...], list[str]](list)
    for slot in planned.slots:
        ups[slot.bring_up].append(slot.point.name)
    assert found.count == list(ups.values()).count(["wait", "calm"]) > 0
    assert (found.loads, found.runs) == (("baseline at wait",), ("run-1",))
    other = make_plan((("nginx", None),), points=points, blocks=6, reference=None)
    assert count_fresh_bring_ups(other, known).count == 0


def test_a_load_of_more_connections_leaves_as_much() -> None:
    """A shorter one in proportion: of 44 % a fifth is still more than 5 %."""
    leaves = [{"connections": 800}, {"duration_s": 2.0}, {"duration_s": 1.0, "warmup_s": 0.0}]
    leaves_not = [{"connections": 399}, {"keepalive": False}, {"rate_rps": 100.0}]
    for changed in (*leaves, *leaves_not):
        points = [WAIT.model_copy(update=changed), WAIT.model_copy(update={"name": "other", **changed})]
        planned = make_plan((("baseline", None),), points=points, blocks=1, reference=None)
        found = count_fresh_bring_ups(planned, leaving_loads([load("12:00:00", 10_000)] * 2))
        assert bool(found.count) is (changed in leaves), changed
