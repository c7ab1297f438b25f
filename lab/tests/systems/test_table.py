"""How many workers a proxy is asked for, what each system makes of being asked for none, and how many run, by the titles of processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from math import ceil, floor
from pathlib import Path
from typing import Any

import pytest

from lab.analysis.migration import table as migrations
from lab.base.errors import UsageError
from lab.model.names import BRING_UP_S
from lab.model.variants.knobs import Check, knob_names, load_knob
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import load_variant
from lab.systems import table, workers
from lab.systems.settings import merged, read
from lab.systems.system import cores, limit_up
from lab.systems.traefik import system as traefik
from lab.systems.workers import list_script, listed, started, told
from lab.targets import TARGETS
from lab.tests.support.answering import telling
from lab.tests.support.factories import limited, plain_systems


def test_every_check_of_every_knob_is_of_a_kind_that_there_is_and_forecasts_know_every_target() -> None:
    for name in knob_names():
        table.refuse_checks(name, load_knob(name).readback)
    assert {*BRING_UP_S} == {*TARGETS}


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (Check(kind="sysctrl", name="a", value="1"), "there is no kind 'sysctrl'\n.*did you mean 'sysctl'"),
        (Check(kind="traefik", name="a", value="1", context="b"), "a check of kind 'traefik' has no context"),
    ],
)
def test_another_kind_or_key_is_refused(check: Check, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        table.refuse_checks("here", [check])


def test_an_image_is_its_systems_by_the_longest_name() -> None:
    for image, name in (
        ("ghcr.io/nginx/nginx-gateway-fabric/nginx", "nginx-ngf"),
        ("docker.io/library/nginx", "nginx"),
        ("docker.io/nginx/nginx-ingress", "nginx-f5"),
        ("docker.io/library/debian", ""),
    ):
        assert getattr(table.find(image), "name", "") == name
    for image in ("registry.k8s.io/ingress-nginx/controller", "mirror.example:5000/x/ingress-nginx/controller"):
        assert table.find_controller(image) is not None
    assert table.find_controller("docker.io/library/nginx") is None


PARTS = ("cluster", "listener")


def test_each_key_is_set_in_its_part_and_what_was_there_stays() -> None:
    data = {
        "cluster.circuit_breakers.thresholds.0.max_connections": "65536",
        "cluster.circuit_breakers.thresholds.0.max_requests": "7",
        "cluster.connect_timeout": "1s",
        "listener.filters": "[{name: a}]",
        "cluster.common": "{idle_timeout: 5s}",
    }
    found = read("ConfigMap/envoy", data, PARTS)
    before = {"name": "a", "common": {"max": 1}}
    assert merged(before, found["cluster"]) == {
        "name": "a",
        "circuit_breakers": {"thresholds": [{"max_connections": 65536, "max_requests": 7}]},
        "connect_timeout": "1s",
        "common": {"max": 1, "idle_timeout": "5s"},
    }
    assert before == {"name": "a", "common": {"max": 1}}
    assert merged({}, found["listener"]) == {"filters": [{"name": "a"}]}
    found = read("ConfigMap/envoy", {"cluster.a.1.b": "2", "cluster.a.0.b": "1"}, PARTS)
    assert merged({"a": [{"b": 0, "c": 3}]}, found["cluster"]) == {"a": [{"b": 1, "c": 3}, {"b": 2}]}


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("clutser.a", "1", "there is no part 'clutser'"),
        ("cluster.a", "[", "not YAML"),
        ("cluster.a.2.b", "1", "2 is a place in a list, and there is a list of 0"),
        ("cluster.name.0", "1", "0 is a place in a list, and there is no list"),
        ("cluster.name.x", "1", "x is a name, and there is 'a'"),
    ],
)
def test_a_path_that_does_not_fit_is_refused_at_its_key(key: str, value: str, fault: str) -> None:
    with pytest.raises(UsageError) as error:
        merged({"name": "a"}, read("ConfigMap/envoy", {key: value}, PARTS)["cluster"])
    assert error.value.place == f"ConfigMap/envoy: data.{key}" and fault in error.value.fault


CONTROLLER = "registry.k8s.io/ingress-nginx/controller:v1.15.1"
LIMITS = ("10m", "300m", "1", "1001m", "1500m", "2", "2500m", "7.5", "0", None)


def deployment(limit: object = None, replicas: int = 1, image: str = CONTROLLER, **more: Any) -> dict[str, Any]:
    limits = {} if limit is None else {"limits": {"cpu": limit, "memory": "1Gi"}}
    containers = [{"name": "controller", "image": image, "resources": limits, **more}]
    spec = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    return {"kind": "Deployment", "metadata": {"labels": {ROLE_LABEL: "proxy"}}, "spec": spec}


def configmap(**data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "data": {key.replace("_", "-"): text for key, text in data.items()}}


WORDS: Mapping[str, Callable[[Fraction | None, int], int]] = {
    "CPU limit rounded down, at least 1": lambda limit, cpus: max(1, floor(limit)) if limit else cpus,
    "CPU limit rounded up, at least 2": lambda limit, cpus: min(cpus, max(2, ceil(limit)) if limit else cpus),
    "the CPUs of its affinity and quota, rounded down, at least 1": lambda limit, cpus: min(
        cpus, max(1, floor(limit)) if limit else cpus
    ),
    "the CPUs of its affinity, whatever the quota": lambda _limit, cpus: cpus,
    "auto": lambda _limit, cpus: cpus,
}
"""What `migrate` tells of a successor's workers, as arithmetic; ingress-nginx's own are in a test of their own."""


@pytest.mark.parametrize("name", plain_systems())
def test_every_system_has_a_rule_and_it_is_what_migrate_tells(name: str) -> None:
    """On machines of 1, 2, 8 and 64 CPUs, without a limit and with each."""
    variant = load_variant(name)
    proxies = [each for each in limited(variant, None) if each["metadata"].get("labels", {}).get(ROLE_LABEL) == "proxy"]
    pods = [each["spec"]["template"]["spec"] for each in proxies if each["kind"] == "Deployment"]
    assert [each for pod in pods for each in pod["containers"] if workers.rule(each["image"])]
    rows = migrations.load(name).rows["worker-processes"] if name in migrations.systems() else []
    for cpus, limit in product((1, 2, 8, 64), LIMITS):
        counted = workers.asked(limited(variant, limit), cpus)
        for words in (row.default for row in rows):
            expected = WORDS[words](cores(limit), cpus) if words in WORDS else None
            assert counted == expected, (words, limit, cpus)


def test_ingress_nginx_takes_its_quota_rounded_up_and_else_its_cpus() -> None:
    """Of 1.15.1, also where the quota is more than the machine has."""
    for cpus, limit in product((1, 2, 8, 64), LIMITS):
        asked = cores(limit)
        count = ceil(asked) if asked else cpus
        assert limit_up(asked, cpus) == workers.asked([deployment(limit)], cpus) == count


@pytest.mark.parametrize(
    ("objects", "asked"),
    [
        ([deployment()], None),
        ([deployment("300m")], 1),
        ([deployment(2)], 2),
        ([deployment("1500m", replicas=3)], 6),
        ([configmap(worker_processes="auto"), deployment("300m")], 1),
        ([configmap(worker_processes="4"), deployment("300m")], 4),
        ([deployment("300m", image="example.org/mine:1")], None),
        ([deployment("300m", image="docker.io/library/nginx:1.28.0-alpine@sha256:00")], None),
        ([deployment("2500m", image="caddy")], 2),
        ([deployment(replicas=2, image="envoy", args=["-c", "/srv/envoy.json", "--concurrency", "3"])], 6),
        ([deployment(image="envoy"), {"kind": "EnvoyProxy", "spec": {"concurrency": 2}}], 2),
        ([deployment(image="nginx"), {"kind": "NginxProxy", "spec": {"workerProcesses": 3}}], 3),
        ([configmap(nbthread="4"), deployment(image="haproxytech/kubernetes-ingress:3.2")], 4),
        ([configmap(nbthread="4"), deployment("2500m", image="haproxytech/kubernetes-ingress:3.2")], 2),
        ([configmap(nbthread="4"), deployment("2500m", image="library/haproxy:2.6")], 4),
    ],
)
def test_what_the_manifests_say_whatever_the_machine(objects: list[dict[str, Any]], asked: int | None) -> None:
    """Where it is the CPUs', too, they do not."""
    assert workers.asked(objects) == asked


