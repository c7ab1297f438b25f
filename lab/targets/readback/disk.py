"""Check kind `disk`: whether what is written below a container's path stays in memory, is buffered, or waits for the disk.

    --S-----------e------- /var/log/lab/access.log   →   sync

A file's own attribute S counts; a folder only passes it on to new files, and is asked about its filesystem alone.
"""

from __future__ import annotations

from lab.model.variants.variants import Check
from lab.systems.reading import Reading, UnreadableError, compared, given, run
from lab.targets.base import System
from lab.targets.common import mounts

_IN_MEMORY = {"tmpfs", "ramfs"}


def _disk(system: System, check: Check) -> Reading:
    path = run(system, check, ["readlink", "-f", given(check, "name")]).strip()
    kind = run(system, check, ["stat", "-f", "-c", "%T", path]).strip()
    if kind in _IN_MEMORY:
        return compared(check, "memory")
    options = mount_options(run(system, check, ["cat", "/proc/self/mountinfo"]), path)
    waits = "sync" in options or _has_attribute(system, check, path)
    return compared(check, "sync" if waits else "buffered")


def mount_options(mountinfo: str, path: str) -> set[str]:
    """Options of the mount that holds the path, the filesystem's own included. UnreadableError when there is none."""
    try:
        mount = mounts.holding(mounts.parse(mountinfo), path)
    except ValueError as error:
        raise UnreadableError(f"/proc/self/mountinfo: {error}") from None
    if mount is None:
        raise UnreadableError(f"no mount holds {path}")
    return {*mount.options, *mount.super_options}


def _has_attribute(system: System, check: Check, path: str) -> bool:
    if run(system, check, ["stat", "-c", "%F", path]).strip() == "directory":
        return False
    # By its own name: a target can run it beside an image that has none.
    line = run(system, check, ["lsattr", path]).split()
    if len(line) != 2:
        raise UnreadableError(f"lsattr {path}: {' '.join(line)[:60]!r}")
    return "S" in line[0]


READERS = {"disk": _disk}
