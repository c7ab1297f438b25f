"""The loop with pairs in its plan: both sides come up in the order drawn, and what is not measured of both is measured again of both."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest

from lab.base.errors import MeasuringError
from lab.measure import validity
from lab.measure.loop import MeasuringLoop, find_stale_samples
from lab.model.pairs import SIDES
from lab.model.plan import Shape, Slot
from lab.model.samples import Reason, Sample, key_of_measurement
from lab.model.variants.variants import Check
from lab.records.store import RunStore
from lab.tests.support.fakes import FakeTarget, Silent, bench, going_on, point, variant

RATE = point("rate", 1000.0)
AGAIN = "ingress-nginx-again"


def paired(blocks: int = 2, alone: int = 0, target: FakeTarget | None = None, **told: Any) -> MeasuringLoop:
    shape = Shape({AGAIN: blocks}, frozenset({"rate"}), {(arm, "rate"): alone for arm in ("ingress-nginx", AGAIN)})
    return bench(blocks, [RATE], target=target or FakeTarget(sides=SIDES), shape=shape, **told)


def test_a_long_run_holds_none_of_its_samples() -> None:
    """Each is some 15 kB, and a run of a day has fifty thousand."""
    seen: list[ref[Sample]] = []

    class Watching(Silent):
        def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
            seen.extend((ref(own), ref(base)))

    loop = replace(paired(6), observer=Watching())
    loop.measure()
    gc.collect()
    assert len(seen) == 12 and [each() for each in seen if each() is not None] == []


def test_sides_come_up_in_the_order_drawn() -> None:
    """Which arm is where and which is first differ between blocks, half and half. A side is waited for when the other is up."""
    target = FakeTarget(sides=SIDES)
    loop = paired(4, target=target)
    loop.measure()
    started, ready = (
        [sides[at : at + 2] for at in range(0, len(sides), 2)] for sides in (target.ups_at, target.ready_at)
    )
    assert ready == [pair[::-1] for pair in started]
    samples = loop.store.samples()
    assert [(one.block, one.valid) for one in samples] == [(block, True) for block in (1, 1, 2, 2, 3, 3, 4, 4)]
    took = {(one.block, one.bring_up_s) for one in samples}
    assert len(took) == 4, "of a block both sides have half of what they took together"
    for own, other in zip(samples[::2], samples[1::2], strict=True):
        assert own.pair and other.pair and (own.pair.against, other.pair.against) == (other.arm, own.arm)
        assert own.pair.first_up is not other.pair.first_up
        assert (own.pair.scheme, own.order) == ("together", other.order)
    layouts = [slot.layout for slot in loop.store.record.plan().slots]
    assert target.ups_at[::2] == [layout.first_up for layout in layouts if layout]
    assert all(set(target.ups_at[at : at + 2]) == set(SIDES) for at in range(0, 8, 2))
    assert sorted(layout.side for layout in layouts if layout) == ["left", "left", "right", "right"]
    sides = {one.order: one.pair.side for one in samples if one.pair and one.arm == AGAIN}
    assert [sides[order] for order in sorted(sides)] == [layout.side for layout in layouts if layout]


def test_who_is_alone_is_on_the_left_and_no_side_of_a_pair() -> None:
    target = FakeTarget(sides=SIDES)
    loop = paired(2, alone=1, target=target)
    loop.measure()
    alone = [one for one in loop.store.samples() if one.pair is None]
    assert sorted(one.arm for one in alone) == ["ingress-nginx", AGAIN]
    assert len(loop.store.samples()) == 6 and target.ups_at.count("left") == 4
    later = going_on(loop)
    later.measure()
    assert isinstance(later.observer, Silent) and later.observer.samples == [], "what is whole is not measured again"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_pair_of_which_one_side_is_missing_is_measured_again(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab was killed between the two: what it had is kept and another attempt made of both, whichever side it was."""
    loop, real = paired(blocks=2), RunStore.write_sample

    def dies(store: RunStore, sample: Sample, *rest: Any) -> None:
        written = len(store.samples())
        if written == 2 * lost + 1:
            raise KeyboardInterrupt
        real(store, sample, *rest)

    monkeypatch.setattr(RunStore, "write_sample", dies)
    with pytest.raises(KeyboardInterrupt):
        loop.measure()
    monkeypatch.undo()
    monkeypatch.setenv("LAB_RUNS", str(loop.store.folder.parent))
    kept = loop.store.samples()
    assert len(kept) == 2 * lost + 1
    later = going_on(loop)
    later.measure()
    samples = later.store.samples()
    assert [one for one in samples if one.id in {each.id for each in kept}] == kept
    half = kept[-1]
    tries = {(one.arm, one.attempt) for one in samples if one.order == half.order}
    assert tries == {(half.arm, 1), ("ingress-nginx", 2), (AGAIN, 2)}, "both of the same attempt"
    planned = {each for slot in later.store.record.plan().slots for each in slot.cells}
    assert {key_of_measurement(one) for one in samples if one.valid} == planned


