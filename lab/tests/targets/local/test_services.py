"""The way into the proxy, and the local control plane's rules: replicas, budgets, ports of the node. Starts nothing."""

from __future__ import annotations

from typing import Any

import pytest

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError
from lab.model.variants.variants import load_variant
from lab.systems.manifests import objects
from lab.systems.manifests.replicas import Budget, ReplicaPod, RolloutStep, Strategy, find_budget, plan_step
from lab.targets.local.control_plane import services
from lab.targets.local.sandbox import network
from lab.targets.local.sandbox.network import Network, NetworkPlace
from lab.tests.support import inside
from lab.tests.support.inside import changed


def plain() -> objects.Objects:
    return objects.read_objects(load_variant("baseline").manifests)


def balanced(replicas: int = 1, policy: str = "Cluster", host_network: bool = False) -> objects.Objects:
    return objects.read_objects(inside.balanced(policy, replicas, host_network).manifests)


def net_of(wanted: objects.Objects) -> Network:
    names = [network.CLIENT, *(pod.name for pod in wanted.pods), services.NODE]
    return Network(tuple(NetworkPlace(name, f"10.64.0.{number}") for number, name in enumerate(names, 2)))


def test_a_load_balancers_clients_use_the_services_own_address_and_port() -> None:
    wanted = balanced()
    net = net_of(wanted)
    assert services.address(wanted, net, "proxy") == (services.ADDRESS, 80)
    assert services.address(wanted, net, "proxy", "https") == (services.ADDRESS, 443)
    assert services.address(wanted, net, "backend") == (net["backend-0"].address, 8080)
    wanted = balanced(host_network=True)
    net = net_of(wanted)
    assert services.address(wanted, net, "proxy", "https") == (net["proxy-0"].address, 443)
    assert services.list_balancers(wanted) == [] and services.describe_way(wanted) == ""


def test_a_pods_ports_are_the_nodes_own_only_where_a_load_balancer_is_left_out() -> None:
    for wanted in (balanced(), balanced(host_network=True)):
        (pod,) = wanted.role("proxy")
        net = net_of(wanted)
        straight = Network(tuple(place for place in net.places if place.name != services.NODE))
        assert not services.on_the_node(net, wanted, pod) and services.on_the_node(straight, wanted, pod)
        assert not services.on_the_node(straight, wanted, wanted.role("backend")[0])
    assert not services.on_the_node(Network(()), plain(), plain().role("proxy")[0])


@pytest.mark.parametrize(("policy", "marks"), [("Cluster", 1), ("Local", 0)])
def test_the_ruleset_spreads_over_every_endpoint_and_masquerades_by_policy(policy: str, marks: int) -> None:
    wanted = balanced(3, policy)
    net = net_of(wanted)
    (http,) = [line for line in services.rules(net, wanted).splitlines() if "tcp dport 80 " in line]
    endpoints = ", ".join(f"{index} : {net[f'proxy-{index}'].address} . 80" for index in range(3))
    assert f"numgen random mod 3 map {{ {endpoints} }}" in http
    assert http.count("meta mark set") == marks


def test_routers_that_share_the_routes_have_an_address_each() -> None:
    wanted = objects.read_objects(load_variant("okd-shards-2").manifests)
    net = net_of(wanted)
    services.check_way(wanted)
    assert [service.name for service in services.list_balancers(wanted)] == ["proxy", "proxy-2"]
    assert services.address(wanted, net, "proxy") == services.address(wanted, net, "proxy", by="proxy")
    places = [services.address(wanted, net, "proxy", by=name) for name in ("proxy", "proxy-2")]
    assert places == [("10.65.0.1", 80), ("10.65.0.2", 80)]
    lines = [line for line in services.rules(net, wanted).splitlines() if "tcp dport 80 " in line]
    for line, place, pod in zip(lines, ("10.65.0.1", "10.65.0.2"), ("proxy-0", "proxy-2-0"), strict=True):
        assert f"ip daddr {place} " in line and f"mod 1 map {{ 0 : {net[pod].address} . 8080 }}" in line
    assert "2 Services, 2 endpoints" in services.describe_way(wanted)


