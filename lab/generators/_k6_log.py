"""The parser of the log in which k6 records every request; k6 writes it to stderr for a load that is `logged`.

A line of the log, and its row in REQUESTS_SCHEMA:

    request 7 1763764412345 1763764412415 70.512 71.224 0.634 200 - backend-5c 9003 17
        →  number 7, sent 70.512 ms and done 71.224 ms after the run began, 200, answered by "backend-5c 9003 17"

The two long numbers are times of the wall clock in whole milliseconds, rounded down: when the schedule began, and when the
request was sent. The next two numbers count from the beginning of the run, in milliseconds with three decimals: when the
request was sent, and when it was done. Then comes the service time in milliseconds. The parser combines both kinds of times.

Every line gives an estimate of the wall-clock time at which the run began: the second long number minus the time of sending.
The latest estimate is used, because rounding down only makes an estimate too early. The schedule began up to a millisecond
after its rounded time. The latest time is used at which no request was sent before it was due. So all times are right relative
to one another, and within 1 ms relative to the wall clock.

A log with a gap is refused, because the missing request might be the one that failed. A line whose numbers contradict one
another is refused, too.
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
"""The milliseconds by which the two clocks of a line may disagree; they are read one after the other."""
SERVICE_MS = 1.0
"""The milliseconds by which a service time may exceed the time from sent to done, which another clock measures."""
_SOUND = (
    (pl.col("done_ms") >= pl.col("sent_ms"))
    & (pl.col("service_ms") <= pl.col("done_ms") - pl.col("sent_ms") + SERVICE_MS)
    & pl.when(pl.col("kind") == "-").then(pl.col("status").is_between(200, 599)).otherwise(pl.col("status") == 0)
    & ((pl.col("wall_ms") - pl.col("start_ms") - pl.col("sent_ms")).abs() <= CLOCKS_MS)
)
"""The condition that the numbers of a line fulfil when they are k6's."""


def parse_requests(log: str, count: int, rate_rps: float, dropped: bool = False) -> pl.DataFrame:
    """Parse the log in which k6 records every request, into a table with one row per request.

    The table has the columns of `lab.model.requests.REQUESTS_SCHEMA`. k6 writes such a log to stderr for a load that is
    `logged`.

    Args:
        log: The content of stderr.
        count: The number of requests that k6 made.
        rate_rps: The offered rate in requests per second, from which the time is computed when each request was due.
        dropped: Whether k6 left out some of the requests that were due. Because k6 numbers only the requests that it
            sent, the due times are then unknown, and the column `due_s` has the times when the requests were sent.

    Raises:
        OutputError: The requests in the log are not numbered from 0 without gaps, or a line is faulty.

    """
    rows = _rows(log).sort("number", maintain_order=True)
    _refuse_gaps(rows["number"], count)
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
    """Parse the lines of k6's log that describe a request; all other lines are ignored.

    Raises:
        OutputError: The last line is cut off, a line that begins like a request has another form, or the numbers in a
            line contradict each other.

    """
    *complete, cut = log.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split("\n")
    expect(not cut, f"expected whole lines, the last one is cut: {cut[:120]!r}")
    lines = pl.Series("line", [line for line in complete if line.startswith("request ")], pl.String)
    fields = lines.str.extract_groups(_LINE).struct.unnest()
    if (wrong := lines.filter(fields["number"].is_null())).len():
        raise OutputError(f"expected a line of the log of requests, got {wrong[0][:120]!r}")
    rows = fields.with_columns(
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


def _refuse_gaps(numbers: pl.Series, count: int) -> None:
    """Check that the sorted numbers of the requests in k6's log are 0, 1, 2, … without gaps and repetitions.

    Args:
        numbers: The numbers, in ascending order.
        count: How many numbers there must be.

    Raises:
        OutputError: A number is missing or there twice, or there are more or fewer numbers than `count`.

    """
    expect(not numbers.is_duplicated().any(), "expected every request once in the log, one is there twice")
    values = numbers.to_numpy()
    missing = np.flatnonzero(values != np.arange(values.size))
    fault = f"number {missing[0]} is missing" if missing.size else f"got {values.size}"
    expect(not missing.size and values.size == count, f"expected {count} requests in the log, numbered from 0: {fault}")
