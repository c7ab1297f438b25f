"""Gateway API's objects → what a proxy serves, whichever it is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lab.base.errors import UsageError
from lab.model.variants import hosts
from lab.systems.manifests import objects
from lab.systems.manifests.gateway_api import (
    Backend,
    HttpRoute,
    Match,
    Rule,
    check,
    read_gateway,
    read_http_route,
    rules_of,
    served,
)
from lab.tests.support.gateway import GATEWAY, ROUTE


def _gateway(**change: Any) -> dict[str, Any]:
    return {**GATEWAY, "spec": {**copy.deepcopy(GATEWAY["spec"]), **change}}


def _route(**change: Any) -> dict[str, Any]:
    return {**ROUTE, "spec": {**copy.deepcopy(ROUTE["spec"]), **change}}


def _read(**change: Any) -> HttpRoute:
    return read_http_route("HTTPRoute/bench", _route(**change))


def test_a_route_is_read_whole() -> None:
    route = _read()
    assert (route.parents, route.hosts) == ((("proxy", ""),), ("bench.lab.test", "shop.example"))
    plain, full = route.rules
    assert plain == Rule("HTTPRoute/bench: spec.rules[0]", (Match(),), Backend("backend", 80))
    matches = (Match("Exact", "/a"), Match(path="/a"))
    assert full == Rule("HTTPRoute/bench: spec.rules[1]", matches, Backend("other", 8080), {"A": "b"})


def test_each_port_serves_its_routes_in_the_order_of_the_api() -> None:
    """An exact path before prefixes, the longest prefix first; whole names before wildcards, the longest of these first."""
    gateway = read_gateway("Gateway/proxy", _gateway())
    plain, encrypted = served([gateway], [_read()])
    assert (plain.port, plain.secrets, plain.hosts) == (80, (), encrypted.hosts)
    assert (encrypted.port, encrypted.secrets) == (443, ("certificate",))
    assert [*plain.hosts] == ["bench.lab.test", "shop.example"]
    paths = [(entry.match.path_kind, entry.match.path) for entry in plain.hosts["bench.lab.test"]]
    assert paths == [("Exact", "/a"), ("PathPrefix", "/a"), ("PathPrefix", "/")]
    backends = {rule.backend for rule in rules_of([plain, encrypted]).values()}
    assert backends == {Backend("backend", 80), Backend("other", 8080)}
    for given, found in (([], ["*"]), (["*.test", "a.test", "*.lab.test"], ["a.test", "*.lab.test", "*.test"])):
        assert served([gateway], [_read(hostnames=given)])[0].ordered == found


def test_a_section_names_the_listener_and_its_own_namespace_may_be_named() -> None:
    route = _read(parentRefs=[{"name": "proxy", "sectionName": "https"}])
    ports = served([read_gateway("Gateway/proxy", _gateway())], [route])
    assert [list(port.hosts) for port in ports] == [[], ["bench.lab.test", "shop.example"]]
    named = [{"name": "proxy", "namespace": _route()["metadata"].get("namespace", "default")}]
    assert _read(parentRefs=named).parents == (("proxy", ""),)


def matched(**path: str) -> dict[str, Any]:
    return {"rules": [{"matches": [{"path": path}]}]}


def header(name: str, value: str) -> dict[str, Any]:
    change = {"set": [{"name": name, "value": value}]}
    return {"rules": [{"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": change}]}]}


@pytest.mark.parametrize(
    ("change", "place", "fault"),
    [
        ({"hostname": ["a"]}, "HTTPRoute/bench: spec.hostname", "does not honour this field"),
        ({"parentRefs": []}, "HTTPRoute/bench: spec", "'parentRefs' is empty"),
        ({"parentRefs": [{"name": "proxy", "namespace": "b"}]}, "spec.parentRefs[proxy].namespace", "one namespace"),
        ({"rules": [{"timeouts": {"request": "1s"}}]}, "spec.rules[0].timeouts", "does not honour this field"),
        (matched(type="Prefix", value="/"), "path.type", "expected PathPrefix or Exact, got 'Prefix'"),
        ({"rules": [{"matches": [{"method": "GET"}]}]}, "matches[0].method", "does not honour this field"),
        ({"rules": [{"filters": [{"type": "URLRewrite"}]}]}, "filters[URLRewrite].type", "got 'URLRewrite'"),
        ({"rules": [{"backendRefs": [{"kind": "Backend", "name": "x", "port": 1}]}]}, "[x].kind", "expected Service"),
        ({"rules": [{"backendRefs": [{"name": "x", "port": 1}, {"name": "y", "port": 1}]}]}, "backendRefs", "several"),
        ({"rules": [{"backendRefs": [{"name": "x", "port": 70000}]}]}, "backendRefs[x].port", "expected a port"),
        ({"hostnames": ["bench.lab.test:80"]}, "HTTPRoute/bench: spec.hostnames", "expected a host"),
        (matched(value='/a"; return 200; #'), "path.value", "expected an absolute path"),
        (matched(value="//a"), "path.value", "without //"),
        (header("X A", "b"), "set[X A].name", "a header's name"),
        (header("A", "b\nc"), "set[A].value", "no header can have"),
    ],
)
def test_what_is_not_read_is_refused_at_its_place(change: dict[str, Any], place: str, fault: str) -> None:
    with pytest.raises(UsageError) as error:
        _read(**change)
    assert error.value.place.endswith(place) and fault in error.value.fault, error.value


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ({"name": "a", "port": 81, "protocol": "HTTP"}, "a has the name, or the port, of another listener"),
        ({"name": "b", "port": 80, "protocol": "HTTP"}, "b has the name, or the port, of another listener"),
        ({"name": "b", "port": 0, "protocol": "HTTP"}, "expected a port"),
        ({"name": "b", "port": 81, "protocol": "HTTPS"}, "protocol HTTPS and 0 certificates"),
        ({"name": "b", "port": 81, "protocol": "HTTP", "hostname": "a.test"}, "hostname: the local target does not"),
    ],
)
def test_listeners_that_cannot_be_served_are_refused(other: dict[str, Any], fault: str) -> None:
    one = {"name": "a", "port": 80, "protocol": "HTTP"}
    with pytest.raises(UsageError, match=fault):
        read_gateway("Gateway/proxy", _gateway(listeners=[one, other]))
    another = read_gateway("Gateway/other", _gateway(listeners=[one]))
    with pytest.raises(UsageError, match="port 80 is another listener's, too"):
        served([read_gateway("Gateway/proxy", _gateway()), another], [])


def test_what_a_proxy_cannot_be_told_is_refused_with_the_rule() -> None:
    """A part of the route, and a text that means something else to it."""
    _, full = _read().rules
    full.refuse("Mine", never='$"')
    with pytest.raises(UsageError, match="a change of request headers cannot be written for Mine here") as error:
        full.refuse("Mine", headers=False)
    assert error.value.place == "HTTPRoute/bench: spec.rules[1]"
    (odd,) = _read(**header("A", "$host")).rules
    with pytest.raises(UsageError, match=r"'\$host' cannot be written for Mine here"):
        odd.refuse("Mine", never='$"')


def test_a_route_to_nobody_is_refused() -> None:
    gateway = read_gateway("Gateway/proxy", _gateway())
    with pytest.raises(UsageError, match="no GatewayClass is called 'lab'"):
        check([gateway], [], [])
    lost = _read(parentRefs=[{"name": "porxy"}])
    with pytest.raises(UsageError, match="there is no Gateway 'porxy'") as error:
        check([gateway], [lost], ["lab"])
    assert "proxy" in error.value.remedy
    other = _read(parentRefs=[{"name": "proxy", "sectionName": "htp"}])
    with pytest.raises(UsageError, match="Gateway proxy has no listener 'htp'"):
        check([gateway], [other], ["lab"])
    gateway_class = {"kind": "GatewayClass", "metadata": {"name": "lab"}, "spec": {"controllerName": "lab.test/one"}}
    with pytest.raises(UsageError, match="there is no such Service"):
        objects.read([gateway_class, _gateway(), _route()])


def test_hosts_of_a_load_are_the_routes() -> None:
    """TLS ends in the proxy where a listener that they are attached to has TLS."""
    assert hosts.routed([_gateway(), _route()]) == {"bench.lab.test": "edge", "shop.example": "edge"}
    plain = _route(parentRefs=[{"name": "proxy", "sectionName": "http"}])
    assert hosts.routed([plain, _gateway()]) == {"bench.lab.test": "none", "shop.example": "none"}
