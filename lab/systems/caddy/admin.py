"""What a running Caddy tells by its admin interface: the configuration that it serves, and its metrics; and the check kind `caddy`, which reads it.

/config/    {"apps": {"http": {"servers": {"port-80": …}}}}
/metrics    go_sched_gomaxprocs_threads 1                    name, value

    name: transport.keep_alive.max_idle_conns_per_host     /config/, of every transport (server, reverse_proxy, http, config) of the load
    name: metrics.go_sched_gomaxprocs_threads              /metrics

Refuses to judge by nothing: no such part, or no such metric, is unreadable; a path that no part has is `absent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.base.paths import at
from lab.model.measurable import System
from lab.model.variants.variants import Check
from lab.systems.reading import Reading, UnreadableError, asked, compared, given, joined, shown

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
    """Part → what serves the load of that part, in the words of a ConfigMap's keys (`lab.systems.caddy.config.PARTS`)."""
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


def workers(text: str) -> Mapping[str, float]:
    """How many threads run Go code at once, from `/metrics`, as the gauge `workers`; empty where it is not told."""
    found = metrics(text)
    return {"workers": found[WORKERS]} if WORKERS in found else {}


def read(system: System, check: Check) -> Reading:
    """Read a check of kind `caddy` back."""
    part, _, path = given(check, "name").partition(".")
    if part == "metrics":
        found = metrics(asked(system, check, PORT, METRICS))
        if path not in found:
            raise UnreadableError(f"/metrics has no {path!r}")
        return compared(check, f"{found[path]:g}")
    there = parts(json.loads(asked(system, check, PORT, CONFIG)))
    if not there.get(part):
        raise UnreadableError(f"/config/ has no {part!r} that serves the load, only {', '.join(there)}")
    return compared(check, joined([shown(at(tree, path)) for tree in there[part]]))
