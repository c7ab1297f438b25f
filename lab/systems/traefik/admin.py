"""What a running Traefik tells of itself by its API and its metrics, which listen on its pod's own loopback alone; and the check kind `traefik`.

    GET /api/rawdata    {"services": {"backend-8080@file": {"loadBalancer": {…}}}, "middlewares": {"lab-3f17295a633b@file": …}, …}
    GET /metrics        go_sched_gomaxprocs_threads 1

What the command line says it tells nobody: that is read off its process, by check kind `argument`. It counts requests only where metrics
have labels, which cost.

    name: service.loadBalancer.serversTransport      /api/rawdata, of every service (router) of its provider
    name: entrypoint.http2.maxConcurrentStreams      /api/entrypoints, of those that the load comes to
    name: overview.features.accessLog                /api/overview
    name: metrics.go_gc_gogc_percent                 /metrics
    name: version                                    /api/version
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lab.base.paths import at
from lab.model.measurable import System
from lab.model.variants.variants import Check
from lab.systems.reading import ABSENT, Reading, UnreadableError, asked, compared, given, joined, shown
from lab.systems.system import Process, ReadbackKind

PORT = 8080
RAW, ENTRY_POINTS, OVERVIEW, VERSION, METRICS = (
    "/api/rawdata", "/api/entrypoints", "/api/overview", "/api/version", "/metrics",
)  # fmt: skip
WORKERS = "go_sched_gomaxprocs_threads"
MARK = "lab-"
"""Begins the name of a middleware that nobody uses, whose rest is the version of the file that it lies in."""
_PROVIDER = "@file"
_INTERNAL = "@internal"
"""Ends the names of what it has by itself: its API, its ping."""
_OWN = ("traefik", "ping")
"""Entry points that the load does not come to."""


def version(text: str) -> str:
    """`3.7.15`."""
    return json.loads(text)["Version"]


def taken(raw: str) -> set[str]:
    """Versions of the files that it serves, from RAW."""
    names = json.loads(raw).get("middlewares", {})
    return {name.removeprefix(MARK).removesuffix(_PROVIDER) for name in names if name.startswith(MARK)}


def parts(raw: str) -> dict[str, list[dict[str, Any]]]:
    """`router` and `service` → each of its provider's, from RAW."""
    found = json.loads(raw)
    return {
        part: [item for name, item in found.get(f"{part}s", {}).items() if not name.endswith(_INTERNAL)]
        for part in ("router", "service")
    }


def entry_points(text: str) -> list[dict[str, Any]]:
    """Those that the load comes to."""
    return [item for item in json.loads(text) if item["name"] not in _OWN]


def metrics(text: str) -> dict[str, str]:
    """Name → value of those without labels, integers without a point."""
    found = re.findall(r"^([a-z_]+) (\S+)$", text, re.MULTILINE)
    return {name: f"{float(value):g}" for name, value in found}


def workers(text: str) -> int | None:
    """How many threads run Go code at once, from METRICS."""
    found = metrics(text).get(WORKERS)
    return None if found is None else int(float(found))


def gauges(process: Process) -> Mapping[str, float]:
    """Return how many threads run Go code at once."""
    found = workers(process.ask(PORT, METRICS))
    return {} if found is None else {"workers": float(found)}


def _read(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")

    def answer(page: str) -> str:
        return asked(system, check, PORT, page)

    match part:
        case "version":
            return compared(check, version(answer(VERSION)))
        case "metrics":
            return compared(check, metrics(answer(METRICS)).get(path, ABSENT))
        case "overview":
            found: list[Any] = [json.loads(answer(OVERVIEW))]
        case "entrypoint":
            found = list(entry_points(answer(ENTRY_POINTS)))
        case _:
            there = parts(answer(RAW))
            if not there.get(part):
                raise UnreadableError(f"it has no {part!r} of its provider, only {', '.join(there)}")
            found = list(there[part])
    return compared(check, joined([shown(at(tree, path)) for tree in found]))


READBACKS = {"traefik": ReadbackKind(read=_read)}
