"""What the terminal says while a run is measured."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from lab.commands.progress import Terminal
from lab.model.plan import Shape
from lab.model.usage import Usage
from lab.tests.support.factories import make_plan, make_point, make_sample


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


def test_a_fresh_bring_up_is_said_with_its_reason() -> None:
    plan, text = make_plan(), StringIO()
    slot = next(slot for slot in plan.slots if slot.arm.role != "reference")
    with Terminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        watching.bringing_up_anew(slot, ["1,500 local ports wait", "2 old workers run"])
    said = f"{slot.arm.name} is brought up anew before {slot.point.name}: 1,500 local ports wait; 2 old workers run"
    assert said in text.getvalue()
