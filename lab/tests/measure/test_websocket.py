"""WebSockets: what the backend, the proxy and the clock say beside k6, and that no output that was tampered with counts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pytest

from lab.generators import GENERATORS
from lab.measure import validity
from lab.measure.measurement import parse_report
from lab.model.load import GeneratorResult, OutputError, StreamReport
from lab.model.metrics import DIFFERENCES
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation, Usage
from lab.records.outcomes import compute_websocket_outcome
from lab.records.sweep_files import load_sweep
from lab.report.loads import describe_load
from lab.stats.histogram import Histogram
from lab.targets.common.process import GeneratorOutcome
from lab.tests.support.recorded import case

KEYS = ("connections", "duration_s", "every_s", "event_bytes", "timeout_s")
HEAD = "websocket "
Row = dict[str, Any]


def honest(name: str) -> tuple[GeneratorResult, StreamReport]:
    tool, stdout, stderr, status, load = case(name)
    result = tool.parse(stdout, stderr, status, load)
    assert result.streams is not None
    return result, result.streams


def judged(name: str, texts: tuple[str, str] | None = None, **changes: Any) -> set[Reason]:
    """What speaks against a sample with this output, where everything else is as honest as the recorded one."""
    tool, stdout, stderr, _, load = case(name)
    result, report = honest(name)
    point = LoadPoint(
        name="websockets", generator=tool.name, rate_rps=None, warmup_s=0.0, threads=1, page="1kB.bin",
        **{key: getattr(load, key) for key in KEYS},
    )  # fmt: skip
    seen = Observation(
        result.duration_s + 0.02, {}, pl.DataFrame(), {}, steal=0.0, others=0.0, clock_step_s=0.0,
        counters={"proxy/requests": report.asked, "proxy/InSegs": 4 * result.requests},
    )  # fmt: skip
    sent = {"begun": report.asked - report.refused, "events": result.requests, "sent_sum": report.sent_sum}
    before = {"begun": 5, "events": 50, "sent_sum": 7}
    after = {key: before[key] + value for key, value in (sent | changes.pop("counts", {})).items()}
    span_s = changes.pop("span_s", (report.began_s - 0.005, report.ended_s + 0.005))
    busy = changes.pop("busy", 0.3)
    stdout, stderr = texts or (stdout, stderr)
    parsed, faults = parse_report(tool, load, GeneratorOutcome(stdout, stderr, 0, 0.1, 0, hung=False))
    if parsed is None:
        return {reason for reason, _ in faults}
    parsed = dataclasses.replace(parsed, **changes.pop("result", {}))
    seen = dataclasses.replace(seen, **changes)
    found = validity.find_stream_faults(point, parsed, (before, after), span_s, seen, busy, 0.1, 1)
    return {reason for reason, _ in found}


@pytest.mark.parametrize("name", ["ok", "cut", "tls", "http404", "not-upgraded"])
def test_an_honest_report_of_websockets_is_valid(name: str) -> None:
    """That the proxy cuts or answers with another status is an outcome."""
    assert judged(f"k6-websocket/{name}") == set()


def test_websockets_that_found_no_server_are_no_measurement() -> None:
    assert judged("k6-websocket/refused") == {Reason.TOO_SHORT}


def test_handshakes_that_are_never_answered_are_no_measurement_either() -> None:
    """k6 still waits for them at the end, and has not counted them."""
    tool, stdout, stderr, _, load = case("k6-websocket/refused")
    hung = stderr.replace('"kind":"connect"', '"kind":"timeout"')
    assert tool.parse(stdout.replace('"sessions":3', '"sessions":0'), hung, 0, load).requests == 0
    with pytest.raises(OutputError, match="expected 3 WebSockets, k6 counts 0"):
        tool.parse(stdout.replace('"sessions":3', '"sessions":0'), stderr, 0, load)


def test_other_witnesses_of_websockets_are_believed_more_than_k6() -> None:
    name, (result, report) = "k6-websocket/ok", honest("k6-websocket/ok")
    assert judged(name, counts={"events": result.requests + 1}) == {Reason.GENERATOR_COUNT}
    assert judged(name, counts={"events": result.requests - 1}) == {Reason.GENERATOR_COUNT}
    assert judged(name, counts={"begun": report.asked + 1}) == {Reason.GENERATOR_COUNT}
    assert judged(name, counts={"sent_sum": report.sent_sum + 1}) == {Reason.GENERATOR_TIME}
    assert judged(name, counters={"proxy/requests": 99}) == {Reason.GENERATOR_COUNT}
    assert judged(name, counters={"proxy/requests": 46}) == set()  # probes are among them
    assert judged(name, span_s=(report.began_s + 0.1, report.ended_s)) == {Reason.GENERATOR_TIME}
    assert judged(name, span_s=(report.began_s, report.ended_s - 0.1)) == {Reason.GENERATOR_TIME}
    assert judged(name, elapsed_s=result.duration_s / 2) == {Reason.GENERATOR_TIME}
    assert judged(name, busy=0.9) == {Reason.GENERATOR_SATURATED}
    late, lost = (dataclasses.replace(report, **change) for change in ({"late_s": 0.02}, {"lost": 3}))
    assert judged(name, result={"streams": late}) == {Reason.RATE_NOT_ACHIEVED}
    assert judged(name, result={"streams": lost}, counts={"events": result.requests + 2}) == set()
    cut, _ = honest("k6-websocket/cut")
    assert judged("k6-websocket/cut", counts={"events": cut.requests + 4}) == set()
    assert judged("k6-websocket/cut", counts={"events": cut.requests - 1}) == {Reason.GENERATOR_COUNT}


def change_trips(by: Callable[[int], int]) -> Callable[[list[Row]], None]:
    """Return what changes every round trip, with the sums that a careful hand would change, too."""

    def change(rows: list[Row]) -> None:
        for row in rows:
            row["trips_us"] = [by(trip) for trip in row["trips_us"]]
            row["told_us"] = sum(row["trips_us"][:-1])

    return change


ROWS: Mapping[str, Callable[[list[Row]], object]] = {
    "a WebSocket left out": lambda rows: rows.pop(),
    "a WebSocket twice": lambda rows: rows.append(rows[0]),
    "another number": lambda rows: rows[0].update(number=99),
    "a message left out": lambda rows: rows[0]["trips_us"].pop(),
    "a message more": lambda rows: rows[0]["trips_us"].append(400),
    "half of the round trips": change_trips(lambda trip: trip // 2),
    "ten times the round trips": change_trips(lambda trip: trip * 10),
    "another sum told": lambda rows: rows[0].update(told_us=rows[0]["told_us"] + 1),
    "a cut called complete": lambda rows: rows[0].update(end=1 - rows[0]["end"]),
    "an end without a reason": lambda rows: rows[0].update(end=3),
    "a round trip longer than its WebSocket": lambda rows: rows[0]["trips_us"].__setitem__(-1, 60_000_000),
    "answered before it was opened": lambda rows: rows[0].update(answered_us=0),
    "an end beyond the run": lambda rows: rows[0].update(ended_us=rows[0]["ended_us"] * 100),
    "an end before the last message": lambda rows: rows[0].update(ended_us=rows[0]["answered_us"]),
    "a later beginning of one": lambda rows: rows[0].update(wall_ms=rows[0]["wall_ms"] + 5000),
    "a later beginning of all": lambda rows: [row.update(wall_ms=row["wall_ms"] + 1000) for row in rows],
    "more sent than asked for": lambda rows: rows[0].update(sent=rows[0]["sent"] + 99),
    "text": lambda rows: rows[0].update(sent=str(rows[0]["sent"])),
    "a fraction": lambda rows: rows[0].update(last_us=rows[0]["last_us"] + 0.5),
    "negative": lambda rows: rows[0].update(opened_us=-1),
    "2^64": lambda rows: rows[0].update(told_us=2**64),
    "not a way to end": lambda rows: rows[0].update(end=4),
    "a key left out": lambda rows: rows[0].pop("late_us"),
}
SUMMARY: Mapping[str, Mapping[str, object]] = {
    "more sessions": {"sessions": 9},
    "fewer messages received": {"received": 1},
    "more messages received": {"received": 999},
    "more messages sent": {"sent": 999},
    "half of the time": {"duration_ms": 500.0},
    "ten times the time": {"duration_ms": 20_000.0},
    "NaN": {"duration_ms": float("nan")},
    "no time": {"duration_ms": None},
}
NO_SAMPLE = {Reason.GENERATOR_OUTPUT, Reason.GENERATOR_COUNT, Reason.GENERATOR_TIME}


@pytest.mark.parametrize("change", [*ROWS, *SUMMARY])
@pytest.mark.parametrize("name", ["k6-websocket/ok", "k6-websocket/cut"])
def test_a_report_of_websockets_that_was_tampered_with_does_not_count(name: str, change: str) -> None:
    _, stdout, stderr, _, _ = case(name)
    rows = [json.loads(line.removeprefix(HEAD)) for line in stderr.splitlines() if line.startswith(HEAD)]
    summary, kept = json.loads(stdout), json.dumps(rows)
    if change in SUMMARY:
        summary |= SUMMARY[change]
    else:
        ROWS[change](rows)
        if json.dumps(rows) == kept:
            pytest.fail("it changes nothing")
    text = "".join(f"{HEAD}{json.dumps(row)}\n" for row in rows)
    if name.endswith("cut") and "round trips" in change:
        return  # each has one message, whose round trip no further message told
    assert judged(name, (f"{json.dumps(summary, separators=(',', ':'))}\n", text)) & NO_SAMPLE


def test_a_round_trip_and_a_cut_are_seen_in_recorded_websockets() -> None:
    """nginx that waits for the backend for 1 s at most cuts what is silent for 3 s."""
    (free, whole), (cut, ends) = honest("k6-websocket/ok"), honest("k6-websocket/cut")
    assert (free.requests, whole.cut, whole.lost, whole.refused) == (8 * 11, 0, 0, 0)
    assert 0 < (free.latency.quantile_s(0.5) or 0) < 0.05
    assert (cut.requests, ends.cut, ends.lost) == (4, 4, 0)
    assert ends.cut_idle_s == pytest.approx(1.0, abs=0.1)
    for name in ("http404", "not-upgraded"):
        refused, none = honest(f"k6-websocket/{name}")
        assert (none.refused, refused.errors) == (3, {"status": 3})


def test_outcomes_of_websockets_are_metrics_with_a_rule_of_decision() -> None:
    result, report = honest("k6-websocket/cut")
    usage = {
        "proxy": Usage(cpu_s=0.4, rss_bytes=9_000_000, processes=1),
        "backend": Usage(cpu_s=9.0, rss_bytes=1, processes=1),
    }
    outcome = compute_websocket_outcome(report, result.latency, usage, None)
    assert outcome.keys() <= set(DIFFERENCES)
    assert (outcome["websockets"], outcome["cut"], outcome["not_opened"], outcome["lost_messages"]) == (4, 4, 0, 0)
    assert outcome["cpu_per_message_s"] == 0.4 / 4 and outcome["websocket_bytes"] is None
    nothing = dataclasses.replace(report, refused=4, cut=0, first_s=())
    empty = compute_websocket_outcome(nothing, Histogram.of_values([]), usage, None)
    assert {empty[name] for name in ("opening_s", "round_trip_p50_s", "cpu_per_message_s")} == {None}
    assert "cut_s" not in empty


def test_the_sweeps_of_websockets_hold_them_longer_than_each_timeout() -> None:
    points = {name: load_sweep(name)[1].load_points[0] for name in ("websocket-idle", "websocket-idle-long")}
    assert [point.duration_s > limit_s for point, limit_s in zip(points.values(), (60, 300), strict=True)] == [
        True,
        True,
    ]
    (quick,) = load_sweep("websocket-quick")[1].load_points
    assert describe_load(quick) == "50 WebSockets, a message of 200 bytes every 0.1 s on each, 2 s"
    assert quick.has_outcome and quick.websocket and quick.why_alone


def test_the_script_sends_to_the_name_and_the_port_of_the_load() -> None:
    tool, _, _, _, load = case("k6-websocket/tls")
    script = tool.files(dataclasses.replace(load, forwarded=True))["k6.js"]
    settings = json.loads(script.partition("const load = ")[2].partition(";\n")[0])
    assert settings["url"] == "wss://127.0.0.2:18766/websocket"
    assert (settings["headers"]["Host"], settings["headers"]["X-Forwarded-Proto"]) == ("lab.test", "https")
    assert (settings["count"], settings["every_ms"], settings["planned_ms"]) == (5, 250.0, 2000)
    assert [name for name, generator in GENERATORS.items() if generator.own_backend] == [
        "events",
        "k6-grpc",
        "k6-websocket",
    ]
