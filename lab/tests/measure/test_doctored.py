"""No doctored output is valid: every number that a parser reads, made what it cannot be, ends the sample with a reason, and never in a crash.

An output is real (lab/tests/generators/testdata); what the lab would have seen beside it is made here, as honest as the output. Then one
number is changed, and nothing else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.generators import Generator
from lab.measure import validity
from lab.measure.measurement import parse_report
from lab.model.load import GeneratorLoad, GeneratorResult
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.model.usage import Observation
from lab.targets.common.process import GeneratorOutcome
from lab.tests.support.recorded import case

BODY_BYTES, HEAD_BYTES = 1024, 240
LOADED = ("connections", "rate_rps", "duration_s", "threads", "requests", "keepalive", "streams", "timeout_s")
BARE = {"hey", "oha", "h2load"}
"""They count bodies alone."""

SUMMARY = tuple(rf"LAB summary{before} (\d+)" for before in ("", r" \d+", r" \d+ \d+"))
"""How long it took, how many requests, how many bytes."""
ERRORS = tuple(rf"LAB errors (?:\d+ ){{{at}}}(\d+)" for at in range(5))
LATENCIES = (r"LAB latency (\d+)",)
FIRST = (r"LAB (?:latency|steps) \d+\n\d+ (\d+)",)
OF_K6 = (r'"made":(\d+)', r'"received_bytes":(\d+)', r'"count":(\d+)')
KINDS = tuple(rf'"{kind}":(\d+)' for kind in ("dropped", "status", "connect", "read", "write", "timeout", "other"))
OF_H2LOAD = (r"(\d+) done", r"(\d+) succeeded", r"(\d+) failed", r"\((\d+)\) data")
UNCORRECTED = r"Uncorrected Latency(?:.*\n)+?.*Total count += +(\d+)"
TIMES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("wrk/ok", "wrk/whole-latencies", "wrk2/ok"), SUMMARY[:1]),
    **dict.fromkeys(("hey/time", "hey/slow", "hey/close", "hey/gzip"), SUMMARY[:1]),
    "oha/ok-open": (r"(?m)^(0\.\d+)(?=,)",),
    "h2load/ok-closed": (r"finished in ([\d.]+)ms",),
    "h2load/ok-open": (r"finished in ([\d.]+)s",),
    **dict.fromkeys(("k6/ok-open", "k6/ok-closed"), (r'"duration_ms":([\d.]+)',)),
}
"""Case → where its output tells how long it took (a CSV: when each request was sent)."""
COUNTS: Mapping[str, tuple[str, ...]] = {
    "wrk/ok": (*SUMMARY[1:], *ERRORS, *FIRST),
    "wrk/whole-latencies": (SUMMARY[1], *FIRST),
    "wrk2/ok": (r"(\d+) requests in", *SUMMARY[1:], *ERRORS, *LATENCIES, *FIRST, UNCORRECTED),
    "hey/time": (*SUMMARY[1:], r"LAB status 200 (\d+)", *LATENCIES),
    "hey/slow": (SUMMARY[1], r"LAB status 200 (\d+)", *LATENCIES),
    **dict.fromkeys(("h2load/ok-closed", "h2load/ok-open"), OF_H2LOAD),
    "k6/ok-open": (*OF_K6, *KINDS),
    "k6/ok-closed": OF_K6,
}
"""Case → where it tells how many."""
Variant = Callable[[str], str]
IMPOSSIBLE: dict[str, Variant] = {
    "2^64": lambda said: str(2**64),
    "400 digits": lambda said: "9" * 400,
    "negative": lambda said: f"-{said}" if float(said) else "-1",
    "a thousands mark": lambda said: "1,234" if float(said) < 1000 else f"{float(said):,.0f}",
    "NaN": lambda said: "NaN",
    "Infinity": lambda said: "Infinity",
    "empty": lambda said: "",
    "text": lambda said: '"12"',
    "scientific": lambda said: "1e400",
    "a decimal comma": lambda said: said.replace(".", ",") if "." in said else f"{said},5",
    "a mark in between": lambda said: f"1_{said}",
    "an apostrophe": lambda said: f"1'{said}",
    "a sign": lambda said: f"+1{said}",
    "other digits": lambda said: said.translate(str.maketrans("0123456789", "٩٠١٢٣٤٥٦٧٨")),
    "hexadecimal": lambda said: f"0x1{said.replace('.', '')}",
}
WRONG: dict[str, Variant] = {
    "half": lambda said: _like(said, float(said) / 2),
    "twice": lambda said: _like(said, float(said) * 2),
    "ten times": lambda said: _like(said, float(said) * 10),
    "zero": lambda said: _like(said, 0.0),
}


def _like(said: str, value: float) -> str:
    """As many digits behind the point; of nothing something."""
    behind = len(said.partition(".")[2])
    return f"{value or (0.0 if float(said) else 7.0):.{behind}f}"


def doctored(text: str, where: str, change: Variant) -> str:
    """At the first place, or where lines are meant (`(?m)`) in each."""
    found = re.findall(where, text)
    assert found, f"nothing like {where} is there to be doctored"
    each = 0 if where.startswith("(?m)") else 1

    def changed(match: re.Match[str]) -> str:
        at, until = match.start(1) - match.start(), match.end(1) - match.start()
        return match[0][:at] + change(match[1]) + match[0][until:]

    return re.sub(where, changed, text, count=each)


def _point(load: GeneratorLoad) -> LoadPoint:
    return LoadPoint(
        name="load",
        generator="any",
        warmup_s=0.0,
        page="1kB.bin",
        **{key: getattr(load, key) for key in LOADED},
    )


def _seen(honest: GeneratorResult) -> Observation:
    """What the lab saw of a run in which all was as the generator says."""
    made = honest.requests
    counted = {
        "proxy/requests": made,
        "proxy/InSegs": 2 * made,
        "client/rx_bytes": made * (BODY_BYTES + HEAD_BYTES + 66),
    }
    return Observation(
        honest.duration_s + 0.02, {}, pl.DataFrame(), {}, steal=0.0, others=0.0, counters=counted, clock_step_s=0.0
    )


@cache
def honest(name: str) -> GeneratorResult:
    tool, text, stderr, _, load = case(name)
    return tool.parse(text, stderr, 0, load)


def judged(name: str, text: str, seen: Observation | None = None) -> list[Reason]:
    """What speaks against a sample with this output, as a bench judges it."""
    tool, _, stderr, _, load = case(name)
    result = honest(name)
    ended = GeneratorOutcome(text, stderr, 0, 0.9 * result.duration_s, 0, hung=False)
    told, found = parse_report(tool, load, ended)
    if told is None:
        return [reason for reason, _ in found]
    body_bytes = 1024 if result.size_bytes is None else _body(tool, result)
    saw = _seen(result) if seen is None else seen
    more: dict[str, Any] = {"cpu_s": ended.cpu_s, "cpus": 1, "head_bytes": HEAD_BYTES}
    faults = validity.find_faults(_point(load), told, saw, 0.3, body_bytes, **more)
    return [reason for reason, _ in faults]


def _body(tool: Generator, result: GeneratorResult) -> int:
    return BODY_BYTES if tool.name in BARE else (result.size_bytes or 0) // result.requests - HEAD_BYTES


@pytest.mark.parametrize("name", [*sorted({*TIMES, *COUNTS}), "h2load/streams"])
def test_an_honest_output_is_valid(name: str) -> None:
    """Else that a doctored one is not would prove nothing."""
    assert judged(name, case(name)[1]) == []


def tells_no_size(name: str, where: str, variant: str) -> bool:
    """hey's size is 0 where responses are chunked: then it tells none, and the link's bytes have to do."""
    return name.startswith("hey") and where.count(r"\d+") == 3 and variant == "zero"


CHANGES = WRONG | IMPOSSIBLE


@pytest.mark.parametrize(
    ("name", "where"), [(name, where) for of in (TIMES, COUNTS) for name, places in of.items() for where in places]
)
def test_a_doctored_number_is_not_believed(name: str, where: str) -> None:
    text = case(name)[1]
    timed = where in TIMES.get(name, ()) and name != "oha/ok-open"
    for variant, change in CHANGES.items():
        changed = doctored(text, where, change)
        reasons = judged(name, changed)
        assert reasons or changed == text or tells_no_size(name, where, variant), f"{variant}: it would count"
        if timed and variant in ("half", "twice", "ten times"):
            assert reasons[0] in (Reason.GENERATOR_TIME, Reason.GENERATOR_OUTPUT), variant


@pytest.mark.parametrize("times", [1.2, 10])
@pytest.mark.parametrize("name", ["k6/ok-open", "wrk2/ok"])
def test_more_than_was_due_is_not_believed_where_nobody_else_counts(name: str, times: float) -> None:
    text, unwitnessed = case(name)[1], dataclasses.replace(_seen(honest(name)), counters={})
    assert judged(name, text, unwitnessed) == []
    for where in COUNTS[name]:
        text = doctored(text, where, lambda said: f"{float(said) * times:.0f}")
    assert {Reason.GENERATOR_COUNT, Reason.GENERATOR_OUTPUT} & set(judged(name, text, unwitnessed))


@cache
def numbers(name: str) -> list[tuple[int, int]]:
    """Where they stand in an output."""
    return [found.span() for found in re.finditer(r"\d+(\.\d+)?", case(name)[1])]


@pytest.mark.parametrize("name", sorted({*COUNTS} - {"h2load/ok-closed"}))
@given(data=st.data())
@settings(max_examples=8)
def test_no_other_number_makes_a_crash(name: str, data: st.DataObject) -> None:
    """Any number of the output, anything in its place: what is read is a result or a reason, never an exception."""
    text = case(name)[1]
    begins, ends = data.draw(st.sampled_from(numbers(name)))
    changed = st.sampled_from([change(text[begins:ends]) for change in CHANGES.values()])
    said = data.draw(changed | st.integers().map(str) | st.floats().map(str) | st.text(max_size=5))
    judged(name, text[:begins] + said + text[ends:])
