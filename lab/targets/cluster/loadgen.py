"""The generators' image, which no registry has: what goes into it, the tag made from that, and building it.

In a nix shell the flake builds it (`.#loadgen`); elsewhere Docker, from `lab/targets/provision/images/Dockerfile` and the k6 that
scripts/shell has built. Other contents, another tag: an old image is never taken for a new one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.base.errors import UsageError
from lab.targets.cluster import programs

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "lab" / "targets" / "provision" / "images" / "Dockerfile"
FLAKE = (ROOT / "flake.lock", ROOT / "flake.nix")
OWN_PROGRAMS = ("k6", "oha", "wrk2")
"""What Debian has not. Only k6 must be there."""
BUILD_S = 900.0


@cache
def tag(base: str) -> str:
    """Twelve digits of the hash of everything that goes into it. `base` is the Debian it is built on."""
    parts = FLAKE if _nix() else (DOCKERFILE, *_programs().values())
    digest = hashlib.sha256(b"" if _nix() else base.encode())
    for part in parts:
        with open(part, "rb") as content:
            digest.update(part.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:12]


def build(reference: str, base: str) -> None:
    """Make it, so that the local Docker engine holds it under this name. UsageError with the builder's last words."""
    if _nix():
        _build_by_nix(reference)
    else:
        build_target("loadgen", reference, base)


def build_target(target: str, reference: str, base: str) -> None:
    """One target of the Dockerfile."""
    programs_in_it = _programs()
    if "k6" not in programs_in_it:
        raise UsageError("k6", "neither in .cache/bin nor on PATH", "start the lab by scripts/shell, which builds it")
    with TemporaryDirectory(prefix="lab-image-") as name:
        context = Path(name)
        for path in (DOCKERFILE, *programs_in_it.values()):
            shutil.copy(path, context / path.name)
        argv = ["docker", "build", "--target", target, "--build-arg", f"BASE={base}", "--tag", reference, name]
        remedy = f"it is built from {DOCKERFILE.relative_to(ROOT)} on {base}; LAB_IMAGES chooses another `debian`, or a ready `{target}`"
        programs.output(argv, BUILD_S, f"image {target}", remedy)


def _nix() -> bool:
    return "IN_NIX_SHELL" in os.environ


def _programs() -> dict[str, Path]:
    """Those of scripts/shell; k6 may also be one's own, as long as it is static."""
    found = {name: path for name in OWN_PROGRAMS if (path := ROOT / ".cache" / "bin" / name).is_file()}
    if "k6" not in found and (k6 := shutil.which("k6")):
        found["k6"] = Path(k6)
    return found


def _build_by_nix(reference: str) -> None:
    remedy = "LAB_TOOLS=debian scripts/shell … builds it by Docker instead"
    argv = ["nix", "--extra-experimental-features", "nix-command flakes", "build", "--no-link", "--print-out-paths"]
    archive = programs.output([*argv, f"{ROOT}#loadgen"], BUILD_S, "image loadgen", remedy).strip()
    loaded = programs.output(["docker", "load", "--input", archive], BUILD_S, "image loadgen", remedy)
    name = loaded.strip().splitlines()[-1].removeprefix("Loaded image: ")
    programs.output(["docker", "tag", name, reference], 60.0, "image loadgen", remedy)
