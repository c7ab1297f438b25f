"""Files written whole or not at all, and their failures as errors with place and remedy.

Refuses to go on after a failed write: what cannot be recorded must not be measured.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from pydantic import BaseModel, ValidationError

from lab.base.errors import LabError, MeasuringError, UsageError

Model = TypeVar("Model", bound=BaseModel)

OWN_FAULTS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""What the lab's own machine lacks (space, descriptors, memory, processes): says nothing about what is measured."""


class StoreError(MeasuringError):
    """Something could not be recorded; the run stops, since what cannot be recorded must not be measured."""


@contextmanager
def writing(place: Path, setting: str = "LAB_RUNS") -> Iterator[None]:
    """Turn a failed write into an error with its place and a remedy; what is recorded stays as it is.

    `setting` is the environment variable that says where the place is.
    """
    try:
        yield
    except LabError:
        raise
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some disk space, then go on with --resume",
            errno.EDQUOT: "free some of your quota, then go on with --resume",
            errno.EACCES: f"make it writable for you, or point {setting} at a folder that is",
            errno.EROFS: f"point {setting} at a folder on a writable file system",
            errno.EMFILE: "raise the limit of open files (ulimit -n), then go on with --resume",
            errno.ENOMEM: "free some memory, then go on with --resume",
        }
        remedy = remedies.get(error.errno or 0, "mend it, then go on with --resume")
        raise StoreError(
            str(error.filename or place),
            f"cannot be written: {error.strerror or error}",
            remedy,
        ) from None


@contextmanager
def written_to(option: str, path: Path) -> Iterator[None]:
    """Turn what keeps `path` from being written into a UsageError of the option that named it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, StoreError) as error:
        why = error.strerror or error if isinstance(error, OSError) else error.fault
        raise UsageError(option, f"{path} cannot be written: {why}", "name a place that can") from None


@contextmanager
def own_faults(place: str) -> Iterator[None]:
    """Turn an OSError that is this machine's own lack into a StoreError; any other is left to the caller."""
    try:
        yield
    except OSError as error:
        if error.errno not in OWN_FAULTS:
            raise
        fault, remedy = f"this machine: {error.strerror}", "free some of it, then go on with --resume"
        raise StoreError(str(error.filename or place), fault, remedy) from None


def check_writable(folder: Path, need_bytes: int, setting: str = "LAB_RUNS") -> None:
    """UsageError unless so much can be written below `folder`; `setting` is the environment variable that says where that is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise UsageError(
            str(folder),
            f"cannot be written: {error.strerror}",
            f"make it writable, or set {setting} to a folder that is",
        ) from None
    if free < need_bytes:
        have, need = f"{free / 1e6:.0f} MB", f"{need_bytes / 1e6:.0f} MB"
        raise UsageError(
            str(folder),
            f"{have} free, this may need {need}",
            f"free some space, or set {setting} to a folder with more",
        )


def read_record(path: Path, model: type[Model], remedy: str, context: Mapping[str, Any] | None = None) -> Model:
    """A JSON record; UsageError with the remedy when it cannot be read or is not what the model says. `context`: pydantic's."""
    try:
        return model.model_validate_json(path.read_bytes(), context=context)
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror}", remedy) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(str(path), f"damaged: {where + ': ' if where else ''}{first['msg']}", remedy) from None


def json_bytes(record: BaseModel) -> bytes:
    return record.model_dump_json(indent=1).encode() + b"\n"


def write_synced(path: Path, content: bytes | pl.DataFrame) -> None:
    """Bytes, or a table as Parquet, that are on the disk afterwards."""
    with open(path, "wb") as handle:
        if isinstance(content, bytes):
            handle.write(content)
        else:
            content.write_parquet(handle)
        handle.flush()
        os.fsync(handle.fileno())


def replace(path: Path, content: bytes) -> None:
    """Write beside, then rename: a reader sees the old text or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    write_synced(partial, content)
    partial.rename(path)
    sync(path.parent)


@contextmanager
def whole_folder(final: Path, what: str) -> Iterator[Path]:
    """A folder to write into, of a `what` (`sample`), which has its name once all is written, or never. StoreError, also where one is there."""
    partial = final.with_name(f".{final.name}.partial")
    with writing(final):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        sync(partial)
        if final.exists():
            raise FileExistsError(errno.EEXIST, f"a {what} of that name exists", str(final))
        partial.rename(final)
        sync(final.parent)


def sync(folder: Path) -> None:
    """Make the folder's own entries (new names, renames) durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Files of a generator, by name, into its scratch folder. StoreError when there is no room for them."""
    with writing(folder, "TMPDIR"):
        for name, text in texts.items():
            (folder / name).write_text(text)


def readable(path: Path | str) -> str:
    """The text of a file; empty where there is none, or it is not ours to read, as of a process that has ended."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def runs_folder() -> Path:
    """`data/runs` of this checkout, or where LAB_RUNS says."""
    return Path(os.environ.get("LAB_RUNS") or Path(__file__).parents[2] / "data" / "runs").absolute()


def reference_folder() -> Path:
    """`data/reference` of this checkout, or where LAB_REFERENCE says."""
    return Path(os.environ.get("LAB_REFERENCE") or Path(__file__).parents[2] / "data" / "reference").absolute()