def test_the_last_attempt_of_one_side_alone_is_not_the_pairs_last(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = paired(blocks=1)
    loop.measure()
    whole = loop.store.samples()
    (half,) = (one for one in whole if one.arm == AGAIN)
    half = half.model_copy(update={"attempt": 3, "id": "third"})
    written: list[Sample] = [half]
    monkeypatch.setattr(RunStore, "samples", lambda _store: list(written))
    monkeypatch.setattr(RunStore, "write_sample", lambda _store, sample, *_rest: written.append(sample))
    going_on(loop).measure()
    assert sorted((one.arm, one.attempt) for one in written[1:]) == [("ingress-nginx", 4), (AGAIN, 4)]


def test_a_side_that_does_not_come_up_leaves_both_without_a_number() -> None:
    def fail_second(count: int) -> None:
        if count == 2:
            raise MeasuringError("nginx", "did not answer", "look")

    loop = paired(target=FakeTarget(sides=SIDES, on_up=fail_second))
    loop.measure()
    samples = loop.store.samples()
    first, second = ([one for one in samples if one.block == block] for block in (1, 2))
    assert {(one.arm, one.reason) for one in first} == {
        (arm, Reason.BRING_UP_FAILED) for arm in ("ingress-nginx", AGAIN)
    }
    assert all(one.requests is None and one.pair and "did not answer" in one.detail for one in first)
    assert [one.verdict for one in second] == ["valid", "valid"]
    assert isinstance(loop.observer, Silent) and len(loop.observer.failures) == 1


def test_a_knob_that_did_not_take_on_one_side_is_measured_on_neither() -> None:
    check = Check(kind="sysctl", name="net.core.somaxconn", value="128")
    tried = variant("backlog", "ingress-nginx", readback=[check])
    alone = {(arm, "rate"): 0 for arm in ("backlog", "ingress-nginx", AGAIN)}
    shape = Shape({"backlog": 1}, frozenset({"rate"}), alone)
    loop = bench(1, [RATE], target=FakeTarget(sides=SIDES), variants=[variant(), tried], shape=shape)
    loop.measure()
    samples = {one.arm: one for one in loop.store.samples()}
    assert {one.reason for one in samples.values()} == {Reason.KNOB_NOT_APPLIED}
    beside = [arm for arm, sample in samples.items() if "on the other side" in sample.detail]
    assert beside == ["ingress-nginx"]
    names = sorted(path.name for path in (loop.store.folder / "readback").iterdir())
    assert len(names) == 2 and all("beside" in name for name in names), "what was read of both is kept"


def test_what_the_machine_did_is_measured_again_of_both_up_to_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validity, "MAX_CLOCK_STEP_S", -1.0)
    loop = paired(blocks=1)
    loop.measure()
    samples = loop.store.samples()
    both = [(arm, attempt) for arm in ("ingress-nginx", AGAIN) for attempt in (1, 2, 3)]
    assert sorted((one.arm, one.attempt) for one in samples) == both
    assert {one.reason for one in samples} == {Reason.CLOCK_STEP}


def test_a_block_whose_pair_is_not_whole_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = paired()
    loop.measure()
    whole = loop.store.samples()
    assert find_stale_samples(loop.store, {"fake": "no longer"}) == []
    half = [one for one in whole if (one.block, one.arm) != (2, AGAIN)]
    monkeypatch.setattr(RunStore, "samples", lambda _store: half)
    assert [(one.block, one.arm) for one in find_stale_samples(loop.store, {"fake": "no longer"})] == [
        (2, "ingress-nginx")
    ]


def test_both_sides_reload_between_generations_and_each_sample_says_what_it_was_measured_on() -> None:
    """Two reloads for three generations, none between two measurements of one; arms alone keep the workers that they came up with."""
    point = RATE.model_copy(update={"generations": 3, "repeats": 2})
    shape = Shape({"ingress-nginx-again": 1}, frozenset({point.name}), {})
    loop = bench(1, [point], target=FakeTarget(sides=SIDES), shape=shape)
    loop.measure()
    sides = [sample for sample in loop.store.samples() if sample.pair is not None]
    told = [(each.pair.reload, each.pair.repeat) for each in sides if each.pair and each.arm == "ingress-nginx"]
    assert told == [(reload, repeat) for reload in range(3) for repeat in range(2)]
    for each in sides:
        assert each.pair is not None
        assert (each.pair.renewed is None) is (each.pair.reload == 0)
    assert len({each.pair.renewed.began for each in sides if each.pair and each.pair.renewed}) == 2 * len(SIDES)
    assert all(sample.pair is None or sample.valid for sample in loop.store.samples())
