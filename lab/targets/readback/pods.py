"""Check kinds of a role's pods (`pods`, how many run and are ready; `budget`, how many a drain must leave; `pod`, a field of theirs), and about a
container: its processes (`limit`, `processes`, `affinity`), its main process (`environment`, `argument`, `configmap`, `quota`) and its disk (`disk`).

The main process is the first of the container's process namespace, here as on a cluster. All pods of a role must agree.

pod         a path of a field in Kubernetes' own names, such as `spec.hostNetwork`; `[NAME]` is the element of a list with that `name`:
            `spec.containers[proxy].livenessProbe.timeoutSeconds`. Values as YAML writes them (`true`, `5`), the words of a command with
            a space between
configmap   a key of the ConfigMap that the proxy's controller was started with (`--configmap=ingress-lab/controller` of its command
            line), as it is in the API server now. Such a key changes nothing that the proxy's configuration or a request would show;
            where one does, its system's own kind is the stronger check
quota       read from the cgroup that the process is really in, wherever that is mounted, never from what was asked for
disk        whether what is written below a path stays in `memory`, is `buffered`, or waits for the disk (`sync`). A file's own
            attribute S (`lsattr`) counts; a folder only passes it on to new files, and is asked about its filesystem alone
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

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
_IN_MEMORY = {"tmpfs", "ramfs"}
_STEP = re.compile(r"\.?([A-Za-z][\w-]*)|\[([^\]]+)\]")


def _pod(system: System, check: Check) -> Reading:
    path = given(check, "name")
    found = system.pods(check.role)
    if not found:
        raise UnreadableError(f"no pod of the role {check.role} runs and is ready")
    return compared(check, joined([look_up(pod, path) for pod in found]))


def look_up(pod: Mapping[str, Any], path: str) -> str:
    """The value at a path; `absent` where a step leads nowhere. UnreadableError when it is no path or no single value.

    >>> look_up({"spec": {"containers": [{"name": "proxy", "tty": True}]}}, "spec.containers[proxy].tty")
    'true'
    """
    if not re.fullmatch(rf"(?:{_STEP.pattern})+", path):
        raise UnreadableError(f"{path!r} is no path such as spec.containers[proxy].livenessProbe.timeoutSeconds")
    value: Any = pod
    for field, element in _STEP.findall(path):
        if element and isinstance(value, list):
            value = next((item for item in value if isinstance(item, dict) and item.get("name") == element), None)
        else:
            value = value.get(field) if field and isinstance(value, dict) else None
        if value is None:
            return ABSENT
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return " ".join(value)
    if isinstance(value, dict | list):
        raise UnreadableError(f"{path} is no single value")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pods(system: System, check: Check) -> Reading:
    return compared(check, str(len(system.pods(check.role))))


def _budget(system: System, check: Check) -> Reading:
    """All budgets over the role's pods must agree; `absent` where there is none, or none says this."""
    name = given(check, "name")
    found = [str(budget["spec"].get(name, ABSENT)) for budget in system.budgets(check.role)]
    return compared(check, joined(found) if found else ABSENT)


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
    bound, fault = [cpus[0] for cpus in map(cpu_list, found) if len(cpus) == 1], ""
    if len(bound) < len(found):
        fault = f"expected one CPU for every process, {len(found) - len(bound)} of {len(found)} may use several"
    elif max(times := [bound.count(cpu) for cpu in set(bound)]) - min(times) > 1:
        fault = f"expected the processes to be spread evenly, found {sorted(bound)}"
    return Reading(check, observed, ok=not fault, detail=fault)


def _environment(system: System, check: Check) -> Reading:
    """What the main process was started with. A program that writes its title over that cannot be read."""
    items = [item for item in run(system, check, ["cat", "/proc/1/environ"]).split("\0") if item]
    if not items or not all("=" in item for item in items):
        raise UnreadableError("the container's main process has overwritten its environment")
    found = dict(item.split("=", 1) for item in reversed(items))  # of a name that is there twice the first counts
    return compared(check, found.get(given(check, "name"), ABSENT))


def _words(system: System, check: Check) -> list[str]:
    """Of the main process's command line."""
    return [word for word in run(system, check, ["cat", "/proc/1/cmdline"]).split("\0") if word]


def _argument(system: System, check: Check) -> Reading:
    """`--name=value`, or `--name value`; the last one where there are several."""
    name, words = given(check, "name"), _words(system, check)
    found = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    found += [after for word, after in pairwise(words) if word == name]
    return compared(check, found[-1] if found else ABSENT)


def _configmap(system: System, check: Check) -> Reading:
    named = [match for word in _words(system, check) if (match := re.fullmatch(r"--configmap=([^/]+)/(.+)", word))]
    if not named:
        raise UnreadableError("its main process was not started with --configmap=NAMESPACE/NAME")
    return compared(check, system.configmap(named[-1][1], named[-1][2]).get(given(check, "name"), ABSENT))


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


def _disk(system: System, check: Check) -> Reading:
    path = run(system, check, ["readlink", "-f", given(check, "name")]).strip()
    if run(system, check, ["stat", "-f", "-c", "%T", path]).strip() in _IN_MEMORY:
        return compared(check, "memory")
    mount = cgroup.holding(cgroup.mounts(run(system, check, ["cat", "/proc/self/mountinfo"])), path)
    if mount is None:
        raise UnreadableError(f"no mount holds {path}")
    waits = "sync" in {*mount.options, *mount.super_options}
    if not waits and run(system, check, ["stat", "-c", "%F", path]).strip() != "directory":
        # By its own name: a target can run it beside an image that has none.
        line = run(system, check, ["lsattr", path]).split()
        if len(line) != 2:
            raise UnreadableError(f"lsattr {path}: {' '.join(line)[:60]!r}")
        waits = "S" in line[0]
    return compared(check, "sync" if waits else "buffered")


READERS = {
    "pod": _pod,
    "pods": _pods,
    "budget": _budget,
    "limit": _limit,
    "processes": _count,
    "affinity": _affinity,
    "environment": _environment,
    "argument": _argument,
    "configmap": _configmap,
    "quota": _quota,
    "disk": _disk,
}
