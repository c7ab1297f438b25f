"""The disturbance new-route: one route more for a host that nobody knew, in the variant's own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError
from lab.disturbances import DISTURBANCES
from lab.disturbances.new_route import HOST, NOT_THERE, NewRoute, new_route
from lab.model.disturbance import DisturbanceContext
from lab.model.endpoint import Endpoint, Response
from lab.model.events import EventLog
from lab.model.usage import USAGE_SCHEMA
from lab.model.variants.variants import load_variant
from lab.records.outcomes import outcome
from lab.records.sweep_files import load_sweep
from lab.records.tables import events_frame
from lab.tests.support.disturbed import ZERO_S, events, requests
from lab.tests.support.fakes import FakeSystem


@dataclass
class Knowing(FakeSystem):
    """`status`: of a host without a route."""

    status: int = 404
    applied: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        assert endpoint.host == HOST
        if self.status == 0:
            raise OSError("connection refused")
        return Response(self.status, b"", {})

    def apply(self, objects: Any) -> None:
        self.applied += objects


def context_of(system: Knowing, name: str, tmp_path: Path) -> DisturbanceContext:
    return DisturbanceContext(system, EventLog(), load_variant(name).manifests, tmp_path, lambda name: name)


@pytest.mark.parametrize(("variant", "kind"), [("baseline", "Ingress"), ("okd", "Route"), ("okd-edge", "Route")])
def test_it_is_one_more_like_the_first(variant: str, kind: str) -> None:
    manifests = load_variant(variant).manifests
    first = next(obj for obj in manifests if obj["kind"] == kind)
    new = new_route(manifests)
    assert (new["kind"], new["metadata"]["name"]) == (kind, "new") and HOST in str(new["spec"])
    for key in ("namespace", "labels"):
        assert new["metadata"].get(key) == first["metadata"].get(key)
    assert new["spec"].get("tls") == first["spec"].get("tls")
    assert first["metadata"]["name"] != "new" and HOST not in str(first)  # a copy


@pytest.mark.parametrize(("variant", "what"), [("nginx", "no routes"), ("okd-passthrough", "passthrough")])
def test_what_it_cannot_be_done_to_is_said(variant: str, what: str) -> None:
    with pytest.raises(NotMeasurableError) as raised:
        NewRoute().vet(load_variant(variant).manifests)
    assert raised.value.what == what


def test_a_route_that_may_wait_longer_for_its_reload_than_the_load_lasts_is_refused() -> None:
    slow = load_variant("reload-60s").manifests
    with pytest.raises(UsageError, match=r"disturbance\.within_s: .* 60 s for its reload.*\n.*within_s is 75 or more"):
        NewRoute().vet(slow)
    NewRoute(within_s=75.0).vet(slow)
    NewRoute().vet(load_variant("okd").manifests)


def test_it_is_applied_and_said(tmp_path: Path) -> None:
    system = Knowing()
    context = context_of(system, "baseline", tmp_path)
    NewRoute().prepare(context)
    assert system.applied == []  # nor in a control run
    NewRoute().disturb(context)
    assert [obj["kind"] for obj in system.applied] == ["Ingress"]
    said = [(row["kind"], row["object"]) for row in events_frame(context.log.events).iter_rows(named=True)]
    assert said == [("Begin", ""), ("Change", "1")]


@pytest.mark.parametrize(("status", "fault"), [(200, "there is no route for it yet"), (0, "connection refused")])
def test_a_host_that_is_answered_already_is_refused(status: int, fault: str, tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match=fault):
        NewRoute().prepare(context_of(Knowing(status=status), "okd", tmp_path))


def test_what_says_that_it_is_not_there_yet_is_right_until_it_is() -> None:
    """404 for 8 s, the change at 6 s: 2 s until correct, no failure; in the control run 404 all the time."""
    _, sweep = load_sweep("new-route")
    point, control = sweep.expanded()
    assert DISTURBANCES["new-route"] is NewRoute and point.disturbance is not None and point.disturbance.host == HOST
    change = events((6.0, "lab", "proxy", "1", "Change", f"status of {HOST}: a new Route"))
    usage = pl.DataFrame(schema=USAGE_SCHEMA)
    for status in sorted(NOT_THERE):
        log = requests(duration_s=18.0, out=(0.0, 8.0), status=status)
        found = outcome(point, log, change, usage, ZERO_S, 0.0)
        assert found["failed"] == 0 and found["gap_s"] == 0 and found["stale"] == 0
        assert found["correct_s"] == pytest.approx(2.0, abs=0.02)
        log = requests(duration_s=18.0, out=(0.0, 18.0), status=status)
        found = outcome(control, log, events(), usage, ZERO_S, 0.0)
        assert found["failed"] == 0 and found["gap_s"] == 0
        assert outcome(point, log, change, usage, ZERO_S, 0.0)["correct_s"] is None  # never seen
