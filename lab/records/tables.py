"""A sample's tables and verbatim output as bytes and back: histograms, usage, events; raw.zst, raw.xz or raw.log.xz.

Refuses a histogram table whose columns, buckets or counts are not what `histogram_frame` makes.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import zstandard

from lab.generators.pieces import Stream
from lab.model.events import EVENTS_SCHEMA, Event
from lab.model.usage import USAGE_SCHEMA
from lab.records.request_log import restored
from lab.stats.histogram import BUCKETS, Histogram

_ADDED = ("tid", "sent_bytes")
"""Columns that usage tables of earlier labs do not have: null there."""

SAMPLE = "sample"
"""First column of a packed run's tables: whose row it is."""

HISTOGRAM_SCHEMA = {
    "series": pl.String,  # latency or service
    "bucket": pl.Int64,
    "count": pl.Int64,
}
"""Columns of a sample's hist.parquet: one row per series and bucket that is not empty."""
FORMERLY = ("low_s", "high_s")
"""A bucket's ends, which its number tells: columns of earlier labs, seven eighths of their hist.parquet."""


STDERR_MARK = "\n#lab stderr\n"
PACKED_BYTES = 2**16
"""Of packed output read at once: request rows are some ten times as much unpacked."""
RAW, SMALL_RAW, SMALL_LOG = "raw.zst", "raw.xz", "raw.log.xz"
"""Verbatim output as a run writes it, and as a packed run has it: with a log of requests its lines as differences."""
Ints = npt.NDArray[np.int64]
Place = Path | zipfile.Path
"""Where verbatim output lies: a file of a sample's folder, or one in a packed run's raw.zip."""
BEST = 22
"""Level of zstd: the slowest."""
MICROSECONDS = 2**20
"""In a second, about."""
MOST_WINDOW = 2**26
"""Of xz: as much as its best preset has."""


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


def read_histograms(path: Path, kind: Literal["exact", "quantiles"]) -> dict[str, Histogram]:
    """Every series of a hist.parquet that has a row. OSError, or FrameError when the file is damaged."""
    frame = read_counts(path)
    parts = frame.partition_by("series", as_dict=True, maintain_order=True)
    return {
        str(series): histogram_of(rows["bucket"].to_numpy(), rows["count"].to_numpy(), kind)
        for (series,), rows in parts.items()
    }


def read_counts(path: Path) -> pl.DataFrame:
    """The rows of a hist.parquet of this lab or an earlier one, not looked into. OSError, or FrameError when the file is damaged."""
    return _of(_read(path).drop(FORMERLY, strict=False), HISTOGRAM_SCHEMA)


def histogram_of(buckets: Ints, filled: Ints, kind: Literal["exact", "quantiles"]) -> Histogram:
    """`buckets`, `filled`: int64, shape (n,): the buckets that are not empty, and their counts. FrameError for what no histogram has."""
    sound = buckets.shape == filled.shape and ((buckets >= 0) & (buckets < BUCKETS) & (filled > 0)).all()
    if not sound or np.unique(buckets).size != buckets.size:
        raise FrameError("a bucket that there is not, or twice, or an empty one")
    counts = Histogram.empty().counts
    counts[buckets] = filled
    return Histogram(counts, kind)


def read_usage(path: Path) -> pl.DataFrame:
    """A usage.parquet of this lab or an earlier one. OSError, or FrameError when the file is damaged."""
    return _of(_with_added(_read(path), USAGE_SCHEMA), USAGE_SCHEMA)


