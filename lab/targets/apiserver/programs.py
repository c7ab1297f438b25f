"""What this target runs that is not the lab's own: where it lies, what it is, and having it made when it is first used.

etcd and kube-apiserver come from the folder that KUBEBUILDER_ASSETS names, else from PATH (nix, Debian, or `scripts/controllers`,
which builds them from pinned Go modules); a controller's files from where LAB_IMAGES names a folder for its image, else from
`.cache/controllers`. Refuses to fetch anything inside the lab's namespaces: no network is there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError
from lab.base.files import readable

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "controllers"
MADE = ROOT / ".cache" / "controllers"
ASSETS, IMAGES = "KUBEBUILDER_ASSETS", "LAB_IMAGES"
SERVERS = ("etcd", "kube-apiserver")
ABOUT = "about.txt"
"""Of a root that the lab made: what it is, a line each."""


@dataclass(frozen=True, slots=True)
class Files:
    """An image's own, unpacked. `about`: what they are, in words."""

    folder: Path
    about: str


def provide() -> None:
    """Have made what is not there yet; outside the namespaces, and told on stderr. UsageError when it cannot be."""
    if subprocess.run([SCRIPT], check=False).returncode:
        fault = "what it runs could not be made (see above)"
        raise UsageError("--target apiserver", fault, f"{SCRIPT.relative_to(ROOT)} --help says what it needs")


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
    if (given := _given().get(image)) is not None:
        return Files(given, f"the files of {given}")
    folder = MADE / system / "root"
    if not folder.is_dir():
        raise UsageError(f"target apiserver: {system}", "its files are not there", f"scripts/controllers {system}")
    return Files(folder, "; ".join(readable(folder / ABOUT).splitlines()))


def _given() -> Mapping[str, Path]:
    """Those of LAB_IMAGES' lines that name a folder. UsageError for one that is none."""
    found: dict[str, Path] = {}
    for line in readable(Path(os.environ.get(IMAGES) or os.devnull)).splitlines():
        name, _, value = line.partition(":")
        if (text := value.strip().strip("'\"")).startswith("/"):
            if not (folder := Path(text)).is_dir():
                raise UsageError(f"{IMAGES}: {name}", f"{text} is no folder", "unpack the image's files into one")
            found[name.strip()] = folder
    return found


def _remedy() -> str:
    return f"scripts/controllers builds it, or {ASSETS} names a folder that has it"
