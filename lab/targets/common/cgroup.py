"""What a cgroup's files mean, version 1 and 2: where a process's group lies, which limit it holds, what it has counted; and what is mounted where.

Pure: texts in, numbers out, so that the same rules serve the lab's own folders, a container's on a cluster, and tests.

    4:memory:/kubepods/x   in /proc/PID/cgroup, with the mount   → Place(version=1, folder="/sys/fs/cgroup/memory/kubepods/x")
    20000 100000           in cpu.max                            → 1/5 of a CPU
    31 22 8:1 /srv /var/log/lab rw shared:1 - ext4 /dev/sda1 rw,sync   in /proc/PID/mountinfo → a Mount

Refuses to guess: a group that no mount shows is a LookupError. Source of the formats: the kernel's
Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst; of the rounding: Kubernetes' pkg/kubelet/cm (MilliCPUToQuota).
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lab.base.quantities import quantity

Controller = Literal["cpu", "memory"]
CONTROLLERS: tuple[Controller, ...] = ("cpu", "memory")

PERIOD_US = 100_000
LEAST_QUOTA_US = 1_000
PAGE_BYTES_MOST = 65536
_UNLIMITED_BYTES = 2**62
"""Version 1 says "no limit" as the largest whole page in 63 bits."""

USAGE_FILES: Mapping[int, str] = {1: "cpuacct.usage", 2: "cpu.stat"}
"""Where `used_s` finds what a group has used; on version 1 a controller of its own, `cpuacct`, counts it."""
COUNT_FILES: Mapping[tuple[int, Controller], tuple[str, ...]] = {
    (1, "cpu"): ("cpu.stat",),
    (2, "cpu"): ("cpu.stat",),
    (1, "memory"): ("memory.failcnt", "memory.oom_control"),
    (2, "memory"): ("memory.events",),
}
"""What `counted` reads."""

LIMIT_FILES: Mapping[tuple[int, Controller], tuple[str, ...]] = {
    (1, "cpu"): ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    (2, "cpu"): ("cpu.max",),
    (1, "memory"): ("memory.limit_in_bytes",),
    (2, "memory"): ("memory.max",),
}
"""What `limit` wants the contents of, one after the other."""


@dataclass(frozen=True, slots=True)
class Place:
    """A process's group in one hierarchy: `mount` is where that is mounted, `folder` the group's own folder at or below it."""

    version: Literal[1, 2]
    mount: str
    folder: str


@dataclass(frozen=True, slots=True)
class Mount:
    """`root`: the folder of the filesystem that is seen at `point`; `super_options` are the filesystem's own."""

    root: str
    point: str
    options: frozenset[str]
    kind: str
    super_options: tuple[str, ...]


def mounts(mountinfo: str) -> Iterator[Mount]:
    """Of /proc/PID/mountinfo (proc(5)), in the order of mounting. ValueError with the line for one that is not of this form."""
    for line in mountinfo.splitlines():
        where, separator, what = line.partition(" - ")
        fields, last = where.split(), what.split(" ", 2)
        if not separator or len(fields) < 6 or len(last) < 3:
            raise ValueError(f"expected a line of mountinfo, got {line[:60]!r}")
        # The kernel writes blanks and backslashes as octal numbers.
        root, point = (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text) for text in fields[3:5])
        yield Mount(root, point, frozenset(fields[5].split(",")), last[0], tuple(last[2].split(",")))


def holding(found: Iterable[Mount], path: str) -> Mount | None:
    """The one that holds an absolute path: of those above it the deepest, and of two over one another the later."""
    above = [mount for mount in found if posixpath.commonpath([mount.point, path]) == mount.point]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def place(controller: Controller | Literal["cpuacct"], cgroup: str, mountinfo: str) -> Place:
    """From /proc/PID/cgroup and /proc/PID/mountinfo. LookupError when the controller's hierarchy is not mounted here."""
    lines = (line.split(":", 2) for line in cgroup.splitlines())
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    version = 1 if controller in paths else 2
    path = paths.get(controller if version == 1 else "")
    if path is None:
        raise LookupError(f"no cgroup hierarchy has the controller {controller}")
    for mount in reversed(list(mounts(mountinfo))):  # what was mounted last lies on top
        if version == 1 and (mount.kind != "cgroup" or controller not in mount.super_options):
            continue
        if version == 2 and mount.kind != "cgroup2":
            continue
        below = posixpath.relpath(path, mount.root)
        if ".." not in (*path.split("/"), *below.split("/")):
            return Place(version, mount.point, posixpath.normpath(posixpath.join(mount.point, below)))
    raise LookupError(f"the cgroup {path} of the controller {controller} is not mounted here")


