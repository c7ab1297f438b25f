"""Two systems at once: who runs when, what a side's sample says of its pair, and what speaks against both."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lab.measure import pair
from lab.measure.measurement import ChosenGenerator, SampleRun
from lab.measure.pair import PairRun, SliceSwitching
from lab.model.load import GeneratorLoad
from lab.model.pairs import Layout
from lab.model.plan import Arm, Slot
from lab.model.samples import Reason, Sample
from lab.targets.common import sampler
from lab.targets.common.process import GeneratorJob, GeneratorOutcome
from lab.tests.support.fakes import PAGE, FakeGenerator, FakeSystem, FakeTarget, point

RECORD = json.dumps({"requests": 4000, "duration_s": 1.0, "bytes": 4_400_000, "errors": {}})
WORKS = f"""\
import json, time
began, last, ran = time.monotonic(), time.monotonic(), 0.0
while time.monotonic() < began + 1.0:  # by its own clock, as wrk does
    time.sleep(0.002)
    now = time.monotonic()
    ran += now - last if now - last < 0.03 else 0.0  # it was stopped
    last = now
print(json.dumps({{**{RECORD}, "ran": ran}}))
"""
LOAD = GeneratorLoad(url="http://proxy/1kB.bin", host="h", connections=2, duration_s=1.0)
LOAD5 = replace(LOAD, duration_s=5.0)


@pytest.fixture(autouse=True)
def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which somebody else is always busy, and from which the hypervisor takes a fifth."""
    times = iter(range(1, 10**6))

    def cpu_times() -> dict[int, sampler.CpuTimes]:
        at = next(times)
        return {0: sampler.CpuTimes(0.7 * at, 0.2 * at, 1.0 * at)}

    monkeypatch.setattr(sampler, "cpu_times", cpu_times)
    monkeypatch.setattr(sampler, "other_processes_s", lambda: float(next(times)))


def side(name: str, script: str, rate_rps: float | None = None, system: FakeSystem | None = None) -> SampleRun:
    chosen = ChosenGenerator(FakeGenerator(script), FakeGenerator.binary, "1", None)
    at = point("load", rate_rps).model_copy(update={"connections": 4})
    slot = Slot(1, 1, Arm(name, name, "variant", "base"), at)
    return SampleRun(FakeTarget(), system or FakeSystem(), slot, chosen, 0, 0.0, ())


def measured(left: SampleRun, right: SampleRun, layout: Layout | None = None) -> tuple[Sample, Sample]:
    slot = replace(left.slot, against=right.slot.arm, layout=layout or Layout())
    one, other = PairRun((replace(left, slot=slot), replace(right, slot=slot.turned))).measure(1)
    return one.sample, other.sample


def test_closed_loops_run_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time each; the noisy machine speaks against neither, and a stopped generator's clock is not kept."""
    monkeypatch.setattr(pair, "MAX_UNEVEN", 1.0)  # whoever runs the tests may be busy
    left, right = measured(side("a", WORKS), side("b", WORKS), Layout(first_up="right", first_slice="right"))
    assert (left.verdict, right.verdict) == ("valid", "valid"), left.detail
    assert left.pair and right.pair
    assert (left.pair.side, left.pair.against, left.pair.first_up, left.pair.first_slice) == ("left", "b", False, False)
    assert (right.pair.side, right.pair.against) == ("right", "a")
    assert right.pair.first_up and right.pair.first_slice
    # A second has ten slices of each side, however slow they are.
    assert (left.pair.scheme, left.pair.slice_s) == ("slices", 0.05)
    assert 0 < (left.pair.own_s or 0) <= 1 and 0 < (right.pair.own_s or 0) <= 1
    assert left.requests == 4000 and left.achieved_rps is left.duration_s is left.histogram is None
    assert left.pair.in_flight == pytest.approx(4 * (left.pair.slices or 0) / 4000)


