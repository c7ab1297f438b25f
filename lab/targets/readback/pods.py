"""The read-backs of pods and containers: fields of pods, the processes of a container, and the place of its logs.

Checks of a role's pods: `pods` counts the ready pods, `budget` reads how many pods a drain must leave, and `pod` reads
a field of the pods. Checks of a container's processes: `limit`, `processes`, `affinity`. Checks of its main process
(PID 1 of the container): `environment`, `argument`, `configmap`, `quota`. A check of its disk: `disk`. All pods of a
role must have the same value.

pod         the path of a field with Kubernetes' names, such as `spec.hostNetwork`; `[NAME]` selects the element of a
            list that has this `name`: `spec.containers[proxy].livenessProbe.timeoutSeconds`. Values are written as in
            YAML (`true`, `5`), the words of a command with a space between them
configmap   a key of the ConfigMap that the proxy's controller was started with (`--configmap=ingress-lab/controller`
            in its command line), as it is in the API server now. Use this kind only for a key that the proxy's
            configuration and requests do not show; for any other key, a kind of the proxy system is the stronger check
quota       a limit as the cgroup of the process shows it, wherever the cgroup is mounted; never the requested value
disk        where data is written below a path: `memory`, `buffered` (the disk, later), or `sync` (the disk, at once).
            For a file, its attribute S (`lsattr`) and the filesystem count; for a folder, only the filesystem counts
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
    compare_value,
    join_distinct,
    list_matching_processes,
    list_processes,
    read_soft_limit,
    require_key,
    run_in_container,
)
from lab.targets.base import System
from lab.targets.common import cgroup
from lab.targets.common.sampler import cpu_list

UNLIMITED = cgroup.format_limit("cpu", None)
"""The value of a quota that is not limited."""
OWN = "own"
"""The value of an affinity with every process bound to one CPU, spread evenly over the CPUs that they use."""
_STEP = re.compile(r"\.?([A-Za-z][\w-]*)|\[([^\]]+)\]")
"""A step of a path: a field, or the name of a list's element."""


def _read_pod_field(system: System, check: Check) -> Reading:
    path = require_key(check, "name")
    pods = system.pods(check.role)
    if not pods:
        raise UnreadableError(f"no pod of the role {check.role} runs and is ready")
    return compare_value(check, join_distinct([look_up(pod, path) for pod in pods]))


def look_up(pod: Mapping[str, Any], path: str) -> str:
    """Return the value at a path in a pod's object, as text; `absent` if there is no value at the path.

    A list of strings becomes one text with a space between the strings.

    >>> look_up({"spec": {"containers": [{"name": "proxy", "tty": True}]}}, "spec.containers[proxy].tty")
    'true'

    Raises:
        UnreadableError: `path` does not have the form of a path, or the value is a mapping or a list that does not
            consist of strings.

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
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    if isinstance(value, dict | list):
        raise UnreadableError(f"{path} is no single value")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _count_pods(system: System, check: Check) -> Reading:
    return compare_value(check, str(len(system.pods(check.role))))


def _read_budget(system: System, check: Check) -> Reading:
    """Compare the check's value with a field of the PodDisruptionBudgets that apply to the role's pods.

    The check's `name` is that of the field. All budgets must have the expected value. If there is no budget, or it
    lacks the field, the observed value is `absent`.
    """
    name = require_key(check, "name")
    values = [str(budget["spec"].get(name, ABSENT)) for budget in system.budgets(check.role)]
    return compare_value(check, join_distinct(values) if values else ABSENT)


def _read_limit(system: System, check: Check) -> Reading:
    name, matches = require_key(check, "name"), list_matching_processes(system, check)
    return compare_value(
        check, join_distinct([read_soft_limit(system, check, process.pid, name) for process in matches])
    )


def _count_processes(system: System, check: Check) -> Reading:
    prefix = require_key(check, "process")
    return compare_value(check, str(sum(process.title.startswith(prefix) for process in list_processes(system, check))))


def _read_affinity(system: System, check: Check) -> Reading:
    """Compare the check's value with the CPUs that each of the check's processes may use, such as `0, 1, 0-1`.

    Every process has one entry, even if several processes have equal lists. The check's value may instead be `own`.
    Then every process must be bound to a single CPU, and the numbers of processes per used CPU may differ by one at
    most.
    """
    lists: list[str] = []
    for process in list_matching_processes(system, check):
        lines = run_in_container(system, check, ["cat", f"/proc/{process.pid}/status"]).splitlines()
        lists.append(next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")))
    observed = ", ".join(sorted(lists, key=cpu_list))
    if check.value != OWN:
        return compare_value(check, observed, " ".join(check.value.split()))
    bound, fault = [cpus[0] for cpus in map(cpu_list, lists) if len(cpus) == 1], ""
    if len(bound) < len(lists):
        fault = f"expected one CPU for every process, {len(lists) - len(bound)} of {len(lists)} may use several"
    elif max(times := [bound.count(cpu) for cpu in set(bound)]) - min(times) > 1:
        fault = f"expected the processes to be spread evenly, found {sorted(bound)}"
    return Reading(check, observed, ok=not fault, detail=fault)


def _read_environment(system: System, check: Check) -> Reading:
    """Compare the check's value with an environment variable of the container's main process (PID 1).

    The check's `name` is that of the variable.

    Raises:
        UnreadableError: The program has overwritten its environment, as some programs do to change their title.

    """
    items = [item for item in run_in_container(system, check, ["cat", "/proc/1/environ"]).split("\0") if item]
    if not items or not all("=" in item for item in items):
        raise UnreadableError("the container's main process has overwritten its environment")
    variables = dict(item.split("=", 1) for item in reversed(items))  # the first of several with one name counts
    return compare_value(check, variables.get(require_key(check, "name"), ABSENT))


def _read_arguments(system: System, check: Check) -> list[str]:
    """Return the command line of the container's main process (PID 1), without empty arguments."""
    return [
        argument for argument in run_in_container(system, check, ["cat", "/proc/1/cmdline"]).split("\0") if argument
    ]


