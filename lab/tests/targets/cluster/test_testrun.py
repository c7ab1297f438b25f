"""Many generators: how a load is shared and its results merged, the TestRun, and the runners that k6-operator makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import jsonschema
import kubernetes_validate
import numpy as np
import pytest
from pydantic import ValidationError

from lab.generators import generator
from lab.generators.k6 import environment, merged
from lab.model.load import Load, OutputError
from lab.model.sweeps import Point, Sweep
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.schemas import KUBERNETES
from lab.stats.histogram import Histogram
from lab.targets.cluster import testrun
from lab.targets.cluster.api import RUN_LABEL
from lab.tests.support.summaries import summary

K6 = generator("k6")
LOAD = Load("http://10.96.0.7/1kB.bin", "web.lab.test", 10, 5.0, rate_rps=201.0, generators=2)
IMAGE = "docker.io/lab/loadgen:dev"


def made(generators: int = 2, marked: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    load = replace(LOAD, connections=30, generators=generators)
    return testrun.objects("load-1", "r1", IMAGE, load, K6.files(load), {"web.lab.test": "10.96.0.7"}, marked)


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
    assert [part.requests for part in result.parts] == [500, 500]
    assert "2 generators made 500 + 500 requests" in result.notes


@pytest.mark.parametrize("many", [2, 3, 7])
def test_histograms_add_exactly_bucket_by_bucket(many: int) -> None:
    """Nothing of a part is lost, moved or averaged, its least and greatest latency neither."""
    one = K6.parse(summary(990, 1.0), "", 0, replace(LOAD, generators=1))
    values = [np.geomspace(1e-4 * (1 + number), 0.2 * (1 + number), 100 + number) for number in range(many)]
    parts = [replace(one, latency=Histogram.of_values(each), requests=each.size) for each in values]
    both, whole = merged(parts).latency, Histogram.of_values(np.concatenate(values))
    assert (both.counts == sum(part.latency.counts for part in parts)).all()
    assert (both.counts == whole.counts).all() and both.total == whole.total == merged(parts).requests
    assert both.maximum_s == whole.maximum_s == max(part.latency.maximum_s or 0 for part in parts)


def test_percentiles_come_from_the_merged_histogram_and_are_no_average_of_the_parts() -> None:
    one = K6.parse(summary(990, 1.0), "", 0, replace(LOAD, generators=1))
    parts = [
        replace(one, latency=Histogram.of_values(np.full(count, s)), requests=count)
        for count, s in ((990, 0.001), (10, 0.1))
    ]
    both = merged(parts).latency
    assert [both.quantile_s(0.5), both.quantile_s(0.99)] == pytest.approx([0.001, 0.001], rel=1e-3)
    assert both.maximum_s == pytest.approx(0.1, rel=1e-2)


def test_one_generator_has_no_parts_and_one_that_said_nothing_is_missed() -> None:
    assert K6.parse(summary(990, 1.0), "", 0, replace(LOAD, generators=1)).parts == ()
    with pytest.raises(OutputError, match="expected 2 lines of summaries"):
        K6.parse(summary(500, 1.0), "", 0, LOAD)


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
    spelled = [testrun.segments(number, of) for number in range(1, of + 1)]
    assert len({sequence for _, sequence in spelled}) == 1
    bounds = [Fraction(each) for each in spelled[0][1].removeprefix("--execution-segment-sequence=").split(",")]
    assert (bounds[0], bounds[-1]) == (0, 1) and bounds == sorted(set(bounds))
    parts = [tuple(map(Fraction, part.removeprefix("--execution-segment=").split(":"))) for part, _ in spelled]
    assert parts == list(pairwise(bounds))
    assert {end - begin for begin, end in parts} == {Fraction(1, of)}


def test_the_test_run_shares_our_script_among_pods_of_our_image_on_the_generators_nodes() -> None:
    config, run = made()
    assert config["data"]["k6.js"] == K6.files(replace(LOAD, connections=30))["k6.js"]
    assert json.loads(config["data"]["k6.json"]) == {"hosts": {"web.lab.test": "10.96.0.7"}}
    spec = run["spec"]
    assert (spec["parallelism"], spec["script"]) == (2, {"configMap": {"name": "load-1", "file": "k6.js"}})
    assert {spec[part]["image"] for part in ("runner", "initializer", "starter")} == {IMAGE}
    assert spec["runner"]["metadata"]["labels"] == {RUN_LABEL: "r1", ROLE_LABEL: "generator"}
    env = {each["name"]: each["value"] for each in spec["runner"]["env"]}
    assert env == environment(replace(LOAD, connections=30)), "as k6 runs elsewhere"
    assert "--address" not in spec["arguments"] and "cleanup" not in spec
    assert run["metadata"]["labels"] == {RUN_LABEL: "r1"}
    assert config["metadata"]["labels"] == {RUN_LABEL: "r1", testrun.MEMBER: "load-1"}


def test_the_operators_own_schema_takes_the_test_run_and_kubernetes_its_pods() -> None:
    config, run = made()
    jsonschema.validate(run, json.loads((MANIFESTS / "schemas" / "testrun-k6-v1alpha1.json").read_text()))
    for obj in (config, testrun.runner(run, 1), testrun.runner(run, 2)):
        kubernetes_validate.validate(obj, KUBERNETES, strict=True)


def test_a_runner_is_started_as_the_operator_starts_it() -> None:
    """Its `NewRunnerJob` (pkg/resources/jobs/runner.go of v1.6.0), word for word and in its order."""
    _, run = made(3)
    pod = testrun.runner(run, 2)
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
