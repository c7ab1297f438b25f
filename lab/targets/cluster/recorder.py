"""The recorder of what happens to a variant's pods during a measurement, as events (`lab.model.events`).

The events come from the API server, the kubelets and the logs of the proxies. Examples:

    pod proxy-5f: deletionTimestamp appears        →   Deleted, "grace 300 s"
    its container's ID changes, restartCount 1     →   Started, "restart 1; by the API's clock 2026-11-21T21:53:10Z"
    its endpoint is no longer ready                →   NotReady, "terminating"
    "Configuration changes detected, …" in a log   →   Reload (`lab.systems.table.find_event` knows the words)

An incomplete record is never returned: if a watch or a log may have missed something, `events` raises an error. A state that
existed before the recording is no event. A container's first configuration is no event either.

The time of an event is the time of its arrival here. It is later than the event by the API's own delay (milliseconds on kind);
the event's detail contains the time that the API reports. The lines of a log may arrive late, if the container had begun
before. So their times come from the clock of the container's node. To convert them, the smallest `behind_s` of all lines of the
node is added: the seconds by which a line arrived here after its time by the node's clock.
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
from typing import Any

from lab.base.errors import LabError, MeasuringError
from lab.model.events import Event
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.table import find_event
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api, Object, poll_until
from lab.targets.cluster.connection import Stream
from lab.targets.cluster.objects import ROLES

BLIND_S = 0.2
CAUGHT_UP_S = 5.0
POLL_S = 0.02
ChangeCallback = Callable[[float, str, Object], None]
"""The function that a watch's thread calls for every change.

Its arguments are the seconds since the epoch, the kind of change (LISTED at the beginning, else ADDED, MODIFIED or
DELETED), and the object.
"""


class StreamThread(ABC):
    """A thread that reads a stream of the API server until `end` is called.

    If an error ends the thread earlier, the attribute `fault` is the reason.
    """

    def __init__(self, name: str) -> None:
        self.fault = ""
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def end(self) -> None:
        """End the thread at once, even if the stream has more to read; do nothing if the thread was never started."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        if self._thread.ident is not None:
            self._thread.join(CAUGHT_UP_S)

    @abstractmethod
    def _follow(self) -> None: ...

    def _run(self) -> None:
        """Read the stream; this is the thread's body.

        An error is stored in `fault` and not raised, because the user would see the traceback of a thread.
        """
        try:
            self._follow()
        except LabError as error:
            self.fault = error.fault
        except Exception as error:  # noqa: BLE001
            self.fault = f"{type(error).__name__}: {error}"


