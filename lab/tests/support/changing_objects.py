"""Objects of which tests make the first, or change them, while a system is up: a Service without a selector, its endpoints, what leads there."""

from __future__ import annotations

from typing import Any

META: dict[str, Any] = {
    "name": "changing",
    "namespace": "ingress-lab",
    "labels": {"app.kubernetes.io/part-of": "ingress-lab"},
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": META,
    "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
}
ROUTED = "changing.apps.lab.test"
"""The host of `route`."""


def endpoint_slice(port: int, *addresses: tuple[str, bool | None]) -> dict[str, Any]:
    """Give the Service these endpoints: addresses, each ready or not, or without a word of that."""
    endpoints = [
        {"addresses": [address], **({} if ready is None else {"conditions": {"ready": ready}})}
        for address, ready in addresses
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**META, "labels": {"kubernetes.io/service-name": "changing"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def route(prefix: str = "") -> dict[str, Any]:
    """Lead to the Service by a Route, with a header that is set to `prefix`, where that is said."""
    spec: dict[str, Any] = {
        "host": ROUTED,
        "to": {"kind": "Service", "name": "changing", "weight": 100},
        "port": {"targetPort": "http"},
        "wildcardPolicy": "None",
    }
    if prefix:
        header = {"name": "X-Forwarded-Prefix", "action": {"type": "Set", "set": {"value": prefix}}}
        spec["httpHeaders"] = {"actions": {"request": [header], "response": []}}
    return {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": META, "spec": spec}


def ingress(host: str, prefix: str = "", service: str = "changing") -> dict[str, Any]:
    """Lead to a Service by an Ingress; with `prefix`, by a rewrite that sets it as a header."""
    rewrite = {
        "nginx.ingress.kubernetes.io/rewrite-target": "$uri",
        "nginx.ingress.kubernetes.io/x-forwarded-prefix": prefix,
    }
    backend = {"service": {"name": service, "port": {"name": "http"}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {**META, "annotations": rewrite if prefix else {}},
        "spec": {
            "ingressClassName": "ingress-lab",
            "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
        },
    }
