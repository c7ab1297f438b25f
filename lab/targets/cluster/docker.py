"""The Docker engine here, and images: which it holds, and which are on the nodes of a kind cluster that it runs.

A tag that the local engine holds is loaded from it. What is pinned by digest is pulled on the nodes: an image loaded
under a tag has no digest, so a manifest that names one would not find it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.base.errors import UsageError
from lab.targets.cluster import programs

INFO_S = 10.0
PULL_S = 600.0
LOAD_S = 300.0
LIST_S = 60.0
DISK_BYTES = 6 * 2**30
"""A node image is 1 GB packed and 3 unpacked; the rest is what pods' images and logs take."""
REMEDY = "install Docker and start it (systemctl start docker), or point DOCKER_HOST at an engine"
DENIED = "add yourself to its group (sudo usermod -aG docker $USER, then log in again), or run the lab as root"

Origin = Literal["there", "loaded", "pulled"]


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


def ensure(cluster: str, nodes: Iterable[str], short: str, reference: str) -> Origin:
    """See that every node has it, and say how it came there. UsageError when it is to be had from nowhere."""
    here = None if "@" in reference else held(reference)
    lacking = [node for node in nodes if not _has(node, reference, here)]
    if not lacking:
        return "there"
    place = f"image {short}"
    if here:
        argv = ["kind", "load", "docker-image", reference, "--name", cluster, "--nodes", ",".join(lacking)]
        programs.output(argv, LOAD_S, place, f"`docker image inspect {reference}` here; then `just up kind` again")
        return "loaded"
    remedy = f"LAB_IMAGES=<file> with a line `{short}: …` names another, of a registry or held by Docker here; then `just up kind` again"
    for node in lacking:
        done = programs.run(["docker", "exec", node, "crictl", "pull", reference], PULL_S)
        if done.returncode:
            raise UsageError(place, f"{reference}: {_why(programs.last_words(done))}", remedy)
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


def _why(said: str) -> str:
    """The message of a line that crictl logs, without the reference over and over again."""
    found = re.search(r'msg="((?:[^"\\]|\\.)*)"', said)
    message = (found[1] if found else said).replace('\\"', '"')
    return re.sub(
        r'^pulling image: failed to pull and unpack image "[^"]*": (failed to resolve reference "[^"]*": )?',
        "",
        message,
    )


def _has(node: str, reference: str, image_id: str | None) -> bool:
    """Under this name, and with the contents that Docker has here, if it has any."""
    argv = ["docker", "exec", node, "crictl", "images", "--output", "json"]
    said = programs.output(argv, LIST_S, f"node {node}", "`just down kind` removes the cluster; then `just up kind`")
    wanted = full(reference)
    return any(
        wanted in {*image.get("repoTags", ()), *image.get("repoDigests", ())} and image_id in (None, image["id"])
        for image in json.loads(said).get("images", [])
    )
