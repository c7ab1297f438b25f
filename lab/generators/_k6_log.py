"""The log of requests that k6 writes to stderr for a `logged` load. A line in, and the row out (REQUESTS_SCHEMA):

    request 7 1763764412345 1763764412415 70.512 71.224 0.634 200 - backend-5c 9003 17
        →  number 7, sent 70.512 ms and done 71.224 ms after the run began, 200, answered by "backend-5c 9003 17"

The third and fourth numbers are milliseconds of the wall clock, cut to whole ones: when the schedule began, and now.
Everything else is counted from the run's beginning in microseconds. Both meet here: the run's beginning is the latest time that
any line allows (`now` is cut off, never rounded up), the schedule's is the cut time, less than a millisecond later, as
late as the promptest request allows. So all times are right relative to one another, and to the clock within 1 ms.

When it all began no line tells by itself: only when all are read is that known, and a row's time with it. Each piece of a log
goes through polars' streaming engine. Refuses a log with a gap: a request that is missing might be the one that failed. And a line whose numbers contradict one another.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.generators.pieces import Pieces, ahead, whole_lines
from lab.model.load import OutputError
from lab.model.requests import REQUESTS_SCHEMA

FIELDS = {
    "request": pl.String(),
    "number": pl.Int64(),
    "start_ms": pl.Int64(),
    "wall_ms": pl.Int64(),
    "sent_ms": pl.Float64(),
    "done_ms": pl.Float64(),
    "service_ms": pl.Float64(),
    "status": pl.Int32(),
    "kind": pl.String(),
    "answer": pl.String(),
}
_LINE = (
    r"^request [0-9]{1,18} [0-9]+ [0-9]+ [0-9]+\.[0-9]{3} [0-9]+\.[0-9]{3} [0-9]+\.[0-9]{3} [0-9]{1,3} (?:-|[a-z]+) "
)
BEGINNING = ("number", "start_ms", "wall_ms", "sent_ms")
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
_NO_SEPARATOR = "\x01"
"""Of a line read whole: what follows one is left out, and no request has one before its answer."""

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
    begun = beginning(rows_of(log(), *BEGINNING), made, rate_rps)
    parts = [_rows(lines, begun, rate_rps) for lines in _lines_of(log())]
    found = pl.concat([pl.DataFrame(schema=REQUESTS_SCHEMA), *parts]).sort("number")
    return found.with_columns(due_s=pl.col("sent_s")) if dropped else found


def rows_of(log: Iterable[bytes], *fields: str) -> Iterator[pl.DataFrame]:
    """These of FIELDS (no answer: it has spaces) of the log's requests, piece by piece; k6's other lines are left out.

    OutputError for a line that is cut, or whose numbers contradict one another.
    """
    return ahead(partial(_rows_in, fields=fields), whole_lines(log))


def _rows_in(piece: bytes, fields: Sequence[str]) -> pl.DataFrame:
    text = piece if piece.isascii() else piece.decode("utf-8", "replace").encode()
    lines, words = _scan(text, _NO_SEPARATOR, {"line": pl.String()}), _scan(text, " ", FIELDS)
    fits = pl.col("line").str.contains(_LINE)
    count, fitting = lines.select(pl.len(), fits.sum().alias("fitting")).collect(engine="streaming").row(0)
    if fitting < count:
        wrong = lines.filter(~fits, pl.col("line").str.starts_with("request ")).collect(engine="streaming")["line"]
        if wrong.len():
            raise OutputError(f"expected a line of the log of requests, got {wrong[0][:120]!r}")
        words = words.filter(pl.col("request") == "request", pl.col("number").is_not_null())
    told = words.select("number", *({*fields} - {"number"}), sound=_SOUND).collect(engine="streaming")
    if told.height != fitting or any(column.null_count() for column in told):
        raise OutputError(f"expected lines of the log of requests whose numbers fit, in {piece[:120]!r} …")
    if not told["sound"].all():
        number = told.filter(~pl.col("sound"))["number"][0]
        raise OutputError(
            f"expected times and a status that fit one another in the log of requests: those of {number} do not"
        )
    return told.select(fields)


def _scan(text: bytes, separator: str, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """A row for every line; null for a field that is none of its type, or is not there."""
    return pl.scan_csv(
        io.BytesIO(text),
        separator=separator,
        has_header=False,
        schema=schema,
        quote_char=None,
        truncate_ragged_lines=True,
        ignore_errors=True,
        raise_if_empty=False,
    )


def _lines_of(log: Iterable[bytes]) -> Iterator[pl.DataFrame]:
    """The log's requests piece by piece, as text with the answer whole, once `rows_of` has found no fault in them."""
    for piece in whole_lines(log):
        lines = pl.Series("line", [piece.decode("utf-8", "replace")]).str.split("\n").explode()
        words = lines.filter(lines.str.starts_with("request ")).str.splitn(" ", len(FIELDS)).struct.unnest()
        words.columns = list(FIELDS)
        yield words


def beginning(rows: Iterable[pl.DataFrame], made: int | None, rate_rps: float) -> Beginning:
    """What has to be known of all lines, of which it takes BEGINNING; OutputError unless every number is there once."""
    expected, early = 0, np.zeros(0, dtype=np.int64)
    began_ms, soonest_ms, start_ms = -np.inf, np.inf, 0.0
    for part in rows:
        if part.is_empty():
            continue
        number, sent_ms = part["number"].to_numpy(), part["sent_ms"].to_numpy()
        expected, early = _numbered(expected, np.concatenate([early, number]) if early.size else number)
        began_ms = max(began_ms, float((part["wall_ms"].to_numpy() - sent_ms).max()))
        soonest_ms = min(soonest_ms, float((sent_ms - due_ms(number, rate_rps)).min()))
        start_ms = float(part["start_ms"][int(np.argmin(number))]) if number.min() == 0 else start_ms
    if early.size or (made is not None and expected != made):
        wanted = "all" if made is None else made
        fault = f"number {expected} is missing" if early.size else f"got {expected}"
        raise OutputError(f"expected {wanted} requests in the log, numbered from 0: {fault}")
    schedule_ms = start_ms - began_ms
    return Beginning(began_ms, schedule_ms + float(np.clip(soonest_ms - schedule_ms, 0, 1)))


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
    number = lines["number"].cast(pl.Int64).to_numpy()
    columns = {
        "number": number,
        "due_s": (begun.began_ms + begun.schedule_ms + due_ms(number, rate_rps)) * 1e-3,
        "sent_s": (begun.began_ms + _milliseconds(lines, "sent_ms")) * 1e-3,
        "done_s": (begun.began_ms + _milliseconds(lines, "done_ms")) * 1e-3,
        "status": lines["status"].cast(pl.Int32),
        "error": lines["kind"].replace("-", ""),
        "answer": lines["answer"],
        "service_s": _milliseconds(lines, "service_ms") * 1e-3,
    }
    return pl.DataFrame(columns, schema=REQUESTS_SCHEMA)


def _milliseconds(lines: pl.DataFrame, name: str) -> Floats:
    return lines[name].cast(pl.Float64).to_numpy()
