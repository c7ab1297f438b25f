"""Targets of a knob's patches: exact by name, or many by labels, and never nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import UsageError
from lab.model.variants.knobs import MANIFESTS, Target, targets
from lab.model.variants.variants import load_variant

ROUTES: list[dict[str, Any]] = [
    {"kind": "Route", "metadata": {"name": f"r{size}", "labels": {"lab/routes": size}}} for size in ("1", "10", "100")
] + [{"kind": "Route", "metadata": {"name": "bare"}}, {"kind": "Service", "metadata": {"labels": {"lab/routes": "1"}}}]


@pytest.mark.parametrize(
    ("selector", "count"),
    [("lab/routes", 3), ("lab/routes=10", 1), ("lab/routes in (10, 100)", 2), ("lab/routes in (7)", 0), ("other", 0)],
)
def test_a_selector_means_what_kustomize_takes_it_for(selector: str, count: int) -> None:
    (target,) = targets({"patches": [{"target": {"kind": "Route", "labelSelector": selector}}]}, "here")
    assert target == Target("Route", labels=selector) and target.count(ROUTES) == count


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "Route"},
        {"kind": "Route", "name": "r.*"},
        {"kind": "Route", "name": "r1", "labelSelector": "lab/routes"},
        {"kind": "Route", "labelSelector": "lab/routes!=1"},
        {"kind": "Route", "labelSelector": "a=b,c=d"},
        {"kind": ".*", "labelSelector": "a"},
        "Route",
    ],
)
def test_a_target_that_is_not_exact_is_refused(target: Any) -> None:
    with pytest.raises(UsageError, match="here: patches.target: expected an exact kind and name"):
        targets({"patches": [{"target": target}]}, "here")


def test_a_selector_that_selects_nothing_is_an_error(tmp_path: Path) -> None:
    """kustomize itself would render the same and say nothing. The same knob on its own base is fine."""
    manifests = tmp_path / "manifests"
    shutil.copytree(MANIFESTS, manifests)
    with pytest.raises(
        UsageError, match=r"there is no Route with lab/routes in \(100\) in 'ingress-nginx\+okd-routes-10'"
    ):
        load_variant("ingress-nginx+okd-routes-10", manifests)
    knob = manifests / "components/okd-tls-edge/kustomization.yaml"
    knob.write_text(knob.read_text().replace('labelSelector: "lab/routes"', 'labelSelector: "lab/routes=7"'))
    with pytest.raises(UsageError, match="there is no Route with lab/routes=7 in 'okd-edge'"):
        load_variant("okd-edge", manifests)


def test_a_patch_may_delete_what_it_is_for() -> None:
    left = [item["metadata"]["name"] for item in load_variant("okd-routes-10").manifests if item["kind"] == "Route"]
    assert left == [f"bench-{number:04}" for number in range(10)]
