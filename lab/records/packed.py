"""A run in few files, as `just maintain pack` leaves a finished one. It is read, never written.

    run.json, knee.json     as they were
    samples.ndjson.zst      a sample's record a line, in plan order; that it is there makes the folder a packed run
    raw.zip                 <sample>/raw.xz or raw.log.xz, stored; its comment is the digest of what it unpacks to
                            <sample>/k6-summary.json …: k6's own, where they were asked for
    usage.parquet           every sample's, with a column `sample` in front
    events.parquet          likewise, where something was done to the system
    bringups.ndjson.zst     a bring-up a line: kind (readback, deployed), name, found; likewise the bare network's roundtrip.json
    manifests.yaml.xz       one stream, a document per object; `# variant: NAME` where a variant's begin
    hist.parquet            a cache: its samples' histograms as they were read off the verbatim output, so that it is read once

A row of the cache has the output's state and that of the code which read it: where either is another now, the row is not believed. It is
written whole or not at all, by whoever comes first; where nothing may be written (a read-only checkout), or what lies there is damaged,
everything works without it. Git ignores it.

Refuses to read a damaged file as if it were whole.
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
from lab.model.disturbance import known
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
    FrameError,
    Ints,
    Place,
    has,
    histogram_of,
    in_a_line,
    telling_damage,
    unreadable,
)
from lab.stats import histogram
from lab.stats.histogram import Histogram

SAMPLES, RAW, BRINGUPS, MANIFESTS = "samples.ndjson.zst", "raw.zip", "bringups.ndjson.zst", "manifests.yaml.xz"
NETWORK = ("roundtrip", "network")
"""Kind and name of its line."""
RESTORE = "restore it from a copy (git restore brings a committed one back)"
_VARIANT = re.compile(r"^---\n# variant: (.+)\n", re.MULTILINE)


def is_packed(folder: Path) -> bool:
    return (folder / SAMPLES).is_file()


def lines_packed(lines: Iterable[str]) -> bytes:
    text = "".join(f"{line}\n" for line in lines)
    return zstandard.ZstdCompressor(level=tables.BEST, write_checksum=True).compress(text.encode())


def lines_of(path: Path) -> list[str]:
    """OSError, or ValueError when the file is damaged."""
    return tables.text_of(path.read_bytes()).splitlines()


def manifests_packed(texts: Mapping[str, str]) -> bytes:
    """Variant → its YAML. ValueError for a text that would not come back."""
    whole = tables.compressed("".join(f"---\n# variant: {name}\n{text}" for name, text in texts.items()).encode())
    if by_variant(whole) != dict(texts):
        raise ValueError("a line in the manifests reads like the beginning of a variant")
    return whole


def by_variant(whole: bytes) -> dict[str, str]:
    """Variant → its YAML. FrameError when it is damaged."""
    before, *parts = _VARIANT.split(tables.text_of(whole, xz=True))
    if before:
        raise FrameError("there is something before the first variant")
    return dict(zip(parts[::2], parts[1::2], strict=True))


class Packed:
    """One run's folder in this form. What is read once is kept, since it does not change any more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = HistogramCache(folder / HISTOGRAMS)

    def samples(self) -> list[Sample]:
        path, kinds = self.folder / SAMPLES, known(disturbances.DISTURBANCES)
        try:
            found = [Sample.model_validate_json(line, context=kinds) for line in lines_of(path)]
            for path, needed in (
                (self.folder / USAGE, bool(found)),
                (self.folder / EVENTS, any(sample.outcome for sample in found)),
            ):
                if needed and not path.is_file():
                    raise UsageError(str(path), "is missing", RESTORE)
            path = self.folder / RAW
            lost = [sample.id for sample in found if self._member(sample.id) is None]
        except OSError as error:
            raise unreadable(path, error, RESTORE) from None
        except ValueError as error:
            raise UsageError(str(path), f"damaged: {in_a_line(error)}", RESTORE) from None
        if lost:
            raise UsageError(str(path), f"the output of {lost[0]} is missing", RESTORE)
        return found

    # -- verbatim output --------------------------------------------------------------------------------

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        with telling_damage():
            return zipfile.ZipFile(self.folder / RAW)

    def _member(self, sample: str) -> zipfile.ZipInfo | None:
        members = self._zip.NameToInfo
        return members.get(f"{sample}/{tables.SMALL_RAW}") or members.get(f"{sample}/{tables.SMALL_LOG}")

    def raw(self, sample: str) -> Place:
        member = self._member(sample)
        return zipfile.Path(self._zip, member.filename if member else f"{sample}/{tables.SMALL_RAW}")

    def holds(self, sample: Sample) -> bool:
        """By the digest that packing has noted beside its output, once that had been read again, and by the checksum of what lies there."""
        member = self._member(sample.id)
        if member is None or member.comment.decode("ascii", "replace") != sample.raw_sha256:
            return False
        try:
            self._zip.read(member)
        except (zipfile.BadZipFile, EOFError):
            return False
        return True

    def left(self, sample: str, name: str) -> bytes | None:
        with suppress(KeyError), telling_damage():
            return self._zip.read(f"{sample}/{name}")
        return None

    # -- tables -----------------------------------------------------------------------------------------

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        return self.cache.of(sample, self.state(sample.id))

    def state(self, sample: str) -> str:
        """Of a sample's output as it lies there now: what a cache of it is held against."""
        member = self._member(sample)
        return f"{member.CRC:08x}-{member.file_size}" if member else ""

    @cached_property
    def _usage(self) -> dict[str, pl.DataFrame]:
        return tables.read_joined(self.folder / USAGE, USAGE_SCHEMA)

    @cached_property
    def _events(self) -> dict[str, pl.DataFrame]:
        return tables.read_joined(self.folder / EVENTS, EVENTS_SCHEMA)

    def usage(self, sample: str) -> pl.DataFrame:
        return self._usage.get(sample, pl.DataFrame(schema=USAGE_SCHEMA))

    def looks(self, samples: Sequence[str]) -> pl.DataFrame:
        """Return the columns of these samples' usage tables that show whether they were steady, with `sample` in front; no other is read."""
        schema = {tables.SAMPLE: pl.String, **{name: USAGE_SCHEMA[name] for name in COLUMNS}}
        return tables.read_table(self.folder / USAGE, schema, whole=False).filter(pl.col(tables.SAMPLE).is_in(samples))

    def events(self, sample: str, needed: bool = True) -> pl.DataFrame:
        nothing = pl.DataFrame(schema=EVENTS_SCHEMA)
        return self._events.get(sample, nothing) if needed or (self.folder / EVENTS).exists() else nothing

    # -- what was brought up ----------------------------------------------------------------------------

    @cached_property
    def _manifests(self) -> dict[str, str]:
        return by_variant((self.folder / MANIFESTS).read_bytes())

    def manifests(self, variant: str) -> str:
        if variant not in self._manifests:
            raise FrameError(f"it has nothing of '{variant}'")
        return self._manifests[variant]

    @cached_property
    def _bringups(self) -> dict[tuple[str, str], Any]:
        return {(kind, name): found for kind, name, found in bringups(lines_of(self.folder / BRINGUPS))}

    def brought_up(self, kind: str, stem: str) -> Any:
        if (kind, stem) not in self._bringups:
            raise FrameError(f"it has no {kind} of {stem}")
        return self._bringups[kind, stem]

    def roundtrip(self) -> RoundTrip | None:
        found = self._bringups.get(NETWORK) if has(self.folder, BRINGUPS) else None
        return found and RoundTrip.model_validate(found)

    # -- where it lies ----------------------------------------------------------------------------------

    def path(self, part: str, sample: str) -> Path:
        return self.folder / part

    def manifests_path(self, variant: str) -> Path:
        return self.folder / MANIFESTS

    def brought_up_path(self, kind: str, stem: str) -> Path:
        return self.folder / BRINGUPS


