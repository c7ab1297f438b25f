"""The packed form of a finished run's folder: few files, written by `just maintain pack` and only read afterwards.

    run.json, knee.json     as they were
    samples.ndjson.zst      the record of a sample per line, in plan order; its presence makes the folder a packed run
    raw.zip                 <sample>/raw.xz or raw.log.xz, stored; its comment is the digest of the unpacked content
                            <sample>/k6-summary.json …: the files of k6 itself, where they were requested
    usage.parquet           the usage of every sample, after a column `sample`
    events.parquet          the events likewise, where a sample has a disruption
    bringups.ndjson.zst     a bring-up per line: kind (readback, deployed), name, found; also the bare network's roundtrip.json
    manifests.yaml.xz       one stream, a document per object; `# variant: NAME` where the objects of a variant begin
    hist.parquet            a cache of the histograms that were read from the verbatim output, so that it is read only once

A row of the cache has the state of the output and of the code that read it; it is ignored where either has changed since. The cache is
written completely or not at all, by the first reader that needs it. Everything works without it, where the folder is read-only or the
cache is damaged. Git ignores it.

Refuses to read a damaged file as if it were complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import polars as pl
import zstandard

from lab import disturbances, generators
from lab.base.errors import UsageError
from lab.base.files import write_synced
from lab.model.disturbance import make_validation_context
from lab.model.events import EVENTS_SCHEMA
from lab.model.run import RoundTrip
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records import tables
from lab.records.steadiness import COLUMNS
from lab.records.tables import (
    EVENTS,
    HISTOGRAMS,
    USAGE,
    DamagedError,
    Ints,
    OutputPlace,
    damage_as_error,
    has_file,
    histogram_of,
    join_lines,
    make_unreadable_error,
)
from lab.stats import histogram
from lab.stats.histogram import Histogram

SAMPLES, RAW, BRINGUPS, MANIFESTS = "samples.ndjson.zst", "raw.zip", "bringups.ndjson.zst", "manifests.yaml.xz"
NETWORK = ("roundtrip", "network")
"""The kind and name of the line of bring-ups that has the bare network's round trip."""
RESTORE = "restore it from a copy (git restore brings a committed one back)"
_VARIANT = re.compile(r"^---\n# variant: (.+)\n", re.MULTILINE)


def is_packed(folder: Path) -> bool:
    """Return whether a run's folder is in the packed form."""
    return (folder / SAMPLES).is_file()


