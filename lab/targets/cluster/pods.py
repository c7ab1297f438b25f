"""What the status of a pod (or node) says: its conditions, whether it is ready, whether its first container runs. Asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By their types, as they are: `status`, and where there is one `reason`, `message`. Empty where nothing is said yet."""
    return {item["type"]: item for item in obj.get("status", {}).get("conditions") or ()}


def ready(obj: Mapping[str, Any]) -> bool:
    """Ready, and not being deleted."""
    said = conditions(obj).get("Ready", {})
    return "deletionTimestamp" not in obj["metadata"] and said.get("status") == "True"


def running(pod: Mapping[str, Any]) -> bool:
    """Its first container, the lab's own, runs now."""
    first = pod["spec"]["containers"][0]["name"]
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return any(item["name"] == first and "running" in (item.get("state") or {}) for item in statuses)
