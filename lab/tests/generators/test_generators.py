"""The generators: their parsers against real output, their limits, and the tools themselves where they are installed.

`support.recorded` says what a case holds, `record.py` beside the cases how they were made; `LAB_GOLDEN=write` writes anew what is parsed.
"""

import difflib
import json
import math
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.generators import GENERATORS, Installed, choose, command, find, generator
from lab.generators.base import error_kind, scheduled_s
from lab.generators.k6 import environment
from lab.generators.wrk import measured_only
from lab.model.load import Load, OutputError, Result
from lab.stats.histogram import Histogram
from lab.tests.support.recorded import CASES, case, golden

WHOLE = [
    "wrk/ok",
    "wrk2/ok",
    "hey/ok",
    "oha/ok-closed",
    "k6/ok-open",
    "k6/ok-closed",
    "h2load/ok-closed",
    "h2load/streams",
]
LOAD = Load(url="http://127.0.0.1:1/", host="lab.test", connections=10, duration_s=30)
DELAY_S = 0.020


def rounded(time_s: float | None) -> float | None:
    return None if time_s is None else round(time_s, 6)


def pictured(histogram: Histogram | None) -> dict[str, Any] | None:
    if histogram is None:
        return None
    quantiles = {f"p{100 * share:g}": rounded(histogram.quantile_s(share)) for share in (0.5, 0.9, 0.99, 0.999)}
    buckets = int(np.count_nonzero(histogram.counts))
    return {
        "total": histogram.total,
        "kind": histogram.kind,
        "buckets": buckets,
        "max": rounded(histogram.maximum_s),
    } | quantiles


def shown(result: Result) -> dict[str, Any]:
    return {
        "requests": result.requests,
        "duration_s": round(result.duration_s, 6),
        "achieved_rps": round(result.achieved_rps, 3),
        "scheduled_s": result.scheduled_s,
        "recorded_s": round(result.recorded_s, 6),
        "uncalibrated": result.uncalibrated,
        "errors": dict(sorted(result.errors.items())),
        "dropped": result.dropped,
        "size_bytes": result.size_bytes,
        "size_includes_headers": result.size_includes_headers,
        "latency": pictured(result.latency),
        "service": pictured(result.service),
        "notes": list(result.notes),
    }


@pytest.mark.parametrize("name", CASES)
def test_real_output_parses_to_its_golden_record(name: str) -> None:
    """What each tool printed becomes exactly the numbers that stand beside it."""
    made_by, stdout, stderr, exit_status, load = case(name)
    try:
        got = shown(made_by.parse(stdout, stderr, exit_status, load))
    except OutputError as error:
        got = {"error": str(error)}
    kept, now = (json.dumps(each, indent=1).splitlines() for each in (golden(name, got), got))
    if kept != now:
        pytest.fail("\n".join(difflib.unified_diff(kept, now, f"{name}.json", "parsed now", lineterm="")))


@pytest.mark.parametrize("name", ["k6/slow-open", "oha/slow-open"])
def test_slow_last_answers_do_not_lower_the_rate_of_an_open_loop(name: str) -> None:
    """They are latency; what was never sent is `dropped`. The run's own duration stays what it was."""
    made_by, stdout, stderr, exit_status, load = case(name)
    result = made_by.parse(stdout, stderr, exit_status, load)
    assert result.duration_s > 2 * load.duration_s
    assert result.achieved_rps == result.requests / load.duration_s
    assert result.requests + result.dropped >= 200


def test_the_rate_of_wrk2_is_over_the_time_for_which_its_connections_ran() -> None:
    """They begin 5 ms apart in a thread, and nothing is due on one that has not begun."""
    made_by, stdout, stderr, exit_status, load = case("wrk2/ok")
    for connections, threads, late_s in ((901, 1, 2.25), (900, 3, 0.7475)):
        result = made_by.parse(stdout, stderr, exit_status, replace(load, connections=connections, threads=threads))
        assert result.achieved_rps == pytest.approx(result.requests / (result.duration_s - late_s))
    one_each = replace(load, connections=100, rate_rps=100.0, duration_s=30.0, threads=1)
    assert made_by.parse(stdout, stderr, exit_status, one_each).least_due == 30 + 99 * 29


