"""A sample's tables and verbatim output as bytes and back: hist.parquet, usage.parquet, events.parquet, raw.zst, raw.xz or raw.log.xz.

Refuses a histogram table whose columns, buckets or counts are not what `histogram_frame` makes.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import polars as pl
import zstandard

from lab.generators.pieces import Stream
from lab.model.events import EVENTS_SCHEMA, Event
from lab.model.usage import USAGE_SCHEMA
from lab.records.request_log import as_differences, restored
from lab.stats.histogram import BUCKETS, Histogram

_ADDED = ("tid",)
"""Columns that usage tables of earlier labs do not have: null there."""

HISTOGRAM_SCHEMA = {
    "series": pl.String,  # latency or service
    "bucket": pl.Int64,
    "count": pl.Int64,
}
"""Columns of hist.parquet: one row per series and bucket that is not empty."""
FORMERLY = ("low_s", "high_s")
"""A bucket's ends, which its number tells: columns of earlier labs, seven eighths of their hist.parquet."""


STDERR_MARK = "\n#lab stderr\n"
PACKED_BYTES = 2**16
"""Of packed output read at once: request rows are some ten times as much unpacked."""
RAW, SMALL_RAW, SMALL_LOG = "raw.zst", "raw.xz", "raw.log.xz"
"""Verbatim output as a run writes it, and as `packing` leaves it: with a log of requests its lines as differences."""


class FrameError(Exception):
    """The stored bytes are not what they should be; the message says how."""


def histogram_frame(histograms: Mapping[str, Histogram]) -> pl.DataFrame:
    """Series → histogram, as the rows of hist.parquet."""
    frames = [pl.DataFrame(schema=HISTOGRAM_SCHEMA)]
    for series, histogram in histograms.items():
        filled = histogram.counts.nonzero()[0]
        columns = {"series": [series] * len(filled), "bucket": filled, "count": histogram.counts[filled]}
        frames.append(pl.DataFrame(columns).cast(HISTOGRAM_SCHEMA))  # type: ignore[arg-type]
    return pl.concat(frames)


def read_histogram(path: Path, series: str, kind: Literal["exact", "quantiles"]) -> Histogram | None:
    """One series of a hist.parquet, None where it has no row. OSError, or FrameError when the file is damaged."""
    frame = _of(_read(path).drop(FORMERLY, strict=False), HISTOGRAM_SCHEMA)
    rows = frame.filter(pl.col("series") == series)
    if rows.is_empty():
        return None
    sound = pl.col("bucket").is_between(0, BUCKETS - 1) & (pl.col("count") > 0)
    if rows.filter(sound).height != rows.height or rows["bucket"].n_unique() != rows.height:
        raise FrameError("a bucket that there is not, or twice, or an empty one")
    counts = Histogram.empty().counts
    counts[rows["bucket"].to_numpy()] = rows["count"].to_numpy()
    return Histogram(counts, kind)


def read_usage(path: Path) -> pl.DataFrame:
    """A usage.parquet of this lab or an earlier one. OSError, or FrameError when the file is damaged."""
    frame = _read(path)
    for name in _ADDED:
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(None, USAGE_SCHEMA[name]).alias(name))
    if frame.columns != list(USAGE_SCHEMA) and set(frame.columns) == set(USAGE_SCHEMA):
        frame = frame.select(list(USAGE_SCHEMA))
    return _of(frame, USAGE_SCHEMA)


def events_frame(events: Iterable[Event]) -> pl.DataFrame:
    """The rows of events.parquet, sorted by time."""
    rows = [asdict(event) for event in sorted(events, key=lambda event: event.at_s)]
    return pl.DataFrame(rows, schema=EVENTS_SCHEMA)


def read_events(path: Path) -> pl.DataFrame:
    """An events.parquet. OSError, or FrameError when the file is damaged."""
    return _of(_read(path), EVENTS_SCHEMA)


def _read(path: Path) -> pl.DataFrame:
    content = path.read_bytes()
    try:
        return pl.read_parquet(content)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise FrameError(str(error).splitlines()[0][:200]) from None


def _of(frame: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    if dict(frame.schema) != schema:
        raise FrameError(f"its columns are {', '.join(frame.columns)}, expected {', '.join(schema)}")
    return frame


def join_raw(stdout: str, stderr: str) -> str:
    """The generator's verbatim output as a packed file holds it."""
    return stdout + (STDERR_MARK + stderr if stderr else "")


def pack_raw(raw: str, level: int = 3) -> bytes:
    return zstandard.compress(raw.encode("utf-8", "surrogateescape"), level)


def pack_small(raw: str) -> bytes:
    """A fifth smaller than `pack_raw` at its best, and some hundred times as slow: for what is kept in a repository."""
    return _compressed(raw.encode("utf-8", "surrogateescape"))


def pack_log(raw: str) -> bytes:
    """As `pack_small`, and of a log of requests some half of that."""
    return _compressed(as_differences(raw.encode("utf-8", "surrogateescape")))


def _compressed(content: bytes) -> bytes:
    text = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
    return lzma.compress(content, check=lzma.CHECK_CRC32, filters=text)


def raw_path(folder: Path) -> Path:
    """Where the verbatim output of the sample in this folder lies, or should lie."""
    return next((path for name in (RAW, SMALL_RAW, SMALL_LOG) if (path := folder / name).is_file()), folder / RAW)


def read_raw(path: Path) -> tuple[str, str]:
    """(stdout, stderr) of packed output. OSError, or FrameError when the file is damaged."""
    stdout, _, stderr = b"".join(_unpacked(path)).decode("utf-8", "surrogateescape").partition(STDERR_MARK)
    return stdout, stderr


def raw_pieces(path: Path, stream: Stream) -> Iterator[bytes]:
    """stdout or stderr of packed output in pieces of some MB at most, unpacked while they are read. OSError, or FrameError as `read_raw`."""
    mark = STDERR_MARK.encode()
    held, marked = b"", False
    for piece in _unpacked(path):
        if marked:
            yield piece
            continue
        before, found, after = (held + piece).partition(mark)
        if found:
            held, marked = b"", True
            if stream == "stdout":
                yield before
                return
            yield after
            continue
        safe = max(0, len(before) - len(mark) + 1)  # what follows may be the mark's beginning
        if stream == "stdout":
            yield before[:safe]
        held = before[safe:]
    if stream == "stdout":
        yield held


def _unpacked(path: Path) -> Iterator[bytes]:
    pieces = _decompressed(path)
    if path.name != SMALL_LOG:
        yield from pieces
        return
    try:
        yield from restored(pieces)
    except ValueError as error:
        raise FrameError(f"a line is no difference of requests: {error}") from None


def _decompressed(path: Path) -> Iterator[bytes]:
    unpacking = lzma.LZMADecompressor() if path.suffix == ".xz" else zstandard.ZstdDecompressor().decompressobj()
    with open(path, "rb") as packed:
        while not unpacking.eof and (piece := packed.read(PACKED_BYTES)):
            try:
                yield unpacking.decompress(piece)
            except (zstandard.ZstdError, lzma.LZMAError) as error:
                raise FrameError(str(error)) from None
    if not unpacking.eof:
        raise FrameError("it is cut short")
