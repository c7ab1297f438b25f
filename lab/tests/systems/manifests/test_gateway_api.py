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
    Headers,
    Match,
    Redirect,
    Rewrite,
    Rule,
    ValueMatch,
    check,
    served,
)
from lab.systems.manifests.gateway_objects import read_gateway, read_http_route
from lab.tests.support.gateway import GATEWAY, ROUTE


def _gateway(**change: Any) -> dict[str, Any]:
    raw = copy.deepcopy(dict(GATEWAY))
    raw["spec"] |= change
    return raw


def _route(**change: Any) -> dict[str, Any]:
    raw = copy.deepcopy(dict(ROUTE))
    raw["spec"] |= change
    return raw


def test_a_route_is_read_whole() -> None:
    route = read_http_route("HTTPRoute/bench", _route())
    assert (route.parents, route.hosts) == ((("proxy", ""),), ("bench.lab.test", "shop.example"))
    plain, full, moved = route.rules
    assert plain == Rule("HTTPRoute/bench: spec.rules[0]", (Match(),), (Backend("backend", 80),))
    assert full.matches == (
        Match("Exact", "/a", method="POST"),
        Match(
            headers=(ValueMatch("x-who", "me"), ValueMatch("x-what", "a+", "RegularExpression")),
            queries=(ValueMatch("q", "1"),),
            path="/a",
        ),
        Match("RegularExpression", "/[ab]"),
    )
    assert full.backends == (Backend("backend", 80, 9), Backend("other", 8080))
    assert (full.request_s, full.backend_s) == (90.0, 10.0)
    assert full.request_headers == Headers({"A": "b"}, {"C": "d"}, ("E",))
    assert full.response_headers == Headers(remove=("Server",))
    assert full.rewrite == Rewrite("inner", prefix="/b")
    assert full.mirrors == (Backend("copy", 80),)
    assert moved.redirect == Redirect(path="/new", scheme="https", port=8443, status=301)


def test_each_port_serves_the_hosts_that_its_listener_lets_through_in_the_order_of_the_api() -> None:
    """An exact path before a regular expression, that before prefixes, the longest prefix first."""
    plain, encrypted = served(
        [read_gateway("Gateway/proxy", _gateway())], [read_http_route("HTTPRoute/bench", _route())]
    )
    assert (plain.port, plain.secrets, list(plain.hosts)) == (80, (), ["bench.lab.test", "shop.example"])
    assert (encrypted.port, encrypted.secrets, list(encrypted.hosts)) == (443, ("certificate",), ["bench.lab.test"])
    paths = [(entry.match.path_kind, entry.match.path) for entry in plain.hosts["bench.lab.test"]]
    assert paths == [
        ("Exact", "/a"),
        ("RegularExpression", "/[ab]"),
        ("PathPrefix", "/old"),
        ("PathPrefix", "/a"),
        ("PathPrefix", "/"),
    ]
    assert plain.backends == [Backend("backend", 80), Backend("other", 8080), Backend("copy", 80)]


@pytest.mark.parametrize(
    ("hostname", "given", "found"),
    [
        ("", [], ["*"]),
        ("*.lab.test", [], ["*.lab.test"]),
        ("*.lab.test", ["a.lab.test", "lab.test", "b.example"], ["a.lab.test"]),
        ("a.lab.test", ["*.lab.test", "b.lab.test"], ["a.lab.test"]),
        ("a.lab.test", ["a.lab.test"], ["a.lab.test"]),
    ],
)
def test_a_listeners_host_and_a_routes_meet(hostname: str, given: list[str], found: list[str]) -> None:
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "hostname": hostname}
    gateway = read_gateway("Gateway/proxy", _gateway(listeners=[listener]))
    (port,) = served([gateway], [read_http_route("HTTPRoute/bench", _route(hostnames=given))])
    assert list(port.hosts) == found