def test_an_open_loop_of_so_many_requests_is_scheduled_by_its_rate() -> None:
    """A closed loop has no schedule: it ends when it ends."""
    assert scheduled_s(replace(LOAD, rate_rps=50.0, requests=200)) == 4.0
    assert scheduled_s(replace(LOAD, rate_rps=50.0)) == 30.0
    assert scheduled_s(LOAD) is None


@pytest.mark.parametrize("name", [name for name in CASES if "/refused" in name or "/late" in name])
def test_a_run_in_which_nothing_was_answered_is_no_result(name: str) -> None:
    """Refused connections and timeouts throughout never become a latency of zero."""
    made_by, stdout, stderr, exit_status, load = case(name)
    with pytest.raises(OutputError):
        made_by.parse(stdout, stderr, exit_status, load)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.7, 0.9, 0.98])
def test_truncated_output_is_refused(name: str, share: float) -> None:
    """Output that stops anywhere before its end is an OutputError."""
    made_by, stdout, stderr, exit_status, load = case(name)
    cut = stdout[: int(len(stdout.rstrip()) * share)]
    with pytest.raises(OutputError):
        made_by.parse(cut, stderr, exit_status, load)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_a_truncated_csv_of_oha_is_refused_or_counted_as_dropped(share: float) -> None:
    """oha's CSV has no end mark: half a row is refused, and missing rows are dropped requests."""
    made_by, stdout, stderr, exit_status, load = case("oha/ok-open")
    cut = stdout[: int(len(stdout) * share)]
    with pytest.raises(OutputError):
        made_by.parse(cut, stderr, exit_status, load)
    if whole := cut[: cut.rfind("\n") + 1]:
        result = made_by.parse(whole, stderr, exit_status, load)
        assert result.dropped == 200 - result.requests > 0


@pytest.mark.parametrize("name", [*WHOLE, "oha/ok-open"])
@pytest.mark.parametrize(
    "text", ["", "\n", "{}", "[]", "garbage", "\x00\ufffd" * 99, "LAB end\n", '{"lab":1,}', "1,2\n"]
)
def test_garbage_is_refused_and_quoted(name: str, text: str) -> None:
    """Empty output and garbage are OutputErrors that say what stood there, and what stderr said."""
    made_by, _, _, _, load = case(name)
    with pytest.raises(OutputError, match="no such luck") as raised:
        made_by.parse(text, "no such luck\n", 0, load)
    assert "no output" in str(raised.value) or "output ends" in str(raised.value)


@pytest.mark.parametrize("name", [*WHOLE, "oha/ok-open"])
def test_whole_output_with_a_bad_exit_status_is_refused(name: str) -> None:
    """A generator that crashed after printing is not believed."""
    made_by, stdout, _, _, load = case(name)
    with pytest.raises(OutputError, match="exit status 139"):
        made_by.parse(stdout, "Segmentation fault", 139, load)


def test_latencies_of_wrk_told_as_steps_are_the_same_latencies() -> None:
    """Outputs of before the script printed steps are read on, to the same numbers."""
    made_by, stdout, stderr, exit_status, load = case("wrk/whole-latencies")
    last = 0

    def step(found: re.Match[str]) -> str:
        nonlocal last
        above, last = int(found[1]) - last, int(found[1])
        return f"{above} "

    steps = re.sub(r"^(\d+) (?=\d+$)", step, stdout.replace("LAB latency", "LAB steps"), flags=re.MULTILINE)
    assert len(steps) < len(stdout)
    assert shown(made_by.parse(steps, stderr, exit_status, load)) == shown(
        made_by.parse(stdout, stderr, exit_status, load)
    )


