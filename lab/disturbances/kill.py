"""The disruption by ending pods while requests come: a pod is deleted, evicted as in a drain, or killed.

The Deployment creates a replacement for a pod that was deleted or evicted. The disruption may keep long-lived connections
open, for whose end an old pod waits. The lab does not help the recovery: the system alone determines when the replacement is
ready, and which pods get requests in the meantime.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from lab.base.validation import refuse_broken_rules
from lab.disturbances._asked import deployment, replicas
from lab.disturbances._background import HoldingDisturbance
from lab.model.disturbance import DisturbanceContext, Manifests
from lab.model.endpoint import HowToEnd

RETRY_S = 5.0
"""The seconds until a refused eviction is tried again, as in `kubectl drain`."""


class Kill(HoldingDisturbance):
    """The disruption that ends one pod, or all pods, of a role (`proxy` or `backend`)."""

    kind: Literal["kill"] = "kill"
    role: Literal["proxy", "backend"] = "proxy"
    how: HowToEnd = Field(default="delete", description="as kubectl delete pod, as kubectl drain, or by SIGKILL")
    pods: Literal["one", "all"] = Field(default="one", description="all: as many as there are, one after the other")
    recovers_s: float = Field(
        default=30.0, ge=1, le=3600, description="how long until all is as before, about; a drain gives up then"
    )

    @model_validator(mode="after")
    def _refuse_repeated_crashes(self) -> Self:
        """Refuse a disruption that would crash all pods of a role.

        A crash always kills the first pod's container. The pod then restarts its container and remains the first pod. So
        repeated crashes would hit the same pod each time.
        """
        message = "disturbance.pods: a crashed pod stays the first, and would crash again: one, or delete or evict"
        refuse_broken_rules((self.how == "crash" and self.pods == "all", message))
        return self

    @property
    def acts_s(self) -> float:
        """The seconds for which the disruption counts as acting: from its beginning until the system should have recovered.

        They are the setting `recovers_s`. Ending a pod takes only a moment, and the lab does not undo it. So nothing else
        shows when the disruption is over.
        """
        return self.recovers_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant that has no Deployment of the role whose pods the disruption ends.

        If the disruption opens WebSockets, a variant with several backend pods is refused, too.
        """
        super().vet(manifests)
        deployment(manifests, self.role)

    def disturb(self, context: DisturbanceContext) -> None:
        """End the pods one after the other, and wait until `recovers_s` seconds after the beginning of the disruption.

        If a PodDisruptionBudget refuses an eviction, the eviction is tried again every `RETRY_S` seconds within that time.
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
