"""A load of many generators: how it is shared and its results merged, the pods that make it, and their life on a cluster of a few lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast

import kubernetes_validate
import numpy as np
import pytest
from pydantic import ValidationError

from lab.base.errors import LostError
from lab.generators import generator
from lab.generators.k6 import environment, merged
from lab.model.endpoint import Ran
from lab.model.load import Load, OutputError
from lab.model.sweeps import Point, Sweep
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.schemas import KUBERNETES
from lab.stats.histogram import Histogram
from lab.targets.cluster import runners
from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL, Api
from lab.targets.cluster.container_sampler import Place
from lab.targets.cluster.runners import CONTAINER, MEMBER, Runners
from lab.targets.cluster.sampling import ClusterWatch
from lab.targets.cluster.shell import Shell
from lab.tests.support.cluster_fakes import FakeApi, Object
from lab.tests.support.summaries import summary

K6 = generator("k6")
LOAD = Load("http://10.96.0.7/1kB.bin", "web.lab.test", 10, 0.02, rate_rps=200.0, generators=2)
IMAGE = "docker.io/lab/loadgen:dev"
RUNNING = 7
"""Of k6's ExecutionStatus."""

# What the parts come to


def test_what_the_parts_made_is_added_bucket_by_bucket_and_the_longest_duration_counts() -> None:
    """Percentiles come from the merged histogram and are no average of the parts; one generator has no parts, and one that said nothing is
    missed.
    """
    shared = replace(LOAD, duration_s=5.0, rate_rps=201.0)
    said = f"--- runner 1 of 2\n{summary(500, 1.0, 2)}\n--- runner 2 of 2\n{summary(504, 9.0, 1, 4, 5100.0)}\n"
    result = K6.parse(said, "", 0, shared)
    assert (result.requests, result.dropped, dict(result.errors)) == (1000, 3, {"timeout": 4})
    assert (result.duration_s, result.size_bytes) == (pytest.approx(5.1), 100_400)
    assert result.achieved_rps == 200.0
    assert result.latency.total == 1000
    assert [part.requests for part in result.parts] == [500, 500]
    assert "2 generators made 500 + 500 requests" in result.notes
    one = K6.parse(summary(990, 1.0), "", 0, replace(shared, generators=1))
    assert one.parts == ()
    with pytest.raises(OutputError, match="expected 2 lines of summaries"):
        K6.parse(summary(500, 1.0), "", 0, shared)
    quick, slow = Histogram.of_values(np.full(990, 0.001)), Histogram.of_values(np.full(10, 0.1))
    both = merged([replace(one, latency=quick), replace(one, latency=slow, requests=10)])
    assert both.latency.quantile_s(0.99) == pytest.approx(0.001, rel=1e-3)
    assert both.latency.maximum_s == pytest.approx(0.1, rel=1e-2)
    values = [np.geomspace(1e-4 * (1 + number), 0.2 * (1 + number), 100 + number) for number in range(7)]
    parts = [replace(one, latency=Histogram.of_values(each), requests=each.size) for each in values]
    both, whole = merged(parts).latency, Histogram.of_values(np.concatenate(values))
    assert (both.counts == sum(part.latency.counts for part in parts)).all()
    assert (both.counts == whole.counts).all() and both.total == whole.total == merged(parts).requests
    assert both.maximum_s == whole.maximum_s == max(part.latency.maximum_s or 0 for part in parts)


def point(**changed: Any) -> Point:
    table = {"name": "many", "generator": "k6", "connections": 10, "rate_rps": 100.0, "duration_s": 5, **changed}
    return Sweep.model_validate({"title": "t", "question": "q", "blocks": 1, "points": [table]}).expanded()[0]


def test_only_loads_that_can_be_shared_evenly_are_made_by_many() -> None:
    assert K6.refusal(LOAD) is None
    assert "shared evenly by 3 generators" in (K6.refusal(replace(LOAD, generators=3)) or "")
    hosts = ("a.lab.test", "b.lab.test")
    assert "with 2 hosts" in (K6.refusal(replace(LOAD, hosts=hosts, connections=6, generators=2)) or "")
    assert "only k6" in (generator("wrk").refusal(replace(LOAD, rate_rps=None)) or "")
    assert (point().generators, point(generators=4).generators) == (1, 4)
    with pytest.raises(ValidationError, match="only k6 is run as several at once, not wrk"):
        point(generator="wrk", rate_rps=None, generators=2)


@pytest.mark.parametrize("of", [2, 3, 4, 7, 100])
def test_the_parts_are_the_whole_and_nothing_twice(of: int) -> None:
    spelled = [runners.segments(number, of) for number in range(1, of + 1)]
    assert len({sequence for _, sequence in spelled}) == 1
    bounds = [Fraction(each) for each in spelled[0][1].removeprefix("--execution-segment-sequence=").split(",")]
    assert (bounds[0], bounds[-1]) == (0, 1) and bounds == sorted(set(bounds))
    parts = [tuple(map(Fraction, part.removeprefix("--execution-segment=").split(":"))) for part, _ in spelled]
    assert parts == list(pairwise(bounds))
    assert {end - begin for begin, end in parts} == {Fraction(1, of)}


