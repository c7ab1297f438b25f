"""No doctored output is valid: every number that a parser reads, made what it cannot be, ends the sample with a reason, and never in a crash.

An output is real (lab/tests/generators/testdata); what the lab would have seen beside it is made here, as honest as the output. Then one
number is changed, and nothing else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.generators import Generator
from lab.generators._k6_log import requests_of
from lab.measure import validity
from lab.measure.measurement import parsed
from lab.model.load import Load, OutputError, Result
from lab.model.samples import Reason
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.stats.histogram import Histogram
from lab.targets.common.process import Ended
from lab.tests.support.recorded import case

BODY_BYTES, HEAD_BYTES = 1024, 240
BARE = {"hey", "oha", "h2load"}
"""They count bodies alone."""

TIMES: Mapping[str, tuple[str, ...]] = {
    "wrk/ok": (r"LAB summary (\d+)",),
    "wrk/whole-latencies": (r"LAB summary (\d+)",),
    "wrk2/ok": (r"LAB summary (\d+)",),
    **dict.fromkeys(
        ("hey/time", "hey/slow", "hey/ok", "hey/close", "hey/gzip", "hey/tls-close"), (r"LAB summary (\d+)",)
    ),
    "oha/ok-open": (r"(?m)^(0\.\d+)(?=,)",),
    "h2load/ok-closed": (r"finished in ([\d.]+)ms",),
    "h2load/ok-open": (r"finished in ([\d.]+)s",),
    "k6/ok-open": (r'"duration_ms":([\d.]+)',),
    "k6/ok-closed": (r'"duration_ms":([\d.]+)',),
}
"""Case → where its output tells how long it took (a CSV: when each request was sent)."""
COUNTS: Mapping[str, tuple[str, ...]] = {
    "wrk/ok": (
        r"LAB summary \d+ (\d+)",
        r"LAB summary \d+ \d+ (\d+)",
        *(rf"LAB errors (?:\d+ ){{{at}}}(\d+)" for at in range(5)),
        r"LAB steps \d+\n\d+ (\d+)",
    ),
    "wrk/whole-latencies": (r"LAB summary \d+ (\d+)", r"LAB latency \d+\n\d+ (\d+)"),
    "wrk2/ok": (
        r"(\d+) requests in",
        r"LAB summary \d+ (\d+)",
        r"LAB summary \d+ \d+ (\d+)",
        *(rf"LAB errors (?:\d+ ){{{at}}}(\d+)" for at in range(5)),
        r"LAB latency (\d+)",
        r"LAB latency \d+\n\d+ (\d+)",
        r"Uncorrected Latency(?:.*\n)+?.*Total count += +(\d+)",
    ),
    "hey/time": (
        r"LAB summary \d+ (\d+)",
        r"LAB summary \d+ \d+ (\d+)",
        r"LAB status 200 (\d+)",
        r"LAB latency (\d+)",
    ),
    "hey/slow": (r"LAB summary \d+ (\d+)", r"LAB status 200 (\d+)", r"LAB latency (\d+)"),
    **dict.fromkeys(
        ("h2load/ok-closed", "h2load/ok-open"),
        (r"(\d+) done", r"(\d+) succeeded", r"(\d+) failed", r"\((\d+)\) data"),
    ),
    "k6/ok-open": (
        r'"made":(\d+)',
        r'"received_bytes":(\d+)',
        r'"count":(\d+)',
        r'"dropped":(\d+)',
        *(rf'"{kind}":(\d+)' for kind in ("status", "connect", "read", "write", "timeout", "other")),
    ),
    "k6/ok-closed": (r'"made":(\d+)', r'"received_bytes":(\d+)', r'"count":(\d+)'),
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


def _point(load: Load) -> Point:
    return Point(
        name="load",
        generator="any",
        connections=load.connections,
        rate_rps=load.rate_rps,
        duration_s=load.duration_s,
        warmup_s=0.0,
        threads=load.threads,
        page="1kB.bin",
        requests=load.requests,
        keepalive=load.keepalive,
        streams=load.streams,
        timeout_s=load.timeout_s,
    )


def _seen(honest: Result) -> Observation:
    """What the lab saw of a run in which all was as the generator says."""
    made = honest.requests
    return Observation(
        elapsed_s=honest.duration_s + 0.02,
        usage={},
        rows=pl.DataFrame(),
        busy={},
        steal=0.0,
        others=0.0,
        counters={
            "proxy/requests": made,
            "proxy/InSegs": 2 * made,
            "client/rx_bytes": made * (BODY_BYTES + HEAD_BYTES + 66),
        },
        clock_step_s=0.0,
    )


def judged(name: str, text: str, seen: Observation | None = None) -> list[Reason]:
    """What speaks against a sample with this output, as a bench judges it."""
    tool, honest, stderr, _, load = case(name)
    result = tool.parse(honest, stderr, 0, load)
    ended = Ended(text, stderr, 0, 0.9 * result.duration_s, 0, hung=False)
    told, found = parsed(tool, load, ended)
    if told is None:
        return [reason for reason, _ in found]
    body_bytes = 1024 if result.size_bytes is None else _body(tool, result)
    saw = _seen(result) if seen is None else seen
    faults = validity.faults(
        _point(load),
        told,
        saw,
        0.3,
        tool.calibration_s(load),
        body_bytes,
        cpu_s=ended.cpu_s,
        cpus=1,
        head_bytes=HEAD_BYTES,
    )
    return [reason for reason, _ in faults]


def _body(tool: Generator, result: Result) -> int:
    return BODY_BYTES if tool.name in BARE else (result.size_bytes or 0) // result.requests - HEAD_BYTES


@pytest.mark.parametrize("name", [*sorted({*TIMES, *COUNTS}), "h2load/streams"])
def test_an_honest_output_is_valid(name: str) -> None:
    """Else that a doctored one is not would prove nothing."""
    assert judged(name, case(name)[1]) == []


def tells_no_size(name: str, where: str, variant: str) -> bool:
    """hey's size is 0 where responses are chunked: then it tells none, and the link's bytes have to do."""
    return name.startswith("hey") and where.count(r"\d+") == 3 and variant == "zero"


def cases(of: Mapping[str, tuple[str, ...]], variants: Mapping[str, Variant]) -> list[tuple[str, str, str]]:
    return [(name, where, variant) for name, places in of.items() for where in places for variant in variants]


CHANGES = WRONG | IMPOSSIBLE
EVERY = [*cases(TIMES, CHANGES), *cases(COUNTS, CHANGES)]


@pytest.mark.parametrize(("name", "where", "variant"), EVERY)
def test_a_doctored_number_is_not_believed(name: str, where: str, variant: str) -> None:
    text = case(name)[1]
    changed = doctored(text, where, CHANGES[variant])
    reasons = judged(name, changed)
    assert reasons or changed == text or tells_no_size(name, where, variant), "it would count"
    if where in TIMES.get(name, ()) and name != "oha/ok-open" and variant in ("half", "twice", "ten times"):
        assert reasons[0] in (Reason.GENERATOR_TIME, Reason.GENERATOR_OUTPUT)


@pytest.mark.parametrize("times", [1.2, 2, 10])
@pytest.mark.parametrize("name", ["k6/ok-open", "wrk2/ok"])
def test_more_than_was_due_is_not_believed_where_nobody_else_counts(name: str, times: float) -> None:
    tool, text, stderr, _, load = case(name)
    unwitnessed = dataclasses.replace(_seen(tool.parse(text, stderr, 0, load)), counters={})
    assert judged(name, text, unwitnessed) == []
    for where in COUNTS[name]:
        text = doctored(text, where, lambda said: f"{float(said) * times:.0f}")
    assert {Reason.GENERATOR_COUNT, Reason.GENERATOR_OUTPUT} & set(judged(name, text, unwitnessed))


@pytest.mark.parametrize("name", sorted(COUNTS))
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_other_number_makes_a_crash(name: str, data: st.DataObject) -> None:
    """Any number of the output, anything in its place: what is read is a result or a reason, never an exception."""
    text = case(name)[1]
    place = data.draw(st.sampled_from(list(re.finditer(r"\d+(\.\d+)?", text))))
    said = data.draw(
        st.one_of(
            st.sampled_from([change(place[0]) for change in CHANGES.values()]),
            st.integers().map(str),
            st.floats().map(str),
            st.text(max_size=5),
        )
    )
    judged(name, text[: place.start()] + said + text[place.end() :])


LOG = [f"request {n} 1000000 {1000000 + 20 * n} {20 * n}.250 {20 * n}.750 0.400 200 - pod-0 9003 17" for n in range(49)]
SLOW = ["request", "49", "1000000", "1000980", "980.250", "5980.750", "5000.400", "200", "-", "pod-0", "9003", "17"]
"""The slowest of its lines: where numbers are large, what is done to them is."""
LOGGED = ("number", "start_ms", "wall_ms", "sent_ms", "done_ms", "service_ms", "status")


def logged_judged(slow: list[str]) -> list[Reason]:
    """What speaks against a disturbed sample with this line in k6's log, as a bench judges it."""
    text = "\n".join([*LOG, " ".join(slow), ""])
    told = Result(50, 1.0, Histogram.empty(), 1.0)
    try:
        frame = requests_of(text, 50, 50.0)
    except OutputError:
        return [Reason.GENERATOR_OUTPUT]
    load = Load("http://192.0.2.1/", "lab.test", connections=100, duration_s=1, rate_rps=50.0, logged=True)
    faults = validity.disturbed_faults(_point(load), told, frame, _seen(told), 0.3, True, 0.0, 0.0)
    return [reason for reason, _ in faults]


def test_an_honest_log_is_valid() -> None:
    assert logged_judged(SLOW) == []


@pytest.mark.parametrize("at", range(1, 8), ids=LOGGED)
@pytest.mark.parametrize("variant", CHANGES)
def test_a_doctored_number_of_a_log_is_not_believed(at: int, variant: str) -> None:
    """But for an answer's own time made shorter: nobody can tell it from the right one."""
    if (LOGGED[at - 1], variant) in (("service_ms", "half"), ("service_ms", "zero")):
        return
    said = CHANGES[variant](SLOW[at])
    assert logged_judged([*SLOW[:at], said, *SLOW[at + 1 :]]), said
