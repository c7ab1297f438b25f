"""The generators: their parsers against real output, their commands, and what each refuses.

`support.recorded` says what a case holds, `record.py` beside the cases how they were made; `LAB_GOLDEN=write` writes anew what is parsed.
"""

import difflib
import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.generators import GENERATORS, Installed, build_command, choose, find, get_generator
from lab.generators.base import error_kind, list_destinations, scheduled_s
from lab.generators.k6 import make_environment
from lab.generators.oha import HEADER
from lab.generators.wrk import remove_corrections
from lab.model.load import GeneratorLoad, GeneratorResult, OutputError, Shard
from lab.model.traffic import Traffic
from lab.stats.histogram import Histogram
from lab.tests.support.recorded import CASES, case, golden

WHOLE = [
    "wrk/ok",
    "wrk2/ok",
    "hey/ok",
    "k6/ok-open",
    "k6/ok-closed",
    "h2load/ok-closed",
    "h2load/streams",
    "h2load/download",
    "events/ok",
    "k6-grpc/ok-closed",
    "k6-websocket/ok",
]
LOAD = GeneratorLoad(url="http://127.0.0.1:1/", host="lab.test", connections=10, duration_s=30)
HOSTS = ("a.lab.test", "b.lab.test", "c.lab.test")
MANY = GeneratorLoad("http://127.0.0.1:1/", HOSTS[0], 6, 1, hosts=HOSTS)
STREAMS = replace(LOAD, every_s=0.1)
CALLS = replace(LOAD, url="http://127.0.0.1:1/1kB.bin", protocol="h2")
SECURE = replace(MANY, url="https://a.lab.test:444/page", sni_per_host=True)


SHOWN = (
    *("requests", "duration_s", "achieved_rps", "scheduled_s", "recorded_s", "uncalibrated", "errors", "dropped"),
    *("size_bytes", "size_includes_headers", "latency", "service", "notes"),
)


def rounded(time_s: float | None) -> float | None:
    return None if time_s is None else round(time_s, 6)


def pictured(histogram: Histogram | None) -> dict[str, Any] | None:
    if histogram is None:
        return None
    return {
        "total": histogram.total,
        "kind": histogram.kind,
        "buckets": int(np.count_nonzero(histogram.counts)),
        "max": rounded(histogram.maximum_s),
        **{f"p{100 * share:g}": rounded(histogram.quantile_s(share)) for share in (0.5, 0.9, 0.99, 0.999)},
    }


def shown(result: GeneratorResult) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(result, name) for name in SHOWN}
    for name, digits in (("duration_s", 6), ("achieved_rps", 3), ("recorded_s", 6)):
        found[name] = round(found[name], digits)
    found |= {name: pictured(found[name]) for name in ("latency", "service")}
    if result.calls is not None:
        found["calls"] = {"messages": result.calls.messages, "told_us": result.calls.told_us}
    if result.streams is not None:
        told = {name: getattr(result.streams, name) for name in result.streams.__slots__}
        found["streams"] = {**told, "first_s": [min(result.streams.first_s, default=0), len(result.streams.first_s)]}
    return found | {"errors": dict(sorted(result.errors.items())), "notes": list(result.notes)}


@pytest.mark.parametrize("name", CASES)
def test_real_output_parses_to_its_golden_record(name: str) -> None:
    made_by, stdout, stderr, exit_status, load = case(name)
    try:
        got = shown(made_by.parse(stdout, stderr, exit_status, load))
    except OutputError as error:
        got = {"error": str(error)}
    kept, now = (json.dumps(each, indent=1).splitlines() for each in (golden(name, got), got))
    if kept != now:
        pytest.fail("\n".join(difflib.unified_diff(kept, now, name, "parsed now", lineterm="")))


