"""Facts of the machine and of the tools, as strings, so that two runs can be compared fact by fact."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from lab.base.files import readable

ROOT = Path(__file__).parents[2]
PACKAGES = ("polars", "numpy", "scipy")
CPUS = Path("/sys/devices/system/cpu")
KINDS = {"Data": "d", "Instruction": "i"}
"""Of a cache, as the kernel names it → as people do."""


EVERY_MOMENT = frozenset({"cpu_mhz"})
"""Facts that differ from one reading to the next on one machine, within one boot: a block that goes on is no other for them."""
EVERY_BOOT = EVERY_MOMENT | {"boot_id"}
"""Facts that differ whenever the machine was started in between, and say no more."""
ADDED = frozenset({"cpu_model", "cpu_stepping", "cpu_caches", "cpu_siblings"})
"""Facts that runs before 28 November 2026 did not record. Where a run lacks one, it is unknown and distinguishes no two machines."""


def lasting(found: Mapping[str, str]) -> dict[str, str]:
    """Without those of one boot: what must be the same for results of two times to be of one place."""
    return {name: value for name, value in found.items() if name not in EVERY_BOOT}


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of the lasting facts that differ between two runs. A fact in `ADDED` counts only where both recorded it."""
    names = dict.fromkeys([*lasting(one), *lasting(other)])
    known = [name for name in names if name not in ADDED or (name in one and name in other)]
    return [name for name in known if one.get(name) != other.get(name)]


def machine() -> dict[str, str]:
    """CPU, memory, kernel, hypervisor, limits and the lab's own tools."""
    cpu = _field("/proc/cpuinfo", "model name") or platform.machine()
    found = {
        "cpu": cpu,
        "cpus": str(os.cpu_count()),
        "memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "kernel": platform.release(),
        "os": _os_release(),
        "hypervisor": "yes" if "hypervisor" in (_field("/proc/cpuinfo", "flags") or "").split() else "no",
        "governor": readable("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or "not visible",
        "clocksource": readable("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
        or "not visible",
        # bbr paces every response of more than one segment by a timer: in a virtual machine 60 µs of CPU each [measured]
        "tcp_congestion_control": readable("/proc/sys/net/ipv4/tcp_congestion_control").strip() or "not visible",
        "boot_id": readable("/proc/sys/kernel/random/boot_id").strip() or "not visible",
        "cgroup": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "python": platform.python_version(),
    }
    return found | _processor() | {package: version(package) for package in PACKAGES}


def _processor() -> dict[str, str]:
    """Return what distinguishes two processors whose name is the same (`AMD EPYC`): model, stepping, clock, caches, siblings.

    `cpu_siblings` has the CPUs of each core, cores separated by `;`: `0-1; 2-3` where two CPUs share one core.
    """
    vendor, family, model = (_field("/proc/cpuinfo", name) for name in ("vendor_id", "cpu family", "model"))
    caches = sorted(CPUS.glob("cpu0/cache/index[0-9]*"))
    siblings = dict.fromkeys(
        readable(path).strip()
        for path in sorted(
            CPUS.glob("cpu[0-9]*/topology/thread_siblings_list"),
            key=lambda path: int(path.parts[-3].removeprefix("cpu")),
        )
    )
    found = {
        "cpu_model": f"{vendor} family {family} model {model}" if vendor and family and model else "",
        "cpu_stepping": _field("/proc/cpuinfo", "stepping"),
        "cpu_mhz": _field("/proc/cpuinfo", "cpu MHz"),
        "cpu_caches": ", ".join(map(_cache, caches)),
        "cpu_siblings": "; ".join(filter(None, siblings)),
    }
    return {name: value or "not visible" for name, value in found.items()}


def _cache(folder: Path) -> str:
    """Return level, kind and size of a cache of the first CPU as the kernel names them: `L1d 32K`, `L3 32768K`."""
    level, kind, size = (readable(folder / name).strip() for name in ("level", "type", "size"))
    return f"L{level}{KINDS.get(kind, '')} {size}"


def git_commit() -> str | None:
    """The checkout's commit, `+changes` when the work tree differs; None outside a git checkout."""
    if shutil.which("git") is None:
        return None
    ask = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}"]
    commit = subprocess.run([*ask, "rev-parse", "HEAD"], check=False, capture_output=True, text=True)
    if commit.returncode != 0:
        return None
    changes = subprocess.run(
        [*ask, "status", "--porcelain", "--untracked-files=no"],
        check=False,
        capture_output=True,
        text=True,
    )
    return commit.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def _field(path: str, name: str) -> str | None:
    lines = (line.partition(":") for line in readable(path).splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)


def _os_release() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
