"""The disruption by too little CPU for the proxy or the backend: a CPU limit on the first container of its pods.

The limit has the effect of an overcommitted node. The user has to choose the limit, because the same limit affects a slow
machine more than a fast one.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.disturbances._asked import deployment
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests

CPU = r"^([1-9]\d*m|[1-9]\d*(\.\d+)?|0\.\d*[1-9]\d*)$"
"""The pattern of a CPU limit in Kubernetes notation: `20m`, `0.5`, `2`."""


class Starve(Disturbance):
    """The disruption by a temporary CPU limit on the first container of all pods of a role (`proxy` or `backend`)."""

    kind: Literal["starve"] = "starve"
    role: Literal["proxy", "backend"] = "proxy"
    cpu: str = Field(pattern=CPU, description="what it is left with: 20m = two hundredths of a core")
    for_s: float = Field(ge=1, le=3600, description="how long")
    recovers_s: float = Field(default=5.0, ge=1, le=600, description="how long it may still matter afterwards")

    @property
    def lasts_s(self) -> float:
        """The seconds from the beginning of the CPU limit until the system should have recovered from it."""
        return self.for_s + self.recovers_s

    @property
    def acts_s(self) -> float:
        """The seconds during which the CPU limit of the disruption is in force."""
        return self.for_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant that has no Deployment of the role whose pods get the CPU limit."""
        deployment(manifests, self.role)

    def disturb(self, context: DisturbanceContext) -> None:
        """Limit the CPU of the role's pods, and lift the limit after `for_s` seconds."""
        context.say("Begin", detail=f"CPU limited to {self.cpu}", role=self.role)
        context.system.squeeze(self.role, self.cpu)
        try:
            context.wait(self.for_s)
        finally:
            context.system.squeeze(self.role, None)
            context.say("End", detail="CPU as before", role=self.role)
