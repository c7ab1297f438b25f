"""A usage table becomes seconds, and a sample of an earlier lab is judged when it is read."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from lab.model.leftovers import Leftovers
from lab.model.pairs import PairSide
from lab.model.samples import Reason, Sample, is_settled
from lab.model.steadiness import Change, Steadiness, find_cause
from lab.model.usage import USAGE_SCHEMA
from lab.records.steadiness import (
    add_cause,
    describe_change,
    judge_restart,
    judge_unjudged,
    judge_usage,
    load_duration_s,
)
from lab.tests.support.factories import make_point, make_sample

CLOSED = make_point("ceiling", rate_rps=None, duration_s=5.0)


def usage(
    work: list[float], cost: float | list[float] = 2.0, sent: list[int] | None = None, last_s: float = 0.05
) -> pl.DataFrame:
    """A usage table: the backend's CPU seconds of each second, the proxy's for each of them, the bytes sent in each; a last look after `last_s`."""
    costs = cost if isinstance(cost, list) else [cost] * len(work)
    rows: list[tuple[Any, ...]] = []
    backend = proxy = 1.0
    total = 5000
    looks = [(0.0, 0.0, 0.0, 0)]
    for number, each in enumerate(work):
        looks.append((number + 1.0, each, each * costs[number], sent[number] if sent else 0))
    looks.append((len(work) + last_s, 0.0, 0.0, 0))
    for at_s, more, more_proxy, bytes_sent in looks:
        backend, proxy, total = backend + more, proxy + more_proxy, total + bytes_sent
        for role, pid, cpu_s in (("backend", 10, backend), ("proxy", 20, proxy)):
            told = total if sent and role == "backend" else None
            rows.append((at_s, role, pid, None, "nginx", 1, 0.0, 0.0, cpu_s, 0, 0, 0, 0, told))
            rows.append((at_s, role, pid, 99, "nginx", 1, 0.0, 0.0, cpu_s, 0, 0, 0, 0, None))  # a thread is no process
    return pl.DataFrame(rows, schema=USAGE_SCHEMA, orient="row")


def judged(table: pl.DataFrame, **point: Any) -> Steadiness | None:
    return judge_usage(CLOSED.model_copy(update=point), table, 10_000, 5.0, in_turns=False)


def test_backend_cpu_stands_for_requests_where_no_bytes_were_counted() -> None:
    found = judged(usage([0.4, 0.4, 0.02, 0.02, 0.02], [2, 2, 40, 40, 40]))
    assert found is not None and found.change is not None and found.source == "backend-cpu" and found.seconds == 5
    assert found.change.at_s == pytest.approx(2.0) and found.change.rate and found.change.cpu
    assert found.change.rate_before_rps == pytest.approx(10_000 * 0.4 / 0.86)
    assert found.change.rate_after_rps == pytest.approx(10_000 * 0.02 / 0.86, rel=0.02), "the last look is later"
    assert found.change.cpu_after_s == pytest.approx(0.86 / 10_000 * 40)


def test_a_restart_of_the_proxy_divides_a_sample_and_its_cause_stays() -> None:
    """The rate may even rise: the new container finds ports that the old one had used up."""
    table = usage([0.4] * 5, sent=[1000, 1000, 500, 1500, 1000])
    late = (pl.col("role") == "proxy") & (pl.col("t_s") > 3.5)
    restarted = table.with_columns(pid=pl.when(late).then(21).otherwise("pid").cast(pl.Int32))
    found = judge_restart(restarted, 10_000, 5.0)
    assert found is not None and found.change is not None and found.seconds == 5
    assert (found.change.at_s, found.change.cause, found.change.rate) == (pytest.approx(3.0), "restart", True)
    assert found.change.rate_before_rps == pytest.approx(10_000 / 5000 * 2500 / 3)
    assert found.change.rate_after_rps == pytest.approx(10_000 / 5000 * 2500 / 2, rel=0.03), "the last look is later"
    sample = make_sample().model_copy(update={"steadiness": found})
    assert add_cause(sample) == sample, "no counter says more"
    assert judge_restart(table, 10_000, 5.0) is None, "no process of the proxy ended"


def test_sent_bytes_stand_for_requests_where_they_were_counted() -> None:
    """The backend's CPU time falls for another reason here: the rate holds."""
    found = judged(usage([0.4, 0.4, 0.1, 0.1, 0.1], [2, 2, 8, 8, 8], sent=[1300] * 5))
    assert found == Steadiness(source="sent-bytes", seconds=5)
    fell = judged(usage([0.4] * 5, sent=[1300, 1300, 100, 90, 80]))
    assert fell is not None and fell.change is not None and fell.change.at_s == pytest.approx(2.0)


