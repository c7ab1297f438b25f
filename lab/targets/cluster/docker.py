"""The Docker engine here, and images: which it holds, and which are on the nodes of a kind cluster that it runs. With it what all of other
people's programs (docker, kind, kubectl …) share: they are brought, run with a deadline, and fail as place, fault, remedy.

A tag that the local engine holds is loaded from it. What is pinned by digest is pulled on the nodes: an image loaded
under a tag has no digest, so a manifest that names one would not find it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.base.errors import UsageError

INFO_S = 10.0
DISK_BYTES = 6 * 2**30
"""A node image is 1 GB packed and 3 unpacked; the rest is what pods' images and logs take."""
REMEDY = "install Docker and start it (systemctl start docker), or point DOCKER_HOST at an engine"
DENIED = "add yourself to its group (sudo usermod -aG docker $USER, then log in again), or run the lab as root"
ROOT = Path(__file__).parents[3]


def bring(tool: str) -> None:
    """It is on PATH afterwards: UsageError where it is not and cannot be brought. What is brought is told on stderr, with its time."""
    found = shutil.which(tool)
    if found is not None and not Path(found).parent.resolve().is_relative_to((ROOT / ".cache").resolve()):
        return  # nix's, or the user's own
    brought = subprocess.run([ROOT / "scripts" / "bring", tool], check=False).returncode == 0
    if shutil.which(tool) is None:
        lost = "was brought and is not on PATH: the lab was not started by scripts/shell"
        remedy = f"`scripts/shell scripts/bring {tool}` says why; nix has it, and one of your own on PATH will do"
        raise UsageError(tool, lost if brought else "is not on PATH", remedy)


def run(
    argv: Sequence[str], timeout_s: float, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it said and its exit status, whatever that is. UsageError when it cannot be run or does not end in time."""
    try:
        return subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env=env,
            check=False,
        )
    except OSError as error:
        fault = "not on PATH" if isinstance(error, FileNotFoundError) else f"cannot be run: {error.strerror}"
        raise UsageError(argv[0], fault, "`just doctor` says how to get it") from None
    except subprocess.TimeoutExpired:
        fault = f"no answer in {timeout_s:.0f} s (`{' '.join(argv[:3])} …`)"
        raise UsageError(argv[0], fault, "try it by hand") from None


def output(argv: Sequence[str], timeout_s: float, place: str, remedy: str) -> str:
    """Its stdout. UsageError at `place` with its own last words when it fails."""
    done = run(argv, timeout_s)
    if done.returncode:
        raise UsageError(place, last_words(done), remedy)
    return done.stdout


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that says something, where programs put what went wrong."""
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"


@dataclass(frozen=True, slots=True)
class Engine:
    version: str
    root: Path
    """Where it keeps images and containers; may be another machine's (Docker Desktop, DOCKER_HOST)."""


def engine() -> Engine:
    """UsageError with the remedy when none answers, or not to this user."""
    try:
        done = run(["docker", "info", "--format", "{{json .}}"], INFO_S)
    except UsageError as error:
        raise UsageError("Docker", f"{error.place}: {error.fault}", REMEDY) from None
    try:
        info = json.loads(done.stdout)
    except ValueError:
        info = {}
    if not info.get("ServerVersion"):
        fault = next(iter(info.get("ServerErrors") or []), last_words(done))
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
        raise UsageError(
            str(engine.root),
            f"{free / 2**30:.1f} GB free where Docker keeps its data, a cluster takes up to {DISK_BYTES >> 30}",
            "free some: `docker system df` shows what Docker has, `docker system prune` removes what is unused",
        )


def held(reference: str) -> str | None:
    """The ID of an image that the engine holds under this name; None = it does not."""
    done = run(["docker", "image", "inspect", "--format", "{{.Id}}", reference], INFO_S)
    return done.stdout.strip() if done.returncode == 0 else None


def ensure(cluster: str, nodes: Iterable[str], short: str, reference: str) -> Literal["there", "loaded", "pulled"]:
    """See that every node has it, and say how it came there. UsageError when it is to be had from nowhere."""
    here = None if "@" in reference else held(reference)
    lacking = [node for node in nodes if not _has(node, reference, here)]
    if not lacking:
        return "there"
    place = f"image {short}"
    if here:
        argv = ["kind", "load", "docker-image", reference, "--name", cluster, "--nodes", ",".join(lacking)]
        output(argv, 300.0, place, f"`docker image inspect {reference}` here; then `just up kind` again")
        return "loaded"
    remedy = f"LAB_IMAGES=<file> with a line `{short}: …` names another, of a registry or held by Docker here; then `just up kind` again"
    for node in lacking:
        done = run(["docker", "exec", node, "crictl", "pull", reference], 600.0)
        if done.returncode:
            raise UsageError(place, f"{reference}: {last_words(done)}", remedy)
    return "pulled"


def full(reference: str) -> str:
    """As a node's containerd lists it.

    >>> full("lab/page:1"), full("debian"), full("quay.io/a/b:1@sha256:0f")
    ('docker.io/lab/page:1', 'docker.io/library/debian:latest', 'quay.io/a/b@sha256:0f')
    """
    name, at, digest = reference.partition("@")
    head, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ({".", ":"} & set(head)) and head != "localhost":
        name = f"docker.io/{head}/{rest}"
    folder, slash, last = name.rpartition("/")
    if at:
        return f"{folder}{slash}{last.partition(':')[0]}@{digest}"
    return name if ":" in last else f"{name}:latest"


def _has(node: str, reference: str, image_id: str | None) -> bool:
    """Under this name, and with the contents that Docker has here, if it has any."""
    argv = ["docker", "exec", node, "crictl", "images", "--output", "json"]
    said = output(argv, 60.0, f"node {node}", "`just down kind` removes the cluster; then `just up kind`")
    wanted = full(reference)
    return any(
        wanted in {*image.get("repoTags", ()), *image.get("repoDigests", ())} and image_id in (None, image["id"])
        for image in json.loads(said).get("images", [])
    )
