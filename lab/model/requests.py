"""Every request of a load: when it was due, sent and done, and what came. The rows a generator with `logs_requests` gives.

Times are seconds since the epoch by the clock of the generator's place; `shifted` brings them to the lab's. A module of its own, as what
generators say and what records make of it have this table alone in common.
"""

from __future__ import annotations

import polars as pl

REQUESTS_SCHEMA = {
    "number": pl.Int64,  # from 0, in the order in which they fell due
    "due_s": pl.Float64,
    "sent_s": pl.Float64,
    "done_s": pl.Float64,  # answered whole, or failed
    "status": pl.Int32,  # 0 = no answer
    "error": pl.String,  # "" = answered (with whatever status); else connect, read, write, timeout or other
    "answer": pl.String,  # the response's X-Lab-Answer header, else its X-Lab-Backend, else ""
    "service_s": pl.Float64,  # from sent to done by the generator's own timer (connecting included), finer than the wall clock
}
"""Sorted by `number`; no row is missing: what was due and never sent makes the sample invalid."""

RESOLUTION_S = 0.001
"""A load begins at a whole millisecond by its own log: its times may all be wrong by as much against any other clock."""


def good(frame: pl.DataFrame) -> pl.Series:
    """Answered with 2xx."""
    return frame.select(((pl.col("error") == "") & pl.col("status").is_between(200, 299)).alias("good"))["good"]


def shifted(frame: pl.DataFrame, offset_s: float) -> pl.DataFrame:
    """By the lab's clock; `offset_s`: what the generator's clock is ahead of it."""
    return frame.with_columns((pl.col(name) - offset_s) for name in ("due_s", "sent_s", "done_s"))
