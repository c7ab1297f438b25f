"""What a proxy says of itself: how large its configuration is, and how long its last load took.

proxy/config_bytes   nginx.conf, or HAProxy's configuration and maps, as they lie in the container
proxy/load_s         ingress-nginx: from "reload required" to "reloaded" in its own log; other proxies tell no beginning

Refuses to estimate what is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from subprocess import CompletedProcess
from typing import Any, Protocol

from lab.targets.cluster import reload_logs

LINES = 2000
"""Of the log: a line per request since the last load is in the way."""
_SIZE = "cat /etc/nginx/nginx.conf /var/lib/haproxy/conf/*.config /var/lib/haproxy/conf/*.map 2>/dev/null | wc -c"


class Asked(Protocol):
    """What is needed of `lab.targets.cluster.api.Api`."""

    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = ..., times: bool = ...
    ) -> str: ...


class Shell(Protocol):
    """A shell in the proxy's container: `lab.targets.cluster.shell.Shell`."""

    def script(self, text: str, timeout_s: float = ...) -> CompletedProcess[str]: ...


def of(api: Asked, pod: Mapping[str, Any], shell: Shell, loads: bool) -> dict[str, float]:
    """Of one proxy's pod; what it does not tell is not there. `loads`: its log is asked for its last load, too: that is 2000
    lines of a proxy that logs every request, so only where configurations may change.
    """
    found: dict[str, float] = {}
    size = shell.script(_SIZE).stdout.strip()
    if size.isdigit() and int(size):
        found["proxy/config_bytes"] = float(size)
    if not loads:
        return found
    metadata, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
    took_s = reload_logs.loading_s(api.log(metadata["namespace"], metadata["name"], container, LINES, times=True))
    if took_s is not None:
        found["proxy/load_s"] = took_s
    return found
