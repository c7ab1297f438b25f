"""Volumes on a real disk, like an emptyDir without `medium: Memory` on a node, so that a log costs real disk writes.

The volumes are in `.cache/disk/lab-*` of the checkout, or in the folder that LAB_DISK names. Each bring-up (start of a
system) has a locked folder. The folder is removed at the end of the bring-up, or else by the next lab process.
Filesystems in memory are refused, because then memory would be measured and not a disk.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

from lab.base.errors import UsageError, refuse_if
from lab.targets.common import cgroup, scratch

PLACE_VARIABLE = "LAB_DISK"
"""The environment variable with another folder for the volumes."""

NEEDED_BYTES = 2 * 2**30
"""The free space that is required, in bytes.

At 60,000 requests/s and 300 B a line a log grows by 18 MB/s, which is 1.1 GB a minute if nothing cuts it.
"""

CUT_EVERY_S, CUT_BYTES = 2.0, 256 * 2**20
"""The seconds between two checks of the files, and the size in bytes above which a file is cut to nothing.

This resembles the rotation of logs: a program that appends goes on at the file's new end.
"""

_PREFIX = "lab-"
"""The beginning of a bring-up's folder name."""
_CHECKOUT = Path(__file__).resolve().parents[4]
"""The root folder of the checkout."""


class DiskVolumes:
    """The volumes on disk (folders that containers mount) of one bring-up, that is, one start of a system.

    All volumes are below one parent folder. The first call of `folder` makes the parent folder, and `remove` removes
    it.
    """

    def __init__(self) -> None:
        self._parent: scratch.LockedFolder | None = None
        self._ended = threading.Event()

    def folder(self, pod: str, volume: str) -> Path:
        """Make a new, empty folder for a volume of a pod, into which every container may write; return its path.

        Raises:
            UsageError: The place for volumes is not usable (see `check`).
            OSError: The folder cannot be made.

        """
        if self._parent is None:
            self._parent = scratch.make_locked_folder(check(), _PREFIX)
            threading.Thread(target=self._cut, args=(self._parent.path,), name="disk", daemon=True).start()
        path = self._parent.path / pod / volume
        path.mkdir(parents=True)
        path.chmod(0o777)  # as a kubelet makes it
        return path

    def remove(self) -> None:
        """Remove the folders of all volumes; call this once, after all processes that write into them have ended."""
        self._ended.set()
        if self._parent is not None:
            self._parent.remove()

    def _cut(self, folder: Path) -> None:
        """Truncate files larger than CUT_BYTES to nothing, every CUT_EVERY_S seconds until `remove` is called."""
        while not self._ended.wait(CUT_EVERY_S):
            for file in folder.rglob("*"):
                with suppress(OSError):  # it disappeared in the meantime
                    if file.is_file() and not file.is_symlink() and file.stat().st_size > CUT_BYTES:
                        os.truncate(file, 0)


def _get_place() -> Path:
    return Path(os.environ.get(PLACE_VARIABLE) or _CHECKOUT / ".cache/disk")


def check() -> Path:
    """Return the folder in which volumes on disk are made; it is created if it does not exist.

    Raises:
        UsageError: The folder lies in memory (tmpfs), has too little free space, or is not writable for this user.

    """
    place, remedy = _get_place(), f"name a folder on a disk with {PLACE_VARIABLE}=FOLDER"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(str(place), f"cannot be made for volumes on disk: {error.strerror}", remedy) from None
    closed, kind, free = not os.access(place, os.W_OK | os.X_OK), filesystem(place), shutil.disk_usage(place).free
    refuse_if(closed, str(place), "volumes on disk cannot be made there: it is not ours to write", remedy)
    refuse_if(kind in cgroup.IN_MEMORY, str(place), f"is no disk but {kind}, which is memory", remedy)
    fault = f"{free / 2**30:.1f} GiB are free, volumes with logs need {NEEDED_BYTES / 2**30:g}"
    refuse_if(free < NEEDED_BYTES, str(place), fault, remedy)
    return place


def filesystem(path: Path, follow: bool = True) -> str:
    """Return the type of the filesystem on which a path lies, such as `ext4`; empty if no mount contains the path.

    Args:
        path: The path.
        follow: What to return for an overlay filesystem. True returns the type of the filesystem to which the overlay
            writes, if that is visible here; False returns `overlay`.

    """
    mount = cgroup.find_mount(cgroup.parse_mounts(Path("/proc/self/mountinfo").read_text()), str(path.resolve()))
    if mount is None:
        return ""
    upper = [option.removeprefix("upperdir=") for option in mount.super_options if option.startswith("upperdir=")]
    visible = follow and mount.kind == "overlay" and upper and Path(upper[0]).is_dir()
    return filesystem(Path(upper[0]), follow=False) if visible else mount.kind


def sweep() -> None:
    """Remove the folders of volumes that ended lab processes have left behind."""
    scratch.sweep_folders(_get_place().glob(f"{_PREFIX}*"))
