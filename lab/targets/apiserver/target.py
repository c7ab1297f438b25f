"""The apiserver target: the local target's processes and network, with a real API server and real controllers.

The rendered manifests go to kube-apiserver by server-side apply. A proxy's container is the controller's own
program in a root of the image's files. There is no kubelet, rollout, CNI or scheduler: the kind target shows what
those do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lab.base.errors import NotMeasurableError, UsageError
from lab.model.endpoint import Endpoint
from lab.model.events import EventLog
from lab.model.names import BRING_UP_S, INSIDE
from lab.model.pairs import Side
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import Variant
from lab.systems import programs, table
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.system import MACHINE, Context, Controller, Realisation
from lab.targets.apiserver import objects
from lab.targets.apiserver.programs import SERVERS, provide, server, version
from lab.targets.apiserver.registry import ApiserverRoutes
from lab.targets.apiserver.servers import Servers
from lab.targets.cluster.objects import rename_for_side
from lab.targets.local.control_plane.routing import Routes
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.kubelet import Kubelet
from lab.targets.local.sandbox.network import Network
from lab.targets.local.target import LocalTarget


class ApiserverTarget(LocalTarget):
    """The target `apiserver`, which has one API server for a whole run, from `check` to `close`.

    If two systems are up at once (a pair), both use this API server.
    """

    name = "apiserver"
    bring_up_s = BRING_UP_S["apiserver"]

    def __init__(self) -> None:
        super().__init__()
        self.servers = Servers()

    def enter(self, argv: Sequence[str]) -> int | None:
        """Provide the programs while there is a network, then enter the namespaces; see `LocalTarget.enter`.

        Raises:
            UsageError: A program can be neither fetched nor made, or the namespaces are not allowed.

        """
        if INSIDE not in os.environ:
            provide()
        return super().enter(argv)

    def check(self) -> None:
        """Check the prerequisites and start the servers, without waiting for them.

        Raises:
            UsageError: A prerequisite is missing.

        """
        super().check()
        self.servers.start()

    def close(self) -> None:
        """End the servers of the run; this may be called again."""
        self.servers.stop()

    def facts(self) -> Mapping[str, str]:
        """Return the facts of the local target, and the versions of the servers and controllers."""
        additions = {
            "target": "apiserver: the real controllers as processes, a real API server (no kubelet, CNI or scheduler)",
            **{name: version(server(name)) for name in SERVERS},
            "controllers": " | ".join(filter(None, map(_describe, table.CONTROLLERS.values()))),
        }
        inherited = {key: value for key, value in super().facts().items() if key != "allocator"}
        return {**inherited, **additions}

    def manifests(self, variant: Variant, side: Side) -> Sequence[Mapping[str, Any]]:
        """Return a variant's manifests with names of this side only, because both sides share one API server."""
        return rename_for_side(variant.manifests, side)

    def read(self, manifests: Sequence[Mapping[str, Any]]) -> Objects:
        """Read those manifests into objects that the lab needs for its processes; the controller reads the others."""
        return super().read(objects.read(manifests))

    def realise(self, context: Context) -> Realisation:
        """Return what to start instead of a container's image: command, environment and files (realisation).

        For the image of a controller this is the controller's own program, and for any other image the same as on
        the local target.

        Raises:
            UsageError: The image has another version than the program that stands for it here.

        """
        controller = table.find_controller(context.container.repository)
        if controller is None:
            return bringup.realise(context)
        if context.pod.role == "proxy":
            bringup.refuse_other_version(context.container)
        return controller.realise(context)

    def program_versions(self) -> Mapping[str, str]:
        """Return the versions of the backend's programs on PATH; proxies' programs come with the controllers."""
        return table.program_versions(of_backend=True)

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        """Check that this target can run a variant and serve the points; see `LocalTarget.check_variant`.

        Raises:
            UsageError: The manifests or a point contain something that cannot be honoured here.
            NotMeasurableError: Only this target or machine cannot measure it; for example, the controller's files
                lack a program that a read-back (a check of a setting in the running system) needs.

        """
        endpoints = super().check_variant(variant, points)
        (pod, *_) = self.read(variant.manifests).role("proxy") or [None]
        for check in variant.readback:
            if pod and check.kind == "disk" and check.value == "sync" and not _has_program(pod.containers[0], "lsattr"):
                fault = f"the controller's files have no lsattr, which tells whether {check.name} waits for the disk"
                raise NotMeasurableError("a slow disk", variant.name, fault, "--target local or kind shows it")
        return endpoints

    def order(self, objects: Objects) -> Sequence[Sequence[Pod]]:
        """Return the pods in stages, which are started one after the other: backend, proxy, load balancer.

        So the backends exist when a controller looks for the first time, and a load balancer can resolve the proxy's
        name when it starts.
        """
        return [objects.role("backend"), objects.role("proxy"), objects.role("balancer")]

    def fixed(self, container: Container) -> bool:
        """Return whether the proxy in a container keeps the backends of its start, since it has no controller."""
        return table.find_controller(container.repository) is None

    def renews(self, container: Container) -> bool:
        """Return whether a reload of the proxy in a container makes new worker processes."""
        controller = table.find_controller(container.repository)
        return super().renews(container) if controller is None else controller.renew is not None

    def routes(
        self,
        manifests: Sequence[Mapping[str, Any]],
        objects: Objects,
        net: Network,
        kubelet: Kubelet,
        log: EventLog,
        changing: bool,
        side: Side,
    ) -> Routes:
        """Return the component that writes a system's objects to the API server; see `LocalTarget.routes`."""
        return ApiserverRoutes(
            [dict(obj) for obj in manifests], self.servers, side, objects, net, kubelet, log, changing
        )


def _describe(controller: Controller) -> str:
    """Return which program a controller is, with version and origin (`Controller.about`), for the facts of the run.

    The result is empty if the controller's files are not here, or if the controller's containers report it instead.
    """
    try:
        return controller.about()
    except UsageError:
        return ""


def _has_program(container: Container, program: str) -> bool:
    """Return whether a program can be run in a container.

    A container that has the files of its image lacks the programs of the machine.
    """
    controller = table.find_controller(container.repository)
    if controller is None or controller.system == MACHINE:
        return True
    root = programs.locate_root_files(controller.system, controller.short).folder
    return any(os.path.lexists(root / folder / program) for folder in ("bin", "sbin", "usr/bin", "usr/sbin"))
