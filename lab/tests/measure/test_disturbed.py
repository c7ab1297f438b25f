"""One measurement under a disturbance, with a system, a generator and a kind of disturbance that behave as told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl
import pytest

from lab import disturbances
from lab.base.errors import LostError, MeasuringError
from lab.measure.loop import MeasuringLoop
from lab.model.disturbance import Disturbance, DisturbanceContext
from lab.model.events import Event
from lab.model.load import GeneratorLoad
from lab.model.requests import REQUESTS_SCHEMA
from lab.model.samples import Reason, Sample
from lab.model.sweeps import LoadPoint
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget, bench, point


class Prodded(Disturbance):
    """Runs what the test says, in the place of a kind of disturbance."""

    kind: Literal["prodded"] = "prodded"
    what: str = "freeze"

    @property
    def acts_s(self) -> float:
        return 0.2

    @property
    def lasts_s(self) -> float:
        return 0.4

    def prepare(self, context: DisturbanceContext) -> None:
        context.system.apply([{"kind": "Service"}])
        if self.what == "unprepared":
            raise MeasuringError("Service changing", "is refused", "")
        if self.what == "slow":
            context.wait(0.2)

    def disturb(self, context: DisturbanceContext) -> None:
        if self.what == "refused":
            raise MeasuringError("pod proxy", "cannot be frozen", "")
        if self.what == "lost":
            raise LostError("cluster", "is gone", "")
        if self.what == "defect":
            raise ZeroDivisionError
        if self.what == "late":
            context.wait(60)
        context.system.freeze("proxy", True)
        context.say("Begin", role="proxy")


@dataclass
class Logging(FakeGenerator):
    """Says that it made `due` requests in the 1.5 s that it runs; `log` makes the rows of those."""

    script: str = """
import sys, time
print("the first request", file=sys.stderr, flush=True)
time.sleep(1.5)
print('{"requests": 150, "duration_s": 1.5, "bytes": 165000, "errors": {}}')
"""
    log: Callable[[], pl.DataFrame] | None = None

    def requests(self, stdout: str, stderr: str, load: GeneratorLoad) -> pl.DataFrame:
        assert load.logged
        return self.log() if self.log is not None else FakeGenerator.requests(self, stdout, stderr, load)


def rows() -> pl.DataFrame:
    began_s = time.time() - 1.5
    due = [began_s + number / 100 for number in range(150)]
    told: dict[str, Any] = {"number": range(150), "due_s": due, "sent_s": due, "done_s": [at + 0.001 for at in due]}
    every = {"status": 200, "error": "", "answer": "backend-0", "service_s": 0.001}
    told |= {name: [value] * 150 for name, value in every.items()}
    return pl.DataFrame(told, schema=REQUESTS_SCHEMA)


@pytest.fixture(autouse=True)
def prodded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disturbances, "DISTURBANCES", {"prodded": Prodded})


def disturbed(what: str, control: bool = False) -> LoadPoint:
    asked: dict[str, Any] = {"rate_rps": 100.0, "duration_s": 1.5, "timeout_s": 2.0, "control": control}
    asked["disturbance"] = Prodded(at_s=1.0, what=what)
    return point("control" if control else "prodded").model_copy(update=asked)


def run(
    at: Sequence[LoadPoint], system: FakeSystem | None = None, log: Callable[[], pl.DataFrame] | None = rows
) -> MeasuringLoop:
    return bench(1, at, Logging(log=log), FakeTarget(system=system or FakeSystem()))


def measured(at: LoadPoint, system: FakeSystem | None = None, log: Callable[[], pl.DataFrame] | None = rows) -> Sample:
    made = run([at], system, log)
    made.measure()
    return next(sample for sample in made.store.samples() if sample.arm == "ingress-nginx")


@pytest.mark.slow
def test_what_was_done_is_recorded_beside_what_the_system_said() -> None:
    seen = Event(time.time(), "kubelet", "proxy", "proxy-0", "NotReady")
    system = FakeSystem(happened=[seen])
    made = run([disturbed("freeze")], system)
    made.measure()
    sample = next(sample for sample in made.store.samples() if sample.arm == "ingress-nginx")
    assert (sample.verdict, sample.detail) == ("valid", "")
    assert sample.outcome["failed"] == 0
    assert sample.outcome["gap_s"] == 0
    assert {"Begin", "NotReady"} <= set(made.store.events(sample)["kind"])
    assert system.done[:2] == ["apply Service", "freeze proxy True"]


@pytest.mark.slow
def test_a_control_run_is_prepared_and_not_disturbed() -> None:
    """What the preparation took is recorded apart: a route waits for the proxy's next reload, which is no time of the lab's."""
    system = FakeSystem()
    made = run([disturbed("slow", control=True), disturbed("freeze")], system)
    made.measure()
    assert isinstance(made.target, FakeTarget)
    assert len(made.target.ups) == 4, "of two arms, two points, one block every sample has a system of its own"
    controls = [sample for sample in made.store.samples() if sample.point.control]
    assert all(sample.valid and (sample.prepared_s or 0) >= 0.2 for sample in controls)
    assert system.done.count("apply Service") == 4 and system.done.count("freeze proxy True") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"),
    [("refused", "cannot be frozen"), ("late", "the load was over before it was done"), ("unprepared", "is refused")],
)
def test_what_could_not_be_done_makes_the_sample_invalid(what: str, said: str) -> None:
    sample = measured(disturbed(what))
    assert sample.reason is Reason.DISTURBANCE_FAILED
    assert said in sample.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"system": FakeSystem(happened=MeasuringError("watch", "broke off", ""))}, Reason.EVENT_LOG),
        ({"log": None}, Reason.REQUEST_LOG),
    ],
)
def test_events_or_a_log_that_may_not_be_whole_make_the_sample_invalid(changed: dict[str, Any], reason: Reason) -> None:
    assert measured(disturbed("freeze"), **changed).reason is reason


@pytest.mark.slow
def test_an_answer_that_failed_in_a_control_run_makes_it_invalid() -> None:
    def failing() -> pl.DataFrame:
        other = pl.when(pl.col("number") == 70).then(503).otherwise(pl.col("status"))
        return rows().with_columns(other.cast(pl.Int32).alias("status"))

    told = Logging(Logging().script.replace('"errors": {}', '"errors": {"status": 1}'), log=failing)
    made = bench(1, [disturbed("freeze", control=True)], told, FakeTarget())
    made.measure()
    assert made.store.samples()[0].reason is Reason.CONTROL_FAILED


@pytest.mark.slow
@pytest.mark.parametrize(("what", "error"), [("lost", LostError), ("defect", ZeroDivisionError)])
def test_a_lost_system_or_a_defect_ends_the_run_and_nothing_is_recorded(what: str, error: type[Exception]) -> None:
    made = run([disturbed(what)])
    with pytest.raises(error):
        made.measure()
    assert made.store.samples() == []
