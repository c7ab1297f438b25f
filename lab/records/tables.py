"""The names of a run's files, and the conversion of tables and generators' outputs to bytes and back.

The tables of a sample are its histograms, its usage and its events. Refuses a table whose columns, and a histogram whose buckets or counts,
are not those that are written here.
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
import polars as pl
import zstandard

from lab.base.errors import UsageError
from lab.model.events import EVENTS_SCHEMA, Event
from lab.records.request_log import decode_log
from lab.stats.histogram import BUCKETS, Histogram, Ints

RUN, KNEE = "run.json", "knee.json"
"""The names of the files that are the same in both forms of a run's folder."""
ROUNDTRIP = "roundtrip.json"
"""The name of the file with the bare network's round trip; in a packed run it is a line of the bring-ups."""
USAGE, EVENTS, HISTOGRAMS = "usage.parquet", "events.parquet", "hist.parquet"
"""The names of the tables of a sample, next to its sample.json.

A packed run has one such table for all samples, where the histograms are a cache.
"""
READBACK, DEPLOYED = "readback", "deployed"
"""The two kinds of records that are stored of a bring-up."""
RAW, SMALL_RAW, SMALL_LOG = "raw.zst", "raw.xz", "raw.log.xz"
"""The names of verbatim output: in a folder per sample, in a packed run, and there as a log of differences."""

_ADDED = ("tid", "sent_bytes")
"""The columns that usage tables of earlier labs lack; they are null there."""
SAMPLE = "sample"
"""The first column of the tables of a packed run: the sample that a row belongs to."""
HISTOGRAM_SCHEMA = {
    "series": pl.String,  # latency or service
    "bucket": pl.Int64,
    "count": pl.Int64,
}
"""The columns of a sample's hist.parquet: one row per series and bucket that is not empty."""
STDERR_MARK = "\n#lab stderr\n"
OutputPlace = Path | zipfile.Path
"""The place of verbatim output: a file in a sample's folder, or a member of a packed run's raw.zip."""
BEST_ZSTD_LEVEL = 22
"""The slowest and best level of zstd."""
UNITS_PER_SECOND = 2**20
"""The units in which times are stored, per second: about a microsecond each."""
MOST_WINDOW = 2**26
"""The largest window of xz, that of its best preset."""


BROKEN = (zipfile.BadZipFile, EOFError, zstandard.ZstdError, lzma.LZMAError)
"""The errors that libraries raise for archives that are cut short or changed."""


class DamagedError(ValueError):
    """The error that stored bytes are damaged; the message states how."""


def refuse_damage(damaged: object, fault: str) -> None:
    """Raise a DamagedError if stored bytes are damaged.

    Args:
        damaged: Any value; only its truth counts.
        fault: The damage in words.

    """
    if damaged:
        raise DamagedError(fault)


