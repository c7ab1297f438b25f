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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from lab.base.errors import UsageError
from lab.base.files import sync, write_synced
from lab.model.events import EVENTS_SCHEMA
from lab.model.samples import Sample, cell, planned_cells, settled
from lab.model.usage import USAGE_SCHEMA
from lab.records import folders, packed, tables
from lab.records.folders import Folders
from lab.records.renamed import renamed_sample
from lab.records.request_log import as_differences
from lab.records.store import RunStore, Series
from lab.records.tables import DEPLOYED, EVENTS, HISTOGRAMS, KNEE, RAW, READBACK, ROUNDTRIP, USAGE

Told = TypeVar("Told")
Member = tuple[str, bytes, str]
"""Of a zip: (name, content, comment)."""
PARTIAL = ".packing"
"""In the run's folder: what is not whole yet."""
OLD = (folders.SAMPLES, folders.MANIFESTS, READBACK, DEPLOYED, ROUNDTRIP)
"""What goes when the packed form is there."""
SERIES: tuple[Series, ...] = ("latency", "service")
_OWN = {folders.RECORD, HISTOGRAMS, USAGE, EVENTS, RAW}
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
        if not run.packed:
            _pack(run)
        elif not _old(run.folder):
            raise UsageError(str(run.folder), "is packed already", "name another run")
        try:
            for path in _old(run.folder):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            sync(run.folder)
        except OSError as error:
            fault = f"is packed, and what it replaces cannot be removed: {error.strerror}"
            raise UsageError(str(error.filename or run.folder), fault, "mend that, and pack it once more") from None
        return was, Size.of(run.folder)


def _old(folder: Path) -> list[Path]:
    return [path for name in OLD if (path := folder / name).exists()]


