"""The target `apiserver`: processes on this machine as on `local`, but with a real API server and real controllers.

The manifests are written to kube-apiserver by server-side apply. A proxy's container runs the controller's own
program, in a root folder with the files of the controller's image. There is no real kubelet, rollout, CNI plugin or
scheduler; the target `kind` has these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lab.base.errors import UsageError, refuse_if
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
    """The target `apiserver`: real controllers as local processes against one real API server.

    The API server is started by `check` and ended by `close`, so it lasts for a whole run. If two systems are up at
    once (a pair), both use it.
    """

    name = "apiserver"
    bring_up_s = BRING_UP_S["apiserver"]

    def __init__(self) -> None:
        super().__init__()
        self.servers = Servers()

    def enter(self, argv: Sequence[str]) -> int | None:
        """Fetch or build missing programs, then run the lab's command again in new namespaces (see `LocalTarget.enter`).

        The programs are fetched first, because inside the namespaces there is no network.

        Raises:
            UsageError: A program can be neither fetched nor built, or the machine does not allow the namespaces.

        """
        if INSIDE not in os.environ:
            provide()
        return super().enter(argv)

    def check(self) -> None:
        """Check the prerequisites, and start etcd and kube-apiserver without waiting until they are ready.

        Raises:
            UsageError: A prerequisite is missing.

        """
        super().check()
        self.servers.start()

    def close(self) -> None:
        """End etcd and kube-apiserver; further calls do nothing."""
        self.servers.stop()

    def facts(self) -> Mapping[str, str]:
        """Return the facts about this target that a run records: name → text.

        They are the local target's facts without `allocator`, and the versions of the API server, etcd and the
        controllers.
        """
        additions = {
            "target": "apiserver: the real controllers as processes, a real API server (no kubelet, CNI or scheduler)",
            **{name: version(server(name)) for name in SERVERS},
            "controllers": " | ".join(filter(None, map(_describe, table.CONTROLLERS.values()))),
        }
        inherited = {key: value for key, value in super().facts().items() if key != "allocator"}
        return {**inherited, **additions}

    def manifests(self, variant: Variant, side: Side) -> Sequence[Mapping[str, Any]]:
        """Return a variant's manifests, renamed for one side of a pair (two systems that are up at once).

        Both sides share one API server, so their objects must not have the same names.
        """
        return rename_for_side(variant.manifests, side)

    def read(self, manifests: Sequence[Mapping[str, Any]]) -> Objects:
        """Parse those manifests that the lab needs to start processes, such as Deployments and Services.

        The other manifests are left out: they are for the proxy's controller, which reads them from the API server.
        """
        return super().read(objects.read(manifests))

    def realise(self, context: Context) -> Realisation:
        """Return the command, environment and files to start instead of a container's image.

        For the image of a controller they start the controller's own program. For any other image they are those of
        the local target.

        Raises:
            UsageError: The image has another version than the program that runs instead of it.

        """
        controller = table.find_controller(context.container.repository)
        if controller is None:
            return bringup.realise(context)
        if context.pod.role == "proxy":
            bringup.refuse_other_version(context.container)
        return controller.realise(context)

    def program_versions(self) -> Mapping[str, str]:
        """Return program → version for the backend's programs on PATH.

        Programs of proxies are not included, because on this target they come with their controllers, not from PATH.
        """
        return table.program_versions(of_backend=True)

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        """Check that this target can run a variant and serve the load points (loads of a sweep), without starting anything.

        Returns:
            Name of the load point → the endpoint that its load will go to.

        Raises:
            UsageError: The manifests or a point contain something that this target does not support.
            NotMeasurableError: Only this target or machine cannot measure the variant. For example, a read-back (a
                check of a setting in the running system) needs a program that the controller's files lack.

        """
        endpoints = super().check_variant(variant, points)
        (pod, *_) = self.read(variant.manifests).role("proxy") or [None]
        for check in variant.readback:
            synced = check.kind == "disk" and check.value == "sync"
            refuse_if(
                pod and synced and not _has_program(pod.containers[0], "lsattr"),
                variant.name,
                f"the controller's files have no lsattr, which shows whether {check.name} waits for the disk",
                "--target local or kind shows it",
                what="a slow disk",
            )
        return endpoints

    def order(self, objects: Objects) -> Sequence[Sequence[Pod]]:
        """Return the pods in three stages that are started one after the other: backend, proxy, load balancer.

        In this order the backends already exist when a controller looks for them, and a load balancer can resolve the
        proxy's name when it starts.
        """
        return [objects.role("backend"), objects.role("proxy"), objects.role("balancer")]

    def fixed(self, container: Container) -> bool:
        """Return whether the proxy in a container always uses the backends that existed at its start.

        This is so for a proxy without a controller, because nothing informs the proxy of later changes.
        """
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
        """Return the component that writes a system's objects to the API server.

        The arguments are those of `LocalTarget.routes`.
        """
        return ApiserverRoutes(
            [dict(obj) for obj in manifests], self.servers, side, objects, net, kubelet, log, changing
        )


def _describe(controller: Controller) -> str:
    """Return a text about the program that runs for a controller, such as its version, for the facts of the run.

    The text is empty if the controller's files are not on this machine, or if another fact contains the version.
    """
    try:
        return controller.about()
    except UsageError:
        return ""


def _has_program(container: Container, program: str) -> bool:
    """Return whether a container on this target can run a program such as `lsattr`.

    Most containers see the programs of this machine. A container that has the files of its image sees only the
    programs in those files.
    """
    controller = table.find_controller(container.repository)
    if controller is None or controller.system == MACHINE:
        return True
    root = programs.locate_root_files(controller.system, controller.short).folder
    return any(os.path.lexists(root / folder / program) for folder in ("bin", "sbin", "usr/bin", "usr/sbin"))
