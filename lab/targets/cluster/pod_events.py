"""What the API server and the kubelets tell of pods and endpoints → the events of `lab.model.events`.

    pod proxy-5f: deletionTimestamp appears      →   Deleted, "grace 300 s"
    its container's ID changes, restartCount 1   →   Started, "restart 1; by the node's clock 2026-11-21T21:53:10Z"
    its endpoint is ready no more                →   NotReady, "terminating"

Times are those of arrival here: all by one clock, later than what they tell by the API's own delay (milliseconds on kind).
What the API says of the time, whole seconds by another clock, stands in the detail. Refuses to call anything an event that
was so when watching began.

The kubelets are asked for their own counts of probes every second:

    prober_probe_duration_seconds_count{container="proxy",…,pod="proxy-5f",probe_type="Readiness"} 16
    prober_probe_duration_seconds_sum{…} 0.04066                    a second later: 17 and 0.04366   →   readiness 0.0030 ok
    prober_probe_total{…,result="failed"} 3                         a second later: 4                →   readiness 1.0000 no answer …

A sum that grew with its count by one is that attempt's own duration; of several in one second each has their mean. Of
failed ones the kubelet counts no durations: one that it gave up took the probe's timeout (k8s.io/kubernetes pkg/kubelet/
prober), any other is told with `-`. Refuses to be necessary: where you may not ask the kubelets (get on nodes/proxy) there
are no Probe events, only what they report themselves (Unhealthy).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.base.errors import LabError, MeasuringError
from lab.model.events import Event
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api, DeniedError, Object

ROLES = ("proxy", "backend")
SERVICE = "kubernetes.io/service-name"
"""Label of an EndpointSlice."""
INTERVAL_S = 1.0
LATE_S = 5.0
"""Not asked for so long, attempts cannot be told apart any more."""
_LINE = re.compile(
    r"prober_probe_(?P<what>total|duration_seconds_count|duration_seconds_sum)\{(?P<labels>[^}]*)\} (?P<value>\S+)"
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
GIVEN_UP = re.compile(r"deadline exceeded|timed? ?out|Timeout", re.IGNORECASE)

Series = tuple[str, str, str]
"""(pod, container, probe type)"""


class PodEvents:
    """`started` is told of every container that runs, (pod, container, runs since before watching began), in a watch's thread."""

    def __init__(self, started: Callable[[Object, str, bool], None]) -> None:
        self._started = started
        self.pods: dict[str, Object] = {}
        """Of proxy and backend by their names, as they are known now."""
        self._known: set[tuple[str, str, str]] = set()  # (pod's uid, kind, container): what is so, and is told once
        self._events: list[Event] = []
        self._roles: dict[str, str] = {}
        self._slices: dict[str, Object] = {}
        self._ready: dict[str, bool] = {}
        self._endpoints: dict[str, frozenset[str]] = {}
        self._counts: dict[str, int] = {}
        self._complaints: dict[tuple[str, str], str] = {}

    def say(self, at_s: float, source: str, name: str, kind: str, detail: str = "") -> None:
        self._events.append(Event(at_s, source, "", name, kind, detail))

    def events(self) -> list[Event]:
        """In the order of time, each with the role of its pod: only afterwards, since an event may come before its pod."""
        told = [replace(event, role=self._roles.get(event.object, "")) for event in self._events]
        return sorted(told, key=lambda event: event.at_s)

    def ended(self, container_id: str) -> bool:
        """Whether that container is known to have ended."""
        return any((kind, container) == ("Exited", container_id) for _, kind, container in list(self._known))

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
        self.pods[name] = obj
        for kind, container, detail in _facts(obj):
            if (uid, kind, container) in self._known:
                continue
            self._known.add((uid, kind, container))
            if change != "LISTED":
                self.say(at_s, "api", name, kind, detail)
            if kind == "Started":
                self._started(obj, container, change == "LISTED")
        if change == "DELETED":
            if (uid, "Deleted", "") not in self._known:
                self.say(at_s, "api", name, "Deleted", "grace 0 s")
            self.say(at_s, "api", name, "Gone")
            self._known |= {(uid, "Exited", one) for of, kind, one in self._known if (of, kind) == (uid, "Started")}
            del self.pods[name]

    def slice(self, at_s: float, change: str, obj: Object) -> None:
        uid, service = obj["metadata"]["uid"], _service(obj)
        self._slices[uid] = obj
        if change == "DELETED":
            del self._slices[uid]
        silent = change == "LISTED"
        self._readiness(at_s, silent)
        ready = frozenset(
            address for one in self._slices.values() if _service(one) == service for address in _ready_addresses(one)
        )
        if ready != self._endpoints.get(service, frozenset()) and not silent:
            self.say(at_s, "api", service, "Endpoints", str(len(ready)))
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
        if reason == "Unhealthy":
            self._complaints[name, words.split(" ", 1)[0].lower()] = words.partition(": ")[2]
        elif pod := self.pods.get(name):
            default = pod["spec"].get("terminationGracePeriodSeconds", 30)
            words += f"; grace {pod['metadata'].get('deletionGracePeriodSeconds', default)} s"
        words = _clock(words, series.get("lastObservedTime") or obj.get("lastTimestamp"))
        for _ in range(max(1, count - before)):
            self.say(at_s, "kubelet", name, reason, words)

    # -- inside -------------------------------------------------------------------------------------------

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
                self.say(at_s, "api", name, "Ready" if now else "NotReady", detail)
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
    return (endpoint_slice["metadata"].get("labels") or {}).get(SERVICE, "")


