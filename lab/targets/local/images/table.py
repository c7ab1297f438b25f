"""The table of the images that stand for something of their own here, and what a container's image stands for by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from lab.base.errors import UsageError
from lab.targets.cluster import images as references
from lab.targets.local.containers import Realisation
from lab.targets.local.images import (
    Context,
    Image,
    Telling,
    caddy,
    command,
    envoy,
    envoy_gateway,
    haproxy,
    haproxy_ingress,
    haproxy_router,
    httpd,
    ingress_nginx,
    is_repository_of,
    nginx,
    nginx_gateway_fabric,
    nginx_ingress,
    traefik,
)
from lab.targets.local.objects import Objects
from lab.targets.local.pods import Container
from lab.targets.local.renewing import Renew

IMAGES = cast(
    "tuple[Image, ...]",
    (
        caddy,
        envoy,
        envoy_gateway,
        haproxy,
        haproxy_ingress,
        haproxy_router,
        httpd,
        ingress_nginx,
        nginx,
        nginx_gateway_fabric,
        nginx_ingress,
        traefik,
    ),
)


def realise(context: Context) -> Realisation:
    """By the file for its image, or its command executed. UsageError for another version than what stands for the image here."""
    image = find(context.container.repository)
    if image is None or context.pod.role == "balancer":  # whatever a balancer runs, it serves no route
        return executed(context)
    if context.pod.role == "proxy" and not getattr(image, "BY_TAG", False):
        refuse_other_version(context.container)
    return image.realise(context)


def refuse_other_version(container: Container) -> None:
    """UsageError for a tag that changes nothing here: its effect would be none."""
    if not references.PINNED.exists():
        return  # an ablation that goes on has manifests of its own, which were held to it when it began
    image, tag = find(container.repository), references.split(container.image)[1]
    pinned = map(references.split, references.pinned().values())
    tags = [other for repository, other in pinned if find(repository) is image]
    if tags and tag not in tags:
        fault = (
            f"image {container.image}: what stands for it here is the same for every tag ({', '.join(tags)} is pinned)"
        )
        raise UsageError(container.place, fault, "use --target kind, where the image itself runs")


def executed(context: Context) -> Realisation:
    """What an image stands for that has no file here."""
    return Realisation(command(context.container), context.container.env)


def telling(repository: str) -> Telling | None:
    """The file for an image whose proxy tells of itself."""
    image = find(repository)
    return cast("Telling", image) if hasattr(image, "counters") else None


def serving(repository: str) -> str:
    """What the processes that serve are called, of an image in whose container others run, too; empty = all serve."""
    return getattr(find(repository), "PROXY", "")


def renew(repository: str) -> Renew | None:
    """How a reload of what it has makes new workers of an image's proxy; None where none does."""
    return getattr(find(repository), "RENEW", None)


def find(repository: str) -> Image | None:
    """The file for an image, whatever registry it comes from, by the longest name that fits; None if it needs nothing special."""
    fitting = [image for image in IMAGES if is_repository_of(image.IMAGE, repository)]
    return max(fitting, key=lambda image: len(image.IMAGE), default=None)


def unknown(objects: Objects) -> Iterator[Mapping[str, Any]]:
    """Objects of kinds that none of its proxies' images reads."""
    found = [find(container.repository) for pod in objects.pods for container in pod.containers]
    kinds = frozenset[str]().union(*(getattr(image, "KINDS", frozenset[str]()) for image in found))
    return (raw for raw in objects.others if raw.get("kind") not in kinds)
