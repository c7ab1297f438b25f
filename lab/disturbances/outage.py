"""An outage made to measure: the proxy stands still for a known time. What is measured of it has a known answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.base.errors import NotMeasurableError
from lab.disturbances._asked import deployment, replicas
from lab.model.disturbance import Disturbance, Manifests, Stage


class Outage(Disturbance):
    kind: Literal["outage"] = "outage"
    for_s: float = Field(default=2.0, ge=0.1, le=600, description="how long the proxy's processes are stopped")

    @property
    def lasts_s(self) -> float:
        return self.for_s + 1

    @property
    def acts_s(self) -> float:
        return self.for_s

    def vet(self, manifests: Manifests) -> None:
        """Only the first pod is stopped: where another answers there is no outage."""
        deployment(manifests, "proxy")
        if (count := replicas(manifests, "proxy")) != 1:
            fault = f"one proxy pod stands still, and the variant has {count}"
            raise NotMeasurableError("proxy pods", "disturbance.kind: outage", fault, "take a variant with one")

    def disturb(self, stage: Stage) -> None:
        stage.say("Begin", detail="SIGSTOP to the proxy", role="proxy")
        stage.system.freeze("proxy", True)
        try:
            stage.wait(self.for_s)
        finally:
            stage.system.freeze("proxy", False)
            stage.say("End", detail="SIGCONT to the proxy", role="proxy")


KIND = Outage