def test_a_number_that_the_proxys_own_configuration_asks_for_counts_and_envoy_1_36_looked_at_no_limit() -> None:
    """The backend has one of its own."""
    proxy = deployment(image="nginx")
    proxy["spec"]["template"]["spec"]["volumes"] = [{"name": "conf", "configMap": {"name": "conf"}}]
    own, other = (
        {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"nginx.conf": f"worker_processes {count};\n"}}
        for name, count in (("conf", 3), ("backend", 1))
    )
    assert workers.asked([other, own, proxy]) == 3
    assert workers.asked([other, proxy], 8) == 8
    assert workers.asked([deployment("1", image="docker.io/envoyproxy/envoy:v1.36.4")], 8) == 8
    assert workers.asked([deployment("1", image="docker.io/envoyproxy/envoy:v1.40.0")], 8) == 1


MASTER, WORKER = (1, "nginx: master process nginx -c /tmp/nginx/nginx.conf"), (33, "nginx: worker process")
LEAVING, MANAGER = (33, "nginx: worker process is shutting down"), (1, "nginx: cache manager process")


@pytest.mark.parametrize(
    ("processes", "count"),
    [
        ([MASTER, WORKER, WORKER, LEAVING, MANAGER], 2),
        ([(1, "bash /var/lib/haproxy/router.bash"), (4, "haproxy -f /var/lib/haproxy/conf")], 4),
        ([(2, "/usr/sbin/haproxy -f haproxy.config"), (2, "haproxy -f haproxy.config")], 4),
        ([(1, "haproxy -W -db -f h.cfg"), (2, "haproxy -W -db -f h.cfg")], 2),
        ([], None),
        ([(8, "envoy -c envoy.yaml"), (1, "sh -c nginx: worker process")], None),
        (
            listed("1 nginx: master process nginx \n33 nginx: worker process \n1 sh -c for p in /proc/[0-9]* \n\nno\n"),
            1,
        ),
    ],
)
def test_running_workers_are_counted_and_nothing_else(processes: list[tuple[int, str]], count: int | None) -> None:
    """nginx's that shut down serve no new connection, and a cache's manager none at all; HAProxy works in threads, and its master serves nobody."""
    assert started(processes) == count


def test_a_traefik_in_a_container_tells_of_itself(tmp_path: Path) -> None:
    """By its metrics, asked where one runs and nowhere else: what the kernel calls its threads says nothing of Go's."""
    program = tmp_path / "traefik"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    page = b"# TYPE go_sched_gomaxprocs_threads gauge\ngo_sched_gomaxprocs_threads 3\ngo_threads 9\n"
    with telling(page) as (port, asked), subprocess.Popen([program, "60"]) as running:
        try:
            script = list_script().replace(str(traefik.PORT), str(port))
            text = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
        finally:
            running.kill()
    assert asked == [traefik.METRICS] and told(text) == 3
    assert f"{program} 60" in [title for _, title in listed(text)]
