"""Programs that a system runs and that are not on the machine: brought when a variant first runs one, from pinned wheels, from what is built
of a pinned Go module, from Debian's packages, or as the root of a controller's own files.

    docker.io/envoyproxy/envoy:v1.40.0    →   .cache/proxies/envoy-1.40.0, the group `proxy-envoy-1.40.0` of pyproject.toml
    docker.io/envoyproxy/gateway:v1.9.1   →   .cache/bin/envoy-gateway, of scripts/tools/envoy-gateway/go.mod
    docker.io/library/httpd:2.4           →   .cache/apache2, Debian's package unpacked, in the version that this Debian has
    ingress-nginx                         →   .cache/controllers/ingress-nginx/root, made by scripts/controllers

So a version is a knob: a component that patches the image. Refuses a version that is not pinned.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import socket
import subprocess
import threading
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError, did_you_mean
from lab.base.files import readable
from lab.systems.manifests.pods import Container

ROOT = Path(__file__).parents[2]
SCRIPTS, CACHE = ROOT / "scripts", ROOT / ".cache"
OUTSIDE = "LAB_OUTSIDE"
"""Environment variable: the number of the socket to who runs scripts outside the lab's namespaces, in which there is no network."""
BROUGHT, BUILT = CACHE / "proxies", CACHE / "bin"
INSIDE = "/srv/proxy"
"""Where a container finds its program."""
MODULES, LIBRARIES = f"{INSIDE}/modules", f"{INSIDE}/lib"
"""Where it finds those of a program of Debian's."""
MADE = CACHE / "controllers"
ROOTS = "LAB_ROOTS"
"""Environment variable of the lab's own, set before it enters its namespaces: short name of an image → [reference, folder]."""
ABOUT = "about.txt"
"""Of a root that the lab made: what it is, a line each."""
_GROUP = "proxy-"
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Files:
    """A controller's own files, unpacked. `about`: what they are, in words."""

    folder: Path
    about: str


@dataclass(frozen=True, slots=True)
class Program:
    """`file`: on this machine."""

    name: str
    version: str
    file: Path

    @property
    def inside(self) -> str:
        """Its path in a container."""
        return f"{INSIDE}/{self.name}"

    @property
    def about(self) -> str:
        """For the run's facts."""
        return f"{self.name} {self.version}"


def tagged(container: Container) -> str:
    """The version that a container's image names by its tag. UsageError without one."""
    found = re.search(r":(?:\w+-)?v?(\d[\w.]*)(?:@|$)", container.image)
    if found is None:
        remedy = "as in manifests/images/images.yaml"
        raise UsageError(container.place, f"image {container.image} names no version by its tag", remedy)
    return found[1]


def of_image(container: Container, name: str) -> Program:
    """The program of that name in the version that a container's image names by its tag. UsageError as `tagged` and `program`."""
    return program(container.place, name, tagged(container))


def program(place: str, name: str, version: str) -> Program:
    """Fetched unless it is there. UsageError for one that is not pinned, or cannot be had."""
    known = _pinned()
    wanted = f"{name}-{version}"
    if wanted not in known:
        nearest = did_you_mean(wanted, [item for item in known if item.startswith(f"{name}-")] or known)
        remedy = f"{nearest}; one more is a group `{_GROUP}{wanted}` in pyproject.toml and `uv lock`"
        raise UsageError(place, f"{name} {version} is not pinned here", remedy)
    folder = BROUGHT / wanted
    if not folder.is_dir() and run_outside("proxies", [wanted]):
        remedy = f"scripts/proxies {wanted}, where there is a registry of Python packages"
        raise UsageError(place, f"{wanted} cannot be fetched (see above)", remedy)
    return Program(name, version, _executable(folder, name))


def built(place: str, name: str, module: str, version: str) -> Program:
    """What scripts/bring builds, or PATH has. UsageError where that is another version, or it cannot be built."""
    file = found(name)
    if (file is None or built_from(file, module) != version) and run_outside("bring", [name]) == 0:
        file = found(name)
    if file is None:
        remedy = f"scripts/bring {name}, where there is a Go proxy"
        raise UsageError(place, f"{name} cannot be built (see above)", remedy)
    if (own := built_from(file, module)) != version:
        fault = f"{name} {version} is asked for, {file} is {own or 'of another module'}"
        remedy = f"name that version, or pin the other one in scripts/tools/{name}: go get -tool {module}/…@v{version}"
        raise UsageError(place, fault, remedy)
    return Program(name, version, file)


def packed(short: str, version: str, module: str) -> Program | None:
    """The program that an image of that short name is nothing but, brought as above; None where it is no program of the lab's own.

    `module`: the Go module of which it is built, if it is.
    """
    if f"{short}-{version}" in _pinned():
        return program(f"image {short}", short, version)
    return built(f"image {short}", short, module, version) if module else None


