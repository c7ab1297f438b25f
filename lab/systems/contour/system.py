"""Contour's pod: the controller, and the Envoy as its data plane, whose `bootstrap` writes how it is found, as its init container does in a cluster.

Everything else comes by xDS on the pod's own loopback. Its admin interface is a socket; Contour's configuration puts what only reads of it
on the port that `lab.systems.envoy.admin` asks. Refuses a pod without a controller: nobody writes a file of routes here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from lab.base.errors import NotMeasurableError
from lab.systems.contour import controller
from lab.systems.envoy import system as envoy
from lab.systems.envoy.config import BOOTSTRAP, HOME
from lab.systems.system import Context, Controller, ProxySystem, Realisation, is_repository_of

XDS = ("--xds-address=127.0.0.1", "--xds-port=8001", "--xds-resource-version=v3")


def realise(context: Context) -> Realisation:
    container = context.container
    beside = (item for item in context.pod.containers if is_repository_of(controller.IMAGE, item.repository))
    contour = next(beside, None)
    if contour is None:
        fault = "no controller is in its pod, and nobody writes a file of routes here"
        raise NotMeasurableError("a file of routes", container.place, fault, "--target local")
    proxy, made = envoy.program(context), controller.program(contour)
    bootstrap = (
        made.inside,
        "bootstrap",
        BOOTSTRAP,
        f"--admin-address={HOME}/admin.sock",
        f"--namespace={context.pod.namespace}",
        *XDS,
    )
    run = shlex.join((proxy.inside, *container.args))
    hook = (made.inside, *container.pre_stop[1:]) if container.pre_stop[:1] == ("contour",) else None
    return Realisation(
        command=("sh", "-c", f"mkdir -p {HOME} && {shlex.join(bootstrap)} && exec {run}"),
        env=container.env,
        pre_stop=hook,
        programs={proxy.inside: proxy.file, made.inside: made.file},
        about=proxy.about,
    )


def complaints(log: Iterable[str]) -> list[str]:
    """Envoy's own errors: [2026-11-26 02:00:00.000][7][critical][main] …"""
    return list(dict.fromkeys(line for line in log if "][critical]" in line or "][error]" in line))


SYSTEM = ProxySystem(
    name="contour",
    image=controller.IMAGE,
    migrations={"contour": "migrate.tsv"},
    controllers=(
        controller.CONTROLLER,
        # What Contour was given, Contour judges; the Envoy is told of changes and makes no new workers.
        Controller(image="envoyproxy/envoy", realise=realise, proxy="envoy", complaints=complaints),
    ),
)
