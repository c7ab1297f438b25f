"""Rendered manifests → how many workers or threads their proxy has: as many as it is asked for, or what its own rule makes of them.

The rules (`_RULES`), each under a CPU limit of `limit` on `cpus` that it may use; read back from the real programs:

ingress-nginx   `worker-processes: auto` is the limit, rounded up, however many CPUs there are (`automatic`)
nginx           `worker_processes auto` is the CPUs that are online, limit or not, with glibc; with musl those it may use
HAProxy         without `nbthread` a thread for each CPU that it may use, limit or not; OKD's operator tells the router 4
Envoy           without `--concurrency` the CPUs that it may use, and no more than its limit, rounded down, but one (1.40.0 and what Envoy
                Gateway starts, with `--cpuset-threads` or without); 1.36 looks at no limit
Traefik         (Go 1.25) without `GOMAXPROCS` the CPUs that it may use, and no more than its limit, rounded up, but two
Caddy           (automaxprocs) without `GOMAXPROCS` its limit, rounded down, but one, however many CPUs there are
httpd           threads as load comes and goes, whatever the CPUs

haproxytech's controller takes no more threads than automaxprocs would give it, whatever its `nbthread` (`capped`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any

from lab.base.quantities import quantity
from lab.model.variants.labels import ROLE_LABEL

KEYS = ("worker-processes", "global.nbthread", "nbthread")
"""Of the ConfigMaps of ingress-nginx and F5's controller, HAProxy, haproxytech's controller."""
VARIABLES, OPTION = ("ROUTER_THREADS", "GOMAXPROCS"), "--concurrency"
"""Of the environment of OKD's router and of programs in Go, and of Envoy's command."""
FIELDS = {"EnvoyProxy": "concurrency", "NginxProxy": "workerProcesses"}
"""Kind → of its spec."""
_DIRECTIVE = re.compile(r"^\s*worker_processes\s+(\d+)\s*;", re.MULTILINE)

GAUGE = "proxy/workers"
"""Of a sample: how many really ran, counted."""

Objects = Sequence[Mapping[str, Any]]
Rule = Callable[[Fraction | None, int | None], int | None]
"""(CPU limit, CPUs that it may use; None: none, not known) → workers or threads; None: not known."""


def automatic(limit: str | None, cpus: int | None) -> int | None:
    """Workers of ingress-nginx 1.15.1 where its ConfigMap says `auto`, or nothing: quota / period, rounded up, and without a quota the
    `cpus` that it may use (NumCPU, pkg/util/runtime/cpu_linux.go).
    """
    return _up(_cores(limit), cpus)


def capped(threads: int, limit: str | None) -> int:
    """Of haproxytech's controller, asked for so many: at most GOMAXPROCS, which automaxprocs sets (pkg/annotations/global/nbthread.go)."""
    return min(threads, _down(_cores(limit), None) or threads)


def asked(objects: Objects, cpus: int | None = None) -> int | None:
    """Of all the proxy's pods together, each on so many `cpus` (None: not known); None where it is left to a proxy of which it cannot be told."""
    told = next((int(text) for text in _told(objects) if text.isdigit() and int(text)), None)
    each = next(_each(objects, told, cpus), told)
    return each and each * (sum(_replicas(obj) for obj in objects) or 1)


def _up(limit: Fraction | None, cpus: int | None) -> int | None:
    return ceil(limit) if limit else cpus


def _down(limit: Fraction | None, cpus: int | None) -> int | None:
    return max(1, floor(limit)) if limit else cpus


def _no_limit(_limit: Fraction | None, cpus: int | None) -> int | None:
    return cpus


def _within_down(limit: Fraction | None, cpus: int | None) -> int | None:
    return cpus and min(cpus, max(1, floor(limit)) if limit else cpus)


def _within_up(limit: Fraction | None, cpus: int | None) -> int | None:
    return cpus and min(cpus, max(2, ceil(limit)) if limit else cpus)


_RULES: Mapping[str, Rule] = {
    "ingress-nginx/controller": _up,
    "nginx": _no_limit,
    "nginx-ingress": _no_limit,
    "haproxy": _no_limit,
    "kubernetes-ingress": _no_limit,
    "origin-haproxy-router": _no_limit,
    "envoyproxy/envoy": _within_down,
    "envoyproxy/envoy:v1.36": _no_limit,
    "envoyproxy/gateway": _within_down,
    "traefik": _within_up,
    "caddy": _down,
    "httpd": lambda _limit, _cpus: None,
}
"""Image, by the last parts of its repository or more, whatever registry it comes from; the longest that fits. Others are no proxies."""
_CAPS = "kubernetes-ingress"


def rule(image: str) -> tuple[str, Rule] | None:
    """The one for an image, with what it is known by; None where it runs no proxy that is known here."""
    fitting = [name for name in _RULES if re.search(rf"(?:^|/){re.escape(name)}(?=[:@.]|$)", image)]
    return (name, _RULES[name]) if (name := max(fitting, key=len, default="")) else None


def _each(objects: Objects, told: int | None, cpus: int | None) -> Iterator[int]:
    """What a proxy's own rule makes of `told` (None: it is told nothing), where that is anything."""
    for container in (item for obj in objects if _is_proxy(obj) for item in _containers(obj)):
        limit = ((container.get("resources") or {}).get("limits") or {}).get("cpu")
        if found := rule(str(container.get("image", ""))):
            name, makes = found
            mostly = makes(_cores(limit), cpus) if told is None else told
            count = capped(told, limit) if told is not None and name == _CAPS else mostly
            if count is not None:
                yield count


def _cores(limit: object) -> Fraction | None:
    """None for no limit."""
    return (quantity(str(limit)) or None) if limit is not None else None


def _told(objects: Objects) -> Iterator[str]:
    mounted = {
        (volume.get("configMap") or {}).get("name")
        for obj in objects
        if _is_proxy(obj)
        for volume in obj["spec"]["template"]["spec"].get("volumes") or []
    }
    for obj in objects:
        if obj.get("kind") == "ConfigMap":
            data: Mapping[str, str] = obj.get("data") or {}
            yield from (data[key] for key in KEYS if key in data)
            if obj.get("metadata", {}).get("name") in mounted:
                yield from (number for text in data.values() for number in _DIRECTIVE.findall(text))
        if field := FIELDS.get(str(obj.get("kind"))):
            yield str((obj.get("spec") or {}).get(field))
        for container in _containers(obj):
            yield from (str(item.get("value")) for item in container.get("env") or [] if item["name"] in VARIABLES)
            yield from (str(value) for name, value in pairwise(container.get("args") or []) if name == OPTION)


def _containers(obj: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return obj["spec"]["template"]["spec"]["containers"] if obj.get("kind") == "Deployment" else ()


def _is_proxy(obj: Mapping[str, Any]) -> bool:
    return obj.get("kind") == "Deployment" and obj["metadata"].get("labels", {}).get(ROLE_LABEL) == "proxy"


def _replicas(obj: Mapping[str, Any]) -> int:
    return obj["spec"].get("replicas", 1) if _is_proxy(obj) else 0
