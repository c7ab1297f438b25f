"""The life of a load of many generators, on a cluster of a few lines: with k6-operator, and without; how a load is shared and its results merged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast

import jsonschema
import kubernetes_validate
import numpy as np
import pytest
from pydantic import ValidationError

from lab.base.errors import LostError
from lab.generators import get_generator
from lab.generators.k6 import make_environment, merge_results
from lab.model.endpoint import GeneratorsOutput
from lab.model.load import GeneratorLoad, OutputError
from lab.model.sweeps import LoadPoint, Sweep
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.schemas import KUBERNETES
from lab.stats.histogram import Histogram
from lab.targets.cluster import runners
from lab.targets.cluster.api import RUN_LABEL
from lab.targets.cluster.runners import CONTAINER, KIND, RunnerLoad
from lab.targets.cluster.sampling import WatchedContainer
from lab.targets.cluster.shell import Shell
from lab.tests.support.cluster_fakes import FakeApi, Object
from lab.tests.support.summaries import summary

K6 = get_generator("k6")
LOAD = GeneratorLoad("http://10.96.0.7/1kB.bin", "web.lab.test", 10, 0.02, rate_rps=200.0, generators=2)
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
                self._run(runners.build_runner(dict(obj), number))
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
        pod = self.objects["Pod", runners.CLIENT_NAMESPACE, name]
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
    def beginning_anew(self, places: Sequence[WatchedContainer]) -> Iterator[None]:
        assert {place.role for place in places} == {"generator"}
        self.cluster.told.append("looking")
        yield
        self.cluster.told.append("looked at " + " ".join(place.node for place in places))


def generate(cluster: Any) -> GeneratorsOutput:
    watch: Any = Watch(cluster)
    made = RunnerLoad(cluster, cluster, lambda api, namespace, pod, container: cast("Shell", Inside(cluster, pod)))
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


def test_a_lab_that_ends_leaves_no_runner_and_what_one_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    config, run = runners.build_testrun("load-0", "r0", IMAGE, LOAD, K6.files(LOAD), {}, marked=False)
    cluster.create(config)
    cluster.create(runners.build_runner(run, 1))
    cluster.put({"kind": "ConfigMap", "metadata": {"name": "inventory", "namespace": runners.CLIENT_NAMESPACE}})
    generate(cluster)
    assert [name for _, _, name in cluster.objects] == ["inventory"]
    cluster = Cluster()

    def gone(self: RunnerLoad, wanted: Object) -> list[str]:
        raise LostError("context test", "the lease is another's", "")

    monkeypatch.setattr(RunnerLoad, "_let_go", gone)
    with pytest.raises(LostError, match="another's"):
        generate(cluster)
    assert cluster.objects == {}


def test_one_runner_that_fails_fails_the_load() -> None:
    for fate, status, says in (
        ("bad script", 107, "-2: Running"),
        ("killed", 137, "-2: Running"),
        ("deaf", runners.NOT_STARTED, "cannot be let go: http://10.0.0.2:6565"),
    ):
        cluster = Cluster(fate=fate)
        ran = generate(cluster)
        assert (ran.exit_status, ran.hung) == (status, False)
        assert says in ran.stderr and cluster.objects == {}


def test_a_runner_that_goes_on_is_hung_and_one_that_never_begins_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
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


SHARED = replace(LOAD, duration_s=5.0, rate_rps=201.0)


def made(generators: int = 2, marked: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    load = replace(SHARED, connections=30, generators=generators)
    return runners.build_testrun("load-1", "r1", IMAGE, load, K6.files(load), {"web.lab.test": "10.96.0.7"}, marked)


def point(**changed: Any) -> LoadPoint:
    table = {"name": "many", "generator": "k6", "connections": 10, "rate_rps": 100.0, "duration_s": 5, **changed}
    return Sweep.model_validate({"title": "t", "question": "q", "blocks": 1, "points": [table]}).load_points[0]


def test_counts_rates_and_histograms_of_the_parts_are_added_and_the_longest_duration_counts() -> None:
    said = f"--- runner 1 of 2\n{summary(500, 1.0, 2)}\n--- runner 2 of 2\n{summary(504, 9.0, 1, 5100.0, timeout=4)}\n"
    result = K6.parse(said, "", 0, SHARED)
    assert (result.requests, result.dropped, dict(result.errors)) == (1000, 3, {"timeout": 4})
    assert (result.duration_s, result.size_bytes) == (pytest.approx(5.1), 100_400)
    assert result.achieved_rps == 200.0
    assert result.latency.total == 1000
    assert [part.requests for part in result.parts] == [500, 500]
    assert "2 generators made 500 + 500 requests" in result.notes
    assert K6.parse(summary(990, 1.0), "", 0, replace(SHARED, generators=1)).parts == ()
    with pytest.raises(OutputError, match="expected 2 lines of summaries"):
        K6.parse(summary(500, 1.0), "", 0, SHARED)


@pytest.mark.parametrize("many", [2, 3, 7])
def test_histograms_add_exactly_bucket_by_bucket(many: int) -> None:
    one = K6.parse(summary(990, 1.0), "", 0, replace(SHARED, generators=1))
    values = [np.geomspace(1e-4 * (1 + number), 0.2 * (1 + number), 100 + number) for number in range(many)]
    parts = [replace(one, latency=Histogram.of_values(each), requests=each.size) for each in values]
    both, whole = merge_results(parts).latency, Histogram.of_values(np.concatenate(values))
    assert (both.counts == sum(part.latency.counts for part in parts)).all()
    assert (both.counts == whole.counts).all() and both.total == whole.total == merge_results(parts).requests
    assert both.maximum_s == whole.maximum_s == max(part.latency.maximum_s or 0 for part in parts)


def test_only_loads_that_can_be_shared_evenly_are_made_by_many() -> None:
    assert K6.refusal(SHARED) is None
    assert "shared evenly by 3 generators" in (K6.refusal(replace(SHARED, generators=3)) or "")
    hosts = ("a.lab.test", "b.lab.test")
    assert "with 2 hosts" in (K6.refusal(replace(SHARED, hosts=hosts, connections=6, generators=2)) or "")
    assert "only k6" in (get_generator("wrk").refusal(replace(SHARED, rate_rps=None)) or "")

    assert (point().generators, point(generators=4).generators) == (1, 4)
    with pytest.raises(ValidationError, match="only k6 is run as several at once, not wrk"):
        point(generator="wrk", rate_rps=None, generators=2)


@pytest.mark.parametrize("of", [2, 3, 4, 7, 100])
def test_the_parts_are_the_whole_and_nothing_twice(of: int) -> None:
    spelled = [runners.build_segments(number, of) for number in range(1, of + 1)]
    assert len({sequence for _, sequence in spelled}) == 1
    bounds = [Fraction(each) for each in spelled[0][1].removeprefix("--execution-segment-sequence=").split(",")]
    assert (bounds[0], bounds[-1]) == (0, 1) and bounds == sorted(set(bounds))
    parts = [tuple(map(Fraction, part.removeprefix("--execution-segment=").split(":"))) for part, _ in spelled]
    assert parts == list(pairwise(bounds))
    assert {end - begin for begin, end in parts} == {Fraction(1, of)}


def test_the_test_run_shares_our_script_among_pods_of_our_image_and_the_schemas_take_it() -> None:
    config, run = made()
    assert config["data"]["k6.js"] == K6.files(replace(SHARED, connections=30))["k6.js"]
    assert json.loads(config["data"]["k6.json"]) == {"hosts": {"web.lab.test": "10.96.0.7"}}
    spec = run["spec"]
    assert (spec["parallelism"], spec["script"]) == (2, {"configMap": {"name": "load-1", "file": "k6.js"}})
    assert {spec[part]["image"] for part in ("runner", "initializer", "starter")} == {IMAGE}
    assert spec["runner"]["metadata"]["labels"] == {RUN_LABEL: "r1", ROLE_LABEL: "generator"}
    env = {each["name"]: each["value"] for each in spec["runner"]["env"]}
    assert env == make_environment(replace(SHARED, connections=30)), "as k6 runs elsewhere"
    assert "--address" not in spec["arguments"] and "cleanup" not in spec
    assert run["metadata"]["labels"] == {RUN_LABEL: "r1"}
    assert config["metadata"]["labels"] == {RUN_LABEL: "r1", runners.MEMBER: "load-1"}
    config, run = made()
    jsonschema.validate(run, json.loads((MANIFESTS / "schemas" / "testrun-k6-v1alpha1.json").read_text()))
    for obj in (config, runners.build_runner(run, 1), runners.build_runner(run, 2)):
        kubernetes_validate.validate(obj, KUBERNETES, strict=True)


def test_a_runner_is_started_as_the_operator_starts_it() -> None:
    """Its `NewRunnerJob` (pkg/resources/jobs/runner.go of v1.6.0), word for word and in its order."""
    _, run = made(3)
    pod = runners.build_runner(run, 2)
    (container,) = pod["spec"]["containers"]
    assert " ".join(container["command"]) == (
        "k6 run --quiet --execution-segment=1/3:2/3 --execution-segment-sequence=0,1/3,2/3,1"
        " --no-color --no-usage-report --linger --config /test/k6.json /test/k6.js --address=0.0.0.0:6565 --paused"
        " --tag instance_id=2 --tag testrun_name=load-1"
    )
    assert (container["name"], container["ports"]) == ("k6", [{"containerPort": 6565}])
    assert pod["metadata"]["labels"] == {
        "app": "k6", "k6_cr": "load-1", "runner": "true", RUN_LABEL: "r1", ROLE_LABEL: "generator",
    }  # fmt: skip
    assert (pod["spec"]["hostname"], pod["spec"]["restartPolicy"]) == ("load-1-2", "Never")
    assert container["volumeMounts"] == [{"name": "k6-test-volume", "mountPath": "/test", "readOnly": True}]
    assert pod["spec"]["volumes"] == [{"name": "k6-test-volume", "configMap": {"name": "load-1"}}]
