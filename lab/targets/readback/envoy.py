"""Check kind `envoy`: what Envoy's admin interface shows of what it runs, wherever its configuration came from.

    name: cluster.circuit_breakers.thresholds.0.max_connections     /config_dump, of every cluster, listener … that serves the load
    name: stats.server.concurrency                                  /stats
    name: version                                                   /server_info

Refuses to judge by nothing: no such part, or no such statistic, is unreadable; a path that no part has is `absent`.
"""

from __future__ import annotations

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.common import envoy
from lab.targets.common.paths import at
from lab.targets.readback.reading import Reading, UnreadableError, asked, compared, given, joined, shown


def _envoy(system: System, check: Check) -> Reading:
    part, _, path = given(check, "name").partition(".")
    match part:
        case "version":
            return compared(check, envoy.version(asked(system, check, envoy.PORT, envoy.INFO)))
        case "stats":
            found = envoy.stats(asked(system, check, envoy.PORT, f"/stats?filter=^{path}$"))
            if path not in found:
                raise UnreadableError(f"/stats has no {path!r}")
            return compared(check, found[path])
        case _:
            parts = envoy.parts(asked(system, check, envoy.PORT, envoy.DUMP))
            if not parts.get(part):
                raise UnreadableError(f"/config_dump has no {part!r} that serves the load, only {', '.join(parts)}")
            return compared(check, joined([shown(at(tree, path)) for tree in parts[part]]))


READERS = {"envoy": _envoy}
