"""The disruption by a new route for a host that the proxy does not know yet.

Requests for that host come from the beginning of the load. The answers are 404 or 503 first, and 200 once the route works.
The new route is a copy of the variant's first Route, Ingress or HTTPRoute, and is added to the variant's own routes.
An answer 404 (ingress-nginx) or 503 (OKD's router) counts as right until the first 200, and as outdated afterwards.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lab.base.errors import MeasuringError, refuse_if
from lab.disturbances import _changing
from lab.disturbances._asked import FETCH_S, PAGE, refuse_short_wait
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests

HOST = "new.apps.lab.test"
NAME = "new"
NOT_THERE = frozenset({404, 503})


class NewRoute(Disturbance):
    """The disruption by one new route, for a host that the load requests from the beginning, before the route exists."""

    host, awaited = HOST, NOT_THERE

    kind: Literal["new-route"] = "new-route"
    within_s: float = Field(default=10.0, ge=1, le=3600, description="how long it may take until the host is answered")

    @property
    def lasts_s(self) -> float:
        """The seconds from the creation of the new route until the proxy must answer requests for the route's host."""
        return self.within_s

    @property
    def acts_s(self) -> float:
        """The seconds for which the disruption acts: as long as the proxy may take to answer requests for the new route's host.

        Creating the route is momentary and is never undone.
        """
        return self.within_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant that the disruption by a new route cannot be applied to.

        Such a variant has no route that can be copied, or its proxy reloads so rarely that the new route would not be loaded
        within `within_s` seconds.
        """
        new_route(manifests)
        fault = f"a new route may wait {{interval_s}} for its reload, and is given {self.within_s:g} s"
        refuse_short_wait(manifests, "within_s", self.within_s, fault, ", and its duration_s with it")

    def prepare(self, context: DisturbanceContext) -> None:
        """Check that the proxy answers 404 or 503 for the new route's host, because the route does not exist yet.

        So a good answer during the load shows that the new route works.

        Raises:
            MeasuringError: The proxy does not answer, or answers with another status.

        """
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
        """Create the new route, and log the time of its creation."""
        route = new_route(context.manifests)
        context.say("Begin", detail=f"a {route['kind']} for {HOST}", role="proxy")
        context.change(1, "status", [route], role="proxy")


def new_route(manifests: Manifests) -> dict[str, Any]:
    """Return the manifest of the new route: a copy of the variant's first route with another name and host.

    If the variant has Routes, the first of them is copied; otherwise the first Ingress, or else the first HTTPRoute.

    Raises:
        NotMeasurableError: The variant has no route, or its Route is a passthrough route. The proxy chooses a passthrough
            route by the host name in the TLS handshake, and the load sends another host's name there.

    """
    place = "disturbance.kind: new-route"
    routes = [obj for kind in _changing.KINDS for obj in manifests if obj["kind"] == kind]
    refuse_if(not routes, place, f"the variant has no {', '.join(_changing.KINDS)}", "leave it out", what="no routes")
    termination = routes[0]["spec"].get("tls", {}).get("termination") if routes[0]["kind"] == "Route" else None
    fault = "the name in the handshake chooses among passthrough routes, and the load's is another host's"
    refuse_if(termination == "passthrough", place, fault, "measure it on okd or okd-edge", what="passthrough")
    return _changing.copy_route(routes[0], NAME, HOST)