def _read_argument(system: System, check: Check) -> Reading:
    """Compare the check's value with the value of a command-line option of the container's main process.

    The check's `name` is the option, such as `--name`. Both forms are understood: `--name=value` and `--name value`.
    If the option occurs several times in one form, the last value counts. If both forms occur, the form `--name value`
    counts.
    """
    name, arguments = require_key(check, "name"), _read_arguments(system, check)
    values = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{name}=")]
    values += [following for argument, following in pairwise(arguments) if argument == name]
    return compare_value(check, values[-1] if values else ABSENT)


def _read_configmap(system: System, check: Check) -> Reading:
    matches = [
        match
        for argument in _read_arguments(system, check)
        if (match := re.fullmatch(r"--configmap=([^/]+)/(.+)", argument))
    ]
    if not matches:
        raise UnreadableError("its main process was not started with --configmap=NAMESPACE/NAME")
    return compare_value(
        check, system.configmap(matches[-1][1], matches[-1][2]).get(require_key(check, "name"), ABSENT)
    )


def _read_quota(system: System, check: Check) -> Reading:
    controller = require_key(check, "name")
    if controller not in cgroup.CONTROLLERS:
        raise UnreadableError(f"expected a name of {' or '.join(cgroup.CONTROLLERS)}, got {controller!r}")
    place = cgroup.find_group(
        controller, *(run_in_container(system, check, ["cat", f"/proc/1/{file}"]) for file in ("cgroup", "mountinfo"))
    )
    files = cgroup.LIMIT_FILES[place.version, controller]
    limit = None
    if (
        place.folder != place.mount or files[0] in run_in_container(system, check, ["ls", place.folder]).split()
    ):  # the root of a hierarchy has no such file
        limit = cgroup.parse_actual_limit(
            controller, run_in_container(system, check, ["cat", *(f"{place.folder}/{file}" for file in files)])
        )
    observed = cgroup.format_limit(controller, limit)
    equal = check.value != UNLIMITED and cgroup.is_same_limit(
        controller, cgroup.parse_requested_limit(controller, check.value), limit
    )
    return Reading(check, observed, ok=True) if equal else compare_value(check, observed)


def _read_disk(system: System, check: Check) -> Reading:
    path = run_in_container(system, check, ["readlink", "-f", require_key(check, "name")]).strip()
    if run_in_container(system, check, ["stat", "-f", "-c", "%T", path]).strip() in cgroup.IN_MEMORY:
        return compare_value(check, "memory")
    mount = cgroup.find_mount(
        cgroup.parse_mounts(run_in_container(system, check, ["cat", "/proc/self/mountinfo"])), path
    )
    if mount is None:
        raise UnreadableError(f"no mount holds {path}")
    waits = "sync" in {*mount.options, *mount.super_options}
    if not waits and run_in_container(system, check, ["stat", "-c", "%F", path]).strip() != "directory":
        # lsattr is called by its name alone: a target can run it for an image that does not contain it.
        line = run_in_container(system, check, ["lsattr", path]).split()
        if len(line) != 2:
            raise UnreadableError(f"lsattr {path}: {' '.join(line)[:60]!r}")
        waits = "S" in line[0]
    return compare_value(check, "sync" if waits else "buffered")


READERS = {
    "pod": _read_pod_field,
    "pods": _count_pods,
    "budget": _read_budget,
    "limit": _read_limit,
    "processes": _count_processes,
    "affinity": _read_affinity,
    "environment": _read_environment,
    "argument": _read_argument,
    "configmap": _read_configmap,
    "quota": _read_quota,
    "disk": _read_disk,
}
"""The reader of each kind of check."""
