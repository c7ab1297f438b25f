"""gRPC calls: what the backend, the proxy and the clock say beside k6, and that no output that was tampered with counts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from lab.measure import credible, pair, validity
from lab.measure.measurement import parse_report
from lab.measure.streamed import STEADY_REGIMES
from lab.model.load import CallReport, GeneratorResult
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.records.sweep_files import load_sweep
from lab.report.loads import describe_load
from lab.targets.common.process import GeneratorOutcome
from lab.tests.support.fakes import point as fake_point
from lab.tests.support.recorded import case

KEYS = ("connections", "duration_s", "rate_rps", "timeout_s", "protocol", "messages")
NO_SAMPLE = {Reason.GENERATOR_OUTPUT, Reason.GENERATOR_COUNT, Reason.GENERATOR_TIME}
Summary = dict[str, Any]


def honest(name: str) -> tuple[GeneratorResult, CallReport]:
    tool, stdout, stderr, status, load = case(name)
    result = tool.parse(stdout, stderr, status, load)
    assert result.calls is not None
    return result, result.calls


def judged(name: str, stdout: str | None = None, **changes: Any) -> set[Reason]:
    """What speaks against a sample with this output, where everything else is as honest as the recorded one."""
    tool, recorded, stderr, _, load = case(name)
    result, report = honest(name)
    point = LoadPoint(
        name="calls", generator=tool.name, warmup_s=0.0, threads=1, page="1kB.bin",
        **{key: getattr(load, key) for key in KEYS},
    )  # fmt: skip
    seen = Observation(
        result.duration_s + 0.02, {}, pl.DataFrame(), {}, steal=0.0, others=0.0, clock_step_s=0.0,
        counters={"proxy/requests": result.requests, "proxy/requests_h2": result.requests, "proxy/InSegs": 4 * result.requests},
    )  # fmt: skip
    good = result.requests - result.errors.get("status", 0)
    counted = {"answered": good, "messages": good * max(1, load.messages), "told_sum": report.told_us}
    before = {"answered": 5, "messages": 50, "told_sum": 7}
    after = {key: before[key] + value for key, value in (counted | changes.pop("counts", {})).items()}
    outcome = GeneratorOutcome(recorded if stdout is None else stdout, stderr, 0, 0.1, 0, hung=False)
    parsed, faults = parse_report(tool, load, outcome)
    if parsed is None:
        return {reason for reason, _ in faults}
    seen = dataclasses.replace(seen, **changes)
    body_bytes = 1024 * max(1, load.messages)
    found = [
        *validity.find_faults(point, parsed, seen, 0.3, body_bytes, cpu_s=0.1, cpus=1, head_bytes=250),
        *credible.find_call_faults(point, parsed, (before, after)),
    ]
    return {reason for reason, _ in found}


@pytest.mark.parametrize("name", ["ok-closed", "ok-open", "streams", "tls", "goaway"])
def test_an_honest_report_of_calls_is_valid(name: str) -> None:
    """Connections that the server ends after 20 calls are opened again, and no call is lost."""
    assert judged(f"k6-grpc/{name}") == set()


@pytest.mark.parametrize(
    ("name", "code"), [("some-503", "UNAVAILABLE"), ("streams-503", "UNAVAILABLE"), ("http1-upstream", "UNIMPLEMENTED")]
)
def test_a_call_with_another_status_than_ok_makes_a_sample_invalid(name: str, code: str) -> None:
    assert Reason.NON_2XX in judged(f"k6-grpc/{name}")
    result, _ = honest(f"k6-grpc/{name}")
    assert result.notes[0] == f"{result.errors['status']} calls: {code}"
    assert "unexpected HTTP status code" in result.notes[1]


def test_other_witnesses_of_calls_are_believed_more_than_k6() -> None:
    for name in ("k6-grpc/ok-closed", "k6-grpc/streams"):
        result, report = honest(name)
        messages = report.messages or result.requests
        assert judged(name, counts={"answered": result.requests + 1}) == {Reason.GENERATOR_COUNT}
        assert judged(name, counts={"answered": result.requests - 1}) == {Reason.GENERATOR_COUNT}
        assert judged(name, counts={"messages": messages - 1}) == {Reason.GENERATOR_COUNT}
        assert judged(name, counts={"messages": messages + 1}) == {Reason.GENERATOR_COUNT}
        assert judged(name, counts={"told_sum": report.told_us + 1}) == {Reason.GENERATOR_TIME}
        assert judged(name, elapsed_s=result.duration_s / 2) == {Reason.GENERATOR_TIME}
        counters = {"proxy/requests": 2 * result.requests + 200}
        assert judged(name, counters=counters) == {Reason.GENERATOR_COUNT}
    name = "k6-grpc/ok-closed"
    spoken = {"proxy/requests_h2": 9}
    assert judged(name, counters=spoken) == {Reason.PROTOCOL}


def multiply(factor: float) -> Callable[[Summary], None]:
    """Return what multiplies every latency, with the mean that a careful hand would change, too."""

    def change(summary: Summary) -> None:
        kept = summary["latency"]["count"]
        summary["latency"] = {key: value * factor for key, value in summary["latency"].items()} | {"count": kept}

    return change


def multiply_told(factor: float) -> Callable[[Summary], None]:
    """Return what multiplies every latency and the sum of what calls told, so that only the backend knows better."""

    def change(summary: Summary) -> None:
        multiply(factor)(summary)
        summary["told_us"] = round(summary["told_us"] * factor)

    return change


def shift_percentiles(factor: float) -> Callable[[Summary], None]:
    """Return what multiplies the percentiles, but neither the mean nor the smallest and largest latency."""

    def change(summary: Summary) -> None:
        latency = summary["latency"]
        for key in latency:
            if key.startswith("p("):
                latency[key] = min(max(latency[key] * factor, latency["min"]), latency["max"])

    return change


def add(key: str, by: int) -> Callable[[Summary], None]:
    return lambda summary: summary.update({key: summary[key] + by})


CHANGES: Mapping[str, Callable[[Summary], object]] = {
    "a call more": add("made", 1),
    "a call less": add("made", -1),
    "an answered call more": lambda summary: summary["latency"].update(count=summary["latency"]["count"] + 1),
    "a call more everywhere": lambda summary: (
        add("made", 1)(summary),
        summary["latency"].update(count=summary["latency"]["count"] + 1),
    ),
    "half of the calls": lambda summary: (
        summary.update(made=summary["made"] // 2),
        summary["latency"].update(count=summary["made"]),
    ),
    "messages of a stream less": add("messages", -1),
    "messages of a stream more": add("messages", 10_000),
    "half of the latencies": multiply(0.5),
    "ten times the latencies": multiply(10),
    "half of the latencies, told": multiply_told(0.5),
    "ten times the latencies, told": multiply_told(10),
    "half of the percentiles": shift_percentiles(0.5),
    "twice the percentiles": shift_percentiles(2),
    "another mean": lambda summary: summary["latency"].update(avg=summary["latency"]["avg"] * 2),
    "another sum told": add("told_us", 1),
    "nothing told": lambda summary: summary.update(told_us=0),
    "half of the time": lambda summary: summary.update(duration_ms=summary["duration_ms"] / 2),
    "ten times the time": lambda summary: summary.update(duration_ms=summary["duration_ms"] * 10),
    "NaN": lambda summary: summary.update(duration_ms=float("nan")),
    "a failure that is no call": lambda summary: summary["errors"].update(status=1),
    "a status that is no failure": lambda summary: summary["codes"].__setitem__(14, 1),
    "a failure with the status OK": lambda summary: (
        summary["errors"].update(status=1),
        summary["codes"].__setitem__(0, 1),
    ),
    "a status too few": lambda summary: summary["codes"].pop(),
    "a percentile left out": lambda summary: summary["latency"].pop("p(50)"),
    "percentiles that fall": lambda summary: summary["latency"].update({"p(50)": summary["latency"]["max"]}),
    "text": lambda summary: summary.update(made=str(summary["made"])),
    "2^64": lambda summary: summary.update(told_us=2**64),
    "no latency": lambda summary: summary.update(latency={}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["k6-grpc/ok-closed", "k6-grpc/streams"])
def test_a_report_of_calls_that_was_tampered_with_does_not_count(name: str, change: str) -> None:
    _, stdout, _, _, _ = case(name)
    summary = json.loads(stdout)
    CHANGES[change](summary)
    assert json.dumps(summary) != json.dumps(json.loads(stdout)), "it changes nothing"
    assert judged(name, f"{json.dumps(summary, separators=(',', ':'))}\n") & NO_SAMPLE


@pytest.mark.parametrize("generator", ["k6-grpc", "wrk"])
def test_calls_have_a_regime_of_their_own_in_pairs_too(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class UsedError(Exception):
        pass

    def use(*_: object, **__: object) -> None:
        raise UsedError(generator)

    monkeypatch.setitem(STEADY_REGIMES, generator == "k6-grpc", use)
    point = fake_point().model_copy(update={"generator": generator})
    side: Any = SimpleNamespace(system=None, slot=SimpleNamespace(point=point), chosen=SimpleNamespace(generator=None))
    with pytest.raises(UsedError):
        pair.PairRun((side, side)).measure(1)


def test_the_sweep_of_calls_has_both_loops_and_streams() -> None:
    unary, rate, streams = load_sweep("grpc")[1].load_points
    assert (unary.rate_rps, rate.rate_rps, streams.rate_rps) == (None, 250, None)
    assert describe_load(streams) == "32 connections, closed loop, 4 s, 1kB.bin, gRPC, 20 messages for each call"
    assert describe_load(unary) == "32 connections, closed loop, 4 s, 1kB.bin, gRPC"
    assert all(point.grpc and not point.why_alone and not point.has_outcome for point in (unary, rate, streams))
    assert [point.name for point in load_sweep("grpc-quick")[1].load_points] == ["rate-250", "streams"]


def test_the_script_calls_the_name_and_the_port_of_the_load() -> None:
    tool, _, _, _, load = case("k6-grpc/streams")
    for url, place, plain in (
        ("https://127.0.0.2:18766/2kB.bin", "127.0.0.2:18766", False),
        ("http://lab.test/2kB.bin", "lab.test:80", True),
        ("https://lab.test/2kB.bin", "lab.test:443", False),
    ):
        files = tool.files(dataclasses.replace(load, url=url, messages=2))
        settings = json.loads(files["k6.js"].partition("const load = ")[2].partition(";\n")[0])
        assert (settings["address"], settings["plaintext"], settings["authority"]) == (place, plain, "lab.test")
        assert settings["request"] == {"response_parameters": [{"size": 2048}] * 2}
        assert settings["method"] == "grpc.testing.TestService/StreamingOutputCall"
        assert "service TestService" in files["grpc.proto"]
