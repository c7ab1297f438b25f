"""A request's cost taken apart: known steps in a made-up run, and what is said where one is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import plotly.graph_objects as go
import pytest

from lab.analysis.aggregate.cells import counted_alone
from lab.analysis.evidence import Evidence, Shelf
from lab.model.plan import Place, Shape, Slot
from lab.model.samples import Sample
from lab.studies.exhibits import exhibits, ladder
from lab.tests.support.factories import make_plan, make_point
from lab.tests.support.made_runs import made

CEILING = make_point("ceiling", generator="wrk", rate_rps=None)
CHAIN = [("no-metrics", "baseline"), ("no-log", "no-metrics"), ("nginx", "no-log")]
COSTS = {"baseline": 2.0, "no-metrics": 1.6, "no-log": 1.2, "nginx": 0.8}
"""Times 25 µs: 50, 40, 30, 20."""
NUMBERS = count(1)
"""What is known of a run is kept by its name."""
STEPS = {"metrics": ("no-metrics", "baseline"), "log": ("no-log", "no-metrics"), "rest": ("nginx", "no-log")}


def run_of(
    chain: Sequence[tuple[str, str | None]] = CHAIN,
    costs: Mapping[str, float] = COSTS,
    blocks: int = 6,
    alone: Mapping[Place, int] | None = None,
    **record: Any,
) -> Evidence:
    shape = Shape({name: blocks for name, _ in chain}, frozenset({"ceiling"}), alone or {})
    planned = make_plan(chain, [CEILING], blocks=blocks, reference=None, shape=shape)
    store = made(f"run-{next(NUMBERS)}", effects=costs, planned=planned, noise=0.001, **record)
    samples = tuple(store.samples())
    return Evidence("made", store, samples, counted_alone(samples))


def dearer(by: Callable[[Slot], float]) -> Callable[[Slot, Sample], Sample]:
    """Return a change by which the proxy of a solo sample uses that many times the CPU."""

    def change(slot: Slot, sample: Sample) -> Sample:
        proxy = sample.usage["proxy"]
        cpu_s = proxy.cpu_s * (1.0 if slot.other else by(slot))
        return sample.model_copy(update={"usage": {**sample.usage, "proxy": proxy.model_copy(update={"cpu_s": cpu_s})}})

    return change


def data(figure: go.Figure) -> Any:
    return json.loads(figure.to_json() or "")


def test_steps_hang_where_the_one_before_ends_and_add_up() -> None:
    rows, missing = ladder.rungs(run_of(), "real", STEPS, "ceiling")
    assert not missing
    assert [row.label for row in rows] == ["baseline, real", "metrics", "log", "rest", "nginx, real"]
    assert [row.whole for row in rows] == [True, False, False, False, True]
    assert [1e6 * row.end for row in rows] == pytest.approx([50, 40, 30, 20, 20], rel=0.005)
    assert [row.start for row in rows[1:4]] == [row.end for row in rows[:3]]
    for row in rows[1:4]:
        assert row.low is not None and row.high is not None and row.low < row.end < row.high
        assert row.high - row.low < 1e-6
    assert rows[1].text.startswith(("−10.0 µs [", "−9.9 µs [")) and rows[1].text.endswith(" %")
    assert rows[0].text.endswith(" µs") and "[" not in rows[0].text


def test_a_step_beside_the_chain_hangs_from_its_own_baseline_and_may_go_up() -> None:
    """What is in front costs more; the chain goes on where its baseline is."""
    chain = [("in-front", "baseline"), *CHAIN]
    steps = {"in front": ("in-front", "baseline"), **STEPS}
    rows, _ = ladder.rungs(run_of(chain, {**COSTS, "in-front": 2.4}), "real", steps, "ceiling")
    ends = {row.label: (1e6 * row.start, 1e6 * row.end) for row in rows}
    assert ends["in front"] == pytest.approx((50, 60), rel=0.005)
    assert ends["metrics"] == pytest.approx((50, 40), rel=0.005)
    assert [row.label for row in rows].count("baseline, real") == 1


def test_the_level_is_of_what_was_alone_and_the_step_of_the_pair() -> None:
    """A pair on a dearer machine moves no level, and arms alone that differ by something else move no step."""
    change = dearer(lambda slot: 3.0 if slot.arm.variant == "no-metrics" else 1.0)
    rows, _ = ladder.rungs(run_of(change=change), "real", STEPS, "ceiling")
    assert [1e6 * row.end for row in rows] == pytest.approx([50, 40, 30, 20, 20], rel=0.005)
    assert rows[2].text.startswith(("−30.0 µs [", "−29.9 µs [", "−30.1 µs [")), (
        "as the table: a quarter of what it cost alone"
    )


def test_a_step_without_a_pair_or_a_whole_run_is_a_gap_that_says_why() -> None:
    steps = {**STEPS, "Lua": ("no-lua", "no-log")}
    run = run_of()
    figure = exhibits.ladder({"real": (run, steps)}, "T", "ceiling")
    shown = data(figure)
    assert "Lua: no pair of no-lua and no-log at ceiling in made: no-lua is not part of this run" in shown["layout"][
        "title"
    ]["text"].replace("<br>", " ")
    assert shown["layout"]["meta"]["runs"] == [run.run.record.id]
    assert [gap.partition(":")[0] for gap in shown["layout"]["meta"]["gaps"]] == ["Lua"]
    missing = Shelf((), ()).of("ladder", variant=["no-metrics", "nginx"], target="apiserver")
    both = data(exhibits.ladder({"real": (run_of(), STEPS), "none": (missing, STEPS)}, "T", "ceiling"))
    command = "just bench no-metrics nginx --sweep ladder --target apiserver"
    assert command in both["layout"]["title"]["text"].replace("<br>", " ") and len(both["layout"]["meta"]["gaps"]) == 1
    alone = data(exhibits.ladder({"none": (missing, STEPS)}, "T", "ceiling"))
    assert not alone["data"] and command in alone["layout"]["annotations"][0]["text"].replace("<br>", " ")


def test_below_six_blocks_a_step_has_no_interval() -> None:
    rows, missing = ladder.rungs(run_of(blocks=2), "real", STEPS, "ceiling")
    assert not missing and "too few blocks" in rows[1].text and rows[1].low is None and not rows[1].whole
