"""What happens to a variant's pods while it is measured: what the API server, the kubelets and the proxies' own logs tell → the events of
`lab.model.events`, for a `lab.model.system.Recorder`.

    pod proxy-5f: deletionTimestamp appears                              →   Deleted, "grace 300 s"
    its container's ID changes, restartCount 1                           →   Started, "restart 1; by the node's clock 2026-11-21T21:53:10Z"
    its endpoint is ready no more                                        →   NotReady, "terminating"
    "Configuration changes detected, backend reload required" in a log   →   Reload (`lab.systems.table.event_of` knows the words)

Refuses to give half of it: where a watch or a log may have missed something, `events` raises; and to call anything an event that was so when
watching began, or a container's first configuration. Times are those of arrival here, later than what they tell by the API's own delay
(milliseconds on kind); what the API says of the time stands in the detail. Lines of a log arrive late where its container had begun before, so
their times are the node's own: `behind_s` of any line is its clock's distance from the lab's and the line's way, and the least of all of a node's
lines is put to each.
"""

from __future__ import annotations

import json
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any

from lab.base.errors import LabError, MeasuringError
from lab.model.events import Event
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.table import event_of
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api, Object, until
from lab.targets.cluster.connection import Stream
from lab.targets.cluster.objects import ROLES

BLIND_S = 0.2
CAUGHT_UP_S = 5.0
POLL_S = 0.02
Told = Callable[[float, str, Object], None]
"""(seconds since the epoch, LISTED at the beginning or ADDED, MODIFIED, DELETED, the object): called in the watch's thread."""


