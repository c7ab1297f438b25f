"""The Docker engine here: whether it answers, where it keeps its data, which images it holds."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import UsageError
from lab.targets.cluster import programs

INFO_S = 10.0
DISK_BYTES = 6 * 2**30
"""A node image is 1 GB packed and 3 unpacked; the rest is what pods' images and logs take."""
REMEDY = "install Docker and start it (systemctl start docker), or point DOCKER_HOST at an engine"
DENIED = "add yourself to its group (sudo usermod -aG docker $USER, then log in again), or run the lab as root"


@dataclass(frozen=True, slots=True)
class Engine:
    version: str
    root: Path
    """Where it keeps images and containers; may be another machine's (Docker Desktop, DOCKER_HOST)."""


def engine() -> Engine:
    """UsageError with the remedy when none answers, or not to this user."""
    try:
        done = programs.run(["docker", "info", "--format", "{{json .}}"], INFO_S)
    except UsageError as error:
        raise UsageError("Docker", f"{error.place}: {error.fault}", REMEDY) from None
    try:
        info = json.loads(done.stdout)
    except ValueError:
        info = {}
    if not info.get("ServerVersion"):
        fault = next(iter(info.get("ServerErrors") or []), programs.last_words(done))
        raise UsageError("Docker", fault, DENIED if "permission denied" in fault.lower() else REMEDY)
    return Engine(info["ServerVersion"], Path(info["DockerRootDir"]))


def free_bytes(engine: Engine) -> int | None:
    """Free space where it keeps its data; None where that is not this machine's."""
    try:
        return shutil.disk_usage(engine.root).free
    except OSError:
        return None


def check_disk(engine: Engine) -> None:
    """UsageError when there is not room for a cluster."""
    free = free_bytes(engine)
    if free is not None and free < DISK_BYTES:
        fault = f"{free / 2**30:.1f} GB free where Docker keeps its data, a cluster takes up to {DISK_BYTES >> 30}"
        raise UsageError(
            str(engine.root),
            fault,
            "free some: `docker system df` shows what Docker has, `docker system prune` removes what is unused",
        )


def held(reference: str) -> str | None:
    """The ID of an image that the engine holds under this name; None = it does not."""
    done = programs.run(["docker", "image", "inspect", "--format", "{{.Id}}", reference], INFO_S)
    return done.stdout.strip() if done.returncode == 0 else None
