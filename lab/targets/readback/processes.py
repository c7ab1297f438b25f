"""Check kinds about a container's processes: `limit`, `processes`, `affinity`, `environment`, `argument`, `quota`.

The container's main process is the first of its process namespace, here as on a cluster; `quota` is read from the cgroup
that this process is really in, wherever that is mounted, never from what was asked for.
"""

from __future__ import annotations

from itertools import pairwise

from lab.model.variants.variants import Check
from lab.systems.reading import (
    ABSENT,
    Reading,
    UnreadableError,
    compared,
    given,
    joined,
    matching,
    processes,
    run,
    soft_limit,
)
from lab.targets.base import System
from lab.targets.common import cgroup
from lab.targets.common.cgroup import Controller
from lab.targets.common.sampler import cpu_list

UNLIMITED = cgroup.spelled("cpu", None)
OWN = "own"
"""Value of an affinity: every process is bound to one CPU, and they are spread evenly over those that their pod has."""


def _limit(system: System, check: Check) -> Reading:
    name, found = given(check, "name"), matching(system, check)
    return compared(check, joined([soft_limit(system, check, process.pid, name) for process in found]))


def _count(system: System, check: Check) -> Reading:
    prefix = given(check, "process")
    return compared(check, str(sum(process.title.startswith(prefix) for process in processes(system, check))))


def _affinity(system: System, check: Check) -> Reading:
    """`Cpus_allowed_list: 0-1,3` of /proc/PID/status, of every process: two that share a CPU are listed twice."""
    found: list[str] = []
    for process in matching(system, check):
        lines = run(system, check, ["cat", f"/proc/{process.pid}/status"]).splitlines()
        found.append(next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")))
    observed = ", ".join(sorted(found, key=cpu_list))
    if check.value != OWN:
        return compared(check, observed, " ".join(check.value.split()))
    fault = not_own(found)
    return Reading(check, observed, ok=not fault, detail=fault)


def not_own(found: list[str]) -> str:
    bound = [cpus[0] for cpus in map(cpu_list, found) if len(cpus) == 1]
    if len(bound) < len(found):
        return f"expected one CPU for every process, {len(found) - len(bound)} of {len(found)} may use several"
    times = [bound.count(cpu) for cpu in set(bound)]
    return "" if max(times) - min(times) <= 1 else f"expected the processes to be spread evenly, found {sorted(bound)}"


def _environment(system: System, check: Check) -> Reading:
    """What the main process was started with. A program that writes its title over that cannot be read."""
    name = given(check, "name")
    items = [item for item in run(system, check, ["cat", "/proc/1/environ"]).split("\0") if item]
    if not items or not all("=" in item for item in items):
        raise UnreadableError("the container's main process has overwritten its environment")
    return compared(
        check, next((value for key, _, value in (item.partition("=") for item in items) if key == name), ABSENT)
    )


def _argument(system: System, check: Check) -> Reading:
    """`--name=value`, or `--name value`; the last one where there are several."""
    name = given(check, "name")
    words = [word for word in run(system, check, ["cat", "/proc/1/cmdline"]).split("\0") if word]
    found = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    found += [after for word, after in pairwise(words) if word == name]
    return compared(check, found[-1] if found else ABSENT)


def _quota(system: System, check: Check) -> Reading:
    name = given(check, "name")
    if name not in cgroup.CONTROLLERS:
        raise UnreadableError(f"expected a name of {' or '.join(cgroup.CONTROLLERS)}, got {name!r}")
    controller: Controller = name
    own = cgroup.place(
        controller, *(run(system, check, ["cat", f"/proc/1/{what}"]) for what in ("cgroup", "mountinfo"))
    )
    files = cgroup.LIMIT_FILES[own.version, controller]
    found = None
    if (
        own.folder != own.mount or files[0] in run(system, check, ["ls", own.folder]).split()
    ):  # the root of all has none
        found = cgroup.limit(controller, run(system, check, ["cat", *(f"{own.folder}/{file}" for file in files)]))
    observed = cgroup.spelled(controller, found)
    same = check.value != UNLIMITED and cgroup.holds(controller, cgroup.wanted(controller, check.value), found)
    return Reading(check, observed, ok=True) if same else compared(check, observed)


READERS = {
    "limit": _limit,
    "processes": _count,
    "affinity": _affinity,
    "environment": _environment,
    "argument": _argument,
    "quota": _quota,
}
