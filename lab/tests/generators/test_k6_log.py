"""k6's log of requests: real logs against their golden tables and logs with a fault.

A golden table is the text `<case>.requests` beside the case; `LAB_GOLDEN=write` writes it anew.
"""

import json
import os
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from lab.generators import GENERATORS, get_generator
from lab.generators._k6_log import parse_requests
from lab.generators.k6 import KINDS
from lab.model.load import GeneratorLoad, OutputError
from lab.model.requests import REQUESTS_SCHEMA, good
from lab.tests.support import recorded

K6 = get_generator("k6")
LOAD = GeneratorLoad(
    "http://127.0.0.1:1/", "lab.test", connections=100, duration_s=1, rate_rps=50.0, keepalive=False, logged=True
)
LINE = "request {} 1000000 {} {}.250 {}.750 0.400 200 - backend-0 9003 17"


def case(name: str) -> tuple[str, str, GeneratorLoad]:
    _, stdout, stderr, _, load = recorded.case(f"k6/{name}")
    return stdout, stderr, load


def log(*numbers: int) -> str:
    """Every 20 ms one, sent a quarter of a millisecond after it was due, of a run that began at 999.995 s."""
    return "\n".join(LINE.format(n, 1000000 + 20 * n, 5 + 20 * n, 5 + 20 * n) for n in numbers) + "\n"


@pytest.mark.parametrize("name", ["logged", "logged-failing"])
def test_a_real_log_becomes_its_golden_table_and_agrees_with_its_summary(name: str) -> None:
    """Times count from when the first was due; as many of each kind, and nothing is sent before it is due or done before it is sent."""
    stdout, stderr, load = case(name)
    frame, result = K6.requests(stdout, stderr, load), K6.parse(stdout, stderr, 0, load)
    assert dict(frame.schema) == REQUESTS_SCHEMA
    first_s = frame["due_s"][0]
    shown = frame.with_columns(
        *((pl.col(column) - first_s).round(5) for column in ("due_s", "sent_s", "done_s")), pl.col("service_s").round(6)
    ).write_csv()
    table = f"k6/{name}.requests"
    if os.environ.get("LAB_GOLDEN") == "write":
        recorded.keep_text(table, shown)
    assert shown == recorded.text(table)
    kinds = dict(frame.filter(pl.col("error") != "")["error"].value_counts().iter_rows())
    assert kinds == {kind: n for kind, n in result.errors.items() if kind != "status"}
    wrong = frame.filter((pl.col("error") == "") & ~good(frame)).height
    assert wrong == result.errors.get("status", 0)
    assert frame.filter((pl.col("sent_s") < pl.col("due_s") - 1e-6) | (pl.col("done_s") < pl.col("sent_s"))).is_empty()


def test_answers_say_where_they_come_from_and_a_truncated_log_is_refused() -> None:
    stdout, stderr, load = case("logged")
    assert set(K6.requests(stdout, stderr, load)["answer"]) == {"backend-0 9003 17"}
    for cut in (100, 2000):
        with pytest.raises(OutputError, match=r"requests in the log|a line of the log|the last one is cut"):
            K6.requests(stdout, stderr.rstrip("\n")[:-cut], load)
    failing = K6.requests(*case("logged-failing"))
    assert set(failing.filter(pl.col("status") == 200)["answer"]) == {"backend-0"}
    assert set(failing.filter(pl.col("status") != 200)["answer"]) == {""}


