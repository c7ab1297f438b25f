"""Request rows of any length → the lab's histogram and counts per 100 ms, in memory that does not grow with the rows.

    request 7 1763764412345 1763764412415 70.512 71.224 0.634 200 - backend-5c 9003 17     (k6's log; read twice)
    0.010749292,0.000006527,0.000050832,0.000176214,0.000183152,1024,200                   (oha's CSV; read once)

The same numbers as the readers of whole outputs (`generators/_k6_log.py`, `generators/oha.py`) give, however the file is
cut: what is needed of all rows (when a run began) is found in a first reading, and every row is then counted by itself.
Refuses what they refuse: a log with a gap, a line that is none. Held at once: a chunk and what is made of it; the counts; of
a log, the numbers that came before their turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import IO

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.generators import OutputError
from lab.generators.oha import BYTES, DURATION, HEADER, START, STATUS
from lab.histogram import Histogram

STEP_S = 0.1
CHUNK_BYTES = 2 * 2**20
"""Read at once. Some thirty times as much is held while it is parsed; larger chunks are no faster."""
LONGEST_LINE = 2**20
"""Bytes: an answer's header may be long, and what has no line's end is no log."""
MOST_STEPS = 10 * 86_400
"""A sample lasts a day at most: a time beyond it was misread."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LINE = r"^request [0-9]+ [0-9]+ [0-9]+ [0-9]+\.[0-9]{3} [0-9]+\.[0-9]{3} [0-9]+\.[0-9]{3} [0-9]{1,3} (?:-|[a-z]+) .*$"
_LOG = {"number": pl.Int64, **dict.fromkeys(("start_ms", "wall_ms", "sent_ms", "done_ms"), pl.Float64)}
_ROW = {str(column): pl.Float64 for column in range(HEADER.count(",") + 1)}


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of request rows.

    `requests` are all rows, `answered` those with a status, `not_2xx` of these the wrong ones. `latency` counts the answered
    ones (k6: from when they were due, oha: as its CSV has it). `begun`: int64, shape (steps,), how many were due (oha: begun)
    in each STEP_S since the load's beginning. `size_bytes` is of bodies, None where rows do not tell (k6).
    """

    requests: int
    answered: int
    not_2xx: int
    latency: Histogram
    begun: Ints
    size_bytes: int | None

    def merge(self, other: Reduced) -> Reduced:
        """Of the rows of both; addition, so that the order of parts does not matter."""
        longer, shorter = sorted((self.begun, other.begun), key=len, reverse=True)
        begun = longer.copy()
        begun[: shorter.size] += shorter
        size = None if self.size_bytes is None or other.size_bytes is None else self.size_bytes + other.size_bytes
        return Reduced(
            self.requests + other.requests,
            self.answered + other.answered,
            self.not_2xx + other.not_2xx,
            self.latency.merge(other.latency),
            begun,
            size,
        )


def reduce_oha_rows(rows: IO[bytes], chunk_bytes: int = CHUNK_BYTES) -> Reduced:
    """oha's CSV with its header, from where the file stands. OutputError for anything else, and for no row at all."""
    chunks = whole_lines(rows, chunk_bytes)
    first = next(chunks, b"")
    head, _, rest = first.partition(b"\n")
    if head.decode(errors="replace") != HEADER:
        raise OutputError(f"expected the CSV columns {HEADER}, got {head[:120]!r}")
    parts = (_oha_part(chunk) for chunk in chain([rest] if rest else [], chunks))
    found = _merged(parts)
    if found is None:
        raise OutputError("expected a row for every answered request, got none")
    return found


def reduce_k6_log(
    log: IO[bytes], made: int | None, rate_rps: float, dropped: bool = False, chunk_bytes: int = CHUNK_BYTES
) -> Reduced:
    """k6's stderr of a logged load of `rate_rps`, from the file's beginning (it must be seekable, and is read twice).

    `made`: how many requests k6 said it made, None = as many as there are. `dropped`: some were, so that when the others were
    due cannot be told, and all is counted from when they were sent. OutputError unless each request from 0 on is there once.
    """
    began = _beginning((_k6_rows(chunk) for chunk in _from_start(log, chunk_bytes)), made, rate_rps)
    parts = (_k6_part(_k6_rows(chunk), began, rate_rps, dropped) for chunk in _from_start(log, chunk_bytes))
    found = _merged(parts)
    return found or Reduced(0, 0, 0, Histogram.empty(), np.zeros(0, dtype=np.int64), None)


