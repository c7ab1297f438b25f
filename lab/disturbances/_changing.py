"""Kubernetes objects that the lab changes during a load: a separate Service, and the Route, Ingress or HTTPRoute to it.

All functions are pure. The changes are numbered from 1. Change k moves the endpoints to port FIRST_PORT + k of the backend,
or makes the proxy send the prefix `/k`. So an answer of the backend (with the fixture `answers`) shows the latest change
that the proxy has loaded. A variant whose proxy would need TLS to the backend is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from lab.base.errors import NotMeasurableError, refuse_if
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
    """Return the variant's first Route, Ingress or HTTPRoute, from which the disruption derives the route that it changes.

    Raises:
        NotMeasurableError: The variant has no such object, or its Route uses TLS to the backend.

    """
    original = next((obj for obj in manifests if obj["kind"] in KINDS), None)
    if original is None:
        fault = f"the variant's proxy reads no {', '.join(KINDS)}"
        raise NotMeasurableError("routes", "disturbance", fault, "leave it out")
    termination = original["spec"].get("tls", {}).get("termination") if original["kind"] == "Route" else None
    refuse_if(
        termination in ("passthrough", "reencrypt"),
        "disturbance",
        f"its routes are {termination}, and what answers the changes speaks no TLS",
        "leave it out, or take its edge variant",
        what="TLS to the backend",
    )
    return original


def build_service(manifests: Manifests) -> Object:
    """Return the manifest of the disruption's own Service, which is the backend of the route that the disruption changes.

    The Service has no selector. So it has exactly the endpoints that `build_endpoints` gives it.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _build_metadata(manifests),
        "spec": {"ports": [{"name": "http", "port": PORT, "targetPort": PORT}]},
    }


def build_endpoints(manifests: Manifests, address: str, number: int) -> Object:
    """Return the manifest of the EndpointSlice after change `number`: its one endpoint has another port after each change.

    The endpoint's host name changes as well. ingress-nginx compares only the endpoints of a slice, and would ignore a change
    of the port alone (internal/ingress/controller/store).

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
    """Return the manifest of the route that the disruption changes (a Route, Ingress or HTTPRoute), after change `number`.

    The route makes the proxy add the header `X-Forwarded-Prefix: /number` to requests for `HOST`. The backend's answers
    repeat the number, so that an answer shows which change the proxy has loaded. Number 0 is the state before the first
    change, in which the route adds no header.
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
    """Return the manifests of `count` copies of the variant's first Route, Ingress or HTTPRoute.

    Each copy has its own name and host, and leads to the same backend as the original.
    """
    original = find_template(manifests)
    names = (f"more-{number:04}" for number in range(1, count + 1))
    return [copy_route(original, name, host_of_copy(name)) for name in names]


def host_of_copy(name: str) -> str:
    """Return the host of the copied route with this name.

    >>> host_of_copy("more-0001")
    'more-0001.apps.lab.test'
    """
    return f"{name}.{COPIES_DOMAIN}"


def copy_route(original: Mapping[str, Any], name: str, host: str) -> Object:
    """Return a copy of the manifest of a Route, HTTPRoute or Ingress, with another name and host.

    The copy of an Ingress has only the Ingress's first rule.
    """
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
    """Return the metadata (name, namespace, labels) of the route that the disruption changes, its Service and its EndpointSlice.

    The labels are copied from the variant's own route. OKD's router selects its Routes by these labels, and the lab finds
    its own objects by them.
    """
    metadata = find_template(manifests)["metadata"]
    return {"name": _NAME, "namespace": metadata["namespace"], "labels": dict(metadata.get("labels", {}))}
