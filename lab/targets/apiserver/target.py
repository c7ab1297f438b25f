"""The apiserver target: the local target's processes, network and small kubelet, and a real API server that real controllers watch.

The rendered manifests go to kube-apiserver by server-side apply; a proxy's container is the controller's own program in a root of
its own files. No kubelet, rollouts, CNI or scheduler: what those do is kind's to show.
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
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.systems import programs, table
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.system import MACHINE, Context, Controller, Realisation
from lab.targets.apiserver import objects
from lab.targets.apiserver.programs import SERVERS, provide, server, version
from lab.targets.apiserver.registry import Registry
from lab.targets.apiserver.servers import Servers
from lab.targets.cluster.objects import on_side
from lab.targets.local.control_plane.routing import Routes
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.kubelet import Kubelet
from lab.targets.local.sandbox.network import Network
from lab.targets.local.target import LocalTarget


class ApiserverTarget(LocalTarget):
    """One API server for a run, from `check` to `close`; both sides of a pair are on it."""

    name = "apiserver"
    bring_up_s = BRING_UP_S["apiserver"]

    def __init__(self) -> None:
        super().__init__()
        self.servers = Servers()

    def enter(self, argv: Sequence[str]) -> int | None:
        if INSIDE not in os.environ:
            provide()
        return super().enter(argv)

    def check(self) -> None:
        super().check()
        self.servers.start()

    def close(self) -> None:
        self.servers.stop()

    def facts(self) -> Mapping[str, str]:
        own = {
            "target": "apiserver: the real controllers as processes, a real API server (no kubelet, CNI or scheduler)",
            **{name: version(server(name)) for name in SERVERS},
            "controllers": " | ".join(filter(None, map(_about, table.CONTROLLERS.values()))),
        }
        kept = {key: value for key, value in super().facts().items() if key != "allocator"}
        return {**kept, **own}

    def manifests(self, variant: Variant, side: Side) -> Sequence[Mapping[str, Any]]:
        return on_side(variant.manifests, side)

    def read(self, manifests: Sequence[Mapping[str, Any]]) -> Objects:
        return super().read(objects.read(manifests))

    def realise(self, context: Context) -> Realisation:
        """By the controller's own programs, or as on the local target. UsageError for another version than there is."""
        controller = table.find_controller(context.container.repository)
        if controller is None:
            return bringup.realise(context)
        if context.pod.role == "proxy":
            bringup.refuse_other_version(context.container)
        return controller.realise(context)

    def program_versions(self) -> Mapping[str, str]:
        """Of what the backend runs: systems' own programs are their controllers'."""
        return table.program_versions(of_backend=True)

    def check_variant(self, variant: Variant, points: Sequence[Point]) -> Mapping[str, Endpoint]:
        found = super().check_variant(variant, points)
        (pod, *_) = self.read(variant.manifests).role("proxy") or [None]
        for check in variant.readback:
            if pod and check.kind == "disk" and check.value == "sync" and not _has(pod.containers[0], "lsattr"):
                fault = f"the controller's files have no lsattr, which tells whether {check.name} waits for the disk"
                raise NotMeasurableError("a slow disk", variant.name, fault, "--target local or kind shows it")
        return found

    def order(self, wanted: Objects) -> Sequence[Sequence[Pod]]:
        """No controller's first look is at less than what it is to serve; a load balancer resolves the proxy when it starts."""
        return [wanted.role("backend"), wanted.role("proxy"), wanted.role("balancer")]

    def fixed(self, container: Container) -> bool:
        return table.find_controller(container.repository) is None

    def renews(self, container: Container) -> bool:
        controller = table.find_controller(container.repository)
        return super().renews(container) if controller is None else controller.renew is not None

    def routes(
        self,
        manifests: Sequence[Mapping[str, Any]],
        wanted: Objects,
        net: Network,
        kubelet: Kubelet,
        log: EventLog,
        changing: bool,
        side: Side,
    ) -> Routes:
        return Registry([dict(obj) for obj in manifests], self.servers, side, wanted, net, kubelet, log, changing)


def _about(controller: Controller) -> str:
    """Return what a controller really is; empty where its files are not here, or where its containers tell."""
    try:
        return controller.about()
    except UsageError:
        return ""


def _has(container: Container, program: str) -> bool:
    """Return whether a program can be run in this container: where it has files of its own, it has none of the machine's."""
    controller = table.find_controller(container.repository)
    if controller is None or controller.system == MACHINE:
        return True
    root = programs.files(controller.system, controller.short).folder
    return any(os.path.lexists(root / place / program) for place in ("bin", "sbin", "usr/bin", "usr/sbin"))
