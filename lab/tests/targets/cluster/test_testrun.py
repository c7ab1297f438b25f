"""Many generators: how a load is shared and its results merged, and k6-operator's TestRun against a little fake of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from pydantic import ValidationError

from lab.base.errors import UsageError
from lab.generators import generator
from lab.generators.k6 import PERCENTS, environment, merged
from lab.model.load import Load, OutputError
from lab.model.sweeps import Point, Sweep
from lab.model.variants.labels import ROLE_LABEL
from lab.stats.histogram import Histogram
from lab.targets.cluster import testrun
from lab.targets.cluster.api import Api
from lab.targets.cluster.names import RUN_LABEL

K6 = generator("k6")
LOAD = Load("http://10.96.0.7/1kB.bin", "web.lab.test", 10, 5.0, rate_rps=201.0, generators=2)
IMAGE = "docker.io/lab/loadgen:dev"


def summary(made: int, latency_ms: float, dropped: int = 0, timeouts: int = 0, duration_ms: float = 5000.0) -> str:
    """The line of one runner all of whose answers took as long."""
    latency = {f"p({percent})": latency_ms for percent in PERCENTS}
    latency |= {"count": made - timeouts, "min": latency_ms, "max": latency_ms}
    errors = dict.fromkeys(("status", "connect", "read", "write", "timeout", "other"), 0) | {"timeout": timeouts}
    told = {"lab": 1, "duration_ms": duration_ms, "made": made, "dropped": dropped, "received_bytes": 100 * made}
    return json.dumps({**told, "errors": errors, "latency": latency}, separators=(",", ":"))


def point(**changed: Any) -> Point:
    table = {"name": "many", "generator": "k6", "connections": 10, "rate_rps": 100.0, "duration_s": 5, **changed}
    return Sweep.model_validate({"title": "t", "question": "q", "blocks": 1, "points": [table]}).expanded()[0]


def test_counts_rates_and_histograms_of_the_parts_are_added_and_the_longest_duration_counts() -> None:
    said = f"--- runner 1 of 2\n{summary(500, 1.0, 2)}\n--- runner 2 of 2\n{summary(504, 9.0, 1, 4, 5100.0)}\n"
    result = K6.parse(said, "", 0, LOAD)
    assert (result.requests, result.dropped, dict(result.errors)) == (1000, 3, {"timeout": 4})
    assert (result.duration_s, result.size_bytes) == (pytest.approx(5.1), 100_400)
    assert result.achieved_rps == 200.0
    assert result.latency.total == 1000


def test_percentiles_come_from_the_merged_histogram_and_are_no_average_of_the_parts() -> None:
    quick, slow = Histogram.of_values(np.full(990, 0.001)), Histogram.of_values(np.full(10, 0.1))
    one = K6.parse(summary(990, 1.0), "", 0, replace(LOAD, generators=1))
    both = merged([replace(one, latency=quick), replace(one, latency=slow, requests=10)])
    assert both.latency.quantile_s(0.5) == pytest.approx(0.001, rel=1e-3)
    assert both.latency.quantile_s(0.99) == pytest.approx(0.001, rel=1e-3)
    assert both.latency.maximum_s == pytest.approx(0.1, rel=1e-2)


def test_one_result_merges_to_itself() -> None:
    one = K6.parse(summary(990, 1.0), "", 0, replace(LOAD, generators=1))
    again = merged([one])
    assert replace(again, latency=one.latency) == one and (again.latency.counts == one.latency.counts).all()


def test_a_runner_that_said_nothing_is_missed() -> None:
    with pytest.raises(OutputError, match="expected 2 lines of summaries"):
        K6.parse(summary(500, 1.0), "", 0, LOAD)


def test_only_loads_that_can_be_shared_evenly_are_made_by_many() -> None:
    assert K6.refusal(LOAD) is None
    assert "shared evenly by 3 generators" in (K6.refusal(replace(LOAD, generators=3)) or "")
    hosts = ("a.lab.test", "b.lab.test")
    assert "with 2 hosts" in (K6.refusal(replace(LOAD, hosts=hosts, connections=6, generators=2)) or "")
    assert "only k6" in (generator("wrk").refusal(replace(LOAD, rate_rps=None)) or "")


def test_a_point_may_ask_for_many_generators_of_k6_only() -> None:
    assert point().generators == 1
    assert point(generators=4).generators == 4
    with pytest.raises(ValidationError, match="only k6 is run as several at once, not wrk"):
        point(generator="wrk", rate_rps=None, generators=2)


def test_the_test_run_shares_our_script_among_pods_of_our_image_on_the_generators_nodes() -> None:
    config, run = testrun.objects("load-1", "r1", IMAGE, LOAD, K6.files(LOAD), {"web.lab.test": "10.96.0.7"})
    assert config["data"]["k6.js"] == K6.files(LOAD)["k6.js"]
    assert json.loads(config["data"]["k6.json"]) == {"hosts": {"web.lab.test": "10.96.0.7"}}
    spec = run["spec"]
    assert (spec["parallelism"], spec["script"]) == (2, {"configMap": {"name": "load-1", "file": "k6.js"}})
    assert {spec[part]["image"] for part in ("runner", "initializer", "starter")} == {IMAGE}
    assert spec["runner"]["metadata"]["labels"] == {RUN_LABEL: "r1", ROLE_LABEL: "generator"}
    assert {each["name"]: each["value"] for each in spec["runner"]["env"]} == environment(LOAD), "as k6 runs elsewhere"
    assert "--address" not in spec["arguments"] and "cleanup" not in spec
    assert config["metadata"]["labels"] == run["metadata"]["labels"] == {RUN_LABEL: "r1"}


class Cluster:
    """A cluster with k6-operator: `ended` says what its pods are once a TestRun is there."""

    place = "context fake"

    def __init__(self, stage: str, pods: Callable[[str], list[dict[str, Any]]], knows: bool = True) -> None:
        self._stage, self.pods, self._knows = stage, pods, knows
        self.there: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.logs: dict[str, str] = {}

    def resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        return ("testruns", True) if self._knows else None

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        found = self.there.get((kind, name))
        return {**found, "status": {"stage": self._stage}} if found else None

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[dict[str, Any]]:
        if kind == "Pod":
            name = labels.partition("=")[2]
            return self.pods(name) if ("TestRun", name) in self.there else []
        return [dict(obj) for (known, _), obj in self.there.items() if known == kind]

    def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        self.there[obj["kind"], obj["metadata"]["name"]] = obj
        return dict(obj)

    def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, grace_s: int | None = None
    ) -> bool:
        return self.there.pop((kind, name), None) is not None

    def delete_all(
        self, api_version: str, kind: str, namespace: str | None, labels: str, grace_s: int | None = None
    ) -> None: ...

    def log(self, namespace: str, pod: str, container: str, lines: int, previous: bool = False) -> str:
        return self.logs.get(pod.rpartition("-")[2], "")


def runner(name: str, number: int, phase: str = "Succeeded", status: int = 0) -> dict[str, Any]:
    labels = {"k6_cr": name, "runner": "true", "job-name": f"{name}-{number}"}
    ended = {"terminated": {"exitCode": status}}
    state = {"Pending": {"waiting": {"reason": "ErrImagePull"}}, "Running": {"running": {}}}.get(phase, ended)
    return {
        "metadata": {"name": f"{name}-{number}-p{number}", "labels": labels},
        "spec": {"nodeName": f"node-{number}"},
        "status": {"phase": phase, "containerStatuses": [{"name": "k6", "state": state}]},
    }


def generate(cluster: Cluster) -> testrun.Ran:
    return testrun.generate(cast("Api", cluster), IMAGE, "r1", LOAD, K6.files(LOAD), {})


def test_what_every_runner_said_is_kept_in_order_and_nothing_is_left() -> None:
    cluster = Cluster("started", lambda name: [runner(name, 2), runner(name, 1)])
    cluster.logs = {"p1": summary(500, 1.0) + "\n", "p2": "a warning\n" + summary(504, 9.0)}
    ran = generate(cluster)
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("--- runner 1 of 2: load-") and lines[0].endswith(" on node-1")
    assert (lines[1], lines[3:]) == (summary(500, 1.0), ["a warning", summary(504, 9.0)])
    assert (ran.exit_status, ran.hung, cluster.there) == (0, False, {})
    assert K6.parse(ran.stdout, ran.stderr, ran.exit_status, LOAD).requests == 1004


def test_what_a_lab_that_died_left_behind_is_removed_first() -> None:
    cluster = Cluster("started", lambda name: [runner(name, 1), runner(name, 2)])
    cluster.create({"kind": "TestRun", "metadata": {"name": "load-0"}})
    cluster.pods = lambda name: [] if name == "load-0" else [runner(name, 1), runner(name, 2)]
    generate(cluster)
    assert cluster.there == {}


def test_a_runner_that_failed_fails_the_load() -> None:
    cluster = Cluster("started", lambda name: [runner(name, 1), runner(name, 2, "Failed", 137)])
    ran = generate(cluster)
    assert ran.exit_status == 137 and "-2-p2: Failed" in ran.stderr


def test_a_sidecar_that_others_inject_says_nothing_of_the_load() -> None:
    """It goes on when k6 has ended, and ends as it likes."""
    proxies: list[dict[str, Any]] = [{"running": {}}, {"terminated": {"exitCode": 143}}]

    def pods(name: str) -> list[dict[str, Any]]:
        found = [runner(name, 1), runner(name, 2)]
        for pod, state in zip(found, proxies, strict=True):
            pod["status"]["containerStatuses"].insert(0, {"name": "istio-proxy", "state": state})
        found[0]["status"]["phase"], found[1]["status"]["phase"] = "Running", "Failed"
        return found

    ran = generate(Cluster("started", pods))
    assert (ran.exit_status, ran.stderr, ran.hung) == (0, "", False)


def test_runners_that_never_begin_are_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testrun, "START_S", 0.0)
    ran = generate(Cluster("created", lambda name: [runner(name, 1, "Pending"), runner(name, 2, "Pending")]))
    assert ran.exit_status == testrun.NOT_STARTED and "stage created" in ran.stderr and "ErrImagePull" in ran.stderr


def test_an_operator_that_does_not_run_is_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testrun, "START_S", 0.0)
    assert "is the operator running?" in generate(Cluster("", lambda name: [])).stderr


def test_a_load_that_the_operator_refuses_is_told_in_its_words() -> None:
    cluster = Cluster("error", lambda name: [runner(name, 1)])
    cluster.logs = {"p1": "could not load JS test"}
    ran = generate(cluster)
    assert ran.exit_status == 1 and "could not load JS test" in ran.stderr


def test_runners_that_do_not_end_are_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testrun, "GRACE_S", -30.0)
    monkeypatch.setattr(testrun, "POLL_S", 0.01)
    assert generate(Cluster("started", lambda name: [runner(name, 1, "Running"), runner(name, 2)])).hung


def test_a_cluster_without_the_operator_refuses_many_generators_and_takes_one() -> None:
    cluster = Cluster("", lambda name: [], knows=False)
    api = cast("Api", cluster)
    testrun.vet(api, [point()])
    with pytest.raises(UsageError, match="point many: asks for 2 generators, .*\n.*install k6-operator"):
        testrun.vet(api, [point(generators=2)])
