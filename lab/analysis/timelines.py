"""The timeline of a disrupted sample: requests in bins of 100 ms, events as marks, probes, transfers.

Each function makes one data frame from the logs of requests (`lab.model.requests`) or events (`lab.model.events`). Logs have
times since the epoch; times in the results count from `zero_s`, the beginning of the load. The module does not judge:
`lab.records.outcomes` decides what counts as an outage or a stale answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from lab.model.requests import good
from lab.records import incidents as happenings

BIN_S = 0.1
NO_ANSWER = ("connect", "read", "write", "timeout", "other")
"""The ways to fail without a status, as in the requests' `error` column; `status` stands for a wrong one."""

BINS_SCHEMA = {
    "t_s": pl.Float64,  # where the bin begins
    "due_rps": pl.Float64,  # requests that fell due in it, per second
    "good_rps": pl.Float64,  # good answers that arrived in it, per second
    "p50_s": pl.Float64,  # latency from due, of the requests that fell due in it and were answered well
    "max_s": pl.Float64,
    "status": pl.Int64,  # of those that fell due in it: how many were not `right`, by kind
    **dict.fromkeys(NO_ANSWER, pl.Int64),
}
FAILED = ("status", *NO_ANSWER)

MARKS_SCHEMA = {"t_s": pl.Float64, "row": pl.String, "kind": pl.String, "text": pl.String}
PROBES_SCHEMA = {"t_s": pl.Float64, "object": pl.String, "probe": pl.String, "took_s": pl.Float64, "ok": pl.Boolean}
TRANSFERS_SCHEMA = {
    "from_s": pl.Float64,
    "until_s": pl.Float64,
    "way": pl.String,  # upload or download
    "size_bytes": pl.Int64,
    "took_s": pl.Float64,
    "first_s": pl.Float64,  # from its beginning until the answer's first byte; null: there was none
    "status": pl.Int64,
}

ROWS = {
    "disturbance": ("Begin", "End", "Change"),
    "pods": ("Created", "Started", "Ready", "NotReady", "Deleted", "Killing", "Exited", "Gone", "EvictionRefused"),
    "probes": ("Unhealthy",),
    "endpoints": ("Endpoints",),
    "reloads": ("Reload", "Reloaded"),
    "connections": ("Cut",),
}
"""Row of marks → the kinds of `lab.model.events` in it, from top to bottom.

Single probes and transfers have figures for themselves.
"""


def bins(requests: pl.DataFrame, zero_s: float, right: pl.Series | None = None) -> pl.DataFrame:
    """Count a sample's requests in bins of 100 ms: rates, latencies, and failures by kind.

    There is a row with the columns of BINS_SCHEMA for each bin, from the first due request to the last answer. Empty
    bins have rates of 0.

    Args:
        requests: The log of requests.
        zero_s: The moment from which times are counted, in seconds since the epoch.
        right: For each request, whether it got a right answer (`lab.records.outcomes.mark_right_answers`). All others
            count as failed. If it is None, all requests without a good answer do.

    """
    if requests.is_empty():
        return pl.DataFrame(schema=BINS_SCHEMA)
    failed = pl.when(pl.col("right")).then(None).when(pl.col("error") != "").then(pl.col("error"))
    well = good(requests)
    timed = requests.with_columns(well, right=well if right is None else right).with_columns(
        due=_locate_bin("due_s", zero_s),
        done=_locate_bin("done_s", zero_s),
        failed=failed.otherwise(pl.lit("status")),
        latency_s=pl.when(pl.col("good")).then(pl.col("done_s") - pl.col("due_s")),
    )
    first, last = timed.select(pl.min("due"), pl.max("done").alias("last")).row(0)
    every = pl.DataFrame({"bin": range(first, max(first, last) + 1)}, schema={"bin": pl.Int64})
    by_due = timed.group_by(pl.col("due").alias("bin")).agg(
        due_rps=pl.len() / BIN_S,
        p50_s=pl.col("latency_s").median(),
        max_s=pl.col("latency_s").max(),
        **{kind: (pl.col("failed") == kind).sum() for kind in FAILED},
    )
    by_done = timed.filter("good").group_by(pl.col("done").alias("bin")).agg(good_rps=pl.len() / BIN_S)
    counts = ["due_rps", "good_rps", *FAILED]
    return (
        every.join(by_due, on="bin", how="left")
        .join(by_done, on="bin", how="left")
        .with_columns(pl.col(counts).fill_null(0), t_s=pl.col("bin") * BIN_S)
        .sort("bin")
        .select(*BINS_SCHEMA)
        .cast(BINS_SCHEMA)  # type: ignore[arg-type]
    )


