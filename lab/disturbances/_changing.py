"""Objects that change while requests come: a separate Service, and the Route, Ingress or HTTPRoute to it.

All functions are pure. The number of the latest change shows in the answers of the fixture `answers`. Change k moves
the endpoints to port FIRST_PORT + k of the backend, or makes the proxy send the prefix `/k`.
A variant whose proxy would need TLS to the backend is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from lab.base.errors import NotMeasurableError
from lab.model.disturbance import Manifests
from lab.model.events import FIRST_PORT

HOST = "changing.lab.test"
PORT = 8080
COPIES_DOMAIN = "apps.lab.test"
MAX_ENDPOINT_CHANGES = 999
"""The maximum number of endpoint changes in a load: the backend has that many ports for endpoints."""

KINDS = ("Route", "Ingress", "HTTPRoute")
"""The kinds of routes that a proxy may read."""

_NAME = "changing"
_NGINX = "nginx.ingress.kubernetes.io"
_PREFIX = "X-Forwarded-Prefix"

Object = dict[str, Any]


def find_template(manifests: Manifests) -> Mapping[str, Any]:
    """Return the variant's first Route, Ingress or HTTPRoute, as the template of the route that changes.

    Raises:
        NotMeasurableError: The variant has no such object, or a Route that uses TLS to the backend.

    """
    original = next((obj for obj in manifests if obj["kind"] in KINDS), None)
    if original is None:
        fault = f"the variant's proxy reads no {', '.join(KINDS)}"
        raise NotMeasurableError("routes", "disturbance", fault, "leave it out")
    termination = original["spec"].get("tls", {}) if original["kind"] == "Route" else {}
    if termination.get("termination") in ("passthrough", "reencrypt"):
        fault = f"its routes are {termination['termination']}, and what answers the changes speaks no TLS"
        raise NotMeasurableError("TLS to the backend", "disturbance", fault, "leave it out, or take its edge variant")
    return original


def build_service(manifests: Manifests) -> Object:
    """Return the Service of the changing route, without a selector: `build_endpoints` alone sets its endpoints."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _build_metadata(manifests),
        "spec": {"ports": [{"name": "http", "port": PORT, "targetPort": PORT}]},
    }


def build_endpoints(manifests: Manifests, address: str, number: int) -> Object:
    """Return the EndpointSlice after a change: one endpoint, at the port of this change.

    The endpoint's host name changes as well, because ingress-nginx ignores a change of a slice's ports alone
    (internal/ingress/controller/store compares only the endpoints) [seen on kind].

    Args:
        manifests: The manifests of the variant.
        address: The IP address of the backend's pod.
        number: The number of the change; 0 = the state before the first change.

    """
    metadata = _build_metadata(manifests)
    metadata["labels"] = {**metadata["labels"], "kubernetes.io/service-name": _NAME}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "hostname": f"change-{number}", "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": FIRST_PORT + number, "protocol": "TCP"}],
    }


def build_route(manifests: Manifests, number: int) -> Object:
    """Return the Route, Ingress or HTTPRoute of the host HOST as change `number` makes it.

    With it the proxy adds a request header with the prefix `/number`, which shows in the answers. Change 0, the state
    before the first change, has no prefix.
    """
    original = find_template(manifests)
    obj = {"apiVersion": original["apiVersion"], "kind": original["kind"], "metadata": _build_metadata(manifests)}
    spec = copy.deepcopy(dict(original["spec"]))
    if original["kind"] == "Ingress":
        # The controller sets this header only where it rewrites a path, so the path is rewritten to itself.
        changed = {f"{_NGINX}/rewrite-target": "$uri", f"{_NGINX}/x-forwarded-prefix": f"/{number}"}
        obj["metadata"]["annotations"] = changed if number else {}
        backend = {"service": {"name": _NAME, "port": {"name": "http"}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        return obj | {"spec": {**spec, "rules": [{"host": HOST, "http": {"paths": paths}}]}}
    if original["kind"] == "HTTPRoute":
        rule: Object = {"backendRefs": [{"name": _NAME, "port": PORT}]}
        if number:
            headers = {"set": [{"name": _PREFIX, "value": f"/{number}"}]}
            rule["filters"] = [{"type": "RequestHeaderModifier", "requestHeaderModifier": headers}]
        return obj | {"spec": {**spec, "hostnames": [HOST], "rules": [rule]}}
    spec |= {"host": HOST, "to": {"kind": "Service", "name": _NAME, "weight": 100}, "port": {"targetPort": "http"}}
    if number:
        action = {"name": _PREFIX, "action": {"type": "Set", "set": {"value": f"/{number}"}}}
        spec["httpHeaders"] = {"actions": {"request": [action]}}
    return obj | {"spec": spec}


def copy_routes(manifests: Manifests, count: int) -> list[Object]:
    """Return copies of the variant's first Route, Ingress or HTTPRoute, with distinct hosts and the same backend."""
    original = find_template(manifests)
    names = (f"more-{number:04}" for number in range(1, count + 1))
    return [copy_route(original, name, host_of_copy(name)) for name in names]


def host_of_copy(name: str) -> str:
    """Return the host of the copied route with this name."""
    return f"{name}.{COPIES_DOMAIN}"


def copy_route(original: Mapping[str, Any], name: str, host: str) -> Object:
    """Return a copy of a Route, HTTPRoute or Ingress (first rule only) with another name and host."""
    new = copy.deepcopy(dict(original))
    new["metadata"]["name"], spec = name, new["spec"]
    match new["kind"]:
        case "Ingress":
            spec["rules"] = [{**spec["rules"][0], "host": host}]
        case "HTTPRoute":
            spec["hostnames"] = [host]
        case _:
            spec["host"] = host
    return new


def _build_metadata(manifests: Manifests) -> Object:
    """Return the metadata of a changing object (the Service, its EndpointSlice or the route).

    The labels are those of the template: the router finds its Routes by these labels, and the lab its objects.
    """
    metadata = find_template(manifests)["metadata"]
    return {"name": _NAME, "namespace": metadata["namespace"], "labels": dict(metadata.get("labels", {}))}
