"""A finished run's folder → few files (`packed`), in its place: `just maintain pack RUN`.

What is packed is written beside and read again, sample by sample; only when all of it is equal do the new files take their places, the one
that makes it a packed run as the last, and what they replace goes. Ended anywhere (`kill -9`), the folder is a whole run in one form or the
other, and packing it again does the rest.

Refuses a run that is not finished, or in use; one that is damaged; and to lose anything: a file that has no place in the packed form.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lab.base.errors import UsageError
from lab.base.files import sync, write_synced
from lab.model.events import EVENTS_SCHEMA
from lab.model.samples import Sample, cell, planned_cells, settled
from lab.model.usage import USAGE_SCHEMA
from lab.records import folders, packed, tables
from lab.records.folders import Folders
from lab.records.forms import DEPLOYED, EVENTS, HISTOGRAMS, KNEE, READBACK, ROUNDTRIP, USAGE, has, roundtrip_of
from lab.records.renamed import renamed_sample
from lab.records.request_log import as_differences
from lab.records.store import RunStore, Series
from lab.stats.histogram import Histogram

Member = tuple[str, bytes, str]
"""Of a zip: (name, content, comment)."""
PARTIAL = ".packing"
"""In the run's folder: what is not whole yet."""
OLD = (folders.SAMPLES, folders.MANIFESTS, READBACK, DEPLOYED)
"""What goes when the packed form is there."""
SERIES: tuple[Series, ...] = ("latency", "service")
_OWN = {folders.RECORD, HISTOGRAMS, USAGE, EVENTS, tables.RAW, tables.SMALL_RAW, tables.SMALL_LOG}
"""Of a sample's folder; any other file is the generator's."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""A zip's members have a date: always this, so that the same run packs to the same bytes."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a folder, with all that is in it."""

    files: int
    bytes: int

    @classmethod
    def of(cls, folder: Path) -> Size:
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        return cls(len(sizes), sum(sizes))

    def __str__(self) -> str:
        return f"{self.files:,} file{'s' if self.files != 1 else ''}, {self.bytes:,} bytes"


def pack(run: RunStore) -> tuple[Size, Size]:
    """What it was, and what it is now. UsageError where it cannot be packed: the run is then as it was."""
    with run.locked():
        was = Size.of(run.folder)
        if run.packed:
            if not _old(run.folder):
                raise UsageError(str(run.folder), "is packed already", "name another run")
        else:
            _pack(run)
        try:
            for path in _old(run.folder):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            sync(run.folder)
        except OSError as error:
            fault = f"is packed, and what it replaces cannot be removed: {error.strerror}"
            raise UsageError(str(error.filename or run.folder), fault, "mend that, and pack it once more") from None
        return was, Size.of(run.folder)


def _old(folder: Path) -> list[Path]:
    found = [path for name in OLD if (path := folder / name).is_dir()]
    if has(folder, ROUNDTRIP):
        with _readable(folder / packed.BRINGUPS):
            found += [folder / ROUNDTRIP] if packed.Packed(folder).holds_roundtrip else []
    return found


