"""Settings of the whole machine (manifests/clusters/node-tuning): what it has of what a variant asks for.

The lab never changes them: a variant that asks for another value than the machine has is not measurable here. What a
network namespace does not show (net.ipv4.tcp_mem, an interface's interrupts) is looked at before the lab enters its own:
`seen_outside`. Refuses to guess: what could not be seen then either counts as another value.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lab.base.errors import NotMeasurableError
from lab.systems.manifests.objects import Objects
from lab.targets.common.sampler import HOST_PROC, host_proc

SEEN_OUTSIDE = "LAB_NODE"
"""Environment variable: `name=value` lines from outside the lab's namespaces. `lab.targets.readback.network` reads it, too."""

_REMEDY = "the lab changes nothing of the machine: set it yourself before the run, or use --target kind"


def vet(objects: Objects) -> None:
    """NotMeasurableError for the first setting of the node that this machine does not have already."""
    for name, (place, asked) in objects.node_settings.items():
        found = value(name)
        if found is None:
            fault = f"{name} is the machine's own and cannot be seen from here, the variant asks for {asked}"
            remedy = "use --target kind, or start the lab outside of any container"
            raise NotMeasurableError("host-wide", place, fault, remedy)
        if found.split() != asked.split():
            raise NotMeasurableError(
                "host-wide", place, f"{name} is {found} here, the variant asks for {asked}", _REMEDY
            )


def value(name: str) -> str | None:
    """A sysctl's value, on/off of the irqbalance service, or the interrupts' CPUs; None if it cannot be seen."""
    try:
        if name == "irqbalance":
            return "on" if _runs(name) else "off"
        return " ".join((Path("/proc/sys") / name.replace(".", "/")).read_text().split())
    except OSError:
        lines = (line.partition("=") for line in os.environ.get(SEEN_OUTSIDE, "").splitlines())
        return next((found for key, _, found in lines if key == name), None)


def seen_outside() -> str:
    """Every sysctl right below net.core and net.ipv4 and the CPUs of the interface's interrupts, as `name=value` lines."""
    found: dict[str, str] = {}
    for file in [*Path("/proc/sys/net").glob("core/*"), *Path("/proc/sys/net").glob("ipv4/*")]:
        with suppress(OSError):
            if file.is_file() and file.stat().st_mode & 0o004:  # what is root's only is a secret (tcp_fastopen_key)
                found[f"net.{file.parent.name}.{file.name}"] = " ".join(file.read_text().split())
    with suppress(OSError, StopIteration, IndexError):  # no default route, or an interface without interrupts
        routes = map(str.split, Path("/proc/net/route").read_text().splitlines())
        device = Path("/sys/class/net", next(row[0] for row in routes if row[1] == "00000000"), "device")
        folder = next(path for path in (device / "msi_irqs", device / "../msi_irqs") if path.is_dir())
        lists = {Path(f"/proc/irq/{irq.name}/smp_affinity_list").read_text().strip() for irq in folder.iterdir()}
        in_order = sorted(lists, key=lambda text: [int(number) for number in re.findall(r"\d+", text)])
        found["irq-affinity"] = ",".join(in_order)
    return "\n".join(f"{name}={value}" for name, value in found.items())


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command on the node, which is this machine; LAB_PROC is where it finds the machine's /proc."""
    handle = os.environ.get(HOST_PROC)
    env: Mapping[str, str] = {**os.environ, "LAB_PROC": f"/proc/self/fd/{handle}" if handle else "/proc"}
    return subprocess.run(
        argv,
        env=env,
        pass_fds=[int(handle)] if handle else [],
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _runs(name: str) -> bool:
    """Whether a process of this name runs on the machine. OSError when its processes are hidden from us."""
    proc, _ = host_proc()
    Path(proc, "1", "comm").read_text()
    for entry in os.listdir(proc):
        try:
            if entry.isdigit() and Path(proc, entry, "comm").read_text().strip() == name:
                return True
        except OSError:
            continue  # it ended while we looked
    return False