def whole_lines(source: IO[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """The source in pieces of about `chunk_bytes` (>= 1) that end with a line's end. OutputError where the last one has none."""
    rest = b""
    while block := source.read(chunk_bytes):
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += tail
        if len(rest) > LONGEST_LINE + chunk_bytes:
            raise OutputError(f"expected lines, got {len(rest)} bytes without an end, the first of them {rest[:60]!r}")
    if rest:
        raise OutputError(f"expected whole lines, the last one is cut: {rest[:120]!r}")


def _from_start(log: IO[bytes], chunk_bytes: int) -> Iterator[bytes]:
    log.seek(0)
    return whole_lines(log, chunk_bytes)


def _merged(parts: Iterator[Reduced]) -> Reduced | None:
    found = None
    for part in parts:
        found = part if found is None else found.merge(part)
    return found


# -- oha ----------------------------------------------------------------------------------------------


def _oha_part(chunk: bytes) -> Reduced:
    try:
        frame = pl.read_csv(chunk, has_header=False, schema=_ROW, quote_char=None)
    except pl.exceptions.PolarsError as error:
        raise OutputError(f"expected seven numbers in every row: {str(error).splitlines()[0][:160]}") from None
    rows = frame.to_numpy()
    if len(rows) != chunk.count(b"\n") or not np.isfinite(rows).all():  # a field that is missing is null, then NaN
        raise OutputError(f"expected seven numbers in every row, in {chunk[:120]!r} …")
    return Reduced(
        requests=len(rows),
        answered=len(rows),
        not_2xx=int(np.count_nonzero((rows[:, STATUS] < 200) | (rows[:, STATUS] >= 300))),
        latency=Histogram.of_values(rows[:, DURATION]),
        begun=_steps(rows[:, START] / STEP_S),
        size_bytes=int(rows[:, BYTES].sum()),
    )


# -- k6 -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Beginning:
    """As in `_k6_log`, milliseconds: the run's beginning by the wall clock, and the schedule's after it."""

    began_ms: float
    schedule_ms: float


def _k6_rows(chunk: bytes) -> pl.DataFrame:
    """Columns of _LOG, and `status` and `kind`; lines that are none of the log are left out."""
    lines = pl.Series("line", [chunk.decode("utf-8", "replace")]).str.split("\n").explode()
    told = lines.filter(lines.str.starts_with("request "))
    wrong = told.filter(~told.str.contains(_LINE))
    if wrong.len():
        raise OutputError(f"expected a line of the log of requests, got {wrong[0][:120]!r}")
    fields = told.str.splitn(" ", 10).struct.unnest()
    fields.columns = ["request", *_LOG, "service_ms", "status", "kind", "answer"]
    return fields.select(
        *(pl.col(name).cast(kind) for name, kind in _LOG.items()), pl.col("status").cast(pl.Int32), "kind"
    )


def _beginning(parts: Iterator[pl.DataFrame], made: int | None, rate_rps: float) -> _Beginning:
    """The first reading: whether every number is there once, and what `_k6_log.requests_of` takes from all rows."""
    expected, early = 0, np.zeros(0, dtype=np.int64)
    began_ms, soonest_ms, start_ms = -np.inf, np.inf, 0.0
    for rows in parts:
        if rows.is_empty():
            continue
        number, sent_ms = rows["number"].to_numpy(), rows["sent_ms"].to_numpy()
        expected, early = _numbered(expected, np.concatenate([early, number]))
        began_ms = max(began_ms, float((rows["wall_ms"].to_numpy() - sent_ms).max()))
        soonest_ms = min(soonest_ms, float((sent_ms - _due_ms(number, rate_rps)).min()))
        start_ms = float(rows["start_ms"][int(np.argmin(number))]) if 0 in number else start_ms
    if early.size or (made is not None and expected != made):
        wanted = "all" if made is None else made
        fault = f"number {expected} is missing" if early.size else f"got {expected}"
        raise OutputError(f"expected {wanted} requests in the log, numbered from 0: {fault}")
    schedule_ms = start_ms - began_ms
    return _Beginning(began_ms, schedule_ms + float(np.clip(soonest_ms - schedule_ms, 0, 1)))


def _numbered(expected: int, numbers: Ints) -> tuple[int, Ints]:
    """(the number that comes next, those that came before their turn). OutputError for one that was there before."""
    ordered = np.sort(numbers)
    if ordered.size and (ordered[0] < expected or bool((np.diff(ordered) == 0).any())):
        raise OutputError("expected every request once in the log, one is there twice")
    fits = ordered == expected + np.arange(ordered.size)
    count = ordered.size if bool(fits.all()) else int(np.argmin(fits))
    return expected + count, ordered[count:]


def _k6_part(rows: pl.DataFrame, began: _Beginning, rate_rps: float, dropped: bool) -> Reduced:
    number, sent_ms = rows["number"].to_numpy(), rows["sent_ms"].to_numpy()
    done_s = (began.began_ms + rows["done_ms"].to_numpy()) * 1e-3
    due_ms = began.began_ms + sent_ms if dropped else began.began_ms + began.schedule_ms + _due_ms(number, rate_rps)
    due_s = due_ms * 1e-3
    answered = (rows["kind"] == "-").to_numpy()
    status = rows["status"].to_numpy()[answered]
    since_ms = sent_ms if dropped else _due_ms(number, rate_rps)
    return Reduced(
        requests=rows.height,
        answered=int(answered.sum()),
        not_2xx=int(np.count_nonzero((status < 200) | (status > 299))),
        latency=Histogram.of_values((done_s - due_s)[answered]),
        begun=_steps(since_ms / (STEP_S * 1000)),
        size_bytes=None,
    )


def _due_ms(number: Ints, rate_rps: float) -> Floats:
    return number * 1000 / rate_rps


def _steps(since: Floats) -> Ints:
    """How many in each step; `since` in steps."""
    if since.size and not (since.min() >= 0 and since.max() < MOST_STEPS):
        raise OutputError(
            f"expected times from 0 s to a day, got {float(since.min() * STEP_S):g} to {float(since.max() * STEP_S):g} s"
        )
    return np.bincount(np.floor(since).astype(np.int64)).astype(np.int64)
