"""A folder for a while, which goes with whoever made it, or with the next lab: what a killed one left is swept then.

Its maker holds a lock on it for as long as it lives; the kernel lets go of that however it dies: what nobody holds is a dead lab's.
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


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder where TMPDIR says (the local target: in its own /run, which goes with it, however it ends).

    StoreError when it cannot be made; whoever writes into it says `writing(…, "TMPDIR")`.
    """
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    sweep(place)
    with writing(place, "TMPDIR"):
        folder = make(place, PREFIX)
    try:
        yield folder.path
    finally:
        folder.remove()


@cache
def sweep(place: Path) -> None:
    """Once in a process: what this user's dead labs left there."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # gone meanwhile
            if path.lstat().st_uid == os.geteuid():
                sweep_folders([path])


@dataclass(frozen=True, slots=True)
class LockedFolder:
    """`handle`: its open descriptor, which holds the lock."""

    path: Path
    handle: int

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.handle)


def make(place: Path, prefix: str) -> LockedFolder:
    """A new one, empty. OSError."""
    while True:
        made = Path(mkdtemp(prefix=prefix, dir=place))
        with suppress(FileNotFoundError):  # another's sweep was there between the two
            handle = _opened(made)
            with suppress(OSError):  # a file system without locks: then nobody's sweep gets one
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if made.exists():
                return LockedFolder(made, handle)
            os.close(handle)


def sweep_folders(folders: Iterable[Path]) -> None:
    """Removes those of dead labs. Never a living one's: that is locked."""
    for folder in folders:
        with suppress(OSError):  # another user's, gone, or held
            handle = _opened(folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
