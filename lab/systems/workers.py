"""How many workers or threads a proxy has: as many as it is asked for, what its own rule makes of its CPUs, or how many really run.

    ConfigMap: data: {worker-processes: "2"}   →  2, for each of the proxy's pods; nothing said → the rule of its system
    3 nginx: worker process                    →  3 that run; the master, a cache's manager and workers that shut down are none
    go_sched_gomaxprocs_threads 2              →  2 that run, of a program that counts them itself

Each system says of itself what it is told by and which rule it has (`lab.systems.system.Workers`). None for a system that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lab.model.variants.labels import ROLE_LABEL
from lab.systems import inside
from lab.systems.system import WorkerRule, Workers, cores
from lab.systems.table import SYSTEMS

WORKERS: Sequence[Workers] = [system.workers for system in SYSTEMS]
GAUGE = "proxy/workers"
"""Of a sample: how many really ran, counted."""

Objects = Sequence[Mapping[str, Any]]


def asked(objects: Objects, cpus: int | None = None) -> int | None:
    """Of all the proxy's pods together, each on so many `cpus` (None: not known); None where it is left to a proxy of which it cannot be told."""
    told = next((int(text) for text in _told(objects) if text.isdigit() and int(text)), None)
    each = next(_each(objects, told, cpus), told)
    return each and each * (sum(obj["spec"].get("replicas", 1) for obj in objects if _is_proxy(obj)) or 1)


def rule(image: str) -> tuple[str, WorkerRule, Workers] | None:
    """The rule for an image, with what it is known by and whose it is; None where it runs no proxy that is known here."""
    found = {name: (name, makes, each) for each in WORKERS for name, makes in each.rules.items()}
    fitting = [name for name in found if re.search(rf"(?:^|/){re.escape(name)}(?=[:@.]|$)", image)]
    return found[name] if (name := max(fitting, key=len, default="")) else None


def _each(objects: Objects, told: int | None, cpus: int | None) -> Iterator[int]:
    """What a proxy's own rule makes of `told` (None: it is told nothing), where that is anything."""
    for container in (item for obj in objects if _is_proxy(obj) for item in _containers(obj)):
        limit = cores(((container.get("resources") or {}).get("limits") or {}).get("cpu"))
        if found := rule(str(container.get("image", ""))):
            _, makes, own = found
            count = makes(limit, cpus) if told is None else own.capped(told, limit) if own.capped else told
            yield from [] if count is None else [count]


def _told(objects: Objects) -> Iterator[str]:
    keys, variables = [key for own in WORKERS for key in own.keys], {name for own in WORKERS for name in own.variables}
    options = {name for own in WORKERS for name in own.options}
    fields = {kind: field for own in WORKERS for kind, field in own.fields.items()}
    directives = [own.directive for own in WORKERS if own.directive]
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
    """Return a script that prints a line for each process of a container: its threads, and its command line; and what a proxy that counts
    its own workers tells of them.
    """
    asking = [each for each in WORKERS if each.process]
    cases = "\n".join(
        f"  {each.process}) {{ {inside.asked(each.port, each.page)}; }} 2>/dev/null | grep ^{each.metric} ;;"
        for each in asking
    )
    return rf"""
asks=
for p in /proc/[0-9]*; do
  while read -r key value; do
    case $key in Name:) case $value in {" | ".join(each.process for each in asking)}) asks=$value ;; esac ;; Threads:) printf '%s ' "$value" ;; esac
  done <$p/status && tr '\0' ' ' <$p/cmdline && echo
done 2>/dev/null
case $asks in
{cases}
esac || true
"""


def listed(text: str) -> list[tuple[int, str]]:
    """(threads, command line) from what `list_script` printed."""
    pairs = (line.partition(" ") for line in text.splitlines())
    return [(int(threads), title.strip()) for threads, _, title in pairs if threads.isdigit()]


def told(text: str) -> int | None:
    """What a proxy that counts its own workers tells in that."""
    metrics = "|".join(each.metric for each in WORKERS if each.process)
    found = re.search(rf"^(?:{metrics}):? (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def started(processes: Iterable[tuple[int, str]]) -> int | None:
    """Of one container or of several, from (threads, command line) of every process in them."""
    found = list(processes)
    return sum(count(found) for count in dict.fromkeys(each.count for each in WORKERS if each.count)) or None
