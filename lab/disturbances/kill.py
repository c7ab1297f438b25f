"""A pod ends while requests come: deleted, evicted as a drained node's, or killed. Its Deployment makes another.

Long-lived connections may be held meanwhile: they are what an old pod waits for. Refuses to help it along: what the
replacement waits for, and who is asked meanwhile, is the system's own affair.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from lab.base.validation import refuse
from lab.disturbances._asked import deployment, replicas
from lab.disturbances._beside import Holding
from lab.model.disturbance import DisturbanceContext, Manifests
from lab.model.endpoint import HowToEnd

RETRY_S = 5.0
"""After a refused eviction, as `kubectl drain` does."""


class Kill(Holding):
    kind: Literal["kill"] = "kill"
    role: Literal["proxy", "backend"] = "proxy"
    how: HowToEnd = Field(default="delete", description="as kubectl delete pod, as kubectl drain, or by SIGKILL")
    pods: Literal["one", "all"] = Field(default="one", description="all: as many as there are, one after the other")
    recovers_s: float = Field(
        default=30.0, ge=1, le=3600, description="how long until all is as before, about; a drain gives up then"
    )

    @model_validator(mode="after")
    def _crashes_one(self) -> Self:
        """A pod whose container crashed is there still, and the first: it would crash again and again."""
        said = "disturbance.pods: a crashed pod stays the first, and would crash again: one, or delete or evict"
        refuse((self.how == "crash" and self.pods == "all", said))
        return self

    @property
    def acts_s(self) -> float:
        return self.recovers_s  # done in a moment, and never undone: `during` is until all is as before

    def vet(self, manifests: Manifests) -> None:
        super().vet(manifests)
        deployment(manifests, self.role)

    def disturb(self, context: DisturbanceContext) -> None:
        count = replicas(context.manifests, self.role) if self.pods == "all" else 1
        until_s = context.now_s + self.recovers_s
        context.say("Begin", detail=f"{self.how} {self.pods}", role=self.role)
        while count > 0:
            if context.system.end_pod(self.role, self.how):
                count -= 1
            elif context.now_s + RETRY_S > until_s:
                break  # a PodDisruptionBudget did not allow it for as long as was tried
            else:
                context.wait(RETRY_S)
        context.wait_until(until_s)
        context.say("End", role=self.role)
