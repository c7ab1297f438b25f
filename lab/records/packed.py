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
from lab.base.errors import UsageError, refuse_if
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
    refuse_damage,
)
from lab.stats import histogram
from lab.stats.histogram import Histogram

SAMPLES, RAW, BRINGUPS, MANIFESTS = "samples.ndjson.zst", "raw.zip", "bringups.ndjson.zst", "manifests.yaml.xz"
NETWORK = ("roundtrip", "network")
"""The kind and name of the line of bring-ups that has the bare network's round trip."""
RESTORE = "restore it from a copy (git restore brings a committed one back)"
_VARIANT = re.compile(r"^---\n# variant: (.+)\n", re.MULTILINE)


def is_packed(folder: Path) -> bool:
    """Return whether a run's folder is in the packed form (few files), not in the form with one folder per sample."""
    return (folder / SAMPLES).is_file()


def pack_lines(lines: Iterable[str]) -> bytes:
    """Return lines of text as one text with line breaks, compressed by zstd with a checksum."""
    text = "".join(f"{line}\n" for line in lines)
    return zstandard.ZstdCompressor(level=tables.BEST_ZSTD_LEVEL, write_checksum=True).compress(text.encode())


def read_lines(path: Path) -> list[str]:
    """Return the lines of text in a compressed file that `pack_lines` made.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged.

    """
    return tables.text_of(path.read_bytes()).splitlines()


def pack_manifests(texts: Mapping[str, str]) -> bytes:
    """Return the manifests of several variants as one compressed stream.

    Args:
        texts: The YAML of each variant, by the variant's name.

    Raises:
        ValueError: Reading the stream would not give the texts back, because a line in them looks like a separator.

    """
    stream = tables.compress("".join(f"---\n# variant: {name}\n{text}" for name, text in texts.items()).encode())
    if split_by_variant(stream) != dict(texts):
        raise ValueError("a line in the manifests reads like the beginning of a variant")
    return stream


def split_by_variant(stream: bytes) -> dict[str, str]:
    """Return the manifests in a stream that `pack_manifests` made: the YAML of each variant, by the variant's name.

    Raises:
        DamagedError: The stream is damaged.

    """
    before, *parts = _VARIANT.split(tables.text_of(stream, xz=True))
    refuse_damage(before, "there is something before the first variant")
    return dict(zip(parts[::2], parts[1::2], strict=True))