@pytest.mark.parametrize("name", ["k6/slow-open", "oha/slow-open"])
def test_slow_last_answers_do_not_lower_the_rate_of_an_open_loop(name: str) -> None:
    """They are latency; what was never sent is `dropped`. A closed loop has no schedule."""
    made_by, stdout, stderr, exit_status, load = case(name)
    result = made_by.parse(stdout, stderr, exit_status, load)
    assert result.duration_s > 2 * load.duration_s
    assert result.achieved_rps == result.requests / load.duration_s
    assert (scheduled_s(replace(LOAD, rate_rps=50.0, requests=200)), scheduled_s(LOAD)) == (4.0, None)


def test_the_rate_of_wrk2_is_over_the_time_for_which_its_connections_ran() -> None:
    """They begin 5 ms apart in a thread, and nothing is due on one that has not begun."""
    made_by, stdout, stderr, exit_status, load = case("wrk2/ok")
    for connections, threads, late_s in ((901, 1, 2.25), (900, 3, 0.7475)):
        result = made_by.parse(stdout, stderr, exit_status, replace(load, connections=connections, threads=threads))
        assert result.achieved_rps == pytest.approx(result.requests / (result.duration_s - late_s))
    one_each = replace(load, connections=100, rate_rps=100.0, duration_s=30.0, threads=1)
    assert made_by.parse(stdout, stderr, exit_status, one_each).least_due == 30 + 99 * 29
    uncalibrated = made_by.parse(stdout.replace("  Thread calibration: ", ""), stderr, exit_status, load)
    assert uncalibrated.uncalibrated and "1 of 1 threads never calibrated" in uncalibrated.notes[0]
    with pytest.raises(OutputError, match="the block of counts up to 'LAB end'"):
        made_by.parse(stdout.replace("LAB", "lab"), stderr, exit_status, load)


@pytest.mark.parametrize("name", [*WHOLE, "oha/ok-open"])
def test_output_that_is_not_whole_is_refused_and_quoted(name: str) -> None:
    """Truncated, empty, garbage: an OutputError that says what stood there, and what stderr said. Nor is one believed that crashed after it."""
    made_by, stdout, stderr, exit_status, load = case(name)
    for share in (0.1, 0.4, 0.7, 0.98) if name in WHOLE else ():
        with pytest.raises(OutputError):
            made_by.parse(stdout[: int(len(stdout.rstrip()) * share)], stderr, exit_status, load)
    for text in ("", "{}", "\x00\ufffd" * 99, "LAB end\n", '{"lab":1,}', "1,2\n"):
        with pytest.raises(OutputError, match="no such luck") as raised:
            made_by.parse(text, "no such luck\n", 0, load)
        assert "no output" in str(raised.value) or "output ends" in str(raised.value)
    with pytest.raises(OutputError, match="exit status 139"):
        made_by.parse(stdout, "Segmentation fault", 139, load)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_a_truncated_csv_of_oha_is_refused_or_counted_as_dropped(share: float) -> None:
    made_by, stdout, stderr, exit_status, load = case("oha/ok-open")
    cut = stdout[: int(len(stdout) * share)]
    with pytest.raises(OutputError):
        made_by.parse(cut, stderr, exit_status, load)
    if whole := cut[: cut.rfind("\n") + 1]:
        result = made_by.parse(whole, stderr, exit_status, load)
        assert result.dropped == 200 - result.requests > 0


def test_what_is_no_csv_of_oha_is_refused() -> None:
    row, load = "0.01,0.1,0.1,0.1,0.2,1024,200", GeneratorLoad("http://h/", "", 1, 1.0, rate_rps=1.0)
    assert get_generator("oha").parse(f"{HEADER}\n{row}\n", "", 0, load).requests == 1
    rows = ["0.01,0.1,0.1", f"{row},1", row.replace("0.01", "nan"), "", row.replace("0.01", "one")]
    rows += [row.replace("1024", size) for size in ("1e99", "-1", "1_0", "+1")]
    texts = [f"{HEADER}\n{row}\n{other}\n" for other in rows]
    for text in (f"nothing of the kind\n{row}\n", f"{HEADER}\n", f"{HEADER}\n{row}", *texts):
        with pytest.raises(OutputError):
            get_generator("oha").parse(text, "", 0, load)