def test_a_section_names_the_listener_and_its_own_namespace_may_be_named() -> None:
    route = read_http_route("HTTPRoute/bench", _route(parentRefs=[{"name": "proxy", "sectionName": "https"}]))
    ports = served([read_gateway("Gateway/proxy", _gateway())], [route])
    assert [list(port.hosts) for port in ports] == [[], ["bench.lab.test"]]
    named = [{"name": "proxy", "namespace": _route()["metadata"].get("namespace", "default")}]
    assert read_http_route("HTTPRoute/bench", _route(parentRefs=named)).parents == (("proxy", ""),)


PREFIX = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/b"}


def filtered(kind: str, **said: Any) -> dict[str, Any]:
    """Of a route with one filter."""
    name = "urlRewrite" if kind.startswith("URL") else f"{kind[0].lower()}{kind[1:]}"
    return {"rules": [{"filters": [{"type": kind, name: said}]}]}


@pytest.mark.parametrize(
    ("change", "place", "fault"),
    [
        ({"hostname": ["a"]}, "HTTPRoute/bench: spec.hostname", "does not honour this field"),
        ({"parentRefs": []}, "HTTPRoute/bench: spec", "'parentRefs' is empty"),
        (
            {"parentRefs": [{"name": "proxy", "namespace": "other"}]},
            "HTTPRoute/bench: spec.parentRefs[proxy].namespace",
            "reads one namespace",
        ),
        (
            {"rules": [{"timeouts": {"request": "ten"}}]},
            "HTTPRoute/bench: spec.rules[0].timeouts.request",
            "expected a duration such as 10s",
        ),
        (
            {"rules": [{"matches": [{"path": {"type": "Prefix", "value": "/"}}]}]},
            "type",
            "expected PathPrefix or Exact or RegularExpression, got 'Prefix'",
        ),
        (
            {"rules": [{"filters": [{"type": "ExtensionRef", "extensionRef": {"name": "x"}}]}]},
            "HTTPRoute/bench: spec.rules[0].filters[ExtensionRef].type",
            "does not honour a filter 'ExtensionRef'",
        ),
        (
            {"rules": [{"backendRefs": [{"kind": "Backend", "name": "x", "port": 1}]}]},
            "HTTPRoute/bench: spec.rules[0].backendRefs[x].kind",
            "expected Service, got 'Backend'",
        ),
        ({"hostnames": ["bench.lab.test:80"]}, "HTTPRoute/bench: spec.hostnames", "expected a host"),
        ({"rules": [{"matches": [{"method": "GET }"}]}]}, "spec.rules[0].matches[0].method", "expected GET or HEAD"),
        (
            {"rules": [{"matches": [{"path": {"value": '/a"; return 200; #'}}]}]},
            "path.value",
            "expected an absolute path",
        ),
        ({"rules": [{"matches": [{"path": {"value": "//a"}}]}]}, "path.value", "without //"),
        (
            {"rules": [{"matches": [{"path": {"type": "RegularExpression", "value": "/a("}}]}]},
            "path.value",
            "is no regular expression",
        ),
        ({"rules": [{"backendRefs": [{"name": "x", "port": 70000}]}]}, "backendRefs[x].port", "expected a port"),
        (
            {"rules": [{"backendRefs": [{"name": "x", "port": 1, "weight": -1}]}]},
            "backendRefs[x].weight",
            "expected 0 to 1000000",
        ),
        (
            {"rules": [{"timeouts": {"request": "1s", "backendRequest": "2s"}}]},
            "spec.rules[0].timeouts",
            "are longer than",
        ),
        (filtered("RequestRedirect", statusCode=299), "requestRedirect.statusCode", "expected one of 301"),
        (filtered("RequestHeaderModifier", set=[{"name": "X A", "value": "b"}]), "set[X A].name", "a header's name"),
        (filtered("RequestHeaderModifier", set=[{"name": "A", "value": "b\nc"}]), "set[A].value", "no header can have"),
        (
            {"rules": [{"filters": [{"type": "RequestHeaderModifier"}, {"type": "RequestHeaderModifier"}]}]},
            "spec.rules[0].filters[RequestHeaderModifier]",
            "stands twice",
        ),
        (
            {
                "rules": [
                    {
                        "matches": [{"path": {"type": "Exact", "value": "/a"}}],
                        **filtered("URLRewrite", path=PREFIX)["rules"][0],
                    }
                ]
            },
            "spec.rules[0]",
            "replaces a prefix where none is matched",
        ),
    ],
)
def test_what_is_not_read_is_refused_at_its_place(change: dict[str, Any], place: str, fault: str) -> None:
    with pytest.raises(UsageError) as error:
        read_http_route("HTTPRoute/bench", _route(**change))
    assert error.value.place.endswith(place) and fault in error.value.fault, error.value


