"""What the terminal says at a run's end of where its time went."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from lab.commands.progress import Terminal
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
