"""The kubelets' probes, attempt by attempt: their own counts, asked every second.

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
from dataclasses import dataclass

from lab.base.errors import LabError, MeasuringError
from lab.targets.cluster.api import Api, DeniedError
from lab.targets.cluster.pod_events import PodEvents

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