def wanted(controller: Controller, text: str) -> Fraction:
    """A limit as the kernel will keep it: CPUs in whole µs of a period (whole thousandths, rounded up), or whole bytes.

    ValueError for what is no quantity, or not above zero.
    """
    value = quantity(text)
    if value <= 0:
        raise ValueError(f"expected a quantity above zero, got {text!r}")
    if controller == "memory":
        return Fraction(math.ceil(value))
    return Fraction(max(LEAST_QUOTA_US, math.ceil(value * 1000) * PERIOD_US // 1000), PERIOD_US)


def settings(version: int, controller: Controller, value: Fraction | None) -> list[tuple[str, str]]:
    """File → text, in the order of writing; None: the CPU is not limited any more. Memory is bounded together with swap: what does not fit is not
    swapped out.

    Version 1: by a page more, since Linux (6.18, tried) counts no hit where the bound on both is the one that is hit.
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
    return [("memory.limit_in_bytes", str(size)), ("memory.memsw.limit_in_bytes", str(size + PAGE_BYTES_MOST))]


OPTIONAL = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes", "memory.oom.group"})
"""Settings that a kernel without swap accounting, or an older one, does not have."""


def limit(controller: Controller, text: str) -> Fraction | None:
    """CPUs or bytes from the contents of `LIMIT_FILES`; None = no limit. ValueError for anything else."""
    words = text.split()
    if words[:1] in (["max"], ["-1"]):
        return None
    if controller == "cpu":
        quota, period = words
        return Fraction(int(quota), int(period))
    (size,) = words
    return None if int(size) >= _UNLIMITED_BYTES else Fraction(int(size))


def holds(controller: Controller, asked: Fraction | None, found: Fraction | None) -> bool:
    """Whether the limit found is the one asked for. Memory is kept in whole pages, of up to 64 KiB."""
    if asked is None or found is None:
        return asked is found
    return asked == found if controller == "cpu" else 0 <= asked - found < PAGE_BYTES_MOST


def spelled(controller: Controller, found: Fraction | None) -> str:
    """As Kubernetes writes it.

    >>> spelled("cpu", Fraction(1, 5)), spelled("memory", Fraction(2**26)), spelled("cpu", None)
    ('200m', '64Mi', 'unlimited')
    """
    if found is None:
        return "unlimited"
    if controller == "cpu":
        return f"{float(found * 1000):g}m" if found.denominator != 1 else str(found)
    for power, unit in ((3, "Gi"), (2, "Mi"), (1, "Ki")):
        if found % 1024**power == 0:
            return f"{found // 1024**power}{unit}"
    return str(found)


def counted(version: int, controller: Controller, read: Callable[[str], str]) -> dict[str, int]:
    """What a group counts, cumulative; `read` gives a file's content, "" where there is none.

    `cpu_periods`, `cpu_throttled_periods`, `cpu_throttled_us`; `memory_limit_hits`, `oom_kills`.
    """
    if controller == "cpu":
        stat = _pairs(read("cpu.stat"))
        throttled_us = stat.get("throttled_usec", stat.get("throttled_time", 0) // 1000)
        return {
            "cpu_periods": stat.get("nr_periods", 0),
            "cpu_throttled_periods": stat.get("nr_throttled", 0),
            "cpu_throttled_us": throttled_us,
        }
    if version == 2:
        events = _pairs(read("memory.events"))
        return {"memory_limit_hits": events.get("max", 0), "oom_kills": events.get("oom_kill", 0)}
    kills = _pairs(read("memory.oom_control")).get("oom_kill", 0)
    return {"memory_limit_hits": max(int(read("memory.failcnt") or 0), kills), "oom_kills": kills}


def used_s(version: int, text: str) -> float:
    """CPU seconds of a group so far, from its file in `USAGE_FILES`. ValueError when it does not say.

    >>> used_s(1, "250000000"), used_s(2, "usage_usec 1500000")
    (0.25, 1.5)
    """
    if version == 1:
        return int(text) * 1e-9
    if "usage_usec" not in (stat := _pairs(text)):
        raise ValueError("cpu.stat has no usage_usec")
    return stat["usage_usec"] * 1e-6


def _pairs(text: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, text.splitlines()) if len(words) == 2}
