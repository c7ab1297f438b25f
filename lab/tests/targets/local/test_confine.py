"""Containers stay on their role's CPUs, however their processes bind themselves. No process is moved: the kernel is a dict."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lab.targets.local.kubelet import containers
from lab.targets.local.kubelet.containers import Process

MASTER, ONE, TWO = 10, 20, 30
POOL = 21  # a thread of the process ONE


def confined(monkeypatch: pytest.MonkeyPatch, own: set[int], masks: dict[int, set[int]]) -> dict[int, set[int]]:
    """Thread → its CPUs afterwards. A process's threads are the numbers from its own to the next ten."""
    found = {thread: set(mask) for thread, mask in masks.items()}
    monkeypatch.setattr(containers.os, "sched_getaffinity", found.__getitem__)
    monkeypatch.setattr(containers.os, "sched_setaffinity", found.__setitem__)
    monkeypatch.setattr(containers, "thread_ids", lambda pid: [t for t in found if t // 10 == pid // 10])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    process: Any = object.__new__(Process)
    process.setting = SimpleNamespace(cpus=frozenset(own))
    process.processes = lambda: [thread for thread in found if thread % 10 == 0]
    process.confine()
    return found


@pytest.mark.parametrize(
    ("own", "one", "two"), [({2, 3}, {2}, {3}), ({1, 2}, {2}, {1}), ({0, 1}, {0}, {1}), ({5}, {5}, {5})]
)
def test_workers_that_bound_themselves_to_cpus_0_and_1_each_get_one_of_their_own(
    own: set[int], one: set[int], two: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = confined(monkeypatch, own, {MASTER: own, ONE: {0}, POOL: {0}, TWO: {1}})
    assert found == {MASTER: own, ONE: one, POOL: one, TWO: two}


def test_a_process_that_may_use_other_cpus_keeps_those_of_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    found = confined(monkeypatch, {2, 3}, {MASTER: {0, 1, 2, 3}, ONE: {0, 1}, TWO: {1, 3}})
    assert found == {MASTER: {2, 3}, ONE: {2, 3}, TWO: {3}}
