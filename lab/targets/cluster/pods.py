"""What the status of a pod (or node) says: its conditions, whether it is ready, its first container. Asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.base.errors import LostError


def conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By their types, as they are: `status`, and where there is one `reason`, `message`. Empty where nothing is said yet."""
    return {item["type"]: item for item in obj.get("status", {}).get("conditions") or ()}


def ready(obj: Mapping[str, Any]) -> bool:
    """Ready, and not being deleted."""
    said = conditions(obj).get("Ready", {})
    return "deletionTimestamp" not in obj["metadata"] and said.get("status") == "True"


def container_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of its first container, the lab's own; empty where nothing is said yet."""
    first = pod["spec"]["containers"][0]["name"]
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return next((item for item in statuses if item["name"] == first), {})


def container_id(pod: Mapping[str, Any]) -> str:
    """Of its first container; empty while it has none."""
    return container_status(pod).get("containerID") or ""


def running(pod: Mapping[str, Any]) -> bool:
    """Its first container runs now."""
    return "running" in (container_status(pod).get("state") or {})


def check_there(place: str, pod: Mapping[str, Any] | None) -> None:
    """LostError unless the pod (None = there is none) runs and is to go on running."""
    if pod is None:
        raise LostError(place, "is gone", "`--resume` goes on when the cluster is well again")
    status, ending = pod.get("status", {}), "deletionTimestamp" in pod["metadata"]
    if status.get("phase") != "Running" or ending:
        state = (status.get("reason") or status.get("phase", "Unknown")) + (", being deleted" if ending else "")
        fault = "no longer runs: " + ": ".join(filter(None, (state, status.get("message"))))
        raise LostError(place, fault, "`--resume` goes on when the cluster is well again")
