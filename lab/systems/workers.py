"""The number of a proxy's workers or threads: the configured number, the proxy's own default, and the number that runs.

    ConfigMap: data: {worker-processes: "2"}   →  2, for each of the proxy's pods; without a setting, by the rule of its system
    3 nginx: worker process                    →  3 run; the master, a cache's manager and workers that shut down do not count
    go_sched_gomaxprocs_threads 2              →  2 run, of a program that reports the number itself

Each system states which settings configure the number and which rule it uses (`lab.systems.system.Workers`). For a system
that is not known, the number is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lab.model.variants.labels import ROLE_LABEL
from lab.systems import inside
from lab.systems.system import WorkerRule, Workers, parse_cpu_limit
from lab.systems.table import SYSTEMS

WORKERS: Sequence[Workers] = [system.workers for system in SYSTEMS]
GAUGE = "proxy/workers"
"""The name of the gauge in a sample that has the number of running workers."""

Objects = Sequence[Mapping[str, Any]]


def count_configured(objects: Objects, cpus: int | None = None) -> int | None:
    """Return the total number of workers (processes or threads) that all pods of the proxy should have by their manifests.

    If no setting configures the number, it follows from the rule by which the proxy itself chooses its number of workers, such as
    "one for each CPU".

    Args:
        objects: the rendered manifests.
        cpus: the number of CPUs of each pod; None = not known.

    Returns:
        The number. None if no setting configures it, and either the proxy's own rule is not known or the rule needs `cpus`.

    """
    configured = next((int(text) for text in _configured_numbers(objects) if text.isdigit() and int(text)), None)
    per_pod = next(_apply_rules(objects, configured, cpus), configured)
    return per_pod and per_pod * (sum(obj["spec"].get("replicas", 1) for obj in objects if _is_proxy(obj)) or 1)


def find_rule(image: str) -> tuple[str, WorkerRule, Workers] | None:
    """Return the rule by which the proxy in an image chooses its number of workers where nothing configures the number.

    Args:
        image: the reference of the image, with registry and tag.

    Returns:
        (the name of the image in `Workers.rules`, the rule, the `Workers` of its system). None for the image of an unknown proxy.

    """
    rules = {name: (name, rule, workers) for workers in WORKERS for name, rule in workers.rules.items()}
    fitting = [name for name in rules if re.search(rf"(?:^|/){re.escape(name)}(?=[:@.]|$)", image)]
    return rules[name] if (name := max(fitting, key=len, default="")) else None


def _apply_rules(objects: Objects, configured: int | None, cpus: int | None) -> Iterator[int]:
    """Yield the number of workers of each proxy container whose image belongs to a known proxy.

    Args:
        objects: the rendered manifests.
        configured: the configured number of workers; None = no setting configures it, so the proxy's own rule applies.
        cpus: the number of CPUs of each pod; None = not known.

    """
    for container in (item for obj in objects if _is_proxy(obj) for item in _containers(obj)):
        limit = parse_cpu_limit(((container.get("resources") or {}).get("limits") or {}).get("cpu"))
        if match := find_rule(str(container.get("image", ""))):
            _, apply, workers = match
            count = (
                apply(limit, cpus)
                if configured is None
                else workers.capped(configured, limit)
                if workers.capped
                else configured
            )
            yield from [] if count is None else [count]


def _configured_numbers(objects: Objects) -> Iterator[str]:
    """Yield the values of all settings in the manifests that configure a number of workers for any known proxy.

    Such settings are keys of ConfigMaps, directives in configuration files that a ConfigMap mounts, environment
    variables, command-line options and fields of other objects. The values are texts, which need not be numbers.
    """
    keys, variables = (
        [key for workers in WORKERS for key in workers.keys],
        {name for workers in WORKERS for name in workers.variables},
    )
    options = {name for workers in WORKERS for name in workers.options}
    fields = {kind: field for workers in WORKERS for kind, field in workers.fields.items()}
    directives = [workers.directive for workers in WORKERS if workers.directive]
    mounted = {
        (volume.get("configMap") or {}).get("name")
        for obj in objects
        if _is_proxy(obj)
        for volume in obj["spec"]["template"]["spec"].get("volumes") or []
    }
    for obj in objects:
        if obj.get("kind") == "ConfigMap":
            data: Mapping[str, str] = obj.get("data") or {}
            yield from (data[key] for key in keys if key in data)
            if obj.get("metadata", {}).get("name") in mounted:
                yield from (number for text in data.values() for form in directives for number in form.findall(text))
        if field := fields.get(str(obj.get("kind"))):
            yield str((obj.get("spec") or {}).get(field))
        for container in _containers(obj):
            yield from (str(item.get("value")) for item in container.get("env") or [] if item["name"] in variables)
            yield from (str(value) for name, value in pairwise(container.get("args") or []) if name in options)


def _containers(obj: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return obj["spec"]["template"]["spec"]["containers"] if obj.get("kind") == "Deployment" else ()


def _is_proxy(obj: Mapping[str, Any]) -> bool:
    return obj.get("kind") == "Deployment" and obj["metadata"].get("labels", {}).get(ROLE_LABEL) == "proxy"


# -- how many run ----------------------------------------------------------------------------------------


def list_script() -> str:
    """Return a shell script that lists the processes of the container in which it runs.

    Each line has the number of threads and the command line of one process. If the proxy in the container can report its number
    of workers, the script then prints the proxy's report of that number.
    """
    reporting = [workers for workers in WORKERS if workers.process]
    cases = "\n".join(
        f"  {workers.process}) {{ {inside.compose_query(workers.port, workers.page)}; }} 2>/dev/null | grep ^{workers.metric} ;;"
        for workers in reporting
    )
    return rf"""
asks=
for p in /proc/[0-9]*; do
  while read -r key value; do
    case $key in Name:) case $value in {" | ".join(workers.process for workers in reporting)}) asks=$value ;; esac ;; Threads:) printf '%s ' "$value" ;; esac
  done <$p/status && tr '\0' ' ' <$p/cmdline && echo
done 2>/dev/null
case $asks in
{cases}
esac || true
"""


def parse_processes(text: str) -> list[tuple[int, str]]:
    """Return the processes in the output of the shell script from `list_script`, as pairs (number of threads, command line)."""
    pairs = (line.partition(" ") for line in text.splitlines())
    return [(int(threads), title.strip()) for threads, _, title in pairs if threads.isdigit()]


def parse_reported_count(text: str) -> int | None:
    """Return the number of workers that a proxy itself has reported; None if it has reported no number.

    Args:
        text: the output of the shell script from `list_script`, which requests this number from the proxy.

    """
    metrics = "|".join(workers.metric for workers in WORKERS if workers.process)
    match = re.search(rf"^(?:{metrics}):? (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else None


def count_running(processes: Iterable[tuple[int, str]]) -> int | None:
    """Count the running workers of all known proxies in a list of processes; return None if the list has no worker.

    A proxy system may have its own function that recognizes its workers in such a list. The results of these functions are added.

    Args:
        processes: pairs (number of threads, command line) of the processes, which may be from several containers.

    """
    rows = list(processes)
    return sum(count(rows) for count in dict.fromkeys(workers.count for workers in WORKERS if workers.count)) or None
