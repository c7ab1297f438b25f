"""The disruption by an outage of known length; it shows whether the lab measures outages correctly."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.base.errors import refuse_if
from lab.disturbances._asked import deployment, replicas
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests


class Outage(Disturbance):
    """The disruption by freezing the processes of the only proxy pod for a given time (SIGSTOP, then SIGCONT).

    The processes are not ended, so they keep their connections.
    """

    kind: Literal["outage"] = "outage"
    for_s: float = Field(default=2.0, ge=0.1, le=600, description="how long the proxy's processes are stopped")

    @property
    def acts_s(self) -> float:
        """The seconds during which the proxy's processes are frozen."""
        return self.for_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant that does not have exactly one proxy pod.

        Only the first pod is stopped. With several pods the others would answer, and there would be no outage.
        """
        deployment(manifests, "proxy")
        count = replicas(manifests, "proxy")
        refuse_if(
            count != 1,
            "disturbance.kind: outage",
            f"one proxy pod stands still, and the variant has {count}",
            "take a variant with one",
            what="proxy pods",
        )

    def disturb(self, context: DisturbanceContext) -> None:
        """Stop the processes of the proxy pod with SIGSTOP, and continue them after `for_s` seconds."""
        context.say("Begin", detail="SIGSTOP to the proxy", role="proxy")
        context.system.freeze("proxy", True)
        try:
            context.wait(self.for_s)
        finally:
            context.system.freeze("proxy", False)
            context.say("End", detail="SIGCONT to the proxy", role="proxy")
