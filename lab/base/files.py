"""Durable writes (a file appears complete or not at all), tolerant reads, and the folders of runs.

A failed write inside `writing` becomes an error that names the file and a remedy, and that stops the run.
"""

from __future__ import annotations

import csv
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from lab.base.errors import MeasuringError, UsageError, refuse_if

if TYPE_CHECKING:
    import polars as pl

Model = TypeVar("Model", bound=BaseModel)

SHORTAGE_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""The error numbers for what the lab's machine lacks (space, descriptors, memory, processes).

Such an error shows nothing about the measured system.
"""


class StoreError(MeasuringError):
    """The error for a failed write, or for a lack of disk space, memory, file descriptors or processes on the lab's machine.

    The error stops the run: a measurement that cannot be stored is of no use, and such a lack shows nothing about the
    measured system.
    """


@contextmanager
def writing(place: Path, setting: str = "LAB_RUNS") -> Iterator[None]:
    """Convert an OSError raised while the `with` block writes files to a StoreError, which stops the run and names a remedy.

    Files that were written before the error stay as they are.

    Args:
        place: The file or folder for the error message; it is used if the OSError itself names no file.
        setting: The environment variable that the user can point to another folder; some remedies name it.

    """
    try:
        yield
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
def as_option_error(option: str, path: Path) -> Iterator[None]:
    """Convert a failed write (OSError or StoreError) in the `with` block to a UsageError about the option that named the file.

    A BrokenPipeError is raised unchanged.

    Args:
        option: The command-line option that the error is about, such as `--output`.
        path: The path of the file that the `with` block writes.

    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, StoreError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error.fault
        raise UsageError(option, f"{path} cannot be written: {reason}", "name a place that can") from None


@contextmanager
def as_store_error(place: str) -> Iterator[None]:
    """Convert an OSError raised in the `with` block to a StoreError if this machine lacks disk space, memory or the like.

    The error numbers that mean such a lack are listed in `SHORTAGE_ERRNOS`. An OSError with another number is raised
    unchanged.

    Args:
        place: The file or program for the error message; it is used if the OSError itself names no file.

    """
    try:
        yield
    except OSError as error:
        if error.errno not in SHORTAGE_ERRNOS:
            raise
        fault, remedy = f"this machine: {error.strerror}", "free some of it, then go on with --resume"
        raise StoreError(str(error.filename or place), fault, remedy) from None


def check_writable(folder: Path, need_bytes: int, setting: str = "LAB_RUNS") -> None:
    """Create a folder if it does not exist, and check that it can be written and has enough free space.

    Args:
        folder: The folder.
        need_bytes: The free space that is needed, in bytes.
        setting: The environment variable that points to the folder; the error's remedy names it.

    Raises:
        UsageError: The folder cannot be written, or has too little free space.

    """
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
    fault = f"{free / 1e6:.0f} MB free, this may need {need_bytes / 1e6:.0f} MB"
    refuse_if(free < need_bytes, str(folder), fault, f"free some space, or set {setting} to a folder with more")


def read_record(path: Path, model: type[Model], remedy: str, context: Mapping[str, Any] | None = None) -> Model:
    """Read a JSON file and return its content as an instance of a pydantic model.

    Args:
        path: The file.
        model: The model's class.
        remedy: The remedy of the error if the file cannot be used.
        context: The validation context that is passed to pydantic.

    Raises:
        UsageError: The file cannot be read, or does not fit the model.

    """
    try:
        return model.model_validate_json(path.read_bytes(), context=context)
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror}", remedy) from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(str(path), f"damaged: {key + ': ' if key else ''}{first['msg']}", remedy) from None


def json_bytes(record: BaseModel) -> bytes:
    """Return a pydantic model as indented JSON with a final newline, encoded as UTF-8."""
    return record.model_dump_json(indent=1).encode() + b"\n"


def write_synced(path: Path, content: bytes | pl.DataFrame) -> None:
    """Write a file and flush it to the disk (fsync).

    Args:
        path: The file, which is overwritten if it exists.
        content: Bytes, which are written as they are, or a table, which is written as Parquet.

    """
    with open(path, "wb") as handle:
        if isinstance(content, bytes):
            handle.write(content)
        else:
            content.write_parquet(handle)
        handle.flush()
        os.fsync(handle.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    write_synced(partial, content)
    partial.rename(path)
    sync_folder(path.parent)


@contextmanager
def create_folder_atomically(final: Path, kind: str) -> Iterator[Path]:
    """Yield a scratch folder, and rename it to its final name when the `with` block ends without an error.

    So a folder with the final name is always complete.

    Args:
        final: The path of the folder once everything is written.
        kind: The kind of folder for the error message, such as `sample`.

    Raises:
        StoreError: The folder cannot be written, or `final` exists already.

    """
    partial = final.with_name(f".{final.name}.partial")
    with writing(final):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        sync_folder(partial)
        if final.exists():
            raise FileExistsError(errno.EEXIST, f"a {kind} of that name exists", str(final))
        partial.rename(final)
        sync_folder(final.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names (new files, renames) to the disk with fsync."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files that a load generator needs into its scratch folder.

    Args:
        folder: The scratch folder.
        texts: The text of each file, by file name.

    Raises:
        StoreError: The files cannot be written, for example because the disk is full.

    """
    with writing(folder, "TMPDIR"):
        for name, text in texts.items():
            (folder / name).write_text(text)


def read_text_if_readable(path: Path | str) -> str:
    """Return the text of a file, or an empty text where it does not exist or may not be read.

    The files of a process in `/proc` vanish, for example, when the process ends.
    """
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def read_tsv(path: Path) -> list[dict[str, str]]:
    """Read a table of tab-separated texts, and return its rows, each as column → text; a missing cell is empty."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, restval=""))


def runs_folder() -> Path:
    """Return the absolute path of the folder in which the user's runs are stored.

    It is the value of the environment variable LAB_RUNS, or `data/runs` in this checkout.
    """
    return Path(os.environ.get("LAB_RUNS") or Path(__file__).parents[2] / "data" / "runs").absolute()


def reference_folder() -> Path:
    """Return the absolute path of the folder with the reference runs.

    It is the value of the environment variable LAB_REFERENCE, or `data/reference` in this checkout.
    """
    return Path(os.environ.get("LAB_REFERENCE") or Path(__file__).parents[2] / "data" / "reference").absolute()