def _locate_bin(column: str, zero_s: float) -> pl.Expr:
    # A millionth of a bin is added: a time exactly at a bin's begin must not fall into the bin before by rounding.
    return ((pl.col(column) - zero_s) / BIN_S + 1e-6).floor().cast(pl.Int64)


def find_range(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return, for each moment, the smallest and the largest rate of good answers among several blocks (repetitions).

    Args:
        frames: The bins (`bins`) of each block, at least one, with times from the same moment of the load.

    Returns:
        Columns `t_s`, `low_rps` and `high_rps`, for the bins that every block has.

    """
    every = pl.concat([frame.select(pl.col("t_s").round(6), "good_rps") for frame in frames])
    grouped = every.group_by("t_s").agg(low_rps=pl.min("good_rps"), high_rps=pl.max("good_rps"), blocks=pl.len())
    return grouped.filter(pl.col("blocks") == len(frames)).drop("blocks").sort("t_s")


def marks(events: pl.DataFrame, zero_s: float) -> pl.DataFrame:
    """Return a sample's events as marks on a timeline, ordered by time.

    Args:
        events: The log of events.
        zero_s: The moment from which times are counted, in seconds since the epoch.

    Returns:
        The columns of MARKS_SCHEMA; `row` is the row of the timeline (ROWS), `text` describes the event for people.

    """
    row = {kind: row for row, kinds in ROWS.items() for kind in kinds}
    origin = pl.concat_str(["role", "object"], separator=" ").str.strip_chars()
    return (
        events.filter(pl.col("kind").is_in(list(row)))
        .with_columns(
            t_s=pl.col("at_s") - zero_s,
            row=pl.col("kind").replace_strict(row, return_dtype=pl.String),
            text=pl.concat_str([origin, "detail"], separator=": ").str.strip_chars(": ") + pl.format(" ({})", "source"),
        )
        .sort("t_s")
        .select(*MARKS_SCHEMA)
    )


def probes(events: pl.DataFrame, zero_s: float) -> pl.DataFrame:
    """Return a row for each recorded probe of a pod: when it ended, how long it took, and whether it succeeded.

    Args:
        events: The log of events (`lab.records.incidents` finds the probes in it).
        zero_s: The moment from which times are counted, in seconds since the epoch.

    Returns:
        The columns of PROBES_SCHEMA; probes without a duration are left out.

    """
    return (
        happenings.list_probes(events)
        .with_columns(t_s=pl.col("at_s") - zero_s)
        .drop_nulls("took_s")
        .select(*PROBES_SCHEMA)
    )


def transfers(events: pl.DataFrame, zero_s: float) -> pl.DataFrame:
    """Return a row for each transfer of a large body (upload or download) in a sample, including failed transfers.

    Args:
        events: The log of events (`lab.records.incidents` finds the transfers in it).
        zero_s: The moment from which times are counted, in seconds since the epoch.

    Returns:
        The columns of TRANSFERS_SCHEMA.

    Raises:
        MeasuringError: A transfer in the log cannot be read (`lab.records.incidents.list_transfers`).

    """
    until_s = pl.col("at_s") - zero_s
    return (
        happenings.list_transfers(events)
        .with_columns(from_s=until_s - pl.col("took_s"), until_s=until_s)
        .select(*TRANSFERS_SCHEMA)
    )
