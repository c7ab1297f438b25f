"""What the API server tells of pods and endpoints → the events of `lab.model.events`. Asks nobody.

    pod proxy-5f: deletionTimestamp appears      →   Deleted, "grace 300 s"
    its container's ID changes, restartCount 1   →   Started, "restart 1; by the node's clock 2026-11-21T21:53:10Z"
    its endpoint is ready no more                →   NotReady, "terminating"

Times are those of arrival here: all by one clock, later than what they tell by the API's own delay (milliseconds on kind).
What the API says of the time, whole seconds by another clock, stands in the detail. Refuses to call anything an event that
was so when watching began.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.model.events import Event
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster import last_words
from lab.targets.cluster.api import Object

ROLES = ("proxy", "backend")
SERVICE = "kubernetes.io/service-name"
"""Label of an EndpointSlice."""


@dataclass(slots=True)
class Known:
    """What was last seen of a pod; containers by their IDs."""

    obj: Object
    deleted: bool = False
    started: set[str] = field(default_factory=set[str])
    exited: set[str] = field(default_factory=set[str])


class Happenings:
    """`started` is told of every container that runs, (pod, container, runs since before watching began), in a watch's thread."""

    def __init__(self, started: Callable[[Object, str, bool], None]) -> None:
        self._started = started
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._pods: dict[str, Known] = {}
        self._roles: dict[str, str] = {}
        self._slices: dict[str, Object] = {}
        self._ready: dict[str, bool] = {}
        self._endpoints: dict[str, frozenset[str]] = {}
        self._counts: dict[str, int] = {}
        self._complaints: dict[tuple[str, str], str] = {}

    def say(self, at_s: float, source: str, name: str, kind: str, detail: str = "") -> None:
        with self._lock:
            self._events.append(Event(at_s, source, "", name, kind, detail))

    def events(self) -> list[Event]:
        """In the order of time, each with the role of its pod: only afterwards, since an event may come before its pod."""
        told = [
            Event(event.at_s, event.source, self._roles.get(event.object, ""), event.object, event.kind, event.detail)
            for event in self._events
        ]
        return sorted(told, key=lambda event: event.at_s)

    def pods(self) -> list[Object]:
        """Of proxy and backend, as they are known now."""
        return [known.obj for known in list(self._pods.values())]

    def ended(self, container_id: str) -> bool:
        """Whether that container is known to have ended."""
        known = [pod for pod in list(self._pods.values()) if container_id in pod.started]
        return not known or any(container_id in pod.exited for pod in known)

    def complaint(self, pod: str, probe: str) -> str:
        """What the kubelet last said of a failed probe (`readiness` …); empty when nothing."""
        return self._complaints.get((pod, probe), "")

    # -- told by watches ----------------------------------------------------------------------------------

    def pod(self, at_s: float, change: str, obj: Object) -> None:
        metadata = obj["metadata"]
        role, name, uid = (metadata.get("labels") or {}).get(ROLE_LABEL), metadata["name"], metadata["uid"]
        if role not in ROLES:
            return
        self._roles[name] = role
        silent = change == "LISTED"
        known = self._pods.get(uid)
        if known is None:
            known = self._pods[uid] = Known(obj)
            if not silent:
                self.say(at_s, "api", name, "Created", _clock("", metadata.get("creationTimestamp")))
        known.obj = obj
        self._containers(at_s, known, silent)
        if "deletionTimestamp" in metadata and not known.deleted:
            known.deleted = True
            if not silent:
                self.say(at_s, "api", name, "Deleted", f"grace {metadata.get('deletionGracePeriodSeconds', 0)} s")
        if change == "DELETED":
            if not known.deleted:
                self.say(at_s, "api", name, "Deleted", "grace 0 s")
            self.say(at_s, "api", name, "Gone")
            known.exited |= known.started
            del self._pods[uid]

    def slice(self, at_s: float, change: str, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        service = (obj["metadata"].get("labels") or {}).get(SERVICE, "")
        if change == "DELETED":
            self._slices.pop(uid, None)
        else:
            self._slices[uid] = obj
        silent = change == "LISTED"
        self._readiness(at_s, silent)
        ready = frozenset(
            address
            for one in self._slices.values()
            if (one["metadata"].get("labels") or {}).get(SERVICE) == service
            for address in _ready_addresses(one)
        )
        if ready != self._endpoints.get(service, frozenset()) and not silent:
            self.say(at_s, "api", service, "Endpoints", str(len(ready)))
        self._endpoints[service] = ready

    def event(self, at_s: float, change: str, obj: Object) -> None:
        """One of Kubernetes' own Events: the same one is counted up when it happens again."""
        about = obj.get("involvedObject") or {}
        reason, uid = obj.get("reason"), obj["metadata"]["uid"]
        count = int((obj.get("series") or {}).get("count") or obj.get("count") or 1)
        before = self._counts.get(uid, 0)
        self._counts[uid] = count
        if change in ("LISTED", "DELETED") or about.get("kind") != "Pod" or reason not in ("Killing", "Unhealthy"):
            return
        name, words = str(about.get("name")), " ".join(str(obj.get("message", "")).split())
        if reason == "Killing":
            words += self._grace(name)
        else:
            self._complaints[name, words.split(" ", 1)[0].lower()] = words.partition(": ")[2]
        words = _clock(words, (obj.get("series") or {}).get("lastObservedTime") or obj.get("lastTimestamp"))
        for _ in range(max(1, count - before)):
            self.say(at_s, "kubelet", name, str(reason), words)

    # -- inside -------------------------------------------------------------------------------------------

    def _containers(self, at_s: float, known: Known, silent: bool) -> None:
        """Of the first container: the lab's own."""
        name = known.obj["metadata"]["name"]
        first = known.obj["spec"]["containers"][0]["name"]
        for status in known.obj.get("status", {}).get("containerStatuses") or ():
            if status["name"] != first:
                continue
            for state in (status.get("lastState") or {}, status.get("state") or {}):
                ended = state.get("terminated")
                if ended and ended.get("containerID") not in known.exited:
                    known.exited.add(ended.get("containerID", ""))
                    known.started.add(ended.get("containerID", ""))
                    if not silent:
                        detail = _clock(last_words.exited(ended), ended.get("finishedAt"))
                        self.say(at_s, "api", name, "Exited", detail)
            running, container_id = (status.get("state") or {}).get("running"), status.get("containerID", "")
            if running is not None and container_id and container_id not in known.started:
                known.started.add(container_id)
                restarts = status.get("restartCount", 0)
                if not silent:
                    detail = _clock(f"restart {restarts}" if restarts else "", running.get("startedAt"))
                    self.say(at_s, "api", name, "Started", detail)
                self._started(known.obj, container_id, silent)

    def _readiness(self, at_s: float, silent: bool) -> None:
        """Of pods, as the endpoints of all their Services have it together."""
        found: dict[str, bool] = {}
        ending: set[str] = set()
        for endpoint in (item for one in self._slices.values() for item in one.get("endpoints") or ()):
            target = endpoint.get("targetRef") or {}
            if target.get("kind") == "Pod":
                conditions = endpoint.get("conditions") or {}
                found[target["name"]] = found.get(target["name"], False) or conditions.get("ready") is not False
                if conditions.get("terminating"):
                    ending.add(target["name"])
        for name in found.keys() | self._ready.keys():
            now = found.get(name, False)
            if now != self._ready.get(name, False) and not silent:
                detail = "terminating" if name in ending else "" if name in found else "no endpoint any more"
                self.say(at_s, "api", name, "Ready" if now else "NotReady", detail)
        self._ready = found

    def _grace(self, name: str) -> str:
        for known in list(self._pods.values()):
            metadata = known.obj["metadata"]
            if metadata["name"] == name:
                default = known.obj["spec"].get("terminationGracePeriodSeconds", 30)
                return f"; grace {metadata.get('deletionGracePeriodSeconds', default)} s"
        return ""


def _ready_addresses(one: Mapping[str, Any]) -> Iterator[str]:
    """`10.244.0.5:8080` of every endpoint that is ready; ports tell the slices of one pod apart."""
    ports: Sequence[Any] = [item.get("port") for item in one.get("ports") or ()]
    for endpoint in one.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready") is not False:
            yield from (f"{address}:{','.join(map(str, ports))}" for address in endpoint["addresses"])


def _clock(words: str, said: str | None) -> str:
    """`words; by the API's clock 2026-11-21T21:53:10Z`."""
    return "; ".join(filter(None, (words, f"by the API's clock {said}" if said else "")))