def bringups(lines: Iterable[str]) -> Iterator[tuple[str, str, Any]]:
    """(kind, name, found) of every line. ValueError for one that is none."""
    for line in lines:
        told: Any = json.loads(line)
        if not isinstance(told, dict) or set(cast("dict[str, Any]", told)) != {"kind", "name", "found"}:
            raise FrameError(f"no bring-up: {line[:80]}")
        yield told["kind"], told["name"], told["found"]


# -- the cache -----------------------------------------------------------------------------------------

CACHE_SCHEMA: dict[str, Any] = {
    "sample": pl.String,
    "state": pl.String,  # of the output, and of who read it
    "series": pl.String,
    "bucket": pl.List(pl.Int64),
    "count": pl.List(pl.Int64),
}
_KEY = ("sample", "state", "series")


@cache
def reader() -> str:
    """Of the parsers' own text: another one may read another histogram."""
    folder = Path(generators.__file__).parent
    files = [*sorted(folder.glob("*.py")), Path(histogram.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


class HistogramCache:
    """One run's. `path`: where it lies, or will."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = False

    @cached_property
    def _found(self) -> Mapping[tuple[str, str], Mapping[str, tuple[Ints, Ints]]]:
        """(sample, state) → series → buckets and their counts; none where there is no cache, or none that can be believed."""
        try:
            frame = pl.read_parquet(self.path.read_bytes())
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return {}
        if dict(frame.schema) != CACHE_SCHEMA or frame.null_count().sum_horizontal().item():
            return {}
        found: dict[tuple[str, str], dict[str, tuple[Ints, Ints]]] = {}
        rows = zip(frame.select(_KEY).iter_rows(), frame["bucket"], frame["count"], strict=True)
        for (sample, state, series), buckets, counts in rows:
            found.setdefault((sample, state), {})[series] = buckets.to_numpy(), counts.to_numpy()
        return found

    def of(self, sample: Sample, state: str) -> Mapping[str, Histogram] | None:
        """Series → histogram; None where they have to be read off the output."""
        mine = self._found.get((sample.id, _key(state)))
        if mine is None:
            return None
        try:
            return {series: histogram_of(*row, sample.histogram or "exact") for series, row in mine.items()}
        except FrameError:
            return None

    def begin(self) -> bool:
        """Whether to read all of the run now and write it: tried once, and not where nothing may be written."""
        begun, self._begun = self._begun, True
        return not begun and os.access(self.path.parent, os.W_OK)

    def write(self, found: Iterable[tuple[str, str, Mapping[str, Histogram]]]) -> None:
        """(sample, state of its output, series → histogram) of all of the run. What cannot be written is done without."""
        rows = [
            (sample, _key(state), series, pl.Series(filled), pl.Series(each.counts[filled]))
            for sample, state, named in found
            for series, each in named.items()
            for filled in [each.counts.nonzero()[0]]
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


def _key(state: str) -> str:
    return f"{state}-{reader()}"