def test_what_follows_the_load_is_no_second_of_it() -> None:
    """hey waits for answers that do not come; a cluster's last look comes late. Pods looked at one after the other are one look."""
    waiting = usage([0.4] * 5 + [0.001] * 5)
    assert judged(waiting) == Steadiness(source="backend-cpu", seconds=5)
    assert judged(usage([0.4] * 5, last_s=0.7)) == Steadiness(source="backend-cpu", seconds=5)
    sample = make_sample(point=CLOSED, duration_s=13.0)
    assert load_duration_s(sample) == 5.0
    late = usage([0.4] * 5).filter(pl.col("role") == "backend").with_columns(pl.col("t_s") + 0.02, pl.col("pid") + 1)
    both = pl.concat([usage([0.4] * 5), late]).sort("t_s")
    assert judged(both) == Steadiness(source="backend-cpu", seconds=5)


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ({"requests": 5000}, None),  # its end is the rest of it
        ({"rate_rps": 1000.0}, Steadiness(source=None, seconds=0)),  # backend CPU does not tell at a rate
    ],
)
def test_what_cannot_be_judged_is_not(point: dict[str, Any], expected: Steadiness | None) -> None:
    assert judged(usage([0.4, 0.4, 0.02, 0.02, 0.02], [2, 2, 40, 40, 40]), **point) == expected
    unseen = judged(pl.DataFrame(schema=USAGE_SCHEMA))
    assert unseen == Steadiness(source=None, seconds=0), "nothing was seen of the backend"


def test_a_rate_that_is_given_can_become_dearer() -> None:
    found = judged(usage([0.1] * 5, [2, 2, 8, 8, 8], sent=[1300] * 5), rate_rps=1000.0)
    assert found is not None and found.change is not None and found.change.cpu and not found.change.rate
    assert describe_change(found.change) == "100 µs CPU per request for 2 s, then 400"
    change = Change(at_s=2.0, rate_before_rps=11_312.0, rate_after_rps=343.0, rate=True, cpu=False)
    assert describe_change(change) == "11,300 req/s for 2 s, then 340", "in two or three digits"
    assert describe_change(change, lasting=False) == "11,300 req/s, then 340"


@pytest.mark.parametrize(
    ("counters", "dearer", "cause"),
    [
        ({"proxy/ActiveOpens": 20_000}, True, "ports"),
        ({"proxy/ActiveOpens": 900}, True, "ports"),  # one in eleven requests: the warm-up used the others
        ({"proxy/ActiveOpens": 20_000}, False, None),
        ({"proxy/ActiveOpens": 10, "proxy/ListenOverflows": 3}, True, "queue"),
        ({"proxy/memory_limit_hits": 1}, False, "memory"),
        ({"proxy/cpu_throttled_us": 2_000_000}, False, "cpu-limit"),
        ({"proxy/cpu_throttled_us": 2_000}, False, None),
        ({}, True, None),
    ],
)
def test_counters_show_the_cause(counters: dict[str, int], dearer: bool, cause: str | None) -> None:
    assert find_cause(counters, None, 10_000, 5.0, dearer) == cause


def test_sockets_in_time_wait_show_the_cause_where_they_were_counted() -> None:
    many, few = (Leftovers(time_wait={"proxy": {"a": count}}, port_range={"proxy": 28_232}) for count in (14_000, 300))
    assert find_cause({}, many, 10_000, 5.0, False) == "ports"
    assert find_cause({"proxy/ActiveOpens": 20_000}, few, 10_000, 5.0, True) is None


# -- samples of earlier labs -------------------------------------------------------------------------------


def reader(tables: dict[str, pl.DataFrame], asked: list[list[str]]) -> Any:
    def looks(ids: list[str]) -> pl.DataFrame:
        asked.append(ids)
        return pl.concat([tables[each].select(pl.lit(each).alias("sample"), *USAGE_SCHEMA) for each in ids])

    return looks


STEADY, FELL = usage([0.4] * 5), usage([0.4, 0.4, 0.02, 0.02, 0.02], [2, 2, 40, 40, 40])


def test_a_sample_that_nobody_judged_is_judged_when_it_is_read() -> None:
    one = make_sample(id="one", order=1, point=CLOSED, counters={"proxy/ActiveOpens": 20_000})
    two, lost = make_sample(id="two", order=2, point=CLOSED), make_sample(id="lost", order=3, reason="steal")
    asked: list[list[str]] = []
    known: dict[str, Steadiness | None] = {}
    found = judge_unjudged([one, two, lost], reader({"one": FELL, "two": STEADY}, asked), known)
    assert [each.valid for each in found] == [False, True, False] and found[2] == lost
    fell = found[0]
    assert fell.reason is Reason.NOT_STEADY and is_settled(fell) and fell.change is not None
    assert fell.change.cause == "ports" and fell.detail == "not-steady: 46,500 req/s for 2 s, then 2,290"
    assert judge_unjudged([one, two, lost], reader({}, asked), known) == found and asked == [["one", "two"]]
    assert judge_unjudged(found, reader({}, asked), {}) == found  # judged already
    assert len(asked) == 1


def test_of_a_pair_both_sides_do_not_count_and_one_has_changed() -> None:
    def side(name: str, against: str) -> Sample:
        pair = PairSide(against=against, side="left", scheme="slices", first_up=True, own_s=2.5, slices=5)
        told = {"point": CLOSED, "pair": pair, "achieved_rps": None, "duration_s": None, "requests": 10_000}
        return make_sample(id=name, arm=name, order=7, **told)

    samples = [side("a", "b"), side("b", "a")]
    found = judge_unjudged(samples, reader({"a": FELL, "b": STEADY}, []), {})
    assert [each.reason for each in found] == [Reason.NOT_STEADY] * 2
    assert [each.change is not None for each in found] == [True, False]
    assert found[1].detail == "not-steady: on the other side: 170 µs CPU per request for 2 s, then 3,440"