def test_times_come_from_the_finer_clock() -> None:
    """Known answer: a clock that is cut to milliseconds, and a schedule that began 0.25 ms after one."""
    frame = parse_requests(log(0, 1, 2), 3, 50.0)
    assert frame["due_s"].to_list() == pytest.approx([1000.0, 1000.02, 1000.04], abs=1e-6)
    assert frame["sent_s"].to_list() == pytest.approx([1000.0, 1000.02, 1000.04], abs=1e-6)
    late = log(0, 1).replace(" 25.250 25.750", " 28.250 28.750").replace("1000020", "1000023")
    assert (parse_requests(late, 2, 50.0)["sent_s"] - parse_requests(late, 2, 50.0)["due_s"])[1] == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (log(0, 2), "expected 3 requests in the log, numbered from 0: number 1 is missing"),
        (log(1, 2), "number 0 is missing"),
        (log(0, 1, 1), "expected every request once in the log, one is there twice"),
        (log(0, 1, 2, 3), "expected 3 requests in the log, numbered from 0: got 4"),
        ("", "got 0"),
        (log(0, 1, 2)[:-1], "the last one is cut"),
        *(
            (f"{log(0, 1)}{line}\n", "expected (a line|times and a status that fit one another).* (of|in) the log")
            for line in (
                "request +2 1000000 1000040 45.250 45.750 0.400 200 - x",
                "request ２ 1000000 1000040 45.250 45.750 0.400 200 - x",
                "request 2 1000000 1000040 4e1.250 45.750 0.400 200 - x",
                "request 2 1000000 1000040 45.250 45.750 inf 200 - x",
                "request 2 1000000 1000040 45.250 45.750 0.400 2000 - x",
                "request 2 1000000 1000040 45.250 45.750 0.400 -",
                "request 2 1000000 1000040 45.250 45.750 0.400 200 -",
                "request 2  1000000 1000040 45.250 45.750 0.400 200 - x",
                "request 2 99999999999999999999 1000040 45.250 45.750 0.400 200 - x",
                "request 2 1000000 10request 3 1000000 1000060 65.250 65.750 0.400 200 - x",
                "request 2 1000000 1000040 45.250 44.750 0.400 200 - x",
                "request 2 1000000 1000040 45.250 45.750 9.400 200 - x",
                "request 2 1000000 1000040 45.250 45.750 0.400 200 read x",
                "request 2 1000000 2000080 45.250 45.750 0.400 200 - x",
                "request ",
            )
        ),
    ],
)
def test_a_log_with_a_gap_or_a_line_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(OutputError, match=said):
        parse_requests(text, 3, 50.0)


@pytest.mark.parametrize(
    "other", ["request", "requests 9", "", "\r", "a request 9 1 2", "\udcff\udcfe", 'Error: "EOF"']
)
def test_lines_of_others_and_their_order_do_not_matter(other: str) -> None:
    """k6 complains into the same stream, whatever bytes are in it, and slow answers are told later; an answer may hold any, too."""
    lines = log(0, 1, 2).splitlines()
    mixed = "\n".join([lines[2] + ' \x01 é\x85\u2028 "', other, lines[0], other, lines[1], ""])
    assert parse_requests(mixed, 3, 50.0).drop("answer").equals(parse_requests(log(0, 1, 2), 3, 50.0).drop("answer"))
    assert parse_requests(f"{other}\n", 0, 50.0).is_empty()


def test_dropped_requests_leave_those_that_were_sent() -> None:
    """k6 numbers only those, so nobody knows when they were due: that some were dropped is said by its summary."""
    stdout, stderr, load = case("logged-dropped")
    frame, result = K6.requests(stdout, stderr, load), K6.parse(stdout, stderr, 0, load)
    assert result.dropped
    assert frame.height == result.requests + sum(n for kind, n in result.errors.items() if kind != "status")
    assert frame["due_s"].equals(frame["sent_s"])


def test_a_logged_load_that_nobody_answered_is_an_outcome() -> None:
    told = {"lab": 1, "duration_ms": 60.0, "made": 3, "dropped": 0, "received_bytes": 0, "latency": None}
    stdout = json.dumps({**told, "errors": dict.fromkeys(KINDS, 0) | {"connect": 3}}, separators=(",", ":"))
    refused = log(0, 1, 2).replace("200 - backend-0 9003 17", "0 connect ")
    result, frame = K6.parse(stdout, refused, 0, LOAD), K6.requests(stdout, refused, LOAD)
    assert (result.requests, result.latency.total, result.errors) == (0, 0, {"connect": 3})
    assert result.latency.quantile_s(0.5) is None
    assert frame["error"].to_list() == ["connect"] * 3
    with pytest.raises(OutputError, match="no request was answered: 3 made"):
        K6.parse(stdout, refused, 0, replace(LOAD, logged=False))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate_rps": None}, "needs a rate"),
        ({"keepalive": True}, "needs keepalive = false"),
        ({"generators": 2}, "made by one generator"),
    ],
)
def test_loads_whose_log_would_mislead_are_refused(changes: dict[str, Any], said: str) -> None:
    """And any by whoever keeps no log."""
    assert K6.refusal(LOAD) is None
    assert said in (K6.refusal(replace(LOAD, **changes)) or "")
    for other in (each for each in GENERATORS.values() if each.name != "k6"):
        assert "only k6 logs every request" in (other.refusal(LOAD) or "")
        with pytest.raises(OutputError, match=f"{other.name} does not log"):
            other.requests("", "", LOAD)