def _pack(run: RunStore) -> None:
    """Write the packed form beside the other, read it again, and let it take its place."""
    new, form = run.folder / PARTIAL, Folders(run.folder, run.record.id)
    run.clear_partial()
    samples = run.stored_samples()
    refuse_unfinished(run, samples)
    _refuse_unknown(run.folder)
    for sample in samples:
        if not run.raw_held(sample):
            raise UsageError(run.raw_place(sample), f"not what {folders.RECORD} has the digest of", packed.RESTORE)
    usage = {sample.id: run.usage(sample) for sample in samples}
    logged = [(sample.id, form.path(EVENTS, sample.id)) for sample in samples]
    events = {name: _readable(path, form.events, name) for name, path in logged if path.is_file()}
    bringups = {
        (kind, path.stem): _readable(path, form.brought_up, kind, path.stem)
        for kind in (READBACK, DEPLOYED)
        for path in sorted((run.folder / kind).glob("*.json"))
    }
    if (network := _readable(run.folder / ROUNDTRIP, form.roundtrip)) is not None:
        bringups[packed.NETWORK] = network.model_dump(mode="json")
    texts = sorted((run.folder / folders.MANIFESTS).glob("*.yaml"), key=lambda path: path.stem)
    manifests = {path.stem: _readable(path, form.manifests, path.stem) for path in texts}
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        write_synced(new / USAGE, tables.parquet_bytes(tables.joined(usage, USAGE_SCHEMA)))
        if events:
            write_synced(new / EVENTS, tables.parquet_bytes(tables.joined(events, EVENTS_SCHEMA)))
        if bringups:
            lines = ({"kind": kind, "name": name, "found": found} for (kind, name), found in bringups.items())
            compact = [json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines]
            write_synced(new / packed.BRINGUPS, packed.lines_packed(compact))
        if manifests:
            whole = _readable(run.folder / folders.MANIFESTS, packed.manifests_packed, manifests)
            write_synced(new / packed.MANIFESTS, whole)
        write_zip(new / packed.RAW, _outputs(form, samples))
        stored = (renamed_sample(sample, run.names.inverse) for sample in samples)
        write_synced(new / packed.SAMPLES, packed.lines_packed(sample.model_dump_json() for sample in stored))
        _compare_samples(run, RunStore(new, run.record, run.names), form, samples)
        again = packed.Packed(new)
        for (kind, name), found in bringups.items():
            _refuse_other(run, packed.BRINGUPS, f"{kind} of {name}", again.brought_up(kind, name) == found)
        for variant, text in manifests.items():
            _refuse_other(run, packed.MANIFESTS, variant, again.manifests(variant) == text)
        sync(new)
        # the samples' records last: they make it a packed run
        for path in sorted(new.iterdir(), key=lambda path: path.name == packed.SAMPLES):
            sync(run.folder)
            path.rename(run.folder / path.name)
        sync(run.folder)
    except OSError as error:
        fault = f"cannot be written: {error.strerror or error}"
        raise UsageError(
            str(error.filename or new), fault, "mend it and pack once more: the run is as it was"
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def refuse_unfinished(run: RunStore, samples: Sequence[Sample]) -> None:
    record, done = run.record, {cell(sample) for sample in samples if settled(sample)}
    remedy = f"go on with `just {'knee' if record.knee else 'bench'} --resume {record.id}`, then pack it"
    planned = planned_cells(record.plan().slots)
    if left := planned - done:
        raise UsageError(record.id, f"is not finished: {len(left)} of {len(planned)} are not measured", remedy)
    if record.knee and not (run.folder / KNEE).is_file():
        raise UsageError(record.id, "is not finished: the search has found no knee yet", remedy)


def _refuse_unknown(folder: Path) -> None:
    """What lies beside the parts stays; in them every file has a place, or the run stays as it is."""
    known = {
        f"{folders.MANIFESTS}/*": ".yaml",
        f"{READBACK}/*": ".json",
        f"{DEPLOYED}/*": ".json",
        f"{folders.SAMPLES}/*/*": "",
    }
    for pattern, ending in known.items():
        for path in folder.glob(pattern):
            if not (path.is_file() and path.name.endswith(ending)):
                raise UsageError(str(path), "has no place in a packed run", "move it away, then pack the run")


def _readable(path: Path, read: Callable[..., Told], *named: object) -> Told:
    """What is read of a file. UsageError for one whose content is not what it should be."""
    try:
        return read(*named)
    except (OSError, ValueError) as error:
        raise UsageError(str(path), f"cannot be read: {error}", packed.RESTORE) from None


def _outputs(form: Folders, samples: Sequence[Sample]) -> Iterator[Member]:
    """What raw.zip holds: the outputs as small as xz makes them, a log of requests as differences, and what else a generator left."""
    for sample in samples:
        raw = tables.unpacked(form.raw(sample.id))
        shorter = as_differences(raw)
        name = tables.SMALL_RAW if shorter == raw else tables.SMALL_LOG
        yield f"{sample.id}/{name}", tables.compressed(shorter), sample.raw_sha256
        for left, content in _left(form, sample).items():
            yield f"{sample.id}/{left}", content, ""


def _left(form: Folders, sample: Sample) -> dict[str, bytes]:
    paths = sorted(form.path(folders.RECORD, sample.id).parent.iterdir())
    return {path.name: path.read_bytes() for path in paths if path.name not in _OWN}


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


def _refuse_other(run: RunStore, file: str, what: str, same: bool) -> None:
    if not same:
        fault = f"{what} would not read back as it was"
        raise UsageError(str(run.folder / file), fault, "the run is as it was; keep it so")


def _compare_samples(was: RunStore, now: RunStore, form: Folders, samples: Sequence[Sample]) -> None:
    """All of every sample is held against the old form, outputs by their digests. UsageError names the first difference."""
    _refuse_other(was, packed.SAMPLES, "the samples' records", now.stored_samples() == list(samples))
    new = packed.Packed(now.folder)
    for sample in samples:
        digest = tables.digest(tables.unpacked(new.raw(sample.id)))
        _refuse_other(was, packed.RAW, sample.id, digest == sample.raw_sha256 and now.raw_held(sample))
        _refuse_other(was, USAGE, sample.id, now.usage(sample).equals(was.usage(sample)))
        _refuse_other(was, EVENTS, sample.id, now.events(sample).equals(was.events(sample)))
        for name, content in _left(form, sample).items():
            _refuse_other(was, packed.RAW, f"{name} of {sample.id}", now.left(sample, name) == content)
        _refuse_other(was, packed.RAW, f"the histogram of {sample.id}", _same_histograms(form, now, sample))


def _same_histograms(form: Folders, now: RunStore, sample: Sample) -> bool:
    """Whether the histograms that were stored are those of the output. Where none were stored, they have always been."""
    kept = form.histograms(sample)
    if kept is None:
        return True
    try:
        again = {name: found for name in SERIES if (found := now.histogram(sample, name)) is not None and found.total}
    except UsageError:
        return False
    return kept.keys() == again.keys() and all(np.array_equal(kept[name].counts, again[name].counts) for name in kept)
