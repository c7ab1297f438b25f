"""The reader of access logs: each product's own lines, what is not read, and what is refused."""

from __future__ import annotations

import gzip
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import UsageError
from lab.experiments.traffic.reading import parse_time_s, read_log
from lab.tests.support.access_logs import make_lines, make_log

LINES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("lines.toml").read_text())["line"]
COMMON = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326'


@pytest.mark.parametrize("line", LINES, ids=[f"{line['format']}-{number}" for number, line in enumerate(LINES)])
def test_a_line_of_each_products_documentation_is_read(line: dict[str, Any]) -> None:
    log = read_log("access.log", f"{line['text']}\n".encode())
    assert (log.format, log.unread) == (line["format"], 0)
    time_s, *rest = log.lines[0]
    assert [datetime.fromtimestamp(time_s, UTC).isoformat(), *rest] == line["read"]


def test_every_format_of_the_table_has_a_line() -> None:
    table = tomllib.loads(Path("lab/experiments/traffic/formats.toml").read_text())
    assert {row["name"] for row in table["text"]} | {"JSON"} == {line["format"] for line in LINES}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_that_are_not_read_are_counted_from_the_first(ending: str) -> None:
    """Among them a request by an unknown method, and one that is none."""
    others = [
        "",
        'x - - [10/Oct/2000:13:55:37 -0700] "\\x16\\x03\\x01" 400 0',
        "I0902 19:52:29.236097 6 status.go:85] new leader",
    ]
    others += ['x - - [10/Oct/2000:13:55:37 -0700] "BREW /pot HTTP/1.1" 418 0']
    log = read_log("access.log", ending.join([COMMON, *others, COMMON, COMMON, COMMON]).encode())
    assert (len(log.lines), log.unread, log.first_unread) == (4, 3, 3)


def test_a_packed_log_is_read_and_a_damaged_one_refused() -> None:
    packed = gzip.compress(make_log(100))
    assert len(read_log("access.log.gz", packed).lines) == 100
    with pytest.raises(UsageError, match="access.log.gz: is no whole gzip file"):
        read_log("access.log.gz", packed[:-30])


def test_a_log_whose_beginning_is_something_else_is_read() -> None:
    """As that of a controller, which logs its start first."""
    lines = [f"I0902 19:52:29.{number:06} 6 main.go:1] starting" for number in range(300)]
    log = read_log("access.log", "\n".join([*lines, *make_lines(1000)]).encode())
    assert (log.format, len(log.lines), log.unread) == ("ingress-nginx", 1000, 300)


@pytest.mark.parametrize(
    ("content", "place", "fault", "remedy"),
    [
        (b"", "log", "has no line", "name the access log"),
        (b"\n \n", "log", "has no line", "name the access log"),
        (b"hello\nworld\n", "log: line 1", '"hello" is no line of an access log in a known format', "known formats: ingress-nginx, Traefik"),
        (b"\x00\xff\x00" * 50, "log: line 1", "is no line of an access log in a known format", "common, Envoy, Istio, HAProxy, JSON"),
        (f"{COMMON}\nx\ny\n".encode(), "log: line 2", '"x" is not in the format common, and neither are half of the lines', "known formats"),
        (b'{"a":1,"b":2}\n', "log: line 1", "JSON with the fields a, b is no line", "name time, host, method, path and size as lab/experiments/traffic/formats.toml has them"),
        (b'{"a":\n', "log: line 1", "broken JSON is no line", "name time, host, method, path and size"),
        (b"kind: ConfigMap\ndata:\n  keep-alive: '5'\n", "log: line 1", '"kind: ConfigMap" is no line', "known formats"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_refused_with_place_fault_and_remedy(
    content: bytes, place: str, fault: str, remedy: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read_log("log", content)
    assert refused.value.place == place
    assert fault in refused.value.fault and remedy in refused.value.remedy
    assert refused.value.exit_status == 2


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        *((text, 1_700_000_000.5) for text in ("1700000000.5", "1700000000500", "1700000000500000", "1700000000500000000")),
        ("2023-11-14T22:13:20.500Z", 1_700_000_000.5),
        ("2023-11-14T23:13:20.5+0100", 1_700_000_000.5),
        ("14/Nov/2023:22:13:20 +0000", 1_700_000_000.0),
        *((text, None) for text in ("", "-", "nan", "inf", "1e999", "14/Now/2023:22:13:20 +0000", "99/Nov/2023:22:13:20", "22:13:20")),
    ],
)  # fmt: skip
def test_times_are_read_in_any_unit_and_nothing_else_is_one(text: str, time_s: float | None) -> None:
    assert parse_time_s(text) == time_s
