"""A request's cost taken apart: known steps in a made-up run, what is left between two targets, and what is said where something is missing or too
few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import polars as pl
import pytest

from lab.analysis.evidence import Evidence, Missing, Shelf
from lab.model.plan import Shape, Slot
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records.store import RunStore
from lab.studies.exhibits import exhibits, ladder
from lab.studies.exhibits.ladder import BESIDE, LEFT, Elsewhere, Remainder, level, remainder
from lab.tests.support.factories import costing, make_plan, make_point
from lab.tests.support.golden import drawn
from lab.tests.support.made_runs import evidence_of, made

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
    **record: Any,
) -> Evidence:
    shape = Shape({name: blocks for name, _ in chain}, frozenset({"ceiling"}))
    planned = make_plan(chain, [CEILING], blocks=blocks, reference=None, shape=shape)
    return evidence_of(made(f"run-{next(NUMBERS)}", effects=costs, planned=planned, noise=0.001, **record))


def dearer(by: Callable[[Slot], float]) -> Callable[[Slot, Sample], Sample]:
    """Return a change by which a solo sample uses that many times the CPU."""
    return lambda slot, sample: sample if slot.other else sample.model_copy(update={**costing(by(slot))(sample)})


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
    rows, missing = ladder.rungs(run_of(blocks=2), "real", STEPS, "ceiling")
    assert not missing and "too few blocks" in rows[1].text and rows[1].low is None and not rows[1].whole


def test_a_step_beside_the_chain_hangs_from_its_own_baseline_and_may_go_up() -> None:
    """What is in front costs more. A pair on a dearer machine moves no level, and arms alone that differ by something else no step."""
    chain = [("in-front", "baseline"), *CHAIN]
    steps = {"in front": ("in-front", "baseline"), **STEPS}
    rows, _ = ladder.rungs(run_of(chain, {**COSTS, "in-front": 2.4}), "real", steps, "ceiling")
    ends = {row.label: (1e6 * row.start, 1e6 * row.end) for row in rows}
    assert ends["in front"] == pytest.approx((50, 60), rel=0.005)
    assert ends["metrics"] == pytest.approx((50, 40), rel=0.005)
    assert [row.label for row in rows].count("baseline, real") == 1
    change = dearer(lambda slot: 3.0 if slot.arm.variant == "no-metrics" else 1.0)
    rows, _ = ladder.rungs(run_of(change=change), "real", STEPS, "ceiling")
    assert [1e6 * row.end for row in rows] == pytest.approx([50, 40, 30, 20, 20], rel=0.005)
    # as the table: a quarter of what it cost alone
    assert rows[2].text.startswith(("−30.0 µs [", "−29.9 µs [", "−30.1 µs ["))


def test_a_step_without_a_pair_or_a_whole_run_is_a_gap_that_says_why() -> None:
    steps = {**STEPS, "Lua": ("no-lua", "no-log")}
    run = run_of()
    figure = exhibits.ladder({"real": (run, steps)}, "T", "ceiling")
    shown = drawn(figure)
    title = shown["layout"]["title"]["text"].replace("<br>", " ")
    assert "Lua: no pair of no-lua and no-log at ceiling in made: no-lua is not part of this run" in title
    assert shown["layout"]["meta"]["runs"] == [run.run.record.id]
    assert [gap.partition(":")[0] for gap in shown["layout"]["meta"]["gaps"]] == ["Lua"]
    missing = Shelf((), ()).of("ladder", variant=["no-metrics", "nginx"], target="apiserver")
    both = drawn(exhibits.ladder({"real": (run_of(), STEPS), "none": (missing, STEPS)}, "T", "ceiling"))
    command = "just bench no-metrics nginx --sweep ladder --target apiserver"
    assert command in both["layout"]["title"]["text"].replace("<br>", " ") and len(both["layout"]["meta"]["gaps"]) == 1
    alone = drawn(exhibits.ladder({"none": (missing, STEPS)}, "T", "ceiling"))
    assert not alone["data"] and command in alone["layout"]["annotations"][0]["text"].replace("<br>", " ")


THERE = {"baseline": 4.0, "no-metrics": 3.2, "no-log": 2.4, "nginx": 2.0}
"""Times 25 µs: 100, 80, 60, 50; beside the other run's 50, 40, 30, 20."""
TWO = {name: STEPS[name] for name in ("metrics", "log")}
Used = Callable[[Sample], Mapping[str, float]]


def rows(used_s: Mapping[str, float], duration_s: float = 5.0) -> pl.DataFrame:
    """Two looks at one process of each title, which had used a second before the first."""
    looks = [
        (at_s, "proxy", pid, None, title, 1, 0.0, 0.0, 1.0 + more_s, 0, 0, 0, 0, None)
        for pid, (title, cpu_s) in enumerate(used_s.items())
        for at_s, more_s in ((0.0, 0.0), (duration_s, cpu_s))
    ]
    return pl.DataFrame(looks, schema=USAGE_SCHEMA, orient="row")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Used], None]:
    """Sets what the processes of a target's samples used."""
    told: dict[str, Used] = {}

    def usage(store: RunStore, sample: Sample) -> pl.DataFrame:
        return rows(told[store.record.target](sample) if store.record.target in told else {})

    monkeypatch.setattr(RunStore, "usage", usage)
    return told.__setitem__


