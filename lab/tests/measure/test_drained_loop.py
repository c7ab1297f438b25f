"""The loop around starts that are not drained: a fresh system before the load, the warm-up left out, or carry-over."""

from __future__ import annotations

import os
from typing import Any

import pytest

from lab.base.errors import MeasuringError
from lab.measure.loop import MeasuringLoop
from lab.model.leftovers import MAX_FRESH_BRING_UPS, Leftovers
from lab.model.pairs import SIDES
from lab.model.plan import Shape
from lab.model.samples import Reason, Sample
from lab.targets.common import sampler
from lab.tests.support.fakes import FakeGenerator, FakeSystem, FakeTarget, Silent, bench, point

AGAIN = "ingress-nginx-again"
NOTHING = Leftovers(port_range={"proxy": 28_232})
TAKEN = Leftovers(time_wait={"proxy": {"10.64.0.3:80": 14_100}}, port_range={"proxy": 28_232})
HALF_TAKEN = Leftovers(time_wait={"proxy": {"10.64.0.3:80": 1_000}}, port_range={"proxy": 28_232})
MORE_TAKEN = Leftovers(time_wait={"proxy": {"10.64.0.3:80": 1_500}}, port_range={"proxy": 28_232})
WARMED = point().model_copy(update={"warmup_s": 1.0})


class Queued(FakeTarget):
    """Each bring-up of it is a system of its own, which shows the next list of looks; nothing more once they are used up."""

    def __init__(self, *looks: list[Leftovers], fails_at: int = 0, **told: Any) -> None:
        super().__init__(on_up=self._another, **told)
        self.queue, self.fails_at = list(looks), fails_at

    def _another(self, count: int) -> None:
        if count == self.fails_at:
            raise MeasuringError("pod proxy", "does not come up")
        self.system = FakeSystem(left=self.queue.pop(0) if self.queue else [])


def measured(target: FakeTarget, **told: Any) -> tuple[MeasuringLoop, list[Sample], Silent]:
    os.environ["LAB_RUNS"] += "x"  # a folder of its own; the fixture puts the variable back
    observer = Silent()
    loop = bench(blocks=1, target=target, observer=observer, **told)
    loop.measure()
    return loop, loop.store.samples(), observer


def test_all_three_moments_are_recorded() -> None:
    _, samples, observer = measured(Queued([NOTHING, HALF_TAKEN, TAKEN], [NOTHING, NOTHING, TAKEN]))
    for sample, start in zip(samples, (HALF_TAKEN, NOTHING), strict=True):
        assert sample.leftovers == {"before": NOTHING, "start": start, "end": TAKEN}
        assert sample.valid and sample.fresh_bring_ups == 0 and sample.warmed_up is False
    assert observer.fresh == []


def test_a_start_that_is_not_drained_has_a_fresh_system() -> None:
    """The second point of the first arm finds what the first has left; its sample is the fresh system's."""
    points = [point("one"), point("two")]
    target = Queued([NOTHING, NOTHING, TAKEN, TAKEN], [NOTHING])
    loop, samples, observer = measured(target, points=points)
    first, second, *others = samples
    assert (first.fresh_bring_ups, second.fresh_bring_ups) == (0, 1)
    assert second.leftovers["before"] == NOTHING and all(sample.valid for sample in samples)
    assert second.arm == first.arm and len(target.ups) == 3 and [each.fresh_bring_ups for each in others] == [0, 0]
    ((name, (why, *_)),) = observer.fresh
    assert name == second.point.name
    assert "14,100 of 28,232 local ports of the proxy towards 10.64.0.3:80 (50%)" in why
    files = {path.name for path in (loop.store.folder / "readback").iterdir()}
    assert files == {"b01-ingress-nginx-again.json", "b01-ingress-nginx.json", f"b01-{first.arm}-fresh1.json"}
    assert loop.store.readings(second) == []


def test_a_retry_has_a_drained_start_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "other_processes_s", iter([float(n) for n in range(99)]).__next__)
    point_ = point().model_copy(update={"attempts": 2})
    _, samples, observer = measured(Queued([NOTHING, NOTHING, TAKEN, TAKEN], [NOTHING]), points=[point_])
    mine = [sample for sample in samples if sample.arm == samples[0].arm]
    assert [(one.attempt, one.fresh_bring_ups) for one in mine] == [(1, 0), (2, 1)]
    assert {one.reason for one in mine} == {Reason.OTHER_PROCESSES}
    assert len(observer.fresh) == 1


