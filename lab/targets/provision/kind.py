"""`just up kind`: a cluster of containers on this machine's Docker engine, with the images that the variants need."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lab.base.quantities import number

if TYPE_CHECKING:
    from lab.targets.cluster.api import Api
    from lab.targets.cluster.images import Images

ABOUT = "a cluster of containers on this machine (Docker and kind), from lab/targets/provision/kind.yaml"
READY_S = 120.0
AGAIN = "`just down kind` removes it; then `just up kind`"


def up_arguments(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--workers",
        type=number("--workers", 0, 8),
        default=0,
        help="nodes beside the control plane's, the first for the generator alone (default: 0)",
    )


def down_arguments(verb: argparse.ArgumentParser) -> None:
    pass


def up(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.cluster import images, kind
    from lab.targets.cluster.steps import say, step

    chosen = images.load()
    wanted = kind.config(chosen, options.workers)
    with step(talk, "Docker, disk, kind, kubectl") as remarks:
        there = _check(wanted, remarks)
    title = f"cluster {kind.name()}"
    if there:
        with step(talk, f"{title} is there already"):
            api = _healthy(kind.made_from(wanted))
    else:
        with step(talk, title) as remarks:
            kind.create(wanted)
            remarks.append(f"{len(wanted['nodes'])} of {chosen.named('kind-node')}")
            api = _connect()
    _wait(api, talk, remove=not there)
    _images(chosen, talk)
    _routes(api, talk)
    say(
        talk, f"cluster {kind.name()} is ready: just bench keepalive --target kind; its kubeconfig: {kind.kubeconfig()}"
    )


def down(options: argparse.Namespace, talk: Console) -> None:
    from lab.targets.cluster import docker, kind
    from lab.targets.cluster.steps import say, step

    docker.engine()
    if not kind.nodes():
        kind.delete()  # what a lab left that ended in the middle: a kubeconfig, a network
        say(talk, f"there is no cluster {kind.name()}")
        return
    with step(talk, f"cluster {kind.name()} removed"):
        kind.delete()


def _check(wanted: Mapping[str, Any], remarks: list[str]) -> dict[str, str]:
    """What it takes, before anything is started; the nodes that are there."""
    from lab.base.errors import UsageError
    from lab.targets import prerequisites
    from lab.targets.cluster import docker, kind

    engine = docker.engine()
    remarks.append(f"engine {engine.version}")
    for tool in prerequisites.TOOLS:
        if tool.name in {"kind", "kubectl"}:
            finding = prerequisites.check_tool(tool)
            if not finding.ok:
                raise UsageError(tool.name, finding.found, finding.remedy)
            remarks.append(f"{tool.name} {finding.found}")
    nodes = kind.nodes()
    if not nodes:
        docker.check_disk(engine)
        kind.check_inotify(wanted)
    stopped = [node for node, state in nodes.items() if state != "running"]
    if stopped:
        raise UsageError(f"kind cluster {kind.name()}", f"{', '.join(stopped)} is {nodes[stopped[0]]}", AGAIN)
    return nodes


def _connect() -> Api:
    from lab.targets.cluster import kind
    from lab.targets.cluster.api import Api

    return Api(kind.context(), kind.kubeconfig())


def _healthy(made_from: str) -> Api:
    """The cluster that is there, if it answers and is the one wanted."""
    from lab.base.errors import LostError, UsageError
    from lab.targets.cluster import kind

    kind.export()
    place = f"kind cluster {kind.name()}"
    try:
        api = _connect()
        labels = [node["metadata"]["labels"] for node in api.list("v1", "Node")]
    except LostError as error:
        raise UsageError(place, f"is there and does not answer: {error.fault}", AGAIN) from None
    if {label.get(kind.MADE_FROM) for label in labels} != {made_from}:
        workers = len(labels) - 1
        fault = f"is there and was made from another configuration (it has {workers or 'no'} workers)"
        remedy = f"{AGAIN}; or give it its own --workers and LAB_IMAGES; or LAB_KIND_NAME makes another beside it"
        raise UsageError(place, fault, remedy)
    return api


def _wait(api: Api, talk: Console, remove: bool) -> None:
    from lab.base.errors import LabError
    from lab.targets.cluster import kind, readiness
    from lab.targets.cluster.steps import step

    try:
        with step(talk, "nodes and kube-system are ready") as remarks:
            readiness.wait(api, time.monotonic() + READY_S, "nothing is left of it" if remove else AGAIN)
            remarks.append(f"Kubernetes {api.version()}")
    except (LabError, KeyboardInterrupt):
        if remove:
            kind.delete()
        raise


def _images(chosen: Images, talk: Console) -> None:
    """Every image that a variant may ask for, on every node; one that few need may be nowhere."""
    from lab.base.errors import UsageError
    from lab.targets.cluster import docker, images, kind, loadgen, node_images
    from lab.targets.cluster.steps import say, step

    name, nodes = kind.name(), list(kind.nodes())
    wanted = images.of_variants()
    for short in [short for short, only_for in wanted.items() if only_for is None]:
        reference = chosen.named(short)
        with step(talk, f"image {short}") as remarks:
            remarks.extend([reference, node_images.ensure(name, nodes, short, reference)])
    with step(talk, "image loadgen") as remarks:
        reference = chosen.named("loadgen")
        base = chosen.named("debian")
        if reference.endswith(f":{loadgen.tag(base)}") and docker.held(reference) is None:
            loadgen.build(reference, base)
            remarks.append("built")
        remarks.extend([reference, node_images.ensure(name, nodes, "loadgen", reference)])
    named = {short for short in chosen.chosen if short != "loadgen"}
    for short, only_for in [item for item in wanted.items() if item[1] is not None]:
        reference = chosen.named(short)
        note = f"  [yellow]–[/] image {short} is not there, which only {only_for} need:"
        if named and short not in named:  # whoever names images has no use for the others' registry
            say(talk, f"{note} {images.SETTING} does not name it")
            continue
        try:
            with step(talk, f"image {short}") as remarks:
                remarks.extend([reference, node_images.ensure(name, nodes, short, reference)])
        except UsageError as error:
            say(talk, f"{note} {reference}: {error.fault}")


def _routes(api: Api, talk: Console) -> None:
    from lab.targets.cluster import kind, route_kind
    from lab.targets.cluster.steps import step

    with step(talk, "kind Route") as remarks:
        remarks.append("added" if route_kind.ensure(api, kind.name()) else "there")
