"""How long after its start OKD's router may still reload HAProxy, though nothing changes any more.

The router loads its first configuration as soon as it has seen every Route, and handles what arrives meanwhile (the same
Routes again, the backend's endpoints when they are ready) in one more load, a reload interval later. That one closes idle
keep-alive connections, which a generator counts as errors. Seen with openshift/router release-4.22: with 5 s, 15 s and
120 s exactly two loads, and a backend that was not ready at the first is not answered for until the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lab.base import durations
from lab.targets.cluster import objects

MARGIN_S = 1.0
"""For the load itself."""


def pending_s(manifests: Iterable[Mapping[str, Any]]) -> float:
    """Seconds from the proxy's readiness until no load is due; 0 where the proxy has no RELOAD_INTERVAL."""
    found = [interval for obj in manifests for interval in _intervals(obj)]
    return max(found) + MARGIN_S if found else 0.0


def _intervals(obj: Mapping[str, Any]) -> list[float]:
    template = objects.pod_template(obj)
    if template is None or objects.role(obj) != "proxy":
        return []
    given = [
        str(item.get("value", ""))
        for container in template["spec"]["containers"]
        for item in container.get("env", [])
        if item["name"] == "RELOAD_INTERVAL"
    ]
    return [seconds for text in given if (seconds := durations.seconds(text)) is not None]
