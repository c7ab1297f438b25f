"""Functions for the Docker engine on this machine, its images, and the images on the nodes of a kind cluster.

An image with a tag is copied from the local engine to the nodes, if the engine has the image. Any other image is pulled by the
nodes from its registry, and so is an image that is pinned by its digest. A copied image has no digest, so a manifest that names
a digest would not find it.

The module also has the functions by which the lab runs programs such as docker, kind and kubectl. They download a missing
program, run it with a time limit, and report a failure as an error with place, fault and remedy.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.base.errors import UsageError, refuse_if

INFO_S = 10.0
DISK_BYTES = 6 * 2**30
"""The disk space for a cluster: a node image is 1 GB packed and 3 unpacked, pods' images and logs take the rest."""
REMEDY = "install Docker and start it (systemctl start docker), or point DOCKER_HOST at an engine"
DENIED = "add yourself to its group (sudo usermod -aG docker $USER, then log in again), or run the lab as root"
ROOT = Path(__file__).parents[3]


def bring_tool(tool: str) -> None:
    """Make sure that a program is on PATH; if it is missing, the script scripts/bring downloads it.

    The script also runs if the program on PATH is a copy that it downloaded earlier, to bring that up to date. It
    reports a download on stderr.

    Raises:
        UsageError: The program cannot be downloaded, or it is not on PATH after the download.

    """
    path = shutil.which(tool)
    if path is not None and not Path(path).parent.resolve().is_relative_to((ROOT / ".cache").resolve()):
        return  # nix's, or the user's own
    brought = subprocess.run([ROOT / "scripts" / "bring", tool], check=False).returncode == 0
    lost = "was brought and is not on PATH: the lab was not started by scripts/shell"
    remedy = f"`scripts/shell scripts/bring {tool}` says why; nix has it, and one of your own on PATH will do"
    refuse_if(shutil.which(tool) is None, tool, lost if brought else "is not on PATH", remedy)