class PackedForm:
    """The folder of a finished run in the packed form, which has few files.

    Their content is kept in memory once it is read, because the files do not change any more.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = HistogramCache(folder / HISTOGRAMS)

    def samples(self) -> list[Sample]:
        """Return the records of all samples of the run, in the order of the plan.

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
                refuse_if(needed and not path.is_file(), str(path), "is missing", RESTORE)
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
        """Return the place of the generator's output of a sample, which is a member of raw.zip; it may be missing.

        Args:
            sample: The id of the sample.

        """
        member = self._find_output(sample)
        return zipfile.Path(self._zip, member.filename if member else f"{sample}/{tables.SMALL_RAW}")

    def holds(self, sample: Sample) -> bool:
        """Return whether the stored output of the generator has the digest that is in the sample's record.

        The output is not unpacked for this. The digest that was noted in the archive at packing is compared with the
        record's digest, and the stored bytes are checked against the archive's checksum. The result is False if the
        output is missing.
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
        """Return the content of a file that the generator wrote in addition to its output; None if there is no such file.

        Args:
            sample: The id of the sample.
            name: The name of the file, such as `k6-summary.json`.

        """
        with suppress(KeyError), damage_as_error():
            return self._zip.read(f"{sample}/{name}")
        return None

    # -- tables -----------------------------------------------------------------------------------------

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        """Return the cached latency histograms of a sample, by series ("latency", "service").

        Returns:
            None if no valid ones are cached, so that they must be parsed from the generator's output.

        """
        return self.cache.of(sample, self.state(sample.id))

    def state(self, sample: str) -> str:
        """Return a text that identifies the content of a sample's stored output: checksum and size; empty if it is missing.

        A cached histogram is valid only if it was read from an output with an equal text.

        Args:
            sample: The id of the sample.

        """
        member = self._find_output(sample)
        return f"{member.CRC:08x}-{member.file_size}" if member else ""

    @cached_property
    def _usage(self) -> dict[str, pl.DataFrame]:
        return tables.read_joined_tables(self.folder / USAGE, USAGE_SCHEMA)

    @cached_property
    def _events(self) -> dict[str, pl.DataFrame]:
        return tables.read_joined_tables(self.folder / EVENTS, EVENTS_SCHEMA)

    def usage(self, sample: str) -> pl.DataFrame:
        """Return the usage of a sample: the CPU and memory of each process, second by second (`USAGE_SCHEMA`).

        Args:
            sample: The id of the sample.

        """
        return self._usage.get(sample, pl.DataFrame(schema=USAGE_SCHEMA))

    def looks(self, samples: Sequence[str]) -> pl.DataFrame:
        """Return the usage of several samples as one table, with the columns that show whether a sample was steady.

        The first column, `sample`, names the sample of each row. The others are those of `COLUMNS`; no more is read
        from the file.

        Args:
            samples: The ids of the samples.

        """
        schema = {tables.SAMPLE: pl.String, **{name: USAGE_SCHEMA[name] for name in COLUMNS}}
        return tables.read_table(self.folder / USAGE, schema, exact=False).filter(pl.col(tables.SAMPLE).is_in(samples))

    def events(self, sample: str, needed: bool = True) -> pl.DataFrame:
        """Return the events of a sample as a table (`EVENTS_SCHEMA`).

        Args:
            sample: The id of the sample.
            needed: Whether a missing file is an error. If not, the table is then empty.

        """
        empty = pl.DataFrame(schema=EVENTS_SCHEMA)
        return self._events.get(sample, empty) if needed or (self.folder / EVENTS).exists() else empty

    # -- what was brought up ----------------------------------------------------------------------------

    @cached_property
    def _manifests(self) -> dict[str, str]:
        return split_by_variant((self.folder / MANIFESTS).read_bytes())

    def manifests(self, variant: str) -> str:
        """Return the manifests of a variant as they were applied, as YAML with one document per Kubernetes object.

        Args:
            variant: The name of the variant under which the run stored it.

        Raises:
            DamagedError: The run has no manifests of this variant.

        """
        refuse_damage(variant not in self._manifests, f"it has nothing of '{variant}'")
        return self._manifests[variant]

    @cached_property
    def _bringups(self) -> dict[tuple[str, str], Any]:
        return {(kind, name): content for kind, name, content in parse_bring_ups(read_lines(self.folder / BRINGUPS))}

    def brought_up(self, kind: str, stem: str) -> Any:
        """Return a record of one start of a system: its read-backs (checks of its settings) or its pods.

        Args:
            kind: "readback" or "deployed" (the pods).
            stem: The name of the start, such as `b01-keepalive`.

        Raises:
            DamagedError: There is no such record.

        """
        refuse_damage((kind, stem) not in self._bringups, f"it has no {kind} of {stem}")
        return self._bringups[kind, stem]

    def roundtrip(self) -> RoundTrip | None:
        """Return the round-trip times between client and backend without a proxy; None if they were not measured."""
        content = self._bringups.get(NETWORK) if has_file(self.folder, BRINGUPS) else None
        return content and RoundTrip.model_validate(content)

    # -- where it lies ----------------------------------------------------------------------------------

    def path(self, part: str, sample: str) -> Path:
        """Return the path of the file that has a table of all samples.

        Args:
            part: The name of the table: USAGE, EVENTS or HISTOGRAMS.
            sample: The id of a sample; it makes no difference here, only in the form with one folder per sample.

        """
        return self.folder / part

    def manifests_path(self, variant: str) -> Path:
        """Return the path of the file with the manifests of a variant; a packed run has one file for all variants."""
        return self.folder / MANIFESTS

    def brought_up_path(self, kind: str, stem: str) -> Path:
        """Return the path of the file that has the records of all starts of systems; the arguments make no difference."""
        return self.folder / BRINGUPS


def parse_bring_ups(lines: Iterable[str]) -> Iterator[tuple[str, str, Any]]:
    """Parse the lines of the file with the records of all starts of systems.

    Yields:
        The kind ("readback", "deployed" or "roundtrip"), the name of the start, and the content of the record.

    Raises:
        ValueError: A line is not such a record.

    """
    for line in lines:
        bringup: Any = json.loads(line)
        refuse_damage(
            not isinstance(bringup, dict) or set(cast("dict[str, Any]", bringup)) != {"kind", "name", "found"},
            f"no bring-up: {line[:80]}",
        )
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
    """Return a digest of the source code that parses generators' outputs: 16 hexadecimal digits.

    Histograms that other code has parsed may differ, so their cache is not used.
    """
    folder = Path(generators.__file__).parent
    files = [*sorted(folder.glob("*.py")), Path(histogram.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


class HistogramCache:
    """The cache of the latency histograms of one packed run, in the file `path`, which may not exist yet.

    It saves parsing the generators' outputs again whenever the run is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = False

    @cached_property
    def _found(self) -> Mapping[tuple[str, str], Mapping[str, tuple[Ints, Ints]]]:
        """The rows of the cache file: (sample id, text that identifies the output) → series → (bucket numbers, counts).

        It is empty if there is no valid cache.
        """
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
        """Return the cached histograms of a sample, by series ("latency", "service").

        Args:
            sample: The sample.
            state: The text that identifies the sample's stored output, from `PackedForm.state`.

        Returns:
            None if no valid ones are cached, so that they must be parsed from the generator's output.

        """
        if (rows := self._found.get((sample.id, _join_state(state)))) is None:
            return None
        try:
            return {series: histogram_of(*row, sample.histogram or "exact") for series, row in rows.items()}
        except DamagedError:
            return None

    def begin(self) -> bool:
        """Return whether the caller should now parse all outputs of the run and write the cache.

        It is True only at the first call, and only if the folder can be written.
        """
        begun, self._begun = self._begun, True
        return not begun and os.access(self.path.parent, os.W_OK)

    def write(self, samples: Iterable[tuple[str, str, Mapping[str, Histogram]]]) -> None:
        """Write the histograms of all samples of the run into the cache; do nothing if it cannot be written.

        Args:
            samples: For each sample: its id, the text that identifies its output (`PackedForm.state`), and its
                histograms by series ("latency", "service").

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
