"""Envoy as the data plane of a controller in its pod: Contour, whose `bootstrap` writes how it is found, as its init container does in a cluster.

Everything else comes by xDS on the pod's own loopback. Its admin interface is a socket; Contour's configuration puts what only reads of it
on the port that `lab.targets.common.envoy` asks. Refuses a pod without a controller: nobody writes a file of routes here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from lab.base.errors import NotMeasurableError
from lab.targets.apiserver.images import MACHINE, contour
from lab.targets.local.containers import Realisation
from lab.targets.local.envoy_conf import BOOTSTRAP, HOME
from lab.targets.local.images import Context, is_repository_of
from lab.targets.local.images import envoy as local

IMAGE = "envoyproxy/envoy"
SYSTEM = SHORT = MACHINE
MADE = False
CONFIG, PROXY = "", "envoy"
SAYS = ("stderr",)
XDS = ("--xds-address=127.0.0.1", "--xds-port=8001", "--xds-resource-version=v3")

RENEW = None  # it is told of changes and makes no new workers


def realise(context: Context) -> Realisation:
    container = context.container
    beside = (item for item in context.pod.containers if is_repository_of(contour.IMAGE, item.repository))
    controller = next(beside, None)
    if controller is None:
        fault = "no controller is in its pod, and nobody writes a file of routes here"
        raise NotMeasurableError("a file of routes", container.place, fault, "--target local")
    envoy, made = local.program(context), contour.program(controller)
    bootstrap = (
        made.inside,
        "bootstrap",
        BOOTSTRAP,
        f"--admin-address={HOME}/admin.sock",
        f"--namespace={context.pod.namespace}",
        *XDS,
    )
    run = shlex.join((envoy.inside, *container.args))
    hook = (made.inside, *container.pre_stop[1:]) if container.pre_stop[:1] == ("contour",) else None
    return Realisation(
        command=("sh", "-c", f"mkdir -p {HOME} && {shlex.join(bootstrap)} && exec {run}"),
        env=container.env,
        pre_stop=hook,
        programs={envoy.inside: envoy.file, made.inside: made.file},
        about=envoy.about,
    )


def about() -> str:
    return ""


def ignored(log: Iterable[str]) -> list[str]:
    return []  # what Contour was given, Contour judges


def complaints(log: Iterable[str]) -> list[str]:
    """Envoy's own errors: [2026-11-26 02:00:00.000][7][critical][main] …"""
    return list(dict.fromkeys(line for line in log if "][critical]" in line or "][error]" in line))


def loads(line: str) -> str | None:
    """It is told live."""
    return None