class KindWatch(StreamThread):
    """A thread that watches the objects of one kind in a namespace, and calls a function for every change."""

    def __init__(self, api: Api, api_version: str, kind: str, namespace: str, callback: ChangeCallback) -> None:
        super().__init__(f"watch-{kind}")
        self._api, self._resource, self._callback = api, (api_version, kind, namespace), callback
        self._versions: dict[str, int] = {}
        self._since = ""

    def start(self) -> None:
        """Call the function for every existing object (with LISTED as the kind of change), then start the thread.

        Raises:
            LabError: The objects cannot be listed.

        """
        items, self._since = self._api.listed(*self._resource)
        for item in items:
            self._pass_on(time.time(), "LISTED", item)
        self._thread.start()

    def stop(self) -> None:
        """Wait until the watch has reported every change so far, and end the thread.

        To know these changes, the objects are listed once more and compared with what the watch has reported.

        Raises:
            MeasuringError: The watch may have missed a change.
            LabError: The objects cannot be listed.

        """
        try:
            items, version = self._api.listed(*self._resource)
            latest = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in items}

            def list_missing() -> list[str]:
                """Return the uids of objects whose last change or deletion the watch has not reported yet."""
                passed, up_to = dict(self._versions), int(self._since)
                unseen = [uid for uid, listed in latest.items() if passed.get(uid, up_to) < listed]
                return unseen + [uid for uid, has in passed.items() if uid not in latest and has <= int(version)]

            if not poll_until(lambda: self.fault or not list_missing(), CAUGHT_UP_S, POLL_S):
                self.fault = f"has not reported {len(list_missing())} changes within {CAUGHT_UP_S:.0f} s"
        finally:
            self.end()
        if self.fault:
            remedy = "see whether the API server was overloaded; the sample is to be measured again"
            raise MeasuringError(f"watch of {self._resource[1]} in {self._resource[2]}", self.fault, remedy)

    def _follow(self) -> None:
        blind_since = time.monotonic()
        while not self._stopped.is_set() and not self.fault:
            try:
                stream = self._stream = self._api.watch(*self._resource, self._since)
            except OSError as error:
                if time.monotonic() - blind_since > CAUGHT_UP_S:
                    self.fault = f"broke: {error}"
                self._stopped.wait(POLL_S)
                continue
            if (blind_s := time.monotonic() - blind_since) > BLIND_S:
                self.fault = f"saw nothing for {blind_s:.1f} s"
            if self._stopped.is_set() or self.fault:  # `end` may have come while it was opened
                stream.close()
            with suppress(OSError):  # the next round opens it again
                for line in filter(bytes.strip, stream.lines()):
                    change, at_s = json.loads(line), time.time()
                    kind, obj = change["type"], change["object"]
                    if kind == "ERROR":
                        message = obj.get("message") or obj.get("reason") or obj
                        raise MeasuringError(self._resource[1], f"ended by the server: {message}")
                    self._since = obj["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._pass_on(at_s, kind, obj)
            blind_since = time.monotonic()

    def _pass_on(self, at_s: float, kind: str, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        self._versions[uid] = int(obj["metadata"]["resourceVersion"])
        if kind == "DELETED":
            del self._versions[uid]
        self._callback(at_s, kind, obj)


class FollowedLog(StreamThread):
    """A thread that reads the log of a proxy's container and collects the events (such as reloads) that the log reports.

    It reads until `stop` is called or the container ends.
    """

    def __init__(
        self, api: Api, namespace: str, pod: str, container: str, container_id: str, node: str, from_start: bool
    ) -> None:
        """Start the thread that reads the log.

        Args:
            api: The cluster.
            namespace: The namespace of the pod.
            pod: The name of the pod.
            container: The name of the container.
            container_id: The container's ID.
            node: The name of the pod's node.
            from_start: Whether to read the log from its beginning; otherwise only lines that are written from now on.

        """
        super().__init__(f"log-{pod}")
        self._api, self.pod, self._place = api, pod, (namespace, pod, container)
        self.container_id, self.node = container_id, node
        self.logged_events: list[tuple[float, str]] = []
        """The events in the lines, each with the time when the line was written, by the node's clock."""
        self.behind_s = math.inf
        self._last = "" if from_start else self._read_newest_time()
        self._starting = from_start
        """The state before the first reload: the lines so far belong to the container's first configuration."""
        self._thread.start()

    def stop(self, ended: bool) -> None:
        """Wait until the log has been read up to the line that is its last one now, and end the thread.

        Args:
            ended: Whether the container is known to have ended. Then nothing is waited for, and no error is raised.

        Raises:
            MeasuringError: Lines of the log may be missing.

        """
        try:
            if not ended:
                newest = self._read_newest_time()
                if not poll_until(lambda: self.fault or newest <= self._last, CAUGHT_UP_S, POLL_S):
                    self.fault = f"its last line was not read within {CAUGHT_UP_S:.0f} s"
        except LabError as error:
            self.fault = self.fault or error.fault
        finally:
            self.end()
        if self.fault and not ended:
            place = f"log of pod {self._place[0]}/{self._place[1]}"
            raise MeasuringError(place, self.fault, "the sample is to be measured again; `kubectl logs -f` shows more")

    def _read_newest_time(self) -> str:
        """Return the time of the last line in the log, as the API server writes it; empty if the log has no line."""
        return self._api.log(*self._place, lines=1, times=True).split(" ", 1)[0].strip()

    def _follow(self) -> None:
        try:
            stream = self._stream = self._api.follow(*self._place, self._last)
            if self._stopped.is_set():  # `end` came while it was opened
                stream.close()
            for line in stream.lines():
                self._read_line(time.time(), line)
            self.fault = "" if self._stopped.is_set() else "ended while its container ran"
        except (OSError, LabError) as error:
            self.fault = f"cannot be followed: {error}"

    def _read_line(self, at_s: float, line: bytes) -> None:
        written, _, text = line.partition(b" ")
        stamp = written.decode("ascii", "replace")
        if stamp <= self._last:
            return  # of the second in which following began
        self._last = stamp
        written_s = datetime.fromisoformat(stamp).timestamp()
        self.behind_s = min(self.behind_s, at_s - written_s)
        event = find_event(text.decode(errors="replace"))
        if event is not None and not self._starting:
            self.logged_events.append((written_s, event))
        elif event == "Reloaded":
            self._starting = False


class ClusterRecorder:
    """A context manager that records what happens to a variant's pods in one namespace while its `with` block runs.

    It can be entered only once.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        # Pods first, because the other watches refer to them.
        self._watches = [
            KindWatch(api, "v1", "Pod", namespace, self.pod),
            KindWatch(api, "discovery.k8s.io/v1", "EndpointSlice", namespace, self.slice),
            KindWatch(api, "v1", "Event", namespace, self.event),
        ]
        self._logs: list[FollowedLog] = []
        self._fault: LabError | None = None
        self._left = threading.Event()
        self._pods: dict[str, Object] = {}
        """The latest state of the proxy's and backend's pods, by name."""
        self._known: set[tuple[str, str, str]] = set()  # (pod's uid, kind, container): facts that were recorded once
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

    def __exit__(self, *_: object) -> None:
        self._left.set()
        logs = [lambda log=log: log.stop(self.ended(log.container_id)) for log in list(self._logs)]
        for stop in (*(watch.stop for watch in self._watches), *logs):
            try:
                stop()
            except LabError as error:  # `events` raises the first; all others must end as well
                self._fault = self._fault or error
        for log in self._logs:
            behind_s = min(other.behind_s for other in self._logs if other.node == log.node)
            for written_s, event in log.logged_events:
                self._record(written_s + behind_s, "proxy", log.pod, event)

    def say(self, kind: str, name: str, detail: str) -> None:
        """Record an event that no watch reports: only the API server's answer to a request of the lab shows it.

        Args:
            kind: The kind of the event, such as `EvictionRefused`.
            name: The name of the pod.
            detail: The server's message.

        """
        self._record(time.time(), "api", name, kind, detail)

    def events(self) -> Sequence[Event]:
        """Return the recorded events, ordered by time; call it after the `with` block.

        Each event has the role of its pod, or an empty role if the pod is unknown. The roles are filled in only now,
        because an event may arrive before the pod that it is about.

        Raises:
            LabError: A watch or a log may have missed something. If there are several such errors, the first is
                raised.

        """
        if self._fault is not None:
            raise self._fault
        events = [replace(event, role=self._roles.get(event.object, "")) for event in self._events]
        return sorted(events, key=lambda event: event.at_s)

    def notes(self) -> Sequence[str]:
        """Return sentences about what the record cannot show, for people who read the events."""
        return (
            "what the API server reports of pods and endpoints comes later than it was, never earlier",
            "single probes cannot be seen, only those that the kubelet reports as failed",
        )

    def _record(self, at_s: float, source: str, name: str, kind: str, detail: str = "") -> None:
        self._events.append(Event(at_s, source, "", name, kind, detail))

    def ended(self, container_id: str) -> bool:
        """Return whether the record shows that a container has ended."""
        return any((kind, container) == ("Exited", container_id) for _, kind, container in list(self._known))

    def pod(self, at_s: float, change: str, obj: Object) -> None:
        """Record what a change of a pod shows, and begin to read the log of a proxy's new container.

        Args:
            at_s: The time at which the change arrived here, in seconds since the epoch.
            change: The kind of change: ADDED, MODIFIED or DELETED. LISTED means that the pod existed already when the
                recorder was entered; this is no event.
            obj: The pod.

        """
        metadata = obj["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        role = (metadata.get("labels") or {}).get(ROLE_LABEL, "")
        if role not in ROLES:
            return
        self._roles[name] = role
        self._pods[name] = obj
        for kind, container, detail in _list_facts(obj):
            if (uid, kind, container) in self._known:
                continue
            self._known.add((uid, kind, container))
            if change != "LISTED":
                self._record(at_s, "api", name, kind, detail)
            if kind == "Started" and role == "proxy" and not self._left.is_set():
                place = (self._api, self._namespace, name, obj["spec"]["containers"][0]["name"], container)
                self._logs.append(FollowedLog(*place, obj["spec"]["nodeName"], from_start=change != "LISTED"))
        if change == "DELETED":
            if (uid, "Deleted", "") not in self._known:
                self._record(at_s, "api", name, "Deleted", "grace 0 s")
            self._record(at_s, "api", name, "Gone")
            self._known |= {
                (uid, "Exited", container)
                for pod_uid, kind, container in self._known
                if (pod_uid, kind) == (uid, "Started")
            }
            del self._pods[name]

    def slice(self, at_s: float, change: str, obj: Object) -> None:
        """Record what a change of an EndpointSlice shows: which pods are ready, and how many endpoints a Service has.

        The arguments are those of `pod`.
        """
        uid, service = obj["metadata"]["uid"], _find_service(obj)
        self._slices[uid] = obj
        if change == "DELETED":
            del self._slices[uid]
        silent = change == "LISTED"
        self._update_readiness(at_s, silent)
        # `10.244.0.5:8080` of every endpoint that is ready; the ports distinguish several slices of one pod.
        ready = frozenset(
            f"{address}:{','.join(str(port.get('port')) for port in endpoint_slice.get('ports') or ())}"
            for endpoint_slice in self._slices.values()
            if _find_service(endpoint_slice) == service
            for endpoint in endpoint_slice.get("endpoints") or ()
            if _is_ready(endpoint)
            for address in endpoint["addresses"]
        )
        if ready != self._endpoints.get(service, frozenset()) and not silent:
            self._record(at_s, "api", service, "Endpoints", str(len(ready)))
        self._endpoints[service] = ready

    def event(self, at_s: float, change: str, obj: Object) -> None:
        """Record a Kubernetes Event about a pod that reports the killing of a container or a failed probe.

        Kubernetes reports a repetition by a higher count in the same Event. Each repetition is recorded as a separate
        event. The arguments are those of `pod`.
        """
        involved, series = obj.get("involvedObject") or {}, obj.get("series") or {}
        reason, uid = obj.get("reason"), obj["metadata"]["uid"]
        count = int(series.get("count") or obj.get("count") or 1)
        before = self._counts.get(uid, 0)
        self._counts[uid] = count
        if change in ("LISTED", "DELETED") or involved.get("kind") != "Pod" or reason not in ("Killing", "Unhealthy"):
            return
        name, message = str(involved.get("name")), " ".join(str(obj.get("message", "")).split())
        if reason == "Killing" and (pod := self._pods.get(name)):
            default = pod["spec"].get("terminationGracePeriodSeconds", 30)
            message += f"; grace {pod['metadata'].get('deletionGracePeriodSeconds', default)} s"
        message = _append_time(message, series.get("lastObservedTime") or obj.get("lastTimestamp"))
        for _ in range(max(1, count - before)):
            self._record(at_s, "kubelet", name, reason, message)

    def _update_readiness(self, at_s: float, silent: bool) -> None:
        """Find out which pods are ready endpoints of a Service, and record each pod for which this has changed.

        Args:
            at_s: The time of the change, in seconds since the epoch.
            silent: Whether to store the new state without recording events.

        """
        readiness: dict[str, bool] = {}
        ending: set[str] = set()
        for endpoint in (
            item for endpoint_slice in self._slices.values() for item in endpoint_slice.get("endpoints") or ()
        ):
            target = endpoint.get("targetRef") or {}
            if target.get("kind") == "Pod":
                readiness[target["name"]] = readiness.get(target["name"], False) or _is_ready(endpoint)
                if (endpoint.get("conditions") or {}).get("terminating"):
                    ending.add(target["name"])
        for name in readiness.keys() | self._ready.keys():
            now = readiness.get(name, False)
            if now != self._ready.get(name, False) and not silent:
                detail = "terminating" if name in ending else "" if name in readiness else "no endpoint any more"
                self._record(at_s, "api", name, "Ready" if now else "NotReady", detail)
        self._ready = readiness


def _list_facts(pod: Object) -> Iterator[tuple[str, str, str]]:
    """Yield what has happened to a pod and its first container, as the pod's present state shows it.

    Yields:
        The kind (`Created`, `Exited`, `Started` or `Deleted`), the ID of the container (empty if the fact is about the
        pod), and a text with details.

    """
    metadata, status = pod["metadata"], pods.container_status(pod)
    state, last = status.get("state") or {}, status.get("lastState") or {}
    yield "Created", "", _append_time("", metadata.get("creationTimestamp"))
    for ended in filter(None, (last.get("terminated"), state.get("terminated"))):
        yield "Exited", ended.get("containerID", ""), _append_time(pods.describe_exit(ended), ended.get("finishedAt"))
    running, container_id = state.get("running"), pods.container_id(pod)
    if running is not None and container_id:
        restarts = status.get("restartCount", 0)
        yield "Started", container_id, _append_time(f"restart {restarts}" if restarts else "", running.get("startedAt"))
    if "deletionTimestamp" in metadata:
        yield "Deleted", "", f"grace {metadata.get('deletionGracePeriodSeconds', 0)} s"


def _find_service(endpoint_slice: Object) -> str:
    return (endpoint_slice["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _append_time(text: str, stamp: str | None) -> str:
    """Return a text with a time appended, such as `restart 1; by the API's clock 2026-11-21T21:53:10Z`.

    Args:
        text: The text; may be empty.
        stamp: The time as the API server reports it; None appends nothing.

    """
    return "; ".join(filter(None, (text, f"by the API's clock {stamp}" if stamp else "")))
