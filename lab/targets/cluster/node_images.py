"""Images on the nodes of a kind cluster: which are there, loading one that Docker holds here, pulling one there.

A tag that the local engine holds is loaded from it. What is pinned by digest is pulled on the nodes: an image loaded
under a tag has no digest, so a manifest that names one would not find it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Literal

from lab.base.errors import UsageError
from lab.targets.cluster import docker, programs

PULL_S = 600.0
LOAD_S = 300.0
LIST_S = 60.0
Origin = Literal["there", "loaded", "pulled"]


def ensure(cluster: str, nodes: Iterable[str], short: str, reference: str) -> Origin:
    """See that every node has it, and say how it came there. UsageError when it is to be had from nowhere."""
    here = None if "@" in reference else docker.held(reference)
    lacking = [node for node in nodes if not _has(_listed(node), reference, here)]
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

    >>> full("lab/nginx:1"), full("debian"), full("quay.io/a/b:1@sha256:0f")
    ('docker.io/lab/nginx:1', 'docker.io/library/debian:latest', 'quay.io/a/b@sha256:0f')
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


def _listed(node: str) -> list[dict[str, Any]]:
    argv = ["docker", "exec", node, "crictl", "images", "--output", "json"]
    said = programs.output(argv, LIST_S, f"node {node}", "`just down kind` removes the cluster; then `just up kind`")
    return json.loads(said).get("images", [])


def _has(listed: Iterable[dict[str, Any]], reference: str, image_id: str | None) -> bool:
    """Under this name, and with the contents that Docker has here, if it has any."""
    wanted = full(reference)
    found = [image for image in listed if wanted in {*image.get("repoTags", ()), *image.get("repoDigests", ())}]
    return any(image_id in (None, image["id"]) for image in found)
