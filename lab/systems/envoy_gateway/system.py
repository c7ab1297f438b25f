"""Envoy Gateway itself in its standalone mode: the controller reads Gateway API and its own objects from a file and runs an Envoy beside itself.

What it takes is the manifests' own objects, in one file that it watches (`lab.systems.envoy_gateway.objects`). Its process is the
control plane, its Envoy, a child of it, the proxy. Refuses an EnvoyProxy that names no version of Envoy: it would fetch one.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import partial

from lab.base.errors import UsageError
from lab.base.paths import at
from lab.systems import programs
from lab.systems.envoy import admin
from lab.systems.envoy_gateway.objects import KINDS, Serves, objects, written
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    Realisation,
    Workers,
    expect,
    refuse_workers,
    within_down,
)
from lab.systems.watched_files import WatchedFiles

CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
MODULE = "github.com/envoyproxy/gateway"
HOME = "/srv/envoy-gateway"
OBJECTS = f"{HOME}/resources/objects.yaml"
_ENVOY = "EnvoyProxy: spec.provider.host.envoyVersion"


def realise(context: Context) -> Realisation:
    container = context.container
    held = not container.command and container.args[:1] == ("server",)
    expect(container, held, "no command, and server as the first argument", "envoy-gateway")
    _refuse(context)
    controller = programs.built(container.place, "envoy-gateway", MODULE, programs.tagged(container))
    data_plane = _envoy(context)
    run = shlex.join((controller.inside, *container.args))
    # What its standalone mode wants before its first start: the certificates between it and its Envoy.
    certificates = shlex.join((controller.inside, "certgen", "--local", "--config-home", f"{HOME}/config"))
    return Realisation(
        command=("sh", "-c", f"{certificates} && exec {run}"),
        env=container.env,
        files={OBJECTS: written(objects(context.objects, CONTROLLER, context.addresses))},
        programs={
            controller.inside: controller.file,
            f"{HOME}/data/envoy-versions/{data_plane.version}/bin/envoy": data_plane.file,
        },
        about=f"{controller.about}, {data_plane.about}",
    )


def _refuse(context: Context) -> None:
    """UsageError for a field that its objects have not: the controller would write that into its log, and serve nothing."""
    from lab.model.variants.schemas import refused  # longer to import than all else here

    for raw in context.objects.others:
        if told := refused(raw):
            raise UsageError(
                f"{raw['kind']}/{raw['metadata']['name']}", told, "correct it: manifests/schemas has its fields"
            )


def _envoy(context: Context) -> programs.Program:
    settings = [raw for raw in context.objects.others if raw["kind"] == "EnvoyProxy"]
    for raw in settings:
        place = f"EnvoyProxy/{raw['metadata']['name']}: spec"
        workers = at(raw, "spec.concurrency")
        if isinstance(workers, int):
            refuse_workers(f"{place}.concurrency", workers, context)
        if version := at(raw, "spec.provider.host.envoyVersion"):
            return programs.program(f"{place}.provider.host.envoyVersion", "envoy", str(version))
    raise UsageError(_ENVOY, "is missing: it would fetch an Envoy of its own choice", "name one that is pinned here")


def control(process: Process) -> WatchedFiles:
    return WatchedFiles(process, "envoy-gateway", lambda path: path == OBJECTS, partial(_served, process, Serves()))


def _served(process: Process, serves: Serves, files: Mapping[str, str]) -> bool:
    """Whether its Envoy has the routes and endpoints of the file. Its whole configuration is looked at only when it has taken another."""
    told = process.ask(admin.PORT, admin.VERSIONS)
    page = f"{admin.DUMP}?include_eds"
    return serves.these(files[OBJECTS], told, lambda: json.loads(process.ask(admin.PORT, page)))


SYSTEM = ProxySystem(
    name="envoy-gateway",
    image="envoyproxy/gateway",
    realise=realise,
    note="routes and endpoints change by a file that the controller watches; Services' pods are Backends to it",
    by_tag=True,
    kinds=KINDS,
    proxy="envoy",
    control=control,
    counters=admin.count,
    module=MODULE,
    definitions=("envoy-gateway/definitions.json",),
    definitions_of="Envoy Gateway",
    workloads={"EnvoyProxy": "spec.provider.kubernetes.envoyDeployment"},
    migrations={"envoy-gateway": "migrate.tsv"},
    workers=Workers(
        rules={"envoyproxy/gateway": within_down},
        fields={"EnvoyProxy": "concurrency"},
        port=admin.PORT,
        page=admin.CONCURRENCY,
        metric="server.concurrency",
    ),
)
