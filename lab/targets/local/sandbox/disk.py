"""Volumes on a real disk: what an emptyDir without `medium: Memory` is on a node, and where a log costs what a disk costs.

They lie in `.cache/disk/lab-*` of the checkout (or where LAB_DISK says), a locked folder per bring-up, gone when it ends, or
when the next lab begins. Refuses filesystems in memory, since they would measure memory under a disk's name.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

from lab.base.errors import UsageError, refuse_if
from lab.targets.common import cgroup, scratch
from lab.targets.common.scratch import LockedFolder

PLACE = "LAB_DISK"
"""Environment variable: another folder for them."""

NEEDED_BYTES = 2 * 2**30
"""Free space asked for. At 60,000 requests/s and 300 B a line a log grows by 18 MB/s: 1.1 GB a minute, if nobody cut it."""

CUT_EVERY_S, CUT_BYTES = 2.0, 256 * 2**20
"""A larger file is cut to nothing, as logs are rotated: what appends to it goes on from there."""

_PREFIX = "lab-"
_IN_MEMORY = {"tmpfs", "ramfs"}
_CHECKOUT = Path(__file__).resolve().parents[4]


class Disk:
    """The folders of one bring-up; none is made before one is asked for. Ends with `remove`."""

    def __init__(self) -> None:
        self._own: LockedFolder | None = None
        self._ended = threading.Event()

    def folder(self, pod: str, volume: str) -> Path:
        """A new, empty folder for a pod's volume, writable by every container. UsageError as `check`; OSError."""
        if self._own is None:
            self._own = scratch.make(check(), _PREFIX)
            threading.Thread(target=self._cut, args=(self._own.path,), name="disk", daemon=True).start()
        made = self._own.path / pod / volume
        made.mkdir(parents=True)
        made.chmod(0o777)  # as a kubelet makes it
        return made

    def remove(self) -> None:
        """Once nothing writes there any more."""
        self._ended.set()
        if self._own is not None:
            self._own.remove()
            self._own = None

    def _cut(self, folder: Path) -> None:
        while not self._ended.wait(CUT_EVERY_S):
            for file in folder.rglob("*"):
                with suppress(OSError):  # gone in the meantime
                    if file.is_file() and not file.is_symlink() and file.stat().st_size > CUT_BYTES:
                        os.truncate(file, 0)


def _place() -> Path:
    return Path(os.environ.get(PLACE) or _CHECKOUT / ".cache/disk")


def check() -> Path:
    """The place for such volumes, made if need be. UsageError when it is in memory, full, or not ours to write."""
    place, remedy = _place(), f"name a folder on a disk with {PLACE}=FOLDER"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(str(place), f"cannot be made for volumes on disk: {error.strerror}", remedy) from None
    closed, kind, free = not os.access(place, os.W_OK | os.X_OK), filesystem(place), shutil.disk_usage(place).free
    refuse_if(closed, str(place), "volumes on disk cannot be made there: it is not ours to write", remedy)
    refuse_if(kind in _IN_MEMORY, str(place), f"is no disk but {kind}, which is memory", remedy)
    fault = f"{free / 2**30:.1f} GiB are free, volumes with logs need {NEEDED_BYTES / 2**30:g}"
    refuse_if(free < NEEDED_BYTES, str(place), fault, remedy)
    return place


def filesystem(path: Path, follow: bool = True) -> str:
    """Its type, such as ext4, in our mount namespace; of an overlay that of the layer it writes to, where we see that."""
    mount = cgroup.holding(cgroup.mounts(Path("/proc/self/mountinfo").read_text()), str(path.resolve()))
    if mount is None:
        return ""
    upper = [option.removeprefix("upperdir=") for option in mount.super_options if option.startswith("upperdir=")]
    seen = follow and mount.kind == "overlay" and upper and Path(upper[0]).is_dir()
    return filesystem(Path(upper[0]), follow=False) if seen else mount.kind


def sweep() -> None:
    """Remove what dead labs left."""
    scratch.sweep_folders(_place().glob(f"{_PREFIX}*"))