def test_latencies_of_wrk_told_as_steps_are_the_same_latencies() -> None:
    made_by, stdout, stderr, exit_status, load = case("wrk/whole-latencies")
    block = re.search(r"LAB latency \d+\n((?:\d+ \d+\n)+)", stdout)
    assert block is not None
    rows = [tuple(map(int, line.split())) for line in block[1].splitlines()]
    told = [(value - before, count) for (before, _), (value, count) in pairwise([(0, 0), *rows])]
    steps = stdout.replace(block[1], "".join(f"{step} {count}\n" for step, count in told))
    steps = steps.replace("LAB latency", "LAB steps")
    one, other = (shown(made_by.parse(text, stderr, exit_status, load)) for text in (steps, stdout))
    assert one == other


def test_a_wrk_that_is_stopped_in_between_leaves_its_latencies_out() -> None:
    """Its counts are told as ever; where latencies are wanted an output without them is none, and one that has them is read on."""
    made_by, stdout, stderr, exit_status, load = case("wrk/ok")
    stopped = replace(load, timed=False)
    scripts = [made_by.files(each)["wrk.lua"] for each in (load, stopped)]
    assert ["LAB steps" in script for script in scripts] == [True, False]
    without = re.sub(r"^LAB steps \d+\n(\d+ \d+\n)*", "", stdout, flags=re.MULTILINE)
    with pytest.raises(OutputError, match="expected the block of counts"):
        made_by.parse(without, stderr, exit_status, load)
    timed = made_by.parse(stdout, stderr, exit_status, load)
    for text in (without, stdout):
        result = made_by.parse(text, stderr, exit_status, stopped)
        assert result == replace(timed, latency=result.latency, recorded_s=0.0, timed=False)
        assert result.latency.total == 0


@settings(max_examples=30)
@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=300), st.integers(1, 500))
def test_wrks_made_up_latencies_are_taken_out_again(latencies_us: list[int], interval_us: int) -> None:
    """`remove_corrections` undoes wrk's stats_correct (here transcribed) exactly, for any latencies and interval."""
    counts = np.bincount(latencies_us, minlength=5_001)
    corrected: list[int] = counts.tolist()
    for n in range(2 * interval_us, max(latencies_us) + 1):
        m = n - interval_us
        while corrected[n] and m > interval_us:
            corrected[m] += corrected[n]
            m -= interval_us
    table = remove_corrections(
        np.array([row for row in enumerate(corrected) if row[1]]), len(latencies_us), interval_us
    )
    assert dict(table.tolist()) == {int(value): int(counts[value]) for value in np.flatnonzero(counts)}


@pytest.mark.parametrize(
    ("answers", "errors"), [((), 3), ((404,), 97), ((404, 503), 97), ((200, 404), 0), ((200, 308), 3)]
)
def test_wrk_knows_which_answers_were_expected_by_what_it_counts_as_errors(
    answers: tuple[int, ...], errors: int
) -> None:
    tool, stdout, stderr, status, load = case("wrk/ok")
    told = re.sub(r"LAB errors (\d+ \d+ \d+) \d+", r"LAB errors \1 3", stdout)
    result = tool.parse(told, stderr, status, replace(load, answers=answers))
    assert result.errors.get("status", 0) == (errors if errors < 97 else result.requests - 3)


def test_several_processes_are_one_load_and_one_that_is_missing_is_no_result() -> None:
    """Requests, bytes and latencies are added, over the longest run. Half of a load is not the load, nor one that ran by itself."""
    made_by, stdout, stderr, status, load = case("wrk/sni")
    result = made_by.parse(stdout, stderr, status, load)
    blocks = [line.split() for line in stdout.splitlines() if line.startswith("LAB summary ")]
    assert len(blocks) == len(load.hosts) == 2
    assert result.requests == result.latency.total == sum(int(block[3]) for block in blocks)
    assert result.size_bytes == sum(int(block[4]) for block in blocks)
    assert result.duration_s == max(int(block[2]) for block in blocks) * 1e-6
    assert result.notes == ("2 wrk processes, one for each host",)
    first = stdout.index("LAB end")
    for cut in (stdout[: first + 8], stdout[:first], stdout[: stdout.rindex("LAB end")]):
        with pytest.raises(OutputError, match="of each of 2 processes"):
            made_by.parse(cut, stderr, status, load)
    summary = " ".join(blocks[0])
    alone = stdout.replace(summary, " ".join([*blocks[0][:2], str(int(blocks[0][2]) * 2), *blocks[0][3:]]), 1)
    with pytest.raises(OutputError, match="ran together"):
        made_by.parse(alone, stderr, status, load)


