"""What a running Caddy tells by its admin interface: the configuration that it serves, and its metrics.

/config/    {"apps": {"http": {"servers": {"port-80": …}}}}
/metrics    go_sched_gomaxprocs_threads 1                    name, value
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PORT, CONFIG, METRICS = 2019, "/config/", "/metrics"
HEALTH = "health"
"""The server that its probes come to."""
WORKERS = "go_sched_gomaxprocs_threads"
REQUESTS = "caddy_http_requests_total"
"""Counted only where metrics are on."""

_SAMPLE = re.compile(r"^(\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)


def metrics(text: str) -> Mapping[str, float]:
    """Name → value, the sum over its labels. ValueError for what is no number."""
    found: dict[str, float] = {}
    for name, labels, value in _SAMPLE.findall(text):
        if f'server="{HEALTH}"' not in labels:
            found[name] = found.get(name, 0.0) + float(value)
    return found


def counted(text: str) -> Mapping[str, int]:
    """Requests from `/metrics`: a handler counts what passes it, so the largest of one handler is what came; empty where none is counted."""
    by_handler: dict[str, float] = {}
    for name, labels, value in _SAMPLE.findall(text):
        if name == REQUESTS and f'server="{HEALTH}"' not in labels:
            handler = re.search(r'handler="([^"]*)"', labels)
            key = handler[1] if handler else ""
            by_handler[key] = by_handler.get(key, 0.0) + float(value)
    return {"requests": int(max(by_handler.values()))} if by_handler else {}


def parts(config: Any) -> Mapping[str, Sequence[Any]]:
    """Part → what serves the load of that part, in the words of a ConfigMap's keys (`lab.targets.local.caddy_conf.PARTS`)."""
    http = (config.get("apps") or {}).get("http") or {}
    servers = [server for name, server in (http.get("servers") or {}).items() if name != HEALTH]
    proxies = [handler for server in servers for handler in _proxies(server.get("routes") or [])]
    transports = [proxy.get("transport") or {} for proxy in proxies]
    return {"config": [config], "http": [http], "server": servers, "reverse_proxy": proxies, "transport": transports}


def _proxies(routes: Sequence[Any]) -> Iterator[Any]:
    for route in routes:
        for handler in route.get("handle") or []:
            if handler.get("handler") == "reverse_proxy":
                yield handler
            yield from _proxies(handler.get("routes") or [])
