"""Proxies that no system's package has in the version that a manifest names: pinned wheels, fetched when a variant first runs one.

    docker.io/envoyproxy/envoy:v1.40.0   →   .cache/proxies/envoy-1.40.0, the group `proxy-envoy-1.40.0` of pyproject.toml

So a version is a knob: a component that patches the image. Refuses a version that is not pinned.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError, did_you_mean
from lab.targets.local import outside
from lab.targets.local.pods import Container

ROOT = Path(__file__).parents[3]
BROUGHT = ROOT / ".cache" / "proxies"
SCRIPT = "proxies"
INSIDE = "/srv/proxy"
"""Where a container finds its program."""
_GROUP = "proxy-"


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


def program(place: str, name: str, version: str) -> Program:
    """Fetched unless it is there. UsageError for one that is not pinned, or cannot be had."""
    known = _pinned()
    wanted = f"{name}-{version}"
    if wanted not in known:
        of_it = [item for item in known if item.startswith(f"{name}-")] or known
        fault = f"{name} {version} is not pinned here"
        remedy = (
            f"{did_you_mean(wanted, of_it)}; one more is a group `{_GROUP}{wanted}` in pyproject.toml and `uv lock`"
        )
        raise UsageError(place, fault, remedy)
    folder = BROUGHT / wanted
    if not folder.is_dir() and outside.run(SCRIPT, [wanted]):
        remedy = f"scripts/{SCRIPT} {wanted}, where there is a registry of Python packages"
        raise UsageError(place, f"{wanted} cannot be fetched (see above)", remedy)
    return Program(name, version, _executable(folder, name))


@cache
def _executable(folder: Path, name: str) -> Path:
    """The program itself: a wheel has scripts of its name, too."""
    for path in sorted(folder.rglob(name)):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    return path
    raise UsageError(str(folder), f"there is no program {name} in it", f"remove it: scripts/{SCRIPT} fetches it again")


@cache
def _pinned() -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [name.removeprefix(_GROUP) for name in document["dependency-groups"] if name.startswith(_GROUP)]
