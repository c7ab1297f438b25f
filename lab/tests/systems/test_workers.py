"""How many workers a proxy is asked for, and what each system makes of being asked for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest

from lab.analysis.migration import table
from lab.base.quantities import quantity
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import load_variant
from lab.systems import workers
from lab.systems.system import limit_up
from lab.tests.support.factories import limited, plain_systems

CONTROLLER = "registry.k8s.io/ingress-nginx/controller:v1.15.1"
LIMITS = ("10m", "300m", "1", "1001m", "1500m", "2", "2500m", "7.5", "0", None)


def deployment(limit: object = None, replicas: int = 1, image: str = CONTROLLER, **more: Any) -> dict[str, Any]:
    limits = {} if limit is None else {"limits": {"cpu": limit, "memory": "1Gi"}}
    container = {"name": "controller", "image": image, "resources": limits, **more}
    labels = {ROLE_LABEL: "proxy"}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return {"kind": "Deployment", "metadata": {"labels": labels}, "spec": spec}


def configmap(**data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "data": {key.replace("_", "-"): text for key, text in data.items()}}


def _cores(limit: str | None) -> Fraction | None:
    return (quantity(limit) or None) if limit else None


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
    images = [
        container["image"]
        for obj in limited(variant, None)
        if obj["kind"] == "Deployment" and obj["metadata"]["labels"][ROLE_LABEL] == "proxy"
        for container in obj["spec"]["template"]["spec"]["containers"]
    ]
    assert [image for image in images if workers.rule(image)], images
    said = [row.default for row in table.load(name).rows["worker-processes"]] if name in table.systems() else []
    for cpus in (1, 2, 8, 64):
        for limit in LIMITS:
            counted = workers.asked(limited(variant, limit), cpus)
            for words in said:
                expected = WORDS[words](_cores(limit), cpus) if words in WORDS else None
                assert counted == expected, (words, limit, cpus)


@pytest.mark.parametrize("cpus", [1, 2, 8, 64])
@pytest.mark.parametrize("limit", LIMITS)
def test_ingress_nginx_takes_its_quota_rounded_up_and_else_its_cpus(limit: str | None, cpus: int) -> None:
    """Of 1.15.1, also where the quota is more than the machine has."""
    cores = _cores(limit)
    count = ceil(cores) if cores else cpus
    assert limit_up(_cores(limit), cpus) == workers.asked([deployment(limit)], cpus) == count


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


def test_a_number_in_a_configuration_that_the_proxy_mounts_is_one_that_is_asked_for() -> None:
    """The backend has one of its own."""
    proxy = deployment(image="nginx")
    proxy["spec"]["template"]["spec"]["volumes"] = [{"name": "conf", "configMap": {"name": "conf"}}]
    own, other = (
        {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"nginx.conf": f"worker_processes {count};\n"}}
        for name, count in (("conf", 3), ("backend", 1))
    )
    assert workers.asked([other, own, proxy]) == 3
    assert workers.asked([other, proxy], 8) == 8


def test_envoy_looked_at_no_limit_in_1_36() -> None:
    assert workers.asked([deployment("1", image="docker.io/envoyproxy/envoy:v1.36.4")], 8) == 8
    assert workers.asked([deployment("1", image="docker.io/envoyproxy/envoy:v1.40.0")], 8) == 1


@pytest.mark.parametrize(("name", "asked"), [("baseline", None), ("baseline+proxy-cpu-300m", 1), ("nginx", None)])
def test_real_variants(name: str, asked: int | None) -> None:
    assert workers.asked(load_variant(name).manifests) == asked
