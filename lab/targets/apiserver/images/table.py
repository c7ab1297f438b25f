"""The table of the images that are their own programs on this target, and what a container's image stands for by it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from lab.base.errors import UsageError
from lab.targets.apiserver import programs
from lab.targets.apiserver.images import MACHINE, Image, contour, envoy, haproxy_router, ingress_nginx, traefik
from lab.targets.local.containers import Realisation
from lab.targets.local.images import Context, is_repository_of
from lab.targets.local.images import table as local
from lab.targets.local.pods import Container

IMAGES = cast(
    "Mapping[str, Image]",
    {image.IMAGE: image for image in (contour, envoy, haproxy_router, ingress_nginx, traefik)},
)
"""The repository's last parts → the file."""


def there() -> Mapping[str, Image]:
    """Those of `IMAGES` whose files are here."""

    def has(image: Image) -> bool:
        try:
            return bool(image.about())
        except UsageError:
            return False

    return {name: image for name, image in IMAGES.items() if has(image)}


def find(repository: str) -> Image | None:
    """Whatever registry it comes from; None where it is what the local target has."""
    return next((image for name, image in IMAGES.items() if is_repository_of(name, repository)), None)


def realise(context: Context) -> Realisation:
    """By the file for its image here, or on the local target, or its command executed. UsageError for another version than there is."""
    image = find(context.container.repository)
    if image is None:
        return local.realise(context)
    if context.pod.role == "proxy":
        local.refuse_other_version(context.container)
    return image.realise(context)


def has(container: Container, program: str) -> bool:
    """Whether a program can be run in this container: where it has files of its own, it has none of the machine's."""
    image = find(container.repository)
    if image is None or image.SYSTEM == MACHINE:
        return True
    root = programs.files(image.SYSTEM, image.SHORT).folder
    return any(os.path.lexists(root / place / program) for place in ("bin", "sbin", "usr/bin", "usr/sbin"))
