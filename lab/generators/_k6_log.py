"""The log of requests that k6 writes to stderr for a `logged` load. A line in, and the row out (REQUESTS_SCHEMA):

    request 7 1763764412345 1763764412415 70.512 71.224 0.634 200 - backend-5c 9003 17
        →  number 7, sent 70.512 ms and done 71.224 ms after the run began, 200, answered by "backend-5c 9003 17"

The third and fourth numbers are milliseconds of the wall clock, cut to whole ones: when the schedule began, and now.
Everything else is counted from the run's beginning in microseconds. Both meet here: the run's beginning is the latest time that
any line allows (`now` is cut off, never rounded up), the schedule's is the cut time, less than a millisecond later, as
late as the promptest request allows. So all times are right relative to one another, and to the clock within 1 ms.

A log is read twice, a piece at a time: for when it all began, which no line tells by itself, and for its rows.
Refuses a log with a gap: a request that is missing might be the one that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.generators.pieces import Pieces, whole_lines
from lab.model.load import OutputError
from lab.model.requests import REQUESTS_SCHEMA

WORDS = ("request", "number", "start_ms", "wall_ms", "sent_ms", "done_ms", "service_ms", "status", "kind", "answer")
_LINE = (
    r"^request [0-9]{1,18} [0-9]+ [0-9]+ [0-9]+\.[0-9]{3} [0-9]+\.[0-9]{3} [0-9]+\.[0-9]{3} [0-9]{1,3} (?:-|[a-z]+) .*$"
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Milliseconds: the run's beginning by the wall clock, and the schedule's after it."""

    began_ms: float
    schedule_ms: float


def requests_of(log: Pieces, made: int | None, rate_rps: float, dropped: bool = False) -> pl.DataFrame:
    """Every one of the `made` requests (None: as many as there are), as REQUESTS_SCHEMA has it.

    `dropped`: some were not sent. k6 numbers those that it sent: when these were due cannot be told then, and `due_s` is when
    they were sent. OutputError unless each request from 0 on is there once.
    """
    begun = beginning(log(), made, rate_rps)
    parts = [_rows(lines, begun, rate_rps) for lines in lines_of(log())]
    found = pl.concat([pl.DataFrame(schema=REQUESTS_SCHEMA), *parts]).sort("number")
    return found.with_columns(due_s=pl.col("sent_s")) if dropped else found


def lines_of(log: Iterable[bytes]) -> Iterator[pl.DataFrame]:
    """The log's lines piece by piece, as columns of text (WORDS); k6's other lines are left out. OutputError for one that is cut."""
    for piece in whole_lines(log):
        lines = pl.Series("line", [piece.decode("utf-8", "replace")]).str.split("\n").explode()
        told = lines.filter(lines.str.starts_with("request "))
        wrong = told.filter(~told.str.contains(_LINE))
        if wrong.len():
            raise OutputError(f"expected a line of the log of requests, got {wrong[0][:120]!r}")
        if told.len():
            words = told.str.splitn(" ", len(WORDS)).struct.unnest()
            words.columns = list(WORDS)
            yield words


def beginning(log: Iterable[bytes], made: int | None, rate_rps: float) -> Beginning:
    """What has to be known of all lines; OutputError unless every number is there once."""
    expected, early = 0, np.zeros(0, dtype=np.int64)
    began_ms, soonest_ms, start_ms = -np.inf, np.inf, 0.0
    for lines in lines_of(log):
        number, sent_ms = numbers(lines), milliseconds(lines, "sent_ms")
        expected, early = _numbered(expected, np.concatenate([early, number]))
        began_ms = max(began_ms, float((milliseconds(lines, "wall_ms") - sent_ms).max()))
        soonest_ms = min(soonest_ms, float((sent_ms - due_ms(number, rate_rps)).min()))
        start_ms = float(lines["start_ms"][int(np.argmin(number))]) if 0 in number else start_ms
    if early.size or (made is not None and expected != made):
        wanted = "all" if made is None else made
        fault = f"number {expected} is missing" if early.size else f"got {expected}"
        raise OutputError(f"expected {wanted} requests in the log, numbered from 0: {fault}")
    schedule_ms = start_ms - began_ms
    return Beginning(began_ms, schedule_ms + float(np.clip(soonest_ms - schedule_ms, 0, 1)))


def numbers(lines: pl.DataFrame) -> Ints:
    return lines["number"].cast(pl.Int64).to_numpy()


def milliseconds(lines: pl.DataFrame, name: str) -> Floats:
    return lines[name].cast(pl.Float64).to_numpy()


def due_ms(number: Ints, rate_rps: float) -> Floats:
    """After the schedule's beginning."""
    return number * 1000 / rate_rps


def _numbered(expected: int, found: Ints) -> tuple[int, Ints]:
    """(the number that comes next, those that came before their turn). OutputError for one that was there before."""
    ordered = np.sort(found)
    if ordered.size and (ordered[0] < expected or bool((np.diff(ordered) == 0).any())):
        raise OutputError("expected every request once in the log, one is there twice")
    fits = ordered == expected + np.arange(ordered.size)
    count = ordered.size if bool(fits.all()) else int(np.argmin(fits))
    return expected + count, ordered[count:]


def _rows(lines: pl.DataFrame, begun: Beginning, rate_rps: float) -> pl.DataFrame:
    number = numbers(lines)
    columns = {
        "number": number,
        "due_s": (begun.began_ms + begun.schedule_ms + due_ms(number, rate_rps)) * 1e-3,
        "sent_s": (begun.began_ms + milliseconds(lines, "sent_ms")) * 1e-3,
        "done_s": (begun.began_ms + milliseconds(lines, "done_ms")) * 1e-3,
        "status": lines["status"].cast(pl.Int32),
        "error": lines["kind"].replace("-", ""),
        "answer": lines["answer"],
        "service_s": milliseconds(lines, "service_ms") * 1e-3,
    }
    return pl.DataFrame(columns, schema=REQUESTS_SCHEMA)
