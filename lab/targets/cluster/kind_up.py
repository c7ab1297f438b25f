"""What `just up kind` and `just down kind` do: a cluster of containers on this machine's Docker engine, with the variants' images."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from lab.base.errors import LabError, LostError, UsageError
from lab.systems.table import DEFINITIONS_OF
from lab.targets import prerequisites
from lab.targets.cluster import docker, images, inventory, kind, pods, rollout
from lab.targets.cluster.api import Api
from lab.targets.cluster.images import Images
from lab.targets.cluster.steps import say, step

READY_S, POLL_S = 120.0, 1.0
AGAIN = "`just down kind` removes it; then `just up kind`"
INOTIFY = "root's inotify instances are used up: sudo sysctl -w fs.inotify.max_user_instances=512"


def up(workers: int, talk: Console) -> None:
    chosen = images.load()
    wanted = kind.config(chosen, workers)
    with step(talk, "Docker, disk, kind, kubectl") as remarks:
        there = _check(remarks)
    title = f"cluster {kind.name()}"
    if there:
        with step(talk, f"{title} is there already"):
            api = _healthy(kind.made_from(wanted))
    else:
        with step(talk, title) as remarks:
            kind.create(wanted)
            remarks.append(f"{len(wanted['nodes'])} of {chosen.named('kind-node')}")
            api = kind.connect()
    try:
        with step(talk, "nodes and kube-system are ready") as remarks:
            _until_ready(api, AGAIN if there else "nothing is left of it")
            remarks.append(f"Kubernetes {api.version()}")
    except (LabError, KeyboardInterrupt):
        if not there:
            kind.delete()
        raise
    _images(chosen, talk)
    with step(talk, f"kinds of {DEFINITIONS_OF}") as remarks:
        remarks.append(", ".join(inventory.ensure_kinds(api, kind.name())) or "there")
    said = f"{title} is ready: just bench keepalive --target kind; its kubeconfig: {kind.kubeconfig()}"
    say(talk, said)


def down(talk: Console) -> None:
    docker.engine()
    if not kind.nodes():
        kind.delete()  # what a lab left that ended in the middle: a kubeconfig, a network
        say(talk, f"there is no cluster {kind.name()}")
        return
    with step(talk, f"cluster {kind.name()} removed"):
        kind.delete()


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
    nodes = kind.nodes()
    if not nodes:
        docker.check_disk(engine)
    stopped = [node for node, state in nodes.items() if state != "running"]
    if stopped:
        raise UsageError(f"kind cluster {kind.name()}", f"{', '.join(stopped)} is {nodes[stopped[0]]}", AGAIN)
    return nodes


def _healthy(made_from: str) -> Api:
    """The cluster that is there, if it answers and is the one wanted."""
    kind.export()
    place = f"kind cluster {kind.name()}"
    try:
        api = kind.connect()
        labels = [node["metadata"]["labels"] for node in api.list("v1", "Node")]
    except LostError as error:
        raise UsageError(place, f"is there and does not answer: {error.fault}", AGAIN) from None
    if {label.get(kind.MADE_FROM) for label in labels} != {made_from}:
        fault = f"is there and was made from another configuration (it has {len(labels) - 1 or 'no'} workers)"
        remedy = f"{AGAIN}; or give it its own --workers and LAB_IMAGES; or LAB_KIND_NAME makes another beside it"
        raise UsageError(place, fault, remedy)
    return api


def _until_ready(api: Api, remedy: str) -> None:
    """Its nodes, and the pods of kube-system. UsageError that names what is not ready in time, with its state and events."""
    deadline = time.monotonic() + READY_S
    while unready := [
        obj
        for obj in (*api.list("v1", "Node"), *api.list("v1", "Pod", "kube-system"))
        if not (pods.ready(obj) or obj["status"].get("phase") == "Succeeded")
    ]:
        if time.monotonic() > deadline:
            known = [line for obj in unready for line in pods.lines(api, obj)]
            remedy = INOTIFY if any("too many open files" in line for line in known) else remedy
            raise UsageError(
                api.place, f"not ready: {'; '.join(map(_unready, unready))}", "\n  ".join([remedy, *known])
            )
        time.sleep(POLL_S)


def _unready(obj: Mapping[str, Any]) -> str:
    """`pod coredns-abc: not ready: container coredns: ImagePullBackOff: …`; of a node what its condition says."""
    fault = rollout.pod_fault(dict(obj)) if obj["kind"] == "Pod" else None
    said = pods.conditions(obj).get("Ready", {})
    words = fault.words if fault else pods.reasoned(said.get("reason"), said.get("message"))
    return f"{obj['kind'].lower()} {obj['metadata']['name']}: {words}"


def _images(chosen: Images, talk: Console) -> None:
    """Every image that a variant may ask for, on every node; one that few need may be nowhere."""
    wanted, nodes = images.of_variants(), list(kind.nodes())
    for short in (*(short for short, only_for in wanted.items() if only_for is None), "loadgen"):
        _image(chosen, short, nodes, talk)
    named = {short for short in chosen.chosen if short != "loadgen"}
    for short, only_for in wanted.items():
        if only_for is None:
            continue
        note = f"  [yellow]–[/] image {short} is not there, which only {only_for} need:"
        if named and short not in named:  # whoever names images has no use for the others' registry
            say(talk, f"{note} {images.SETTING} does not name it")
            continue
        try:
            _image(chosen, short, nodes, talk)
        except UsageError as error:
            say(talk, f"{note} {chosen.named(short)}: {error.fault}")


def _image(chosen: Images, short: str, nodes: Sequence[str], talk: Console) -> None:
    """The generators', which no registry has, is built if it is meant as this checkout builds it."""
    reference, base = chosen.named(short), chosen.named("debian")
    with step(talk, f"image {short}") as remarks:
        own = short == "loadgen" and reference.endswith(f":{images.loadgen_tag(base)}")
        if own and docker.held(reference) is None:
            images.build_loadgen(reference, base)
            remarks.append("built")
        remarks.extend([reference, docker.ensure(kind.name(), nodes, short, reference)])