def unpacked(place: str, name: str, packages: Sequence[str], file: str) -> Path:
    """The folder into which Debian packages were unpacked, `file` in it; unpacked unless it is there. UsageError where that cannot be done."""
    folder = CACHE / name
    if not (folder / file).exists() and (run_outside("unpack", [name, *packages]) or not (folder / file).exists()):
        asked = f"scripts/unpack {name} {' '.join(packages)}"
        remedy = f"{asked}, where apt has its lists and reaches Debian's mirror; or install it"
        raise UsageError(place, f"{name} is not on PATH, and cannot be unpacked (see above)", remedy)
    return folder


@dataclass(frozen=True, slots=True)
class Packaged:
    """A program of Debian's: its name there, the file, the folder of its modules, and the libraries that this machine lacks."""

    name: str
    program: Path
    modules: Path
    libraries: tuple[Path, ...] = ()

    @property
    def inside(self) -> str:
        """Return where a container finds it."""
        return f"{INSIDE}/{self.name}"

    def files(self, loaded: Iterable[str]) -> dict[str, Path]:
        """Return what a container is given of it with these modules: the path there → the file."""
        modules = {f"{MODULES}/mod_{name}.so": self.modules / f"mod_{name}.so" for name in loaded}
        libraries = {f"{LIBRARIES}/{file.name}": file.resolve() for file in self.libraries}
        return {self.inside: self.program, **modules, **libraries}


def packaged(place: str, program: str, package: str, modules: str) -> Packaged:
    """A program of Debian's, on PATH or unpacked. `modules`: their folder below /usr/lib. UsageError."""
    if installed := shutil.which(program):
        return Packaged(program, Path(installed).resolve(), Path("/usr/lib") / modules)
    root = unpacked(place, program, [package], f"usr/sbin/{program}")
    libraries = sorted(root.glob("usr/lib/*-linux-gnu/*.so.*"))
    return Packaged(program, root / "usr/sbin" / program, root / "usr/lib" / modules, tuple(libraries))


@cache
def version_of(program: str | Path, form: str, libraries: tuple[Path, ...] = ()) -> str:
    """What a program's `-v` prints that this regular expression finds; `unknown` where it finds nothing, empty where there is no such program."""
    folders = ":".join(sorted({str(file.parent) for file in libraries}))
    env = {**os.environ, "LD_LIBRARY_PATH": folders} if folders else None
    try:
        done = subprocess.run([program, "-v"], env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    told = re.search(form, done.stdout + done.stderr)
    return told[1] if told else "unknown"


def found(name: str) -> Path | None:
    """A program that is built: ours, else what is on PATH."""
    ours = BUILT / name
    path = str(ours) if ours.exists() else shutil.which(name)
    return Path(path).resolve() if path else None


def built_from(file: Path, module: str) -> str:
    """The version of a module that a Go program says it was built from, as `go version -m` reads it; empty = of none."""
    return _built_from(file, file.stat().st_mtime_ns, module)


@cache
def _built_from(file: Path, _: int, module: str) -> str:
    mark = f"\t{module}\tv".encode()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(mark) + len(mark)
        told = re.match(rb"[\w.-]+", content[start : start + 40]) if start >= len(mark) else None
    return told[0].decode() if told else ""


@cache
def _executable(folder: Path, name: str) -> Path:
    """The program itself: a wheel has scripts of its name, too."""
    for path in sorted(folder.rglob(name)):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    return path
    raise UsageError(str(folder), f"there is no program {name} in it", "remove it: scripts/proxies fetches it again")


@cache
def _pinned() -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [name.removeprefix(_GROUP) for name in document["dependency-groups"] if name.startswith(_GROUP)]


def files(system: str, image: str) -> Files:
    """The root of a controller. `image`: its short name in manifests/images. UsageError when it is not there."""
    given = json.loads(os.environ.get(ROOTS, "{}"))
    if image in given:
        reference, folder = given[image]
        return Files(Path(folder), f"the files of {reference}")
    folder = MADE / system / "root"
    if not folder.is_dir():
        raise UsageError(f"target apiserver: {system}", "its files are not there", f"scripts/controllers {system}")
    return Files(folder, "; ".join(readable(folder / ABOUT).splitlines()))


def run_outside(script: str, argv: Sequence[str]) -> int:
    """Run one of the project's scripts, which wants the network and talks on stderr itself, and return its exit status.

    It runs outside the lab's namespaces (`lab.targets.local.sandbox.namespaces`). ConnectionError when nobody is outside any more.
    """
    with _one_at_a_time:
        if OUTSIDE not in os.environ:
            return subprocess.run([SCRIPTS / script, *argv], stdin=subprocess.DEVNULL, check=False).returncode
        with socket.socket(fileno=os.dup(int(os.environ[OUTSIDE]))) as channel:
            channel.sendall(json.dumps([script, *argv]).encode() + b"\n")
            answer = channel.recv(16)
    if not answer:
        raise ConnectionError("the lab's outer process is gone")
    return int(answer)
