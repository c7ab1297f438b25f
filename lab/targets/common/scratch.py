"""A folder for a while, which goes with whoever made it, or with the next one made: what a killed lab left is swept then."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

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
        folder, lock = _locked(place)
    try:
        with folder as name:
            yield Path(name)
    finally:
        os.close(lock)


def _locked(place: Path) -> tuple[TemporaryDirectory[str], int]:
    """With a descriptor whose lock the kernel gives up when this process ends."""
    while True:
        folder = TemporaryDirectory(prefix=PREFIX, dir=place, ignore_cleanup_errors=True)
        with suppress(FileNotFoundError):  # another's sweep was there between the two
            lock = os.open(folder.name, os.O_RDONLY | os.O_DIRECTORY)
            with suppress(OSError):  # a file system without locks: then nobody's sweep gets one
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if Path(folder.name).exists():
                return folder, lock
            os.close(lock)


@cache
def sweep(place: Path) -> None:
    """Once in a process: removes this user's folders there that nobody holds."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # gone meanwhile, or somebody's
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
