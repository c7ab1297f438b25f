"""The workers that really run: recorded in every sample, and told where they are not those that the manifests make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from lab.measure.measurement import ChosenGenerator
from lab.measure.sample_run import SampleRun
from lab.measure.steady import Steady
from lab.model.plan import Arm, Slot
from lab.model.samples import Sample
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget, point


@dataclass
class Counted(FakeSystem):
    running: Mapping[str, float] = field(default_factory=dict[str, float])

    def gauges(self) -> Mapping[str, float]:
        return self.running


def measured(running: Mapping[str, float], asked: int | None) -> Sample:
    system, generator = Counted(running=running), FakeGenerator()
    chosen = ChosenGenerator(generator, generator.binary, "1", None)
    slot = Slot(1, 1, Arm("a", "a", "variant", None), point())
    run = SampleRun(FakeTarget(), system, slot, chosen, 0, 0.0, ())
    return replace(run, workers=asked).measure(Steady(system, point(), generator), 1).sample


@pytest.mark.parametrize(("asked", "told"), [(2, False), (None, False), (1, True), (4, True)])
def test_a_number_that_is_not_the_manifests_is_told(asked: int | None, told: bool) -> None:
    sample = measured({"proxy/workers": 2.0}, asked)
    assert sample.gauges["proxy/workers"] == 2.0
    said = f"the manifests make {asked} workers or threads of the proxy, 2 run"
    assert (said in sample.notes) is told


def test_of_what_was_not_counted_nothing_is_told() -> None:
    assert not [note for note in measured({}, 4).notes if "workers" in note]
