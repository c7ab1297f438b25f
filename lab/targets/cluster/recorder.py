"""What happens to a variant's pods while it is measured, from the API server, the kubelets and the proxies' own logs.

See `lab.model.system.Recorder`. Watches: pods, EndpointSlices and Events of the variant's namespace; a log per container of
the proxy's; the kubelets' counts of probes every second. Refuses to give half of it: where any of these may have missed
something, `events` raises. What a watch tells is later than it was, by the API server's own delay and never earlier: `notes`
says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from lab.base.errors import LabError
from lab.model.events import Event
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import Api, Object
from lab.targets.cluster.pod_events import PodEvents, Probing
from lab.targets.cluster.reloads import Followed
from lab.targets.cluster.watches import Watched


class ClusterRecorder:
    """Entered and left once."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._told = PodEvents(self._started)
        # Pods first: what the others tell of is known then.
        self._watches = [
            Watched(api, "v1", "Pod", namespace, self._told.pod),
            Watched(api, "discovery.k8s.io/v1", "EndpointSlice", namespace, self._told.slice),
            Watched(api, "v1", "Event", namespace, self._told.event),
        ]
        self._probing = Probing(api, namespace, self._told)
        self._logs: list[Followed] = []
        self._fault: LabError | None = None
        self._left = threading.Event()

    def __enter__(self) -> ClusterRecorder:
        try:
            for watch in self._watches:
                watch.start()
            self._probing.start()
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
        logs = [lambda log=log: log.stop(self._told.ended(log.container_id)) for log in list(self._logs)]
        for stop in (self._probing.stop, *(watch.stop for watch in self._watches), *logs):
            try:
                stop()
            except LabError as error:  # the first is told by `events`; the rest must end as well
                self._fault = self._fault or error
        for log in self._logs:
            behind_s = min(other.behind_s for other in self._logs if other.node == log.node)
            for written_s, event in log.told:
                self._told.say(written_s + behind_s, "proxy", log.pod, event)

    def say(self, kind: str, name: str, detail: str) -> None:
        """What the API server answered the lab itself."""
        self._told.say(time.time(), "api", name, kind, detail)

    def events(self) -> Sequence[Event]:
        if self._fault is not None:
            raise self._fault
        return self._told.events()

    def notes(self) -> Sequence[str]:
        """What a reader of the events must know; only afterwards."""
        notes = ["what the API server tells of pods and endpoints comes later than it was, never earlier"]
        if self._probing.denied:
            lack = f"single probes cannot be seen ({self._probing.denied})"
            notes.append(f"{lack}, only those that the kubelet reports as failed")
        return notes

    def _started(self, pod: Object, container_id: str, before: bool) -> None:
        """In the thread of the pods' watch: a container of the proxy's runs, and its log is followed."""
        if pod["metadata"]["labels"].get(ROLE_LABEL) == "proxy" and not self._left.is_set():
            name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            place = (self._api, self._namespace, name, container, container_id)
            self._logs.append(Followed(*place, pod["spec"]["nodeName"], whole=not before))
