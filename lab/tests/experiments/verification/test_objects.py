"""The user's Ingresses in a system's manifests: everything that is realised, and everything that is named instead."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from lab.experiments.verification.objects import (
    CATALOGUE_PORT,
    FIRST_PORT,
    OWN,
    UserIngresses,
    make_manifests,
    read_ingresses,
    realise_configmap,
)
from lab.model.variants.variants import objects_of
from lab.systems.manifests.routes import PREFIX

BACKEND = "10.64.0.3"


def ingress(
    name: str = "web",
    paths: str = "[{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]",
    **more: Any,
) -> str:
    annotations = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in more.pop("annotations", {}).items()}
    spec = {"rules": [{"host": "shop.example", "http": {"paths": yaml.safe_load(paths)}}], **more}
    metadata = {"name": name, "namespace": "shop", "annotations": annotations}
    return yaml.safe_dump({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec})


def read(*texts: str) -> UserIngresses:
    return read_ingresses([("mine.yaml", text) for text in texts])


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {obj["metadata"]["name"]: obj for obj in manifests if obj["kind"] == kind}


def test_every_service_is_a_port_of_the_recording_backend() -> None:
    paths = "[{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}, {path: /a, pathType: Exact, backend: {service: {name: api, port: {name: http}}}}]"
    user = read(ingress(paths=paths))
    assert user.services == {CATALOGUE_PORT: "lab", FIRST_PORT: "shop-web:80", FIRST_PORT + 1: "shop-api:http"}
    manifests, notes = make_manifests(objects_of("ingress-nginx"), user, True, BACKEND, {"use-gzip": "true"})
    services = of_kind(manifests, "Service")
    assert services["shop-web"]["spec"]["ports"] == [{"name": "p80", "port": 80, "targetPort": FIRST_PORT}]
    assert services["shop-api"]["spec"]["ports"][0]["name"] == "http"
    (container,) = of_kind(manifests, "Deployment")["backend"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-3:] == [str(CATALOGUE_PORT), str(FIRST_PORT), str(FIRST_PORT + 1)]
    assert "import asyncio" in of_kind(manifests, "ConfigMap")["backend"]["data"]["echo.py"]
    assert of_kind(manifests, "ConfigMap")["ingress-nginx-controller"]["data"]["use-gzip"] == "true"
    assert set(of_kind(manifests, "Ingress")) == {*OWN, "shop-web"}
    assert notes == []


def test_all_hosts_with_a_certificate_have_the_same_one() -> None:
    user = read(ingress(tls=[{"hosts": ["shop.example"], "secretName": "mine"}]))
    assert user.tls_hosts == ["tls.lab.test", "bench.lab.test", "shop.example"]
    assert user.paths[0].tls
    secrets = of_kind(make_manifests(objects_of("ingress-nginx"), user, True, BACKEND)[0], "Secret")
    assert secrets["shop-mine"]["data"] == secrets["verify-certificate"]["data"]
    assert b"BEGIN CERTIFICATE" in base64.b64decode(secrets["shop-mine"]["data"]["tls.crt"])
    under = read(ingress(tls=[{"hosts": ["*.example"], "secretName": "mine"}]))
    assert under.paths[0].tls


def test_gateway_api_gets_a_route_for_each_rule_and_a_listener_with_tls() -> None:
    paths = "[{path: /a, pathType: Exact, backend: {service: {name: web, port: {name: http}}}}, {path: /b, pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}]"
    manifests, notes = make_manifests(objects_of("envoy"), read(ingress(paths=paths)), False, BACKEND)
    assert not of_kind(manifests, "Ingress")
    routes = of_kind(manifests, "HTTPRoute")
    assert set(routes) == {*OWN, "shop-web"}
    rules = routes["shop-web"]["spec"]["rules"]
    assert [rule["matches"][0]["path"] for rule in rules] == [
        {"type": "Exact", "value": "/a"},
        {"type": "PathPrefix", "value": "/b"},
    ]
    assert rules[0]["backendRefs"] == [{"name": "shop-web", "port": FIRST_PORT}]
    listeners = of_kind(manifests, "Gateway")["proxy"]["spec"]["listeners"]
    assert [item["port"] for item in listeners] == [80, 443]
    assert {port["name"] for port in of_kind(manifests, "Service")["proxy"]["spec"]["ports"]} == {"http", "https"}
    assert notes == []


def test_what_a_system_without_a_controller_does_not_get_is_named() -> None:
    text = ingress(
        paths="[{path: '/a(/|$)(.*)', pathType: ImplementationSpecific, backend: {service: {name: web, port: {number: 80}}}}]",
        annotations={"rewrite_target": "/$2"},
        defaultBackend={"service": {"name": "other", "port": {"number": 80}}},
    )
    manifests, notes = make_manifests(objects_of("envoy"), read(text), False, BACKEND)
    assert "shop-web" not in of_kind(manifests, "HTTPRoute")
    assert notes == [
        "Ingress shop-web: rewrite-target: not in its routes; the migration table names counterparts",
        "Ingress shop-web: its default backend is left out",
        "Ingress shop-web: /a(/|$)(.*) is left out: a regular expression",
    ]


def test_a_policy_for_backends_is_for_every_service_that_is_served() -> None:
    left_out = ingress(
        "re",
        "[{path: '/a(.*)', pathType: ImplementationSpecific, backend: {service: {name: re, port: {number: 80}}}}]",
        annotations={"use_regex": "true"},
    )
    policy = {
        "apiVersion": "a/v1",
        "kind": "UpstreamSettingsPolicy",
        "metadata": {"name": "p"},
        "spec": {"targetRefs": [{"kind": "Service", "name": "backend"}]},
    }
    manifests, _ = make_manifests([*objects_of("nginx-ngf"), policy], read(left_out, ingress()), False, BACKEND)
    refs = of_kind(manifests, "UpstreamSettingsPolicy")["p"]["spec"]["targetRefs"]
    assert [ref["name"] for ref in refs] == ["backend", "shop-web"]


def test_a_canary_and_a_path_that_another_ingress_has_are_left_out_where_no_controller_merges_them() -> None:
    canary = ingress("canary", annotations={"canary": "true", "canary_by_header": "X"})
    manifests, notes = make_manifests(objects_of("nginx-f5"), read(canary, ingress(), ingress("twin")), False, BACKEND)
    assert set(of_kind(manifests, "Ingress")) == {*OWN, "shop-web"}
    assert notes[1:] == [
        "Ingress shop-canary: / is left out: a canary",
        "Ingress shop-twin: / is left out: another Ingress has it",
    ]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (ingress(annotations={"backend_protocol": "GRPC"}), "is left out: backend-protocol GRPC"),
        (ingress(paths="[]"), "is left out: it has no path"),
        (
            ingress(paths="[{path: /, pathType: Prefix, backend: {resource: {kind: Bucket, name: a}}}]"),
            "a backend is no port of a Service",
        ),
        (
            ingress(paths="[{path: a, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]"),
            "the API server refuses a of type Prefix",
        ),
        (
            ingress(
                rules=[
                    {
                        "host": "{{ host }}",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "a", "port": {"number": 80}}},
                                }
                            ]
                        },
                    }
                ]
            ),
            "the API server refuses the host {{ host }}",
        ),
        (
            ingress(paths="[{path: /a//b, pathType: Exact, backend: {service: {name: a, port: {number: 80}}}}]"),
            "the API server refuses /a//b of type Exact",
        ),
        (ingress(annotations={"limit_rps": "1"}), "limit-rps: removed: the requests of a verification would exceed it"),
        (ingress(annotations={"mirror_target": "http://a"}), "mirror-target: removed"),
        (
            ingress(annotations={"canary": "true", "canary_weight": "20"}),
            "canary-weight: which of its Services answers is random",
        ),
    ],
)
def test_what_no_system_can_realise_is_named(text: str, note: str) -> None:
    (only,) = read(text).notes
    assert only.startswith("mine.yaml: Ingress shop/web")
    assert note in only


def test_a_backend_with_tls_speaks_it_and_authentication_is_the_labs() -> None:
    annotations = {
        "backend_protocol": "HTTPS",
        "auth_url": "https://auth.example/x",
        "auth_type": "basic",
        "auth_secret": "users",
    }
    user = read(ingress(annotations=annotations))
    manifests, _ = make_manifests(objects_of("ingress-nginx"), user, True, BACKEND)
    (container,) = of_kind(manifests, "Deployment")["backend"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == f"{FIRST_PORT}s"
    assert "BEGIN CERTIFICATE" in of_kind(manifests, "ConfigMap")["backend"]["data"]["tls.crt"]
    given = of_kind(manifests, "Ingress")["shop-web"]["metadata"]["annotations"]
    assert given[f"{PREFIX}auth-url"] == f"http://{BACKEND}:{CATALOGUE_PORT}/lab-auth"
    secret = of_kind(manifests, "Secret")[given[f"{PREFIX}auth-secret"]]
    assert secret["stringData"] == {"auth": "lab:{SHA}OVP53fl1q1CX7kaNmVVcW0QRab8=\n"}


def test_old_forms_and_lists_of_ingresses_are_read() -> None:
    old = """
