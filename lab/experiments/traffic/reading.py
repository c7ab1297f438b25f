"""The reader of an access log: it returns the time, host, method, path and size of each line.

    1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326   →   LogLine(971211336.0, "", "GET", "/a", 2326)

The known formats are the rows of `formats.toml`. A log has the format that fits most lines of its beginning. Other parts
of a line are discarded. A line of another format, or with an unknown method, is counted as unread. If half of the lines
or more are unread, the file is refused.
"""

from __future__ import annotations

import gzip
import json
import re
import tomllib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple, cast

from lab.base.errors import UsageError, refuse_if
from lab.model.traffic import METHODS

FORMATS = Path(__file__).with_name("formats.toml")
BEGINNING = 2000
"""The lines of a log's beginning that decide which format it has."""
LEAST_READ = 0.5
"""The share of a log's lines of which more must be read; otherwise the log is refused."""
QUOTED_CHARACTERS = 60
"""The characters of a line that an error quotes."""
NO_LINE = "no line of an access log in a known format"
PATHS, ANY = "first path segments", "JSON"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_LATEST_S = 1e11
"""The number from which on a time is in milliseconds, or smaller units: as seconds it would be in the year 5138."""


class LogLine(NamedTuple):
    """The values read from one line of an access log. The host is in lower case, and empty if the line has none.

    A line without a size has the size 0. The path has no query.
    """

    time_s: float
    host: str
    method: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AccessLog:
    """The requests in an access log.

    Attributes:
        format: The name of the log's format.
        hosts_are: What the log has as hosts, in words: for example `hosts`, or `first path segments` for a format without hosts.
        lines: The lines that could be read.
        unread: The number of lines that could not be read.
        first_unread: The number of the first such line, from 1; 0: there is none.

    """

    format: str
    hosts_are: str
    lines: Sequence[LogLine]
    unread: int
    first_unread: int


ReadLine = Callable[[str], LogLine | None]
"""The type of functions that read one line; None for a line of another format."""


def read_log(place: str, content: bytes) -> AccessLog:
    """Read the requests of an access log, which may be packed by gzip.

    Args:
        place: The name of the file, for errors.
        content: The content of the file.

    Raises:
        UsageError: The file is empty, a damaged gzip file, or half of its lines or more are not in the format that fits it best.

    """
    try:
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(place, f"is no whole gzip file: {error}", "send what is in it: zcat FILE | … -") from None
    numbered = [
        (number, line) for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1) if line.strip()
    ]
    refuse_if(not numbered, place, "has no line", "name the access log of a proxy, with at least some hundred requests")
    table = tomllib.loads(FORMATS.read_text("utf-8"))
    formats = {
        row["name"]: (row.get("hosts", PATHS), _make_reader(row["pattern"], table["parts"])) for row in table["text"]
    }
    formats[ANY] = ("hosts", _make_json_reader(table["json"]))
    beginning = [line for _, line in numbered[:BEGINNING]]
    name = max(formats, key=lambda name: sum(formats[name][1](line) is not None for line in beginning))
    hosts_are, read = formats[name]
    lines, unread = list[LogLine](), list[int]()
    for number, text in numbered:
        line = read(text.rstrip("\r"))
        if line is None:
            unread.append(number)
        else:
            lines.append(line)
    if len(lines) <= LEAST_READ * len(numbered):
        raise _explain_unread(place, dict(numbered), unread[0], name if lines else "", formats)
    return AccessLog(name, hosts_are, lines, len(unread), unread[0] if unread else 0)


def _explain_unread(
    place: str,
    numbered: Mapping[int, str],
    first: int,
    nearest: str,
    formats: Mapping[str, object],
) -> UsageError:
    """Return the error for a file that is no access log in a known format, because half of its lines or more cannot be read.

    The error quotes the beginning of the first line that cannot be read. Of a JSON line it lists the fields instead, or states that the
    JSON is broken.

    Args:
        place: The name of the file.
        numbered: Number of a line, from 1 → its text.
        first: The number of the first line that cannot be read.
        nearest: The name of the format that fits best; empty: none fits any line.
        formats: The known formats by name.

    """
    text = "".join(character if character.isprintable() else "?" for character in numbered[first].strip())
    subject = f'"{text[:QUOTED_CHARACTERS]}{"…" if len(text) > QUOTED_CHARACTERS else ""}"'
    remedy = f"known formats: {', '.join(formats)}"
    if text.startswith("{"):
        row = _parse_object(text)
        subject = f"JSON with the fields {', '.join(row)[:QUOTED_CHARACTERS]}" if row else "broken JSON"
        remedy = f"name time, host, method, path and size as lab/experiments/traffic/{FORMATS.name} has them"
    fault = f"not in the format {nearest}, and neither are half of the lines" if nearest else NO_LINE
    return UsageError(f"{place}: line {first}", f"{subject} is {fault}", remedy)