def _ready_addresses(endpoint_slice: Object) -> Iterator[str]:
    """`10.244.0.5:8080` of every endpoint that is ready; ports tell the slices of one pod apart."""
    ports = ",".join(str(item.get("port")) for item in endpoint_slice.get("ports") or ())
    for endpoint in endpoint_slice.get("endpoints") or ():
        if _is_ready(endpoint):
            yield from (f"{address}:{ports}" for address in endpoint["addresses"])


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _clock(words: str, said: str | None) -> str:
    """`words; by the API's clock 2026-11-21T21:53:10Z`."""
    return "; ".join(filter(None, (words, f"by the API's clock {said}" if said else "")))


@dataclass(slots=True)
class Count:
    """So far: attempts that succeeded, seconds that they took, attempts that did not."""

    good: int = 0
    good_s: float = 0.0
    bad: int = 0


def counts(metrics: str, namespace: str) -> dict[Series, Count]:
    """Of a kubelet's /metrics/probes, those of one namespace's pods."""
    found: dict[Series, Count] = {}
    for match in _LINE.finditer(metrics):
        labels = dict(_LABEL.findall(match["labels"]))
        if labels.get("namespace") == namespace:
            count = found.setdefault((labels["pod"], labels["container"], labels["probe_type"]), Count())
            if match["what"] == "duration_seconds_count":
                count.good = int(float(match["value"]))
            elif match["what"] == "duration_seconds_sum":
                count.good_s = float(match["value"])
            elif labels["result"] in ("failed", "unknown"):
                count.bad += int(float(match["value"]))
    return found


class Probing:
    """From `start` to `stop`; of the nodes on which `told` knows pods of ours."""

    def __init__(self, api: Api, namespace: str, told: PodEvents) -> None:
        self._api, self._namespace, self._told = api, namespace, told
        self._before: dict[Series, Count] = {}
        self._fault = ""
        self._asked_s = 0.0
        self.denied = ""
        """Why there are no attempts to tell of; empty where there are."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probing", daemon=True)

    def start(self) -> None:
        try:
            self._before = self._ask()
        except DeniedError as error:
            self.denied = error.fault
            return
        self._asked_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """MeasuringError when attempts may be missing."""
        if not self._asked_s:
            return
        self._stopped.set()
        self._thread.join()
        if not self._fault:
            self._look()
        if self._fault:
            raise MeasuringError("kubelets' counts of probes", self._fault, "the sample is to be measured again")

    def _run(self) -> None:
        """The thread: a fault is told by `stop`."""
        began = time.monotonic()
        try:
            while not self._fault and not self._stopped.wait(INTERVAL_S - (time.monotonic() - began) % INTERVAL_S):
                self._look()
        except Exception as error:  # noqa: BLE001  # a traceback would reach the user
            self._fault = f"{type(error).__name__}: {error}"

    def _look(self) -> None:
        try:
            now, at_s = self._ask(), time.time()
        except LabError as error:
            self._fault = error.fault if time.monotonic() - self._asked_s > LATE_S else ""
            return
        self._asked_s = time.monotonic()
        for series, count in now.items():
            self._tell(at_s, series, self._before.get(series, Count()), count)
        self._before |= now

    def _ask(self) -> dict[Series, Count]:
        found: dict[Series, Count] = {}
        nodes = {pod["spec"].get("nodeName") for pod in list(self._told.pods.values())}
        for node in sorted(filter(None, nodes)):
            found |= counts(str(self._api.raw(f"/api/v1/nodes/{node}/proxy/metrics/probes")), self._namespace)
        return found

    def _tell(self, at_s: float, series: Series, before: Count, now: Count) -> None:
        pod, probe, good = series[0], series[2].lower(), now.good - before.good
        for _ in range(good):
            self._told.say(at_s, "kubelet", pod, "Probe", f"{probe} {(now.good_s - before.good_s) / good:.4f} ok")
        words = self._told.complaint(pod, probe)
        failed = f"- failed{': ' + words if words else ''}"
        if GIVEN_UP.search(words):  # after the timeout that its pod has; Kubernetes' default is 1 s
            known = self._told.pods.get(pod)
            own = [item for item in (known["spec"]["containers"] if known else ()) if item["name"] == series[1]]
            timeout_s = float((own[0].get(f"{probe}Probe") or {}).get("timeoutSeconds", 1)) if own else 1.0
            failed = f"{timeout_s:.4f} no answer within {timeout_s:g} s"
        for _ in range(now.bad - before.bad):
            self._told.say(at_s, "kubelet", pod, "Probe", f"{probe} {failed}")
