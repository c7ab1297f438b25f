"""Functions that parse the files of cgroups (version 1 and 2) and mount tables: a process's cgroup, limits and counts.

The functions open no file: they get the text of a file, or a function that reads one. So the same functions can be
used for the lab's own cgroups, for a container on a cluster, and in tests.

    4:memory:/kubepods/x   in /proc/PID/cgroup, with the mount
                           → CgroupPlace(version=1, …, folder="/sys/fs/cgroup/memory/kubepods/x")
    20000 100000           in cpu.max → 1/5 of a CPU
    31 22 8:1 /srv /var/log/lab rw shared:1 - ext4 /dev/sda1 rw,sync   in /proc/PID/mountinfo → a MountEntry

A cgroup that no mount shows raises a LookupError. The formats are documented in the kernel's
Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst. The rounding is that of Kubernetes' pkg/kubelet/cm
(MilliCPUToQuota).
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lab.base.quantities import parse_quantity

CgroupController = Literal["cpu", "memory"]
"""The name of a cgroup controller whose limits the lab knows."""
CONTROLLERS: tuple[CgroupController, ...] = ("cpu", "memory")
"""The names of all controllers whose limits the lab knows."""

PERIOD_US = 100_000
"""The CPU bandwidth period that the lab writes, in microseconds."""
MIN_QUOTA_US = 1_000
"""The smallest CPU quota per period, in microseconds."""
MAX_PAGE_BYTES = 65536
"""The largest page size of any supported machine, in bytes."""
_UNLIMITED_BYTES = 2**62
"""The bytes from which a version 1 memory limit means "no limit".

The kernel writes no limit as the largest whole page in 63 bits.
"""

USAGE_FILES: Mapping[int, str] = {1: "cpuacct.usage", 2: "cpu.stat"}
"""The file in which `parse_usage_s` finds the CPU time of a group, by version.

On version 1 a separate controller, `cpuacct`, counts it.
"""
COUNT_FILES: Mapping[tuple[int, CgroupController], tuple[str, ...]] = {
    (1, "cpu"): ("cpu.stat",),
    (2, "cpu"): ("cpu.stat",),
    (1, "memory"): ("memory.failcnt", "memory.oom_control"),
    (2, "memory"): ("memory.events",),
}
"""The files that `read_counts` reads, by version and controller."""

LIMIT_FILES: Mapping[tuple[int, CgroupController], tuple[str, ...]] = {
    (1, "cpu"): ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    (2, "cpu"): ("cpu.max",),
    (1, "memory"): ("memory.limit_in_bytes",),
    (2, "memory"): ("memory.max",),
}
"""The files whose joined contents `parse_actual_limit` parses, by version and controller, in this order."""

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""The filesystem types that keep files in memory."""


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """The folder of a process's cgroup in one mounted cgroup hierarchy.

    Attributes:
        version: The cgroup version of the hierarchy, 1 or 2.
        mount: The folder where the hierarchy is mounted.
        folder: The folder of the cgroup itself, at or below `mount`.

    """

    version: Literal[1, 2]
    mount: str
    folder: str


@dataclass(frozen=True, slots=True)
class MountEntry:
    """A mount: one line of a mount table (/proc/PID/mountinfo).

    Attributes:
        root: The folder inside the mounted filesystem that appears at `point`.
        point: The mount point.
        options: The options of this mount.
        kind: The filesystem type, such as ext4.
        super_options: The options of the filesystem itself.

    """

    root: str
    point: str
    options: frozenset[str]
    kind: str
    super_options: tuple[str, ...]


def parse_mounts(mountinfo: str) -> Iterator[MountEntry]:
    """Yield the mounts in the text of a /proc/PID/mountinfo file (proc(5)), in the order of the file's lines.

    Raises:
        ValueError: A line is not a line of mountinfo; the message shows the first 60 characters of the line.

    """
    for line in mountinfo.splitlines():
        target, separator, source = line.partition(" - ")
        fields, filesystem = target.split(), source.split(" ", 2)
        if not separator or len(fields) < 6 or len(filesystem) < 3:
            raise ValueError(f"expected a line of mountinfo, got {line[:60]!r}")
        # The kernel writes blanks and backslashes as octal numbers.
        root, point = (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text) for text in fields[3:5])
        yield MountEntry(root, point, frozenset(fields[5].split(",")), filesystem[0], tuple(filesystem[2].split(",")))


