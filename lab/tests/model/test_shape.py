"""What a run's blocks hold: pairs where they can be had, the guard as often as it needs, arms alone where they lead."""

from __future__ import annotations

from typing import Any

import pytest

from lab.model.pairs import SIDES
from lab.model.plan import Shape, arms_for
from lab.model.shape import BESIDE, GUARD, LEVELS, leading, leads_alone, scheme_of, shape_of
from lab.model.sweeps import Point
from lab.tests.support.factories import make_point

CEILING, RATE = make_point("ceiling", rate_rps=None), make_point()
CLOSE = make_point("close", rate_rps=None, keepalive=False)
QUEUE = make_point("queue", subject=("listen-overflow",))
ARMS = arms_for([("keepalive", "baseline")], "direct")


def shape(points: list[Point], blocks: int = 7, shared: bool = False, primary: str = "cpu_per_request") -> Shape:
    found = shape_of(ARMS, points, blocks, SIDES, leading(ARMS, points, {"keepalive": (shared, primary)}))
    assert found is not None
    return found


def test_what_runs_in_the_process_is_paired_in_every_block_and_alone_for_its_levels() -> None:
    found = shape([CEILING, RATE])
    assert found.pairs == {"keepalive": 7, "baseline-again": GUARD}
    assert found.points == {"ceiling", "rate-1000"}
    assert {found.alone[arm, point.name] for arm in ("baseline", "keepalive") for point in (CEILING, RATE)} == {LEVELS}
    assert found.alone["baseline-again", "ceiling"] == 0
    assert not any(arm == "direct" for arm, _ in found.alone), "the reference is measured once, as always"


def test_what_a_pair_shares_is_alone_in_every_block_and_its_pair_stands_beside() -> None:
    found = shape([CEILING, RATE], shared=True)
    assert found.pairs["keepalive"] == BESIDE
    assert {found.alone[arm, point.name] for arm in ("baseline", "keepalive") for point in (CEILING, RATE)} == {7}


def test_a_load_that_opens_connections_is_alone_at_that_point_only() -> None:
    found = shape([CEILING, CLOSE])
    assert found.pairs["keepalive"] == 7, "for the other point"
    assert (found.alone["keepalive", "ceiling"], found.alone["keepalive", "close"]) == (LEVELS, 7)
    assert (found.alone["baseline", "ceiling"], found.alone["baseline", "close"]) == (LEVELS, 7)


def test_what_no_pair_can_bear_is_not_of_its_points() -> None:
    found = shape([CEILING, QUEUE])
    assert found.points == {"ceiling"}
    assert ("keepalive", "queue") not in found.alone, "so that it is measured alone in all blocks"


def test_what_two_of_cannot_be_up_is_alone_in_every_block() -> None:
    """Others of the run keep their pairs."""
    arms = arms_for([("keepalive", "baseline"), ("host-network", "baseline")], None)
    asked = {"keepalive": (False, "rate"), "host-network": (True, "rate")}
    found = shape_of(arms, [RATE], 7, SIDES, leading(arms, [RATE], asked), {"host-network"})
    assert found is not None and found.pairs == {"keepalive": 7, "baseline-again": GUARD}
    assert (found.alone["host-network", RATE.name], found.alone["baseline", RATE.name]) == (7, 7)
    assert shape_of(ARMS, [RATE], 7, SIDES, (), {"baseline"}) is None, "nothing is left to be paired"


def test_nothing_is_paired_where_nothing_can_be() -> None:
    assert shape_of(ARMS, [QUEUE], 7, SIDES) is None
    assert shape_of(ARMS, [CEILING], 7, SIDES[:1]) is None, "a target with one place"


def test_where_a_pair_is_on_generations_its_guard_is_on_one_in_as_few_blocks_as_it_needs() -> None:
    """The A/A pair of a run that tries something; of a baseline alone it is what is asked for."""
    several = CEILING.model_copy(update={"generations": 4})
    assert shape([several, RATE]).pairs["baseline-again"] == GUARD
    assert shape([several, RATE]).generations == {("baseline-again", "ceiling"): 1}
    itself = shape_of(arms_for([("baseline", None)], None), [several], 7, SIDES)
    assert itself is not None and not itself.generations and itself.pairs == {"baseline-again": 7}


def test_what_is_measured_once_in_a_bring_up_is_not_measured_in_more_of_them_than_it_needs() -> None:
    """Bring-ups are many because workers scatter, and a rate beside them would take most of the time."""
    several, asked = make_point("ceiling", rate_rps=None, generations=3), {"keepalive": (False, "cpu_per_request")}

    def fewer(points: list[Point], once: int | None) -> object:
        found = shape_of(ARMS, points, 16, SIDES, leading(ARMS, points, asked), once=once)
        assert found is not None and found.pairs == {"keepalive": 16, "baseline-again": GUARD}
        return found.fewer

    assert fewer([several, RATE], 9) == {("keepalive", "rate-1000"): 9}, "its guard has six anyway"
    assert fewer([several, RATE], 16) == fewer([several, RATE], None) == fewer([CEILING, RATE], 9) == {}


@pytest.mark.parametrize("blocks", [6, 7, 20])
def test_no_more_is_asked_for_than_there_are_blocks(blocks: int) -> None:
    found = shape([CEILING], blocks)
    assert max(found.pairs.values()) == blocks and max(found.alone.values()) <= blocks
    assert found.pairs["baseline-again"] == min(blocks, GUARD)


def test_so_few_blocks_that_no_effect_is_told_are_not_paired() -> None:
    assert shape_of(ARMS, [CEILING], 5, SIDES) is None


def test_a_baseline_by_itself_has_its_guard() -> None:
    found = shape_of(arms_for([("baseline", None)], None), [CEILING], 7, SIDES)
    assert found is not None and found.pairs == {"baseline-again": GUARD}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("point", "why"),
    [(CEILING, "slices"), (RATE, "together"), (CLOSE, None), (QUEUE, None)],
    ids=["ceiling", "rate", "close", "queue"],
)
def test_how_an_effect_is_come_by(point: Point, why: str | None, shared: bool) -> None:
    assert scheme_of(shared, point, SIDES) == (None if shared else why)
    assert scheme_of(shared, point, SIDES[:1]) is None


def test_latency_in_a_sweep_of_closed_loops_leads_alone() -> None:
    """Slices do not tell it; where there is a rate, that is the place for it."""
    assert leads_alone(False, "p99", CEILING, [CEILING, CLOSE])
    assert not leads_alone(False, "p99", CEILING, [CEILING, RATE])
    assert not leads_alone(False, "cpu_per_request", CEILING, [CEILING])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"requests": 500, "rate_rps": None}, "no slices"),
        ({"generators": 2}, "several generators"),
        ({"control": True}, "bound to it alone"),
        ({"subject": ("errors",)}, "run out"),
        ({"of_knee": 0.5}, "more than one proxy serves"),
        ({"of_knee": 0.4}, ""),
        ({"alone": "memory is the subject"}, "memory is the subject"),
        ({}, ""),
    ],
)
def test_a_point_says_why_no_pair_can_bear_it(changed: dict[str, Any], said: str) -> None:
    why = make_point(**changed).why_alone
    assert (said in why) if said else why == ""
