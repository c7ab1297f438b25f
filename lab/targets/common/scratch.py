"""A folder for a while, which goes with whoever made it, or with the next lab: what a killed one left is swept then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from lab.base.files import writing
from lab.targets.common import locked_folder

PREFIX = "lab-scratch-"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder where TMPDIR says (the local target: in its own /run, which goes with it, however it ends).

    StoreError when it cannot be made; whoever writes into it says `writing(…, "TMPDIR")`.
    """
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    sweep(place)
    with writing(place, "TMPDIR"):
        folder = locked_folder.make(place, PREFIX)
    try:
        yield folder.path
    finally:
        folder.remove()


@cache
def sweep(place: Path) -> None:
    """Once in a process: what this user's dead labs left there."""
    locked_folder.sweep(filter(_ours, place.glob(f"{PREFIX}*")))


def _ours(path: Path) -> bool:
    with suppress(OSError):  # gone meanwhile
        return path.lstat().st_uid == os.geteuid()
    return False