def find_mount(table: Iterable[MountEntry], path: str) -> MountEntry | None:
    """Return the mount on which an absolute path lies; None if no mount contains the path.

    It is the mount with the deepest mount point at or above the path. If several mounts have this mount point, it is
    the latest of them.
    """
    candidates = [mount for mount in table if posixpath.commonpath([mount.point, path]) == mount.point]
    return max(reversed(candidates), key=lambda mount: len(mount.point), default=None)


def find_group(controller: CgroupController | Literal["cpuacct"], cgroup: str, mountinfo: str) -> CgroupPlace:
    """Return the cgroup that a process belongs to, for one cgroup controller.

    Args:
        controller: The name of the cgroup controller: `cpu`, `memory` or `cpuacct`.
        cgroup: The text of the process's /proc/PID/cgroup.
        mountinfo: The text of the process's /proc/PID/mountinfo.

    Raises:
        LookupError: No hierarchy has the controller, or the process cannot see the mounted hierarchy.

    """
    lines = (line.split(":", 2) for line in cgroup.splitlines())
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    version = 1 if controller in paths else 2
    path = paths.get(controller if version == 1 else "")
    if path is None:
        raise LookupError(f"no cgroup hierarchy has the controller {controller}")
    for mount in reversed(list(parse_mounts(mountinfo))):  # the latest mount lies on top
        if version == 1 and (mount.kind != "cgroup" or controller not in mount.super_options):
            continue
        if version == 2 and mount.kind != "cgroup2":
            continue
        relative = posixpath.relpath(path, mount.root)
        if ".." not in (*path.split("/"), *relative.split("/")):
            return CgroupPlace(version, mount.point, posixpath.normpath(posixpath.join(mount.point, relative)))
    raise LookupError(f"the cgroup {path} of the controller {controller} is not mounted here")


