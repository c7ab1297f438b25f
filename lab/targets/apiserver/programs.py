"""What this target runs that is not the lab's own: where it lies, and what it is.

etcd and kube-apiserver come from the folder that KUBEBUILDER_ASSETS names, else from PATH (nix, Debian, or `scripts/controllers`,
which builds them from pinned Go modules); a controller's files from its image where `providing` had one, else from `.cache/controllers`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError
from lab.base.files import readable

ROOT = Path(__file__).parents[3]
MADE = ROOT / ".cache" / "controllers"
ASSETS = "KUBEBUILDER_ASSETS"
ROOTS = "LAB_ROOTS"
"""Environment variable of the lab's own, set before it enters its namespaces: short name of an image → [reference, folder]."""
SERVERS = ("etcd", "kube-apiserver")
ABOUT = "about.txt"
"""Of a root that the lab made: what it is, a line each."""


@dataclass(frozen=True, slots=True)
class Files:
    """An image's own, unpacked. `about`: what they are, in words."""

    folder: Path
    about: str


def server(name: str) -> str:
    """The path of etcd or kube-apiserver. UsageError."""
    folder = os.environ.get(ASSETS)
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        raise UsageError("--target apiserver", f"{name} is not {f'in {folder}' if folder else 'there'}", _remedy())
    return found


@cache
def version(program: str) -> str:
    """`v1.34.4`, as etcd or kube-apiserver prints it."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+\.\d+\S*", said)
    return f"v{found[0]}" if found else "unknown"


def files(system: str, image: str) -> Files:
    """A system's root. `image`: its short name in manifests/images. UsageError when it is not there."""
    given = json.loads(os.environ.get(ROOTS, "{}"))
    if image in given:
        reference, folder = given[image]
        return Files(Path(folder), f"the files of {reference}")
    folder = MADE / system / "root"
    if not folder.is_dir():
        raise UsageError(f"target apiserver: {system}", "its files are not there", f"scripts/controllers {system}")
    return Files(folder, "; ".join(readable(folder / ABOUT).splitlines()))


def _remedy() -> str:
    return f"scripts/controllers builds it, or {ASSETS} names a folder that has it"