def _make_reader(pattern: str, parts: Mapping[str, str]) -> ReadLine:
    """Return a function that reads log lines of one format; the function returns None for any other line.

    A line of the format is also refused (None) if its time, method, path or size is not valid.

    Args:
        pattern: The format's regular expression, whose groups are the fields of a line.
        parts: Abbreviation in the pattern → the expression that replaces it.

    """
    for name, part in parts.items():
        pattern = pattern.replace(name, part)
    match = re.compile(pattern).match

    def read(text: str) -> LogLine | None:
        found = match(text)
        return None if found is None else _make_line(found.groupdict())

    return read


def _make_json_reader(fields: Mapping[str, Sequence[str]]) -> ReadLine:
    """Return a function that reads log lines that are JSON objects; the function returns None for any other line.

    An object is also refused (None) if its time, method, path or size is not valid, or if one of the first three is missing.

    Args:
        fields: Field of a log line (`time`, `host`, …) → the names that it may have in the objects, in order of preference.

    """

    def read(text: str) -> LogLine | None:
        row = _parse_object(text)
        values = {
            field: str(row[name])
            for field, names in fields.items()
            if (name := next(filter(row.__contains__, names), None))
        }
        method, _, rest = values.pop("request", "").partition(" ")
        return _make_line({"method": method, "path": rest.partition(" ")[0]} | values)

    return read


def _parse_object(text: str) -> dict[str, Any]:
    """Parse a log line as a JSON object: name → value; empty for any other line.

    A field `b` of an inner object `a` gets the name `a.b`. Lists and nulls of the outer object are left out. Text in front of the object is
    ignored.
    """
    try:
        row = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    inner = {
        f"{name}.{key}": item
        for name, value in row.items()
        if isinstance(value, dict)
        for key, item in cast("dict[str, Any]", value).items()
    }
    return {
        name: value for name, value in row.items() if not isinstance(value, (dict, list)) and value is not None
    } | inner


def _make_line(values: Mapping[str, str | None]) -> LogLine | None:
    """Return a log line with these values; None if the time, method, path or size is not valid.

    The query of a path is removed. If the path is an entire URL, its host replaces the field `host`.

    Args:
        values: Field (`time`, `host`, `method`, `path`, `size`) → its text in the log, or None.

    """
    method, path, size = values.get("method") or "", values.get("path") or "", values.get("size") or "-"
    time_s = parse_time_s(values.get("time") or "")
    host = values.get("host") or ""
    if "://" in path.partition("?")[0]:
        host, _, path = path.partition("://")[2].partition("/")
        path = f"/{path}"
    if (
        time_s is None
        or method not in METHODS
        or not path.startswith(("/", "*"))
        or not (size.isdigit() or size == "-")
    ):
        return None
    return LogLine(time_s, host.lower(), method, path.partition("?")[0], 0 if size == "-" else int(size))


@lru_cache(maxsize=4096)
def parse_time_s(text: str) -> float | None:
    """Parse a time as access logs write it, and return the seconds since 1970; None for anything else.

    Known forms are `10/Oct/2000:13:55:36 -0700`, `06/Feb/2009:12:14:14.655`, ISO 8601 with colons, and a number of seconds, ms, µs or ns
    since 1970. A time without a zone counts as UTC.
    """
    try:
        if "/" in text:
            clock, _, zone = text.partition(" ")
            day, month, rest = clock.split("/", 2)
            year, _, hours = rest.partition(":")
            text = f"{year}-{_MONTHS.index(month) + 1:02}-{day:0>2}T{hours}{zone}"
        elif ":" not in text:
            value = float(text)
            while _LATEST_S < value < inf:
                value /= 1000
            return value if isfinite(value) else None
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
