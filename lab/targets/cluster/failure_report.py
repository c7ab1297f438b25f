"""What is known of something that did not come up: its events and the end of its containers' logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lab.base.errors import LabError, LostError
from lab.targets.cluster.api import Api

EVENTS = 6
LOG = "log of "
"""Begins a line that is of a container's log."""
LOG_LINES = 5
LINE = 300
"""Characters of a line that are shown; the end says more than the middle."""


def lines(api: Api, obj: Mapping[str, Any]) -> list[str]:
    """Its latest events, the newest last, and of a pod the log of each container that is not ready.

    `event FailedScheduling (3×): 0/1 nodes …`. What cannot be had is said.
    """
    metadata, status = obj["metadata"], obj.get("status", {})
    found = or_why("events", _events, api, metadata["namespace"], metadata.get("uid"))
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        done = (container.get("state") or {}).get("terminated") or {}
        if not container.get("ready") and done.get("exitCode") != 0:
            what = f"{LOG}{container['name']}"
            found += or_why(what, _log, api, metadata["namespace"], metadata["name"], container)
    return found


def exited(terminated: Mapping[str, Any]) -> str:
    """`exited with 1 (Error)`, `exited with 137 (OOMKilled): message`."""
    reason, message = terminated.get("reason"), terminated.get("message")
    words = f"exited with {terminated.get('exitCode', '?')}" + (f" ({reason})" if reason else "")
    return _short(f"{words}: {message}" if message else words)


def sentence(api: Api, obj: Mapping[str, Any]) -> str:
    """Of a node or a pod of the cluster's own: `pod coredns-abc, Pending, ImagePullBackOff: Back-off pulling …, events: …`."""
    name, status = obj["metadata"]["name"], obj["status"]
    containers = (*status.get("initContainerStatuses", []), *status.get("containerStatuses", []))
    waiting = [item["state"]["waiting"] for item in containers if "waiting" in item.get("state", {})]
    reasons = [
        ": ".join(filter(None, (item.get("reason"), item.get("message"))))
        for item in (*status.get("conditions", []), *waiting)
        if item.get("status", "False") == "False"
    ]
    events = [
        f"{event.get('reason')}: {event.get('message')}"
        for event in api.list("v1", "Event", obj["metadata"].get("namespace"))
        if event.get("involvedObject", {}).get("name") == name
    ]
    said = [f"{obj['kind'].lower()} {name}", status.get("phase"), *dict.fromkeys(reasons), *_last_lines(api, obj)]
    said.append(f"events: {'; '.join(events[-3:])}" if events else "")
    return ", ".join(filter(None, said))


def _last_lines(api: Api, pod: Mapping[str, Any]) -> Iterator[str]:
    """`coredns said: …`, the last line of each container that has ended before."""
    for item in pod["status"].get("containerStatuses", []):
        if item.get("restartCount"):
            place = (pod["metadata"]["namespace"], pod["metadata"]["name"], item["name"])
            log = api.log(*place, 1) or api.log(*place, 1, previous=True)
            yield from (f"{item['name']} said: {line}" for line in log.splitlines()[-1:])


def or_why(what: str, ask: Callable[..., list[str]], *about: Any) -> list[str]:
    """The lines that are asked for, or one that says why they cannot be had: what they explain is the fault to tell."""
    try:
        return ask(*about)
    except LostError:
        raise
    except LabError as error:
        return [f"{what}: {error.fault}"]


def _events(api: Api, namespace: str, uid: str | None) -> list[str]:
    ours = [item for item in api.list("v1", "Event", namespace) if item["involvedObject"].get("uid") == uid]
    return [_event(item) for item in sorted(ours, key=_when)[-EVENTS:]]


def _log(api: Api, namespace: str, pod: str, container: Mapping[str, Any]) -> list[str]:
    text = api.log(namespace, pod, container["name"], LOG_LINES)
    if not text.strip() and container.get("restartCount"):
        text = api.log(namespace, pod, container["name"], LOG_LINES, previous=True)
    return [_short(f"{LOG}{container['name']}: {line}") for line in text.splitlines() if line.strip()]


def _when(event: Mapping[str, Any]) -> str:
    times = ((event.get("series") or {}).get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next(filter(None, times), "")


def _event(event: Mapping[str, Any]) -> str:
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    times = f" ({count}×)" if count > 1 else ""
    return _short(f"event {event.get('reason', '?')}{times}: {event.get('message', '')}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE else f"{line[: LINE // 3]} … {line[-LINE // 3 * 2 :]}"