@contextmanager
def damage_as_error() -> Iterator[None]:
    """Turn the errors that libraries raise for damaged bytes into a DamagedError, inside a `with` block."""
    try:
        yield
    except (*BROKEN, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DamagedError(str(error).partition("\n")[0][:200] or "it is cut short") from None


def join_lines(error: Exception) -> str:
    """Return the message of an error as one line of at most 400 characters."""
    return " ".join(str(error).split())[:400]


def make_unreadable_error(path: Path, error: OSError, remedy: str) -> UsageError:
    """Return the error for a file or folder that the operating system does not let the lab read.

    Args:
        path: The file or folder, used if `error` does not name one.
        error: The error of the operating system.
        remedy: What the user can do.

    """
    return UsageError(str(error.filename or path), f"cannot be read: {error.strerror}", remedy)


def has_file(folder: Path, name: str) -> bool:
    """Return whether a folder has a file of this name; False if the folder cannot be read."""
    try:
        return (folder / name).is_file()
    except OSError:
        return False


# -- tables --------------------------------------------------------------------------------------------


def histogram_frame(histograms: Mapping[str, Histogram]) -> pl.DataFrame:
    """Return latency histograms as a table with one row per bucket that is not empty (`HISTOGRAM_SCHEMA`).

    Args:
        histograms: The histograms, by series ("latency", "service").

    """
    frames = [pl.DataFrame(schema=HISTOGRAM_SCHEMA)]
    for series, histogram in histograms.items():
        filled = histogram.counts.nonzero()[0]
        columns = {"series": [series] * len(filled), "bucket": filled, "count": histogram.counts[filled]}
        frames.append(pl.DataFrame(columns).cast(HISTOGRAM_SCHEMA))  # type: ignore[arg-type]
    return pl.concat(frames)


def read_histograms(path: Path, kind: Literal["exact", "quantiles"]) -> dict[str, Histogram]:
    """Read a file hist.parquet, and return the latency histograms in it, by series ("latency", "service").

    Args:
        path: The file.
        kind: What the generator reported: "exact" counts, or only "quantiles", from which the counts were estimated.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The file is damaged.

    """
    parts = read_table(path, HISTOGRAM_SCHEMA).partition_by("series", as_dict=True, maintain_order=True)
    return {
        str(series): histogram_of(rows["bucket"].to_numpy(), rows["count"].to_numpy(), kind)
        for (series,), rows in parts.items()
    }


def histogram_of(buckets: Ints, filled: Ints, kind: Literal["exact", "quantiles"]) -> Histogram:
    """Return a histogram from the numbers of its buckets that are not empty, and their counts.

    Args:
        buckets: The numbers of the buckets, shape (n,).
        filled: The count of each of these buckets, shape (n,).
        kind: What the generator reported: "exact" counts, or only "quantiles", from which the counts were estimated.

    Raises:
        DamagedError: A bucket does not exist, occurs twice, or has the count 0.

    """
    sound = buckets.shape == filled.shape and ((buckets >= 0) & (buckets < BUCKETS) & (filled > 0)).all()
    refuse_damage(
        not sound or np.unique(buckets).size != buckets.size, "a bucket that there is not, or twice, or an empty one"
    )
    counts = np.zeros(BUCKETS, dtype=np.int64)
    counts[buckets] = filled
    return Histogram(counts, kind)


def read_table(path: Path, schema: Mapping[str, Any], exact: bool = True) -> pl.DataFrame:
    """Read a Parquet file, and return its table with the columns of a schema.

    Columns that older versions of the lab did not write (`tid`, `sent_bytes`) are null if they are missing.

    Args:
        path: The file.
        schema: The columns and their types.
        exact: Whether the file must have exactly these columns. If not, its other columns are not read.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The file is damaged, or its columns differ.

    """
    content = path.read_bytes()
    with damage_as_error():
        stored = pl.read_parquet_schema(io.BytesIO(content))
        frame = pl.read_parquet(content, columns=None if exact else [name for name in schema if name in stored])
    missing = [name for name in _ADDED if name in schema and name not in stored]
    frame = frame.with_columns(pl.lit(None, schema[name]).alias(name) for name in missing)
    if set(frame.columns) == set(schema):
        frame = frame.select(list(schema))
    refuse_damage(
        dict(frame.schema) != schema,
        f"its columns are {', '.join(frame.columns)}, expected {', '.join(schema)}",
    )
    return frame


def round_to_microseconds(usage: pl.DataFrame) -> pl.DataFrame:
    """Return a usage table with its times and CPU seconds rounded to 2⁻²⁰ s (about a microsecond).

    A single observation takes longer than that, and unrounded values would not compress well.
    """
    return usage.with_columns((pl.col("t_s", "cpu_s") * UNITS_PER_SECOND).round() / UNITS_PER_SECOND)


def join_tables(frames: Mapping[str, pl.DataFrame], schema: Mapping[str, Any]) -> pl.DataFrame:
    """Join the tables of several samples into one, whose first column `sample` names the sample of each row.

    Args:
        frames: The table of each sample, by the sample's id.
        schema: The columns of the tables and their types.

    """
    empty = pl.DataFrame(schema={SAMPLE: pl.String, **schema})
    return pl.concat([empty, *(rows.select(pl.lit(name).alias(SAMPLE), *schema) for name, rows in frames.items())])


def read_joined_tables(path: Path, schema: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Read a file that `join_tables` made, and return the table of each sample, by the sample's id.

    Samples without rows are missing.

    Args:
        path: The Parquet file.
        schema: The columns and their types, without the column `sample`.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The file is damaged.

    """
    frame = read_table(path, {SAMPLE: pl.String, **schema})
    runs = frame.select(pl.col(SAMPLE).rle()).unnest(SAMPLE)
    refuse_damage(runs["value"].n_unique() != runs.height, "a sample's rows do not lie together")
    rows, parts, start = frame.drop(SAMPLE), dict[str, pl.DataFrame](), 0
    for length, name in runs.select("len", "value").iter_rows():
        parts[name] = rows.slice(start, length)
        start += length
    return parts


def events_frame(events: Iterable[Event]) -> pl.DataFrame:
    """Return events as a table (`EVENTS_SCHEMA`), sorted by time."""
    rows = [asdict(event) for event in sorted(events, key=lambda event: event.at_s)]
    return pl.DataFrame(rows, schema=EVENTS_SCHEMA)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Return a table as the bytes of a Parquet file that is as small as possible.

    It is compressed by brotli, which is slow, but is needed only once per run.
    """
    written = io.BytesIO()
    frame.write_parquet(written, compression="brotli", compression_level=11, statistics=False)
    return written.getvalue()


# -- verbatim output -----------------------------------------------------------------------------------


def join_raw(stdout: str, stderr: str) -> str:
    """Return a generator's stdout and stderr as one text, with a mark between them if stderr is not empty."""
    return stdout + (STDERR_MARK + stderr if stderr else "")


def compute_digest(raw: bytes) -> str:
    """Return the SHA-256 digest of a generator's output, as it is stored in `raw_sha256` of sample.json.

    Args:
        raw: The output, not compressed.

    """
    return hashlib.sha256(raw).hexdigest()


def raw_bytes(raw: str) -> bytes:
    """Return a generator's output as the bytes that it printed, even if they are not valid UTF-8."""
    return raw.encode("utf-8", "surrogateescape")


def pack_raw(raw: str, level: int = 3) -> bytes:
    """Return a generator's output compressed by zstd.

    Args:
        raw: The output, as from `join_raw`.
        level: The level of compression, from 1 (fast) to 22 (small).

    """
    return zstandard.compress(raw_bytes(raw), level)


def compress(content: bytes) -> bytes:
    """Return bytes compressed by xz, as small as possible.

    The compression window is not larger than the content, so that decompressing needs no more memory than that.
    """
    window = min(max(len(content), 4096), MOST_WINDOW)
    text = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0, "dict_size": window}]
    return lzma.compress(content, check=lzma.CHECK_CRC32, filters=text)