def test_where_a_fresh_system_does_not_help_it_is_carry_over() -> None:
    """Sockets that outlive a bring-up, as those of a remote cluster's nodes: nothing is loaded, and the numbers are said."""
    target = Queued(*([TAKEN] for _ in range(MAX_FRESH_BRING_UPS + 1)))
    _, samples, observer = measured(target)
    first, second = samples
    assert (first.reason, first.requests, first.attempt) == (Reason.CARRY_OVER, None, 1)
    assert "14,100 of 28,232 local ports" in first.detail and first.leftovers == {"before": TAKEN}
    assert second.valid and len(target.ups) == MAX_FRESH_BRING_UPS + 2 and len(observer.fresh) == MAX_FRESH_BRING_UPS
    points = [point("one"), point("two")]
    _, samples, observer = measured(Queued([TAKEN], fails_at=2), points=points)
    assert [one.reason for one in samples[:2]] == [Reason.CARRY_OVER, Reason.BRING_UP_FAILED]
    assert "pod proxy: does not come up" in samples[0].detail and "14,100" in samples[0].detail
    assert [one.valid for one in samples[2:]] == [True, True] and len(observer.failures) == 1


def test_a_warm_up_that_alone_takes_too_many_ports_is_left_out_from_then_on() -> None:
    """Of that variant at that point: its twin is not warmed up either, and nobody has to find it out again."""
    target = Queued([NOTHING, TAKEN], [NOTHING, NOTHING, TAKEN], [NOTHING, NOTHING, TAKEN])
    _, samples, observer = measured(target, points=[WARMED])
    assert [(one.warmed_up, one.fresh_bring_ups, one.valid) for one in samples] == [(False, 1, True), (False, 0, True)]
    assert all("there was no warm-up" in one.notes[-1] for one in samples)
    assert len(observer.fresh) == 1 and observer.fresh[0][1][0].endswith("after the warm-up")


def test_a_warm_up_that_only_adds_to_what_was_there_is_made_on_a_fresh_system() -> None:
    """1,000 sockets before it and 1,500 after it: it added 2 %, so that it stays."""
    target = Queued([HALF_TAKEN, MORE_TAKEN], [NOTHING, HALF_TAKEN], [])
    _, samples, _ = measured(target, points=[WARMED])
    assert [(one.warmed_up, one.fresh_bring_ups) for one in samples] == [(True, 1), (True, 0)]


def test_what_cannot_be_seen_is_said() -> None:
    unseen = Leftovers(unseen={"proxy": "permission denied"})
    _, samples, _ = measured(Queued([unseen] * 3))
    assert samples[0].valid and samples[0].leftovers["before"].time_wait == {}
    assert "what earlier loads left in the proxy could not be seen: permission denied" in samples[0].notes


def pair(target: FakeTarget, generations: int = 1) -> tuple[list[Sample], Silent]:
    points = [WARMED.model_copy(update={"rate_rps": 1000.0, "name": "rate", "generations": generations})]
    shape = Shape({AGAIN: 1}, frozenset({"rate"}), {(arm, "rate"): 0 for arm in ("ingress-nginx", AGAIN)})
    _, samples, observer = measured(target, points=points, shape=shape, generator=FakeGenerator())
    return samples, observer


class Sides(Queued):
    """Both systems of a pair are the fake's one: a look of each, the left side's first."""

    def _another(self, count: int) -> None:
        if count % 2:
            super()._another(count)


def test_of_a_pair_both_sides_are_brought_up_anew() -> None:
    target = Sides([NOTHING, TAKEN], [NOTHING] * 4, sides=SIDES)
    samples, observer = pair(target)
    assert [(one.fresh_bring_ups, one.valid, one.warmed_up) for one in samples] == [(1, True, True)] * 2
    (right,) = (one.arm for one in samples if one.pair and one.pair.side == "right")
    assert len(target.ups) == 4 and [why[0].split(":")[0] for _, why in observer.fresh] == [right]
    samples, _ = pair(Sides([NOTHING, NOTHING, NOTHING, TAKEN], [NOTHING] * 4, sides=SIDES))
    assert [(one.fresh_bring_ups, one.warmed_up) for one in samples] == [(1, False)] * 2, "nor is either warmed up"


def test_a_fresh_system_has_the_generation_of_workers_that_is_due() -> None:
    """The third generation finds ports taken: a reload makes the fresh systems' workers, too, and the sample says by which."""
    looks = [NOTHING] * 12 + [TAKEN, TAKEN]
    target = Sides(looks, [NOTHING] * 4, sides=SIDES)
    samples, _ = pair(target, generations=3)
    third = [one for one in samples if one.pair and one.pair.reload == 2]
    assert [one.fresh_bring_ups for one in third] == [1, 1]
    assert all(one.pair and one.pair.renewed is not None for one in third)
    assert target.system.renewals == 2, "of both sides once"
