"""A run's files as bytes and back: their names, a sample's tables (histograms, usage, events) and its verbatim output.

Refuses a table whose columns, and a histogram whose buckets or counts are not what is written here.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import zstandard

from lab.base.errors import UsageError
from lab.model.events import EVENTS_SCHEMA, Event
from lab.records.request_log import restored
from lab.stats.histogram import BUCKETS, Histogram

RUN, KNEE = "run.json", "knee.json"
"""The same in both forms of a run's folder."""
ROUNDTRIP = "roundtrip.json"
"""Of a packed run a line of its bring-ups."""
USAGE, EVENTS, HISTOGRAMS = "usage.parquet", "events.parquet", "hist.parquet"
"""Of a sample, beside its sample.json; in a packed run of all samples, the last one a cache."""
READBACK, DEPLOYED = "readback", "deployed"
"""What is kept of a bring-up."""
RAW, SMALL_RAW, SMALL_LOG = "raw.zst", "raw.xz", "raw.log.xz"
"""Verbatim output as a run writes it, and as a packed run has it: with a log of requests its lines as differences."""

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
STDERR_MARK = "\n#lab stderr\n"
Ints = npt.NDArray[np.int64]
Place = Path | zipfile.Path
"""Where verbatim output lies: a file of a sample's folder, or one in a packed run's raw.zip."""
BEST = 22
"""Level of zstd: the slowest."""
MICROSECONDS = 2**20
"""In a second, about."""
MOST_WINDOW = 2**26
"""Of xz: as much as its best preset has."""


BROKEN = (zipfile.BadZipFile, EOFError, zstandard.ZstdError, lzma.LZMAError)
"""What is raised of archives that are cut or changed."""


class FrameError(ValueError):
    """The stored bytes are not what they should be; the message says how."""


@contextmanager
def telling_damage() -> Iterator[None]:
    """FrameError for what libraries raise of bytes that are not what they should be."""
    try:
        yield
    except (*BROKEN, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise FrameError(str(error).partition("\n")[0][:200] or "it is cut short") from None


def in_a_line(error: Exception) -> str:
    """What an error says, without its lines' ends."""
    return " ".join(str(error).split())[:400]


def unreadable(path: Path, error: OSError, remedy: str) -> UsageError:
    """A file or folder that the system does not let us read."""
    return UsageError(str(error.filename or path), f"cannot be read: {error.strerror}", remedy)


def has(folder: Path, name: str) -> bool:
    """Whether a folder has a file of that name, as far as we may see."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False


# -- tables --------------------------------------------------------------------------------------------


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
    parts = read_table(path, HISTOGRAM_SCHEMA).partition_by("series", as_dict=True, maintain_order=True)
    return {
        str(series): histogram_of(rows["bucket"].to_numpy(), rows["count"].to_numpy(), kind)
        for (series,), rows in parts.items()
    }


def histogram_of(buckets: Ints, filled: Ints, kind: Literal["exact", "quantiles"]) -> Histogram:
    """`buckets`, `filled`: int64, shape (n,): the buckets that are not empty, and their counts. FrameError for what no histogram has."""
    sound = buckets.shape == filled.shape and ((buckets >= 0) & (buckets < BUCKETS) & (filled > 0)).all()
    if not sound or np.unique(buckets).size != buckets.size:
        raise FrameError("a bucket that there is not, or twice, or an empty one")
    counts = Histogram.empty().counts
    counts[buckets] = filled
    return Histogram(counts, kind)


def read_table(path: Path, schema: Mapping[str, Any], whole: bool = True) -> pl.DataFrame:
    """A table of these columns, those that earlier labs had not added as nulls; not `whole`: of more, of which no other is read.

    OSError, or FrameError when the file is damaged.
    """
    content = path.read_bytes()
    with telling_damage():
        there = pl.read_parquet_schema(io.BytesIO(content))
        frame = pl.read_parquet(content, columns=None if whole else [name for name in schema if name in there])
    missing = [name for name in _ADDED if name in schema and name not in there]
    frame = frame.with_columns(pl.lit(None, schema[name]).alias(name) for name in missing)
    if set(frame.columns) == set(schema):
        frame = frame.select(list(schema))
    if dict(frame.schema) != schema:
        raise FrameError(f"its columns are {', '.join(frame.columns)}, expected {', '.join(schema)}")
    return frame


def to_the_microsecond(usage: pl.DataFrame) -> pl.DataFrame:
    """A usage table with its moments and CPU seconds in whole 2⁻²⁰ s: a look takes longer, and the kernel's nanoseconds do not pack."""
    return usage.with_columns((pl.col("t_s", "cpu_s") * MICROSECONDS).round() / MICROSECONDS)


def joined(frames: Mapping[str, pl.DataFrame], schema: Mapping[str, Any]) -> pl.DataFrame:
    """One table of many samples': sample → its rows, with the sample's name as the first column."""
    nothing = pl.DataFrame(schema={SAMPLE: pl.String, **schema})
    return pl.concat([nothing, *(rows.select(pl.lit(name).alias(SAMPLE), *schema) for name, rows in frames.items())])


def read_joined(path: Path, schema: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Sample → its rows, of those that have any. OSError, or FrameError when the file is damaged."""
    frame = read_table(path, {SAMPLE: pl.String, **schema})
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


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """A table as small as it goes: by brotli, which takes its time and is written once."""
    written = io.BytesIO()
    frame.write_parquet(written, compression="brotli", compression_level=11, statistics=False)
    return written.getvalue()


# -- verbatim output -----------------------------------------------------------------------------------


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


def read_raw(path: Place) -> tuple[str, str]:
    """(stdout, stderr) of packed output. OSError, or FrameError when the file is damaged."""
    stdout, _, stderr = unpacked(path).decode("utf-8", "surrogateescape").partition(STDERR_MARK)
    return stdout, stderr


def unpacked(path: Place) -> bytes:
    """All of it, as `join_raw` made it. OSError, or FrameError when the file is damaged."""
    with telling_damage():
        content = path.read_bytes()
    content = decompressed(content, xz=path.suffix == ".xz")
    if path.name != SMALL_LOG:
        return content
    try:
        return restored(content)
    except ValueError as error:
        raise FrameError(f"a line is no difference of requests: {error}") from None


def decompressed(content: bytes, xz: bool = False) -> bytes:
    """Of zstd, or of xz. FrameError where it is damaged, cut short, or has more behind its end."""
    unpacking = lzma.LZMADecompressor() if xz else zstandard.ZstdDecompressor().decompressobj()
    with telling_damage():
        found = unpacking.decompress(content)
    if not unpacking.eof or unpacking.unused_data:
        raise FrameError("it is cut short, or there is more behind its end")
    return found


def text_of(content: bytes, xz: bool = False) -> str:
    """`decompressed`, as UTF-8. ValueError."""
    return decompressed(content, xz).decode("utf-8")
