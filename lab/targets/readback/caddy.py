"""Check kind `caddy`: what Caddy's admin interface shows of what it runs, wherever its configuration came from.

    name: transport.keep_alive.max_idle_conns_per_host     /config/, of every transport (server, reverse_proxy, http, config) of the load
    name: metrics.go_sched_gomaxprocs_threads              /metrics

Refuses to judge by nothing: no such part, or no such metric, is unreadable; a path that no part has is `absent`.
"""

from __future__ import annotations

import json

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.common import caddy
from lab.targets.common.paths import at
from lab.targets.readback.envoy import shown
from lab.targets.readback.reading import Reading, UnreadableError, asked, compared, given, joined


def _caddy(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")
    if part == "metrics":
        found = caddy.metrics(asked(system, check, caddy.PORT, caddy.METRICS))
        if path not in found:
            raise UnreadableError(f"/metrics has no {path!r}")
        return compared(check, f"{found[path]:g}")
    parts = caddy.parts(json.loads(asked(system, check, caddy.PORT, caddy.CONFIG)))
    if not parts.get(part):
        raise UnreadableError(f"/config/ has no {part!r} that serves the load, only {', '.join(parts)}")
    return compared(check, joined([shown(at(tree, path)) for tree in parts[part]]))


READERS = {"caddy": _caddy}