def pack_lines(lines: Iterable[str]) -> bytes:
    """Return lines of text compressed by zstd, with a checksum."""
    text = "".join(f"{line}\n" for line in lines)
    return zstandard.ZstdCompressor(level=tables.BEST_ZSTD_LEVEL, write_checksum=True).compress(text.encode())


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file that `pack_lines` made.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged.

    """
    return tables.text_of(path.read_bytes()).splitlines()


def pack_manifests(texts: Mapping[str, str]) -> bytes:
    """Return the manifests (YAML by variant) as one compressed stream.

    Raises:
        ValueError: A text would not read back as it is.

    """
    stream = tables.compress("".join(f"---\n# variant: {name}\n{text}" for name, text in texts.items()).encode())
    if split_by_variant(stream) != dict(texts):
        raise ValueError("a line in the manifests reads like the beginning of a variant")
    return stream


def split_by_variant(stream: bytes) -> dict[str, str]:
    """Return the manifests in a stream that `pack_manifests` made: YAML by variant.

    Raises:
        DamagedError: The stream is damaged.

    """
    before, *parts = _VARIANT.split(tables.text_of(stream, xz=True))
    if before:
        raise DamagedError("there is something before the first variant")
    return dict(zip(parts[::2], parts[1::2], strict=True))


class PackedForm:
    """One run's folder in the packed form.

    It remembers what it has read, since the files do not change any more.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = HistogramCache(folder / HISTOGRAMS)

    def samples(self) -> list[Sample]:
        """Return the record of every sample, in plan order.

        Raises:
            UsageError: A file is damaged or missing, or the output of a sample is missing; the message names it.

        """
        path, kinds = self.folder / SAMPLES, make_validation_context(disturbances.DISTURBANCES)
        try:
            samples = [Sample.model_validate_json(line, context=kinds) for line in read_lines(path)]
            for path, needed in (
                (self.folder / USAGE, bool(samples)),
                (self.folder / EVENTS, any(sample.logged for sample in samples)),
            ):
                if needed and not path.is_file():
                    raise UsageError(str(path), "is missing", RESTORE)
            path = self.folder / RAW
            lost = [sample.id for sample in samples if self._find_output(sample.id) is None]
        except OSError as error:
            raise make_unreadable_error(path, error, RESTORE) from None
        except ValueError as error:
            raise UsageError(str(path), f"damaged: {join_lines(error)}", RESTORE) from None
        if lost:
            raise UsageError(str(path), f"the output of {lost[0]} is missing", RESTORE)
        return samples

    # -- verbatim output --------------------------------------------------------------------------------

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        with damage_as_error():
            return zipfile.ZipFile(self.folder / RAW)

    def _find_output(self, sample: str) -> zipfile.ZipInfo | None:
        members = self._zip.NameToInfo
        return members.get(f"{sample}/{tables.SMALL_RAW}") or members.get(f"{sample}/{tables.SMALL_LOG}")

    def raw(self, sample: str) -> OutputPlace:
        """Return the member of raw.zip where a sample's verbatim output lies, or should lie."""
        member = self._find_output(sample)
        return zipfile.Path(self._zip, member.filename if member else f"{sample}/{tables.SMALL_RAW}")

    def holds(self, sample: Sample) -> bool:
        """Return whether the verbatim output has the digest that the sample's record notes.

        It compares the digest in the member's comment, which packing wrote after it had read the output again, and verifies the checksum
        of the stored bytes.
        """
        member = self._find_output(sample.id)
        if member is None or member.comment.decode("ascii", "replace") != sample.raw_sha256:
            return False
        try:
            self._zip.read(member)
        except (zipfile.BadZipFile, EOFError):
            return False
        return True

    def left(self, sample: str, name: str) -> bytes | None:
        """Return a file that the generator itself wrote; None where it left no such file."""
        with suppress(KeyError), damage_as_error():
            return self._zip.read(f"{sample}/{name}")
        return None

    # -- tables -----------------------------------------------------------------------------------------

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        """Return the cached histograms by series; None where they must be read from the verbatim output."""
        return self.cache.of(sample, self.state(sample.id))

    def state(self, sample: str) -> str:
        """Return the state of a sample's stored output, by which a cache row is recognised as current."""
        member = self._find_output(sample)
        return f"{member.CRC:08x}-{member.file_size}" if member else ""

    @cached_property
    def _usage(self) -> dict[str, pl.DataFrame]:
        return tables.read_joined_tables(self.folder / USAGE, USAGE_SCHEMA)

    @cached_property
    def _events(self) -> dict[str, pl.DataFrame]:
        return tables.read_joined_tables(self.folder / EVENTS, EVENTS_SCHEMA)

    def usage(self, sample: str) -> pl.DataFrame:
        """Return the usage table of a sample."""
        return self._usage.get(sample, pl.DataFrame(schema=USAGE_SCHEMA))

    def looks(self, samples: Sequence[str]) -> pl.DataFrame:
        """Return the usage columns of several samples that show whether they were steady, with `sample` first.

        No other column is read.
        """
        schema = {tables.SAMPLE: pl.String, **{name: USAGE_SCHEMA[name] for name in COLUMNS}}
        return tables.read_table(self.folder / USAGE, schema, exact=False).filter(pl.col(tables.SAMPLE).is_in(samples))

    def events(self, sample: str, needed: bool = True) -> pl.DataFrame:
        """Return the events of a sample; an empty table where none were recorded and none are `needed`."""
        empty = pl.DataFrame(schema=EVENTS_SCHEMA)
        return self._events.get(sample, empty) if needed or (self.folder / EVENTS).exists() else empty

    # -- what was brought up ----------------------------------------------------------------------------

    @cached_property
    def _manifests(self) -> dict[str, str]:
        return split_by_variant((self.folder / MANIFESTS).read_bytes())

    def manifests(self, variant: str) -> str:
        """Return the manifests of a variant as they were applied: YAML, a document per object.

        Raises:
            DamagedError: The run has no manifests of this variant.

        """
        if variant not in self._manifests:
            raise DamagedError(f"it has nothing of '{variant}'")
        return self._manifests[variant]

    @cached_property
    def _bringups(self) -> dict[tuple[str, str], Any]:
        return {(kind, name): content for kind, name, content in parse_bring_ups(read_lines(self.folder / BRINGUPS))}

    def brought_up(self, kind: str, stem: str) -> Any:
        """Return what was stored of a bring-up: its `readback`, or what was `deployed`.

        Raises:
            DamagedError: Nothing of this kind was stored of the bring-up.

        """
        if (kind, stem) not in self._bringups:
            raise DamagedError(f"it has no {kind} of {stem}")
        return self._bringups[kind, stem]

    def roundtrip(self) -> RoundTrip | None:
        """Return the round trip of the bare network; None where it was not tried."""
        content = self._bringups.get(NETWORK) if has_file(self.folder, BRINGUPS) else None
        return content and RoundTrip.model_validate(content)

    # -- where it lies ----------------------------------------------------------------------------------

    def path(self, part: str, sample: str) -> Path:
        """Return the file that has a part (USAGE, EVENTS, HISTOGRAMS) of all samples."""
        return self.folder / part

    def manifests_path(self, variant: str) -> Path:
        """Return the file that has the manifests of all variants."""
        return self.folder / MANIFESTS

    def brought_up_path(self, kind: str, stem: str) -> Path:
        """Return the file that has what was stored of all bring-ups."""
        return self.folder / BRINGUPS