def test_a_wrk_that_is_stopped_in_between_leaves_its_latencies_out() -> None:
    """Its counts are told as ever; where latencies are wanted an output without them is none, and one that has them is read on."""
    made_by, stdout, stderr, exit_status, load = case("wrk/ok")
    stopped = replace(load, timed=False)
    assert "LAB steps" in made_by.files(load)["wrk.lua"]
    assert "LAB steps" not in made_by.files(stopped)["wrk.lua"]
    without = re.sub(r"^LAB steps \d+\n(\d+ \d+\n)*", "", stdout, flags=re.MULTILINE)
    assert len(without) < len(stdout) / 10
    with pytest.raises(OutputError, match="expected the block of counts"):
        made_by.parse(without, stderr, exit_status, load)
    timed = made_by.parse(stdout, stderr, exit_status, load)
    for text in (without, stdout):
        result = made_by.parse(text, stderr, exit_status, stopped)
        assert result == replace(timed, latency=result.latency, recorded_s=0.0, timed=False)
        assert result.latency.total == 0


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=300), st.integers(1, 500))
def test_wrks_made_up_latencies_are_taken_out_again(latencies_us: list[int], interval_us: int) -> None:
    """`measured_only` undoes wrk's stats_correct (here transcribed) exactly, for any latencies and interval."""
    counts = np.bincount(latencies_us, minlength=5_001)
    corrected: list[int] = counts.tolist()
    for n in range(2 * interval_us, max(latencies_us) + 1):
        m = n - interval_us
        while corrected[n] and m > interval_us:
            corrected[m] += corrected[n]
            m -= interval_us
    table = measured_only(np.array([row for row in enumerate(corrected) if row[1]]), len(latencies_us), interval_us)
    assert dict(table.tolist()) == {int(value): int(counts[value]) for value in np.flatnonzero(counts)}


def test_an_unknown_generator_has_the_nearest_known_one() -> None:
    with pytest.raises(UsageError, match=r"unknown generator 'wkr'\s+did you mean 'wrk'"):
        generator("wkr")


H2LOADS = [
    ({"keepalive": False}, "opens each connection once"),
    ({"resumption": True}, "never resumes"),
    ({"threads": 20}, "connection for every thread"),
    ({"requests": 9}, "request for every connection"),
    ({"hosts": ("a.test", "b.test")}, "one host only"),
]
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("wrk", {"rate_rps": 10.0}, "closed loop"),
    ("wrk", {"requests": 10}, "number of requests"),
    ("wrk", {"threads": 3}, "not a multiple"),
    ("wrk", {"threads": 20}, "connection for every thread"),
    ("wrk", {"duration_s": 2.5}, "whole seconds"),
    ("wrk2", {}, "needs a rate"),
    ("wrk2", {"rate_rps": 9.0}, "for every connection"),
    ("wrk2", {"rate_rps": 10.5}, "whole requests"),
    ("wrk2", {"rate_rps": 100.0, "duration_s": 20}, "30 s or more"),
    ("wrk2", {"rate_rps": 9000.0, "connections": 3000}, "calibrates for 25 s"),
    ("wrk2", {"rate_rps": 100.0, "threads": 4}, "not a multiple"),
    ("wrk2", {"rate_rps": 100.0, "requests": 5}, "number of requests"),
    ("hey", {"rate_rps": 10.0}, "closed loop"),
    ("hey", {"requests": 9}, "request for every connection"),
    ("hey", {"requests": 1_000_001}, "keeps 1000000"),
    ("k6", {"requests": 10}, "number of requests"),
    ("k6", {"rate_rps": 0.0001}, "0.001"),
    ("k6", {"streams": 2, "protocol": "h2", "url": "https://lab.test/"}, "only h2load"),
    ("h2load", {}, "over TLS alone"),
    ("h2load", {"protocol": "h2"}, "HTTP/2 is spoken over TLS here"),
    *(("h2load", {"url": "https://lab.test/", **changes}, why) for changes, why in H2LOADS),
]
NONSENSE = [
    {"connections": 0},
    {"threads": 0},
    {"duration_s": 0},
    {"duration_s": math.nan},
    {"duration_s": math.inf},
    {"rate_rps": 0.0},
    {"rate_rps": -5.0},
    {"rate_rps": math.nan},
    {"requests": 0},
    {"timeout_s": 0.0},
    {"url": "ftp://127.0.0.1/"},
]


@pytest.mark.parametrize(("name", "changes", "why"), REFUSALS)
def test_a_load_beyond_a_tools_limits_is_refused(name: str, changes: dict[str, Any], why: str) -> None:
    """Each limit that would make a tool lie about the load is a sentence, said beforehand."""
    assert why in (generator(name).refusal(replace(LOAD, **changes)) or "no refusal")


