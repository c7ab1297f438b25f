"""One sample: the warm-up, as long as a point says where the generator can be told to end, and the workers that really run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from lab.generators import GENERATORS, Generator
from lab.measure.measurement import BegunSample, ChosenGenerator, SampleRun, parse_report
from lab.measure.steady import SteadyRegime
from lab.model.load import GeneratorLoad
from lab.model.plan import Arm, Slot
from lab.targets.common.process import GeneratorJob, run_generators
from lab.tests.support.answering import answering
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget, point

LOAD = GeneratorLoad(url="http://127.0.0.1:9/", host="h", connections=2, duration_s=5.0)


def warm_up(generator: Generator, warmup_s: float, tmp_path: Path, load: GeneratorLoad = LOAD) -> list[GeneratorJob]:
    job, unseen = GeneratorJob(FakeSystem(), generator, generator.binary, load, tmp_path), cast("Any", None)
    with ExitStack() as lasting:
        return BegunSample(unseen, unseen, unseen, job, warmup_s).warm_up(lasting)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize(("asked_s", "planned_s"), [(0.3, 1.0), (1.0, 1.0), (3.0, 3.0)])
def test_less_than_a_second_is_only_asked_of_who_can_be_interrupted(
    name: str, asked_s: float, planned_s: float, tmp_path: Path
) -> None:
    (job,) = warm_up(GENERATORS[name], asked_s, tmp_path)
    assert job.load.duration_s == planned_s
    cut = ("timeout", "--preserve-status", "--signal=INT", "0.3")
    assert job.before == (cut if asked_s < 1 and name == "wrk" else ())
    assert warm_up(GENERATORS[name], 0.0, tmp_path) == []
    many = replace(LOAD, hosts=("a", "b"), sni_per_host=True, url="https://127.0.0.1:9/")
    (job,) = warm_up(GENERATORS["wrk"], asked_s, tmp_path, many)
    assert job.before == (), "a shell that waits for many processes would end without them"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("wrk") is None, reason="no wrk on PATH")
def test_wrk_tells_what_it_did_until_it_was_interrupted(tmp_path: Path) -> None:
    """By which the length of slices is chosen; the run that it would have made is a minute."""
    wrk = GENERATORS["wrk"]
    with answering() as (port, _):
        (job,) = warm_up(wrk, 0.3, tmp_path, replace(LOAD, url=f"http://127.0.0.1:{port}/"))
        before = (*job.before[:-1], "3")  # not before it has begun, on a busy machine
        long = replace(job, load=replace(job.load, duration_s=60.0), scratch=tmp_path, before=before)
        (ended,) = run_generators([long])
    found, faults = parse_report(wrk, long.load, ended)
    assert not faults and found is not None and found.requests > 0 and 0 < found.duration_s < 50


@dataclass
class Counted(FakeSystem):
    running: Mapping[str, float] = field(default_factory=dict[str, float])

    def gauges(self) -> Mapping[str, float]:
        return self.running


@pytest.mark.parametrize(
    ("running", "asked", "told"), [(2, 2, False), (2, None, False), (2, 1, True), (2, 4, True), (None, 4, False)]
)
def test_a_number_of_workers_that_is_not_the_manifests_is_told(
    running: int | None, asked: int | None, told: bool
) -> None:
    system, generator = Counted(running={"proxy/workers": float(running)} if running else {}), FakeGenerator()
    chosen = ChosenGenerator(generator, generator.binary, "1", None)
    slot = Slot(1, 1, Arm("a", "a", "variant", None), point())
    manifests = [{"kind": "ConfigMap", "data": {"worker-processes": str(asked)}}] if asked else []
    run = SampleRun(FakeTarget(), system, slot, chosen, 0, 0.0, (), manifests)
    sample = run.measure(SteadyRegime(system, point()), 1).sample
    assert sample.gauges == system.running
    said = [note for note in sample.notes if "workers" in note]
    assert said == ([f"the manifests make {asked} workers or threads of the proxy, 2 run"] if told else [])
