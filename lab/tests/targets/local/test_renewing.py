"""When a reload is over: as many new processes as old ones gone, and an answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat

import pytest

from lab.base.errors import MeasuringError, NotMeasurableError
from lab.model.variants.variants import load_variant
from lab.systems import renewing
from lab.systems.renewing import Running, list_running
from lab.targets.local.target import LocalTarget
from lab.tests.support.factories import make_point


def looks(*seen: Sequence[int]) -> Callable[[], Mapping[int, Running]]:
    """One after the other, the last again and again: 1 is the master of all others but 90, which a script starts."""
    told = chain(seen, repeat(seen[-1]))
    known = {1: Running(80, "nginx"), 90: Running(80, "nginx")}
    return lambda: {pid: known.get(pid, Running(1, "nginx")) for pid in next(told)}


def test_it_is_over_when_the_old_ones_are_gone_and_not_before() -> None:
    """A trial of the configuration comes and goes; one of two old workers stays a while; a third (a cache's loader) has no successor."""
    serving = looks(
        [1, 2, 3, 6], [1, 2, 3, 6, 90], [1, 2, 3, 90], [1, 2, 3, 4, 5], [1, 3, 4, 5], [1, 4, 5], [1, 4, 5], [1, 4, 5]
    )
    asked: list[int] = []
    answers = chain([False], repeat(True))
    found = renewing.wait_for_new_workers(lambda: asked.append(1), serving, lambda: next(answers), lambda: "")
    assert (found.began, found.ended, asked) == ((4, 5), (2, 3, 6), [1])
    found = list_running([os.getpid(), 2**22 + 1])
    assert list(found) == [os.getpid()] and found[os.getpid()].parent == os.getppid()


def test_a_reload_of_which_nothing_comes_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "AGAIN_S", 0.05)
    asked: list[int] = []

    def serving() -> dict[int, Running]:
        return {1: Running(80, "haproxy"), (2 if len(asked) < 2 else 3): Running(1, "haproxy")}

    found = renewing.wait_for_new_workers(lambda: asked.append(1), serving, lambda: True, lambda: "")
    assert (found.began, found.ended, len(asked)) == ((3,), (2,), 2)


@pytest.mark.parametrize(
    ("after", "said"),
    [([1, 2], "0 processes began, 0 ended and 0 old ones stayed"), ([1, 2, 3], "1 processes began, 0 ended and 1 old")],
    ids=["nothing-happened", "the-old-one-stays"],
)
def test_a_reload_that_stays_out_is_a_fault(after: list[int], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "MOST_S", 0.1)
    with pytest.raises(MeasuringError, match=said):
        renewing.wait_for_new_workers(lambda: None, looks([1, 2], after), lambda: True, lambda: "its log")


@pytest.mark.parametrize("name", ["envoy", "traefik", "caddy", "workers-4"])
def test_generations_of_a_proxy_that_makes_no_new_workers_cannot_be_shown(name: str) -> None:
    """More workers than CPUs may be asked for where they are the question (`worker-processes-4` alone is refused)."""
    point = make_point("ceiling", rate_rps=None, generations=2)
    if name == "workers-4":
        LocalTarget().check_variant(load_variant(name), [point])
        return
    with pytest.raises(NotMeasurableError, match="no reload of this proxy makes new workers"):
        LocalTarget().check_variant(load_variant(name), [point])
