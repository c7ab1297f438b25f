"""Results of short loads whose ports would run out are labelled, with the seconds that it takes; others are not."""

from __future__ import annotations

import pytest

from lab.analysis.aggregate.exhaustion import MEANING, Exhaustion, compute_exhaustion
from lab.analysis.explain.notes import LEAST_SAMPLES, describe_misleading
from lab.analysis.explain.run import make_verdicts
from lab.analysis.summary import summarise_run
from lab.model.leftovers import Leftovers
from lab.model.plan import Slot
from lab.model.samples import Reason, Sample
from lab.model.steadiness import Change as Changed
from lab.model.steadiness import Steadiness
from lab.tests.support.factories import Change, alter, lose, make_plan, make_point, make_sample
from lab.tests.support.made_runs import made, with_variant

POINT = make_point("ceiling", rate_rps=None, duration_s=4.0)


def opening(per_s: float, **more: object) -> Sample:
    """A sample of 4 s whose proxy opened so many connections per second beyond the clients' own 100."""
    return make_sample(point=POINT, counters={"proxy/ActiveOpens": round(4 * per_s) + 100}, **more)


def with_waiting(per_s: float, waiting: dict[str, int], ports: int = 28_232) -> Sample:
    """The same, with what waited when its load ended."""
    end = Leftovers(time_wait={"proxy": waiting}, port_range={"proxy": ports})
    return opening(per_s, leftovers={"start": Leftovers(port_range={"proxy": ports}), "end": end})


def found_of(sample: Sample, *knobs: str) -> Exhaustion:
    found = compute_exhaustion([sample], knobs)
    assert found is not None
    return found


@pytest.mark.parametrize(("per_s", "labelled"), [(100, False), (187, False), (190, True), (1000, True)])
def test_more_than_forty_percent_of_the_ports_in_a_minute_is_labelled(per_s: float, labelled: bool) -> None:
    assert (compute_exhaustion([opening(per_s)]) is not None) is labelled


def test_it_comes_when_half_of_the_ports_wait() -> None:
    found = found_of(opening(1000))
    assert found.after_s == pytest.approx(14.116)
    assert found.label == "before exhaustion, which comes after 14 s if the proxy closes them"
    assert "with one endpoint of the backend ports run out N times earlier than with N endpoints" in found.note
    assert found_of(opening(1000), "port-range-1024-65535").after_s == pytest.approx(32.256), (
        "a wider range lasts longer"
    )


def test_of_recorded_ports_those_that_wait_at_the_busiest_endpoint_count() -> None:
    found = found_of(with_waiting(1000, {"10.0.0.1:80": 3000, "10.0.0.2:80": 1000}))
    assert (found.per_s, found.endpoints, found.recorded) == (750, 2, True)
    assert found.label == "before exhaustion, which comes after 19 s"
    assert "with one, ports would run out 2 times earlier" in found.note
    assert compute_exhaustion([with_waiting(15_000, {"10.0.0.1:80": 12})]) is None, "the backend closes"


def test_more_connections_than_ports_in_seconds_show_that_the_backend_closes_at_every_point_of_the_variant() -> None:
    points = [POINT, make_point("rate-1000", duration_s=4.0)]

    def count(slot: Slot, sample: Sample) -> Sample:
        opened = 60_000 if slot.arm.role == "variant" and slot.point.name == "ceiling" else 4000
        return sample.model_copy(update={"counters": {"proxy/ActiveOpens": opened}})

    store = made(planned=make_plan(points=points), change=count)
    rows = summarise_run(store.record, store.samples(), store.histogram).rows
    labelled = {row.arm.name for row in rows if row.exhaustion is not None}
    assert labelled == {"baseline", "baseline-again", "direct"}


def opening_many(opened: int) -> Change:
    return alter(lambda slot: slot.arm.role == "variant", lambda _: {"counters": {"proxy/ActiveOpens": opened}})


def test_a_verdict_carries_the_label_and_the_table_says_what_it_means() -> None:
    planned, change = make_plan(points=[POINT]), opening_many(5000)
    store = with_variant(made("run-1", {"keepalive": 0.8}, planned, 0.005, change=change), primary_metric="rate")
    summary = summarise_run(store.record, store.samples(), store.histogram)
    (verdict,) = make_verdicts(summary)
    assert "(before exhaustion, which comes after 12 s if the proxy" in verdict.text
    assert MEANING in summary.notes


def test_of_more_than_a_minute_no_rate_says_when_it_came() -> None:
    point = POINT.for_minutes()
    end = Leftovers(time_wait={"proxy": {"10.0.0.1:80": 14_400, "10.0.0.9:53": 2}}, port_range={"proxy": 28_232})
    sample = make_sample(point=point, counters={"proxy/ActiveOpens": 60_000}, leftovers={"end": end})
    found = found_of(sample)
    assert (found.label, found.endpoints) == ("exhaustion comes within the sample", 1)


def said(change: Change) -> list[str]:
    store = made(planned=make_plan(points=[POINT]), change=change)
    return list(describe_misleading([summarise_run(store.record, store.samples(), store.histogram)]))


@pytest.mark.parametrize("count", [LEAST_SAMPLES - 1, LEAST_SAMPLES])
def test_fewer_than_four_samples_are_told_with_the_reasons(count: int) -> None:
    lost = lose(lambda slot: slot.arm.role == "variant" and slot.block > count, Reason.DROPPED)
    few = "keepalive at ceiling: too few samples for a number, 3 count: dropped 3 (Requests were due and never sent)"
    assert said(lost) == ([few] if count < LEAST_SAMPLES else [])


def test_ports_that_run_out_after_the_sample_are_told_and_a_rate_that_is_not_held() -> None:
    (sentence,) = said(opening_many(6000))
    assert sentence.startswith("keepalive at ceiling: before exhaustion, which comes after 10 s")
    change = Changed(at_s=3.0, rate_before_rps=9000.0, rate_after_rps=300.0, rate=True, cpu=False, cause="ports")
    fields = {"steadiness": Steadiness(source="sent-bytes", seconds=5, change=change)}
    fall = lose(lambda slot: slot.arm.role == "variant", Reason.NOT_STEADY, **fields)
    assert said(fall) == [
        "keepalive at ceiling: the rate falls in 6 of 6 samples after 3 s (9,000 req/s, then 300): local ports run out"
    ]