class Following(ABC):
    """A thread that reads what goes on until `end`. `fault`: why it ended before."""

    def __init__(self, name: str) -> None:
        self.fault = ""
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def end(self) -> None:
        """Without a last look: for one that was never started, too."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        if self._thread.ident is not None:
            self._thread.join(CAUGHT_UP_S)

    @abstractmethod
    def _follow(self) -> None: ...

    def _run(self) -> None:
        """The thread: a fault is told by `stop`, a traceback would reach the user."""
        try:
            self._follow()
        except LabError as error:
            self.fault = error.fault
        except Exception as error:  # noqa: BLE001
            self.fault = f"{type(error).__name__}: {error}"


class Watched(Following):
    """Objects, from `start` to `stop`."""

    def __init__(self, api: Api, api_version: str, kind: str, namespace: str, told: Told) -> None:
        super().__init__(f"watch-{kind}")
        self._api, self._what, self._told = api, (api_version, kind, namespace), told
        self._versions: dict[str, int] = {}
        self._since = ""

    def start(self) -> None:
        """What is there is told as LISTED, in the caller's thread. LabError when it may not be listed."""
        items, self._since = self._api.listed(*self._what)
        for item in items:
            self._take(time.time(), "LISTED", item)
        self._thread.start()

    def stop(self) -> None:
        """MeasuringError when something may be missing; LabError when the last look fails."""
        try:
            items, version = self._api.listed(*self._what)
            wanted = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in items}

            def missing() -> list[str]:
                """What the last look shows and the watch has not told."""
                known, up_to = dict(self._versions), int(self._since)
                unseen = [uid for uid, wants in wanted.items() if known.get(uid, up_to) < wants]
                return unseen + [uid for uid, has in known.items() if uid not in wanted and has <= int(version)]

            if not until(lambda: self.fault or not missing(), CAUGHT_UP_S, POLL_S):
                self.fault = f"has not told of {len(missing())} changes within {CAUGHT_UP_S:.0f} s"
        finally:
            self.end()
        if self.fault:
            remedy = "see whether the API server was overloaded; the sample is to be measured again"
            raise MeasuringError(f"watch of {self._what[1]} in {self._what[2]}", self.fault, remedy)

    def _follow(self) -> None:
        blind_since = time.monotonic()
        while not self._stopped.is_set() and not self.fault:
            try:
                stream = self._stream = self._api.watch(*self._what, self._since)
            except OSError as error:
                if time.monotonic() - blind_since > CAUGHT_UP_S:
                    self.fault = f"broke: {error}"
                self._stopped.wait(POLL_S)
                continue
            if (blind_s := time.monotonic() - blind_since) > BLIND_S:
                self.fault = f"saw nothing for {blind_s:.1f} s"
            if self._stopped.is_set() or self.fault:  # `end` may have come while it was opened
                stream.close()
            with suppress(OSError):  # it is taken up again
                for line in filter(bytes.strip, stream.lines()):
                    change, at_s = json.loads(line), time.time()
                    kind, found = change["type"], change["object"]
                    if kind == "ERROR":
                        words = found.get("message") or found.get("reason") or found
                        raise MeasuringError(self._what[1], f"ended by the server: {words}")
                    self._since = found["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._take(at_s, kind, found)
            blind_since = time.monotonic()

    def _take(self, at_s: float, kind: str, found: Object) -> None:
        uid = found["metadata"]["uid"]
        self._versions[uid] = int(found["metadata"]["resourceVersion"])
        if kind == "DELETED":
            del self._versions[uid]
        self._told(at_s, kind, found)


class Followed(Following):
    """One container's log, from now on or (`whole`) from its beginning, until `stop` or the container's end."""

    def __init__(
        self, api: Api, namespace: str, pod: str, container: str, container_id: str, node: str, whole: bool
    ) -> None:
        super().__init__(f"log-{pod}")
        self._api, self.pod, self._place = api, pod, (namespace, pod, container)
        self.container_id, self.node = container_id, node
        self.told: list[tuple[float, str]] = []
        """(when it was written, by the node's clock; event) of every line that tells one."""
        self.behind_s = math.inf
        self._last = "" if whole else self._newest()
        self._starting = whole
        """What was read is its first configuration's still."""
        self._thread.start()

    def stop(self, ended: bool) -> None:
        """`ended`: the container is known to have ended. MeasuringError when lines may be missing."""
        try:
            if not ended:
                last = self._newest()
                if not until(lambda: self.fault or last <= self._last, CAUGHT_UP_S, POLL_S):
                    self.fault = f"its last line was not read within {CAUGHT_UP_S:.0f} s"
        except LabError as error:
            self.fault = self.fault or error.fault
        finally:
            self.end()
        if self.fault and not ended:
            place = f"log of pod {self._place[0]}/{self._place[1]}"
            raise MeasuringError(place, self.fault, "the sample is to be measured again; `kubectl logs -f` shows more")

    def _newest(self) -> str:
        """The time of the last line that was written; empty when there is none."""
        return self._api.log(*self._place, lines=1, times=True).split(" ", 1)[0].strip()

    def _follow(self) -> None:
        try:
            stream = self._stream = self._api.follow(*self._place, self._last)
            if self._stopped.is_set():  # `end` came while it was opened
                stream.close()
            for line in stream.lines():
                self._read(time.time(), line)
            self.fault = "" if self._stopped.is_set() else "ended while its container ran"
        except (OSError, LabError) as error:
            self.fault = f"cannot be followed: {error}"

    def _read(self, at_s: float, line: bytes) -> None:
        written, _, words = line.partition(b" ")
        stamp = written.decode("ascii", "replace")
        if stamp <= self._last:
            return  # of the second in which following began
        self._last = stamp
        written_s = datetime.fromisoformat(stamp).timestamp()
        self.behind_s = min(self.behind_s, at_s - written_s)
        event = event_of(words.decode(errors="replace"))
        if event is not None and not self._starting:
            self.told.append((written_s, event))
        elif event == "Reloaded":
            self._starting = False


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
        name, uid = metadata["name"], metadata["uid"]
        role = (metadata.get("labels") or {}).get(ROLE_LABEL, "")
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
