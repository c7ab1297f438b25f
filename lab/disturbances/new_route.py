"""A route for a host that the proxy does not know yet, while requests for that host come: 404 or 503, and then 200.

It is one more like the variant's first Route, Ingress or HTTPRoute, so that it lands among as many as the variant has. What the proxy
answers until then (ingress-nginx 404, OKD's router 503) is right then, and a stale answer once another had come.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lab.base.errors import MeasuringError, NotMeasurableError
from lab.disturbances import _changing
from lab.disturbances._asked import FETCH_S, PAGE, refuse_impatient
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests

HOST = "new.apps.lab.test"
NAME = "new"
NOT_THERE = frozenset({404, 503})


class NewRoute(Disturbance):
    host, awaited = HOST, NOT_THERE

    kind: Literal["new-route"] = "new-route"
    within_s: float = Field(default=10.0, ge=1, le=3600, description="how long it may take until the host is answered")

    @property
    def lasts_s(self) -> float:
        return self.within_s

    @property
    def acts_s(self) -> float:
        return self.within_s  # done in a moment, and never undone

    def vet(self, manifests: Manifests) -> None:
        new_route(manifests)
        fault = f"a new route may wait {{interval_s}} for its reload, and is given {self.within_s:g} s"
        refuse_impatient(manifests, "within_s", self.within_s, fault, ", and its duration_s with it")

    def prepare(self, context: DisturbanceContext) -> None:
        """The host must be unknown: else the first answer would mean nothing."""
        entry = context.system.entry().at(HOST)
        place = f"{entry.base_url}, host {HOST}"
        try:
            status = context.system.fetch(entry, PAGE, FETCH_S).status
        except OSError as error:
            raise MeasuringError(place, str(error), "the proxy should answer 404 or 503") from None
        if status not in NOT_THERE:
            fault = f"status {status}, and there is no route for it yet"
            raise MeasuringError(place, fault, "somebody else's route has this host")

    def disturb(self, context: DisturbanceContext) -> None:
        route = new_route(context.manifests)
        context.say("Begin", detail=f"a {route['kind']} for {HOST}", role="proxy")
        context.change(1, "status", [route], role="proxy")


def new_route(manifests: Manifests) -> dict[str, Any]:
    """The variant's first Route, else its first Ingress or HTTPRoute, with another name and host. NotMeasurableError where it has none."""
    place = "disturbance.kind: new-route"
    found = [obj for kind in _changing.KINDS for obj in manifests if obj["kind"] == kind]
    if not found:
        raise NotMeasurableError("no routes", place, f"the variant has no {', '.join(_changing.KINDS)}", "leave it out")
    termination = found[0]["spec"].get("tls", {}).get("termination") if found[0]["kind"] == "Route" else None
    if termination == "passthrough":
        fault = "the name in the handshake chooses among passthrough routes, and the load's is another host's"
        raise NotMeasurableError("passthrough", place, fault, "measure it on okd or okd-edge")
    return _changing.copied(found[0], NAME, HOST)
