"""The conversion of a finished run's folder into the packed form, which has few files (`packed`): `just maintain pack RUN`.

The new files are written into a temporary folder inside the run's folder, and read again, sample by sample. If everything is
equal, they are moved into the run's folder, last the file that marks a packed run. Then the old files are removed. If the process
is ended at any moment (`kill -9`), the folder is a complete run in one form or the other, and packing it again finishes the work.

Refuses a run that is not finished, in use or damaged. Refuses to lose anything: a file without a place in the packed form.
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

from lab.base.errors import UsageError, refuse_if
from lab.base.files import sync_folder, write_synced
from lab.model.events import EVENTS_SCHEMA
from lab.model.samples import Sample, is_settled, key_of_measurement, planned_cells
from lab.model.usage import USAGE_SCHEMA
from lab.records import folders, packed, tables
from lab.records.renamed import rename_sample
from lab.records.request_log import encode_log
from lab.records.store import RunStore, Series
from lab.records.tables import DEPLOYED, EVENTS, HISTOGRAMS, KNEE, RAW, READBACK, ROUNDTRIP, USAGE

Content = TypeVar("Content")
ZipMember = tuple[str, bytes, str]
"""A member of a zip: its name, its content and its comment."""
PARTIAL = ".packing"
"""The folder inside the run's folder where files are written that are not complete yet."""
REPLACED_PARTS = (folders.SAMPLES, folders.MANIFESTS, READBACK, DEPLOYED, ROUNDTRIP)
"""The parts of a run's folder that are removed when the packed form is there."""
SERIES: tuple[Series, ...] = ("latency", "service")
_SAMPLE_FILES = {folders.SAMPLE_RECORD, HISTOGRAMS, USAGE, EVENTS, RAW}
"""The files that the lab writes into a sample's folder; any other file is the generator's."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every member of a zip: always the same, so that the same run packs to the same bytes."""


@dataclass(frozen=True, slots=True)
class FolderSize:
    """The size of a folder with everything in it: the number of its files, and their bytes."""

    files: int
    bytes: int

    @classmethod
    def of(cls, folder: Path) -> FolderSize:
        """Return the size of a folder: the number of files in it and its subfolders, and their bytes."""
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        return cls(len(sizes), sum(sizes))

    def __str__(self) -> str:
        return f"{self.files:,} file{'s' if self.files != 1 else ''}, {self.bytes:,} bytes"


def pack(run: RunStore) -> tuple[FolderSize, FolderSize]:
    """Convert a run's folder into the packed form (few files), and return its size before and after.

    If an earlier attempt was interrupted after the packed files were complete, only the old files are removed.

    Args:
        run: The run.

    Raises:
        UsageError: The run is packed already, or cannot be packed; then it stays unchanged.

    """
    with run.locked():
        size_before = FolderSize.of(run.folder)
        if not run.packed:
            _write_packed_form(run)
        elif not _list_old_parts(run.folder):
            raise UsageError(str(run.folder), "is packed already", "name another run")
        try:
            for path in _list_old_parts(run.folder):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            sync_folder(run.folder)
        except OSError as error:
            raise UsageError(
                str(error.filename or run.folder),
                f"is packed, and what it replaces cannot be removed: {error.strerror}",
                "mend that, and pack it once more",
            ) from None
        return size_before, FolderSize.of(run.folder)


def _list_old_parts(folder: Path) -> list[Path]:
    return [path for name in REPLACED_PARTS if (path := folder / name).exists()]


