"""What has a controller load its configuration anew, though nothing that it serves changes: an Ingress of a host that nobody asks for.

Only of ingress-nginx, whose nginx then makes new workers; the others are told of changes, or reload by themselves. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.targets.cluster.objects import flat, pod_spec, role

CONTROLLER = "ingress-nginx/controller"
HOST = "renewal.lab.test"
PREFIX = "nginx.ingress.kubernetes.io/x-forwarded-prefix"


def renews(manifests: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the proxy is one that does."""
    proxies = [obj for obj in flat(manifests) if role(obj) == "proxy"]
    return bool(proxies) and all(CONTROLLER in pod_spec(obj)["containers"][0]["image"] for obj in proxies)


def renewal(manifests: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    """The `number`-th, which differs from the one before: what the others' requests cost stays as it is."""
    first = next(obj for obj in manifests if obj["kind"] == "Ingress")
    rules = [{**rule, "host": HOST} for rule in first["spec"]["rules"][:1]]
    spec = {**{key: value for key, value in first["spec"].items() if key != "tls"}, "rules": rules}
    known = {"name": "renewal", "namespace": first["metadata"]["namespace"], "annotations": {PREFIX: f"/{number}"}}
    return {"apiVersion": first["apiVersion"], "kind": "Ingress", "metadata": known, "spec": spec}
