"""Facts of the machine and of the tools, as strings, so that two runs can be compared fact by fact."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from lab.base.files import read_text_if_readable

ROOT = Path(__file__).parents[2]
PACKAGES = ("polars", "numpy", "scipy")
"""The Python packages whose versions are facts."""
CPUS = Path("/sys/devices/system/cpu")
KINDS = {"Data": "d", "Instruction": "i"}
"""The common letter of each kind of cache, by the kernel's name of the kind."""


EVERY_MOMENT = frozenset({"cpu_mhz"})
"""The facts that differ from one reading to the next within one boot, so that a resumed block can ignore them."""
EVERY_BOOT = EVERY_MOMENT | {"boot_id"}
"""The facts that differ whenever the machine was started in between, and show nothing more."""
ADDED = frozenset({"cpu_model", "cpu_stepping", "cpu_caches", "cpu_siblings"})
"""The facts that runs before 28 November 2026 did not record.

Where a run lacks one, it is unknown and distinguishes no two machines.
"""


def select_lasting(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the facts of a machine that stay equal over reboots, such as the CPU's name and the kernel's version.

    Facts that change with a boot or from moment to moment (`boot_id`, `cpu_mhz`) are left out. Two runs were on one
    machine only if all lasting facts that both recorded are equal (`list_differences`).

    Args:
        facts: The facts of a machine: name → value.

    """
    return {name: value for name, value in facts.items() if name not in EVERY_BOOT}


def list_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the names of the facts in which the machines of two runs differ.

    Facts that change with a boot are ignored. A fact that older runs did not record (`ADDED`) is compared only if both
    runs have it.

    Args:
        first: The facts of one run: name → value.
        second: The facts of the other run.

    """
    names = dict.fromkeys([*select_lasting(first), *select_lasting(second)])
    comparable = [name for name in names if name not in ADDED or (name in first and name in second)]
    return [name for name in comparable if first.get(name) != second.get(name)]


def read_machine_facts() -> dict[str, str]:
    """Return the facts of this machine, name → value: CPU, memory, kernel, limits, and versions of Python packages.

    A fact that cannot be read has the value `not visible`.
    """
    facts = {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cpus": str(os.cpu_count()),
        "memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "kernel": platform.release(),
        "os": _os_release(),
        "hypervisor": "yes" if "hypervisor" in (_field("/proc/cpuinfo", "flags") or "").split() else "no",
        "governor": read_text_if_readable("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip(),
        "clocksource": read_text_if_readable(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource"
        ).strip(),
        # bbr paces every response of more than one segment by a timer: in a virtual machine 60 µs of CPU each (measured)
        "tcp_congestion_control": read_text_if_readable("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "boot_id": read_text_if_readable("/proc/sys/kernel/random/boot_id").strip(),
        "cgroup": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "python": platform.python_version(),
        **_processor(),
        **{package: version(package) for package in PACKAGES},
    }
    return {name: value or "not visible" for name, value in facts.items()}


def _processor() -> dict[str, str | None]:
    """Return facts that distinguish processors of one marketing name (`AMD EPYC`): name → value (None, "" = unknown).

    The names are `cpu_model`, `cpu_stepping`, `cpu_mhz`, `cpu_caches` (such as `L1d 32K, L3 32768K`) and
    `cpu_siblings`. The last one lists the CPUs of each core: `0-1; 2-3` means that two CPUs share each core.
    """
    vendor, family, model = (_field("/proc/cpuinfo", name) for name in ("vendor_id", "cpu family", "model"))
    caches = [
        [read_text_if_readable(folder / name).strip() for name in ("level", "type", "size")]
        for folder in sorted(CPUS.glob("cpu0/cache/index[0-9]*"))
    ]
    siblings = dict.fromkeys(
        read_text_if_readable(path).strip()
        for path in sorted(
            CPUS.glob("cpu[0-9]*/topology/thread_siblings_list"),
            key=lambda path: int(path.parts[-3].removeprefix("cpu")),
        )
    )
    return {
        "cpu_model": f"{vendor} family {family} model {model}" if vendor and family and model else "",
        "cpu_stepping": _field("/proc/cpuinfo", "stepping"),
        "cpu_mhz": _field("/proc/cpuinfo", "cpu MHz"),
        "cpu_caches": ", ".join(f"L{level}{KINDS.get(kind, '')} {size}" for level, kind, size in caches),
        "cpu_siblings": "; ".join(filter(None, siblings)),
    }


def read_git_commit() -> str | None:
    """Return the commit that is checked out, with `+changes` if tracked files differ from it; None outside a git checkout."""
    if shutil.which("git") is None:
        return None
    git = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}"]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=False, capture_output=True, text=True)
    if commit.returncode != 0:
        return None
    changes = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"],
        check=False,
        capture_output=True,
        text=True,
    )
    return commit.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def _field(path: str, name: str) -> str | None:
    lines = (line.partition(":") for line in read_text_if_readable(path).splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)


def _os_release() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
