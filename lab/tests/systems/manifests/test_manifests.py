"""Gateway API's objects, Ingresses, Routes and certificates: which are taken, what a proxy serves of them, and what a connection shows."""

from __future__ import annotations

import copy
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from lab.base.errors import UsageError
from lab.model.variants import hosts
from lab.model.variants.variants import load_variant
from lab.systems.haproxy_router import system as haproxy_router
from lab.systems.haproxy_router.control import CONF
from lab.systems.ingress_nginx import system as ingress_nginx
from lab.systems.ingress_nginx.configmap import decode_settings
from lab.systems.ingress_nginx.system import render
from lab.systems.manifests import certificates, objects
from lab.systems.manifests.certificates import CertificateRequest, describe_certificate, issue, read_request, subject
from lab.systems.manifests.gateway_api import (
    HttpRoute,
    Match,
    RouteRule,
    ServicePort,
    check_references,
    list_rules,
    list_served_ports,
    read_gateway,
    read_http_route,
)
from lab.systems.manifests.objects import Endpoint, Objects, apply_change
from lab.tests.support.changing_objects import META, SERVICE, endpoint_slice, ingress, route
from lab.tests.support.contexts import context_of
from lab.tests.support.gateway import GATEWAY, ROUTE


def _gateway(**change: Any) -> dict[str, Any]:
    return {**GATEWAY, "spec": {**copy.deepcopy(GATEWAY["spec"]), **change}}


def _route(**change: Any) -> dict[str, Any]:
    return {**ROUTE, "spec": {**copy.deepcopy(ROUTE["spec"]), **change}}


def _read(**change: Any) -> HttpRoute:
    return read_http_route("HTTPRoute/bench", _route(**change))


def test_a_route_is_read_whole_and_each_port_serves_it_in_the_order_of_the_api() -> None:
    """An exact path before prefixes, the longest prefix first; whole names before wildcards, the longest of these first."""
    route = _read()
    assert (route.parents, route.hosts) == ((("proxy", ""),), ("bench.lab.test", "shop.example"))
    plain, full = route.rules
    assert plain == RouteRule("HTTPRoute/bench: spec.rules[0]", (Match(),), ServicePort("backend", 80))
    matches = (Match("Exact", "/a"), Match(path="/a"))
    assert full == RouteRule("HTTPRoute/bench: spec.rules[1]", matches, ServicePort("other", 8080), {"A": "b"}, 90.0)
    gateway = read_gateway("Gateway/proxy", _gateway())
    plain, encrypted = list_served_ports([gateway], [_read()])
    assert (plain.port, plain.secrets, plain.hosts) == (80, (), encrypted.hosts)
    assert (encrypted.port, encrypted.secrets) == (443, ("certificate",))
    assert [*plain.hosts] == ["bench.lab.test", "shop.example"]
    paths = [(entry.match.path_kind, entry.match.path) for entry in plain.hosts["bench.lab.test"]]
    assert paths == [("Exact", "/a"), ("PathPrefix", "/a"), ("PathPrefix", "/")]
    backends = {rule.backend for rule in list_rules([plain, encrypted]).values()}
    assert backends == {ServicePort("backend", 80), ServicePort("other", 8080)}
    for given, found in (([], ["*"]), (["*.test", "a.test", "*.lab.test"], ["a.test", "*.lab.test", "*.test"])):
        assert list_served_ports([gateway], [_read(hostnames=given)])[0].ordered == found


