"""Temporary folders that disappear with the process that made them, however it ends.

The maker holds a lock on its folder for as long as it lives, and the kernel releases the lock however the process
dies. So an unlocked folder belongs to a dead lab, and the next lab removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from lab.base.files import writing

PREFIX = "lab-scratch-"
"""The beginning of a scratch folder's name."""


@contextmanager
def make_scratch_folder() -> Iterator[Path]:
    """Yield a new scratch folder below TMPDIR, and remove it afterwards.

    On the local target, TMPDIR lies in the lab's private /run, which disappears with the lab however it ends.
    Code that writes into the folder uses `writing(…, "TMPDIR")` for its failures.

    Raises:
        StoreError: The folder cannot be made.

    """
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    sweep(place)
    with writing(place, "TMPDIR"):
        folder = make_locked_folder(place, PREFIX)
    try:
        yield folder.path
    finally:
        folder.remove()


@cache
def sweep(place: Path) -> None:
    """Remove the scratch folders that ended labs of this user left in a folder, once per process and folder."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # the folder disappeared in the meantime
            if path.lstat().st_uid == os.geteuid():
                sweep_folders([path])


@dataclass(frozen=True, slots=True)
class LockedFolder:
    """A folder that is locked for as long as this process lives.

    Attributes:
        path: The folder.
        handle: The open descriptor that holds the lock.

    """

    path: Path
    handle: int

    def remove(self) -> None:
        """Remove the folder and release its lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.handle)


def make_locked_folder(place: Path, prefix: str) -> LockedFolder:
    """Make a new, empty, locked folder.

    Args:
        place: The folder in which to make it.
        prefix: The beginning of the new folder's name.

    Raises:
        OSError: The folder cannot be made.

    """
    while True:
        path = Path(mkdtemp(prefix=prefix, dir=place))
        with suppress(FileNotFoundError):  # another lab swept the folder before it was locked
            handle = _open_folder(path)
            with suppress(OSError):  # a file system without locks: no other lab can lock and sweep it either
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists():
                return LockedFolder(path, handle)
            os.close(handle)


def sweep_folders(folders: Iterable[Path]) -> None:
    """Remove those folders that belong to dead labs; the folder of a living lab is locked and stays."""
    for folder in folders:
        with suppress(OSError):  # it belongs to another user, disappeared, or is locked
            handle = _open_folder(folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
