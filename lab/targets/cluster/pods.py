"""What the API server says of a pod (or node): its conditions, its first container, and of one that did not come up its events and the end of
its containers' logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab.base.errors import LabError, LostError
from lab.targets.cluster.api import Api

EVENTS = 6
LOG = "log of "
"""Begins a line that is of a container's log."""
LOG_LINES = 5
LINE = 300
"""Characters of a line that are shown; the end says more than the middle."""


def conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By their types, as they are: `status`, and where there is one `reason`, `message`. Empty where nothing is said yet."""
    return {item["type"]: item for item in obj.get("status", {}).get("conditions") or ()}


def ready(obj: Mapping[str, Any]) -> bool:
    """Ready, and not being deleted."""
    return "deletionTimestamp" not in obj["metadata"] and conditions(obj).get("Ready", {}).get("status") == "True"


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
    remedy = "`--resume` goes on when the cluster is well again"
    if pod is None:
        raise LostError(place, "is gone", remedy)
    status, ending = pod.get("status", {}), "deletionTimestamp" in pod["metadata"]
    if status.get("phase") != "Running" or ending:
        state = (status.get("reason") or status.get("phase", "Unknown")) + (", being deleted" if ending else "")
        raise LostError(place, f"no longer runs: {reasoned(state, status.get('message'))}", remedy)


def reasoned(reason: str | None, message: str | None) -> str:
    """`reason: message`, on one line."""
    return ": ".join(filter(None, (reason, " ".join((message or "").split()))))


def exited(terminated: Mapping[str, Any]) -> str:
    """`exited with 1 (Error)`, `exited with 137 (OOMKilled): message`."""
    reason, message = terminated.get("reason"), terminated.get("message")
    words = f"exited with {terminated.get('exitCode', '?')}" + (f" ({reason})" if reason else "")
    return _short(f"{words}: {message}" if message else words)


def lines(api: Api, obj: Mapping[str, Any]) -> list[str]:
    """Its latest events, the newest last, and of a pod the log of each container that is not ready.

    `event FailedScheduling (3×): 0/1 nodes …`. What cannot be had is said.
    """
    metadata, status = obj["metadata"], obj.get("status", {})

    def events() -> list[str]:
        def last(event: Mapping[str, Any]) -> Mapping[str, Any]:
            return {**event, **(event.get("series") or {})}

        listed = api.list("v1", "Event", metadata.get("namespace", "default"))
        # A kubelet names its node in the place of the node's uid.
        ours = [
            last(one) for one in listed if one["involvedObject"].get("uid") in (metadata.get("uid"), metadata["name"])
        ]
        ours.sort(key=lambda one: one.get("lastObservedTime") or one.get("lastTimestamp") or one.get("eventTime") or "")
        return [
            f"event {one.get('reason', '?')}{f' ({times}×)' if (times := one.get('count') or 1) > 1 else ''}: {one.get('message', '')}"
            for one in ours[-EVENTS:]
        ]

    def log(container: Mapping[str, Any]) -> list[str]:
        place = metadata["namespace"], metadata["name"], container["name"]
        text = api.log(*place, LOG_LINES)
        if not text.strip() and container.get("restartCount"):
            text = api.log(*place, LOG_LINES, previous=True)
        return [f"{LOG}{container['name']}: {line}" for line in text.splitlines() if line.strip()]

    found = or_why("events", events)
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        done = (container.get("state") or {}).get("terminated") or {}
        if not container.get("ready") and done.get("exitCode") != 0:
            found += or_why(f"{LOG}{container['name']}", lambda one=container: log(one))
    return list(map(_short, found))


def or_why(what: str, ask: Callable[[], list[str]]) -> list[str]:
    """The lines that are asked for, or one that says why they cannot be had: what they explain is the fault to tell."""
    try:
        return ask()
    except LostError:
        raise
    except LabError as error:
        return [f"{what}: {error.fault}"]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE else f"{line[: LINE // 3]} … {line[-LINE // 3 * 2 :]}"
