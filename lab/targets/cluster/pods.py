"""Functions that read the state of a pod or node from the API server's reports, and explain why one is not ready.

The state consists of conditions and of the state of the first container. The explanation consists of the object's events and of
the last lines of its containers' logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab.base.errors import LabError, LostError
from lab.targets.cluster.api import Api

EVENTS = 6
LOG = "log of "
"""The beginning of a line that comes from a container's log."""
LOG_LINES = 5
LINE = 300
"""The characters that are shown of a line: its first third and its end, which matters more than the middle."""


def conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return an object's status conditions by type: `Ready` → {`status`: `True`, …}.

    Each condition is that of the API server, unchanged. The result is empty if none is reported yet.
    """
    return {item["type"]: item for item in obj.get("status", {}).get("conditions") or ()}


def ready(obj: Mapping[str, Any]) -> bool:
    """Return whether a pod or node is ready and is not being deleted."""
    return "deletionTimestamp" not in obj["metadata"] and conditions(obj).get("Ready", {}).get("status") == "True"


def container_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of a pod's first container, as the API server reports it; empty if none is reported yet.

    The first container of a pod is the one that the lab measures.
    """
    first = pod["spec"]["containers"][0]["name"]
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return next((item for item in statuses if item["name"] == first), {})


def container_id(pod: Mapping[str, Any]) -> str:
    """Return the ID of a pod's first container; empty if the container has none yet."""
    return container_status(pod).get("containerID") or ""


def running(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod's first container runs now."""
    return "running" in (container_status(pod).get("state") or {})


def check_running(place: str, pod: Mapping[str, Any] | None) -> None:
    """Raise LostError unless a pod exists, runs and is not being deleted.

    Args:
        place: The pod's name, for the error's text.
        pod: The pod; None means that it does not exist.

    """
    remedy = "`--resume` goes on when the cluster is well again"
    if pod is None:
        raise LostError(place, "is gone", remedy)
    status, ending = pod.get("status", {}), "deletionTimestamp" in pod["metadata"]
    if status.get("phase") != "Running" or ending:
        state = (status.get("reason") or status.get("phase", "Unknown")) + (", being deleted" if ending else "")
        raise LostError(place, f"no longer runs: {join_reason(state, status.get('message'))}", remedy)


def join_reason(reason: str | None, message: str | None) -> str:
    """Return `reason: message` on one line; if one of the two is empty or None, return the other."""
    return ": ".join(filter(None, (reason, " ".join((message or "").split()))))


def describe_exit(terminated: Mapping[str, Any]) -> str:
    """Return a text about how a container ended, such as `exited with 137 (OOMKilled): message`.

    Args:
        terminated: The `terminated` state of the container, as the API server reports it.

    """
    reason, message = terminated.get("reason"), terminated.get("message")
    text = f"exited with {terminated.get('exitCode', '?')}" + (f" ({reason})" if reason else "")
    return _shorten(f"{text}: {message}" if message else text)


def explain(api: Api, obj: Mapping[str, Any]) -> list[str]:
    """Return lines that explain the state of a pod or node: its latest events, and the logs of containers that are not ready.

    Events come first, the newest last: `event FailedScheduling (3×): 0/1 nodes …`. The log of a container that has
    ended with status 0 is left out. If events or a log cannot be read, a line gives the reason.
    """
    metadata, status = obj["metadata"], obj.get("status", {})

    def events() -> list[str]:
        listed = api.list("v1", "Event", metadata.get("namespace", "default"))
        # The count and time of repetitions may be in `series`. In an event about a node, the kubelet gives the node's name
        # instead of its uid.
        matches = [
            {**event, **(event.get("series") or {})}
            for event in listed
            if event["involvedObject"].get("uid") in (metadata.get("uid"), metadata["name"])
        ]
        matches.sort(
            key=lambda event: (
                event.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
            )
        )
        return [
            f"event {event.get('reason', '?')}{f' ({times}×)' if (times := event.get('count') or 1) > 1 else ''}: {event.get('message', '')}"
            for event in matches[-EVENTS:]
        ]

    def log(container: Mapping[str, Any]) -> list[str]:
        place = metadata["namespace"], metadata["name"], container["name"]
        text = api.log(*place, LOG_LINES)
        if not text.strip() and container.get("restartCount"):
            text = api.log(*place, LOG_LINES, previous=True)
        return [f"{LOG}{container['name']}: {line}" for line in text.splitlines() if line.strip()]

    explanation = lines_or_reason("events", events)
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        terminated = (container.get("state") or {}).get("terminated") or {}
        if not container.get("ready") and terminated.get("exitCode") != 0:
            explanation += lines_or_reason(f"{LOG}{container['name']}", lambda container=container: log(container))
    return list(map(_shorten, explanation))


def lines_or_reason(title: str, ask: Callable[[], list[str]]) -> list[str]:
    """Return the lines that a function returns; if it raises an error, return one line with a title and this error.

    The lines explain another error, which must not be hidden by an error here. Only a LostError is raised.

    Args:
        title: The beginning of the line about an error.
        ask: The function.

    """
    try:
        return ask()
    except LostError:
        raise
    except LabError as error:
        return [f"{title}: {error.fault}"]


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE else f"{line[: LINE // 3]} … {line[-LINE // 3 * 2 :]}"