@pytest.mark.parametrize("name", ["wrk/hosts", "wrk/sni", "wrk/gzip", "k6/sni", "k6/gzip", "hey/tls-close", "hey/gzip"])
def test_output_tells_everything_without_the_hosts(name: str) -> None:
    """`--from-raw` knows the point, but not which hosts there were; and k6's bytes hold TLS, if there was any."""
    made_by, stdout, stderr, status, load = case(name)
    bare = replace(load, url="http://192.0.2.1/", host="", hosts=(), sni_per_host=False)
    one, other = made_by.parse(stdout, stderr, status, load), made_by.parse(stdout, stderr, status, bare)
    assert replace(one, latency=other.latency, size_includes_tls=False) == other
    assert (one.latency.counts == other.latency.counts).all()
    assert one.size_includes_tls == (name == "k6/sni")


def test_messages_of_failed_requests_become_kinds() -> None:
    assert error_kind('Get "http://h/timeout": dial tcp 127.0.0.1:9: connect: connection refused') == "connect"
    assert error_kind('Get "http://h/1kb": context deadline exceeded (Client.Timeout exceeded)') == "timeout"
    assert error_kind('Get "http://h/1kb": EOF') == "read"
    assert error_kind("connection closed before message completed") == "read"
    assert error_kind("write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe") == "write"
    assert error_kind("whatever") == "other"