def test_a_runner_is_a_pod_of_our_image_that_waits_with_its_part_of_our_script() -> None:
    load = replace(LOAD, connections=30, generators=3)
    config = runners.config("load-1", "r1", K6.files(load), {"web.lab.test": "10.96.0.7"})
    pod = runners.runner("load-1", "r1", IMAGE, load, 2, marked=True)
    for obj in (config, pod):
        kubernetes_validate.validate(obj, KUBERNETES, strict=True)
    assert config["data"]["k6.js"] == K6.files(load)["k6.js"]
    assert json.loads(config["data"]["k6.json"]) == {"hosts": {"web.lab.test": "10.96.0.7"}}
    assert config["metadata"]["labels"] == {RUN_LABEL: "r1", MEMBER: "load-1"}
    assert pod["metadata"]["labels"] == {RUN_LABEL: "r1", ROLE_LABEL: "generator", MEMBER: "load-1"}
    assert (pod["metadata"]["name"], pod["spec"]["nodeSelector"]) == ("load-1-2", {ROLE_LABEL: "generator"})
    (container,) = pod["spec"]["containers"]
    assert (container["name"], container["image"]) == (CONTAINER, IMAGE)
    assert " ".join(container["command"]) == (
        "k6 run --quiet --execution-segment=1/3:2/3 --execution-segment-sequence=0,1/3,2/3,1"
        " --no-color --no-usage-report --linger --config /test/k6.json /test/k6.js --address=0.0.0.0:6565 --paused"
    )
    assert {each["name"]: each["value"] for each in container["env"]} == environment(load), "as k6 runs elsewhere"


# Their life


@dataclass
class Cluster(FakeApi):
    """Pods run as soon as they are made, and do what k6 does: wait, work when let go, print when told to end.

    `fate`: of runner 2. `slow`: so many questions are answered before a part is done. `told`: what happened, in order.
    """

    fate: str = ""
    slow: int = 2
    told: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__()
        self.status: dict[str, int] = {}
        self.selectors: list[Mapping[str, str]] = []

    def create(self, obj: Mapping[str, Any]) -> Object:
        made = super().create(obj)
        if obj["kind"] == "Pod":
            self._run(dict(obj))
        return made

    def _run(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        self.selectors.append(pod["spec"]["nodeSelector"])
        mine = self.fate if name.endswith("-2") else ""
        state: Object = {"running": {}}
        if mine == "no image":
            state = {"waiting": {"reason": "ErrImagePull"}}
        if mine == "bad script":
            state = {"terminated": {"exitCode": 107}}
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
        pod = self.objects["Pod", CLIENT_NAMESPACE, name]
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


def generate(cluster: Cluster) -> Ran:
    def inside(api: Api, namespace: str, pod: str, container: str) -> Shell:
        return cast("Shell", Inside(cluster, pod))

    made = Runners(cast("Api", cluster), cast("Shell", cluster), inside)
    return made.generate(IMAGE, "r1", LOAD, K6.files(LOAD), {}, cast("ClusterWatch", Watch(cluster)))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "POLL_S", 0.001)


def test_all_begin_after_the_first_look_end_after_the_last_and_nothing_is_left() -> None:
    """Nor of what a lab that died left behind, which is removed first."""
    cluster = Cluster()
    cluster.create(runners.config("load-0", "r0", K6.files(LOAD), {}))
    cluster.create(runners.runner("load-0", "r0", IMAGE, LOAD, 1, marked=False))
    cluster.status.clear()
    cluster.put({"kind": "ConfigMap", "metadata": {"name": "inventory", "namespace": CLIENT_NAMESPACE}})
    ran = generate(cluster)
    assert (ran.exit_status, ran.stderr, ran.hung) == (0, "", False)
    assert [name for _, _, name in cluster.objects] == ["inventory"]
    assert cluster.told == ["looking", "go", "looked at node-1 node-2", "end 1", "end 2", "closed", "closed"]
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("--- runner 1 of 2: load-") and lines[0].endswith(" on node-1")
    result = K6.parse(ran.stdout, ran.stderr, ran.exit_status, LOAD)
    assert (result.requests, [part.requests for part in result.parts]) == (6, [2, 4])


def test_where_a_node_is_marked_for_generators_every_runner_is_there() -> None:
    """A preference alone put the second one on the proxy's node in the arm that has no proxy."""
    here = {"lab/role": "generator"}
    for labels, selector in (({}, {}), ({"lab/role": "proxy"}, {}), (here, here)):
        cluster = Cluster()
        cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}})
        generate(cluster)
        assert cluster.selectors == [selector, selector]


@pytest.mark.parametrize(
    ("fate", "status", "says"),
    [
        ("bad script", 107, "-2: Running"),
        ("killed", 137, "-2: Running"),
        ("deaf", runners.NOT_STARTED, "cannot be let go: http://10.0.0.2:6565"),
        ("no image", runners.NOT_STARTED, "-2: Pending, ErrImagePull"),
        ("hangs", 105, ""),
    ],
)
def test_one_runner_that_fails_fails_the_load(
    fate: str, status: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never begins, ends too soon, or goes on beyond its time: then it is hung."""
    monkeypatch.setattr(runners, "START_S", 0.0 if fate == "no image" else 60.0)
    if fate == "hangs":
        monkeypatch.setattr(runners, "GRACE_S", 0.1 - LOAD.timeout_s)
    cluster = Cluster(fate=fate)
    ran = generate(cluster)
    assert (ran.exit_status, ran.hung) == (status, fate == "hangs")
    assert says in ran.stderr and cluster.objects == {}


def test_what_ends_the_lab_leaves_no_runner_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def gone(self: Runners, wanted: Object) -> list[str]:
        raise LostError("context test", "the lease is another's", "")

    monkeypatch.setattr(Runners, "_let_go", gone)
    with pytest.raises(LostError, match="another's"):
        generate(cluster)
    assert cluster.objects == {}