def _write_packed_form(run: RunStore) -> None:
    """Write the packed form of a run, check it by reading it again, and move its files into the run's folder.

    The files are written into a temporary folder first. The old files stay; `pack` removes them.
    """
    new, form = run.folder / PARTIAL, folders.FolderForm(run.folder, run.record.id)
    run.clear_partial()
    samples = run.stored_samples()
    refuse_unfinished(run, samples)
    _refuse_unknown_files(run.folder)
    for sample in samples:
        if not run.raw_held(sample):
            raise UsageError(
                run.raw_place(sample), f"not what {folders.SAMPLE_RECORD} has the digest of", packed.RESTORE
            )
    usage = {sample.id: run.usage(sample) for sample in samples}
    logged = [(sample.id, form.path(EVENTS, sample.id)) for sample in samples]
    events = {name: _read_or_refuse(path, form.events, name) for name, path in logged if path.is_file()}
    bringups = {
        (kind, path.stem): _read_or_refuse(path, form.brought_up, kind, path.stem)
        for kind in (READBACK, DEPLOYED)
        for path in sorted((run.folder / kind).glob("*.json"))
    }
    if (network := _read_or_refuse(run.folder / ROUNDTRIP, form.roundtrip)) is not None:
        bringups[packed.NETWORK] = network.model_dump(mode="json")
    texts = sorted((run.folder / folders.MANIFESTS).glob("*.yaml"), key=lambda path: path.stem)
    manifests = {path.stem: _read_or_refuse(path, form.manifests, path.stem) for path in texts}
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        write_synced(new / USAGE, tables.parquet_bytes(tables.join_tables(usage, USAGE_SCHEMA)))
        if events:
            write_synced(new / EVENTS, tables.parquet_bytes(tables.join_tables(events, EVENTS_SCHEMA)))
        if bringups:
            lines = ({"kind": kind, "name": name, "found": content} for (kind, name), content in bringups.items())
            compact = [json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines]
            write_synced(new / packed.BRINGUPS, packed.pack_lines(compact))
        if manifests:
            stream = _read_or_refuse(run.folder / folders.MANIFESTS, packed.pack_manifests, manifests)
            write_synced(new / packed.MANIFESTS, stream)
        write_zip(new / packed.RAW, _yield_outputs(form, samples))
        stored = (rename_sample(sample, run.names.inverse) for sample in samples)
        write_synced(new / packed.SAMPLES, packed.pack_lines(sample.model_dump_json() for sample in stored))
        _compare_samples(run, RunStore(new, run.record, run.names), form, samples)
        reread = packed.PackedForm(new)
        for (kind, name), content in bringups.items():
            _refuse_difference(run, packed.BRINGUPS, f"{kind} of {name}", reread.brought_up(kind, name) == content)
        for variant, text in manifests.items():
            _refuse_difference(run, packed.MANIFESTS, variant, reread.manifests(variant) == text)
        sync_folder(new)
        # the samples' records last: they make it a packed run
        for path in sorted(new.iterdir(), key=lambda path: path.name == packed.SAMPLES):
            sync_folder(run.folder)
            path.rename(run.folder / path.name)
        sync_folder(run.folder)
    except OSError as error:
        raise UsageError(
            str(error.filename or new),
            f"cannot be written: {error.strerror or error}",
            "mend it and pack once more: the run is as it was",
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def refuse_unfinished(run: RunStore, samples: Sequence[Sample]) -> None:
    """Raise an error if a run is not finished: planned samples are missing, or the result of a search is missing.

    Such a search looks for the knee, the highest rate that a proxy serves within a latency bound.

    Args:
        run: The run.
        samples: The samples that the run has.

    Raises:
        UsageError: The run is not finished.

    """
    record, done = run.record, {key_of_measurement(sample) for sample in samples if is_settled(sample)}
    remedy = f"go on with `just {'knee' if record.knee else 'bench'} --resume {record.id}`, then pack it"
    planned = planned_cells(record.plan().slots)
    if left := planned - done:
        raise UsageError(record.id, f"is not finished: {len(left)} of {len(planned)} are not measured", remedy)
    refuse_if(
        record.knee and not (run.folder / KNEE).is_file(),
        record.id,
        "is not finished: the search has found no knee yet",
        remedy,
    )


def _refuse_unknown_files(folder: Path) -> None:
    """Raise an error if a run's folder has a file that the packed form has no place for.

    Only the subfolders that are removed after packing are checked.

    Raises:
        UsageError: There is such a file.

    """
    endings = {
        f"{folders.MANIFESTS}/*": ".yaml",
        f"{READBACK}/*": ".json",
        f"{DEPLOYED}/*": ".json",
        f"{folders.SAMPLES}/*/*": "",
    }
    for pattern, ending in endings.items():
        for path in folder.glob(pattern):
            refuse_if(
                not (path.is_file() and path.name.endswith(ending)),
                str(path),
                "has no place in a packed run",
                "move it away, then pack the run",
            )


def _read_or_refuse(path: Path, read: Callable[..., Content], *arguments: object) -> Content:
    """Call a function that reads a file, and return its result; turn a read error into a UsageError.

    Args:
        path: The file that the error names.
        read: The function.
        arguments: The arguments of the function.

    """
    try:
        return read(*arguments)
    except (OSError, ValueError) as error:
        raise UsageError(str(path), f"cannot be read: {error}", packed.RESTORE) from None


def _yield_outputs(form: folders.FolderForm, samples: Sequence[Sample]) -> Iterator[ZipMember]:
    """Yield the members of raw.zip: the generator's output of each sample, compressed by xz, and its further files as they are.

    A log of requests is stored line by line as the difference to the line before, which makes it smaller.
    """
    for sample in samples:
        raw = tables.read_output(form.raw(sample.id))
        shorter = encode_log(raw)
        name = tables.SMALL_RAW if shorter == raw else tables.SMALL_LOG
        yield f"{sample.id}/{name}", tables.compress(shorter), sample.raw_sha256
        for file, content in _read_generator_files(form, sample).items():
            yield f"{sample.id}/{file}", content, ""


def _read_generator_files(form: folders.FolderForm, sample: Sample) -> dict[str, bytes]:
    paths = sorted(form.path(folders.SAMPLE_RECORD, sample.id).parent.iterdir())
    return {path.name: path.read_bytes() for path in paths if path.name not in _SAMPLE_FILES}


def write_zip(path: Path, members: Iterable[ZipMember]) -> None:
    """Write a zip archive whose members are not compressed by zip itself; callers compress them as they need.

    Args:
        path: The file.
        members: The name, the content and the comment of each member.

    Raises:
        OSError: The file cannot be written.

    """
    with open(path, "wb") as handle:
        with zipfile.ZipFile(handle, "w") as archive:
            for name, content, comment in members:
                member = zipfile.ZipInfo(name, _EPOCH)
                member.comment, member.external_attr = comment.encode(), 0o644 << 16
                archive.writestr(member, content)
        handle.flush()
        os.fsync(handle.fileno())


def _refuse_difference(run: RunStore, file: str, subject: str, equal: bool) -> None:
    refuse_if(
        not equal,
        str(run.folder / file),
        f"{subject} would not read back as it was",
        "the run is as it was; keep it so",
    )


def _compare_samples(before: RunStore, after: RunStore, form: folders.FolderForm, samples: Sequence[Sample]) -> None:
    """Check that every sample reads equally from the old and the new form of a run's folder.

    Args:
        before: The run in the old form.
        after: The run in the new, packed form.
        form: The folder of the old form.
        samples: The samples of the run.

    Raises:
        UsageError: Something differs; the message names the first difference.

    """
    _refuse_difference(before, packed.SAMPLES, "the samples' records", after.stored_samples() == list(samples))
    new = packed.PackedForm(after.folder)
    for sample in samples:
        digest = tables.compute_digest(tables.read_output(new.raw(sample.id)))
        _refuse_difference(before, packed.RAW, sample.id, digest == sample.raw_sha256 and after.raw_held(sample))
        _refuse_difference(before, USAGE, sample.id, after.usage(sample).equals(before.usage(sample)))
        _refuse_difference(before, EVENTS, sample.id, after.events(sample).equals(before.events(sample)))
        for name, content in _read_generator_files(form, sample).items():
            _refuse_difference(before, packed.RAW, f"{name} of {sample.id}", after.left(sample, name) == content)
        _refuse_difference(
            before, packed.RAW, f"the histogram of {sample.id}", _has_same_histograms(form, after, sample)
        )


def _has_same_histograms(form: folders.FolderForm, after: RunStore, sample: Sample) -> bool:
    """Return whether the histograms stored in the old form equal those that are parsed from the output in the new form.

    The result is True if the old form has no stored histograms.
    """
    if (stored := form.histograms(sample)) is None:
        return True
    try:
        reread = {
            name: histogram
            for name in SERIES
            if (histogram := after.histogram(sample, name)) is not None and histogram.total
        }
    except UsageError:
        return False
    return stored.keys() == reread.keys() and all(
        np.array_equal(stored[name].counts, reread[name].counts) for name in stored
    )