def test_a_section_names_the_listener_by_which_tls_ends_or_not() -> None:
    """Its own namespace may be named. TLS ends in the proxy where a listener that hosts are attached to has TLS."""
    route = _read(parentRefs=[{"name": "proxy", "sectionName": "https"}])
    ports = list_served_ports([read_gateway("Gateway/proxy", _gateway())], [route])
    assert [list(port.hosts) for port in ports] == [[], ["bench.lab.test", "shop.example"]]
    named = [{"name": "proxy", "namespace": _route()["metadata"].get("namespace", "default")}]
    assert _read(parentRefs=named).parents == (("proxy", ""),)
    assert hosts.find_hosts([_gateway(), _route()]) == {"bench.lab.test": "edge", "shop.example": "edge"}
    plain = _route(parentRefs=[{"name": "proxy", "sectionName": "http"}])
    assert hosts.find_hosts([plain, _gateway()]) == {"bench.lab.test": "none", "shop.example": "none"}


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
        ({"rules": [{"timeouts": {"request": "ten"}}]}, "spec.rules[0].timeouts.request", "expected a duration"),
        ({"rules": [{"timeouts": {"backendRequest": "1s"}}]}, "timeouts.backendRequest", "does not honour this field"),
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
        list_served_ports([read_gateway("Gateway/proxy", _gateway()), another], [])


def test_what_a_proxy_cannot_be_told_is_refused_with_the_rule() -> None:
    _, full = _read().rules
    full.refuse("Mine", never='$"', timeout=True)
    with pytest.raises(UsageError, match="a timeout of the request cannot be written for Mine here"):
        full.refuse("Mine")
    with pytest.raises(UsageError, match="a change of request headers cannot be written for Mine here") as error:
        full.refuse("Mine", headers=False)
    assert error.value.place == "HTTPRoute/bench: spec.rules[1]"
    (odd,) = _read(**header("A", "$host")).rules
    with pytest.raises(UsageError, match=r"'\$host' cannot be written for Mine here"):
        odd.refuse("Mine", never='$"')


def test_a_route_to_nobody_is_refused() -> None:
    gateway = read_gateway("Gateway/proxy", _gateway())
    with pytest.raises(UsageError, match="no GatewayClass is called 'lab'"):
        check_references([gateway], [], [])
    lost = _read(parentRefs=[{"name": "porxy"}])
    with pytest.raises(UsageError, match="there is no Gateway 'porxy'") as error:
        check_references([gateway], [lost], ["lab"])
    assert "proxy" in error.value.remedy
    other = _read(parentRefs=[{"name": "proxy", "sectionName": "htp"}])
    with pytest.raises(UsageError, match="Gateway proxy has no listener 'htp'"):
        check_references([gateway], [other], ["lab"])
    gateway_class = {"kind": "GatewayClass", "metadata": {"name": "lab"}, "spec": {"controllerName": "lab.test/one"}}
    with pytest.raises(UsageError, match="there is no such Service"):
        objects.read_objects([gateway_class, _gateway(), _route()])


SLICE = endpoint_slice(9007, ("10.64.0.9", True), ("10.64.0.8", False), ("10.64.0.7", None))
CHANGING = route("/it's 7")
INGRESS = ingress("changing.lab.test", "/7")


def wanted(variant: str, *changes: Mapping[str, Any]) -> Objects:
    found = objects.read_objects(load_variant(variant).manifests)
    for change in changes:
        found = apply_change(found, change)
    return found


def nginx(found: Objects) -> str:
    return render(decode_settings("ConfigMap", {}), context_of(found), (1, 22, 1))


def haproxy(found: Objects) -> Mapping[str, str]:
    return haproxy_router.realise(context_of(found)).files


def test_pods_and_a_services_slices_are_endpoints_while_they_are_ready_and_what_is_applied_again_is_changed() -> None:
    found = wanted("okd-routes-10", SERVICE, SLICE)
    members = (Endpoint("10.64.0.9", 9007), Endpoint("10.64.0.7", 9007))
    assert found.members("changing", "http", {}) == found.members("changing", 80, {}) == members
    assert found.members("changing", "https", {}) == found.members("nowhere", 80, {}) == ()
    (pod,) = found.role("backend")
    assert not found.services["changing"].selects(pod)
    found = wanted("baseline")
    (pod,) = found.role("backend")
    assert found.members("backend", "http", {pod.name: "10.64.0.3"}) == (Endpoint("10.64.0.3", 8080, pod.name),)
    assert replace(found, ready=()).members("backend", "http", {}) == ()
    ready = replace(found, ready=(replace(pod, name="backend-1"),))
    assert ready.members("backend", "http", {"backend-1": "10.64.0.9"}) == (Endpoint("10.64.0.9", 8080, "backend-1"),)
    after = wanted("okd-routes-10", SERVICE, SLICE, CHANGING)
    again = apply_change(after, {**CHANGING, "spec": {**CHANGING["spec"], "host": "other.apps.lab.test"}})
    assert [route.host for route in again.host_routes if route.name == "changing"] == ["other.apps.lab.test"]
    assert len(again.host_routes) == len(after.host_routes)
    assert again.services == after.services and again.slices == after.slices