def run_program(
    argv: Sequence[str], timeout_s: float, stdin: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program, and return its output and exit status even if it fails.

    Args:
        argv: The command.
        timeout_s: The seconds that the program may take.
        stdin: The text for its standard input.
        env: Its environment; None = that of this process.

    Raises:
        UsageError: The program cannot be started, or does not end in time.

    """
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


def run_for_output(argv: Sequence[str], timeout_s: float, place: str, remedy: str) -> str:
    """Run a program that is expected to succeed, and return its stdout.

    Args:
        argv: The command.
        timeout_s: The seconds that the program may take.
        place: The `place` of the UsageError that is raised if the program fails.
        remedy: The `remedy` of that error.

    Raises:
        UsageError: The program fails (the error contains the last line of its output), cannot be started, or takes too
            long.

    """
    done = run_program(argv, timeout_s)
    refuse_if(done.returncode, place, find_complaint(done), remedy)
    return done.stdout


def find_complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a program's output that is not empty, because programs print their error there.

    If there is no output, the result is `exit status N`.
    """
    return find_last_line(f"{done.stdout}\n{done.stderr}") or f"exit status {done.returncode}"


def find_last_line(text: str) -> str:
    """Return the last line of a text that is not empty, without surrounding blanks; empty if there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


@dataclass(frozen=True, slots=True)
class Engine:
    """The Docker engine that this user can use.

    Attributes:
        version: The engine's version.
        root: The folder where the engine keeps images and containers. It may be on another machine (with Docker
            Desktop or DOCKER_HOST).

    """

    version: str
    root: Path


def find_engine() -> Engine:
    """Request the version and the data folder of the Docker engine, and return both.

    Raises:
        UsageError: No engine answers, or this user may not use it.

    """
    try:
        done = run_program(["docker", "info", "--format", "{{json .}}"], INFO_S)
    except UsageError as error:
        raise UsageError("Docker", f"{error.place}: {error.fault}", REMEDY) from None
    try:
        info = json.loads(done.stdout)
    except ValueError:
        info = {}
    if not info.get("ServerVersion"):
        fault = next(iter(info.get("ServerErrors") or []), find_complaint(done))
        raise UsageError("Docker", fault, DENIED if "permission denied" in fault.lower() else REMEDY)
    return Engine(info["ServerVersion"], Path(info["DockerRootDir"]))


def free_bytes(engine: Engine) -> int | None:
    """Return the free disk space in the engine's data folder in bytes; None if the folder is not on this machine."""
    try:
        return shutil.disk_usage(engine.root).free
    except OSError:
        return None


def check_disk(engine: Engine) -> None:
    """Raise UsageError if the disk with the engine's data folder has less free space than a cluster needs (`DISK_BYTES`)."""
    free = free_bytes(engine)
    if free is not None and free < DISK_BYTES:
        raise UsageError(
            str(engine.root),
            f"{free / 2**30:.1f} GB free where Docker keeps its data, a cluster takes up to {DISK_BYTES >> 30}",
            "free some: `docker system df` shows what Docker has, `docker system prune` removes what is unused",
        )


def find_image_id(reference: str) -> str | None:
    """Return the ID of the image that the Docker engine has under a name; None if it has none, or if no engine answers.

    Raises:
        UsageError: The program docker cannot be started, or does not end in time.

    """
    done = run_program(["docker", "image", "inspect", "--format", "{{.Id}}", reference], INFO_S)
    return done.stdout.strip() if done.returncode == 0 else None


def ensure_image(
    cluster: str, nodes: Iterable[str], short: str, reference: str
) -> Literal["there", "loaded", "pulled"]:
    """Make sure that every node of a kind cluster has an image; load or pull it if necessary.

    Args:
        cluster: The name of the kind cluster.
        nodes: The names of the cluster's nodes.
        short: The image's short name, for messages.
        reference: The reference of the image.

    Returns:
        `there` if all nodes had the image already, `loaded` if it was copied from the local Docker engine, `pulled` if
        the nodes pulled it from its registry.

    Raises:
        UsageError: The image can be neither loaded nor pulled.

    """
    image_id = None if "@" in reference else find_image_id(reference)
    lacking = [node for node in nodes if not _has_image(node, reference, image_id)]
    if not lacking:
        return "there"
    place = f"image {short}"
    if image_id:
        argv = ["kind", "load", "docker-image", reference, "--name", cluster, "--nodes", ",".join(lacking)]
        run_for_output(argv, 300.0, place, f"`docker image inspect {reference}` here; then `just up kind` again")
        return "loaded"
    remedy = f"LAB_IMAGES=<file> with a line `{short}: …` names another, of a registry or held by Docker here; then `just up kind` again"
    for node in lacking:
        done = run_program(["docker", "exec", node, "crictl", "pull", reference], 600.0)
        refuse_if(done.returncode, place, f"{reference}: {find_complaint(done)}", remedy)
    return "pulled"


def expand_reference(reference: str) -> str:
    """Return an image reference in the full form in which a node's containerd lists the image.

    >>> expand_reference("lab/page:1"), expand_reference("debian"), expand_reference("quay.io/a/b:1@sha256:0f")
    ('docker.io/lab/page:1', 'docker.io/library/debian:latest', 'quay.io/a/b@sha256:0f')
    """
    name, separator, digest = reference.partition("@")
    head, slash, tail = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ({".", ":"} & set(head)) and head != "localhost":
        name = f"docker.io/{head}/{tail}"
    folder, slash, last = name.rpartition("/")
    if separator:
        return f"{folder}{slash}{last.partition(':')[0]}@{digest}"
    return name if ":" in last else f"{name}:latest"


def _has_image(node: str, reference: str, image_id: str | None) -> bool:
    """Return whether a node has an image.

    Args:
        node: The name of the node's container.
        reference: The reference of the image.
        image_id: The ID that the image must have; None accepts any.

    """
    argv = ["docker", "exec", node, "crictl", "images", "--output", "json"]
    listing = run_for_output(argv, 60.0, f"node {node}", "`just down kind` removes the cluster; then `just up kind`")
    full_name = expand_reference(reference)
    return any(
        full_name in {*image.get("repoTags", ()), *image.get("repoDigests", ())} and image_id in (None, image["id"])
        for image in json.loads(listing).get("images", [])
    )