def test_pods_without_a_load_balancer_in_front_are_refused() -> None:
    services.check_way(balanced(2))
    with pytest.raises(UsageError, match="nothing balances over them here"):
        services.check_way(
            objects.read_objects(changed("baseline", lambda item: item["spec"].update(replicas=2)).manifests)
        )
    with pytest.raises(UsageError, match="nothing balances over them here"):
        services.check_way(balanced(2, host_network=True))

    def edit(item: dict[str, Any]) -> None:
        host_ports(item)
        item["spec"]["replicas"] = 2

    with pytest.raises(UsageError, match="all but one would stay Pending"):
        services.check_way(services.add_node_nat(objects.read_objects(changed("baseline", edit).manifests), True))
    services.check_way(balanced(host_network=True))
    with pytest.raises(NotMeasurableError, match="the way is straight without hostNetwork, too") as raised:
        services.check_way(objects.read_objects(load_variant("ingress-nginx+okd-host-network").manifests))
    assert raised.value.what == "host network"


def test_where_nft_does_not_work_only_variants_that_need_it_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for fault, error, said in (
        (services.MISSING, UsageError, "apt-get install nftables"),
        ("Error: Could not process rule", NotMeasurableError, "does not work here: Error: Could not process rule"),
    ):
        monkeypatch.setattr(services, "find_nft_fault", lambda fault=fault: fault)
        services.check_way(plain())
        with pytest.raises(error, match=said):
            services.check_way(balanced())
    monkeypatch.undo()
    services.find_nft_fault.cache_clear()
    assert services.find_nft_fault() is None
    (tmp_path / "nft").write_text("#!/bin/sh\necho 'No such file or directory' >&2; exit 1\n")
    (tmp_path / "nft").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    services.find_nft_fault.cache_clear()
    assert services.find_nft_fault() == "No such file or directory"
    monkeypatch.setenv("PATH", "/nonexistent")
    services.find_nft_fault.cache_clear()
    assert services.find_nft_fault() == services.MISSING
    services.find_nft_fault.cache_clear()


SHIPPED = Strategy(unavailable=1)
"""The manifests': maxUnavailable 1, and Kubernetes' own maxSurge of 25 %."""


def members(*words: str) -> list[ReplicaPod]:
    """Each `NAME new|old [ready]`, in the order of their making."""
    found: list[ReplicaPod] = []
    for number, word in enumerate(words):
        name, age, *ready = word.split()
        found.append(ReplicaPod(name, age == "new", bool(ready), float(number)))
    return found


def test_the_number_of_pods_and_a_rolling_update_keep_to_the_strategy() -> None:
    for replicas, strategy, there, wanted in (
        # As many as wanted: the unready and the youngest go first.
        (2, Strategy(), ["a new ready", "b new ready"], RolloutStep()),
        (2, Strategy(), ["a new ready"], RolloutStep(1)),
        (0, Strategy(), ["a new ready"], RolloutStep(0, ("a",))),
        (1, Strategy(), ["a new ready", "b new", "c new ready"], RolloutStep(0, ("b", "c"))),
        # One may be missing and one too many: the only one goes at once, ready replacement or not.
        (1, SHIPPED, ["a old ready"], RolloutStep(1, ("a",))),
        # 25 % of one: none may be missing, one may be too many.
        (1, Strategy(), ["a old ready"], RolloutStep(1)),
        (1, Strategy(), ["a old ready", "b new"], RolloutStep()),
        (1, Strategy(), ["a old ready", "b new ready"], RolloutStep(0, ("a",))),
        # 25 % of four: one more, one fewer.
        (4, Strategy(), ["a old ready", "b old ready", "c old ready", "d old ready"], RolloutStep(1, ("d",))),
        (4, Strategy(), ["a old ready", "b old ready", "c old ready", "e new"], RolloutStep(1)),
        # What does not serve anyway goes first.
        (2, Strategy(surge=0, unavailable=1), ["a old ready", "b old"], RolloutStep(0, ("b",))),
        # Neither is allowed: one must be missing, or nothing could be replaced.
        (2, Strategy(surge=0, unavailable=0), ["a old ready", "b old ready"], RolloutStep(0, ("b",))),
        (2, Strategy(recreate=True), ["a old ready", "b old ready"], RolloutStep(0, ("b", "a"))),
    ):
        assert plan_step(replicas, strategy, members(*there)) == wanted
    assert plan_step(2, Strategy(recreate=True), [], old_ending=1) == RolloutStep()
    assert plan_step(2, Strategy(recreate=True), []) == RolloutStep(2)
    assert plan_step(2, SHIPPED, [], old_ending=2) == RolloutStep(2), "a deleted pod is replaced at once"


