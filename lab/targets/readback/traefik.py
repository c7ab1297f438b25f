"""Check kind `traefik`: what Traefik's API and metrics show of what it runs.

    name: service.loadBalancer.serversTransport      /api/rawdata, of every service (router) of its provider
    name: entrypoint.http2.maxConcurrentStreams      /api/entrypoints, of those that the load comes to
    name: overview.features.accessLog                /api/overview
    name: metrics.go_gc_gogc_percent                 /metrics
    name: version                                    /api/version

Its command line, of which it tells nothing, is check kind `argument`.
"""

from __future__ import annotations

import json
from typing import Any

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.common import traefik
from lab.targets.common.paths import at
from lab.targets.readback.reading import ABSENT, Reading, UnreadableError, asked, compared, given, joined, shown


def _traefik(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")

    def answer(page: str) -> str:
        return asked(system, check, traefik.PORT, page)

    match part:
        case "version":
            return compared(check, traefik.version(answer(traefik.VERSION)))
        case "metrics":
            return compared(check, traefik.metrics(answer(traefik.METRICS)).get(path, ABSENT))
        case "overview":
            found: list[Any] = [json.loads(answer(traefik.OVERVIEW))]
        case "entrypoint":
            found = list(traefik.entry_points(answer(traefik.ENTRY_POINTS)))
        case _:
            parts = traefik.parts(answer(traefik.RAW))
            if not parts.get(part):
                raise UnreadableError(f"it has no {part!r} of its provider, only {', '.join(parts)}")
            found = list(parts[part])
    return compared(check, joined([shown(at(tree, path)) for tree in found]))


READERS = {"traefik": _traefik}
