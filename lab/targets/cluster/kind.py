"""The lab's kind cluster: its configuration, its nodes, a kubeconfig file of its own. Never touches ~/.kube/config.

The cluster remembers what it was made from as a label of its nodes. Refuses to change a cluster that is there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import yaml

from lab.base.errors import LabError, UsageError
from lab.model.variants.kustomize import read_yaml
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster import docker
from lab.targets.cluster.api import Api
from lab.targets.cluster.images import Images

CONFIG = Path(__file__).parents[1] / "provision" / "kind.yaml"
CACHE = Path(__file__).parents[3] / ".cache" / "kind"
SETTING = "LAB_KIND_NAME"
MADE_FROM = "lab/made-from"
"""Node label: what configuration the cluster was made from."""
CREATE_S = 600.0
"""With a node image that has yet to be pulled (1 GB); 20 s with one that is there."""
READY = "180s"
DELETE_S = 120.0
NETWORK = "kind"
ROLES = ("proxy", "backend")
"""What gets a node of its own beside the generator, the first of them first."""
_OWNED = "io.x-k8s.kind.cluster"
"""kind's own label of its nodes' containers."""


def name() -> str:
    """What LAB_KIND_NAME says, else the file's."""
    return os.environ.get(SETTING) or str(_file()["name"])


def kubeconfig() -> Path:
    """Of this cluster alone; there after `just up kind`."""
    return CACHE / f"{name()}.kubeconfig"


def nodes() -> dict[str, str]:
    """Container → state (`running`, `exited` …) of this cluster's nodes."""
    return dict(line.split(maxsplit=1) for line in sorted(_containers("--all", "--format", "{{.Names}} {{.State}}")))


def container_ids() -> list[str]:
    """Ids of this cluster's nodes' containers, in full."""
    return _containers("--no-trunc", "--quiet")


def _containers(*options: str) -> list[str]:
    argv = ["docker", "ps", "--filter", f"label={_OWNED}={name()}", *options]
    return docker.output(argv, 30.0, "Docker", "`just doctor` looks at it").splitlines()


def config(images: Images, workers: int) -> dict[str, Any]:
    """The file with its images resolved, its name, and so many workers.

    The first is the generator's alone, the next are marked for `ROLES`, the control plane's for what is left of these: two
    workers give every role a node of its own, one leaves proxy and backend beside the control plane.
    """
    made = _file()
    image = images.named(made["nodes"][0]["image"])
    (control,) = made["nodes"]
    added: list[dict[str, Any]] = [{"role": "worker"} for _ in range(workers)]
    for node, role in zip(added, ("generator", *ROLES), strict=False):
        node["labels"] = {ROLE_LABEL: role}
    if workers:
        taint = {"key": ROLE_LABEL, "value": "generator", "effect": "NoSchedule"}
        added[0]["kubeadmConfigPatches"] = [_patch("JoinConfiguration", [taint])]
    left = ROLES[max(0, workers - 1) :]
    if workers and left:  # the taint that a control plane has beside workers would keep everything off it
        control["kubeadmConfigPatches"] = [_patch("InitConfiguration", [])]
    if len(left) == 1:
        control["labels"] = {ROLE_LABEL: left[0]}
    made["nodes"] = [control, *added]
    digest = hashlib.sha256(json.dumps([made, image], sort_keys=True).encode()).hexdigest()[:12]
    for node in made["nodes"]:
        node["image"] = image
        node["labels"] = {**node.get("labels", {}), MADE_FROM: digest}
    return {**made, "name": name()}


def made_from(config: Mapping[str, Any]) -> str:
    return config["nodes"][0]["labels"][MADE_FROM]


def connect() -> Api:
    """Its API server, by the context that kind writes."""
    return Api(f"kind-{name()}", kubeconfig())


def create(config: Mapping[str, Any]) -> None:
    """Until its control plane is ready. UsageError with kind's own words, and nothing left of it, when it does not get so far."""
    try:
        text = yaml.safe_dump(dict(config))
        done = _kind("create", "cluster", "--config", "-", "--wait", READY, limit_s=CREATE_S, stdin=text)
        if done.returncode:
            remedy = (
                f"nothing is left of it; `kind create cluster --retain --name {name()}` would keep the nodes to look at"
            )
            if "pull" in done.stderr:
                image = config["nodes"][0]["image"]
                line = "LAB_IMAGES=<file> with a line `kind-node: …` chooses another"
                remedy = f"no registry has {image} for this machine: {line}"
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
            told = dict.fromkeys(line.removeprefix("ERROR: ") for line in (*errors[:1], docker.last_words(done)))
            raise UsageError(f"kind cluster {name()}", ": ".join(told), remedy)
    except BaseException:
        with suppress(LabError):  # the first fault is the one to tell
            delete()
        raise


def export() -> None:
    """Write its kubeconfig anew."""
    done = _kind("export", "kubeconfig", limit_s=60.0)
    if done.returncode:
        remedy = "`just down kind` removes it; then `just up kind`"
        raise UsageError(f"kind cluster {name()}", docker.last_words(done), remedy)


def delete() -> None:
    """The cluster, its kubeconfig, and Docker's network `kind` once nothing is on it."""
    done = _kind("delete", "cluster", limit_s=DELETE_S)
    left = nodes()
    if done.returncode or left:
        fault = f"not removed: {docker.last_words(done)}"
        raise UsageError(f"kind cluster {name()}", fault, f"docker rm --force --volumes {' '.join(left)}")
    for path in (kubeconfig(), kubeconfig().with_name(f"{kubeconfig().name}.lock")):
        path.unlink(missing_ok=True)
    used = docker.run(["docker", "ps", "--all", "--quiet", "--filter", f"network={NETWORK}"], 30.0)
    if used.returncode == 0 and not used.stdout.strip():
        docker.run(["docker", "network", "rm", NETWORK], 30.0)  # kind makes it anew; another lab may be doing so now


def _file() -> dict[str, Any]:
    return read_yaml(CONFIG, str(CONFIG))


def _patch(kind: str, taints: list[dict[str, str]]) -> str:
    return yaml.safe_dump({"kind": kind, "nodeRegistration": {"taints": taints}})


def _kind(verb: str, what: str, *options: str, limit_s: float, stdin: str = "") -> CompletedProcess[str]:
    """By Docker, even where podman is there as well."""
    argv = ["kind", verb, what, "--name", name(), "--kubeconfig", str(kubeconfig()), *options]
    return docker.run(argv, limit_s, stdin, {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": "docker"})
