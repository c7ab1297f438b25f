"""Functions that build substitutes of published images, for a kind cluster that cannot reach a registry.

An image that contains a single program is replaced by this program on a base image that is available locally:

    docker.io/library/NAME:v3.7.15   →   lab/NAME:3.7.15-0f93c1…, the locked wheel's program on the available Debian

An image of `manifests/images/images.yaml` is replaced if a variant on kind runs it, and if the lab can fetch or build
its program in the same version (`lab.systems.programs`). Images that contain more than a program are not replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from lab.model.variants.variants import load_overlay, load_variant, variant_names
from lab.systems import programs
from lab.systems.table import find
from lab.targets.cluster import docker, images, objects

TARGET = "kind"
"""The target that the images are for."""
_DIGITS = 12
"""The hexadecimal digits of a digest in an image's tag."""


def pack(base: str) -> dict[str, str]:
    """Build a substitute for each published image that a single program can replace: an image with this program.

    An image that Docker already holds is not built again. A kind cluster uses these images if it cannot reach a
    registry.

    Args:
        base: The name of the image to which the program is added.

    Returns:
        Short name of the replaced image → reference of the image with the program.

    Raises:
        UsageError: An image cannot be built.

    """
    references: dict[str, str] = {}
    for short, program in _find_programs():
        reference = f"lab/{short}:{program.version}-{_compute_digest(base, program.file)}"
        if docker.find_image_id(reference) is None:
            images.build_program(short, program.file, reference, base)
        references[short] = reference
    return references


def _find_programs() -> Iterator[tuple[str, programs.Program]]:
    """Yield (short name, program) for each pinned image that a root variant uses and that a single program can replace.

    A root variant is a variant without a baseline that runs on the target `kind`. Other variants are not read, so the
    few images that their components add (such as `python`) are missing. The lab fetches or builds the program in the
    image's version.
    """
    roots = (name for name in variant_names() if load_overlay(name).baseline is None)
    variants = (variant for variant in map(load_variant, roots) if TARGET in (variant.only_on or (TARGET,)))
    used: set[str] = {
        container["image"]
        for variant in variants
        for obj in objects.flatten(objects.lay_over_for_cluster(variant.manifests))
        if objects.pod_template(obj) is not None
        for container in objects.pod_spec(obj)["containers"]
    }
    for short, reference in images.read_pinned().items():
        repository, tag = images.split_reference(reference)
        if reference in used:
            module = system.module if (system := find(repository)) else ""
            if (program := programs.provide_image_program(short, tag.removeprefix("v"), module)) is not None:
                yield short, program


def _compute_digest(base: str, program: Path) -> str:
    """Return 12 hexadecimal digits that change when the base image's name, the Dockerfile or the program changes."""
    digest = hashlib.sha256(base.encode() + images.PROGRAM_DOCKERFILE.read_bytes())
    with program.open("rb") as content:
        digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:_DIGITS]
