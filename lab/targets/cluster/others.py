"""Who else works on the lab's nodes: other people's pods by the kubelets' own figures, other processes by this machine's /proc.

A kubelet looks at a pod every 10 to 30 s (measured here: every 10 to 24 s), and on nobody's request. So a sample of 5 s is judged by figures that
begin before it and may end before it does. `others/window_ms` says how long the time is that they cover, and `others/stale_pods` for how many pods
no newer figure came: of those the latest known rate counts. Refuses to call anybody's what belongs to the cluster (`SYSTEM`) or the lab (namespaces
with its label). Processes of no pod (kubelet, runtime, a node's agents) cannot be told apart there; the watch counts them as the cluster's.
Source of the names and times: k8s.io/kubernetes pkg/kubelet/metrics/collectors; kubernetes/kubernetes#55863.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from lab.base.errors import LostError
from lab.base.files import readable
from lab.model.bottleneck import MAX_OTHERS_CORES
from lab.targets.cluster.api import RUN_LABEL, Api, DeniedError, RefusedError
from lab.targets.common.sampler import KTHREADD, descends, host_proc, host_processes

SYSTEM = re.compile(
    r"kube-.*|local-path-storage|openshift(-.*)?|calico-.*|tigera-.*|cilium.*|gke-.*|gmp-.*|amazon-.*|metallb-system"
)
"""Namespaces of what a cluster runs for itself: Kubernetes, kind's volumes, OpenShift, networks, the clouds' agents."""
LEAST_WINDOW_S = 10.0
"""Of a pod that is new since the sample began: it was there for no longer than the kubelet took to look."""
ENGINE = re.compile(r"dockerd|containerd|containerd-shim.*|docker-proxy|docker-init|runc.*|podman|conmon|crun")
"""Programs of container engines, by the name in /proc/PID/stat (15 characters): they carry the cluster."""

Pod = tuple[str, str]
"""(namespace, name)"""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What others used on the lab's nodes during a sample: cores (None: not visible), and how well that is known."""

    cores: float | None
    counters: Mapping[str, int] = field(default_factory=dict[str, int])


Others = Callable[[Sequence[str]], Callable[[], Elsewhere]]
"""Asked with the nodes' names when a sample begins; what it gives is asked when the sample ends."""


def together(*sources: Others) -> Others:
    """The sum of what several see, each of them other processes.

    Not visible (None) where one of them cannot see: that is not nothing. What the rest saw is the least then, and counts
    where it alone is too much for a sample: on kind this machine's own processes do, though you may not ask the kubelets.
    """

    def begin(nodes: Sequence[str]) -> Callable[[], Elsewhere]:
        ends = [source(nodes) for source in sources]

        def end() -> Elsewhere:
            seen = [ask() for ask in ends]
            visible = [part.cores for part in seen if part.cores is not None]
            counters = {name: count for part in seen for name, count in part.counters.items()}
            known = len(visible) == len(seen) or sum(visible) >= MAX_OTHERS_CORES
            return Elsewhere(sum(visible) if known else None, counters)

        return end

    return begin


@dataclass(frozen=True, slots=True)
class Figure:
    """CPU seconds of a pod since it began, at a moment of its node's clock."""

    at_s: float
    cpu_s: float


def figures(metrics: str) -> Mapping[Pod, Figure]:
    """A kubelet's /metrics/resource. ValueError for a line of another form."""
    found: dict[Pod, Figure] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in (one for one in family.samples if one.name == "pod_cpu_usage_seconds_total"):
            if sample.timestamp is None or not {"namespace", "pod"} <= sample.labels.keys():
                raise ValueError(f"expected a pod's CPU, got {sample}")
            found[sample.labels["namespace"], sample.labels["pod"]] = Figure(float(sample.timestamp), sample.value)
    return found


