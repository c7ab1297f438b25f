"""`just up remote`: what it asks of the cluster before anything is made there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import yaml
from rich.console import Console

from lab.base.errors import UsageError
from lab.model.variants.variants import load_variant
from lab.targets.cluster import objects, rights
from lab.targets.provision import remote


class Narrow:
    """An API server at which one right is missing."""

    place = "context mine"

    def __init__(self, missing: rights.Right) -> None:
        self._missing = missing

    def version(self) -> str:
        return "v1.34.4"

    def denied(self, wanted: Iterable[rights.Right]) -> list[str]:
        return [f"{right[0]} {right[2]}" for right in wanted if right == self._missing]


@pytest.mark.parametrize("missing", rights.EVERY_RUN)
def test_a_right_that_every_run_needs_is_named_at_first(missing: rights.Right, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_connect", lambda _: Narrow(missing))
    said = f"context mine: you may not {missing[0]} {missing[2]}\n.*README.md names them"
    with pytest.raises(UsageError, match=said):
        remote.up("mine", Console(stderr=True))


EVERY = [*rights.EVERY_RUN, *rights.KINDS, *(right for some in rights.BY_FEATURE.values() for right in some)]


def test_every_right_is_asked_for_once() -> None:
    assert len(EVERY) == len(set(EVERY))


def test_the_role_to_copy_has_every_right_and_every_kind_of_object() -> None:
    """The kinds are those of a variant of each system that runs on a cluster."""
    role = yaml.safe_load((objects.CLUSTERS / "user-rights.yaml").read_text())
    has = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {right[:3] for right in EVERY} <= has
    variants = map(load_variant, ("aws-a1-node", "ingress-nginx+pod-disruption-budget", "okd", "envoy-gateway-equal"))
    made = [obj for variant in variants for obj in objects.lay_over_for_cluster(variant.manifests)]
    groups = {(obj["apiVersion"].rpartition("/")[0], f"{obj['kind'].lower().removesuffix('y')}") for obj in made}
    missing = {
        kind for kind in groups if not any(kind[0] == group and name.startswith(kind[1]) for _, group, name in has)
    }
    assert missing == set()