@pytest.mark.parametrize("name", sorted(GENERATORS))
@pytest.mark.parametrize("changes", NONSENSE, ids=str)
def test_a_load_that_is_none_is_refused_by_all(name: str, changes: dict[str, Any]) -> None:
    """Zero, negative, absurd: no generator takes it."""
    rate = None if "closed" in generator(name).models else 100.0
    url = LOAD.url.replace("http://", "https://")
    assert generator(name).refusal(replace(LOAD, rate_rps=rate, url=url)) is None
    assert generator(name).refusal(replace(LOAD, **({"rate_rps": rate, "url": url} | changes))) is not None


def test_wrk_and_wrk2_are_told_apart() -> None:
    """wrk2 calls itself wrk: its usage gives it away, and neither takes the other for itself."""
    wrk = "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\nUsage: wrk <options> <url>\n -t, --threads <N>"
    wrk2 = "wrk 4.0.0 [epoll] Copyright (C) 2012 Will Glozer\nUsage: wrk <options> <url>\n -U  --u_latency\n -R, --rate <T>"
    assert (generator("wrk").version(wrk), generator("wrk").version(wrk2)) == ("debian/4.1.0-3+b2", None)
    assert (generator("wrk2").version(wrk), generator("wrk2").version(wrk2)) == (None, "4.0.0")


def test_k6_collects_no_garbage_that_a_sample_could_bring_and_says_so() -> None:
    """Its version tells, so that runs without that are another generator's; what may be kept grows with the load."""
    said = "k6 v1.8.1 (go1.25.9, linux/amd64)\n"
    assert (generator("k6").version(said), generator("k6").version("wrk 4.0.0")) == ("1.8.1, GOGC=off", None)
    load = replace(LOAD, rate_rps=1000.0, connections=1000, duration_s=10.0)
    assert command(generator("k6"), "/opt/k6", load)[:6] == [
        *("env", "GOGC=off", "GOMEMLIMIT=1014MiB", "GODEBUG=http2client=0", "/opt/k6", "run")
    ]

    def limit_mib(**changes: Any) -> int:
        return int(environment(replace(load, **changes))["GOMEMLIMIT"].removesuffix("MiB"))

    assert limit_mib() < limit_mib(connections=10_000) and limit_mib() < limit_mib(rate_rps=50_000.0)
    assert limit_mib() < limit_mib(duration_s=60.0) < limit_mib(duration_s=60.0, rate_rps=None)


def test_a_wrk2_installed_as_wrk_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`find` tries the aliases, and says which program to start."""
    said = "wrk 4.0.0 [epoll] Copyright (C) 2012 Will Glozer\n  -U  --u_latency\n  -R, --rate\n"
    (tmp_path / "wrk").write_text(f"#!/bin/sh\nprintf '%s' '{said}'\nexit 1\n")
    (tmp_path / "wrk").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find(generator("wrk2")) == Installed("wrk2", str(tmp_path / "wrk"), "4.0.0")
    assert find(generator("wrk")) is None
    assert find(generator("k6")) is None


def having(*names: str) -> Any:
    return lambda wanted: Installed(wanted.name, f"/bin/{wanted.name}", "1") if wanted.name in names else None


def test_stand_ins_take_open_loops_in_their_order() -> None:
    """wrk2 missing: oha, else k6, with the reason said; a closed loop is nobody else's."""
    rate = replace(LOAD, rate_rps=100.0)
    assert choose("wrk2", rate, having("wrk2", "oha"))[0].name == "wrk2"
    assert choose("wrk2", rate, having("wrk2", "oha"))[1] is None
    assert choose("wrk2", rate, having("oha", "k6")) == (generator("oha"), "wrk2 is not installed: oha stands in")
    stand_in, reason = choose("wrk2", rate, having("k6"))
    assert (stand_in.name, reason) == ("k6", "wrk2 is not installed: k6 stands in, latency from when sent")
    with pytest.raises(UsageError, match="`wrk2` is not on PATH, and none of its stand-ins fits"):
        choose("wrk2", rate, having("wrk"))
    with pytest.raises(UsageError, match="apt-get install wrk"):
        choose("wrk", LOAD, having("oha", "k6"))
    with pytest.raises(UsageError, match="30 s or more"):
        choose("wrk2", replace(rate, duration_s=5), having("k6"))


