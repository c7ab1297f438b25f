"""The proxy dies and must start again with all its routes, perhaps with little CPU: does its startup probe wait long enough?

`routes` has that many made before the load, all like the variant's own, and waits until the last is served.

By SIGKILL, so that the same pod starts its container anew: a new pod would not have the limit. Between dying and
the first answer lies what it takes to start.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.base.errors import UsageError
from lab.disturbances import _changing
from lab.disturbances._asked import await_answers, deployment, not_200, replicas
from lab.disturbances.starve import CPU
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests

POLL_S = 0.25
SERVED_S, EACH_S = 60.0, 0.05
"""For all routes to be served before the load: a while, and so much for each."""


class Startup(Disturbance):
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
        return (*super().prepared, self.routes)

    @property
    def acts_s(self) -> float:
        return self.within_s  # its End is when it is ready, where it is so earlier

    def vet(self, manifests: Manifests) -> None:
        deployment(manifests, "proxy")
        if self.routes is not None:
            _changing.template(manifests)
            if (own := _own(manifests)) > self.routes:
                fault = f"asks for {self.routes} routes, the variant has {own} of its own"
                raise UsageError("disturbance.routes", fault, f"{own} at least, or a variant with fewer")

    def prepare(self, context: DisturbanceContext) -> None:
        """As many routes as are asked for, the last of them served."""
        more = [] if self.routes is None else _changing.copies(context.manifests, self.routes - _own(context.manifests))
        if not more:
            return
        context.system.apply(more)
        last = context.system.entry().at(_changing.host_of(more[-1]["metadata"]["name"]))
        within_s = SERVED_S + EACH_S * len(more)
        await_answers(context, last, not_200, within_s, f"the last of {self.routes} routes is not served")

    def disturb(self, context: DisturbanceContext) -> None:
        context.say("Begin", detail=f"SIGKILL, to start with {self.cpu or 'its own'} CPU", role="proxy")
        if self.cpu is not None:
            context.system.squeeze("proxy", self.cpu)
        try:
            # until it and all others are ready again, or may take no longer: what follows is not to be starved as well
            wanted, before = replicas(context.manifests, "proxy"), dict(context.system.restarts())
            context.system.end_pod("proxy", "crash")
            while context.now_s < self.at_s + self.within_s and (
                dict(context.system.restarts()) == before or len(context.system.pods("proxy")) < wanted
            ):
                context.wait(POLL_S)
        finally:
            if self.cpu is not None:
                context.system.squeeze("proxy", None)
            context.say("End", role="proxy")
        context.wait_until(self.at_s + self.within_s)


def _own(manifests: Manifests) -> int:
    return sum(obj["kind"] in _changing.KINDS for obj in manifests)
