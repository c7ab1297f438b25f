"""What loads leave in pods, asked through their shells: a shell of this machine stands for each pod's."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from lab.base.errors import LostError, MeasuringError
from lab.targets.cluster.system import ClusterSystem
from lab.targets.common.leftovers import Ordinary
from lab.tests.targets.common.test_leftovers import TOLD


class Answering:
    """A pod's shell that gives one answer after the other, or raises it; this machine's own `sh` where it has none."""

    def __init__(self, name: str, *answers: str | Exception) -> None:
        self.place, self.pid, self._answers = f"pod ns/{name}", 1, list(answers)

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        if not self._answers:
            return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess([], 0, answer, "")


def system(**shells: Answering) -> ClusterSystem:
    """One that came up with these pods, `proxy…` and `backend…`, and does not change."""
    made: Any = ClusterSystem.__new__(ClusterSystem)
    made._changing, made._ordinary = None, Ordinary()
    pods = {
        name: {"metadata": {"namespace": "ns", "name": name}, "spec": {"containers": [{"name": "c"}]}}
        for name in shells
    }
    made._came_up = {
        role: [pod for name, pod in pods.items() if name.startswith(role)] for role in ("proxy", "backend")
    }
    made._shell = lambda pod: shells[pod["metadata"]["name"]]
    return made


def test_every_pod_is_a_place_and_processes_are_added_up() -> None:
    more = TOLD.replace("4 1 19292", "6 0 1000")
    found = system(proxya=Answering("a", TOLD), proxyb=Answering("b", more), backend=Answering("c", TOLD)).leftovers()
    assert found.time_wait == {name: {"10.64.0.3:8080": 2} for name in ("proxy", "proxy-2", "backend")}
    assert found.port_range["proxy-2"] == 28_232 and found.accept_queue["proxy"] == 11
    assert found.open_connections["backend"] == 6 and not found.unseen
    assert found.memory_bytes == {"proxy": 20_292 * 1024, "backend": 19_292 * 1024}
    assert found.old_workers == 1, "one says that it is ending"


def test_more_processes_than_at_first_are_old_workers() -> None:
    calm, more = (TOLD.replace("4 1 19292", text) for text in ("4 0 1", "6 0 1"))
    one = system(proxy=Answering("a", calm, more))
    assert [one.leftovers().old_workers for _ in range(2)] == [0, 2]
    found = system(proxy=Answering("this machine's own sh")).leftovers()
    assert found.port_range["proxy"] > 1_000 and found.memory_bytes["proxy"] > 0 and not found.unseen


def test_a_pod_that_does_not_answer_is_unseen_and_its_workers_unknown() -> None:
    """One that is gone is an error, but where pods come and go: there the others are asked once more."""
    refused = MeasuringError("pod ns/a", "does not answer")
    found = system(proxy=Answering("a", refused), backend=Answering("b", "half")).leftovers()
    assert set(found.unseen) == {"proxy", "backend"} and "does not answer" in found.unseen["proxy"]
    assert found.old_workers is None and found.time_wait == {}
    gone = LostError("pod ns/a", "is gone")
    with pytest.raises(LostError):
        system(proxy=Answering("a", gone)).leftovers()
    made: Any = system(proxy=Answering("a", gone, TOLD))
    made._changing, made.pods = object(), lambda role: made._came_up[role]
    assert made.leftovers().old_workers == 1
