"""Request rows of any length → the lab's histogram and counts per 100 ms, in memory that does not grow with the rows.

    request 7 1763764412345 1763764412415 70.512 71.224 0.634 200 - backend-5c 9003 17     (k6's log)
    0.010749292,0.000006527,0.000050832,0.000176214,0.000183152,1024,200                   (oha's CSV)

The same numbers as the readers of all rows (`generators/_k6_log.py`, `generators/oha.py`) give, however the file is cut.
Latencies of a log wait in a file in TMPDIR, 16 bytes each, until all of it is read, which tells when the run began.
Refuses what they refuse: a log with a gap, a line that is none. Held at once: some pieces and what is made of them; the counts;
of a log, the numbers that came before their turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.base.files import writing
from lab.generators import k6
from lab.generators._k6_log import BEGINNING, Beginning, beginning, due_ms, requests_of, rows_of
from lab.generators.base import Generator
from lab.generators.oha import BYTES, DURATION, HEADER, START, STATUS, Oha, by_summary, ended_s, refuse_marks, result_of
from lab.generators.pieces import Pieces, Stream, ahead, whole_lines
from lab.model.load import Load, OutputError, Result
from lab.stats.histogram import Histogram

STEP_S = 0.1
MOST_STEPS = 10 * 86_400
"""A sample lasts a day at most: a time beyond it was misread."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_ROW = {str(column): pl.Float64 for column in range(HEADER.count(",") + 1)}


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of request rows.

    `requests` are all rows, `answered` those with a status, `not_2xx` of these the wrong ones. `latency` counts the answered
    ones (k6: from when they were due, oha: as its CSV has it). `begun`: int64, shape (steps,), how many were due (oha: begun)
    in each STEP_S since the load's beginning, `ended_s` when the last one was over. `size_bytes` is of bodies, None where rows do not
    tell (k6).
    """

    requests: int
    answered: int
    not_2xx: int
    latency: Histogram
    begun: Ints
    ended_s: float
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
            max(self.ended_s, other.ended_s),
            size,
        )


def _nothing() -> Reduced:
    return Reduced(0, 0, 0, Histogram.empty(), np.zeros(0, dtype=np.int64), 0.0, None)


@dataclass(frozen=True, slots=True)
class Output:
    """What a generator printed, as it is stored: its numbers, with request rows read in pieces. OutputError as `Generator.parse` raises it."""

    tool: Generator
    load: Load
    pieces: Callable[[Stream], Iterator[bytes]]
    """Opens stdout or stderr at its beginning."""

    def result(self) -> Result:
        """What it reported."""
        if self._has_csv:
            found = self.reduced()
            size_bytes = found.size_bytes or 0
            return result_of(found.requests, found.not_2xx, found.latency, size_bytes, found.ended_s, self.load)
        complaints = "" if self.load.logged else self._text("stderr")  # the log is no complaint
        return self.tool.parse(self._text("stdout"), complaints, 0, self.load)

    def reduced(self) -> Reduced:
        """Its request rows as counts."""
        return reduce_oha_rows(self.pieces("stdout"), self.load) if self._has_csv else reduce_k6_log(*self._log())

    def requests(self) -> pl.DataFrame:
        """Every request of a logged load: the columns of `lab.model.requests.REQUESTS_SCHEMA`."""
        return requests_of(*self._log())

    @property
    def _has_csv(self) -> bool:
        return isinstance(self.tool, Oha) and not by_summary(self.load)

    def _log(self) -> tuple[Pieces, int, float, bool]:
        """(log, requests made, their rate, whether some were dropped)."""
        if not (self.tool.logs_requests and self.load.logged):
            raise OutputError(f"{self.tool.name} prints no row for each request of this load")
        result = self.result()
        return partial(self.pieces, "stderr"), k6.made(result), k6.rate_rps(self.load), result.dropped > 0

    def _text(self, stream: Stream) -> str:
        return b"".join(self.pieces(stream)).decode("utf-8", "surrogateescape")


def reduce_oha_rows(rows: Iterable[bytes], load: Load) -> Reduced:
    """oha's CSV with its header. OutputError for anything else, and for no row at all."""
    pieces = whole_lines(rows)
    first = next(pieces, b"")
    head, _, rest = first.partition(b"\n")
    if head.decode(errors="replace") != HEADER:
        raise OutputError(f"expected the CSV columns {HEADER}, got {head[:120]!r}")
    found = None
    for piece in chain([rest] if rest else [], pieces):
        part = _oha_part(piece, found.requests if found else 0, load)
        found = found.merge(part) if found else part
    if found is None:
        raise OutputError("expected a row for every answered request, got none")
    return found


