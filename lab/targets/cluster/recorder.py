"""What happens to a variant's pods while it is measured: what the API server, the kubelets and the proxies' own logs tell → the events of
`lab.model.events`.

    pod proxy-5f: deletionTimestamp appears      →   Deleted, "grace 300 s"
    its container's ID changes, restartCount 1   →   Started, "restart 1; by the node's clock 2026-11-21T21:53:10Z"
    its endpoint is ready no more                →   NotReady, "terminating"

See `lab.model.system.Recorder`. Watches: pods, EndpointSlices and Events of the variant's namespace; a log per container of the proxy's.
Refuses to give half of it: where any of these may have missed something, `events` raises; and to call anything an event that was so when
watching began. Times are those of arrival here: all by one clock, later than what they tell by the API's own delay (milliseconds on kind).
What the API says of the time, whole seconds by another clock, stands in the detail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from lab.base.errors import LabError
from lab.model.events import Event
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api, Object
from lab.targets.cluster.objects import ROLES
from lab.targets.cluster.watches import Followed, Watched


class ClusterRecorder:
    """Entered and left once."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        # Pods first: what the others tell of is known then.
        self._watches = [
            Watched(api, "v1", "Pod", namespace, self.pod),
            Watched(api, "discovery.k8s.io/v1", "EndpointSlice", namespace, self.slice),
            Watched(api, "v1", "Event", namespace, self.event),
        ]
        self._logs: list[Followed] = []
        self._fault: LabError | None = None
        self._left = threading.Event()
        self._pods: dict[str, Object] = {}
        """Of proxy and backend by their names, as they are known now."""
        self._known: set[tuple[str, str, str]] = set()  # (pod's uid, kind, container): what is so, and is told once
        self._events: list[Event] = []
        self._roles: dict[str, str] = {}
        self._slices: dict[str, Object] = {}
        self._ready: dict[str, bool] = {}
        self._endpoints: dict[str, frozenset[str]] = {}
        self._counts: dict[str, int] = {}

    def __enter__(self) -> ClusterRecorder:
        try:
            for watch in self._watches:
                watch.start()
        except BaseException:
            self._left.set()
            for part in (*self._watches, *list(self._logs)):
                part.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left.set()
        logs = [lambda log=log: log.stop(self.ended(log.container_id)) for log in list(self._logs)]
        for stop in (*(watch.stop for watch in self._watches), *logs):
            try:
                stop()
            except LabError as error:  # the first is told by `events`; the rest must end as well
                self._fault = self._fault or error
        for log in self._logs:
            behind_s = min(other.behind_s for other in self._logs if other.node == log.node)
            for written_s, event in log.told:
                self._say(written_s + behind_s, "proxy", log.pod, event)

    def say(self, kind: str, name: str, detail: str) -> None:
        """What the API server answered the lab itself."""
        self._say(time.time(), "api", name, kind, detail)

    def events(self) -> Sequence[Event]:
        """In the order of time, each with the role of its pod: only afterwards, since an event may come before its pod."""
        if self._fault is not None:
            raise self._fault
        told = [replace(event, role=self._roles.get(event.object, "")) for event in self._events]
        return sorted(told, key=lambda event: event.at_s)

    def notes(self) -> Sequence[str]:
        """What a reader of the events must know; only afterwards."""
        return (
            "what the API server tells of pods and endpoints comes later than it was, never earlier",
            "single probes cannot be seen, only those that the kubelet reports as failed",
        )

    def _say(self, at_s: float, source: str, name: str, kind: str, detail: str = "") -> None:
        self._events.append(Event(at_s, source, "", name, kind, detail))

    def ended(self, container_id: str) -> bool:
        """Whether that container is known to have ended."""
        return any((kind, container) == ("Exited", container_id) for _, kind, container in list(self._known))

    def pod(self, at_s: float, change: str, obj: Object) -> None:
        metadata = obj["metadata"]
        role, name, uid = (metadata.get("labels") or {}).get(ROLE_LABEL), metadata["name"], metadata["uid"]
        if role not in ROLES:
            return
        self._roles[name] = role
        self._pods[name] = obj
        for kind, container, detail in _facts(obj):
            if (uid, kind, container) in self._known:
                continue
            self._known.add((uid, kind, container))
            if change != "LISTED":
                self._say(at_s, "api", name, kind, detail)
            if kind == "Started" and role == "proxy" and not self._left.is_set():
                place = (self._api, self._namespace, name, obj["spec"]["containers"][0]["name"], container)
                self._logs.append(Followed(*place, obj["spec"]["nodeName"], whole=change != "LISTED"))
        if change == "DELETED":
            if (uid, "Deleted", "") not in self._known:
                self._say(at_s, "api", name, "Deleted", "grace 0 s")
            self._say(at_s, "api", name, "Gone")
            self._known |= {(uid, "Exited", one) for of, kind, one in self._known if (of, kind) == (uid, "Started")}
            del self._pods[name]

    def slice(self, at_s: float, change: str, obj: Object) -> None:
        uid, service = obj["metadata"]["uid"], _service(obj)
        self._slices[uid] = obj
        if change == "DELETED":
            del self._slices[uid]
        silent = change == "LISTED"
        self._readiness(at_s, silent)
        # `10.244.0.5:8080` of every endpoint that is ready; ports tell the slices of one pod apart.
        ready = frozenset(
            f"{address}:{','.join(str(port.get('port')) for port in one.get('ports') or ())}"
            for one in self._slices.values()
            if _service(one) == service
            for endpoint in one.get("endpoints") or ()
            if _is_ready(endpoint)
            for address in endpoint["addresses"]
        )
        if ready != self._endpoints.get(service, frozenset()) and not silent:
            self._say(at_s, "api", service, "Endpoints", str(len(ready)))
        self._endpoints[service] = ready

    def event(self, at_s: float, change: str, obj: Object) -> None:
        """One of Kubernetes' own Events: the same one is counted up when it happens again."""
        about, series = obj.get("involvedObject") or {}, obj.get("series") or {}
        reason, uid = obj.get("reason"), obj["metadata"]["uid"]
        count = int(series.get("count") or obj.get("count") or 1)
        before = self._counts.get(uid, 0)
        self._counts[uid] = count
        if change in ("LISTED", "DELETED") or about.get("kind") != "Pod" or reason not in ("Killing", "Unhealthy"):
            return
        name, words = str(about.get("name")), " ".join(str(obj.get("message", "")).split())
        if reason == "Killing" and (pod := self._pods.get(name)):
            default = pod["spec"].get("terminationGracePeriodSeconds", 30)
            words += f"; grace {pod['metadata'].get('deletionGracePeriodSeconds', default)} s"
        words = _clock(words, series.get("lastObservedTime") or obj.get("lastTimestamp"))
        for _ in range(max(1, count - before)):
            self._say(at_s, "kubelet", name, reason, words)

    def _readiness(self, at_s: float, silent: bool) -> None:
        """Of pods, as the endpoints of all their Services have it together."""
        found: dict[str, bool] = {}
        ending: set[str] = set()
        for endpoint in (item for one in self._slices.values() for item in one.get("endpoints") or ()):
            target = endpoint.get("targetRef") or {}
            if target.get("kind") == "Pod":
                found[target["name"]] = found.get(target["name"], False) or _is_ready(endpoint)
                if (endpoint.get("conditions") or {}).get("terminating"):
                    ending.add(target["name"])
        for name in found.keys() | self._ready.keys():
            now = found.get(name, False)
            if now != self._ready.get(name, False) and not silent:
                detail = "terminating" if name in ending else "" if name in found else "no endpoint any more"
                self._say(at_s, "api", name, "Ready" if now else "NotReady", detail)
        self._ready = found


def _facts(pod: Object) -> Iterator[tuple[str, str, str]]:
    """(kind, ID of the container or nothing, detail) of all that has happened to a pod and its first container: the lab's own."""
    metadata, status = pod["metadata"], pods.container_status(pod)
    state, last = status.get("state") or {}, status.get("lastState") or {}
    yield "Created", "", _clock("", metadata.get("creationTimestamp"))
    for ended in filter(None, (last.get("terminated"), state.get("terminated"))):
        yield "Exited", ended.get("containerID", ""), _clock(pods.exited(ended), ended.get("finishedAt"))
    running, container_id = state.get("running"), pods.container_id(pod)
    if running is not None and container_id:
        restarts = status.get("restartCount", 0)
        yield "Started", container_id, _clock(f"restart {restarts}" if restarts else "", running.get("startedAt"))
    if "deletionTimestamp" in metadata:
        yield "Deleted", "", f"grace {metadata.get('deletionGracePeriodSeconds', 0)} s"


def _service(endpoint_slice: Object) -> str:
    return (endpoint_slice["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _clock(words: str, said: str | None) -> str:
    """`words; by the API's clock 2026-11-21T21:53:10Z`."""
    return "; ".join(filter(None, (words, f"by the API's clock {said}" if said else "")))
