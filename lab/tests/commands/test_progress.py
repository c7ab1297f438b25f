"""What the terminal says at a run's end of where its time went."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from lab.commands.progress import Terminal
from lab.model.pairs import PairSide
from lab.model.plan import Shape
from lab.model.usage import Usage
from lab.tests.support.factories import make_plan, make_point, make_sample


@pytest.mark.parametrize(
    ("prepared_s", "said"),
    [
        (None, "measuring 40 s, 1 bring-ups 2 s, starting generators and the lab itself 18 s (45.0% of measuring)"),
        (
            15.0,
            "measuring 40 s, 1 bring-ups 2 s, what a disturbance needs beforehand 15 s,"
            " starting generators and the lab itself 3 s (7.5% of measuring)",
        ),
    ],
)
def test_what_a_disturbance_needs_beforehand_is_no_time_of_the_labs(
    prepared_s: float | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr("lab.commands.progress.time", SimpleNamespace(monotonic=lambda: clock.now_s))
    plan, text = make_plan(), StringIO()
    slot = plan.slots[0]
    with Terminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        watching.brought_up(slot, 2.0, [])
        sample = make_sample(point=make_point(duration_s=40.0, warmup_s=0.0), duration_s=40.0, prepared_s=prepared_s)
        watching.measured(slot, sample, None, last=True)
        clock.now_s = 60.0
        watching.account()
    assert said in text.getvalue()


def test_of_two_generators_by_turns_one_begins_a_slice_later_and_that_is_measuring() -> None:
    point = make_point("ceiling", rate_rps=None, duration_s=4.0, warmup_s=1.0)
    shape = Shape({"baseline-again": 3}, frozenset({"ceiling"}))
    plan, text = make_plan([("baseline", None)], [point], 3, reference=None, shape=shape), StringIO()
    slot = next(slot for slot in plan.slots if slot.against)
    pair = PairSide(against="baseline", side="left", scheme="slices", first_up=True, slice_s=0.5)
    sample = make_sample(point=point, duration_s=None, pair=pair)
    with Terminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        watching.paired(slot, sample, sample, last=True)
        watching.account()
    assert "measuring 6 s, " in text.getvalue(), "4 s of each, 1 s of warming up, and half a second"


def test_what_pairs_have_shown_so_far_has_a_value_for_each_bring_up_as_the_table_has() -> None:
    """Three bring-ups of two generations: ±10 % within each, and nothing between them. Six values would have had an interval."""
    point = make_point("ceiling", rate_rps=None, generations=2)
    plan = make_plan(
        [("baseline", None)], [point], 3, reference=None, shape=Shape({"baseline-again": 3}, frozenset({"ceiling"}))
    )
    text = StringIO()
    with Terminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        for slot in (slot for slot in plan.slots if slot.against):
            cost = 1.1 if slot.reload else 1 / 1.1
            own, base = (
                make_sample(point=point, usage={"proxy": Usage(cpu_s=each, rss_bytes=1, processes=1)})
                for each in (cost, 1.0)
            )
            watching.paired(slot, own, base, last=True)
    shown = [line.partition("so far")[2] for line in text.getvalue().splitlines() if "so far" in line]
    assert shown[-1].strip().startswith("+0.0 % [+0.0, +0.0], 6 of 6") or shown[-1].strip().startswith("−0.0 %"), shown
    assert len(shown) == 2, "not before the third bring-up"


def test_a_fresh_bring_up_is_said_with_its_reason_and_a_warm_up_left_out_is_no_measuring() -> None:
    plan, text = make_plan(), StringIO()
    slot = next(slot for slot in plan.slots if slot.arm.role != "reference")
    sample = make_sample(point=make_point(duration_s=40.0, warmup_s=5.0), duration_s=40.0, warmed_up=False)
    with Terminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        watching.bringing_up_anew(slot, ["1,500 local ports wait", "2 old workers run"])
        watching.measured(slot, sample, None, last=True)
        watching.account()
    said = f"{slot.arm.name} is brought up anew before {slot.point.name}: 1,500 local ports wait; 2 old workers run"
    assert said in text.getvalue() and "measuring 40 s, " in text.getvalue()
