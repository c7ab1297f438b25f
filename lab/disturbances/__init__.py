"""Disturbances: what is done to a system while a load runs. One file per kind, and a table of the kinds.

A kind is a `Disturbance` with its own keys: the table `[disturbance]` of a sweep, or `disturbance = {…}` of one of its
points. It acts through `DisturbanceContext` only, so that a kind works on every target that can do what it asks for. Refuses to judge
what came of it: that is `lab.records.outcomes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.disturbances.backends import Backends
from lab.disturbances.churn import Churn
from lab.disturbances.kill import Kill
from lab.disturbances.new_route import NewRoute
from lab.disturbances.outage import Outage
from lab.disturbances.startup import Startup
from lab.disturbances.starve import Starve
from lab.disturbances.transfer import Transfer
from lab.model.disturbance import Disturbance

DISTURBANCES: Mapping[str, type[Disturbance]] = {
    "backends": Backends,
    "churn": Churn,
    "kill": Kill,
    "new-route": NewRoute,
    "outage": Outage,
    "startup": Startup,
    "starve": Starve,
    "transfer": Transfer,
}
"""The `kind` of a sweep's table → its class."""
