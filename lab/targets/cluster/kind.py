"""The lab's kind cluster on this machine's Docker engine: its configuration, its nodes, a kubeconfig file of its own, and what `just up kind`
and `just down kind` do, with the variants' images. Never touches ~/.kube/config.

The cluster remembers what it was made from as a label of its nodes. Refuses to change a cluster that is there.
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

from lab.base.errors import LabError, LostError, UsageError
from lab.model.variants.kustomize import read_yaml
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.table import DEFINITIONS_OF
from lab.targets import prerequisites
from lab.targets.cluster import docker, images, inventory, pods, rollout
from lab.targets.cluster.api import Api
from lab.targets.cluster.images import Images
from lab.targets.cluster.objects import ROLES
from lab.targets.cluster.steps import say, step

CONFIG = Path(__file__).parents[1] / "provision" / "kind.yaml"
CACHE = Path(__file__).parents[3] / ".cache" / "kind"
MADE_FROM = "lab/made-from"
"""Node label: what configuration the cluster was made from."""
AGAIN = "`just down kind` removes it; then `just up kind`"


def name() -> str:
    """What LAB_KIND_NAME says, else the file's."""
    return os.environ.get("LAB_KIND_NAME") or str(_file()["name"])


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
    argv = ["docker", "ps", "--filter", f"label=io.x-k8s.kind.cluster={name()}", *options]
    return docker.output(argv, 30.0, "Docker", "`just doctor` looks at it").splitlines()


def config(images: Images, workers: int) -> dict[str, Any]:
    """The file with its images resolved, its name, and so many workers.

    The first is the generator's alone, the next are marked for `ROLES`, the control plane's for what is left of these: two
    workers give every role a node of its own, one leaves proxy and backend beside the control plane.
    """
    made = _file()
    (control,) = made["nodes"]
    image = images.named(control["image"])
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


def connect() -> Api:
    """Its API server, by the context that kind writes."""
    return Api(f"kind-{name()}", kubeconfig())


def create(config: Mapping[str, Any]) -> None:
    """Until its control plane is ready. UsageError with kind's own words, and nothing left of it, when it does not get so far."""
    try:
        text = yaml.safe_dump(dict(config))
        # 20 s with a node image that is there; one of 1 GB may have to be pulled.
        done = _kind("create", "cluster", "--config", "-", "--wait", "180s", limit_s=600.0, stdin=text)
        if done.returncode:
            kept = f"`kind create cluster --retain --name {name()}` would keep the nodes to look at"
            remedy = f"nothing is left of it; {kept}"
            if "pull" in done.stderr:
                other = "LAB_IMAGES=<file> with a line `kind-node: …` chooses another"
                remedy = f"no registry has {config['nodes'][0]['image']} for this machine: {other}"
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
            told = dict.fromkeys(line.removeprefix("ERROR: ") for line in (*errors[:1], docker.last_words(done)))
            raise UsageError(f"kind cluster {name()}", ": ".join(told), remedy)
    except BaseException:
        with suppress(LabError):  # the first fault is the one to tell
            delete()
        raise


def delete() -> None:
    """The cluster, its kubeconfig, and Docker's network `kind` once nothing is on it."""
    done = _kind("delete", "cluster", limit_s=120.0)
    left = nodes()
    if done.returncode or left:
        fault = f"not removed: {docker.last_words(done)}"
        raise UsageError(f"kind cluster {name()}", fault, f"docker rm --force --volumes {' '.join(left)}")
    for path in (kubeconfig(), kubeconfig().with_name(f"{kubeconfig().name}.lock")):
        path.unlink(missing_ok=True)
    used = docker.run(["docker", "ps", "--all", "--quiet", "--filter", "network=kind"], 30.0)
    if used.returncode == 0 and not used.stdout.strip():
        docker.run(["docker", "network", "rm", "kind"], 30.0)  # kind makes it anew; another lab may be doing so now


def up(workers: int, talk: Console) -> None:
    chosen = images.load()
    wanted = config(chosen, workers)
    with step(talk, "Docker, disk, kind, kubectl") as remarks:
        there = _check(remarks)
    title = f"cluster {name()}"
    if there:
        with step(talk, f"{title} is there already"):
            api = _healthy(wanted["nodes"][0]["labels"][MADE_FROM])
    else:
        with step(talk, title) as remarks:
            create(wanted)
            remarks.append(f"{len(wanted['nodes'])} of {chosen.named('kind-node')}")
            api = connect()
    try:
        with step(talk, "nodes and kube-system are ready") as remarks:
            _until_ready(api, AGAIN if there else "nothing is left of it")
            remarks.append(f"Kubernetes {api.version()}")
    except (LabError, KeyboardInterrupt):
        if not there:
            delete()
        raise
    _images(chosen, talk)
    with step(talk, f"kinds of {DEFINITIONS_OF}") as remarks:
        remarks.append(", ".join(inventory.ensure_kinds(api, name())) or "there")
    say(talk, f"{title} is ready: just bench keepalive --target kind; its kubeconfig: {kubeconfig()}")


