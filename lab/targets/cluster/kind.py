"""The lab's kind cluster (Kubernetes in Docker) on this machine: its configuration, its nodes, and the commands `up` and `down`.

`just up kind` creates the cluster and loads the variants' images into it; `just down kind` deletes the cluster. The cluster has
a separate kubeconfig file, so ~/.kube/config is never changed. A label of the nodes contains a hash of the configuration from
which the cluster was created. An existing cluster is never changed into one of another configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import yaml
from rich.console import Console

from lab.base.errors import LabError, LostError, UsageError, refuse_if
from lab.model.variants.kustomize import read_yaml
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.table import DEFINITIONS_OF
from lab.targets import prerequisites
from lab.targets.cluster import docker, images, inventory, pods, rollout
from lab.targets.cluster.api import Api, Object
from lab.targets.cluster.images import Images
from lab.targets.cluster.objects import ROLES
from lab.targets.cluster.steps import print_line, step

CONFIG = Path(__file__).parents[1] / "provision" / "kind.yaml"
CACHE = Path(__file__).parents[3] / ".cache" / "kind"
MADE_FROM = "lab/made-from"
"""The node label with the hash of the configuration that the cluster was made from."""
RECREATE_REMEDY = "`just down kind` removes it; then `just up kind`"


def cluster_name() -> str:
    """Return the name of the lab's kind cluster: the value of LAB_KIND_NAME, or else the name in the configuration file."""
    return os.environ.get("LAB_KIND_NAME") or str(_read_config()["name"])


def kubeconfig() -> Path:
    """Return the path of a kubeconfig that contains the lab's kind cluster only; `just up kind` writes the file."""
    return CACHE / f"{cluster_name()}.kubeconfig"


def list_nodes() -> dict[str, str]:
    """Return node → state (`running`, `exited` …) for the kind cluster; a node's name is that of its container."""
    return dict(
        line.split(maxsplit=1) for line in sorted(_list_containers("--all", "--format", "{{.Names}} {{.State}}"))
    )


def container_ids() -> list[str]:
    """Return the full ids of the containers in which the kind cluster's nodes run."""
    return _list_containers("--no-trunc", "--quiet")


def _list_containers(*options: str) -> list[str]:
    argv = ["docker", "ps", "--filter", f"label=io.x-k8s.kind.cluster={cluster_name()}", *options]
    return docker.run_for_output(argv, 30.0, "Docker", "`just doctor` looks at it").splitlines()


def build_config(images: Images, workers: int) -> dict[str, Any]:
    """Return the configuration from which kind creates the cluster.

    With 0 workers, everything runs on the control-plane node. With more, labels keep roles apart:

    - The first worker is for the load generator alone.
    - The second worker, if any, is for the proxy.
    - The third worker, if any, is for the backend.

    A role without a worker stays on the control-plane node.

    Args:
        images: The images, for the nodes' own image.
        workers: The number of worker nodes in addition to the control-plane node.

    """
    cluster = _read_config()
    (control,) = cluster["nodes"]
    image = images.named(control["image"])
    added: list[dict[str, Any]] = [{"role": "worker"} for _ in range(workers)]
    for node, role in zip(added, ("generator", *ROLES), strict=False):
        node["labels"] = {ROLE_LABEL: role}
    if workers:
        taint = {"key": ROLE_LABEL, "value": "generator", "effect": "NoSchedule"}
        added[0]["kubeadmConfigPatches"] = [_build_patch("JoinConfiguration", [taint])]
    left = ROLES[max(0, workers - 1) :]
    if workers and left:  # next to workers a control plane has a taint, which would keep everything off it
        control["kubeadmConfigPatches"] = [_build_patch("InitConfiguration", [])]
    if len(left) == 1:
        control["labels"] = {ROLE_LABEL: left[0]}
    cluster["nodes"] = [control, *added]
    digest = hashlib.sha256(json.dumps([cluster, image], sort_keys=True).encode()).hexdigest()[:12]
    for node in cluster["nodes"]:
        node["image"] = image
        node["labels"] = {**node.get("labels", {}), MADE_FROM: digest}
    return {**cluster, "name": cluster_name()}


def connect() -> Api:
    """Return the client for the API server of the lab's kind cluster; nothing is sent yet."""
    return Api(f"kind-{cluster_name()}", kubeconfig())


def create(config: Mapping[str, Any]) -> None:
    """Create the kind cluster from a configuration, and wait until its control plane is ready.

    If this fails, everything that was created is deleted again.

    Raises:
        UsageError: The creation failed; the error contains kind's message.

    """
    try:
        text = yaml.safe_dump(dict(config))
        # 20 s with a node image that is already here; one of 1 GB may have to be pulled.
        done = _run_kind("create", "cluster", "--config", "-", "--wait", "180s", limit_s=600.0, stdin=text)
        if done.returncode:
            advice = f"`kind create cluster --retain --name {cluster_name()}` would keep the nodes to look at"
            remedy = f"nothing is left of it; {advice}"
            if "pull" in done.stderr:
                alternative = "LAB_IMAGES=<file> with a line `kind-node: …` chooses another"
                remedy = f"no registry has {config['nodes'][0]['image']} for this machine: {alternative}"
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
            messages = dict.fromkeys(
                line.removeprefix("ERROR: ") for line in (*errors[:1], docker.find_complaint(done))
            )
            raise UsageError(f"kind cluster {cluster_name()}", ": ".join(messages), remedy)
    except BaseException:
        with suppress(LabError):  # the first fault is the one to report
            delete()
        raise


