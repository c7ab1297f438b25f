"""Envoy Gateway itself in its standalone mode: the controller reads Gateway API and its own objects from a file and runs an Envoy beside itself.

What it takes is the manifests' own objects, in one file that it watches (`lab.targets.local.envoy_gateway_objects`). Its process is the
control plane, its Envoy, a child of it, the proxy. Refuses an EnvoyProxy that names no version of Envoy: it would fetch one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial

from lab.base.errors import UsageError
from lab.targets.common import envoy
from lab.targets.common.paths import at
from lab.targets.local import admin, proxies
from lab.targets.local.containers import Process, Realisation
from lab.targets.local.envoy_gateway_objects import KINDS as KINDS
from lab.targets.local.envoy_gateway_objects import Serves, objects, written
from lab.targets.local.images import Context, Control, refuse_workers
from lab.targets.local.images.envoy import gauges as gauges
from lab.targets.local.watched_files import WatchedFiles

IMAGE = "envoyproxy/gateway"
BY_TAG = True
NOTE = "routes and endpoints change by a file that the controller watches; Services' pods are Backends to it"
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
PROXY = "envoy"
MODULE = "github.com/envoyproxy/gateway"
HOME = "/srv/envoy-gateway"
OBJECTS = f"{HOME}/resources/objects.yaml"
_ENVOY = "EnvoyProxy: spec.provider.host.envoyVersion"


def realise(context: Context) -> Realisation:
    container = context.container
    if container.command or container.args[:1] != ("server",):
        fault = "expected no command, and server as the first argument"
        raise UsageError(container.place, fault, "as in manifests/base/envoy-gateway")
    _refuse(context)
    controller = proxies.built(container.place, "envoy-gateway", MODULE, proxies.tagged(container))
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


def _envoy(context: Context) -> proxies.Program:
    settings = [raw for raw in context.objects.others if raw["kind"] == "EnvoyProxy"]
    for raw in settings:
        place = f"EnvoyProxy/{raw['metadata']['name']}: spec"
        workers = at(raw, "spec.concurrency")
        if isinstance(workers, int):
            refuse_workers(f"{place}.concurrency", workers, context)
        if version := at(raw, "spec.provider.host.envoyVersion"):
            return proxies.program(f"{place}.provider.host.envoyVersion", "envoy", str(version))
    raise UsageError(_ENVOY, "is missing: it would fetch an Envoy of its own choice", "name one that is pinned here")


def control(process: Process) -> Control:
    ask = admin.asking(process.setting.place)
    return WatchedFiles(process, "envoy-gateway", lambda path: path == OBJECTS, partial(_served, ask, Serves()))


def _served(ask: admin.Ask, serves: Serves, files: Mapping[str, str]) -> bool:
    """Whether its Envoy has the routes and endpoints of the file. Its whole configuration is looked at only when it has taken another."""
    told = ask(envoy.PORT, envoy.VERSIONS)
    return serves.these(files[OBJECTS], told, lambda: admin.asked_json(ask, envoy.PORT, f"{envoy.DUMP}?include_eds"))


def counters(ask: admin.Ask) -> Mapping[str, int]:
    return envoy.counted(ask(envoy.PORT, envoy.COUNTS))