def test_messages_of_failed_requests_become_kinds() -> None:
    """By what Go and hyper say, not by what the page is called."""
    assert error_kind('Get "http://h/timeout": dial tcp 127.0.0.1:9: connect: connection refused') == "connect"
    assert error_kind('Get "http://h/1kb": context deadline exceeded (Client.Timeout exceeded)') == "timeout"
    assert error_kind('Get "http://h/1kb": EOF') == "read"
    assert error_kind("connection closed before message completed") == "read"
    assert error_kind("write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe") == "write"
    assert error_kind("whatever") == "other"


class Slow(BaseHTTPRequestHandler):
    """Answers every GET 20 ms late with a kilobyte and the Host it was asked for."""

    protocol_version = "HTTP/1.1"
    hosts: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        time.sleep(DELAY_S)
        self.hosts.add(self.headers["Host"])
        # One write: two would meet delayed acknowledgements, 40 ms that are not ours.
        # It says that it closes, as real servers do: wrk goes by the response and counts a read error otherwise.
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        closing = b"Connection: close\r\n" if self.close_connection else b""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n" + closing + b"\r\n" + bytes(1024))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name for it)
        pass


@pytest.fixture
def slow_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Slow.hosts.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.mark.measures
@pytest.mark.parametrize("keepalive", [True, False], ids=["keep-alive", "close"])
@pytest.mark.parametrize("name", ["hey", "k6", "k6 at a rate", "oha", "oha at a rate", "wrk", "wrk2 at a rate"])
def test_the_tool_itself_measures_a_known_delay(name: str, keepalive: bool, slow_server: str, tmp_path: Path) -> None:
    """Against a server that answers after 20 ms: the right count, a median of 20 to 25 ms, the Host asked for."""
    wanted = generator(name.split()[0])
    program = find(wanted)
    if program is None:
        pytest.skip(f"{wanted.binary} is not installed")
    if wanted.name == "wrk2" and not os.environ.get("LAB_SLOW"):
        pytest.skip("wrk2 takes 30 s: set LAB_SLOW=1")
    open_loop = name.endswith("at a rate")
    duration_s = 30 if wanted.name == "wrk2" else 2
    load = Load(slow_server, "lab.test", 4, duration_s, rate_rps=50.0 if open_loop else None, keepalive=keepalive)
    assert wanted.refusal(load) is None
    for file, text in wanted.files(load).items():
        (tmp_path / file).write_text(text)
    done = subprocess.run(
        command(wanted, program.path, load),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=duration_s + 15,
        check=False,
    )
    result = wanted.parse(done.stdout, done.stderr, done.returncode, load)
    median_s = result.latency.quantile_s(0.5)
    assert median_s is not None
    assert DELAY_S <= median_s <= 0.025
    assert result.errors == {}
    assert result.dropped == 0
    expected_rps = 50 if open_loop else 4 / median_s
    assert result.achieved_rps == pytest.approx(expected_rps, rel=0.2)
    assert result.latency.total == pytest.approx(result.achieved_rps * result.recorded_s, rel=0.1)
    assert Slow.hosts == {"lab.test"}


@pytest.mark.parametrize(
    ("answers", "errors"), [((), 3), ((404,), 97), ((404, 503), 97), ((200, 404), 0), ((200, 308), 3)]
)
def test_wrk_knows_which_answers_were_expected_by_what_it_counts_as_errors(
    answers: tuple[int, ...], errors: int
) -> None:
    """400 and above: which of them came it does not tell."""
    tool, stdout, stderr, status, load = case("wrk/ok")
    told = re.sub(r"LAB errors (\d+ \d+ \d+) \d+", r"LAB errors \1 3", stdout)
    result = tool.parse(told, stderr, status, replace(load, answers=answers))
    assert result.errors.get("status", 0) == (errors if errors < 97 else result.requests - 3)


def test_only_k6_and_wrk_are_told_which_answers_are_expected() -> None:
    load = Load("http://192.0.2.1/", "lab.test", connections=4, duration_s=1, answers=(404,))
    able = {name for name, each in GENERATORS.items() if each.refusal(load) is None}
    assert able == {"k6", "wrk"}
    assert '"answers": [404]' in generator("k6").files(load)["k6.js"]


def test_the_table_has_every_generator_under_its_own_name() -> None:
    assert [each.name for each in GENERATORS.values()] == list(GENERATORS)
