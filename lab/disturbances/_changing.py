"""Objects that change while requests come: a Service of its own, and the Route, Ingress or HTTPRoute that leads to it. Pure.

Change number k shows in the answers of the fixture `answers`: endpoints move to port FIRST_PORT + k of the backend, a
configuration has the proxy put the prefix `/k` in. Refuses a variant whose proxy would need TLS of the backend.
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
OF_COPIES = "apps.lab.test"
MOST = 999
"""Changes of endpoints: the backend has that many ports for them."""

KINDS = ("Route", "Ingress", "HTTPRoute")
"""Of routes that a proxy may read."""

_NAME = "changing"
_NGINX = "nginx.ingress.kubernetes.io"
_PREFIX = "X-Forwarded-Prefix"

Object = dict[str, Any]


def template(manifests: Manifests) -> Mapping[str, Any]:
    """The variant's own first Route, Ingress or HTTPRoute, in whose image the changing one is made. NotMeasurableError."""
    found = next((obj for obj in manifests if obj["kind"] in KINDS), None)
    if found is None:
        fault = f"the variant's proxy reads no {', '.join(KINDS)}"
        raise NotMeasurableError("routes", "disturbance", fault, "leave it out")
    termination = found["spec"].get("tls", {}) if found["kind"] == "Route" else {}
    if termination.get("termination") in ("passthrough", "reencrypt"):
        fault = f"its routes are {termination['termination']}, and what answers the changes speaks no TLS"
        raise NotMeasurableError("TLS to the backend", "disturbance", fault, "leave it out, or take its edge variant")
    return found


def service(manifests: Manifests) -> Object:
    """Without a selector: its endpoints are what we say."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(manifests),
        "spec": {"ports": [{"name": "http", "port": PORT, "targetPort": PORT}]},
    }


def endpoints(manifests: Manifests, address: str, number: int) -> Object:
    """All there are: one, at the port of this change.

    Its host name changes as well: ingress-nginx does not look at a slice of which only the ports are others
    (internal/ingress/controller/store: it compares the endpoints alone) [seen on kind].
    """
    metadata = _metadata(manifests)
    metadata["labels"] = {**metadata["labels"], "kubernetes.io/service-name": _NAME}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "hostname": f"change-{number}", "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": FIRST_PORT + number, "protocol": "TCP"}],
    }


def route(manifests: Manifests, number: int) -> Object:
    """The Route, Ingress or HTTPRoute of HOST with the prefix of this change; with none for 0."""
    found = template(manifests)
    made = {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": _metadata(manifests)}
    spec = copy.deepcopy(dict(found["spec"]))
    if found["kind"] == "Ingress":
        # The controller sets this header where a path is rewritten only: to itself, then.
        changed = {f"{_NGINX}/rewrite-target": "$uri", f"{_NGINX}/x-forwarded-prefix": f"/{number}"}
        made["metadata"]["annotations"] = changed if number else {}
        backend = {"service": {"name": _NAME, "port": {"name": "http"}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        return made | {"spec": {**spec, "rules": [{"host": HOST, "http": {"paths": paths}}]}}
    if found["kind"] == "HTTPRoute":
        rule: Object = {"backendRefs": [{"name": _NAME, "port": PORT}]}
        if number:
            headers = {"set": [{"name": _PREFIX, "value": f"/{number}"}]}
            rule["filters"] = [{"type": "RequestHeaderModifier", "requestHeaderModifier": headers}]
        return made | {"spec": {**spec, "hostnames": [HOST], "rules": [rule]}}
    spec |= {"host": HOST, "to": {"kind": "Service", "name": _NAME, "weight": 100}, "port": {"targetPort": "http"}}
    if number:
        action = {"name": _PREFIX, "action": {"type": "Set", "set": {"value": f"/{number}"}}}
        spec["httpHeaders"] = {"actions": {"request": [action]}}
    return made | {"spec": spec}


def copies(manifests: Manifests, count: int) -> list[Object]:
    """So many more like the variant's own first Route, Ingress or HTTPRoute: hosts of their own, which lead where that leads."""
    found = template(manifests)
    names = (f"more-{number:04}" for number in range(1, count + 1))
    return [copied(found, name, host_of(name)) for name in names]


def host_of(name: str) -> str:
    """Of one of `copies` with that name."""
    return f"{name}.{OF_COPIES}"


def copied(found: Mapping[str, Any], name: str, host: str) -> Object:
    """A Route, Ingress or HTTPRoute under another name and host; of an Ingress the first rule alone."""
    new = copy.deepcopy(dict(found))
    new["metadata"]["name"], spec = name, new["spec"]
    match new["kind"]:
        case "Ingress":
            spec["rules"] = [{**spec["rules"][0], "host": host}]
        case "HTTPRoute":
            spec["hostnames"] = [host]
        case _:
            spec["host"] = host
    return new


def _metadata(manifests: Manifests) -> Object:
    """Its labels are its template's: by them the router finds its Routes, and the lab what is its own."""
    found = template(manifests)["metadata"]
    return {"name": _NAME, "namespace": found["namespace"], "labels": dict(found.get("labels", {}))}