def down(talk: Console) -> None:
    docker.engine()
    if not nodes():
        delete()  # what a lab left that ended in the middle: a kubeconfig, a network
        say(talk, f"there is no cluster {name()}")
        return
    with step(talk, f"cluster {name()} removed"):
        delete()


def _file() -> dict[str, Any]:
    return read_yaml(CONFIG, str(CONFIG))


def _patch(kind: str, taints: list[dict[str, str]]) -> str:
    return yaml.safe_dump({"kind": kind, "nodeRegistration": {"taints": taints}})


def _kind(verb: str, what: str, *options: str, limit_s: float, stdin: str = "") -> CompletedProcess[str]:
    """By Docker, even where podman is there as well."""
    argv = ["kind", verb, what, "--name", name(), "--kubeconfig", str(kubeconfig()), *options]
    return docker.run(argv, limit_s, stdin, {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": "docker"})


def _check(remarks: list[str]) -> dict[str, str]:
    """What it takes, before anything is started; the nodes that are there."""
    engine = docker.engine()
    remarks.append(f"engine {engine.version}")
    for tool in prerequisites.TOOLS:
        if tool.name in {"kind", "kubectl"}:
            docker.bring(tool.name)
            finding = prerequisites.check_tool(tool)
            if not finding.ok:
                raise UsageError(tool.name, finding.found, finding.remedy)
            remarks.append(f"{tool.name} {finding.found}")
    there = nodes()
    if not there:
        docker.check_disk(engine)
    stopped = [node for node, state in there.items() if state != "running"]
    if stopped:
        raise UsageError(f"kind cluster {name()}", f"{', '.join(stopped)} is {there[stopped[0]]}", AGAIN)
    return there


def _healthy(wanted: str) -> Api:
    """The cluster that is there, if it answers and is the one wanted."""
    place = f"kind cluster {name()}"
    exported = _kind("export", "kubeconfig", limit_s=60.0)
    if exported.returncode:
        raise UsageError(place, docker.last_words(exported), AGAIN)
    try:
        api = connect()
        labels = [node["metadata"]["labels"] for node in api.list("v1", "Node")]
    except LostError as error:
        raise UsageError(place, f"is there and does not answer: {error.fault}", AGAIN) from None
    if {label.get(MADE_FROM) for label in labels} != {wanted}:
        fault = f"is there and was made from another configuration (it has {len(labels) - 1 or 'no'} workers)"
        remedy = f"{AGAIN}; or give it its own --workers and LAB_IMAGES; or LAB_KIND_NAME makes another beside it"
        raise UsageError(place, fault, remedy)
    return api


def _until_ready(api: Api, remedy: str) -> None:
    """Its nodes, and the pods of kube-system. UsageError that names what is not ready in time, with its state and events."""
    deadline = time.monotonic() + 120.0
    while unready := [
        obj
        for obj in (*api.list("v1", "Node"), *api.list("v1", "Pod", "kube-system"))
        if not (pods.ready(obj) or obj["status"].get("phase") == "Succeeded")
    ]:
        if time.monotonic() > deadline:
            known = [line for obj in unready for line in pods.lines(api, obj)]
            told: list[str] = []
            for obj in unready:
                fault = rollout.pod_fault(obj) if obj["kind"] == "Pod" else None
                said = pods.conditions(obj).get("Ready", {})
                words = fault.words if fault else pods.reasoned(said.get("reason"), said.get("message"))
                told.append(f"{obj['kind'].lower()} {obj['metadata']['name']}: {words}")
            raise UsageError(api.place, f"not ready: {'; '.join(told)}", "\n  ".join([remedy, *known]))
        time.sleep(1.0)


def _images(chosen: Images, talk: Console) -> None:
    """Every image that a variant may ask for, on every node; one that few need may be nowhere."""
    wanted, on = images.of_variants(), list(nodes())
    for short in (*(short for short, only_for in wanted.items() if only_for is None), "loadgen"):
        _image(chosen, short, on, talk)
    named = set(chosen.chosen) - {"loadgen"}
    for short, only_for in wanted.items():
        note = f"  [yellow]–[/] image {short} is not there, which only {only_for} need:"
        if only_for is not None and named and short not in named:
            # Whoever names images has no use for the others' registry.
            say(talk, f"{note} {images.SETTING} does not name it")
        elif only_for is not None:
            try:
                _image(chosen, short, on, talk)
            except UsageError as error:
                say(talk, f"{note} {chosen.named(short)}: {error.fault}")


def _image(chosen: Images, short: str, on: Sequence[str], talk: Console) -> None:
    """The generators', which no registry has, is built if it is meant as this checkout builds it."""
    reference, base = chosen.named(short), chosen.named("debian")
    with step(talk, f"image {short}") as remarks:
        own = short == "loadgen" and reference.endswith(f":{images.loadgen_tag(base)}")
        if own and docker.held(reference) is None:
            images.build_loadgen(reference, base)
            remarks.append("built")
        remarks.extend([reference, docker.ensure(name(), on, short, reference)])
