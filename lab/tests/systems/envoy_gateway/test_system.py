"""Envoy Gateway's objects as its file provider is given them, and when its Envoy is said to serve them."""

from __future__ import annotations

from base64 import b64decode
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lab.base.errors import UsageError
from lab.model.variants.variants import load_variant
from lab.systems.envoy_gateway import system as envoy_gateway
from lab.systems.envoy_gateway.system import CONTROLLER, VERSION, Serves, written
from lab.systems.envoy_gateway.system import objects as given
from lab.systems.manifests import objects

ADDRESS = "10.64.0.3"


def read(manifests: Any = None) -> objects.Objects:
    return objects.read(manifests or load_variant("envoy-gateway").manifests)


def of(kind: str, found: objects.Objects | None = None) -> list[dict[str, Any]]:
    found = found or read()
    made = given(found, CONTROLLER, {pod.name: ADDRESS for pod in found.pods})
    return [each for each in made if each["kind"] == kind]


def test_a_service_s_pods_become_a_backend_to_which_the_route_leads() -> None:
    (backend,), (route,) = of("Backend"), of("HTTPRoute")
    assert backend["spec"]["endpoints"] == [{"ip": {"address": ADDRESS, "port": 8080}}]
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"] == [
        {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": backend["metadata"]["name"]}
    ]
    assert route["spec"]["hostnames"] == ["bench.lab.test"]


def test_policies_and_the_class_are_given_as_they_are() -> None:
    """With the class that is the controller's, without what is the lab's own."""
    manifests = load_variant("envoy-gateway-circuit-breakers").manifests
    (policy,) = of("BackendTrafficPolicy", read(manifests))
    assert policy["spec"]["circuitBreaker"]["maxConnections"] == 65536
    assert [each["spec"]["controllerName"] for each in of("GatewayClass")] == [CONTROLLER]
    assert not of("Deployment") and not of("ConfigMap")


def test_a_rule_s_name_is_its_version_and_a_name_of_its_own_stays() -> None:
    manifests: list[dict[str, Any]] = [dict(each) for each in load_variant("envoy-gateway").manifests]
    names = {rule["name"] for each in of("HTTPRoute") for rule in each["spec"]["rules"]}
    route = next(each for each in manifests if each["kind"] == "HTTPRoute")
    route["spec"] = {**route["spec"], "hostnames": ["other.lab.test"]}
    changed = {rule["name"] for each in of("HTTPRoute", read(manifests)) for rule in each["spec"]["rules"]}
    assert names != changed and all(name.startswith(VERSION) for name in names | changed)
    spec: dict[str, Any] = route["spec"]
    route["spec"] = {**spec, "rules": [{**spec["rules"][0], "name": "mine"}]}
    assert of("HTTPRoute", read(manifests))[0]["spec"]["rules"][0]["name"] == "mine"


def dump(versions: list[str], endpoints: list[tuple[str, int]]) -> Any:
    """As /config_dump?include_eds has it, of what matters."""
    resources = [[{"kind": "HTTPRoute", "sectionName": name}] for name in versions]
    routes = [{"metadata": {"filter_metadata": {"envoy-gateway": {"resources": each}}}} for each in resources]
    sockets = [{"socket_address": {"address": address, "port_value": port}} for address, port in endpoints]
    found = {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket}} for socket in sockets]}]}
    table = {"route_config": {"virtual_hosts": [{"routes": routes}]}}
    return {
        "configs": [
            {"@type": "x.RoutesConfigDump", "dynamic_route_configs": [table]},
            {"@type": "x.EndpointsConfigDump", "dynamic_endpoint_configs": [{"endpoint_config": found}]},
        ]
    }


@pytest.mark.parametrize(
    ("version", "endpoint", "serves"),
    [(None, (ADDRESS, 8080), True), ("lab-older", (ADDRESS, 8080), False), (None, (ADDRESS, 8081), False)],
)
def test_it_serves_a_file_when_it_has_its_rules_and_endpoints(
    version: str | None, endpoint: tuple[str, int], serves: bool
) -> None:
    found = read()
    text = written(given(found, CONTROLLER, {pod.name: ADDRESS for pod in found.pods}))
    name = next(each for each in yaml.safe_load_all(text) if each["kind"] == "HTTPRoute")["spec"]["rules"][0]["name"]
    assert Serves().these(text, "1", lambda: dump([version or name], [endpoint])) is serves


def test_envoy_is_looked_at_again_only_when_it_has_taken_something() -> None:
    found, looks = read(), list[str]()
    text = written(given(found, CONTROLLER, {pod.name: ADDRESS for pod in found.pods}))
    serves = Serves()

    def look() -> Any:
        looks.append("look")
        return dump([], [])

    assert [serves.these(text, versions, look) for versions in ("1", "1", "2")] == [False] * 3
    assert len(looks) == 2


def test_a_certificate_is_where_it_looks_for_one() -> None:
    """The controller itself leaves stringData as it is, and would open no port for TLS."""
    (secret,) = of("Secret", read(load_variant("envoy-gateway-equal").manifests))
    assert b64decode(secret["data"]["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
    assert "stringData" not in secret


def test_an_envoy_of_its_own_choice_is_refused() -> None:
    manifests: list[dict[str, Any]] = [dict(each) for each in load_variant("envoy-gateway").manifests]
    settings = next(each for each in manifests if each["kind"] == "EnvoyProxy")
    settings["spec"] = {**settings["spec"], "provider": {"type": "Host"}}
    with pytest.raises(UsageError, match="envoyVersion: is missing"):
        envoy_gateway._envoy(context_of(manifests))  # pyright: ignore[reportPrivateUsage]


def test_a_field_that_its_objects_have_not_is_refused_before_it_starts() -> None:
    """The controller itself would serve nothing, and say why in its log alone."""
    manifests: list[dict[str, Any]] = [dict(each) for each in load_variant("envoy-gateway-circuit-breakers").manifests]
    policy = next(each for each in manifests if each["kind"] == "BackendTrafficPolicy")
    policy["spec"] = {**policy["spec"], "circuitBreaker": {"maxConnectios": 65536}}
    with pytest.raises(UsageError, match=r"BackendTrafficPolicy/proxy: /spec/circuitBreaker: .*maxConnectios"):
        envoy_gateway._refuse(context_of(manifests))  # pyright: ignore[reportPrivateUsage]


def context_of(manifests: list[dict[str, Any]]) -> Any:
    return SimpleNamespace(objects=read(manifests), cpus=2)
