"""Hosts from Ingress and Route objects, and which of them a load goes to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lab.base.errors import UsageError
from lab.model.endpoint import Tls
from lab.model.traffic import FIXTURE, MAX_ROUTES, Traffic
from lab.model.variants import hosts
from lab.model.variants.variants import load_variant
from lab.tests.support.factories import make_point

ROUTED: dict[str, Tls] = {"a.test": "none", "b.test": "edge", "c.test": "edge"}


def ingress(*names: str, encrypted: tuple[str, ...] = ()) -> dict[str, Any]:
    spec: dict[str, Any] = {"rules": [{"host": name} for name in names]}
    if encrypted:
        spec["tls"] = [{"hosts": list(encrypted)}]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "x"}, "spec": spec}


def route(host: str, termination: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"host": host, "to": {"kind": "Service", "name": "backend"}}
    if termination:
        spec["tls"] = {"termination": termination}
    return {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": host}, "spec": spec}


def test_hosts_come_in_the_manifests_order_with_where_their_tls_ends() -> None:
    """A rule without a host names none, nor does another group's route."""
    found = hosts.find_hosts(
        [route("z.test", "reencrypt"), ingress("a.test", "b.test", encrypted=("b.test",)), route("y.test")]
    )
    assert list(found.items()) == [("z.test", "reencrypt"), ("a.test", "none"), ("b.test", "edge"), ("y.test", "none")]
    foreign = {**route("x.test"), "apiVersion": "example.org/v1"}
    assert hosts.find_hosts([ingress(), {"kind": "Ingress", "spec": {"rules": [{}]}}, foreign]) == {
        hosts.DEFAULT_HOST: "none"
    }


@pytest.mark.parametrize(
    ("point", "proxied", "expected"),
    [
        ({"tls": "edge", "routes": "all"}, True, (("b.test", "c.test"), "edge")),
        ({"tls": "edge", "routes": 1}, True, (("b.test",), "edge")),
        ({"tls": "none", "routes": 3}, False, (("a.test", "bench-0001.lab.test", "bench-0002.lab.test"), "none")),
    ],
)
def test_a_point_chooses_among_them(point: dict[str, Any], proxied: bool, expected: object) -> None:
    assert hosts.choose_hosts(ROUTED, proxied, make_point(**point)) == expected


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({}, "tls: 'routed' is not one: the variant's routes have edge, none"),
        ({"tls": "passthrough"}, "tls: asks for 'passthrough', the variant's routes have edge, none"),
        ({"tls": "none", "routes": 2}, "routes: asks for 2 routes, the variant has 1"),
    ],
)
def test_a_point_that_they_cannot_serve_is_refused(point: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"point rate-1000: {message}"):
        hosts.choose_hosts(ROUTED, True, make_point(**point))


def test_an_endpoint_is_known_before_there_is_an_address() -> None:
    found = hosts.expect_endpoint({"a.test": "edge", "b.test": "edge"}, True, make_point(routes="all"))
    assert (found.base_url, found.host, found.tls) == ("https://a.test", "a.test", "edge")
    assert found.hosts == ("a.test", "b.test")
    assert hosts.expect_endpoint({"a.test": "none"}, True, make_point()).base_url == "http://a.test"
    assert found.shards == () and hosts.find_routers(load_variant("okd").manifests) == {}, "one router has every host"


def test_routers_that_share_the_routes_have_each_its_own() -> None:
    variant = load_variant("okd-shards-2")
    routers = hosts.find_routers(variant.manifests)
    assert Counter(routers.values()) == {"proxy": 500, "proxy-2": 500}
    assert (routers["bench-0000.apps.lab.test"], routers["bench-0999.apps.lab.test"]) == ("proxy", "proxy-2")
    routed = hosts.find_hosts(variant.manifests)
    found = hosts.expect_endpoint(routed, True, make_point(routes="all"), routers)
    assert [len(shard.hosts) for shard in found.shards] == [500, 500] and len(found.hosts) == 1000
    assert [shard.url for shard in found.shards] == [f"http://bench-000{number}.apps.lab.test" for number in (0, 1)]
    assert found.at("bench-0001.apps.lab.test").base_url == "http://bench-0001.apps.lab.test"
    assert found.at("bench-0001.apps.lab.test").shards == ()
    assert found.at("nobody.lab.test").base_url == found.base_url == "http://bench-0000.apps.lab.test"
    assert hosts.expect_endpoint(routed, True, make_point(), routers).shards == ()  # one host, one way


