"""Disruptions that the lab causes while a load runs: one module per kind, and the table of the kinds.

A kind of disruption is a subclass of `Disturbance`. The subclass has the keys of the table `[disturbance]` of a sweep
(a named list of loads), or of `disturbance = {…}` of one load point in the sweep. A disruption acts only through
`DisturbanceContext`, so that it works on every target that supports the action. `lab.records.outcomes` judges the
consequences.
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
"""The class of each `kind` that a sweep's table may name."""
