"""The references of the container images of the lab, by short names such as `nginx`, and the build of the generators' image.

`manifests/images/images.yaml` pins the references. The environment variable LAB_IMAGES names a file with lines `short name:
reference`, which choose other references. Unknown short names are refused. Whether an image exists is not checked here: its
registry decides that.

The image with the load generators is in no registry. In a nix shell the flake builds it (`.#loadgen`). Elsewhere Docker builds
it, from `lab/targets/provision/images/Dockerfile` and the generators in .cache/bin (k6 may also be on PATH). Other contents get
another tag, so an old image is never mistaken for a new one.
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

from lab.base.errors import UsageError, refuse_if, refuse_unknown
from lab.model.variants.kustomize import read_yaml
from lab.targets.cluster import docker

SETTING = "LAB_IMAGES"
ONLY_FOR = "lab/only-for"
"""The annotation of an image that only some variants need; a cluster without the image can run all other variants."""
NOT_OF_VARIANTS = frozenset({"kind-node", "debian", "loadgen"})
"""The images that clusters and generators are made of; every other image is one that some variant runs."""
ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "lab" / "targets" / "provision" / "images" / "Dockerfile"
PROGRAM_DOCKERFILE = DOCKERFILE.with_name("program.Dockerfile")
BUILD_S = 900.0
PINNED = ROOT / "manifests" / "images" / "images.yaml"
_REFERENCE = re.compile(r"/.+|[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64})?")


@dataclass(frozen=True, slots=True)
class Images:
    """The references of all container images that the lab uses, by short names such as `nginx`.

    Attributes:
        pinned: Short name → reference that `images.yaml` pins, for every image.
        chosen: Short name → reference that replaces the pinned one. It has the images that the user has replaced;
            `load_images` adds the generators' image.

    """

    pinned: Mapping[str, str]
    chosen: Mapping[str, str]

    def named(self, short: str) -> str:
        """Return the reference to use for an image's short name: the chosen one if there is one, else the pinned one."""
        return self.chosen.get(short, self.pinned[short])

    def resolve(self, reference: str) -> str:
        """Return the reference that replaces an image reference in a manifest.

        If `images.yaml` pins the reference and `chosen` has another reference for this image, the chosen one is returned.
        Otherwise the reference is returned unchanged.
        """
        return next((self.named(short) for short, full in self.pinned.items() if full == reference), reference)


def load_images() -> Images:
    """Return the references of all images, including the image with the load generators.

    The generators' image has the reference that the user has chosen, or else the tag that a build from this checkout
    would give it.

    Raises:
        UsageError: The file that LAB_IMAGES names is wrong (see `read_images`).

    """
    images = read_images()
    chosen = dict(images.chosen)
    if "loadgen" not in chosen:
        base = chosen.get("debian", images.pinned["debian"])
        chosen["loadgen"] = f"{images.pinned['loadgen'].rpartition(':')[0]}:{loadgen_tag(base)}"
    return Images(images.pinned, chosen)


def read_images() -> Images:
    """Return the pinned references of all images, and the references that replace some of them.

    The user names the latter in a file with lines `short name: reference`; the environment variable LAB_IMAGES names
    the file. For the target apiserver, a line may have the path of a folder or an archive in place of a reference.

    Raises:
        UsageError: The file cannot be read, a short name is unknown, or a value is no image reference.

    """
    setting = os.environ.get(SETTING)
    if not setting:
        return Images(read_pinned(), {})
    place, example = f"{SETTING}={setting}", f"`nginx: {read_pinned()['nginx']}`"
    try:
        content: Any = read_yaml(Path(setting).expanduser(), place)
    except UsageError as error:
        raise UsageError(place, error.fault, f"it takes lines like {example}") from None
    refuse_if(not isinstance(content, dict), place, "expected `short name: reference` lines", f"for example {example}")
    for short, reference in content.items():
        refuse_unknown(short, read_pinned(), place, f"unknown image '{short}'")
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise UsageError(place, f"{short}: {reference!r} is no image reference", f"as in `{read_pinned()[short]}`")
    return Images(read_pinned(), dict(content))


@cache
def read_pinned() -> Mapping[str, str]:
    """Return short name → reference of every image, as manifests/images/images.yaml pins it."""
    tags = [document["imageTag"] for document in _read_documents()]
    return {
        tag["name"]: f"{tag['newName']}:{tag['newTag']}" + (f"@{tag['digest']}" if "digest" in tag else "")
        for tag in tags
    }


def split_reference(reference: str) -> tuple[str, str]:
    """Split an image reference into its repository and its tag: `nginx:1.29@sha256:…` → ('nginx', '1.29')."""
    head, slash, tail = reference.partition("@")[0].rpartition("/")
    name, _, tag = tail.partition(":")
    return head + slash + name, tag


def list_variant_images() -> dict[str, str | None]:
    """Return short name → the variants that need the image, for each image that variants run.

    The variants are a text from the image's annotation `lab/only-for`. None means that every cluster must have the
    image.
    """
    annotations = {
        document["imageTag"]["name"]: document["metadata"].get("annotations", {}).get(ONLY_FOR)
        for document in _read_documents()
    }
    return {short: only_for for short, only_for in annotations.items() if short not in NOT_OF_VARIANTS}


