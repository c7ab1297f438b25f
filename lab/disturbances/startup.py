"""The disruption by a restart of the proxy with all its routes, with a limited CPU if that is requested.

A run with this disruption shows whether the proxy's startup probe waits long enough. The key `routes` sets the number of
routes: before the load, copies of the variant's route are added, and the load begins when the proxy serves the last copy.

The proxy is killed with SIGKILL, so that the same pod restarts its container: a new pod would not have the CPU limit.
The duration of a start is the time between the kill and the first answer.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.base.errors import refuse_if
from lab.disturbances import _changing
from lab.disturbances._asked import await_answers, deployment, replicas, status_fault
from lab.disturbances.starve import CPU
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests

POLL_S = 0.25
SERVED_S, SERVED_PER_ROUTE_S = 60.0, 0.05
"""The seconds within which all routes must be served before the load: a constant, and an addition per route."""


class Startup(Disturbance):
    """The disruption by a restart of the proxy's container, with a limited CPU and additional routes if these are requested."""

    kind: Literal["startup"] = "startup"
    cpu: str | None = Field(
        default=None, pattern=CPU, description="all it has to start with; null = as the manifests say"
    )
    within_s: float = Field(ge=1, le=3600, description="how long it may take; it has its CPU again once it is ready")
    routes: int | None = Field(
        default=None, ge=1, le=20_000, description="how many routes there are in all; null = the variant's own"
    )

    @property
    def prepared(self) -> tuple[object, ...]:
        """A tuple that identifies what the disruption sets up before the load; it includes the number of routes.

        Load points (loads of a sweep) with equal tuples share their control runs, which are runs without the
        disruption.
        """
        return (*super().prepared, self.routes)

    @property
    def acts_s(self) -> float:
        """The seconds for which the disruption acts: the longest time that the proxy's restart may take.

        If the proxy is ready earlier, the event End is logged at that earlier time.
        """
        return self.within_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant that has no proxy.

        If the sweep requests a number of routes, also refuse a variant that has more routes already, or none to copy.
        """
        deployment(manifests, "proxy")
        if self.routes is not None:
            _changing.find_template(manifests)
            count = _count_routes(manifests)
            refuse_if(
                count > self.routes,
                "disturbance.routes",
                f"asks for {self.routes} routes, the variant has {count} of its own",
                f"{count} at least, or a variant with fewer",
            )

    def prepare(self, context: DisturbanceContext) -> None:
        """Add copies of the variant's route up to the requested number of routes, and wait until the proxy serves the last copy.

        Do nothing if the field `routes` is None, or the variant has so many routes already.
        """
        extra = (
            []
            if self.routes is None
            else _changing.copy_routes(context.manifests, self.routes - _count_routes(context.manifests))
        )
        if not extra:
            return
        context.system.apply(extra)
        last = context.system.entry().at(_changing.host_of_copy(extra[-1]["metadata"]["name"]))
        within_s = SERVED_S + SERVED_PER_ROUTE_S * len(extra)
        await_answers(context, last, status_fault, within_s, f"the last of {self.routes} routes is not served")

    def disturb(self, context: DisturbanceContext) -> None:
        """Kill the proxy's container, so that it restarts, and wait until `within_s` seconds are over.

        A requested CPU limit is set before the kill. The limit is lifted once all proxy pods are ready again, or after
        `within_s` seconds.
        """
        context.say("Begin", detail=f"SIGKILL, to start with {self.cpu or 'its own'} CPU", role="proxy")
        if self.cpu is not None:
            context.system.squeeze("proxy", self.cpu)
        try:
            # The limit ends when the proxy is ready or out of time, so that the requests after it are not starved, too.
            count, before = replicas(context.manifests, "proxy"), dict(context.system.restarts())
            context.system.end_pod("proxy", "crash")
            while context.now_s < self.at_s + self.within_s and (
                dict(context.system.restarts()) == before or len(context.system.pods("proxy")) < count
            ):
                context.wait(POLL_S)
        finally:
            if self.cpu is not None:
                context.system.squeeze("proxy", None)
            context.say("End", role="proxy")
        context.wait_until(self.at_s + self.within_s)


def _count_routes(manifests: Manifests) -> int:
    return sum(obj["kind"] in _changing.KINDS for obj in manifests)
