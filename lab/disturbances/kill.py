"""The disruption by a pod that ends while requests come: deleted, evicted as in a drain, or killed.

The Deployment creates a replacement. The disruption may hold long-lived connections, for whose end an old pod waits.
The lab does not help the recovery: the system alone determines what the replacement waits for, and which pods get
requests in the meantime.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from lab.base.validation import refuse_broken_rules
from lab.disturbances._asked import deployment, replicas
from lab.disturbances._beside import HoldingDisturbance
from lab.model.disturbance import DisturbanceContext, Manifests
from lab.model.endpoint import HowToEnd

RETRY_S = 5.0
"""The seconds until a refused eviction is tried again, as in `kubectl drain`."""


class Kill(HoldingDisturbance):
    """The disruption by the end of one pod or of all pods of a role."""

    kind: Literal["kill"] = "kill"
    role: Literal["proxy", "backend"] = "proxy"
    how: HowToEnd = Field(default="delete", description="as kubectl delete pod, as kubectl drain, or by SIGKILL")
    pods: Literal["one", "all"] = Field(default="one", description="all: as many as there are, one after the other")
    recovers_s: float = Field(
        default=30.0, ge=1, le=3600, description="how long until all is as before, about; a drain gives up then"
    )

    @model_validator(mode="after")
    def _refuse_repeated_crashes(self) -> Self:
        """Refuse the keys of a disruption that would crash all pods.

        Each crash goes to the first pod. A pod whose container crashed stays the first, and would crash repeatedly.
        """
        message = "disturbance.pods: a crashed pod stays the first, and would crash again: one, or delete or evict"
        refuse_broken_rules((self.how == "crash" and self.pods == "all", message))
        return self

    @property
    def acts_s(self) -> float:
        """The seconds that the disruption acts: until everything has recovered from the end of the pods.

        The action itself, ending a pod, is momentary and never undone.
        """
        return self.recovers_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant without a Deployment of the role."""
        super().vet(manifests)
        deployment(manifests, self.role)

    def disturb(self, context: DisturbanceContext) -> None:
        """End the pods one after the other, and wait until `recovers_s` seconds are over.

        A refused eviction is tried again within that time.
        """
        count = replicas(context.manifests, self.role) if self.pods == "all" else 1
        until_s = context.now_s + self.recovers_s
        context.say("Begin", detail=f"{self.how} {self.pods}", role=self.role)
        while count > 0:
            if context.system.end_pod(self.role, self.how):
                count -= 1
            elif context.now_s + RETRY_S > until_s:
                break  # a PodDisruptionBudget refused the eviction in all attempts
            else:
                context.wait(RETRY_S)
        context.wait_until(until_s)
        context.say("End", role=self.role)