def four_fifths(sample: Sample) -> Mapping[str, float]:
    cpu_s = sample.usage["proxy"].cpu_s
    return {"nginx": 0.8 * cpu_s, "controller": 0.15 * cpu_s}  # and the rest is whoever looked in


def serving(sample: Sample) -> Mapping[str, float]:
    return {"nginx": sample.usage["proxy"].cpu_s}


def kind(**record: Any) -> Evidence:
    return run_of(costs=THERE, sweep="ladder", target="kind", **record)


def elsewhere(run: Evidence | Missing | None = None, variant: str = "no-metrics") -> Elsewhere:
    return Elsewhere("bare", run_of(sweep="ladder", target="apiserver") if run is None else run, variant)


def left(run: Evidence, there: Elsewhere) -> Remainder:
    return remainder(run, "no-log", there, "ceiling")


def ends_of(found: Remainder) -> dict[str, tuple[float, float]]:
    return {row.label: (1e6 * row.start, 1e6 * row.end) for row in found.rungs}


def width(run: Evidence, there: Elsewhere) -> float:
    row = next(row for row in left(run, there).rungs if row.label == LEFT)
    assert row.low is not None and row.high is not None and row.low < row.end < row.high
    return 1e6 * (row.high - row.low)


def noisy(by: float, variant: str = "baseline") -> Callable[[Slot, Sample], Sample]:
    """The arm alone costs up to so much more or less, by its block."""
    return dearer(lambda slot: 1 + by * (slot.block - 3.5) / 2.5 if slot.arm.variant == variant else 1.0)


@pytest.mark.usefixtures("used")
def test_what_is_left_is_the_difference_of_both_levels_and_ends_at_the_others() -> None:
    found = left(kind(), elsewhere())
    assert ends_of(found) == {
        LEFT: (pytest.approx(60, rel=0.01), pytest.approx(40, rel=0.01)),
        "no-metrics, bare": (0, pytest.approx(40, rel=0.01)),
    }
    assert [(row.apart, row.whole) for row in found.rungs] == [(True, False), (False, True)]
    assert found.rungs[0].text.startswith(("−20", "−19.9")) and "[" in found.rungs[0].text
    assert not found.missing and not found.notes


def test_processes_that_the_other_target_does_not_count_are_a_row_apart(
    used: Callable[[str, Used], None],
) -> None:
    """By the names of those that it counts: the controller and whoever looked in are a fifth here."""
    used("kind", four_fifths)
    used("apiserver", serving)
    found = ends_of(left(kind(), elsewhere()))
    assert found[BESIDE] == (pytest.approx(60, rel=0.01), pytest.approx(48, rel=0.01))
    assert found[LEFT] == (found[BESIDE][1], pytest.approx(40, rel=0.01))


@pytest.mark.usefixtures("used")
def test_the_interval_has_both_levels_and_every_step_in_it() -> None:
    still, alone = elsewhere(), noisy(0.1)
    quiet = width(kind(), still)
    here, there = width(kind(change=alone), still), width(kind(), elsewhere(run_of(target="apiserver", change=alone)))
    both = width(kind(change=alone), elsewhere(run_of(target="apiserver", change=alone)))
    assert quiet < 1 < there < here < both
    assert both**2 == pytest.approx(here**2 + there**2, rel=0.05)


@pytest.mark.usefixtures("used")
def test_a_level_is_carried_by_its_pairs_from_what_was_alone() -> None:
    """An arm alone that is off by something else moves none that pairs lead to; a variant without a pair is by itself."""
    change = dearer(lambda slot: 1.0 if slot.arm.variant == "baseline" else 3.0)
    found = level(kind(change=change), "no-log", "ceiling")
    assert found is not None and 1e6 * found.value == pytest.approx(60, rel=0.01)
    root = level(kind(), "baseline", "ceiling")
    assert root is not None and 1e6 * root.value == pytest.approx(100, rel=0.01)
    assert level(kind(), "nobody", "ceiling") is None and level(kind(), "baseline", "nowhere") is None


@pytest.mark.usefixtures("used")
def test_the_figure_takes_it_below_the_last_panels_steps_and_names_both_runs() -> None:
    run, there = kind(), elsewhere()
    shown = drawn(exhibits.ladder({"on kind": (run, TWO)}, "T", "ceiling", there))
    labels = [text.partition("<br>")[0] for text in shown["layout"]["yaxis"]["ticktext"]]
    assert labels == ["baseline, on kind", "metrics", "log", "no-log, on kind", LEFT, "no-metrics, bare"]
    assert len(shown["layout"]["meta"]["runs"]) == 2 and not shown["layout"]["meta"].get("gaps")
    alone = drawn(exhibits.ladder({"on kind": (run, TWO)}, "T", "ceiling"))
    titles = [each["layout"]["title"]["text"] for each in (shown, alone)]
    assert ["nothing is pooled" in title for title in titles] == [True, False]
