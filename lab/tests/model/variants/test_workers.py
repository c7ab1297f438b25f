"""How many workers a proxy is asked for, and what it makes of being asked for none."""

from __future__ import annotations

from typing import Any

import pytest

from lab.model.variants import workers
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import load_variant


def deployment(
    limit: object = None, replicas: int = 1, args: tuple[str, ...] = (workers.CONTROLLER,)
) -> dict[str, Any]:
    limits = {} if limit is None else {"limits": {"cpu": limit, "memory": "1Gi"}}
    container = {"name": "controller", "args": list(args), "resources": limits}
    labels = {ROLE_LABEL: "proxy"}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return {"kind": "Deployment", "metadata": {"labels": labels}, "spec": spec}


def configmap(count: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "data": {"worker-processes": count}}


@pytest.mark.parametrize("cpus", [1, 2, 8, 64])
@pytest.mark.parametrize(
    ("limit", "count"),
    [("10m", 1), ("300m", 1), ("1", 1), ("1001m", 2), ("1500m", 2), ("2", 2), ("7.5", 8), ("0", None), (None, None)],
)
def test_ingress_nginx_takes_its_quota_rounded_up_and_else_its_cpus(
    limit: str | None, count: int | None, cpus: int
) -> None:
    """Of 1.15.1, also where the quota is more than the machine has."""
    assert workers.automatic(limit, cpus) == (cpus if count is None else count)


@pytest.mark.parametrize(
    ("objects", "asked"),
    [
        ([deployment()], None),
        ([deployment("300m")], 1),
        ([deployment(2)], 2),
        ([deployment("1500m", replicas=3)], 6),
        ([configmap("auto"), deployment("300m")], 1),
        ([configmap("4"), deployment("300m")], 4),
        ([deployment("300m", args=("nginx",))], None),
        ([deployment(replicas=2, args=("-c", "/srv/envoy/envoy.json", "--concurrency", "3"))], 6),
    ],
)
def test_a_limit_makes_workers_of_ingress_nginx_alone(objects: list[dict[str, Any]], asked: int | None) -> None:
    """nginx and HAProxy look at CPUs and never at a quota: how many they make of them the manifests do not say."""
    assert workers.asked(objects) == asked


@pytest.mark.parametrize(("name", "asked"), [("baseline", None), ("baseline+proxy-cpu-300m", 1), ("nginx", None)])
def test_real_variants(name: str, asked: int | None) -> None:
    assert workers.asked(load_variant(name).manifests) == asked
