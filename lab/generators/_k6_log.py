"""The log of requests that k6 writes to stderr for a `logged` load. A line in, and the row out (REQUESTS_SCHEMA):

    request 7 1763764412345 1763764412415 70.512 71.224 0.634 200 - backend-5c 9003 17
        →  number 7, sent 70.512 ms and done 71.224 ms after the run began, 200, answered by "backend-5c 9003 17"

The third and fourth numbers are milliseconds of the wall clock, cut to whole ones: when the schedule began, and now.
Everything else is counted from the run's beginning in microseconds. Both meet here: the run's beginning is the latest time that
any line allows (`now` is cut off, never rounded up), the schedule's is the cut time, less than a millisecond later, as
late as the promptest request allows. So all times are right relative to one another, and to the clock within 1 ms.

Refuses a log with a gap: a request that is missing might be the one that failed. And a line whose numbers contradict one another.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from lab.model.load import OutputError, expect
from lab.model.requests import REQUESTS_SCHEMA

_LINE = (
    r"^request (?P<number>[0-9]{1,18}) (?P<start_ms>[0-9]{1,18}) (?P<wall_ms>[0-9]{1,18}) (?P<sent_ms>[0-9]{1,15}\.[0-9]{3})"
    r" (?P<done_ms>[0-9]{1,15}\.[0-9]{3}) (?P<service_ms>[0-9]{1,15}\.[0-9]{3}) (?P<status>[0-9]{1,3}) (?P<kind>-|[a-z]+)"
    r" (?P<answer>.*)$"
)
CLOCKS_MS = 1000.0
"""By so much a line's two clocks may disagree, each read after the other."""
SERVICE_MS = 1.0
"""So much longer than from sent to done an answer's own time may be: the two are taken by different clocks."""
_SOUND = (
    (pl.col("done_ms") >= pl.col("sent_ms"))
    & (pl.col("service_ms") <= pl.col("done_ms") - pl.col("sent_ms") + SERVICE_MS)
    & pl.when(pl.col("kind") == "-").then(pl.col("status").is_between(200, 599)).otherwise(pl.col("status") == 0)
    & ((pl.col("wall_ms") - pl.col("start_ms") - pl.col("sent_ms")).abs() <= CLOCKS_MS)
)
"""What a line's numbers say of one another when they are k6's."""


def requests_of(log: str, made: int | None, rate_rps: float, dropped: bool = False) -> pl.DataFrame:
    """Every one of the `made` requests (None: as many as there are), as REQUESTS_SCHEMA has it.

    `dropped`: some were not sent. k6 numbers those that it sent: when these were due cannot be told then, and `due_s` is when
    they were sent. OutputError unless each request from 0 on is there once.
    """
    rows = _rows(log).sort("number", maintain_order=True)
    _refuse_gaps(rows["number"], made)
    sent_ms, due_ms = rows["sent_ms"].to_numpy(), rows["number"].to_numpy() * 1000 / rate_rps
    began_ms = float((rows["wall_ms"].to_numpy() - sent_ms).max(initial=-np.inf))
    schedule_ms = 0.0
    if rows.height:
        schedule_ms = rows["start_ms"][0] - began_ms
        schedule_ms += float(np.clip((sent_ms - due_ms).min() - schedule_ms, 0, 1))
    sent_s = (began_ms + sent_ms) * 1e-3
    columns = {
        "number": rows["number"],
        "due_s": sent_s if dropped else (began_ms + schedule_ms + due_ms) * 1e-3,
        "sent_s": sent_s,
        "done_s": (began_ms + rows["done_ms"].to_numpy()) * 1e-3,
        "status": rows["status"],
        "error": rows["kind"].replace("-", ""),
        "answer": rows["answer"],
        "service_s": rows["service_ms"].to_numpy() * 1e-3,
    }
    return pl.DataFrame(columns, schema=REQUESTS_SCHEMA)


def _rows(log: str) -> pl.DataFrame:
    """The log's requests; k6's other lines are left out. OutputError for a line that is cut, or whose numbers contradict one another."""
    *whole, cut = log.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split("\n")
    expect(not cut, f"expected whole lines, the last one is cut: {cut[:120]!r}")
    lines = pl.Series("line", [line for line in whole if line.startswith("request ")], pl.String)
    words = lines.str.extract_groups(_LINE).struct.unnest()
    if (wrong := lines.filter(words["number"].is_null())).len():
        raise OutputError(f"expected a line of the log of requests, got {wrong[0][:120]!r}")
    rows = words.with_columns(
        pl.col("number", "start_ms", "wall_ms").cast(pl.Int64),
        pl.col("sent_ms", "done_ms", "service_ms").cast(pl.Float64),
        pl.col("status").cast(pl.Int32),
    )
    if (unsound := rows.filter(~_SOUND)).height:
        number = unsound["number"][0]
        raise OutputError(
            f"expected times and a status that fit one another in the log of requests: those of {number} do not"
        )
    return rows


def _refuse_gaps(numbers: pl.Series, made: int | None) -> None:
    """OutputError unless these, in order, are all from 0 on, each once."""
    expect(not numbers.is_duplicated().any(), "expected every request once in the log, one is there twice")
    there = numbers.to_numpy()
    missing = np.flatnonzero(there != np.arange(there.size))
    if missing.size or (made is not None and there.size != made):
        wanted = "all" if made is None else made
        fault = f"number {missing[0]} is missing" if missing.size else f"got {there.size}"
        raise OutputError(f"expected {wanted} requests in the log, numbered from 0: {fault}")
