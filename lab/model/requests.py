"""The table of all requests of a load: when each was due, sent and done, and the answer.

Of the load generators, only k6 reports them. Times are seconds since the epoch by the clock of the generator's machine; `shifted`
converts them to the lab's clock. Generators and records share only this table, so it has a module to itself.
"""

from __future__ import annotations

import polars as pl

REQUESTS_SCHEMA = {
    "number": pl.Int64,  # from 0, in the order in which they fell due
    "due_s": pl.Float64,
    "sent_s": pl.Float64,
    "done_s": pl.Float64,  # answered completely, or failed
    "status": pl.Int32,  # 0 = no answer
    "error": pl.String,  # "" = answered (with any status); else connect, read, write, timeout or other
    "answer": pl.String,  # the response's X-Lab-Answer header, else its X-Lab-Backend, else ""
    "service_s": pl.Float64,  # from sent to done by the generator's timer (connecting included), finer than the wall clock
}
"""The columns of the table, sorted by `number`.

No row is missing: a request that was due and never sent makes the sample invalid.
"""

RESOLUTION_S = 0.001
"""The seconds by which all times of a load may be wrong against another clock.

A load begins at a whole millisecond by its log.
"""


def good(frame: pl.DataFrame) -> pl.Series:
    """Return for each row whether the request was answered with a 2xx status.

    Args:
        frame: The table of requests (`REQUESTS_SCHEMA`).

    """
    return frame.select(((pl.col("error") == "") & pl.col("status").is_between(200, 299)).alias("good"))["good"]


def shifted(frame: pl.DataFrame, offset_s: float) -> pl.DataFrame:
    """Return the table of requests with all times converted to the lab's clock.

    Args:
        frame: The table, with times by the generator machine's clock.
        offset_s: The seconds by which the generator machine's clock is ahead of the lab's.

    """
    return frame.with_columns((pl.col(name) - offset_s) for name in ("due_s", "sent_s", "done_s"))