def _with_added(frame: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Add the columns that usage tables of earlier labs do not have, as nulls, in the schema's order."""
    missing = [
        pl.lit(None, schema[name]).alias(name) for name in _ADDED if name in schema and name not in frame.columns
    ]
    frame = frame.with_columns(missing) if missing else frame
    return frame.select(list(schema)) if set(frame.columns) == set(schema) else frame


def to_the_microsecond(usage: pl.DataFrame) -> pl.DataFrame:
    """A usage table with its moments and CPU seconds in whole 2⁻²⁰ s: a look takes longer, and the kernel's nanoseconds do not pack."""
    return usage.with_columns((pl.col("t_s", "cpu_s") * MICROSECONDS).round() / MICROSECONDS)


def joined(frames: Mapping[str, pl.DataFrame], schema: Mapping[str, Any]) -> pl.DataFrame:
    """One table of many samples': sample → its rows, with the sample's name as the first column."""
    nothing = pl.DataFrame(schema={SAMPLE: pl.String, **schema})
    return pl.concat([nothing, *(rows.select(pl.lit(name).alias(SAMPLE), *schema) for name, rows in frames.items())])


def read_columns(path: Path, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Read only the columns of `schema` from a table. OSError, or FrameError when the file is damaged."""
    return _of(_with_added(_read(path, list(schema)), schema), schema)


def read_joined(path: Path, schema: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Sample → its rows, of those that have any. OSError, or FrameError when the file is damaged."""
    frame = _of(_with_added(_read(path), {SAMPLE: pl.String, **schema}), {SAMPLE: pl.String, **schema})
    runs = frame.select(pl.col(SAMPLE).rle()).unnest(SAMPLE)
    if runs["value"].n_unique() != runs.height:
        raise FrameError("a sample's rows do not lie together")
    rows, parts, at = frame.drop(SAMPLE), dict[str, pl.DataFrame](), 0
    for length, name in runs.select("len", "value").iter_rows():
        parts[name] = rows.slice(at, length)
        at += length
    return parts


def events_frame(events: Iterable[Event]) -> pl.DataFrame:
    """The rows of events.parquet, sorted by time."""
    rows = [asdict(event) for event in sorted(events, key=lambda event: event.at_s)]
    return pl.DataFrame(rows, schema=EVENTS_SCHEMA)


def read_events(path: Path) -> pl.DataFrame:
    """An events.parquet. OSError, or FrameError when the file is damaged."""
    return _of(_read(path), EVENTS_SCHEMA)


def _read(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """A table, or those of these columns that it has."""
    content = path.read_bytes()
    try:
        if columns is not None:
            columns = [name for name in columns if name in pl.read_parquet_schema(io.BytesIO(content))]
        return pl.read_parquet(content, columns=columns)  # type: ignore[arg-type]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise FrameError(str(error).splitlines()[0][:200]) from None


def _of(frame: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    if dict(frame.schema) != schema:
        raise FrameError(f"its columns are {', '.join(frame.columns)}, expected {', '.join(schema)}")
    return frame


def join_raw(stdout: str, stderr: str) -> str:
    """The generator's verbatim output as a packed file holds it."""
    return stdout + (STDERR_MARK + stderr if stderr else "")


def digest(raw: bytes) -> str:
    """What sample.json has as `raw_sha256`: of the verbatim output itself, however it is packed."""
    return hashlib.sha256(raw).hexdigest()


def raw_bytes(raw: str) -> bytes:
    return raw.encode("utf-8", "surrogateescape")


def pack_raw(raw: str, level: int = 3) -> bytes:
    return zstandard.compress(raw_bytes(raw), level)


def compressed(content: bytes) -> bytes:
    """By xz as small as it goes; a window no larger than the content, so that reading takes no more memory than that."""
    window = min(max(len(content), 4096), MOST_WINDOW)
    text = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0, "dict_size": window}]
    return lzma.compress(content, check=lzma.CHECK_CRC32, filters=text)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """A table as small as it goes: by brotli, which takes its time and is written once."""
    written = io.BytesIO()
    frame.write_parquet(written, compression="brotli", compression_level=11, statistics=False)
    return written.getvalue()


def raw_path(folder: Path) -> Path:
    """Where the verbatim output of the sample in this folder lies, or should lie."""
    return next((path for name in (RAW, SMALL_RAW, SMALL_LOG) if (path := folder / name).is_file()), folder / RAW)


def read_raw(path: Place) -> tuple[str, str]:
    """(stdout, stderr) of packed output. OSError, or FrameError when the file is damaged."""
    stdout, _, stderr = unpacked(path).decode("utf-8", "surrogateescape").partition(STDERR_MARK)
    return stdout, stderr


def read_streams(path: Place) -> dict[Stream, bytes]:
    """Both, as the generator wrote them, unpacked in one go. OSError, or FrameError as `read_raw`."""
    stdout, _, stderr = unpacked(path).partition(STDERR_MARK.encode())
    return {"stdout": stdout, "stderr": stderr}


def unpacked(path: Place) -> bytes:
    """All of it, as `join_raw` made it. OSError, or FrameError when the file is damaged."""
    return b"".join(_unpacked(path))


def raw_pieces(path: Place, stream: Stream) -> Iterator[bytes]:
    """stdout or stderr of packed output in pieces of some MB at most, unpacked while they are read. OSError, or FrameError as `read_raw`."""
    mark, held = STDERR_MARK.encode(), b""
    pieces = _unpacked(path)
    for piece in pieces:
        before, found, after = (held + piece).partition(mark)
        if found:
            break
        safe = max(0, len(before) - len(mark) + 1)  # what follows may be the mark's beginning
        if stream == "stdout":
            yield before[:safe]
        held = before[safe:]
    else:
        before, after = held, b""
    if stream == "stdout":
        yield before
    else:
        yield after
        yield from pieces


def _unpacked(path: Place) -> Iterator[bytes]:
    pieces = _decompressed(path)
    if path.name != SMALL_LOG:
        yield from pieces
        return
    try:
        yield from restored(pieces)
    except ValueError as error:
        raise FrameError(f"a line is no difference of requests: {error}") from None


def _decompressed(path: Place) -> Iterator[bytes]:
    unpacking = lzma.LZMADecompressor() if path.suffix == ".xz" else zstandard.ZstdDecompressor().decompressobj()
    with _opened(path) as packed:
        while not unpacking.eof and (piece := packed.read(PACKED_BYTES)):
            try:
                yield unpacking.decompress(piece)
            except (zstandard.ZstdError, lzma.LZMAError) as error:
                raise FrameError(str(error)) from None
    if not unpacking.eof:
        raise FrameError("it is cut short")


@contextmanager
def _opened(path: Place) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as packed:
            yield packed
    except (zipfile.BadZipFile, EOFError) as error:
        raise FrameError(str(error) or "it is cut short") from None
