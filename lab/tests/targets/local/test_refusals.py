"""What the local target refuses beforehand: less CPU without cgroups, moved backends behind a proxy with fixed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lab.base.errors import NotMeasurableError, UsageError
from lab.disturbances import DISTURBANCES
from lab.model.disturbance import Disturbance
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import load_variant
from lab.targets.local.sandbox import cgroups
from lab.targets.local.target import LocalTarget
from lab.tests.support.factories import make_point
from lab.tests.support.inside import changed, pod_of

WHY = "no group from /a up gives cpu to its children"


def of(kind: str, **keys: Any) -> Disturbance:
    return DISTURBANCES[kind].model_validate({"kind": kind, **keys})


STARVED = of("starve", cpu="20m", for_s=5)
SLOW = of("backends", what="slow", cpu="10m", for_s=5)
ROLLED = of("backends", what="roll")


def points(disturbance: Disturbance) -> list[LoadPoint]:
    point = make_point("disturbed", disturbance=disturbance)
    return [point, point.model_copy(update={"name": "control", "control": True})]


def check(name: str, disturbance: Disturbance, only_control: bool = False) -> None:
    LocalTarget().check_variant(load_variant(name), points(disturbance)[only_control:])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """Limits of the containers that it was tried for, on a machine without a CPU cgroup."""
    tried: list[Mapping[str, str]] = []

    def unheld(limits: Mapping[str, str], squeezed: bool = False) -> str:
        if squeezed:
            tried.append(limits)
        return WHY if squeezed else ""

    monkeypatch.setattr(cgroups, "find_limit_fault", unheld)
    return tried


def test_who_cannot_be_given_less_cpu_is_not_measurable(asked: list[Mapping[str, str]]) -> None:
    for disturbance in (of("startup", within_s=5), of("kill"), of("outage"), ROLLED):
        check("baseline", disturbance)
    for tried, (disturbance, role) in enumerate(
        (
            (STARVED, "proxy"),
            (of("starve", role="backend", cpu="20m", for_s=5), "backend"),
            (of("startup", cpu="100m", within_s=5), "proxy"),
            (SLOW, "backend"),
        )
    ):
        check("baseline", disturbance, only_control=True)
        assert len(asked) == tried
        said = f"point disturbed: the {role} cannot be given less CPU here"
        with pytest.raises(NotMeasurableError, match=said) as raised:
            check("baseline", disturbance)
        assert raised.value.what == "CPU limits" and WHY in raised.value.why
        assert "--target kind" in raised.value.remedy and len(asked) == tried + 1


def test_backends_that_move_are_measured_behind_a_proxy_that_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for disturbance, moved in (
        *((of("backends", what=what), True) for what in ("add", "remove", "fail", "roll")),
        (of("backends", what="freeze", for_s=5), True),
        (of("kill", role="backend"), True),
        (SLOW, False),
        (of("kill"), False),
        (of("outage"), False),
    ):
        monkeypatch.setattr(cgroups, "find_limit_fault", lambda *_, **__: "")
        for name in ("baseline", "okd", "direct"):
            check(name, disturbance)
        check("nginx", disturbance, only_control=True)
        if not moved:
            check("nginx", disturbance)
            continue
        with pytest.raises(NotMeasurableError, match="knows its backends. addresses from its start") as raised:
            check("nginx", disturbance)
        assert raised.value.what == "fixed backends"
        assert raised.value.remedy == "a proxy that reads Ingresses or Routes, or --target kind"


def test_a_version_that_would_change_nothing_here_is_refused() -> None:
    for name, image, pinned in (
        ("nginx", "docker.io/library/nginx:1.27.4", "1.28.0-alpine"),
        ("baseline", "registry.example/ingress-nginx/controller:v1.11.2@sha256:1f", "v1.15.1"),
        ("haproxy", "docker.io/library/haproxy", "2.6-bookworm"),
        ("nginx", "registry.example:5000/library/nginx:1.28.0-alpine", ""),
        ("envoy", "docker.io/envoyproxy/envoy:v1.36.4", ""),
    ):
        variant = changed(name, lambda item, image=image: pod_of(item)["containers"][0].update(image=image))
        if not pinned:
            LocalTarget().check_variant(variant, [make_point()])
            continue
        with pytest.raises(UsageError, match=rf"same for every tag \({pinned} is pinned\)\n  use --target kind"):
            LocalTarget().check_variant(variant, [make_point()])
