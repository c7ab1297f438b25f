"""The proxy dies and must start again with all its routes, perhaps with little CPU: does its startup probe wait long enough?

By SIGKILL, so that the same pod starts its container anew: a new pod would not have the limit. Between dying and
the first answer lies what it takes to start.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.disturbances._asked import deployment, replicas
from lab.disturbances.starve import CPU
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests

POLL_S = 0.25


class Startup(Disturbance):
    kind: Literal["startup"] = "startup"
    cpu: str | None = Field(
        default=None, pattern=CPU, description="all it has to start with; null = as the manifests say"
    )
    within_s: float = Field(ge=1, le=3600, description="how long it may take; it has its CPU again once it is ready")

    @property
    def acts_s(self) -> float:
        return self.within_s  # its End is when it is ready, where it is so earlier

    def vet(self, manifests: Manifests) -> None:
        deployment(manifests, "proxy")

    def disturb(self, context: DisturbanceContext) -> None:
        context.say("Begin", detail=f"SIGKILL, to start with {self.cpu or 'its own'} CPU", role="proxy")
        if self.cpu is not None:
            context.system.squeeze("proxy", self.cpu)
        try:
            self._start(context)
        finally:
            if self.cpu is not None:
                context.system.squeeze("proxy", None)
            context.say("End", role="proxy")
        context.wait_until(self.at_s + self.within_s)

    def _start(self, context: DisturbanceContext) -> None:
        """Until it and all others are ready again, or may take no longer: what follows is not to be starved as well."""
        wanted = replicas(context.manifests, "proxy")
        before = dict(context.system.restarts())
        context.system.end_pod("proxy", "crash")
        while context.now_s < self.at_s + self.within_s:
            if dict(context.system.restarts()) != before and len(context.system.pods("proxy")) >= wanted:
                return
            context.wait(POLL_S)


KIND = Startup
