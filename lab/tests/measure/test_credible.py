"""A generator's word about a run: what is planned, what passed, what it used and what others counted, each alone speaks against it."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from lab.generators.k6 import merge_results
from lab.measure import credible, validity
from lab.model.endpoint import Tls
from lab.model.load import GeneratorResult
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.stats.histogram import Histogram
from lab.tests.support.fakes import point

CLOSED = point().model_copy(update={"connections": 10, "duration_s": 5.0})
RATE = CLOSED.model_copy(update={"rate_rps": 8000.0})
MADE = 40_000
GOOD = GeneratorResult(MADE, 5.01, Histogram.of_values([0.001] * MADE), 5.01, size_bytes=MADE * 1270)
SEEN = Observation(5.05, {}, pl.DataFrame(), {}, 0.0, 0.0, {}, 0.0)
PROXY = {"proxy/requests": MADE + 5, "proxy/InSegs": 2 * MADE, "client/rx_bytes": MADE * 1364}


def reasons(
    result: GeneratorResult = GOOD,
    load: LoadPoint = CLOSED,
    seen: Observation = SEEN,
    cpu_s: float | None = 4.5,
    cpus: int | None = 1,
    tls: Tls = "none",
) -> set[Reason]:
    found = validity.find_faults(load, result, seen, 0.3, 1024, cpu_s=cpu_s, cpus=cpus, tls=tls)
    return {reason for reason, _ in found}


def told(duration_s: float) -> GeneratorResult:
    return replace(GOOD, duration_s=duration_s, recorded_s=duration_s)


def making(requests: int) -> GeneratorResult:
    return replace(
        GOOD, requests=requests, latency=Histogram.of_values([0.0001] * requests), size_bytes=requests * 1270
    )


@pytest.mark.parametrize("load", [CLOSED, RATE])
@pytest.mark.parametrize(
    "told_s", [0.0, 0.001255, 2.5, 4.9, 5.1, 10.0, 50.0, 2.0**64, -5.0, float("nan"), float("inf")]
)
def test_a_time_that_was_not_planned_or_did_not_pass_is_not_believed(load: LoadPoint, told_s: float) -> None:
    assert reasons(load=load) == set()
    assert Reason.GENERATOR_TIME in reasons(told(told_s), load)


def test_last_answers_may_be_late_and_a_generator_slow_to_start_but_not_more_than_they_may_be_at_all() -> None:
    """hey and k6 wait for them: their time ends with the last, which the lab sees, too.

    wrk's clock starts when all its threads do: 256 on one CPU had worked for 14 s by then.
    """
    late = replace(SEEN, elapsed_s=14.1)
    slow = replace(told(14.0), latency=Histogram.of_values([0.0011] * MADE))
    assert reasons(slow, seen=late) == set()
    assert reasons(told(17.1), seen=replace(SEEN, elapsed_s=17.2)) == {Reason.GENERATOR_TIME}
    assert reasons(told(5.0), seen=replace(SEEN, elapsed_s=19.0)) == {Reason.GENERATOR_TIME}
    assert reasons(seen=replace(SEEN, elapsed_s=9.0)) == set(), "it may take long to start in a pod, and to print"


def test_more_cpu_time_than_there_was_is_not_believed() -> None:
    """16.4 s on one CPU in 2.12 s; on eight it can be, and what nobody saw speaks against nothing."""
    two = CLOSED.model_copy(update={"duration_s": 2.0})
    short, seen = replace(told(2.12), latency=Histogram.of_values([0.0005] * MADE)), replace(SEEN, elapsed_s=2.2)
    assert reasons(short, two, seen, cpu_s=16.4) == {Reason.GENERATOR_TIME}
    assert reasons(short, two, seen, cpu_s=16.4, cpus=8) == reasons(short, two, seen, cpu_s=None) == set()
    assert reasons(short, two, seen, cpu_s=16.4, cpus=None) == set()


@pytest.mark.parametrize("times", [0.1, 0.5, 2, 10])
@pytest.mark.parametrize("witness", ["proxy/requests", "client/rx_bytes"])
def test_requests_that_others_counted_otherwise_are_not_believed(times: float, witness: str) -> None:
    """All that the generator says agrees with itself: only the others tell."""
    said = making(int(MADE * times))
    assert reasons(seen=replace(SEEN, counters=PROXY)) == set()
    assert reasons(said) == set(), "without anybody's count it must be believed"
    assert reasons(said, seen=replace(SEEN, counters={witness: PROXY[witness]})) == {Reason.GENERATOR_COUNT}


def test_ten_times_the_requests_need_as_many_segments_and_new_ones_as_many_connections() -> None:
    """Segments are the least that is seen on every target: of a proxy, or where there is none of the backend."""
    most = replace(making(10 * MADE), size_bytes=None)
    for place in ("proxy", "backend"):
        seen = replace(SEEN, counters={f"{place}/InSegs": 2 * MADE})
        assert reasons(most, seen=seen) == {Reason.GENERATOR_COUNT}
        assert reasons(seen=seen) == set()
    close = CLOSED.model_copy(update={"keepalive": False})
    seen = replace(SEEN, counters={"proxy/InSegs": 20 * MADE, "proxy/PassiveOpens": MADE})
    assert reasons(load=close, seen=seen) == set()
    for requests in (MADE // 2, 2 * MADE):
        assert reasons(making(requests), close, seen) == {Reason.GENERATOR_COUNT}


@pytest.mark.parametrize(
    ("protocol", "by_h2", "right"),
    [("h2", MADE, True), ("h2", MADE - 400, True), ("h2", MADE - 500, False), ("h2", 0, False),
     ("h1", 0, True), ("h1", 400, True), ("h1", 500, False), ("h1", MADE, False)],
)  # fmt: skip
def test_requests_came_by_the_version_that_was_asked_for(protocol: str, by_h2: int, right: bool) -> None:
    """As the proxy itself counts them, whatever the client says; one that passes TLS through sees none."""
    load = CLOSED.model_copy(update={"protocol": protocol})
    seen = replace(SEEN, counters={"proxy/requests": MADE, "proxy/requests_h2": by_h2})
    assert reasons(load=load, seen=seen, tls="edge") == (set() if right else {Reason.PROTOCOL})
    assert reasons(load=load, seen=seen, tls="passthrough") == set()
    assert reasons(load=load, seen=replace(SEEN, counters={"proxy/requests": MADE}), tls="edge") == set()
    none = replace(SEEN, counters={"proxy/requests": 0})
    assert reasons(seen=none, tls="passthrough") == set()
    assert reasons(seen=none, tls="edge") == {Reason.GENERATOR_COUNT}


def test_requests_that_failed_may_have_reached_the_proxy_or_not() -> None:
    """Where errors are the subject: what was answered is the least that was counted, what was tried the most."""
    load = CLOSED.model_copy(update={"subject": ("errors",)})
    failed = replace(GOOD, errors={"timeout": 5000})
    for count in (MADE, MADE + 5000):
        assert reasons(failed, load, replace(SEEN, counters={"proxy/requests": count})) == set()
    for count in (MADE - 2000, MADE + 8000):
        found = reasons(failed, load, replace(SEEN, counters={"proxy/requests": count}))
        assert found == {Reason.GENERATOR_COUNT}
    many = replace(GOOD, errors={"status": MADE + 1})  # more wrong answers than answers
    assert Reason.GENERATOR_COUNT in {fault[0] for fault in credible.count_faults(load, many, SEEN, 1024, "none")}


@pytest.mark.parametrize(
    ("latency", "reason"),
    [
        (Histogram.of_values([0.001] * (MADE // 2)), Reason.GENERATOR_COUNT),
        (Histogram.of_values([0.001] * (2 * MADE)), Reason.GENERATOR_COUNT),
        (Histogram.of_values([0.0] * MADE), Reason.GENERATOR_TIME),
        (Histogram.of_values([0.01] * MADE), Reason.GENERATOR_TIME),
        (Histogram.of_values([0.001] * (MADE - 1) + [9.0]), Reason.GENERATOR_TIME),
    ],
    ids=["half", "twice", "zero", "ten times", "longer than the run"],
)
def test_latencies_that_cannot_be_are_not_believed(latency: Histogram, reason: Reason) -> None:
    assert reason in reasons(replace(GOOD, latency=latency))


def parts(*made: int, duration_s: tuple[float, ...] = (5.01, 5.01)) -> GeneratorResult:
    each = [
        GeneratorResult(
            many, lasted_s, Histogram.of_values([0.001] * many), lasted_s, size_bytes=many * 1270, scheduled_s=5.0
        )
        for many, lasted_s in zip(made, duration_s, strict=True)
    ]
    return replace(merge_results(each), duration_s=max(duration_s))


def test_each_of_many_generators_is_held_against_its_share() -> None:
    """A sum that is near enough hides none that is not; the sum is what the proxy counted."""
    load = RATE.model_copy(update={"generators": 2})
    seen = replace(SEEN, counters={"proxy/requests": MADE + 5})
    assert reasons(parts(20_000, 20_000), load, seen) == set()
    assert reasons(parts(19_999, 20_000), load, seen) == set()
    assert reasons(parts(19_700, 20_000), load, seen) == {Reason.RATE_NOT_ACHIEVED}
    early = parts(20_000, 20_000, duration_s=(5.01, 3.0))
    assert reasons(early, load, seen) == {Reason.GENERATOR_TIME}
    said = validity.find_faults(load, early, seen, 0.3, 1024)
    assert [text for _, text in said] == ["generator 2 of 2: it reports 3 s of a load of 5 s"]
    for counted in (MADE // 2, 2 * MADE):
        other = replace(SEEN, counters={"proxy/requests": counted})
        assert reasons(parts(20_000, 20_000), load, other) == {Reason.GENERATOR_COUNT}


@pytest.mark.parametrize(
    ("load", "requests", "latency_s", "believed"),
    [
        ({"rate_rps": None}, 6_400, 0.05, True),
        ({"rate_rps": None}, 6_400, 0.05e-3, False),
        ({"rate_rps": 1000.0}, 5_000, 0.3e-3, True),
        ({"rate_rps": 1000.0}, 5_000, 0.3, False),
        ({"rate_rps": 1000.0}, 5_000, 0.06, True),
        ({"rate_rps": None, "requests": 640}, 640, 0.4, True),
        ({"rate_rps": None, "requests": 640}, 640, 0.2, False),
    ],
)
def test_latencies_keep_as_many_connections_busy_as_there_can_be(
    load: dict[str, object], requests: int, latency_s: float, believed: bool
) -> None:
    """64 of them, for 5 s: no more at a rate, hardly fewer in a closed loop, and mostly all of them in a number of requests."""
    asked = CLOSED.model_copy(update={"connections": 64, **load})
    told = GeneratorResult(requests, 5.0, Histogram.of_values([latency_s] * requests), 5.0)
    assert (list(credible.latency_faults(asked, told)) == []) is believed
