"""What a run's samples tell of its bring-ups."""

from __future__ import annotations

from lab.model.design import shape_of
from lab.model.pairs import SIDES
from lab.model.plan import arms_for, plan
from lab.model.samples import bring_ups_s
from lab.tests.support.factories import make_sample, of_slot
from lab.tests.support.fakes import point


def test_a_pair_is_one_bring_up_of_both_sides_together() -> None:
    arms, points = arms_for([("keepalive", "baseline")], None), [point("rate", 1000.0)]
    planned = plan(arms, points, 6, 1, shape_of(arms, points, 6, SIDES))
    slot = next(slot for slot in planned.slots if slot.layout is not None)
    pair = [make_sample(**of_slot(side) | {"bring_up_s": 2.0}) for side in slot.sides]
    alone = make_sample(arm="baseline", bring_up_s=3.0)
    failed = make_sample(arm="other", bring_up_s=None)
    assert sorted(bring_ups_s([*pair, alone, failed])) == [3.0, 4.0]


def test_what_is_measured_on_one_bring_up_counts_it_once() -> None:
    twice = [make_sample(order=order, bring_up_s=2.0) for order in (1, 2)]
    begun_anew = make_sample(order=1, generation=1, bring_up_s=5.0)
    assert sorted(bring_ups_s([*twice, begun_anew])) == [2.0, 5.0]
