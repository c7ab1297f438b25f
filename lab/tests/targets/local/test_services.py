"""The way into the proxy: what is refused before anything starts. Starts nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lab.base.errors import NotMeasurableError, UsageError
from lab.model.variants.variants import load_variant
from lab.systems.manifests import objects
from lab.targets.local.control_plane import services
from lab.targets.local.sandbox import network
from lab.targets.local.sandbox.network import Network, Place
from lab.tests.support import inside
from lab.tests.support.inside import changed


def plain() -> objects.Objects:
    return objects.read(load_variant("baseline").manifests)


def balanced(replicas: int = 1, policy: str = "Cluster", host_network: bool = False) -> objects.Objects:
    return objects.read(inside.balanced(policy, replicas, host_network).manifests)


def net_of(wanted: objects.Objects) -> Network:
    names = [network.CLIENT, *(pod.name for pod in wanted.pods), services.NODE]
    return Network(tuple(Place(name, f"10.64.0.{number}") for number, name in enumerate(names, 2)))


def test_a_load_balancers_clients_use_the_services_own_address_and_port() -> None:
    wanted = balanced()
    net = net_of(wanted)
    assert services.address(wanted, net, "proxy") == (services.ADDRESS, 80)
    assert services.address(wanted, net, "proxy", "https") == (services.ADDRESS, 443)
    assert services.address(wanted, net, "backend") == (net["backend-0"].address, 8080)


def test_a_pods_ports_are_the_nodes_own_only_where_a_load_balancer_is_left_out() -> None:
    """Told by the places that are really there, not by the manifest."""
    for wanted in (balanced(), balanced(host_network=True)):
        (pod,) = wanted.role("proxy")
        net = net_of(wanted)
        straight = Network(tuple(place for place in net.places if place.name != services.NODE))
        assert not services.on_the_node(net, wanted, pod) and services.on_the_node(straight, wanted, pod)
        assert not services.on_the_node(straight, wanted, wanted.role("backend")[0])
    assert not services.on_the_node(Network(()), plain(), plain().role("proxy")[0])


def test_host_network_without_a_load_balancer_in_front_is_not_measurable() -> None:
    services.vet(balanced(host_network=True))
    with pytest.raises(NotMeasurableError, match="the way is straight without hostNetwork, too") as raised:
        services.vet(objects.read(load_variant("ingress-nginx+okd-host-network").manifests))
    assert raised.value.what == "host network"


def test_host_network_is_reached_at_the_pods_address_and_port() -> None:
    wanted = balanced(host_network=True)
    net = net_of(wanted)
    assert services.address(wanted, net, "proxy", "https") == (net["proxy-0"].address, 443)
    assert services.balancers(wanted) == [] and services.way(wanted) == ""


@pytest.mark.parametrize(("policy", "marks"), [("Cluster", 1), ("Local", 0)])
def test_the_ruleset_spreads_over_every_endpoint_and_masquerades_by_policy(policy: str, marks: int) -> None:
    wanted = balanced(3, policy)
    net = net_of(wanted)
    (http,) = [line for line in services.rules(net, wanted).splitlines() if "tcp dport 80 " in line]
    endpoints = ", ".join(f"{index} : {net[f'proxy-{index}'].address} . 80" for index in range(3))
    assert f"numgen random mod 3 map {{ {endpoints} }}" in http
    assert http.count("meta mark set") == marks


def test_routers_that_share_the_routes_have_an_address_each() -> None:
    wanted = objects.read(load_variant("okd-shards-2").manifests)
    net = net_of(wanted)
    services.vet(wanted)
    assert [service.name for service in services.balancers(wanted)] == ["proxy", "proxy-2"]
    assert services.address(wanted, net, "proxy") == services.address(wanted, net, "proxy", by="proxy")
    assert [services.address(wanted, net, "proxy", by=name) for name in ("proxy", "proxy-2")] == [
        ("10.65.0.1", 80),
        ("10.65.0.2", 80),
    ]
    lines = [line for line in services.rules(net, wanted).splitlines() if "tcp dport 80 " in line]
    for line, place, pod in zip(lines, ("10.65.0.1", "10.65.0.2"), ("proxy-0", "proxy-2-0"), strict=True):
        assert f"ip daddr {place} " in line and f"mod 1 map {{ 0 : {net[pod].address} . 8080 }}" in line
    assert "2 Services, 2 endpoints" in services.way(wanted)


def test_several_proxies_without_a_load_balancer_are_refused() -> None:
    services.vet(balanced(2))
    with pytest.raises(UsageError, match="nothing balances over them here"):
        services.vet(objects.read(changed("baseline", lambda item: item["spec"].update(replicas=2)).manifests))
    with pytest.raises(UsageError, match="nothing balances over them here"):
        services.vet(balanced(2, host_network=True))


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (services.MISSING, UsageError, "apt-get install nftables"),
        ("Error: Could not process rule", NotMeasurableError, "does not work here: Error: Could not process rule"),
    ],
)
def test_where_nft_does_not_work_only_variants_that_need_it_are_refused(
    fault: str, error: type[UsageError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "nft_fault", lambda: fault)
    services.vet(plain())
    with pytest.raises(error, match=said):
        services.vet(balanced())


def test_nft_is_tried_for_real_and_its_own_words_are_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    services.nft_fault.cache_clear()
    assert services.nft_fault() is None
    (tmp_path / "nft").write_text("#!/bin/sh\necho 'No such file or directory' >&2; exit 1\n")
    (tmp_path / "nft").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    services.nft_fault.cache_clear()
    assert services.nft_fault() == "No such file or directory"
    monkeypatch.setenv("PATH", "/nonexistent")
    services.nft_fault.cache_clear()
    assert services.nft_fault() == services.MISSING
    services.nft_fault.cache_clear()


def test_a_daemon_set_that_is_no_node_tuning_is_refused() -> None:
    manifests = copy.deepcopy(list(load_variant("baseline+file-max-1048576").manifests))
    (daemon,) = [item for item in manifests if item["kind"] == "DaemonSet"]
    del daemon["metadata"]["labels"]["lab/scope"]
    assert objects.read(manifests).others == (daemon,), "of no kind that is known: `bringup.vet` refuses it by name"