def delete() -> None:
    """Delete the kind cluster and its kubeconfig, and also Docker's network `kind` if no container uses it any more.

    Raises:
        UsageError: The cluster was not removed.

    """
    done = _run_kind("delete", "cluster", limit_s=120.0)
    left = list_nodes()
    refuse_if(
        done.returncode or left,
        f"kind cluster {cluster_name()}",
        f"not removed: {docker.find_complaint(done)}",
        f"docker rm --force --volumes {' '.join(left)}",
    )
    for path in (kubeconfig(), kubeconfig().with_name(f"{kubeconfig().name}.lock")):
        path.unlink(missing_ok=True)
    users = docker.run_program(["docker", "ps", "--all", "--quiet", "--filter", "network=kind"], 30.0)
    if users.returncode == 0 and not users.stdout.strip():
        docker.run_program(
            ["docker", "network", "rm", "kind"], 30.0
        )  # kind makes it anew; another lab may be doing so now


def up(workers: int, console: Console) -> None:
    """Create the kind cluster if there is none, check that it is ready, and load what the variants need into it.

    These are the images of the variants, and the kinds of objects (such as Route) that Kubernetes does not have. If a new
    cluster does not become ready, it is deleted again.

    Args:
        workers: The number of worker nodes in addition to the control-plane node.
        console: The console for progress.

    Raises:
        UsageError: A prerequisite is missing, or a cluster of this name was made from another configuration.

    """
    chosen = images.load_images()
    planned = build_config(chosen, workers)
    with step(console, "Docker, disk, kind, kubectl") as remarks:
        existing = _check_prerequisites(remarks)
    title = f"cluster {cluster_name()}"
    if existing:
        with step(console, f"{title} is there already"):
            api = _connect_existing(planned["nodes"][0]["labels"][MADE_FROM])
    else:
        with step(console, title) as remarks:
            create(planned)
            remarks.append(f"{len(planned['nodes'])} of {chosen.named('kind-node')}")
            api = connect()
    try:
        with step(console, "nodes and kube-system are ready") as remarks:
            _await_ready(api, RECREATE_REMEDY if existing else "nothing is left of it")
            remarks.append(f"Kubernetes {api.version()}")
    except (LabError, KeyboardInterrupt):
        if not existing:
            delete()
        raise
    _bring_images(chosen, console)
    with step(console, f"kinds of {DEFINITIONS_OF}") as remarks:
        remarks.append(", ".join(inventory.ensure_kinds(api, cluster_name())) or "there")
    print_line(console, f"{title} is ready: just bench keepalive --target kind; its kubeconfig: {kubeconfig()}")


def down(console: Console) -> None:
    """Delete the kind cluster.

    If there is none, the kubeconfig and the network are deleted, which an interrupted `just up kind` may have left.
    """
    docker.find_engine()
    if not list_nodes():
        delete()  # an interrupted lab may have left a kubeconfig and a network
        print_line(console, f"there is no cluster {cluster_name()}")
        return
    with step(console, f"cluster {cluster_name()} removed"):
        delete()


def _read_config() -> dict[str, Any]:
    return read_yaml(CONFIG, str(CONFIG))


def _build_patch(kind: str, taints: list[dict[str, str]]) -> str:
    return yaml.safe_dump({"kind": kind, "nodeRegistration": {"taints": taints}})