def _read_documents() -> list[dict[str, Any]]:
    return list(yaml.load_all(PINNED.read_text(), Loader=yaml.CSafeLoader))


@cache
def loadgen_tag(base: str) -> str:
    """Return the tag of the image with the load generators: a hash of everything from which the image is built.

    Outside of a nix shell this is `base`, the Dockerfile and the generators' programs. In a nix shell it is flake.lock
    and flake.nix.

    Args:
        base: The reference of the Debian image on which it is built; a nix build ignores it.

    Returns:
        Twelve hexadecimal digits.

    """
    parts = (ROOT / "flake.lock", ROOT / "flake.nix") if _in_nix() else (DOCKERFILE, *_find_programs().values())
    digest = hashlib.sha256(b"" if _in_nix() else base.encode())
    for part in parts:
        with open(part, "rb") as content:
            digest.update(part.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:12]


def build_loadgen(reference: str, base: str) -> None:
    """Build the image with the load generators in the local Docker engine, by nix inside a nix shell, else by Docker.

    Args:
        reference: The reference that the image gets.
        base: The reference of the Debian image on which it is built; a nix build ignores it.

    Raises:
        UsageError: The build fails (the error contains the builder's last line), or, without nix, there is no k6.

    """
    if not _in_nix():
        build_target("loadgen", reference, base)
        return
    place, remedy = "image loadgen", "LAB_TOOLS=debian scripts/shell … builds it by Docker instead"
    argv = ["nix", "--extra-experimental-features", "nix-command flakes", "build", "--no-link", "--print-out-paths"]
    archive = docker.run_for_output([*argv, f"{ROOT}#loadgen"], BUILD_S, place, remedy).strip()
    loaded = docker.run_for_output(["docker", "load", "--input", archive], BUILD_S, place, remedy)
    name = loaded.strip().splitlines()[-1].removeprefix("Loaded image: ")
    docker.run_for_output(["docker", "tag", name, reference], 60.0, place, remedy)


def build_target(target: str, reference: str, base: str) -> None:
    """Build one target (stage) of the Dockerfile for load generators.

    Args:
        target: The name of the target in the Dockerfile.
        reference: The reference that the image gets.
        base: The reference of the image on which it is built.

    Raises:
        UsageError: There is no k6, which the image must contain, or the build fails.

    """
    programs = _find_programs()
    if "k6" not in programs:
        raise UsageError("k6", "neither in .cache/bin nor on PATH", "start the lab by scripts/shell, which builds it")
    _build_image(target, reference, base, (DOCKERFILE, *programs.values()), ["--target", target])


def build_program(short: str, program: Path, reference: str, base: str) -> None:
    """Build an image that contains one program.

    Args:
        short: The short name of the image, for messages.
        program: The path of the program.
        reference: The reference that the image gets.
        base: The reference of the image on which it is built.

    Raises:
        UsageError: The build fails; the error contains the builder's last line.

    """
    _build_image(short, reference, base, (PROGRAM_DOCKERFILE, program), ["--build-arg", f"PROGRAM={program.name}"])


def _build_image(short: str, reference: str, base: str, context: Sequence[Path], options: Sequence[str]) -> None:
    """Build an image by Docker from a Dockerfile and the files that the Dockerfile copies.

    Args:
        short: The short name of the image, for messages.
        reference: The reference that the image gets.
        base: The reference of the image on which it is built.
        context: The path of the Dockerfile, then the paths of the files that it copies.
        options: Further options of `docker build`.

    Raises:
        UsageError: The build fails; the error contains the builder's last line.

    """
    dockerfile = context[0]
    with TemporaryDirectory(prefix="lab-image-") as name:
        for path in context:
            shutil.copy(path, Path(name) / path.name)
        arguments = [*options, "--build-arg", f"BASE={base}", "--tag", reference]
        argv = ["docker", "build", "--file", f"{name}/{dockerfile.name}", *arguments, name]
        another = f"LAB_IMAGES chooses another `debian`, or a ready `{short}`"
        remedy = f"it is built from {dockerfile.relative_to(ROOT)} on {base}; {another}"
        docker.run_for_output(argv, BUILD_S, f"image {short}", remedy)


def _in_nix() -> bool:
    return "IN_NIX_SHELL" in os.environ


def _find_programs() -> dict[str, Path]:
    """Return name → path for each of the load generators `k6`, `oha` and `wrk2` whose program lies in .cache/bin.

    If k6 is not there, it is taken from PATH. A generator that is found nowhere is left out.
    """
    # What Debian does not have; only k6 is required.
    programs = {name: path for name in ("k6", "oha", "wrk2") if (path := ROOT / ".cache" / "bin" / name).is_file()}
    if "k6" not in programs and (k6 := shutil.which("k6")):
        programs["k6"] = Path(k6)
    return programs
