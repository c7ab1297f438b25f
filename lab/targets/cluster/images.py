"""Which image stands for which short name (`manifests/images/images.yaml`, and LAB_IMAGES, a file of `short name: reference` lines), and building
the generators', which no registry has: in a nix shell by the flake (`.#loadgen`), elsewhere by Docker, from
`lab/targets/provision/images/Dockerfile` and the k6 that scripts/shell has built. Other contents, another tag: an old image is never taken for a
new one. Refuses short names that the lab does not have. Whether an image is there, registries say.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from lab.base.errors import UsageError, refuse_unknown
from lab.model.variants.kustomize import read_yaml
from lab.targets.cluster import docker

SETTING = "LAB_IMAGES"
ONLY_FOR = "lab/only-for"
"""Annotation of an image without which a cluster is good for all but these variants."""
NOT_OF_VARIANTS = frozenset({"kind-node", "debian", "loadgen"})
"""What clusters and generators are made of; every other image is one that some variant runs."""
ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "lab" / "targets" / "provision" / "images" / "Dockerfile"
PROGRAM_DOCKERFILE = DOCKERFILE.with_name("program.Dockerfile")
BUILD_S = 900.0
PINNED = ROOT / "manifests" / "images" / "images.yaml"
_REFERENCE = re.compile(r"/.+|[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64})?")


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
    """What is pinned, what LAB_IMAGES chooses, and the tag of the generators' image as this checkout builds it. UsageError as `written`."""
    found = written()
    chosen = dict(found.chosen)
    if "loadgen" not in chosen:
        base = chosen.get("debian", found.pinned["debian"])
        chosen["loadgen"] = f"{found.pinned['loadgen'].rpartition(':')[0]}:{loadgen_tag(base)}"
    return Images(found.pinned, chosen)


def written() -> Images:
    """What is pinned, and what LAB_IMAGES chooses instead: a reference, or for the target apiserver a folder or an archive (`/…`).

    UsageError for a file that cannot be read, an unknown short name, or a reference that is none.
    """
    setting = os.environ.get(SETTING)
    if not setting:
        return Images(pinned(), {})
    place, example = f"{SETTING}={setting}", f"`nginx: {pinned()['nginx']}`"
    try:
        content: Any = read_yaml(Path(setting).expanduser(), place)
    except UsageError as error:
        raise UsageError(place, error.fault, f"it takes lines like {example}") from None
    if not isinstance(content, dict):
        raise UsageError(place, "expected `short name: reference` lines", f"for example {example}")
    for short, reference in content.items():
        refuse_unknown(short, pinned(), place, f"unknown image '{short}'")
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise UsageError(place, f"{short}: {reference!r} is no image reference", f"as in `{pinned()[short]}`")
    return Images(pinned(), dict(content))


@cache
def pinned() -> Mapping[str, str]:
    """Short name → reference."""
    tags = [document["imageTag"] for document in _documents()]
    return {
        tag["name"]: f"{tag['newName']}:{tag['newTag']}" + (f"@{tag['digest']}" if "digest" in tag else "")
        for tag in tags
    }


def split(reference: str) -> tuple[str, str]:
    """Repository and tag, without a digest."""
    head, slash, tail = reference.partition("@")[0].rpartition("/")
    name, _, tag = tail.partition(":")
    return head + slash + name, tag


def of_variants() -> dict[str, str | None]:
    """Short name of every image that variants run → what alone needs it, as its annotation says; None = a cluster must have it."""
    found = {each["imageTag"]["name"]: each["metadata"].get("annotations", {}).get(ONLY_FOR) for each in _documents()}
    return {short: only_for for short, only_for in found.items() if short not in NOT_OF_VARIANTS}


def _documents() -> list[dict[str, Any]]:
    return list(yaml.load_all(PINNED.read_text(), Loader=yaml.CSafeLoader))


@cache
def loadgen_tag(base: str) -> str:
    """Twelve digits of the hash of everything that goes into it. `base` is the Debian it is built on."""
    parts = (ROOT / "flake.lock", ROOT / "flake.nix") if _nix() else (DOCKERFILE, *_programs().values())
    digest = hashlib.sha256(b"" if _nix() else base.encode())
    for part in parts:
        with open(part, "rb") as content:
            digest.update(part.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:12]


def build_loadgen(reference: str, base: str) -> None:
    """Make it, so that the local Docker engine holds it under this name. UsageError with the builder's last words."""
    if not _nix():
        build_target("loadgen", reference, base)
        return
    place, remedy = "image loadgen", "LAB_TOOLS=debian scripts/shell … builds it by Docker instead"
    argv = ["nix", "--extra-experimental-features", "nix-command flakes", "build", "--no-link", "--print-out-paths"]
    archive = docker.output([*argv, f"{ROOT}#loadgen"], BUILD_S, place, remedy).strip()
    loaded = docker.output(["docker", "load", "--input", archive], BUILD_S, place, remedy)
    name = loaded.strip().splitlines()[-1].removeprefix("Loaded image: ")
    docker.output(["docker", "tag", name, reference], 60.0, place, remedy)


def build_target(target: str, reference: str, base: str) -> None:
    """One target of the Dockerfile."""
    programs_in_it = _programs()
    if "k6" not in programs_in_it:
        raise UsageError("k6", "neither in .cache/bin nor on PATH", "start the lab by scripts/shell, which builds it")
    _build(target, reference, base, (DOCKERFILE, *programs_in_it.values()), ["--target", target])


def build_program(short: str, program: Path, reference: str, base: str) -> None:
    """An image that is one program."""
    _build(short, reference, base, (PROGRAM_DOCKERFILE, program), ["--build-arg", f"PROGRAM={program.name}"])


def _build(short: str, reference: str, base: str, context: Sequence[Path], asked: Sequence[str]) -> None:
    """Of a Dockerfile, which is the context's first file, and what lies beside it. UsageError with the builder's last words."""
    dockerfile = context[0]
    with TemporaryDirectory(prefix="lab-image-") as name:
        for path in context:
            shutil.copy(path, Path(name) / path.name)
        told = [*asked, "--build-arg", f"BASE={base}", "--tag", reference]
        argv = ["docker", "build", "--file", f"{name}/{dockerfile.name}", *told, name]
        another = f"LAB_IMAGES chooses another `debian`, or a ready `{short}`"
        remedy = f"it is built from {dockerfile.relative_to(ROOT)} on {base}; {another}"
        docker.output(argv, BUILD_S, f"image {short}", remedy)


def _nix() -> bool:
    return "IN_NIX_SHELL" in os.environ


def _programs() -> dict[str, Path]:
    """Those of scripts/shell; k6 may also be one's own, as long as it is static."""
    # What Debian has not; only k6 must be there.
    found = {name: path for name in ("k6", "oha", "wrk2") if (path := ROOT / ".cache" / "bin" / name).is_file()}
    if "k6" not in found and (k6 := shutil.which("k6")):
        found["k6"] = Path(k6)
    return found
