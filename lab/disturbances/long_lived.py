"""Nothing but connections that last: what they cost the proxy, and the small requests beside them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from lab.disturbances._long_lived import Holding, held
from lab.model.disturbance import DisturbanceContext

OPENS_S = 5.0
"""Until all are open: a process, and a handshake for each."""


class LongLived(Holding):
    kind: Literal["long-lived"] = "long-lived"
    for_s: float = Field(default=30.0, ge=1, le=86_400, description="for how long")

    @model_validator(mode="after")
    def _some(self) -> LongLived:
        if not self.websockets and not self.downloads:
            raise ValueError("disturbance.websockets: nothing is held: ask for some, or for downloads")
        return self

    @property
    def lasts_s(self) -> float:
        return OPENS_S + self.for_s

    @property
    def acts_s(self) -> float:
        return self.for_s

    def prepare(self, context: DisturbanceContext) -> None:
        """They are the disturbance here: a control run has none."""

    def disturb(self, context: DisturbanceContext) -> None:
        context.say("Begin", detail=f"{self.websockets} WebSockets, {self.downloads} downloads")
        with held(context, self.websockets, self.downloads):
            context.wait(self.for_s)
        context.say("End")
