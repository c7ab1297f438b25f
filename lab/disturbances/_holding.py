"""What kinds have in common that hold long-lived connections meanwhile: the keys, and that they go on beside the load."""

from __future__ import annotations

from pydantic import Field

from lab.base.errors import UsageError
from lab.disturbances._asked import replicas
from lab.disturbances._long_lived import FIXTURE, held
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests


class Holding(Disturbance):
    websockets: int = Field(default=0, ge=0, le=1000, description="WebSockets held open meanwhile, through the proxy")
    downloads: int = Field(
        default=0, ge=0, le=1000, description="slow downloads held open meanwhile, through the proxy"
    )

    @property
    def fixtures(self) -> tuple[str, ...]:
        return (FIXTURE,) if self.websockets or self.downloads else ()

    @property
    def prepared(self) -> tuple[object, ...]:
        return *super().prepared, self.websockets, self.downloads

    def vet(self, manifests: Manifests) -> None:
        if self.websockets and (count := replicas(manifests, "backend")) > 1:
            fault = f"the server of WebSockets is in one of {count} backend pods, and the proxy asks them all"
            remedy = "a sweep without them, or a variant with one backend pod"
            raise UsageError("disturbance.websockets", fault, remedy)

    def prepare(self, context: DisturbanceContext) -> None:
        """All are open before the load begins, in control runs too: what cuts them, and what they cost beside a change, is the change's."""
        context.beside.enter_context(held(context, self.websockets, self.downloads))
