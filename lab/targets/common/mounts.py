r"""/proc/PID/mountinfo → mounts. Pure. Apart, as cgroups and disks are found by it.

    31 22 8:1 /srv /var/log/lab rw,noatime shared:1 - ext4 /dev/sda1 rw,sync

Refuses a line of another form (ValueError). Source: proc(5).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mount:
    """`root`: the folder of the filesystem that is seen at `point`; `super_options` are the filesystem's own."""

    root: str
    point: str
    options: frozenset[str]
    kind: str
    super_options: tuple[str, ...]


def parse(mountinfo: str) -> Iterator[Mount]:
    """In the order of mounting. ValueError with the line for one that is not of this form."""
    for line in mountinfo.splitlines():
        where, separator, what = line.partition(" - ")
        fields, last = where.split(), what.split(" ", 2)
        if not separator or len(fields) < 6 or len(last) < 3:
            raise ValueError(f"expected a line of mountinfo, got {line[:60]!r}")
        root, point = map(_plain, fields[3:5])
        yield Mount(root, point, frozenset(fields[5].split(",")), last[0], tuple(last[2].split(",")))


def holding(mounts: Iterable[Mount], path: str) -> Mount | None:
    """The one that holds an absolute path: of those above it the deepest, and of two over one another the later."""
    above = [mount for mount in mounts if posixpath.commonpath([mount.point, path]) == mount.point]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def _plain(text: str) -> str:
    r"""The kernel writes blanks and backslashes as octal numbers.

    >>> _plain(r"/a\040b")
    '/a b'
    """
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
