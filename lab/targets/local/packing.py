"""Programs of the lab's own as images, for a cluster that reaches no registry: what one is nothing but.

    docker.io/library/traefik:v3.7.15   →   lab/traefik:3.7.15-0f93c1…, the locked wheel's program on the Debian that is there

Which: those of `manifests/images/images.yaml` that a variant on kind runs and whose program the lab fetches or builds in that version
(`lab.targets.local.proxies`). Refuses nothing: an image that is more than a program is not among them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from lab.model.variants.variants import load_overlay, load_variant, variant_names
from lab.targets.cluster import docker, images, objects
from lab.targets.local import proxies
from lab.targets.local.images import table as local
from lab.targets.local.proxies import Program

TARGET = "kind"
_DIGITS = 12


def pack(base: str) -> dict[str, str]:
    """Short name → reference that the Docker engine holds now, built on `base` where it was not there. UsageError for one that cannot be."""
    found: dict[str, str] = {}
    for short, program in _programs():
        reference = f"lab/{short}:{program.version}-{_digest(base, program.file)}"
        if docker.held(reference) is None:
            images.build_program(short, program.file, reference, base)
        found[short] = reference
    return found


def _programs() -> Iterator[tuple[str, Program]]:
    used = _used()
    for short, reference in images.pinned().items():
        repository, tag = images.split(reference)
        if reference in used:
            module = getattr(local.find(repository), "MODULE", "")
            if (program := proxies.packed(short, tag.removeprefix("v"), module)) is not None:
                yield short, program


def _used() -> set[str]:
    """References of what variants on the target run: by their roots, whose knobs bring no other image."""
    roots = (name for name in variant_names() if load_overlay(name).baseline is None)
    there = (variant for variant in map(load_variant, roots) if TARGET in (variant.only_on or (TARGET,)))
    return {
        container["image"]
        for variant in there
        for obj in objects.flat(objects.on_cluster(variant.manifests))
        if objects.pod_template(obj) is not None
        for container in objects.pod_spec(obj)["containers"]
    }


def _digest(base: str, program: Path) -> str:
    told = hashlib.sha256(base.encode() + images.PROGRAM_DOCKERFILE.read_bytes())
    with program.open("rb") as content:
        told.update(hashlib.file_digest(content, "sha256").digest())
    return told.hexdigest()[:_DIGITS]