def test_a_route_becomes_a_backend_with_its_headers_and_servers() -> None:
    """One to nothing has a backend without servers."""
    files = haproxy(wanted("okd-routes-10", SERVICE, SLICE, CHANGING))
    backend = "backend be_http:ingress-lab:changing\n"
    section = files[f"{CONF}/haproxy.config"].split(backend)[1]
    assert "  http-request set-header 'X-Forwarded-Prefix' '/it'\\''s 7'\n" in section
    assert section.count("\n  server ept:changing:http:10.64.0.") == section.count(" check inter 5000ms") == 2
    line = r"^changing\.apps\.lab\.test\.?(:[0-9]+)?(/.*)?$ be_http:ingress-lab:changing"
    assert line in files[f"{CONF}/os_http_be.map"]
    empty = haproxy(wanted("okd-routes-10", CHANGING))[f"{CONF}/haproxy.config"]
    assert "  server " not in empty.split(backend)[1]


def test_an_ingress_with_a_rewrite_sets_the_prefix() -> None:
    """It may refer to a path that is a regular expression. One to nothing answers 503."""
    server = 'server_name "changing.lab.test";'
    text = nginx(wanted("baseline", SERVICE, SLICE, INGRESS))
    others, body = text.split(server)
    assert 'location ~* "^/" {' in body and 'location "/" {' in others, "other hosts are as they were"
    wished = ['rewrite "(?i)/" $uri break;', 'proxy_set_header X-Forwarded-Prefix "/7";', "proxy_pass http://"]
    places = [body.index(line) for line in wished]
    assert places == sorted(places)
    assert "server 10.64.0.9:9007 max_fails=0;" in text and "server 10.64.0.8" not in text
    change = copy.deepcopy(INGRESS)
    change["spec"]["rules"][0]["http"]["paths"][0]["path"] = "/(.*)"
    change["metadata"]["annotations"]["nginx.ingress.kubernetes.io/rewrite-target"] = "/$1"
    text = nginx(wanted("baseline", SERVICE, SLICE, change))
    assert 'location ~* "^/(.*)" {' in text and 'rewrite "(?i)/(.*)" /$1 break;' in text
    text = nginx(wanted("baseline", SERVICE, INGRESS))
    body = text.split(server)[1]
    assert "return 503;" in body and "proxy_pass" not in body and "upstream ingress-lab-changing-http" not in text


def test_an_ingress_by_grpc_has_grpcs_directives() -> None:
    text = nginx(wanted("baseline", SERVICE, SLICE, annotated("backend-protocol", "GRPC")))
    others, body = text.split('server_name "changing.lab.test";')
    for line in ("grpc_set_header X-Request-ID $req_id;", "grpc_read_timeout 60s;", "grpc_connect_timeout 5s;"):
        assert line in body and line not in others
    assert "grpc_pass grpc://ingress-lab-changing-" in body and "proxy_set_header" not in body.split("server {")[0]
    assert "grpc_" not in nginx(wanted("baseline", SERVICE, SLICE, annotated("backend-protocol", "HTTP")))


def annotated(name: str, value: str) -> dict[str, Any]:
    return {**INGRESS, "metadata": {**META, "annotations": {f"nginx.ingress.kubernetes.io/{name}": value}}}