def test_a_budget_allows_what_leaves_enough_healthy_pods() -> None:
    for least, most_out, ready, healthy, expected, allowed in (
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
    ):
        fault = Budget("b", {}, least, most_out).refusal(ready, healthy, expected)
        assert (fault is None) == allowed
        assert fault is None or fault.startswith("PodDisruptionBudget b needs ")


def budget(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}


def test_budgets_and_strategies_are_read() -> None:
    labels = {"matchLabels": {"lab/role": "proxy"}}
    manifests = [*load_variant("baseline").manifests, budget({"selector": labels, "minAvailable": "50%"})]
    found = objects.read_objects(manifests)
    assert found.budgets == (Budget("b", labels["matchLabels"], "50%", None),)
    (proxy,) = [deployment for deployment in found.deployments if deployment.name == "proxy"]
    assert proxy.strategy == SHIPPED and proxy.pod(7).name == "proxy-7"
    assert proxy.pod(7).containers[0].env["POD_NAME"] == "proxy-7"
    both = [Budget("a", {"x": "1"}, 1, None), Budget("b", {}, 1, None)]
    assert find_budget(both, {"y": "1"}) is both[1] and find_budget(both[:1], {}) is None
    with pytest.raises(MeasuringError, match="a and b: this pod has more than one"):
        find_budget(both, {"x": "1"})


def test_a_wrong_budget_or_strategy_is_named() -> None:
    for spec, fault in (
        ({"minAvailable": 1, "maxUnavailable": 1}, "expected one of minAvailable and maxUnavailable"),
        ({}, "expected one of minAvailable and maxUnavailable"),
        ({"minAvailable": "half"}, "expected a number or a percentage, got 'half'"),
        ({"minAvailable": 1, "unhealthyPodEvictionPolicy": "Never"}, "expected IfHealthyBudget, got 'Never'"),
        ({"minAvailible": 1}, "did you mean 'minAvailable'"),
    ):
        labels = {"selector": {"matchLabels": {"lab/role": "proxy"}}}
        with pytest.raises(UsageError, match=fault):
            objects.read_objects([*load_variant("baseline").manifests, budget({**labels, **spec})])
    manifests = changed("baseline", lambda item: item["spec"].update(strategy={"type": "BlueGreen"})).manifests
    with pytest.raises(UsageError, match=r"strategy.type: expected RollingUpdate or Recreate, got 'BlueGreen'"):
        objects.read_objects(manifests)


def host_ports(item: dict[str, Any]) -> None:
    for port in item["spec"]["template"]["spec"]["containers"][0]["ports"]:
        port["hostPort"] = port["containerPort"] + 8000


def test_a_nodes_ports_are_one_pods_at_a_time_by_its_nat() -> None:
    found = objects.read_objects(changed("baseline", host_ports).manifests)
    (proxy, *_), (backend, *_) = found.role("proxy"), found.role("backend")
    assert proxy.host_ports == {80: 8080, 443: 8443}
    assert proxy.excludes(proxy) and not proxy.excludes(backend) and not backend.excludes(backend)
    (on_node,) = objects.read_objects(load_variant("okd-hostnetwork").manifests).role("proxy")
    assert on_node.host_ports[8080] == 8080 and on_node.excludes(on_node)
    plain = objects.read_objects(load_variant("baseline").manifests)
    assert services.list_balancers(services.add_node_nat(plain, changing=False)) == []
    (service,) = services.list_balancers(services.add_node_nat(plain, changing=True))
    assert not service.masquerade
    assert services.list_balancers(
        services.add_node_nat(objects.read_objects(changed("baseline", host_ports).manifests), False)
    )
    straight = services.add_node_nat(objects.read_objects(load_variant("okd-hostnetwork").manifests), True)
    assert services.list_balancers(straight) == []
