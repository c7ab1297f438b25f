"""The disruption by a new route for a host that the proxy does not know yet.

Requests for that host come throughout: the answers are 404 or 503 first, and 200 once the route works. The route is a
copy of the variant's first Route, Ingress or HTTPRoute, in addition to those that the variant has.
The proxy's answer before the route (ingress-nginx 404, OKD's router 503) counts as right until the first 200, and as
stale after it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lab.base.errors import MeasuringError, NotMeasurableError
from lab.disturbances import _changing
from lab.disturbances._asked import FETCH_S, PAGE, refuse_short_wait
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests

HOST = "new.apps.lab.test"
NAME = "new"
NOT_THERE = frozenset({404, 503})


class NewRoute(Disturbance):
    """The disruption by one new route, for a host that the load requests before the proxy knows it."""

    host, awaited = HOST, NOT_THERE

    kind: Literal["new-route"] = "new-route"
    within_s: float = Field(default=10.0, ge=1, le=3600, description="how long it may take until the host is answered")

    @property
    def lasts_s(self) -> float:
        """The seconds after the disruption's begin (`at_s`) in which the new route's host must be answered."""
        return self.within_s

    @property
    def acts_s(self) -> float:
        """The seconds that the disruption acts: as long as the new route's host may take to be answered.

        The action itself, creating the route, is momentary and never undone.
        """
        return self.within_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant without a usable route, or whose reloads come too rarely for `within_s`."""
        new_route(manifests)
        fault = f"a new route may wait {{interval_s}} for its reload, and is given {self.within_s:g} s"
        refuse_short_wait(manifests, "within_s", self.within_s, fault, ", and its duration_s with it")

    def prepare(self, context: DisturbanceContext) -> None:
        """Check that the proxy does not know the host yet; otherwise the first good answer would mean nothing.

        Raises:
            MeasuringError: The proxy does not answer, or answers with another status than 404 or 503.

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
        """Create the route."""
        route = new_route(context.manifests)
        context.say("Begin", detail=f"a {route['kind']} for {HOST}", role="proxy")
        context.change(1, "status", [route], role="proxy")


def new_route(manifests: Manifests) -> dict[str, Any]:
    """Return a copy of the variant's first route, with another name and host.

    A Route comes before an Ingress, and an Ingress before an HTTPRoute.

    Raises:
        NotMeasurableError: The variant has no route, or the Route is a passthrough route. The proxy chooses such a
            route by the host name in the TLS handshake, and the load sends another host's name there.

    """
    place = "disturbance.kind: new-route"
    routes = [obj for kind in _changing.KINDS for obj in manifests if obj["kind"] == kind]
    if not routes:
        raise NotMeasurableError("no routes", place, f"the variant has no {', '.join(_changing.KINDS)}", "leave it out")
    termination = routes[0]["spec"].get("tls", {}).get("termination") if routes[0]["kind"] == "Route" else None
    if termination == "passthrough":
        fault = "the name in the handshake chooses among passthrough routes, and the load's is another host's"
        raise NotMeasurableError("passthrough", place, fault, "measure it on okd or okd-edge")
    return _changing.copy_route(routes[0], NAME, HOST)