def test_one_of_them_is_stopped_at_any_time_and_nothing_is_left(tmp_path: Path) -> None:
    """By what each says of itself: the sum of both is no more than the time that there was. What a killed lab left is swept, too."""
    old, young = (Path("/tmp", f"lab-0123456789abcdef-{name}") for name in ("0.go", "1.go"))
    before = set(Path("/tmp").glob("lab-*-[01].go"))  # of somebody else's
    old.touch()
    young.touch()
    os.utime(old, (1e9, 1e9))
    job = GeneratorJob(FakeSystem(), FakeGenerator(WORKS), FakeGenerator.binary, LOAD, tmp_path / "a")
    jobs = [job, replace(job, scratch=tmp_path / "b")]
    for each in jobs:
        each.scratch.mkdir()
    began = time.monotonic()
    try:
        with ExitStack() as lasting:
            ended = SliceSwitching(jobs, first=0, length_s=0.05).run(lasting)
        assert not old.exists() and young.exists()
    finally:
        old.unlink(missing_ok=True)
        young.unlink()
    ran = [json.loads(each.stdout)["ran"] for each in ended]
    assert min(ran) > 0 and sum(ran) < time.monotonic() - began
    assert set(Path("/tmp").glob("lab-*-[01].go")) <= before, "what they wait for goes with them"


def test_given_rates_run_together() -> None:
    print_only = f"print({RECORD!r})"
    left, right = measured(side("a", print_only, 4000.0), side("b", print_only, 4000.0))
    assert left.pair and right.pair and left.pair.scheme == right.pair.scheme == "together"
    assert left.verdict == "valid" and left.achieved_rps == 4000 and left.histogram == "exact"
    assert left.pair.own_s is left.pair.slices is left.pair.in_flight is None


def test_what_speaks_against_one_side_speaks_against_both() -> None:
    """The other side says whose fault it is. Nothing is loaded where one answers with something else."""
    failing = RECORD.replace('"errors": {}', '"errors": {"status": 7}')
    left, right = measured(side("a", f"print({RECORD!r})", 4000.0), side("b", f"print({failing!r})", 4000.0))
    assert left.reason == right.reason == Reason.NON_2XX
    assert left.detail == "non-2xx: on the other side: 7 of 4000 responses"
    assert right.detail == "non-2xx: 7 of 4000 responses"
    left, right = measured(side("a", WORKS), side("b", WORKS, system=FakeSystem(through_proxy=PAGE[:-1])))
    assert left.reason == right.reason == Reason.WRONG_BACKEND
    assert left.requests is right.requests is None
    assert "on the other side" in left.detail and "on the other side" not in right.detail
    left, right = measured(side("a", WORKS), side("b", WORKS.replace("began + 1.0", "began + 0.3")))
    assert left.reason == right.reason == Reason.UNEVEN
    assert left.detail.startswith("uneven: one side ran for 0.")


def test_a_switching_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "slices.bash"
    broken.write_text(pair.SCRIPT.read_text().replace("turns() {", "turns() {\n  fail 'no such luck'", 1))
    monkeypatch.setattr(pair, "SCRIPT", broken)
    monkeypatch.setattr("lab.targets.common.process.GRACE_S", 0.2)
    left, right = measured(side("a", WORKS), side("b", WORKS))
    assert left.reason == right.reason == Reason.GENERATOR_HUNG
    assert "status 1 slices: no such luck" in left.detail


@pytest.mark.parametrize(
    ("rate_rps", "longer", "length_s"),
    [
        (4_000, False, 0.05),  # 2 of 200 answers
        (4_000, True, 0.1),
        (500, False, 0.25),
        (500, True, 0.5),
        (300, True, 0.05),  # of half a second each would have five: no rate is told, and the shortest are best
        (0, True, 0.05),
    ],
)
def test_slices_are_as_long_as_few_answers_in_flight_ask(
    rate_rps: int, longer: bool, length_s: float, tmp_path: Path
) -> None:
    """Both sides together were that fast in the warm-up; the lengths give both as many slices, ten or more but of the longer ones."""
    record = json.dumps({"requests": rate_rps // 2, "duration_s": 1.0, "bytes": 1, "errors": {}})
    said = record if rate_rps else "nothing"
    turns = SliceSwitching([GeneratorJob(FakeSystem(), FakeGenerator(), "x", LOAD5, tmp_path)] * 2, first=0)
    turns.choose_length(turns.warmed_rps([GeneratorOutcome(said, "", 0, 0.0, 0, False)] * 2), longer)
    assert turns.length_s == length_s