def reduce_k6_log(log: Pieces, made: int | None, rate_rps: float, dropped: bool = False) -> Reduced:
    """k6's stderr of a logged load of `rate_rps`.

    `made`: how many requests k6 said it made, None = as many as there are. `dropped`: some were, so that when the others were
    due cannot be told, and all is counted from when they were sent. OutputError unless each request from 0 on is there once.
    """
    with writing(Path(tempfile.gettempdir()), "TMPDIR"), tempfile.TemporaryFile() as spool:
        counted = _Counted(spool, rate_rps, dropped)
        begun = beginning(map(counted.add, rows_of(log(), *BEGINNING, "done_ms", "status", "kind")), made, rate_rps)
        return counted.reduced(begun)


@dataclass(slots=True)
class _Counted:
    """What one reading of k6's log tells; latencies, which wait for when it all began, lie in `spool` until then."""

    spool: IO[bytes]
    rate_rps: float
    dropped: bool
    found: Reduced = field(default_factory=_nothing)
    last_ms: float = -np.inf
    spooled: list[int] = field(default_factory=list[int])

    def add(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows again, counted."""
        sent_ms, done_ms = rows["sent_ms"].to_numpy(), rows["done_ms"].to_numpy()
        since_ms = sent_ms if self.dropped else due_ms(rows["number"].to_numpy(), self.rate_rps)
        answered = (rows["kind"] == "-").to_numpy()
        status = rows["status"].to_numpy()[answered]
        wrong = int(np.count_nonzero((status < 200) | (status > 299)))
        begun = _steps(since_ms / (STEP_S * 1000))
        counted = Reduced(rows.height, status.size, wrong, Histogram.empty(), begun, 0.0, None)
        self.found = self.found.merge(counted)
        self.last_ms = max(self.last_ms, float(done_ms.max(initial=-np.inf)))
        np.stack([since_ms[answered], done_ms[answered]]).tofile(self.spool)
        self.spooled.append(status.size)
        return rows

    def reduced(self, begun: Beginning) -> Reduced:
        """With the latencies, each counted from when it was due."""
        scheduled_ms = begun.began_ms + begun.schedule_ms
        zero_ms = begun.began_ms if self.dropped else scheduled_ms
        latencies_s = (
            (begun.began_ms + done_ms) * 1e-3 - (zero_ms + since_ms) * 1e-3 for since_ms, done_ms in self._spooled()
        )
        latency = reduce(Histogram.merge, ahead(Histogram.of_values, latencies_s), Histogram.empty())
        ended_s = (begun.began_ms + self.last_ms) * 1e-3 - scheduled_ms * 1e-3 if self.found.requests else 0.0
        return replace(self.found, latency=latency, ended_s=max(0.0, ended_s))

    def _spooled(self) -> Iterator[Floats]:
        """(since, done) of each piece's answered requests, in ms: shape (2, n)."""
        self.spool.seek(0)
        for count in self.spooled:
            yield np.fromfile(self.spool, dtype=np.float64, count=2 * count).reshape(2, count)


def _oha_part(piece: bytes, first: int, load: Load) -> Reduced:
    try:
        refuse_marks(piece)
        frame = pl.read_csv(piece, has_header=False, schema=_ROW, quote_char=None)
    except (ValueError, pl.exceptions.PolarsError) as error:
        raise OutputError(f"expected seven numbers in every row: {str(error).splitlines()[0][:160]}") from None
    rows = frame.to_numpy()
    if len(rows) != piece.count(b"\n") or not np.isfinite(rows).all():  # a field that is missing is null, then NaN
        raise OutputError(f"expected seven numbers in every row, in {piece[:120]!r} …")
    return Reduced(
        requests=len(rows),
        answered=len(rows),
        not_2xx=int(np.count_nonzero((rows[:, STATUS] < 200) | (rows[:, STATUS] >= 300))),
        latency=Histogram.of_values(rows[:, DURATION]),
        begun=_steps(rows[:, START] / STEP_S),
        ended_s=ended_s(rows, first, load),
        size_bytes=int(rows[:, BYTES].sum()),
    )


def _steps(since: Floats) -> Ints:
    """How many in each step; `since` in steps."""
    if since.size and not (since.min() >= 0 and since.max() < MOST_STEPS):
        raise OutputError(
            f"expected times from 0 s to a day, got {float(since.min() * STEP_S):g} to {float(since.max() * STEP_S):g} s"
        )
    return np.bincount(np.floor(since).astype(np.int64)).astype(np.int64)
