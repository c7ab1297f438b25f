"""Which image stands for which short name: `manifests/images/images.yaml`, and LAB_IMAGES, a file of other names.

LAB_IMAGES holds `short name: reference` in YAML: a registry mirror's names, or tags that the local Docker engine holds.
Refuses short names that the lab does not have. Knows nothing of registries: whether an image is there, they say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.base.errors import UsageError, did_you_mean
from lab.model.variants.kustomize import read_yaml
from lab.targets.cluster import loadgen

SETTING = "LAB_IMAGES"
ONLY_FOR = "lab/only-for"
"""Annotation of an image without which a cluster is good for all but these variants."""
NOT_OF_VARIANTS = frozenset({"kind-node", "debian", "loadgen"})
"""What clusters and generators are made of; every other image is one that some variant runs."""
PINNED = Path(__file__).parents[3] / "manifests" / "images" / "images.yaml"
_REFERENCE = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64})?")


@dataclass(frozen=True, slots=True)
class Images:
    """Short name → reference: all of them as pinned, and those that are chosen instead."""

    pinned: Mapping[str, str]
    chosen: Mapping[str, str]

    def named(self, short: str) -> str:
        """The reference to use for a short name."""
        return self.chosen.get(short, self.pinned[short])

    def resolve(self, reference: str) -> str:
        """The reference to use for one that kustomize has rendered; what is not the lab's stays as it is."""
        return next((self.named(short) for short, full in self.pinned.items() if full == reference), reference)


def load() -> Images:
    """What is pinned, what LAB_IMAGES chooses, and the tag of the generators' image as this checkout builds it.

    UsageError for a file that cannot be read, an unknown short name, or a reference that is none.
    """
    pinned = _pinned()
    chosen = _chosen(os.environ.get(SETTING), pinned)
    if "loadgen" not in chosen:
        base = chosen.get("debian", pinned["debian"])
        chosen["loadgen"] = f"{pinned['loadgen'].rpartition(':')[0]}:{loadgen.tag(base)}"
    return Images(pinned, chosen)


def of_variants() -> dict[str, str | None]:
    """Short name of every image that variants run → what alone needs it, as its annotation says; None = a cluster must have it."""
    found = {each["imageTag"]["name"]: each["metadata"].get("annotations", {}).get(ONLY_FOR) for each in _documents()}
    return {short: only_for for short, only_for in found.items() if short not in NOT_OF_VARIANTS}


def _documents() -> list[dict[str, Any]]:
    return list(yaml.load_all(PINNED.read_text(), Loader=yaml.CSafeLoader))


def _pinned() -> dict[str, str]:
    tags = [document["imageTag"] for document in _documents()]
    return {
        tag["name"]: f"{tag['newName']}:{tag['newTag']}" + (f"@{tag['digest']}" if "digest" in tag else "")
        for tag in tags
    }


def _chosen(setting: str | None, pinned: Mapping[str, str]) -> dict[str, str]:
    if not setting:
        return {}
    place = f"{SETTING}={setting}"
    try:
        content: Any = read_yaml(Path(setting).expanduser(), place)
    except UsageError as error:
        raise UsageError(place, error.fault, f"it takes lines like `nginx: {pinned['nginx']}`") from None
    if not isinstance(content, dict):
        raise UsageError(place, "expected `short name: reference` lines", f"for example `nginx: {pinned['nginx']}`")
    for short, reference in content.items():
        if short not in pinned:
            raise UsageError(place, f"unknown image '{short}'", did_you_mean(str(short), pinned))
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise UsageError(place, f"{short}: {reference!r} is no image reference", f"as in `{pinned[short]}`")
    return dict(content)