TLS = {"url": "https://lab.test/"}
SHARDS = (Shard("http://a.lab.test:80/", HOSTS[:1]), Shard("http://b.lab.test:80/", HOSTS[1:]))
AT_RATE = {"rate_rps": 600.0, "duration_s": 30}
MIX = Traffic(requests=("1 GET h1 p1 500",))
REFUSALS: list[tuple[str, GeneratorLoad, dict[str, Any], str]] = [
    ("wrk", LOAD, {"rate_rps": 10.0}, "closed loop"),
    ("wrk", LOAD, {"requests": 10}, "number of requests"),
    ("wrk", LOAD, {"threads": 3}, "not a multiple"),
    ("wrk", LOAD, {"threads": 20}, "connection for every thread"),
    ("wrk", LOAD, {"duration_s": 2.5}, "whole seconds"),
    ("wrk", SECURE, {"connections": 7}, "7 connections are not a multiple of 3 hosts"),
    ("wrk", MANY, {"resumption": False}, "hey and k6 never do"),
    ("wrk", MANY, {"shards": SHARDS, "connections": 5}, "not a multiple of 2 proxies"),
    ("wrk", SECURE, {"shards": SHARDS}, "not both"),
    ("wrk", SECURE, {"url": "http://a/"}, "https://"),
    ("wrk2", LOAD, {}, "needs a rate"),
    ("wrk2", LOAD, {"rate_rps": 9.0}, "for every connection"),
    ("wrk2", LOAD, {"rate_rps": 10.5}, "whole requests"),
    ("wrk2", LOAD, {"rate_rps": 100.0, "duration_s": 20}, "30 s or more"),
    ("wrk2", LOAD, {"rate_rps": 9000.0, "connections": 3000}, "calibrates for 25 s"),
    ("wrk2", LOAD, {"rate_rps": 100.0, "threads": 4}, "not a multiple"),
    ("wrk2", LOAD, {"rate_rps": 100.0, "requests": 5}, "number of requests"),
    ("wrk2", SECURE, AT_RATE, "wrk and k6 take one for each host"),
    ("wrk2", MANY, {**AT_RATE, "shards": SHARDS}, "knows one way in"),
    ("wrk2", MANY, {**AT_RATE, "resumption": False}, "hey and k6 never do"),
    ("hey", LOAD, {"rate_rps": 10.0}, "closed loop"),
    ("hey", LOAD, {"requests": 9}, "request for every connection"),
    ("hey", LOAD, {"requests": 1_000_001}, "keeps 1000000"),
    ("hey", MANY, {}, "one host only, got 3: wrk, wrk2 and k6"),
    ("hey", LOAD, {"resumption": True}, "wrk does"),
    ("oha", LOAD, {}, "at a rate alone"),
    ("oha", LOAD, {"rate_rps": 9.0, "requests": 10}, "number of requests"),
    ("oha", MANY, {"rate_rps": 9.0}, "one host only"),
    ("oha", LOAD, {"rate_rps": 9.0, "resumption": False}, "hey and k6 never do"),
    ("k6", LOAD, {"requests": 10}, "number of requests"),
    ("k6", LOAD, {"rate_rps": 0.0001}, "0.001"),
    ("k6", LOAD, {"streams": 2, "protocol": "h2", **TLS}, "only h2load"),
    ("k6", MANY, {"connections": 7}, "7 connections are not a multiple of 3 hosts"),
    ("k6", MANY, {"resumption": True}, "wrk does"),
    ("h2load", LOAD, {}, "over TLS alone"),
    ("h2load", LOAD, {"protocol": "h2"}, "HTTP/2 is spoken over TLS here"),
    ("h2load", LOAD, {**TLS, "keepalive": False}, "opens each connection once"),
    ("h2load", LOAD, {**TLS, "resumption": True}, "never resumes"),
    ("h2load", LOAD, {**TLS, "threads": 20}, "connection for every thread"),
    ("h2load", LOAD, {**TLS, "requests": 9}, "request for every connection"),
    ("h2load", LOAD, {**TLS, "hosts": HOSTS}, "one host only"),
    ("k6", LOAD, {"transfer": "download", **TLS}, "only h2load measures the speed of large transfers"),
    ("k6", LOAD, {"window_bits": 16, **TLS}, "sets HTTP/2 windows"),
    ("events", LOAD, {}, "needs every_s"),
    ("events", STREAMS, {"rate_rps": 10.0}, "at their own rate"),
    ("events", STREAMS, {"requests": 10}, "not for a number of requests"),
    ("events", STREAMS, {"keepalive": False}, "no connection to keep"),
    ("events", STREAMS, {"hosts": HOSTS}, "one host only"),
    ("events", STREAMS, {"protocol": "h2"}, "HTTP/2 is spoken over TLS here"),
    ("k6", LOAD, {"every_s": 0.1}, "only the generators events and k6-websocket"),
    ("k6", LOAD, {"messages": 5}, "only k6-grpc"),
    ("k6-grpc", CALLS, {"requests": 10}, "not for a number of calls"),
    ("k6-grpc", CALLS, {"keepalive": False}, "many calls"),
    ("k6-grpc", CALLS, {"resumption": False}, "never resumes"),
    ("k6-grpc", CALLS, {"forwarded": True}, "no further headers"),
    ("k6-grpc", CALLS, {"url": "http://127.0.0.1:1/status/404"}, "size of a page"),
    ("k6-grpc", CALLS, {"hosts": HOSTS}, "one host only"),
    ("k6-grpc", CALLS, {"streams": 2}, "only h2load"),
    ("k6-grpc", CALLS, {"every_s": 0.1}, "only the generators events and k6-websocket"),
    ("k6-websocket", LOAD, {}, "needs every_s"),
    ("k6-websocket", STREAMS, {"rate_rps": 10.0}, "at their own rate"),
    ("k6-websocket", STREAMS, {"requests": 10}, "not for a number of requests"),
    ("k6-websocket", STREAMS, {"keepalive": False}, "no connection to keep"),
    ("k6-websocket", STREAMS, {"resumption": True}, "no session to resume"),
    ("k6-websocket", STREAMS, {"held_s": 0.1}, "held_s is for events"),
    ("k6-websocket", STREAMS, {"hosts": HOSTS}, "one host only"),
    ("k6-websocket", STREAMS, {"streams": 2}, "only h2load"),
    *((name, LOAD, {**TLS, "answers": (404,), "rate_rps": 50.0}, "only k6 and wrk") for name in ("oha", "h2load")),
    *((name, LOAD, {"traffic": MIX}, "only k6 makes a mix") for name in ("wrk", "hey")),
    *((name, LOAD, {"traffic": MIX, **AT_RATE}, "only k6 makes a mix") for name in ("wrk2", "oha")),
    ("h2load", LOAD, {"traffic": MIX, **TLS}, "only k6 makes a mix"),
]


