"""The local control plane's rules: replicas, budgets, ports of the node, the words of its log. Starts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lab.base.errors import MeasuringError, UsageError
from lab.model.variants.variants import load_variant
from lab.systems.manifests import objects
from lab.systems.manifests.replicas import Budget, Member, Step, Strategy, over, step
from lab.targets.local.control_plane import services
from lab.tests.support.inside import changed

SHIPPED = Strategy(unavailable=1)
"""The manifests': maxUnavailable 1, and Kubernetes' own maxSurge of 25 %."""


def members(*words: str) -> list[Member]:
    """Each `NAME new|old [ready]`, in the order of their making."""
    found: list[Member] = []
    for number, word in enumerate(words):
        name, age, *ready = word.split()
        found.append(Member(name, age == "new", bool(ready), float(number)))
    return found


@pytest.mark.parametrize(
    ("replicas", "strategy", "there", "wanted"),
    [
        # As many as wanted: the unready and the youngest go first.
        (2, Strategy(), ["a new ready", "b new ready"], Step()),
        (2, Strategy(), ["a new ready"], Step(1)),
        (0, Strategy(), ["a new ready"], Step(0, ("a",))),
        (1, Strategy(), ["a new ready", "b new", "c new ready"], Step(0, ("b", "c"))),
        # One may be missing and one too many: the only one goes at once, ready replacement or not.
        (1, SHIPPED, ["a old ready"], Step(1, ("a",))),
        # 25 % of one: none may be missing, one may be too many.
        (1, Strategy(), ["a old ready"], Step(1)),
        (1, Strategy(), ["a old ready", "b new"], Step()),
        (1, Strategy(), ["a old ready", "b new ready"], Step(0, ("a",))),
        # 25 % of four: one more, one fewer.
        (4, Strategy(), ["a old ready", "b old ready", "c old ready", "d old ready"], Step(1, ("d",))),
        (4, Strategy(), ["a old ready", "b old ready", "c old ready", "e new"], Step(1)),
        # What does not serve anyway goes first.
        (2, Strategy(surge=0, unavailable=1), ["a old ready", "b old"], Step(0, ("b",))),
        # Neither is allowed: one must be missing, or nothing could be replaced.
        (2, Strategy(surge=0, unavailable=0), ["a old ready", "b old ready"], Step(0, ("b",))),
        (2, Strategy(recreate=True), ["a old ready", "b old ready"], Step(0, ("b", "a"))),
    ],
)
def test_the_number_of_pods_and_a_rolling_update_keep_to_the_strategy(
    replicas: int, strategy: Strategy, there: Sequence[str], wanted: Step
) -> None:
    assert step(replicas, strategy, members(*there)) == wanted


def test_recreate_waits_until_the_old_pods_are_gone() -> None:
    assert step(2, Strategy(recreate=True), [], old_ending=1) == Step()
    assert step(2, Strategy(recreate=True), []) == Step(2)
    assert step(2, SHIPPED, [], old_ending=2) == Step(2), "a deleted pod is replaced at once"


@pytest.mark.parametrize(
    ("least", "most_out", "ready", "healthy", "expected", "allowed"),
    [
        (1, None, True, 1, 1, False),
        (1, None, True, 2, 2, True),
        ("50%", None, True, 2, 3, False),  # rounded up: two must stay
        ("50%", None, True, 3, 3, True),
        (None, 1, True, 2, 2, True),
        (None, 0, True, 2, 2, False),
        (None, "30%", True, 2, 2, True),  # rounded up: one may go
        (None, 1, True, 1, 2, False),
        (1, None, False, 1, 2, True),  # it serves nobody, and enough others do
        (1, None, False, 0, 1, False),
    ],
)
def test_a_budget_allows_what_leaves_enough_healthy_pods(
    least: int | str | None, most_out: int | str | None, ready: bool, healthy: int, expected: int, allowed: bool
) -> None:
    fault = Budget("b", {}, least, most_out).refusal(ready, healthy, expected)
    assert (fault is None) == allowed
    assert fault is None or fault.startswith("PodDisruptionBudget b needs ")


def test_two_budgets_for_one_pod_are_an_error() -> None:
    both = [Budget("a", {"x": "1"}, 1, None), Budget("b", {}, 1, None)]
    assert over(both, {"y": "1"}) is both[1] and over(both[:1], {}) is None
    with pytest.raises(MeasuringError, match="a and b: this pod has more than one"):
        over(both, {"x": "1"})


def budget(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}


def test_budgets_and_strategies_are_read() -> None:
    labels = {"matchLabels": {"lab/role": "proxy"}}
    manifests = [*load_variant("baseline").manifests, budget({"selector": labels, "minAvailable": "50%"})]
    found = objects.read(manifests)
    assert found.budgets == (Budget("b", labels["matchLabels"], "50%", None),)
    (proxy,) = [deployment for deployment in found.deployments if deployment.name == "proxy"]
    assert proxy.strategy == SHIPPED and proxy.pod(7).name == "proxy-7"
    assert proxy.pod(7).containers[0].env["POD_NAME"] == "proxy-7"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "expected one of minAvailable and maxUnavailable"),
        ({}, "expected one of minAvailable and maxUnavailable"),
        ({"minAvailable": "half"}, "expected a number or a percentage, got 'half'"),
        ({"minAvailable": 1, "unhealthyPodEvictionPolicy": "Never"}, "expected IfHealthyBudget, got 'Never'"),
        ({"minAvailible": 1}, "did you mean 'minAvailable'"),
    ],
)
def test_a_wrong_budget_is_named(spec: dict[str, Any], fault: str) -> None:
    labels = {"selector": {"matchLabels": {"lab/role": "proxy"}}}
    with pytest.raises(UsageError, match=fault):
        objects.read([*load_variant("baseline").manifests, budget({**labels, **spec})])


def test_a_strategy_that_nobody_knows_is_named() -> None:
    manifests = changed("baseline", lambda item: item["spec"].update(strategy={"type": "BlueGreen"})).manifests
    with pytest.raises(UsageError, match=r"strategy.type: expected RollingUpdate or Recreate, got 'BlueGreen'"):
        objects.read(manifests)


def host_ports(item: dict[str, Any]) -> None:
    for port in item["spec"]["template"]["spec"]["containers"][0]["ports"]:
        port["hostPort"] = port["containerPort"] + 8000


def test_the_nodes_ports_are_one_pods_at_a_time() -> None:
    found = objects.read(changed("baseline", host_ports).manifests)
    (proxy, *_), (backend, *_) = found.role("proxy"), found.role("backend")
    assert proxy.host_ports == {80: 8080, 443: 8443}
    assert proxy.excludes(proxy) and not proxy.excludes(backend) and not backend.excludes(backend)
    (on_node,) = objects.read(load_variant("okd-hostnetwork").manifests).role("proxy")
    assert on_node.host_ports[8080] == 8080 and on_node.excludes(on_node)


def test_a_host_port_is_a_nodes_nat_and_other_services_have_one_while_pods_change() -> None:
    plain = objects.read(load_variant("baseline").manifests)
    assert services.balancers(services.in_front(plain, changing=False)) == []
    (service,) = services.balancers(services.in_front(plain, changing=True))
    assert not service.masquerade
    assert services.balancers(services.in_front(objects.read(changed("baseline", host_ports).manifests), False))
    straight = services.in_front(objects.read(load_variant("okd-hostnetwork").manifests), True)
    assert services.balancers(straight) == []


def test_several_pods_cannot_have_one_nodes_ports() -> None:
    def edit(item: dict[str, Any]) -> None:
        host_ports(item)
        item["spec"]["replicas"] = 2

    with pytest.raises(UsageError, match="all but one would stay Pending"):
        services.vet(services.in_front(objects.read(changed("baseline", edit).manifests), True))
