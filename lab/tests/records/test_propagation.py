"""Numbered changes and who answered → when each was seen, and which answers were of an old state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from lab.records import propagation
from lab.tests.records.test_outcomes import log, told

Way = Callable[[int], str]


def endpoints(number: int) -> str:
    return f"backend-0 {9000 + number} -"


def routes(number: int) -> str:
    return f"backend-0 9000 {number or '-'}"


def made(*at_s: float, way: str = "endpoints") -> pl.DataFrame:
    return told(*((at, "Change", str(number), f"{way} whatever") for number, at in enumerate(at_s, 1)))


def shown(state: Callable[[float], int], way: Way = endpoints, **more: Any) -> pl.DataFrame:
    return log(lambda due_s: {"answer": way(state(due_s))}, **more)


@pytest.mark.parametrize(("name", "way"), [("endpoints", endpoints), ("routes", routes)])
def test_each_change_is_timed_from_its_event_to_the_first_answer_that_shows_it(name: str, way: Way) -> None:
    found = propagation.compute_propagation(
        shown(lambda due_s: (due_s >= 5.2) + (due_s >= 11), way), made(5, 10, way=name)
    )
    assert found["changes"] == 2
    assert found["correct_s"] == pytest.approx((0.202 + 1.002) / 2, abs=1e-3)
    assert found["correct_max_s"] == pytest.approx(1.002, abs=1e-3)
    assert {key: found[key] for key in ("unseen", "superseded", "stale")} == {"unseen": 0, "superseded": 0, "stale": 0}
    assert found["old"] == pytest.approx(20 + 100, abs=2), "asked after the change, answered as before it"


def test_changes_that_were_taken_over_together_are_superseded() -> None:
    """Five changes a second, one reload at the end: each is correct with the last, and only that one was ever seen itself."""
    found = propagation.compute_propagation(shown(lambda due_s: 5 if due_s >= 6 else 0), made(5, 5.2, 5.4, 5.6, 5.8))
    assert (found["changes"], found["superseded"], found["unseen"]) == (5, 4, 0)
    assert found["correct_s"] == pytest.approx(0.602, abs=2e-3)
    assert found["correct_max_s"] == pytest.approx(1.002, abs=2e-3)


def test_an_old_answer_after_a_new_one_is_stale() -> None:
    """As of two workers that answer in turn, of which one takes the change over a second later: half of the answers between."""
    requests = shown(lambda due_s: int(due_s >= 6 and round(due_s * 100) not in (650, 700, 701)))
    assert propagation.compute_propagation(requests, made(5))["stale"] == 3
    found = propagation.compute_propagation(
        shown(lambda due_s: int(due_s >= (6 if round(due_s * 100) % 2 else 7))), made(5)
    )
    assert found["stale"] == pytest.approx(50, abs=1)
    assert found["correct_s"] == pytest.approx(1.012, abs=2e-3)


def test_what_was_asked_before_anybody_knew_is_not_stale() -> None:
    """A slow answer of the old state overtaken by a fast one of the new: nobody had seen the new when it was asked for."""

    def change(due_s: float) -> dict[str, Any]:
        slow = {"done_s": due_s + 1.0} if due_s == 5.5 else {}
        return {"answer": endpoints(int(due_s > 5.5))} | slow

    assert propagation.compute_propagation(log(change), made(5))["stale"] == 0


def test_a_change_nobody_saw_took_longer_than_any_other() -> None:
    seen = shown(lambda due_s: 2 if due_s >= 8 else 1 if due_s >= 6 else 0)
    most = propagation.compute_propagation(seen, made(5, 7, 19))
    assert (most["unseen"], most["correct_max_s"]) == (1, None)
    assert most["correct_s"] == pytest.approx(1.002, abs=2e-3), "the median of three"
    half = propagation.compute_propagation(seen, made(5, 7, 18, 19))
    assert (half["unseen"], half["correct_s"]) == (2, None)


def test_failed_answers_and_those_that_do_not_say_where_they_come_from_show_nothing() -> None:
    requests = log(lambda due_s: {"answer": endpoints(1), "status": 200 if due_s >= 7 else 503})
    assert propagation.compute_propagation(requests, made(5))["correct_s"] == pytest.approx(2.002, abs=2e-3)
    requests = log(lambda due_s: {"answer": "backend-0" if due_s < 9 else endpoints(1)})
    found = propagation.compute_propagation(requests, made(5))
    assert (found["correct_s"], found["old"]) == (pytest.approx(4.002, abs=2e-3), 0)
    found = propagation.compute_propagation(shown(lambda _due: 0), made(5, 6, way="weights"))
    assert found.pop("changes") == 2
    assert set(found.values()) == {None}, "what answers cannot show is counted only"


def test_the_delays_are_told_one_by_one() -> None:
    found = propagation.list_delays(shown(lambda due_s: int(due_s >= 6)), made(5, 7))
    assert found["number"].to_list() == [1, 2]
    assert found["delay_s"].to_list() == [pytest.approx(1.002, abs=2e-3), None]
    early = propagation.compute_propagation(shown(lambda due_s: int(due_s >= 4.99)), made(5))
    assert early["correct_s"] == 0, "answered before the change was written down"
    assert propagation.compute_propagation(log(), told()) == {}
    assert propagation.list_delays(log(), told()).is_empty()