apiVersion: v1
kind: List
items:
- apiVersion: networking.k8s.io/v1beta1
  kind: Ingress
  metadata: {name: old}
  spec:
    rules: [{host: old.example, http: {paths: [{backend: {serviceName: web, servicePort: 80}}]}}]
- {kind: Service, metadata: {name: web}}
"""
    user = read(old, "not: [yaml", ingress(), ingress())
    assert len(user.paths) == 3
    assert [obj["metadata"]["name"] for obj in user.ingresses] == ["user-old", "shop-web", "shop-web-2"]
    assert (user.paths[0].path, user.paths[0].kind) == ("/", "ImplementationSpecific")
    assert user.services[FIRST_PORT] == "user-web:80"


def test_a_configmap_keeps_what_its_file_holds_and_names_the_rest() -> None:
    given = {
        "use-gzip": "true",
        "add-headers": "web/headers",
        "proxy-set-headers": "web/none",
        "use-proxy-protocol": "true",
    }
    data, extras, notes = realise_configmap(given, {("ConfigMap", "headers"): {"X-A": "1"}})
    assert data == {"use-gzip": "true", "add-headers": "ingress-lab/verify-add-headers"}
    assert [obj["data"] for obj in extras] == [{"X-A": "1"}]
    assert notes == [
        "use-proxy-protocol: removed: the client of a verification speaks HTTP without it",
        "proxy-set-headers: removed: the file does not have the ConfigMap web/none",
    ]