class Kubelets:
    """Other people's pods. What `ClusterWatch` asks; it remembers the last figures: to be made once for all samples on a cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, bool] = {}
        self._earlier: dict[Pod, Figure] = {}
        self._latest: dict[Pod, Figure] = {}

    def __call__(self, nodes: Sequence[str]) -> Callable[[], Elsewhere]:
        """Not visible (None) where you may not ask the kubelets, or one does not answer, or says what we do not know.

        LostError when it is the API server that does not answer.
        """
        before = self._read(nodes)

        def end() -> Elsewhere:
            after = self._read(nodes) if before is not None else None
            return Elsewhere(None) if before is None or after is None else self._used(before, after)

        return end

    def _read(self, nodes: Sequence[str]) -> Mapping[Pod, Figure] | None:
        found: dict[Pod, Figure] = {}
        try:
            for node in nodes:
                found |= figures(str(self._api.raw(f"/api/v1/nodes/{node}/proxy/metrics/resource")))
        except (DeniedError, RefusedError, ValueError):
            return None
        except LostError:
            self._api.raw(
                "/version"
            )  # its LostError, if it is gone; else one kubelet is, which the API server asks for us
            return None
        if new := {namespace for namespace, _ in found} - self._known.keys():
            ours = {item["metadata"]["name"] for item in self._api.list("v1", "Namespace", labels=RUN_LABEL)}
            self._known |= {one: one not in ours and SYSTEM.fullmatch(one) is None for one in new | ours}
        found = {pod: figure for pod, figure in found.items() if self._known[pod[0]]}
        newer = {pod for pod, latest in self._latest.items() if pod in found and found[pod].at_s > latest.at_s}
        self._earlier |= {pod: self._latest[pod] for pod in newer}
        self._latest |= found
        return found

    def _used(self, before: Mapping[Pod, Figure], after: Mapping[Pod, Figure]) -> Elsewhere:
        cores, window_s, stale = 0.0, 0.0, 0
        for pod, end in after.items():
            start = before.get(pod)
            if start is not None and end.at_s <= start.at_s:
                stale += 1
                start = self._earlier.get(pod)
                if start is None:
                    continue  # one figure and no rate: known when the next one comes
            span_s = LEAST_WINDOW_S if start is None else end.at_s - start.at_s
            cores += max(0.0, end.cpu_s - (start.cpu_s if start else 0.0)) / span_s
            window_s = max(window_s, span_s)
        counters = {"others/pods": len(after), "others/stale_pods": stale, "others/window_ms": round(1000 * window_s)}
        return Elsewhere(cores, counters if after else {})


def host_watch(containers: Sequence[str]) -> Others:
    """Other processes of this machine, where the cluster's nodes are containers on it (kind): `containers`, by their ids in full.

    Beside the lab (this process and its descendants), the nodes' containers, the container engine and kernel threads,
    every process is somebody else's; what runs inside the nodes, `Kubelets` tells of. Nothing is said where no process of
    the nodes can be seen: an engine in a virtual machine or on another host.
    """

    def foreign_s() -> float | None:
        """CPU seconds so far of everybody else's processes, their ended children included; None = cannot be seen."""
        proc, own = host_proc()
        processes = host_processes(proc)
        found_s, seen = 0.0, False
        for pid, process in processes.items():
            if descends(pid, (own, KTHREADD), processes) or ENGINE.fullmatch(process.title):
                continue
            cgroup = readable(f"{proc}/{pid}/cgroup")
            if any(container in cgroup for container in containers):
                seen = True
            else:
                found_s += process.cpu_s
        return found_s if seen else None

    def begin(_: Sequence[str]) -> Callable[[], Elsewhere]:
        start_s, start = time.monotonic(), foreign_s()

        def end() -> Elsewhere:
            now = foreign_s()
            if start is None or now is None:
                return Elsewhere(None)
            return Elsewhere(max(0.0, now - start) / (time.monotonic() - start_s))

        return end

    return begin
