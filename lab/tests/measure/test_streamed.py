"""Streams of events: what the backend, the proxy and the clock say beside the client, and that no output that was tampered with counts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from lab.generators import GENERATORS
from lab.measure import validity
from lab.measure.measurement import parse_report
from lab.measure.streamed import parse_counts
from lab.model.load import GeneratorResult
from lab.model.metrics import DIFFERENCES
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation, Usage
from lab.records.outcomes import compute_stream_outcome
from lab.stats.histogram import Histogram
from lab.targets.common.process import GeneratorOutcome
from lab.tests.support.recorded import case

KEYS = ("connections", "duration_s", "every_s", "event_bytes", "held_s", "protocol", "streams", "timeout_s")


def honest(name: str) -> GeneratorResult:
    tool, stdout, stderr, status, load = case(name)
    return tool.parse(stdout, stderr, status, load)


def judged(name: str, text: str, **changes: Any) -> set[Reason]:
    """What speaks against a sample with this output, where everything else is as honest as the recorded one."""
    tool, _, stderr, _, load = case(name)
    told = honest(name)
    assert told.streams is not None
    point = LoadPoint(
        name="streams", generator="events", rate_rps=None, warmup_s=0.0, threads=1, page="1kB.bin",
        **{key: getattr(load, key) for key in KEYS},
    )  # fmt: skip
    seen = Observation(
        told.duration_s + 0.02, {}, pl.DataFrame(), {}, steal=0.0, others=0.0, clock_step_s=0.0,
        counters={"proxy/requests": told.streams.asked, "proxy/InSegs": 2 * told.requests},
    )  # fmt: skip
    sent = {
        "begun": told.streams.asked - told.streams.refused,
        "events": told.requests,
        "sent_sum": told.streams.sent_sum,
    }
    after = {"begun": 5, "events": 50, "sent_sum": 7}
    counts = {**after}, {key: after[key] + value for key, value in (sent | changes.pop("counts", {})).items()}
    span_s = changes.pop("span_s", (told.streams.began_s - 0.005, told.streams.ended_s + 0.005))
    result, faults = parse_report(tool, load, GeneratorOutcome(text, stderr, 0, 0.1, 0, hung=False))
    if result is None:
        return {reason for reason, _ in faults}
    seen = dataclasses.replace(seen, **changes)
    return {reason for reason, _ in validity.find_stream_faults(point, result, counts, span_s, seen, 0.3, 0.1, 1)}


@pytest.mark.parametrize("name", ["events/ok", "events/held", "events/cut", "events/late", "events/h2"])
def test_an_honest_report_of_streams_is_valid(name: str) -> None:
    """One of streams that were held back or cut, too: what a proxy does to them is the outcome."""
    assert judged(name, case(name)[1]) == set()


@pytest.mark.parametrize("name", ["events/refused", "events/http404"])
def test_streams_on_which_nothing_came_are_no_measurement(name: str) -> None:
    assert judged(name, case(name)[1]) == {Reason.TOO_SHORT}


def test_other_witnesses_of_streams_are_believed_more_than_the_client() -> None:
    text, told = case("events/ok")[1], honest("events/ok")
    assert told.streams is not None
    assert judged("events/ok", text, counts={"events": told.requests + 1}) == {Reason.GENERATOR_COUNT}
    assert judged("events/ok", text, counts={"events": told.requests - 1}) == {Reason.GENERATOR_COUNT}
    assert judged("events/ok", text, counts={"begun": told.streams.asked + 1}) == {Reason.GENERATOR_COUNT}
    assert judged("events/ok", text, counts={"sent_sum": told.streams.sent_sum + 1}) == {Reason.GENERATOR_TIME}
    assert judged("events/ok", text, counters={"proxy/requests": 99}) == {Reason.GENERATOR_COUNT}
    began_s, ended_s = told.streams.began_s, told.streams.ended_s
    assert judged("events/ok", text, span_s=(began_s + 0.1, ended_s)) == {Reason.GENERATOR_TIME}
    assert judged("events/ok", text, span_s=(began_s, ended_s - 0.1)) == {Reason.GENERATOR_TIME}
    assert judged("events/ok", text, elapsed_s=told.duration_s / 2) == {Reason.GENERATOR_TIME}
    cut = honest("events/cut")
    assert judged("events/cut", case("events/cut")[1], counts={"events": cut.requests + 8}) == set()
    assert judged("events/cut", case("events/cut")[1], counts={"events": cut.requests - 1}) == {Reason.GENERATOR_COUNT}


TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "fewer events": lambda told: told.update(events=told["events"] - 1),
    "ten times the events": lambda told: told.update(events=told["events"] * 10),
    "another number of streams": lambda told: told.update(asked=told["asked"] + 1),
    "a stream left out": lambda told: told["rows"].pop(),
    "a stream twice": lambda told: told["rows"].append(told["rows"][0]),
    "an event of a stream left out": lambda told: told["rows"][0].__setitem__(5, told["rows"][0][5] - 1),
    "a cut called complete": lambda told: told["rows"][0].__setitem__(9, 1 - told["rows"][0][9]),
    "more together than events": lambda told: told["rows"][0].__setitem__(6, 99),
    "a gap longer than the stream": lambda told: told["rows"][0].__setitem__(7, told["rows"][0][7] + 10_000_000),
    "no gap": lambda told: told["rows"][0].__setitem__(7, 0),
    "a first event before its stream": lambda told: told["rows"][1].__setitem__(2, 0),
    "an end beyond the run": lambda told: told["rows"][0].__setitem__(4, told["rows"][0][4] * 100),
    "fewer bytes than events": lambda told: told["rows"][0].__setitem__(8, 20),
    "delays in another unit": lambda told: told.update(
        delays=[[delay // 1000, many] for delay, many in told["delays"]]
    ),
    "a delay left out": lambda told: told["delays"].pop(),
    "longer delays": lambda told: told.update(delays=[[2 * delay, many] for delay, many in told["delays"]]),
    "another sum of delays": lambda told: told.update(delay_sum_us=told["delay_sum_us"] * 2 + 2000),
    "delays by event halved": lambda told: told.update(
        by_event=[[a // 2, b // 2, many] for a, b, many in told["by_event"]]
    ),
    "another sum of send times": lambda told: told.update(sent_sum=told["sent_sum"] + 1),
    "a later begin": lambda told: told.update(
        began_us=told["began_us"] + 1_000_000, ended_us=told["ended_us"] + 1_000_000
    ),
    "half of the time": lambda told: told.update(ended_us=(told["ended_us"] + told["began_us"]) // 2),
    "twice the time": lambda told: told.update(ended_us=2 * told["ended_us"] - told["began_us"]),
    "another version of HTTP": lambda told: told.update(protocols={"HTTP/1.0": told["asked"]}),
    "an error that no stream had": lambda told: told.update(errors={"read": told["asked"] + 1}),
    "other columns": lambda told: told["columns"].reverse(),
    "not done": lambda told: told.update(done=False),
    "text": lambda told: told.update(events=str(told["events"])),
    "a fraction": lambda told: told.update(events=told["events"] + 0.5),
    "negative": lambda told: told.update(events=-told["events"]),
    "2^64": lambda told: told.update(delay_sum_us=2**64),
    "NaN": lambda told: told.update(delay_sum_us=float("nan")),
    "a further key": lambda told: told["errors"].update(other=1),
}


@pytest.mark.parametrize("change", TAMPERED)
@pytest.mark.parametrize("name", ["events/ok", "events/held", "events/cut"])
def test_a_report_of_streams_that_was_tampered_with_does_not_count(name: str, change: str) -> None:
    text = case(name)[1]
    told = json.loads(text)
    TAMPERED[change](told)
    if json.dumps(told) == json.dumps(json.loads(text)):
        assert change == "no gap" and name != "events/ok"  # the events of a stream that was held or cut have none
        return
    assert judged(name, json.dumps(told)) & {Reason.GENERATOR_OUTPUT, Reason.GENERATOR_COUNT, Reason.GENERATOR_TIME}


def test_a_known_delay_a_hold_and_a_cut_are_seen_in_recorded_streams() -> None:
    """20 ms in the backend; nginx that buffers an answer of HTTP/1.0; nginx that waits for the backend for 1 s at most."""
    late, held, cut, free = (honest(f"events/{name}") for name in ("late", "held", "cut", "ok"))
    assert late.latency.quantile_s(0.5) == pytest.approx(0.0205, abs=0.001)
    assert held.streams is not None and cut.streams is not None and free.streams is not None
    assert min(held.streams.first_s) > 0.95 and held.streams.coalesced == 10 * 8
    assert max(free.streams.first_s) < 0.2 and free.streams.coalesced == 0
    assert (cut.streams.cut, cut.requests) == (8, 8)
    assert cut.streams.cut_idle_s == pytest.approx(1.0, abs=0.1)


def test_outcomes_of_streams_are_metrics_with_a_rule_of_decision() -> None:
    told = honest("events/cut")
    assert told.streams is not None
    usage = {
        "proxy": Usage(cpu_s=0.4, rss_bytes=9_000_000, processes=1),
        "backend": Usage(cpu_s=9.0, rss_bytes=1, processes=1),
    }
    outcome = compute_stream_outcome(told.streams, told.latency, usage, None)
    assert outcome.keys() <= set(DIFFERENCES)
    assert (outcome["streams"], outcome["cut"], outcome["not_opened"]) == (8.0, 8.0, 0.0)
    assert outcome["cpu_per_event_s"] == 0.4 / told.requests and outcome["stream_bytes"] is None
    assert outcome["coalesced_share"] is None and outcome["stream_gap_s"] is None  # one event a stream
    nothing = dataclasses.replace(told.streams, refused=8, cut=0, first_s=())
    empty = compute_stream_outcome(nothing, Histogram.of_values([]), usage, None)
    assert {empty[name] for name in ("first_event_s", "delay_p50_s", "cpu_per_event_s", "coalesced_share")} == {None}
    assert "cut_s" not in empty


def test_the_page_of_the_backends_counts_is_read_by_name() -> None:
    page = "begun 3\nfinished 2\nevents 93\nsent_sum 1927475908155\nx_accel_buffering no\n"
    assert parse_counts(page) == {"begun": 3, "finished": 2, "events": 93, "sent_sum": 1927475908155}


def test_the_lab_builds_its_own_generator_only() -> None:
    assert [name for name, generator in GENERATORS.items() if generator.own] == ["events"]
