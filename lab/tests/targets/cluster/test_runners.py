"""The life of a load of many generators, on a cluster of a few lines: with k6-operator, and without."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from lab.base.errors import LostError
from lab.generators import generator
from lab.model.endpoint import Ran
from lab.model.load import Load
from lab.targets.cluster import runners, testrun
from lab.targets.cluster.container_sampler import Place
from lab.targets.cluster.runners import Runners
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.testrun import CONTAINER, KIND
from lab.tests.support.cluster_fakes import FakeApi, Object
from lab.tests.support.summaries import summary

K6 = generator("k6")
LOAD = Load("http://10.96.0.7/1kB.bin", "web.lab.test", 10, 0.02, rate_rps=200.0, generators=2)
IMAGE = "docker.io/lab/loadgen:dev"
RUNNING = 7
"""Of k6's ExecutionStatus."""


@dataclass
class Cluster(FakeApi):
    """Pods run as soon as they are made, and do what k6 does: wait, work when let go, print when told to end.

    `operated`: an operator is there, which makes and starts them. `fate`: of runner 2. `slow`: so many questions are
    answered before a part is done. `told`: what happened, in order.
    """

    operated: bool = False
    fate: str = ""
    stage: str = ""
    slow: int = 2
    told: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__()
        self.status: dict[str, int] = {}
        self.selectors: list[Mapping[str, str]] = []

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        return ("testruns", True) if self.operated or kind != KIND else None

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        found = super().get(api_version, kind, name, namespace)
        return found and {**found, "status": {"stage": self.stage}}

    def create(self, obj: Mapping[str, Any]) -> Object:
        made = super().create(obj)
        if obj["kind"] == KIND and not self.stage:
            for number in range(1, obj["spec"]["parallelism"] + 1):
                self._run(testrun.runner(dict(obj), number))
        if obj["kind"] == "Pod":
            self._run(dict(obj))
        return made

    def _run(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        self.selectors.append(pod["spec"]["nodeSelector"])
        mine = self.fate if name.endswith("-2") else ""
        states = {"no image": {"waiting": {"reason": "ErrImagePull"}}, "bad script": {"terminated": {"exitCode": 107}}}
        state: Object = states.get(mine, {"running": {}})
        self.status[name] = -1 if mine == "no image" else runners.PAUSED
        pod["spec"]["nodeName"] = f"node{name[-2:]}"
        pod["status"] = {
            "phase": "Pending" if "waiting" in state else "Running",
            "podIP": f"10.0.0.{name[-1]}",
            "containerStatuses": [
                {"name": "istio-proxy", "state": {"running": {}}},
                {"name": CONTAINER, "state": state, "containerID": name},
            ],
        }
        self.put(pod)

    def end(self, name: str, exit_status: int) -> None:
        pod = self.objects["Pod", testrun.CLIENT_NAMESPACE, name]
        pod["status"]["containerStatuses"][1]["state"] = {"terminated": {"exitCode": exit_status}}
        self.put(pod)

    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = False, times: bool = False
    ) -> str:
        found = self.objects["Pod", namespace, pod]["status"]["containerStatuses"][1]["state"]
        if "terminated" not in found:
            return ""
        return f"a warning\n{summary(2 * int(pod[-1]), 1.0, duration_ms=20.0)}\n"

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        """The generator's pod."""
        if "PATCH" in text:
            self.told.append("go")
            deaf = [name for name in self.status if self.fate == "deaf" and name.endswith("-2")]
            self.status |= {name: RUNNING for name in self.status if name not in deaf}
            return subprocess.CompletedProcess([text], 0, "http://10.0.0.2:6565" if deaf else "", "")
        lines: list[str] = []
        for name in [name for name in self.status if f"//10.0.0.{name[-1]}:" in text]:
            if self.operated and "looking" in self.told:
                self.status[name] = max(RUNNING, self.status[name])  # its starter has been there
            if self.status[name] == RUNNING:
                self.slow -= 1
                if self.slow < 0 and not self._late(name):
                    self.status[name] = runners.ENDED
            lines.append(json.dumps({"data": {"attributes": {"status": self.status[name]}}}))
        return subprocess.CompletedProcess([text], 0, "\n".join(lines), "")

    def _late(self, name: str) -> bool:
        if self.fate == "killed" and name.endswith("-2"):
            self.end(name, 137)
        return self.fate == "hangs" and name.endswith("-2")


@dataclass
class Inside:
    """The shell into a runner: k6 prints and ends when it is told to."""

    cluster: Cluster
    name: str
    place: str = "pod of a runner"

    def script(self, text: str) -> None:
        if self.cluster.fate == "killed" and self.name.endswith("-2"):
            raise LostError(self.place, "no longer runs", "")
        assert text == "kill -TERM 1"
        self.cluster.told.append(f"end {self.name[-1]}")
        done = self.cluster.status[self.name] == runners.ENDED
        self.cluster.end(self.name, 0 if done else 105)

    def close(self) -> None:
        self.cluster.told.append("closed")