@pytest.mark.parametrize(("name", "load", "changes", "why"), REFUSALS)
def test_a_load_beyond_a_tools_limits_is_refused(
    name: str, load: GeneratorLoad, changes: dict[str, Any], why: str
) -> None:
    """Each limit that would make a tool lie about the load is a sentence, said beforehand; it says who can."""
    assert why in (get_generator(name).refusal(replace(load, **changes)) or "no refusal")


TAKEN = [
    ("wrk", replace(SECURE, resumption=True)),
    ("wrk", replace(MANY, shards=SHARDS)),
    ("wrk", replace(LOAD, answers=(404,))),
    ("k6", replace(SECURE, resumption=False)),
    ("k6", replace(LOAD, answers=(404,))),
    ("k6", replace(MANY, connections=7, traffic=MIX)),
    ("hey", replace(MANY, hosts=("one",), resumption=False)),
    ("wrk2", replace(MANY, rate_rps=600, duration_s=30, resumption=True)),
    ("events", replace(STREAMS, streams=10, protocol="h2", **TLS)),
    ("k6-grpc", replace(CALLS, messages=20, rate_rps=50.0)),
    ("k6-grpc", replace(CALLS, url="https://127.0.0.1:1/1kB.bin")),
]
NONSENSE = [
    *({"connections": 0}, {"threads": 0}, {"duration_s": 0}, {"duration_s": math.nan}, {"duration_s": math.inf}),
    *({"rate_rps": 0.0}, {"rate_rps": -5.0}, {"rate_rps": math.nan}, {"requests": 0}, {"timeout_s": 0.0}),
    {"url": "ftp://127.0.0.1/"},
]


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_a_load_that_is_none_is_refused_by_all(name: str) -> None:
    rate = None if "closed" in get_generator(name).models else 100.0
    load = replace(STREAMS if get_generator(name).own_backend else LOAD, rate_rps=rate, **TLS)
    load = replace(CALLS, rate_rps=rate) if name == "k6-grpc" else load
    assert get_generator(name).refusal(load) is None
    assert [taken for by, taken in TAKEN if by == name and get_generator(name).refusal(taken)] == []
    for changes in NONSENSE:
        assert get_generator(name).refusal(replace(load, **changes)) is not None, changes


def test_the_table_has_every_generator_under_its_own_name() -> None:
    assert [each.name for each in GENERATORS.values()] == list(GENERATORS)