def read_raw(path: OutputPlace) -> tuple[str, str]:
    """Read a generator's compressed output, and return its stdout and stderr.

    Args:
        path: The file, or the member of a packed run's archive.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The file is damaged.

    """
    stdout, _, stderr = read_output(path).decode("utf-8", "surrogateescape").partition(STDERR_MARK)
    return stdout, stderr


def read_output(path: OutputPlace) -> bytes:
    """Read a generator's compressed output, and return it as one text in bytes, as `join_raw` joined it.

    Args:
        path: The file, or the member of a packed run's archive. Its name determines how it is decompressed.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The file is damaged.

    """
    with damage_as_error():
        content = path.read_bytes()
    content = decompress(content, xz=path.suffix == ".xz")
    if path.name != SMALL_LOG:
        return content
    try:
        return decode_log(content)
    except ValueError as error:
        raise DamagedError(f"a line is no difference of requests: {error}") from None


def decompress(content: bytes, xz: bool = False) -> bytes:
    """Decompress a zstd or xz stream.

    Args:
        content: The stream.
        xz: Whether it is xz; if not, it is zstd.

    Raises:
        DamagedError: The stream is damaged, cut short, or followed by more bytes.

    """
    decompressor = lzma.LZMADecompressor() if xz else zstandard.ZstdDecompressor().decompressobj()
    with damage_as_error():
        plain_bytes = decompressor.decompress(content)
    refuse_damage(not decompressor.eof or decompressor.unused_data, "it is cut short, or there is more behind its end")
    return plain_bytes


def text_of(content: bytes, xz: bool = False) -> str:
    """Decompress a zstd or xz stream of UTF-8 text.

    Args:
        content: The stream.
        xz: Whether it is xz; if not, it is zstd.

    Raises:
        ValueError: The stream is damaged, or not UTF-8.

    """
    return decompress(content, xz).decode("utf-8")