def _pack(run: RunStore) -> None:
    new = run.folder / PARTIAL
    run.clear_partial()
    samples = run.stored_samples()
    refuse_unfinished(run, samples)
    _refuse_unknown(run.folder)
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        digests = [_digest(run, sample) for sample in samples]
        noted = [  # earlier labs took the digest of the packed file, or none
            sample.model_copy(update={"raw_sha256": digest if sample.raw_sha256 else ""})
            for sample, digest in zip(samples, digests, strict=True)
        ]
        for name, content in _files(run, samples):
            write_synced(new / name, content)
        write_zip(new / packed.RAW, _outputs(run, noted))
        stored = (renamed_sample(sample, run.names.inverse) for sample in noted)
        write_synced(new / packed.SAMPLES, packed.lines_packed(sample.model_dump_json() for sample in stored))
        _compare(run, RunStore(new, run.record, run.names), noted, digests)
        _put(new, run.folder)
    except OSError as error:
        fault = f"cannot be written: {error.strerror or error}"
        raise UsageError(
            str(error.filename or new), fault, "mend it and pack once more: the run is as it was"
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put(new: Path, folder: Path) -> None:
    """The samples' records last: they make it a packed run."""
    sync(new)
    for path in sorted(new.iterdir(), key=lambda path: path.name == packed.SAMPLES):
        if path.name == packed.SAMPLES:
            sync(folder)
        path.rename(folder / path.name)
    sync(folder)


# -- what is refused -----------------------------------------------------------------------------------


def refuse_unfinished(run: RunStore, samples: Sequence[Sample]) -> None:
    record, done = run.record, {cell(sample) for sample in samples if settled(sample)}
    remedy = f"go on with `just {'knee' if record.knee else 'bench'} --resume {record.id}`, then pack it"
    planned = planned_cells(record.plan().slots)
    left = planned - done
    if left:
        raise UsageError(record.id, f"is not finished: {len(left)} of {len(planned)} are not measured", remedy)
    if record.knee and not (run.folder / KNEE).is_file():
        raise UsageError(record.id, "is not finished: the search has found no knee yet", remedy)


def _refuse_unknown(folder: Path) -> None:
    """What lies beside the parts stays; in them every file has a place, or the run stays as it is."""
    known = {
        f"{folders.MANIFESTS}/*": (".yaml", ".yaml.xz"),
        f"{READBACK}/*": (".json",),
        f"{DEPLOYED}/*": (".json",),
        f"{folders.SAMPLES}/*/*": ("",),
    }
    for pattern, endings in known.items():
        for path in folder.glob(pattern):
            if not (path.is_file() and path.name.endswith(endings)):
                raise UsageError(str(path), "has no place in a packed run", "move it away, then pack the run")


# -- what is written -----------------------------------------------------------------------------------


def _files(run: RunStore, samples: Sequence[Sample]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each but the outputs and the samples' records."""
    form = Folders(run.folder, run.record.id)
    usage = {sample.id: run.usage(sample) for sample in samples}
    yield USAGE, tables.parquet_bytes(tables.joined(usage, USAGE_SCHEMA))
    logged = [sample for sample in samples if form.path(EVENTS, sample.id).is_file()]
    if logged:
        events = {sample.id: _events(form, sample) for sample in logged}
        yield EVENTS, tables.parquet_bytes(tables.joined(events, EVENTS_SCHEMA))
    bringups = [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in _bringups(run.folder)]
    if bringups:
        yield packed.BRINGUPS, packed.lines_packed(bringups)
    manifests = {name: _manifests(form, name) for name in _variants(run.folder)}
    if manifests:
        try:
            yield packed.MANIFESTS, packed.manifests_packed(manifests)
        except ValueError as error:
            raise UsageError(str(run.folder / folders.MANIFESTS), str(error), "keep the run as it is") from None


@contextmanager
def _readable(path: Path) -> Iterator[Path]:
    """UsageError for a file whose content is not what it should be."""
    try:
        yield path
    except (tables.FrameError, ValueError) as error:
        raise UsageError(str(path), f"cannot be read: {error}", packed.RESTORE) from None


def _events(form: Folders, sample: Sample) -> pl.DataFrame:
    with _readable(form.path(EVENTS, sample.id)) as path:
        return tables.read_events(path)


def _bringups(folder: Path) -> Iterator[dict[str, Any]]:
    for kind in (READBACK, DEPLOYED):
        for path in sorted((folder / kind).glob("*.json")):
            with _readable(path):
                found = json.loads(path.read_bytes())
            yield {"kind": kind, "name": path.stem, "found": found}
    with _readable(folder / ROUNDTRIP):
        network = roundtrip_of(folder)
    if network is not None:
        kind, name = packed.NETWORK
        yield {"kind": kind, "name": name, "found": network.model_dump(mode="json")}


def _variants(folder: Path) -> list[str]:
    names = (path.name for path in (folder / folders.MANIFESTS).glob("*.yaml*"))
    return sorted({name.removesuffix(".xz").removesuffix(".yaml") for name in names})


def _manifests(form: Folders, variant: str) -> str:
    with _readable(form.manifests_path(variant)):
        return form.manifests(variant)


def _outputs(run: RunStore, samples: Sequence[Sample]) -> Iterator[Member]:
    """What raw.zip holds: the outputs as small as xz makes them, and what else a generator left."""
    for sample in samples:
        name, content = _small(run, sample)
        yield f"{sample.id}/{name}", content, sample.raw_sha256
        for name, content in _left(run.folder, sample).items():
            yield f"{sample.id}/{name}", content, ""


def write_zip(path: Path, members: Iterable[Member]) -> None:
    """Each member with its comment, as it is: what is worth packing is packed. OSError."""
    with open(path, "wb") as handle:
        with zipfile.ZipFile(handle, "w") as whole:
            for name, content, comment in members:
                member = zipfile.ZipInfo(name, _EPOCH)
                member.comment, member.external_attr = comment.encode(), 0o644 << 16
                whole.writestr(member, content)
        handle.flush()
        os.fsync(handle.fileno())


def _small(run: RunStore, sample: Sample) -> tuple[str, bytes]:
    """(name, content): a log of requests as differences, which halves it; what earlier labs had packed so as it lies there."""
    path = Folders(run.folder, run.record.id).raw(sample.id)
    if path.name in (tables.SMALL_RAW, tables.SMALL_LOG):
        return path.name, path.read_bytes()
    raw = _output(run, sample)
    shorter = as_differences(raw)
    return (tables.SMALL_RAW if shorter == raw else tables.SMALL_LOG), tables.compressed(shorter)


def _output(run: RunStore, sample: Sample) -> bytes:
    path = Folders(run.folder, run.record.id).raw(sample.id)
    with _readable(Path(str(path))):
        return tables.unpacked(path)


def _digest(run: RunStore, sample: Sample) -> str:
    """Of what its output unpacks to, once it is what the record has the digest of."""
    if sample.raw_sha256 and not run.raw_held(sample):
        raise UsageError(run.raw_place(sample), f"not what {folders.RECORD} has the digest of", packed.RESTORE)
    return tables.digest(_output(run, sample))


def _left(folder: Path, sample: Sample) -> dict[str, bytes]:
    paths = sorted((folder / folders.SAMPLES / sample.id).iterdir())
    return {path.name: path.read_bytes() for path in paths if path.name not in _OWN}


# -- whether it is the same ----------------------------------------------------------------------------


def _compare(was: RunStore, now: RunStore, samples: Sequence[Sample], digests: Sequence[str]) -> None:
    """Everything is read again in the new form, and held against the old one; of outputs, their digests. UsageError names the first difference."""
    form, new = Folders(was.folder, was.record.id), packed.Packed(now.folder)
    _equal(now, packed.SAMPLES, "the samples' records", now.stored_samples() == list(samples))
    for sample, digest in zip(samples, digests, strict=True):
        what = sample.id
        _equal(now, packed.RAW, what, tables.digest(tables.unpacked(new.raw(what))) == digest)
        _equal(now, packed.RAW, what, now.raw_held(sample) or not sample.raw_sha256)
        _equal(now, USAGE, what, now.usage(sample).equals(was.usage(sample)))
        _equal(now, EVENTS, what, now.events(sample).equals(was.events(sample)))
        for name, content in _left(was.folder, sample).items():
            _equal(now, packed.RAW, f"{name} of {what}", now.left(sample, name) == content)
        _equal(now, packed.RAW, f"the histogram of {what}", _same(form.histograms(sample), now, sample))
    for told in _bringups(was.folder):
        found = new.brought_up(told["kind"], told["name"])
        _equal(now, packed.BRINGUPS, f"{told['kind']} of {told['name']}", found == told["found"])
    for variant in _variants(was.folder):
        _equal(now, packed.MANIFESTS, variant, new.manifests(variant) == _manifests(form, variant))


def _same(kept: Mapping[str, Histogram] | None, now: RunStore, sample: Sample) -> bool:
    """Whether the histograms that were stored are those of the output. Where none were stored, they have always been."""
    if kept is None:
        return True
    try:
        again = {name: found for name in SERIES if (found := now.histogram(sample, name)) is not None and found.total}
    except UsageError:
        return False
    return kept.keys() == again.keys() and all(np.array_equal(kept[name].counts, again[name].counts) for name in kept)


def _equal(now: RunStore, file: str, what: str, equal: bool) -> None:
    if not equal:
        place = str(now.folder.parent / file)
        raise UsageError(place, f"{what} would not read back as it was", "the run is as it was; keep it so")
