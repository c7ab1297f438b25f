"""The wall's clock is stepped under a run, by a clock that the test hands in: nothing that counts is lost or invented."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from lab.measure.loop import Loop, ended_at, stale_blocks
from lab.model.samples import Reason, cell, planned_cells, settled
from lab.tests.support.fakes import FakeTarget, Silent, bench

HOUR_S = 3600.0


@pytest.fixture(params=[HOUR_S, -HOUR_S], ids=["ahead", "back"])
def stepped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall's clock is an hour away from its second look on, within the first load; the monotonic one goes on."""
    looks, real = count(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + (request.param if next(looks) else 0.0))


def interrupted() -> Loop:
    """A run of two blocks that ended after three of its four samples: the second block is begun."""

    def end(count: int) -> None:
        if count == 3:
            raise KeyboardInterrupt

    loop = bench(observer=Silent(on_measured=end))
    with pytest.raises(KeyboardInterrupt):
        loop.measure()
    return loop


@pytest.mark.usefixtures("stepped")
def test_the_sample_in_which_the_clock_was_stepped_says_so_and_is_measured_again() -> None:
    loop = bench()
    loop.measure()
    first, *others = loop.store.samples()
    assert first.reason == Reason.CLOCK_STEP, first.detail
    assert [sample.verdict for sample in others] == ["valid"] * 4, [sample.detail for sample in others]


@pytest.mark.parametrize(
    ("later", "stale"),
    [
        (timedelta(0), 0),
        (timedelta(minutes=9), 0),
        (timedelta(minutes=11), 1),
        (-timedelta(minutes=9), 0),
        (-timedelta(hours=2), 1),
    ],
)
def test_only_a_block_whose_break_is_known_to_be_short_is_gone_on_with(later: timedelta, stale: int) -> None:
    """A clock that went back by hours tells nothing of how long it was: measured again whole."""
    loop = interrupted()
    last = max(ended_at(sample) for sample in loop.store.samples())
    assert len(stale_blocks(loop.store, {"fake": "yes"}, lambda: last + later)) == stale


@pytest.mark.usefixtures("stepped")
def test_a_run_is_finished_whatever_the_clock_says_meanwhile() -> None:
    loop = interrupted()
    stale = stale_blocks(loop.store, {"fake": "yes"}, lambda: datetime(1999, 1, 1, tzinfo=UTC))
    loop.store.mark_interrupted(stale)
    again = Loop(FakeTarget(), loop.variants, loop.chosen, loop.store, Silent())
    again.measure()
    done = {cell(sample) for sample in again.store.samples() if settled(sample)}
    assert planned_cells(again.store.record.plan().slots) <= done
