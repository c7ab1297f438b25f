"""The log of requests that k6 writes to stderr for a `logged` load. A line in, and the row out (REQUESTS_SCHEMA):

    request 7 1763764412345 1763764412415 70.512 71.224 0.634 200 - backend-5c 9003 17
        →  number 7, sent 70.512 ms and done 71.224 ms after the run began, 200, answered by "backend-5c 9003 17"

The third and fourth numbers are milliseconds of the wall clock, cut to whole ones: when the schedule began, and now.
Everything else is counted from the run's beginning in microseconds. Both meet here: the run's beginning is the latest time that
any line allows (`now` is cut off, never rounded up), the schedule's is the cut time, less than a millisecond later, as
late as the promptest request allows. So all times are right relative to one another, and to the clock within 1 ms.
Refuses a log with a gap: a request that is missing might be the one that failed.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from lab.generators import OutputError
from lab.requests import REQUESTS_SCHEMA

_LINE = re.compile(
    r"request (\d+) (\d+) (\d+) (\d+\.\d{3}) (\d+\.\d{3}) (\d+\.\d{3}) (\d{1,3}) (-|[a-z]+) (.*)", re.ASCII
)


def requests_of(log: str, made: int, rate_rps: float) -> pl.DataFrame:
    """Every one of the `made` requests, as REQUESTS_SCHEMA has it. OutputError for a log that does not have them all."""
    lines = [line for line in log.split("\n") if line.startswith("request ")]
    found = [_LINE.fullmatch(line) for line in lines]
    if None in found:
        raise OutputError(f"expected a line of the log of requests, got {lines[found.index(None)][:120]!r}")
    rows = sorted((each.groups() for each in found if each is not None), key=lambda row: int(row[0]))
    if [int(row[0]) for row in rows] != list(range(made)):
        last = int(rows[-1][0]) if rows else "none"
        raise OutputError(
            f"expected {made} requests in the log, numbered from 0, got {len(rows)}, the last of them {last}"
        )
    number = np.arange(made)
    start_ms, wall_ms, sent_ms, done_ms, service_ms = (
        np.array([float(row[column]) for row in rows]) for column in range(1, 6)
    )
    began_ms = float((wall_ms - sent_ms).max())
    due_ms = number * 1000 / rate_rps
    schedule_ms = float(start_ms[0]) - began_ms
    schedule_ms += float(np.clip((sent_ms - due_ms).min() - schedule_ms, 0, 1))
    columns = {
        "number": number,
        "due_s": (began_ms + schedule_ms + due_ms) * 1e-3,
        "sent_s": (began_ms + sent_ms) * 1e-3,
        "done_s": (began_ms + done_ms) * 1e-3,
        "status": [int(row[6]) for row in rows],
        "error": ["" if row[7] == "-" else row[7] for row in rows],
        "answer": [row[8] for row in rows],
        "service_s": service_ms * 1e-3,
    }
    return pl.DataFrame(columns, schema=REQUESTS_SCHEMA)
