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


EVERY_BOOT = frozenset({"boot_id"})
"""Facts that differ whenever the machine was started in between, and say no more."""


def lasting(found: Mapping[str, str]) -> dict[str, str]:
    """Without those of one boot: what must be the same for results of two times to be of one place."""
    return {name: value for name, value in found.items() if name not in EVERY_BOOT}


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
    return found | {package: version(package) for package in PACKAGES}


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