def test_a_route_that_two_routers_want_is_the_firsts_and_one_that_nobody_wants_is_left_out() -> None:
    labels = {"a.test": {"part": "lab", "shard": "1"}, "b.test": {"part": "lab"}, "c.test": {"part": "other"}}
    wanted = {"one": hosts.route_labels("part=lab"), "two": hosts.route_labels("part=lab,shard=1")}
    assert hosts.divide_hosts(labels, wanted) == {"a.test": "one", "b.test": "one"}
    assert hosts.divide_hosts(labels, dict(reversed(wanted.items()))) == {"a.test": "two", "b.test": "one"}
    assert hosts.divide_hosts(labels, {"one": {}}) == {}


def test_copies_of_a_route_have_hosts_of_their_own_up_to_a_number() -> None:
    objects = [ingress("shop.test", encrypted=("shop.test",)), {"kind": "Service", "metadata": {"name": "backend"}}]
    added = hosts.add_routes(objects, 4)
    assert list(added[:2]) == objects
    names = ["shop.test", "shop-0001.test", "shop-0002.test", "shop-0003.test"]
    assert list(hosts.find_hosts(added).items()) == [(name, "edge") for name in names]
    assert [obj["metadata"]["name"] for obj in added[2:]] == [f"traffic-shop-000{number}" for number in (1, 2, 3)]
    assert hosts.add_routes(added, 4) == added, "there are as many"
    assert list(hosts.find_hosts(hosts.add_routes(added, 5)))[-1] == "shop-0004.test"
    assert hosts.add_routes([objects[1]], 4) == (objects[1],), "a proxy without a route has none to copy"


@pytest.mark.parametrize(
    "name", ["ingress-nginx", "envoy-gateway", "contour", "okd", "tls", "ingress-nginx+ingress-tls"]
)
def test_every_kind_of_route_is_copied(name: str) -> None:
    variant = load_variant(name, fixtures=(FIXTURE,))
    routed = hosts.find_hosts(variant.manifests)
    assert len(routed) >= MAX_ROUTES and len(set(routed.values())) == 1
    assert len({(obj["kind"], obj["metadata"]["name"]) for obj in variant.manifests}) == len(variant.manifests)


def test_a_mix_goes_to_as_many_hosts_of_a_proxy_that_looks_at_none() -> None:
    point = make_point().with_traffic(Traffic(requests=("1 GET h3 p1 500",)))
    expected = (hosts.DEFAULT_HOST, "bench-0001.lab.test", "bench-0002.lab.test")
    assert hosts.choose_hosts({hosts.DEFAULT_HOST: "none"}, True, point) == (expected, "none")
    with pytest.raises(UsageError, match="asks for 3 routes, the variant has 1"):
        hosts.choose_hosts({"a.test": "none"}, True, point)


@pytest.mark.parametrize(("name", "pods"), [("ingress-nginx", 3), ("okd", 3), ("nds-replicas-4", 4), ("direct", 3)])
def test_a_mix_has_several_endpoints_unless_a_knob_sets_their_number(name: str, pods: int) -> None:
    objects = load_variant(name, fixtures=(FIXTURE,)).manifests
    replicas = [
        obj["spec"]["replicas"]
        for obj in objects
        if obj["metadata"]["name"] == "backend" and obj["kind"] == "Deployment"
    ]
    assert replicas == [pods]
