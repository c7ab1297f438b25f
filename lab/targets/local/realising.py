"""What a container's image stands for on this machine: what its system's row of `lab.systems.table` says, or its command executed.

Apart from `target`, since who starts a pod asks as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lab.base.errors import UsageError
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Container
from lab.systems.system import Context, Realisation, command
from lab.systems.table import find
from lab.targets.cluster import images as references


def realise(context: Context) -> Realisation:
    """By its system, or its command executed. UsageError for another version than what stands for the image here."""
    system = find(context.container.repository)
    if (
        system is None or system.realise is None or context.pod.role == "balancer"
    ):  # whatever a balancer runs, it serves no route
        return Realisation(command(context.container), context.container.env)
    if context.pod.role == "proxy" and not system.by_tag:
        refuse_other_version(context.container)
    return system.realise(context)


def refuse_other_version(container: Container) -> None:
    """UsageError for a tag that changes nothing here: its effect would be none."""
    if not references.PINNED.exists():
        return  # an ablation that goes on has manifests of its own, which were held to it when it began
    system, tag = find(container.repository), references.split(container.image)[1]
    pinned = map(references.split, references.pinned().values())
    tags = [other for repository, other in pinned if find(repository) is system]
    if tags and tag not in tags:
        fault = (
            f"image {container.image}: what stands for it here is the same for every tag ({', '.join(tags)} is pinned)"
        )
        raise UsageError(container.place, fault, "use --target kind, where the image itself runs")


def is_fixed(container: Container) -> bool:
    """Whether a proxy keeps the backends of its start."""
    system = find(container.repository)
    return system is None or system.control is None


def makes_new_workers(container: Container) -> bool:
    """Whether a reload of a proxy makes new workers."""
    system = find(container.repository)
    return system is not None and system.renew is not None


def unknown(objects: Objects) -> Iterator[Mapping[str, Any]]:
    """Objects of kinds that none of its proxies' systems reads."""
    found = [find(container.repository) for pod in objects.pods for container in pod.containers]
    kinds = frozenset[str]().union(*(system.kinds for system in found if system is not None))
    return (raw for raw in objects.others if raw.get("kind") not in kinds)
