"""Rendered manifests → how many workers or threads their proxy is asked to have.

Refuses to guess: a proxy that is not told has as many as its own rule makes of the CPUs that it finds, and manifests do not say
how many these are. Under a CPU limit each has its own way, too:

ingress-nginx   `worker-processes: auto` is the limit, rounded up, however many CPUs there are; without one the CPUs it may use (`automatic`)
nginx           `worker_processes auto` is the machine's CPUs that are online, limit or not, with glibc; with musl those it may use
HAProxy         without `nbthread` a thread for each CPU that it may use, limit or not; OKD's operator tells the router 4
Envoy           without `--concurrency` a worker for each CPU that it may use, and no more than its quota, rounded down, but one
Go              without `GOMAXPROCS` (Traefik) the CPUs that it may use, and no more than its quota, rounded up, but two at least
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

from lab.base.quantities import quantity
from lab.model.variants.labels import ROLE_LABEL

KEY, VARIABLES, OPTION = "worker-processes", ("ROUTER_THREADS", "GOMAXPROCS"), "--concurrency"
"""Of ingress-nginx's ConfigMap, of the environment of OKD's router and of programs in Go, and of Envoy's command."""

GAUGE = "proxy/workers"
"""Of a sample: how many really ran, counted."""

CONTROLLER = "/nginx-ingress-controller"
"""First argument of ingress-nginx's container."""

Objects = Sequence[Mapping[str, Any]]


def automatic(limit: str | None, cpus: int | None) -> int | None:
    """Workers of ingress-nginx 1.15.1 where its ConfigMap says `auto`, or nothing: quota / period, rounded up, and without a quota the
    `cpus` that it may use (NumCPU, pkg/util/runtime/cpu_linux.go).
    """
    cores = quantity(limit) if limit is not None else 0
    return ceil(cores) if cores > 0 else cpus


def asked(objects: Objects) -> int | None:
    """Of all the proxy's pods together; None where it is left to the proxy."""
    told = next((int(text) for text in _told(objects) if text.isdigit() and int(text)), None)
    each = told or next((automatic(limit, None) for limit in _limits(objects)), None)
    return each and each * (sum(_replicas(obj) for obj in objects) or 1)


def _told(objects: Objects) -> Iterator[str]:
    for obj in objects:
        if obj.get("kind") == "ConfigMap":
            yield (obj.get("data") or {}).get(KEY, "")
        for container in _containers(obj):
            yield from (str(item.get("value")) for item in container.get("env") or [] if item["name"] in VARIABLES)
            yield from (str(value) for name, value in pairwise(container.get("args") or []) if name == OPTION)


def _limits(objects: Objects) -> Iterator[str | None]:
    """The CPU limit of each container that is ingress-nginx's controller."""
    for container in (item for obj in objects for item in _containers(obj)):
        if (container.get("args") or [""])[0] == CONTROLLER:
            limit = ((container.get("resources") or {}).get("limits") or {}).get("cpu")
            yield None if limit is None else str(limit)


def _containers(obj: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return obj["spec"]["template"]["spec"]["containers"] if obj.get("kind") == "Deployment" else ()


def _replicas(obj: Mapping[str, Any]) -> int:
    own = obj.get("kind") == "Deployment" and obj["metadata"].get("labels", {}).get(ROLE_LABEL) == "proxy"
    return obj["spec"].get("replicas", 1) if own else 0
