"""The disruption by repeated changes of routes or endpoints, with or without long-lived connections.

    what = "routes"       each change is another configuration for the host that the load requests
    what = "endpoints"    each change moves the endpoints of the host's Service

Each answer shows the latest change that the proxy has loaded (see `_changing`). So the time until a change takes effect
can be measured. The next change does not wait until the previous change has taken effect.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from lab.base.errors import MeasuringError
from lab.base.validation import refuse_broken_rules
from lab.disturbances import _changing
from lab.disturbances._asked import SETTLE, await_answers, refuse_short_wait, reload_interval_s, status_fault
from lab.disturbances._background import FIXTURE, HoldingDisturbance
from lab.model.disturbance import DisturbanceContext, Manifests
from lab.model.endpoint import Response

READY_S = 30.0
"""The seconds within which the first configuration must be served, in addition to the wait for a reload."""
LATE_S = 1.0
"""The largest delay of a change, in seconds: beyond it, the requested rate of changes counts as missed."""


class Churn(HoldingDisturbance):
    """The disruption by a constant rate of changes of routes or endpoints."""

    host = _changing.HOST

    kind: Literal["churn"] = "churn"
    what: Literal["routes", "endpoints"] = Field(description="what changes: a route's configuration, or its endpoints")
    per_s: float = Field(gt=0, le=50, description="changes per second")
    for_s: float = Field(ge=1, le=3600, description="for how long")
    settles_s: float = Field(default=10.0, ge=1, le=600, description="how long the last change may take to be served")

    @model_validator(mode="after")
    def _check_ports(self) -> Churn:
        message = (
            f"disturbance.per_s: {self.count} changes of endpoints, there are {_changing.MAX_ENDPOINT_CHANGES} at most"
        )
        refuse_broken_rules((self.what == "endpoints" and self.count > _changing.MAX_ENDPOINT_CHANGES, message))
        return self

    @property
    def count(self) -> int:
        """The number of changes of routes or endpoints that the disruption makes in total."""
        return max(1, round(self.per_s * self.for_s))

    @property
    def lasts_s(self) -> float:
        """The seconds from the beginning of the disruption until the proxy must have loaded the last change of routes or endpoints."""
        return self.for_s + self.settles_s

    @property
    def acts_s(self) -> float:
        """The seconds during which the disruption makes changes of routes or endpoints."""
        return self.for_s

    @property
    def fixtures(self) -> tuple[str, ...]:
        """The names of the fixtures (components of manifests/fixtures) that the disruption adds to the variant.

        It is always the fixture `answers`, which makes each answer show the latest change that the proxy has loaded.
        """
        return (FIXTURE,)

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant that the disruption by changing routes cannot be applied to.

        Such a variant has no usable route, or its proxy reloads so rarely that the last change would not be loaded within
        `settles_s` seconds. If the disruption opens WebSockets, a variant with several backend pods is refused, too.
        """
        super().vet(manifests)
        _changing.find_template(manifests)
        fault = (
            f"a change may wait {{interval_s}} for its reload, and the load ends {self.settles_s:g} s after the last"
        )
        refuse_short_wait(manifests, "settles_s", self.settles_s, fault, ", as reload-long has")

    def prepare(self, context: DisturbanceContext) -> None:
        """Create the route that will be changed, with its Service and endpoints, and wait until the proxy serves it.

        Then open the long-lived connections that stay open during the load, if any are requested.
        """

        def check(answer: Response) -> str:
            unmarked = "" if "x-lab-answer" in answer.headers else "the answer does not say where it comes from"
            return status_fault(answer) or unmarked

        manifests, address = context.manifests, context.system.pod_address("backend")
        context.system.apply(
            [
                _changing.build_service(manifests),
                _changing.build_endpoints(manifests, address, 0),
                _changing.build_route(manifests, 0),
            ]
        )
        within_s = READY_S + SETTLE * reload_interval_s(manifests)
        await_answers(context, context.system.entry().at(_changing.HOST), check, within_s, "is not served")
        super().prepare(context)

    def disturb(self, context: DisturbanceContext) -> None:
        """Make each change of routes or endpoints when it is due, until `for_s` seconds are over.

        Raises:
            MeasuringError: The system accepted a change more than `LATE_S` seconds after it was due.

        """
        context.say("Begin", detail=f"{self.count} changes of {self.what}, {self.per_s:g} per second")
        began_s, address = context.now_s, context.system.pod_address("backend")
        for number in range(1, self.count + 1):
            due_s = began_s + (number - 1) / self.per_s
            context.wait_until(due_s)
            if self.what == "endpoints":
                changed = _changing.build_endpoints(context.manifests, address, number)
            else:
                changed = _changing.build_route(context.manifests, number)
            context.change(number, self.what, [changed])
            if context.now_s > due_s + LATE_S:
                fault = f"change {number} was accepted {context.now_s - due_s:.1f} s after it was due"
                raise MeasuringError("churn", fault, "ask for fewer per second: the system accepts no more")
        context.wait_until(began_s + self.for_s)
        context.say("End")
