"""Temporary folders that are removed even if the process that made them is killed: the next lab process removes them.

The process that makes a folder also locks it. The kernel releases the lock when the process ends, in whichever way. So
an unlocked folder belongs to a process that has ended, and may be removed.
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
    """Make a new folder for scratch files below TMPDIR, yield its path, and remove the folder after the `with` block.

    On the local target, TMPDIR is in the lab's private /run, which disappears when the lab ends. Code that writes into
    the folder should wrap the writes in `writing(…, "TMPDIR")`, which reports their failures.

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
    """Remove the scratch folders that ended lab processes of this user have left in the folder `place`.

    A second call for the same folder does nothing.
    """
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # the folder disappeared in the meantime
            if path.lstat().st_uid == os.geteuid():
                sweep_folders([path])


@dataclass(frozen=True, slots=True)
class LockedFolder:
    """A folder that this process has locked; the lock shows other lab processes that the folder is in use.

    The kernel releases the lock when this process ends.

    Attributes:
        path: The folder.
        handle: The open file descriptor that holds the lock.

    """

    path: Path
    handle: int

    def remove(self) -> None:
        """Remove the folder and release its lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.handle)


def make_locked_folder(place: Path, prefix: str) -> LockedFolder:
    """Make a new, empty folder and lock it, so that `sweep_folders` of other lab processes leaves it in place.

    Args:
        place: The folder in which the new folder is made.
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
    """Remove those of the folders that no running lab process has locked."""
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