def parse_bring_ups(lines: Iterable[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the kind, the name and the content of every line of bring-ups.

    Raises:
        ValueError: A line is not a bring-up.

    """
    for line in lines:
        bringup: Any = json.loads(line)
        if not isinstance(bringup, dict) or set(cast("dict[str, Any]", bringup)) != {"kind", "name", "found"}:
            raise DamagedError(f"no bring-up: {line[:80]}")
        yield bringup["kind"], bringup["name"], bringup["found"]


# -- the cache -----------------------------------------------------------------------------------------

CACHE_SCHEMA: dict[str, Any] = {
    "sample": pl.String,
    "state": pl.String,  # of the output, and of the code that read it
    "series": pl.String,
    "bucket": pl.List(pl.Int64),
    "count": pl.List(pl.Int64),
}
_KEY = ("sample", "state", "series")


@cache
def digest_parsers() -> str:
    """Return a digest of the parsers' source text, since other parsers may read another histogram."""
    folder = Path(generators.__file__).parent
    files = [*sorted(folder.glob("*.py")), Path(histogram.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


class HistogramCache:
    """The cached histograms of one run; `path` is the file where they lie, or will lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = False

    @cached_property
    def _found(self) -> Mapping[tuple[str, str], Mapping[str, tuple[Ints, Ints]]]:
        """The rows of the cache: (sample, state) → series → buckets and their counts; empty without a valid cache."""
        try:
            frame = pl.read_parquet(self.path.read_bytes())
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return {}
        if dict(frame.schema) != CACHE_SCHEMA or frame.null_count().sum_horizontal().item():
            return {}
        stored: dict[tuple[str, str], dict[str, tuple[Ints, Ints]]] = {}
        rows = zip(frame.select(_KEY).iter_rows(), frame["bucket"], frame["count"], strict=True)
        for (sample, state, series), buckets, counts in rows:
            stored.setdefault((sample, state), {})[series] = buckets.to_numpy(), counts.to_numpy()
        return stored

    def of(self, sample: Sample, state: str) -> Mapping[str, Histogram] | None:
        """Return the histograms of a sample by series; None where they must be read from the verbatim output."""
        rows = self._found.get((sample.id, _join_state(state)))
        if rows is None:
            return None
        try:
            return {series: histogram_of(*row, sample.histogram or "exact") for series, row in rows.items()}
        except DamagedError:
            return None

    def begin(self) -> bool:
        """Return whether to read all outputs of the run now and write the cache.

        It is true only the first time, and only where the folder is writable.
        """
        begun, self._begun = self._begun, True
        return not begun and os.access(self.path.parent, os.W_OK)

    def write(self, samples: Iterable[tuple[str, str, Mapping[str, Histogram]]]) -> None:
        """Write the histograms of all samples of the run; do nothing where they cannot be written.

        Args:
            samples: For each sample its id, the state of its output, and its histograms by series.

        """
        rows = [
            (sample, _join_state(state), series, pl.Series(filled), pl.Series(of_series.counts[filled]))
            for sample, state, histograms in samples
            for series, of_series in histograms.items()
            for filled in [of_series.counts.nonzero()[0]]
            if filled.size
        ]
        columns = zip(CACHE_SCHEMA, zip(*rows, strict=True), strict=True) if rows else ()
        frame = pl.DataFrame({name: list(values) for name, values in columns}, schema=CACHE_SCHEMA)
        partial = self.path.with_name(f".{self.path.name}.{token_hex(4)}.partial")
        try:
            write_synced(partial, frame)
            partial.replace(self.path)
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        self.__dict__.pop("_found", None)


def _join_state(state: str) -> str:
    return f"{state}-{digest_parsers()}"
