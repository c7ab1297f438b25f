"""The apiserver target: the local target's processes, network and small kubelet, and a real API server that real controllers watch.

The rendered manifests go to kube-apiserver by server-side apply; a proxy's container is the controller's own program in a root of
its own files. No kubelet, rollouts, CNI or scheduler: what those do is kind's to show.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lab.base.errors import NotMeasurableError
from lab.model.endpoint import Endpoint
from lab.model.events import EventLog
from lab.model.names import INSIDE
from lab.model.pairs import Side
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.targets.apiserver import objects, programs, providing
from lab.targets.apiserver.images import table as images
from lab.targets.apiserver.registry import Place, Registry
from lab.targets.apiserver.servers import PORT, Servers
from lab.targets.cluster.objects import on_side
from lab.targets.local.containers import Realisation
from lab.targets.local.images import Context
from lab.targets.local.kubelet import Kubelet
from lab.targets.local.network import Network
from lab.targets.local.objects import Objects
from lab.targets.local.pods import Container, Pod
from lab.targets.local.routing import Routes
from lab.targets.local.target import LocalTarget

LSATTR = "lsattr"


class ApiserverTarget(LocalTarget):
    """One API server for a run, from `check` to `close`; both sides of a pair are on it."""

    name = "apiserver"
    bring_up_s = 4.3

    def __init__(self) -> None:
        super().__init__()
        self.servers = Servers()

    def enter(self, argv: Sequence[str]) -> int | None:
        if INSIDE not in os.environ:
            providing.provide()
        return super().enter(argv)

    def check(self) -> None:
        super().check()
        self.servers.start()

    def close(self) -> None:
        self.servers.stop()

    def facts(self) -> Mapping[str, str]:
        own = {
            "target": "apiserver: the real controllers as processes, a real API server (no kubelet, CNI or scheduler)",
            **{name: programs.version(programs.server(name)) for name in programs.SERVERS},
            "controllers": " | ".join(image.about() for image in images.there().values()),
        }
        kept = {key: value for key, value in super().facts().items() if key not in ("allocator", "haproxy")}
        return {**kept, **own}

    def manifests(self, variant: Variant, side: Side) -> Sequence[Mapping[str, Any]]:
        return on_side(variant.manifests, side)

    def read(self, manifests: Sequence[Mapping[str, Any]]) -> Objects:
        return super().read(objects.read(manifests))

    def realise(self, context: Context) -> Realisation:
        return images.realise(context)

    def check_variant(self, variant: Variant, points: Sequence[Point]) -> Mapping[str, Endpoint]:
        found = super().check_variant(variant, points)
        (pod, *_) = self.read(variant.manifests).role("proxy") or [None]
        for check in variant.readback:
            if pod and check.kind == "disk" and check.value == "sync" and not images.has(pod.containers[0], LSATTR):
                fault = f"the controller's files have no {LSATTR}, which tells whether {check.name} waits for the disk"
                raise NotMeasurableError("a slow disk", variant.name, fault, "--target local or kind shows it")
        return found

    def order(self, wanted: Objects) -> Sequence[Sequence[Pod]]:
        """No controller's first look is at less than what it is to serve; a load balancer resolves the proxy when it starts."""
        return [wanted.role("backend"), wanted.role("proxy"), wanted.role("balancer")]

    def fixed(self, container: Container) -> bool:
        return images.find(container.repository) is None

    def renews(self, container: Container) -> bool:
        image = images.find(container.repository)
        return super().renews(container) if image is None else image.RENEW is not None

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
        place = Place(self.servers.api(), side, self.servers.authority, PORT, self.servers.processes)
        return Registry([dict(obj) for obj in manifests], place, wanted, net, kubelet, log, changing)