@dataclass
class Watch:
    """Who is looked at from the beginning of the load until its end."""

    cluster: Cluster

    @contextmanager
    def beginning_anew(self, places: Sequence[Place]) -> Iterator[None]:
        assert {place.role for place in places} == {"generator"}
        self.cluster.told.append("looking")
        yield
        self.cluster.told.append("looked at " + " ".join(place.node for place in places))


def generate(cluster: Any) -> Ran:
    watch: Any = Watch(cluster)
    made = Runners(cluster, cluster, lambda api, namespace, pod, container: cast("Shell", Inside(cluster, pod)))
    return made.generate(IMAGE, "r1", LOAD, K6.files(LOAD), {}, watch)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "POLL_S", 0.001)


@pytest.mark.parametrize("operated", [False, True])
def test_all_begin_after_the_first_look_end_after_the_last_and_nothing_is_left(operated: bool) -> None:
    cluster = Cluster(operated=operated)
    ran = generate(cluster)
    assert (ran.exit_status, ran.stderr, ran.hung, cluster.objects) == (0, "", False, {})
    go = [] if operated else ["go"]
    assert cluster.told == ["looking", *go, "looked at node-1 node-2", "end 1", "end 2", "closed", "closed"]
    made = [KIND] if operated else ["Pod", "Pod"]
    assert [what.split()[1] for what in cluster.asked if what.startswith("create")] == ["ConfigMap", *made]
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("--- runner 1 of 2: load-") and lines[0].endswith(" on node-1")
    result = K6.parse(ran.stdout, ran.stderr, ran.exit_status, LOAD)
    assert (result.requests, [part.requests for part in result.parts]) == (6, [2, 4])


def test_where_a_node_is_marked_for_generators_every_runner_is_there_whoever_makes_it() -> None:
    """A preference alone put the second one on the proxy's node in the arm that has no proxy."""
    here = {"lab/role": "generator"}
    for labels, selector in (({}, {}), ({"lab/role": "proxy"}, {}), (here, here)):
        for operated in (False, True):
            cluster = Cluster(operated=operated)
            cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}})
            generate(cluster)
            assert cluster.selectors == [selector, selector]


def test_what_a_lab_that_died_left_behind_is_removed_first() -> None:
    cluster = Cluster()
    config, run = testrun.objects("load-0", "r0", IMAGE, LOAD, K6.files(LOAD), {}, marked=False)
    cluster.create(config)
    cluster.create(testrun.runner(run, 1))
    cluster.put({"kind": "ConfigMap", "metadata": {"name": "inventory", "namespace": testrun.CLIENT_NAMESPACE}})
    generate(cluster)
    assert [name for _, _, name in cluster.objects] == ["inventory"]


@pytest.mark.parametrize(
    ("fate", "status", "says"),
    [
        ("bad script", 107, "-2: Running"),
        ("killed", 137, "-2: Running"),
        ("deaf", runners.NOT_STARTED, "cannot be let go: http://10.0.0.2:6565"),
    ],
)
def test_one_runner_that_fails_fails_the_load(fate: str, status: int, says: str) -> None:
    cluster = Cluster(fate=fate)
    ran = generate(cluster)
    assert (ran.exit_status, ran.hung) == (status, False)
    assert says in ran.stderr and cluster.objects == {}


def test_a_runner_that_goes_on_beyond_its_time_is_hung_and_one_that_never_begins_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runners, "GRACE_S", 0.1 - LOAD.timeout_s)
    ran = generate(Cluster(fate="hangs"))
    assert ran.hung and ran.exit_status == 105
    monkeypatch.setattr(runners, "START_S", 0.0)
    ran = generate(Cluster(fate="no image"))
    assert ran.exit_status == runners.NOT_STARTED and "-2: Pending, ErrImagePull" in ran.stderr
    cluster = Cluster(operated=True)
    monkeypatch.setattr(cluster, "_run", lambda pod: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert "is the operator running?" in generate(cluster).stderr
    ran = generate(Cluster(operated=True, stage="error"))
    assert ran.exit_status == 1 and "k6-operator refused the load: its own log says why" in ran.stderr


def test_what_ends_the_lab_leaves_no_runner_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def gone(self: Runners, wanted: Object) -> list[str]:
        raise LostError("context test", "the lease is another's", "")

    monkeypatch.setattr(Runners, "_let_go", gone)
    with pytest.raises(LostError, match="another's"):
        generate(cluster)
    assert cluster.objects == {}