def _run_kind(verb: str, noun: str, *options: str, limit_s: float, stdin: str = "") -> CompletedProcess[str]:
    """Run `kind VERB NOUN` for this cluster, and return its output and exit status.

    kind is made to use Docker, even if podman is installed as well.

    Args:
        verb: The verb, such as `create`.
        noun: The noun, such as `cluster`.
        options: Further arguments.
        limit_s: The seconds that the command may take.
        stdin: The text for its standard input.

    """
    argv = ["kind", verb, noun, "--name", cluster_name(), "--kubeconfig", str(kubeconfig()), *options]
    return docker.run_program(argv, limit_s, stdin, {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": "docker"})


def _check_prerequisites(remarks: list[str]) -> dict[str, str]:
    """Check Docker, disk space, kind and kubectl, and return node → state of the cluster's existing nodes.

    Args:
        remarks: A list for the progress line, to which the programs' versions are appended.

    Raises:
        UsageError: A prerequisite is missing, or a node of the existing cluster does not run.

    """
    engine = docker.find_engine()
    remarks.append(f"engine {engine.version}")
    for tool in prerequisites.TOOLS:
        if tool.name in {"kind", "kubectl"}:
            docker.bring_tool(tool.name)
            finding = prerequisites.check_tool(tool)
            refuse_if(not finding.ok, tool.name, finding.found, finding.remedy)
            remarks.append(f"{tool.name} {finding.found}")
    existing = list_nodes()
    if not existing:
        docker.check_disk(engine)
    stopped = [node for node, state in existing.items() if state != "running"]
    if stopped:
        raise UsageError(
            f"kind cluster {cluster_name()}", f"{', '.join(stopped)} is {existing[stopped[0]]}", RECREATE_REMEDY
        )
    return existing


def _connect_existing(digest: str) -> Api:
    """Return the client for the existing kind cluster, and check that it was made from the wanted configuration.

    Args:
        digest: The hash of the wanted configuration, which is compared with a label of the nodes.

    Raises:
        UsageError: The cluster does not answer, or was made from another configuration.

    """
    place = f"kind cluster {cluster_name()}"
    exported = _run_kind("export", "kubeconfig", limit_s=60.0)
    refuse_if(exported.returncode, place, docker.find_complaint(exported), RECREATE_REMEDY)
    try:
        api = connect()
        labels = [node["metadata"]["labels"] for node in api.list("v1", "Node")]
    except LostError as error:
        raise UsageError(place, f"is there and does not answer: {error.fault}", RECREATE_REMEDY) from None
    refuse_if(
        {label.get(MADE_FROM) for label in labels} != {digest},
        place,
        f"is there and was made from another configuration (it has {len(labels) - 1 or 'no'} workers)",
        f"{RECREATE_REMEDY}; or give it its own --workers and LAB_IMAGES; or set LAB_KIND_NAME to make another cluster",
    )
    return api


def _await_ready(api: Api, remedy: str) -> None:
    """Wait until the cluster's nodes and the pods in the namespace kube-system are ready.

    Args:
        api: The cluster.
        remedy: The beginning of the error's remedy.

    Raises:
        UsageError: A node or pod is not ready after 120 s; the error contains its state and its events.

    """
    deadline = time.monotonic() + 120.0
    while unready := [
        obj
        for obj in (*api.list("v1", "Node"), *api.list("v1", "Pod", "kube-system"))
        if not (pods.ready(obj) or obj["status"].get("phase") == "Succeeded")
    ]:
        if time.monotonic() > deadline:
            explanation = [line for obj in unready for line in pods.explain(api, obj)]
            fault = f"not ready: {'; '.join(map(_describe_unready, unready))}"
            raise UsageError(api.place, fault, "\n  ".join([remedy, *explanation]))
        time.sleep(1.0)


def _describe_unready(obj: Object) -> str:
    """Return a text about why a node or pod is not ready, after its kind and name."""
    fault = rollout.find_pod_fault(obj) if obj["kind"] == "Pod" else None
    condition = pods.conditions(obj).get("Ready", {})
    message = fault.words if fault else pods.join_reason(condition.get("reason"), condition.get("message"))
    return f"{obj['kind'].lower()} {obj['metadata']['name']}: {message}"


def _bring_images(chosen: Images, console: Console) -> None:
    """Bring the images of all variants, and that of the generators, to every node of the cluster.

    An image that only some variants need may be unavailable. This is reported by a line on the console.
    """
    needs, node_names = images.list_variant_images(), list(list_nodes())
    for short in (*(short for short, only_for in needs.items() if only_for is None), "loadgen"):
        _bring_image(chosen, short, node_names, console)
    replaced = set(chosen.chosen) - {"loadgen"}
    for short, only_for in needs.items():
        note = f"  [yellow]–[/] image {short} is not there, which only {only_for} need:"
        if only_for is not None and replaced and short not in replaced:
            # A user who names images has no use for the registry of all others.
            print_line(console, f"{note} {images.SETTING} does not name it")
        elif only_for is not None:
            try:
                _bring_image(chosen, short, node_names, console)
            except UsageError as error:
                print_line(console, f"{note} {chosen.named(short)}: {error.fault}")


def _bring_image(chosen: Images, short: str, node_names: Sequence[str], console: Console) -> None:
    """Bring one image to every node of the cluster.

    The generators' image is in no registry. It is built first, if Docker does not have it and its tag is that of this
    checkout.

    Args:
        chosen: The references of all images.
        short: The image's short name.
        node_names: The names of the nodes.
        console: The console for progress.

    """
    reference, base = chosen.named(short), chosen.named("debian")
    with step(console, f"image {short}") as remarks:
        buildable = short == "loadgen" and reference.endswith(f":{images.loadgen_tag(base)}")
        if buildable and docker.find_image_id(reference) is None:
            images.build_loadgen(reference, base)
            remarks.append("built")
        remarks.extend([reference, docker.ensure_image(cluster_name(), node_names, short, reference)])
