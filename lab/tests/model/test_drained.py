"""What a start may find: each bound is kept just below it and broken at it, and memory is none."""

from __future__ import annotations

import pytest

from lab.model.leftovers import Leftovers, find_taken_ports, find_undrained_faults, ports_are_taken

RANGE = {"proxy": 28_232, "backend": 28_232}


def waiting(count: int, place: str = "proxy", **more: int) -> Leftovers:
    return Leftovers(time_wait={place: {"10.64.0.3:80": count, **more}}, port_range=RANGE)


@pytest.mark.parametrize(("left", "said"), [
    (waiting(1_411), None),
    (waiting(1_412), "1,412 of 28,232 local ports of the proxy towards 10.64.0.3:80 (5%) wait in TIME_WAIT"),
    (waiting(28_232, place="backend"), "of the backend"),
    (waiting(1_400, other=1_400), None),  # a port serves each destination
    (Leftovers(time_wait={"proxy": {"a": 100}}, port_range={"proxy": 1_000}), "100 of 1,000"),
    (Leftovers(accept_queue={"proxy": 10}), None),
    (Leftovers(accept_queue={"proxy-2": 11}), "11 connections wait to be accepted by the proxy-2"),
    (Leftovers(old_workers=1), "1 old workers"),
    (Leftovers(old_workers=None), None),
    (Leftovers(open_connections={"proxy": 1_420}, port_range=RANGE), "1,420 connections of the proxy are still open, 8 were"),
    (Leftovers(open_connections={"proxy": 1_419}, port_range=RANGE), None),
    (Leftovers(memory_bytes={"proxy": 1 << 40}), None),
    (Leftovers(unseen={"proxy": "no shell"}), None),
])  # fmt: skip
def test_each_bound(left: Leftovers, said: str | None) -> None:
    first = Leftovers(open_connections={"proxy": 8})
    found = list(find_undrained_faults(left, first))
    assert (not found) if said is None else (len(found) == 1 and said in found[0]), found


def test_several_bounds_are_several_sentences() -> None:
    left = waiting(20_000).model_copy(update={"accept_queue": {"proxy": 500}, "old_workers": 2})
    assert len([*find_undrained_faults(left, None)]) == 3


def test_only_what_came_since_then_counts() -> None:
    """A warm-up is judged by what it added, at the destination where that is most."""
    before, start = waiting(1_000), waiting(2_000, other=1_300)
    assert ports_are_taken(start) and not ports_are_taken(start, before)
    assert find_taken_ports(start, before).destination == "other"


def test_where_the_range_is_not_known_nothing_is_taken() -> None:
    assert not ports_are_taken(Leftovers(time_wait={"proxy": {"any": 50_000}}))