def test_programs_are_told_apart_by_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wrk2 calls itself wrk: its usage gives it away, and neither takes the other for itself. `find` tries the aliases, too.

    k6's version tells that it collects no garbage, so that runs without that are another generator's.
    """
    wrk = "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\nUsage: wrk <options> <url>\n -t, --threads <N>"
    wrk2 = "wrk 4.0.0 [epoll] Copyright (C) 2012 Will Glozer\nUsage: wrk <options> <url>\n -U  --u_latency\n -R, --rate <T>"
    k6 = "k6 v1.8.1 (go1.25.9, linux/amd64)\n"
    for name, said, version in (
        ("wrk", wrk, "debian/4.1.0-3+b2"),
        ("wrk2", wrk2, "4.0.0"),
        ("k6", k6, "1.8.1, GOGC=off"),
    ):
        told = {each: get_generator(each).version(said) for each in ("wrk", "wrk2", "k6")}
        assert told == dict.fromkeys(told) | {name: version}
    (tmp_path / "wrk").write_text(f"#!/bin/sh\nprintf '%s' '{wrk2}'\nexit 1\n")
    (tmp_path / "wrk").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find(get_generator("wrk2")) == Installed(str(tmp_path / "wrk"), "4.0.0")
    assert find(get_generator("wrk")) is find(get_generator("k6")) is None


def test_k6_collects_no_garbage_that_a_sample_could_bring() -> None:
    load = replace(LOAD, rate_rps=1000.0, connections=1000, duration_s=10.0)
    environment_of_it = ["GOGC=off", "GOMEMLIMIT=1014MiB", "GODEBUG=http2client=0"]
    assert build_command(get_generator("k6"), "/opt/k6", load)[:6] == ["env", *environment_of_it, "/opt/k6", "run"]

    def limit_mib(**changes: Any) -> int:
        return int(make_environment(replace(load, **changes))["GOMEMLIMIT"].removesuffix("MiB"))

    assert limit_mib() < limit_mib(connections=10_000) and limit_mib() < limit_mib(rate_rps=50_000.0)
    assert limit_mib() < limit_mib(duration_s=60.0) < limit_mib(duration_s=60.0, rate_rps=None)


def having(*names: str) -> Any:
    return lambda wanted: Installed(f"/bin/{wanted.name}", "1") if wanted.name in names else None


def test_stand_ins_take_open_loops_in_their_order() -> None:
    rate = replace(LOAD, rate_rps=100.0)
    assert choose("wrk2", rate, having("wrk2", "oha"))[::2] == (get_generator("wrk2"), None)
    assert choose("wrk2", rate, having("oha", "k6"))[::2] == (
        get_generator("oha"),
        "wrk2 is not installed: oha stands in",
    )
    _, found, reason = choose("wrk2", rate, having("k6"))
    assert (found.path, reason) == ("/bin/k6", "wrk2 is not installed: k6 stands in, latency from when sent")
    for name, load, there, said in (
        ("wrk2", rate, "wrk", "`wrk2` is not on PATH, and none of its stand-ins fits"),
        ("wrk", LOAD, "k6", "apt-get install wrk"),
        ("wrk2", replace(rate, duration_s=5), "k6", "30 s or more"),
    ):
        with pytest.raises(UsageError, match=said):
            choose(name, load, having(there))


def test_scripts_and_commands_have_the_hosts() -> None:
    """As Lua takes them, of several proxies each one's own; under TLS the URL names its host, as SNI comes from it."""
    wrk = get_generator("wrk")
    assert 'ipairs({"a.lab.test", "b.lab.test", "c.lab.test"})' in wrk.files(MANY)["wrk.lua"]
    shards = (Shard("http://127.0.0.1:1/", (HOSTS[0], HOSTS[2])), Shard("http://127.0.0.1:2/", (HOSTS[1],)))
    own = '{["127.0.0.1:1"] = {"a.lab.test", "c.lab.test"}, ["127.0.0.1:2"] = {"b.lab.test"}}'
    assert f'ipairs(({own})[wrk.host .. ":" .. wrk.port])' in wrk.files(replace(MANY, shards=shards))["wrk.lua"]
    assert build_command(wrk, "/opt/wrk", MANY)[0] == "/opt/wrk"
    assert build_command(wrk, "/opt/wrk", SECURE)[:3] == ["sh", "per-host.sh", "/opt/wrk"]
    assert {"-c2", "-t1"} <= {*build_command(wrk, "/opt/wrk", SECURE)}
    assert list_destinations(MANY) == [(MANY.url, host) for host in HOSTS]
    assert list_destinations(SECURE) == [(f"https://{host}:444/page", host) for host in HOSTS]
    assert list_destinations(replace(MANY, hosts=())) == [(MANY.url, HOSTS[0])]
    assert '"answers": [404]' in get_generator("k6").files(replace(LOAD, answers=(404,)))["k6.js"]
