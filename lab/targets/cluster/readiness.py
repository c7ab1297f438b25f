"""Is a new cluster ready to be measured on: its nodes, and the pods of kube-system. If not, what is not, and why."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from lab.base.errors import UsageError
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api

POLL_S = 1.0
INOTIFY = "root's inotify instances are used up: sudo sysctl -w fs.inotify.max_user_instances=512"
EVENTS = 3
"""So many of the last events are told of each."""


def wait(api: Api, deadline: float, remedy: str) -> None:
    """UsageError at the deadline (time.monotonic) that names what is not ready, with its state and events."""
    while faults := unready(api):
        if time.monotonic() > deadline:
            fault = f"not ready: {'; '.join(faults)}"
            raise UsageError(api.place, fault, INOTIFY if "too many open files" in fault else remedy)
        time.sleep(POLL_S)


def unready(api: Api) -> list[str]:
    """What is not ready, in words."""
    found = [*api.list("v1", "Node"), *api.list("v1", "Pod", "kube-system")]
    return [_said(api, obj) for obj in found if not (pods.ready(obj) or obj["status"].get("phase") == "Succeeded")]


def _said(api: Api, obj: Mapping[str, Any]) -> str:
    """`pod coredns-abc: ImagePullBackOff: Back-off pulling …; events: …`."""
    name, status = obj["metadata"]["name"], obj["status"]
    reasons = [
        ": ".join(filter(None, (item.get("reason"), item.get("message"))))
        for item in (*status.get("conditions", []), *_waiting(status))
        if item.get("status", "False") == "False"
    ]
    events = [
        f"{event.get('reason')}: {event.get('message')}"
        for event in api.list("v1", "Event", obj["metadata"].get("namespace"))
        if event.get("involvedObject", {}).get("name") == name
    ][-EVENTS:]
    said = [f"{obj['kind'].lower()} {name}", status.get("phase", ""), *filter(None, dict.fromkeys(reasons))]
    return (
        ", ".join(filter(None, said))
        + "".join(f", {container} said: {words}" for container, words in _last_words(api, obj))
        + (f", events: {'; '.join(events)}" if events else "")
    )


def _last_words(api: Api, obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(container, the last line it wrote) of those that have ended before."""
    for item in obj["status"].get("containerStatuses", []):
        if item.get("restartCount"):
            place = (obj["metadata"]["namespace"], obj["metadata"]["name"], item["name"])
            lines = (api.log(*place, 1) or api.log(*place, 1, previous=True)).splitlines()
            yield from ((item["name"], line) for line in lines[-1:])


def _waiting(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = (*status.get("initContainerStatuses", []), *status.get("containerStatuses", []))
    return [item["state"]["waiting"] for item in containers if "waiting" in item.get("state", {})]
