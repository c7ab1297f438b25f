"""Rendered manifests → how many workers or threads their proxy is asked to have.

Refuses to guess: a proxy that is not told has one for each CPU that it may use, and manifests do not say how many these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.model.variants.labels import ROLE_LABEL

KEY, VARIABLE = "worker-processes", "ROUTER_THREADS"
"""Of ingress-nginx's ConfigMap, and of the environment of OKD's router."""

Objects = Sequence[Mapping[str, Any]]


def asked(objects: Objects) -> int | None:
    """Of all the proxy's pods together; None where it is left to the proxy."""
    each = next((int(text) for text in _told(objects) if text.isdigit() and int(text)), None)
    return each and each * (sum(_replicas(obj) for obj in objects) or 1)


def _told(objects: Objects) -> Iterator[str]:
    for obj in objects:
        if obj.get("kind") == "ConfigMap":
            yield (obj.get("data") or {}).get(KEY, "")
        for container in _containers(obj):
            yield from (str(item.get("value")) for item in container.get("env") or [] if item["name"] == VARIABLE)


def _containers(obj: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return obj["spec"]["template"]["spec"]["containers"] if obj.get("kind") == "Deployment" else ()


def _replicas(obj: Mapping[str, Any]) -> int:
    own = obj.get("kind") == "Deployment" and obj["metadata"].get("labels", {}).get(ROLE_LABEL) == "proxy"
    return obj["spec"].get("replicas", 1) if own else 0