def acting(**action: str) -> dict[str, Any]:
    actions = {"request": [{"name": "X", "action": action}], "response": list[Any]()}
    return {**CHANGING, "spec": {**CHANGING["spec"], "httpHeaders": {"actions": actions}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Deployment", "metadata": {"name": "proxy"}}, "a Deployment cannot be changed"),
        ({**INGRESS, "spec": {**INGRESS["spec"], "ingressClassName": "other"}}, "no IngressClass is called 'other'"),
        ({**SLICE, "metadata": {"name": "x"}}, "kubernetes.io/service-name is missing"),
        ({**SLICE, "addressType": "FQDN"}, "expected IPv4"),
        (annotated("x-forwarded-prefix", "/7"), "alone does nothing"),
        (annotated("canary", "true"), "does not honour"),
        (annotated("backend-protocol", "FCGI"), "does not honour nginx.ingress.kubernetes.io/backend-protocol: FCGI"),
        (acting(type="Set"), "'value' is missing"),
        (acting(type="Delete"), "expected Set, got 'Delete'"),
    ],
)
def test_what_is_none_of_them_or_would_do_nothing_is_refused(change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wanted("okd-routes-10" if change["kind"] == "Route" else "baseline", change)


@pytest.mark.parametrize("rate", ["0", "0.0", "x", "-1", ""])
def test_a_sync_rate_must_be_one(rate: str) -> None:
    args = context_of("baseline").container.args
    with pytest.raises(UsageError, match="expected a rate per second"):
        ingress_nginx.realise(context_of("baseline", args=(*args, f"--sync-rate-limit={rate}")))


@pytest.mark.parametrize(("key", "shown"), [("rsa-2048", "RSA 2048"), ("ecdsa-256", "ECDSA 256")])
def test_a_client_that_trusts_the_authority_believes_the_certificate(key: str, shown: str, tmp_path: Path) -> None:
    made = issue(CertificateRequest(("*.apps.lab.test", "other.lab.test"), key))
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    for host, good in (("a.apps.lab.test", True), ("other.lab.test", True), ("else.lab.test", False)):
        ends = socket.socketpair()
        thread = threading.Thread(target=lambda end=ends[0]: _accept(server, end), daemon=True)
        thread.start()
        try:
            with client.wrap_socket(ends[1], server_hostname=host) as connection:
                der = connection.getpeercert(binary_form=True)
                assert (
                    good
                    and der is not None
                    and describe_certificate(der) == {"key": shown, "subject": "*.apps.lab.test"}
                )
        except ssl.SSLCertVerificationError:
            assert not good
        thread.join(5)
    assert subject(made["tls.crt"]) == "*.apps.lab.test"


def _accept(context: ssl.SSLContext, end: socket.socket) -> None:
    try:
        with context.wrap_socket(end, server_side=True) as connection:
            connection.recv(1)
    except OSError:
        end.close()


def test_the_same_request_has_the_same_certificate_and_one_that_cannot_be_met_says_so() -> None:
    first, second = CertificateRequest(("a",), "ecdsa-256"), CertificateRequest(("b",), "ecdsa-256")
    assert issue(first) is issue(first)
    assert issue(first)["tls.key"] != issue(second)["tls.key"] and issue(first)["ca.crt"] == issue(second)["ca.crt"]
    authority = x509.load_pem_x509_certificate(issue(first)["ca.crt"].encode())
    assert authority.subject.rfc4514_string() == "CN=ingress tuning lab"
    assert read_request("Secret/a", {}) is None
    assert read_request("Secret/a", {certificates.NAMES: "*.a, b"}) == CertificateRequest(("*.a", "b"), "rsa-2048")
    for asked, said in (
        ({"lab/certificate": " , "}, "lab/certificate: is empty"),
        ({"lab/certificate": "a", "lab/key": "rsa-512"}, "lab/key: expected rsa-2048.*got 'rsa-512'"),
        ({"lab/certificate": "a", "lab/key": "ed25519"}, "lab/key: .*got 'ed25519'"),
    ):
        with pytest.raises(UsageError, match=f"Secret/a: metadata.annotations: {said}"):
            read_request("Secret/a", asked)