@pytest.mark.parametrize(
    ("listeners", "fault"),
    [
        ([{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "a", "port": 81, "protocol": "HTTP"}], "another listener"),
        ([{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "b", "port": 80, "protocol": "HTTP"}], "another listener"),
        ([{"name": "a", "port": 0, "protocol": "HTTP"}], "expected a port"),
        ([{"name": "a", "port": 80, "protocol": "HTTP", "hostname": "a b"}], "expected a host"),
    ],
)  # fmt: skip
def test_listeners_that_the_api_would_not_take_are_refused(listeners: list[dict[str, Any]], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read_gateway("Gateway/proxy", _gateway(listeners=listeners))


def test_backends_without_any_weight_are_as_none() -> None:
    rules = [{"backendRefs": [{"name": "x", "port": 1, "weight": 0}, {"name": "y", "port": 1, "weight": 0}]}]
    (rule,) = read_http_route("HTTPRoute/bench", _route(rules=rules)).rules
    assert rule.backends == ()


def test_a_text_that_means_something_else_to_a_proxy_is_refused() -> None:
    route = read_http_route(
        "HTTPRoute/bench", _route(**filtered("RequestHeaderModifier", set=[{"name": "A", "value": "$host"}]))
    )
    with pytest.raises(UsageError, match=r"'\$host' cannot be written for Mine here"):
        route.rules[0].refuse("Mine", ["request_headers"], never='$"')


def test_a_route_to_nobody_is_refused() -> None:
    gateway = read_gateway("Gateway/proxy", _gateway())
    with pytest.raises(UsageError, match="no GatewayClass is called 'lab'"):
        check([gateway], [], [])
    lost = read_http_route("HTTPRoute/bench", _route(parentRefs=[{"name": "porxy"}]))
    with pytest.raises(UsageError, match="there is no Gateway 'porxy'") as error:
        check([gateway], [lost], ["lab"])
    assert "proxy" in error.value.remedy
    other = read_http_route("HTTPRoute/bench", _route(parentRefs=[{"name": "proxy", "sectionName": "htp"}]))
    with pytest.raises(UsageError, match="Gateway proxy has no listener 'htp'"):
        check([gateway], [other], ["lab"])


def test_what_a_proxy_cannot_be_told_is_refused_with_the_rule() -> None:
    _, full, _ = read_http_route("HTTPRoute/bench", _route()).rules
    with pytest.raises(UsageError, match="a mirror cannot be written for Mine here") as error:
        full.refuse(
            "Mine",
            [
                "method",
                "headers",
                "queries",
                "added",
                "regex",
                "weights",
                "request_headers",
                "response_headers",
                "rewrite",
                "request_s",
                "backend_s",
            ],
        )
    assert error.value.place == "HTTPRoute/bench: spec.rules[1]"


def test_hosts_of_a_load_are_the_routes() -> None:
    """TLS ends in the proxy where a listener that they are attached to has TLS."""
    assert hosts.routed([_gateway(), _route()]) == {"bench.lab.test": "edge", "shop.example": "edge"}
    plain = _route(parentRefs=[{"name": "proxy", "sectionName": "http"}])
    assert hosts.routed([plain, _gateway()]) == {"bench.lab.test": "none", "shop.example": "none"}


def test_a_backend_that_is_not_there_is_refused_with_the_rest_of_the_manifests() -> None:
    gateway_class = {"kind": "GatewayClass", "metadata": {"name": "lab"}, "spec": {"controllerName": "lab.test/one"}}
    with pytest.raises(UsageError, match="there is no such Service"):
        objects.read([gateway_class, _gateway(), _route()])