def parse_requested_limit(controller: CgroupController, text: str) -> Fraction:
    """Parse a limit from a manifest (such as `200m` or `64Mi`) into CPUs or bytes, rounded as a kubelet rounds it.

    A CPU limit is rounded up to whole thousandths of a CPU. It is at least `MIN_QUOTA_US` microseconds per period of
    `PERIOD_US`. A memory limit is rounded up to whole bytes.

    Args:
        controller: `cpu` or `memory`.
        text: The limit as the manifest writes it.

    Raises:
        ValueError: The text is no quantity, or the quantity is not above zero.

    """
    value = parse_quantity(text)
    if value <= 0:
        raise ValueError(f"expected a quantity above zero, got {text!r}")
    if controller == "memory":
        return Fraction(math.ceil(value))
    return Fraction(max(MIN_QUOTA_US, math.ceil(value * 1000) * PERIOD_US // 1000), PERIOD_US)


def list_limit_writes(version: int, controller: CgroupController, value: Fraction | None) -> list[tuple[str, str]]:
    """Return the cgroup files to write for a limit, as (file name, text) in the order of writing.

    A memory limit comes with a limit of swap, so that the kernel does not swap memory out. On version 1, the limit of
    memory plus swap is one page (`MAX_PAGE_BYTES`) higher than the limit of memory. With two equal limits, Linux (tried
    with 6.18) would not count hits of the memory limit.

    Args:
        version: The cgroup version, 1 or 2.
        controller: `cpu` or `memory`.
        value: The limit in CPUs or bytes. None removes a CPU limit.

    """
    if value is None:
        return [("cpu.max", f"max {PERIOD_US}") if version == 2 else ("cpu.cfs_quota_us", "-1")]
    if controller == "cpu":
        quota = str(int(value * PERIOD_US))
        if version == 2:
            return [("cpu.max", f"{quota} {PERIOD_US}")]
        return [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", quota)]
    size = int(value)
    if version == 2:
        return [("memory.max", str(size)), ("memory.swap.max", "0"), ("memory.oom.group", "1")]
    return [("memory.limit_in_bytes", str(size)), ("memory.memsw.limit_in_bytes", str(size + MAX_PAGE_BYTES))]


OPTIONAL = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes", "memory.oom.group"})
"""The settings that an older kernel, or a kernel without swap accounting, does not have."""


def parse_actual_limit(controller: CgroupController, text: str) -> Fraction | None:
    """Parse the limit that the kernel shows in a cgroup's files into CPUs or bytes; None means no limit.

    Args:
        controller: `cpu` or `memory`.
        text: The contents of the controller's files of `LIMIT_FILES`, joined.

    Raises:
        ValueError: The text has another form.

    """
    values = text.split()
    if values[:1] in (["max"], ["-1"]):
        return None
    if controller == "cpu":
        quota, period = values
        return Fraction(int(quota), int(period))
    (size,) = values
    return None if int(size) >= _UNLIMITED_BYTES else Fraction(int(size))


def is_same_limit(controller: CgroupController, expected: Fraction | None, actual: Fraction | None) -> bool:
    """Return whether the limit that the kernel shows is equal to the requested limit, up to the kernel's rounding.

    The kernel rounds memory limits down to whole pages of up to 64 KiB. So an actual memory limit may be smaller by
    less than such a page.

    Args:
        controller: `cpu` or `memory`.
        expected: The requested limit in CPUs or bytes; None means no limit.
        actual: The limit that the kernel shows, likewise.

    """
    if expected is None or actual is None:
        return expected is actual
    return expected == actual if controller == "cpu" else 0 <= expected - actual < MAX_PAGE_BYTES


def format_limit(controller: CgroupController, value: Fraction | None) -> str:
    """Format a limit in CPUs (`cpu`) or bytes (`memory`) as Kubernetes writes it; None means no limit.

    >>> format_limit("cpu", Fraction(1, 5)), format_limit("memory", Fraction(2**26)), format_limit("cpu", None)
    ('200m', '64Mi', 'unlimited')
    """
    if value is None:
        return "unlimited"
    if controller == "cpu":
        return f"{float(value * 1000):g}m" if value.denominator != 1 else str(value)
    for power, unit in ((3, "Gi"), (2, "Mi"), (1, "Ki")):
        if value % 1024**power == 0:
            return f"{value // 1024**power}{unit}"
    return str(value)


def read_counts(version: int, controller: CgroupController, read: Callable[[str], str]) -> dict[str, int]:
    """Return the cumulative event counts of a cgroup, by name.

    Args:
        version: The cgroup version, 1 or 2.
        controller: The cgroup controller that counts, `cpu` or `memory`.
        read: The function that returns the content of a cgroup file by its name; "" if there is no such file.

    Returns:
        `cpu_periods`, `cpu_throttled_periods` and `cpu_throttled_us` for `cpu`; `memory_limit_hits` and `oom_kills`
        for `memory`.

    """
    if controller == "cpu":
        stat = _parse_pairs(read("cpu.stat"))
        throttled_us = stat.get("throttled_usec", stat.get("throttled_time", 0) // 1000)
        return {
            "cpu_periods": stat.get("nr_periods", 0),
            "cpu_throttled_periods": stat.get("nr_throttled", 0),
            "cpu_throttled_us": throttled_us,
        }
    if version == 2:
        events = _parse_pairs(read("memory.events"))
        return {"memory_limit_hits": events.get("max", 0), "oom_kills": events.get("oom_kill", 0)}
    kills = _parse_pairs(read("memory.oom_control")).get("oom_kill", 0)
    return {"memory_limit_hits": max(int(read("memory.failcnt") or 0), kills), "oom_kills": kills}


def parse_usage_s(version: int, text: str) -> float:
    """Parse the content of a cgroup's usage file, and return the CPU seconds that the cgroup has used so far.

    >>> parse_usage_s(1, "250000000"), parse_usage_s(2, "usage_usec 1500000")
    (0.25, 1.5)

    Args:
        version: The cgroup version, 1 or 2.
        text: The content of the cgroup's file that `USAGE_FILES` names for this version.

    Raises:
        ValueError: The text does not contain the usage.

    """
    if version == 1:
        return int(text) * 1e-9
    if "usage_usec" not in (stat := _parse_pairs(text)):
        raise ValueError("cpu.stat has no usage_usec")
    return stat["usage_usec"] * 1e-6


def _parse_pairs(text: str) -> dict[str, int]:
    """Parse a text with a name and a whole number on each line into a mapping of name → number."""
    return {fields[0]: int(fields[1]) for fields in map(str.split, text.splitlines()) if len(fields) == 2}
