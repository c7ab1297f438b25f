"""What changes while a system is up, without starting one: which objects are taken, and what configurations they become."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lab.base.errors import UsageError
from lab.model.variants.variants import load_variant
from lab.systems.haproxy_router import system as haproxy_router
from lab.systems.haproxy_router.control import CONF
from lab.systems.ingress_nginx import system as ingress_nginx
from lab.systems.ingress_nginx.configmap import settings
from lab.systems.ingress_nginx.system import render
from lab.systems.manifests import objects
from lab.systems.manifests.objects import Member, Objects, applied
from lab.tests.support.changing_objects import META, SERVICE, endpoint_slice, ingress, route
from lab.tests.support.contexts import context_of

SLICE = endpoint_slice(9007, ("10.64.0.9", True), ("10.64.0.8", False), ("10.64.0.7", None))
ROUTE = route("/it's 7")
INGRESS = ingress("changing.lab.test", "/7")


def wanted(variant: str, *changes: Mapping[str, Any]) -> Objects:
    found = objects.read(load_variant(variant).manifests)
    for change in changes:
        found = applied(found, change)
    return found


def nginx(found: Objects) -> str:
    return render(settings("ConfigMap", {}), context_of(found), (1, 22, 1))


def haproxy(found: Objects) -> Mapping[str, str]:
    return haproxy_router.realise(context_of(found)).files


def test_pods_and_a_services_slices_are_endpoints_while_they_are_ready() -> None:
    found = wanted("okd-routes-10", SERVICE, SLICE)
    members = (Member("10.64.0.9", 9007), Member("10.64.0.7", 9007))
    assert found.members("changing", "http", {}) == found.members("changing", 80, {}) == members
    assert found.members("changing", "https", {}) == found.members("nowhere", 80, {}) == ()
    (pod,) = found.role("backend")
    assert not found.services["changing"].selects(pod)
    found = wanted("baseline")
    (pod,) = found.role("backend")
    assert found.members("backend", "http", {pod.name: "10.64.0.3"}) == (Member("10.64.0.3", 8080, pod.name),)
    assert replace(found, ready=()).members("backend", "http", {}) == ()
    ready = replace(found, ready=(replace(pod, name="backend-1"),))
    assert ready.members("backend", "http", {"backend-1": "10.64.0.9"}) == (Member("10.64.0.9", 8080, "backend-1"),)


def test_a_route_becomes_a_backend_with_its_headers_and_servers() -> None:
    """One to nothing has a backend without servers."""
    files = haproxy(wanted("okd-routes-10", SERVICE, SLICE, ROUTE))
    backend = "backend be_http:ingress-lab:changing\n"
    section = files[f"{CONF}/haproxy.config"].split(backend)[1]
    assert "  http-request set-header 'X-Forwarded-Prefix' '/it'\\''s 7'\n" in section
    assert section.count("\n  server ept:changing:http:10.64.0.") == section.count(" check inter 5000ms") == 2
    line = r"^changing\.apps\.lab\.test\.?(:[0-9]+)?(/.*)?$ be_http:ingress-lab:changing"
    assert line in files[f"{CONF}/os_http_be.map"]
    empty = haproxy(wanted("okd-routes-10", ROUTE))[f"{CONF}/haproxy.config"]
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


def test_what_is_applied_again_is_changed() -> None:
    after = wanted("okd-routes-10", SERVICE, SLICE, ROUTE)
    again = applied(after, {**ROUTE, "spec": {**ROUTE["spec"], "host": "other.apps.lab.test"}})
    assert [route.host for route in again.host_routes if route.name == "changing"] == ["other.apps.lab.test"]
    assert len(again.host_routes) == len(after.host_routes)
    assert again.services == after.services and again.slices == after.slices


def annotated(name: str, value: str) -> dict[str, Any]:
    return {**INGRESS, "metadata": {**META, "annotations": {f"nginx.ingress.kubernetes.io/{name}": value}}}


def acting(**action: str) -> dict[str, Any]:
    actions = {"request": [{"name": "X", "action": action}], "response": list[Any]()}
    return {**ROUTE, "spec": {**ROUTE["spec"], "httpHeaders": {"actions": actions}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Deployment", "metadata": {"name": "proxy"}}, "a Deployment cannot be changed"),
        ({**INGRESS, "spec": {**INGRESS["spec"], "ingressClassName": "other"}}, "no IngressClass is called 'other'"),
        ({**SLICE, "metadata": {"name": "x"}}, "kubernetes.io/service-name is missing"),
        ({**SLICE, "addressType": "FQDN"}, "expected IPv4"),
        (annotated("x-forwarded-prefix", "/7"), "alone does nothing"),
        (annotated("canary", "true"), "does not honour"),
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
