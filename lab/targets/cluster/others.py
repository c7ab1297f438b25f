"""Measurements of the CPU that foreign programs use on the cluster's nodes during a sample (a single measurement).

Foreign programs belong neither to the lab nor to the cluster itself. The use of their pods is read from the nodes' kubelets. If
the nodes are containers on this machine, the use of processes outside the nodes is read from this machine's /proc.

A kubelet measures a pod every 10 to 30 s (measured here: every 10 to 24 s), and never on request. A sample of 5 s is therefore
judged by figures that begin before the sample, and may end before the sample ends. The counter `others/window_ms` is the length
of the time that the figures cover. The counter `others/stale_pods` is the number of pods without a newer figure; their latest
known rate is used.

A pod is foreign if its namespace belongs neither to the cluster (`SYSTEM`) nor to the lab (by its label). Processes of a node
without a pod (kubelet, container runtime, a node's agents) cannot be distinguished by the kubelets' figures. `ClusterWatch`
counts them as the cluster's own.

Source of the names and times: k8s.io/kubernetes pkg/kubelet/metrics/collectors; kubernetes/kubernetes#55863.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from lab.base.errors import LostError
from lab.base.files import read_text_if_readable
from lab.model.bottleneck import MAX_OTHERS_CORES
from lab.targets.cluster.api import RUN_LABEL, Api, DeniedError, RefusedError
from lab.targets.common.sampler import KTHREADD, find_host_proc, host_processes, is_descendant

SYSTEM = re.compile(
    r"kube-.*|local-path-storage|openshift(-.*)?|calico-.*|tigera-.*|cilium.*|gke-.*|gmp-.*|amazon-.*|metallb-system"
)
"""The namespaces of what a cluster runs for itself: Kubernetes, kind's volumes, OpenShift, networks, cloud agents."""
LEAST_WINDOW_S = 10.0
"""The seconds that the first figure of a new pod is assumed to cover: the kubelet needs that long to measure a pod."""
ENGINE = re.compile(r"dockerd|containerd|containerd-shim.*|docker-proxy|docker-init|runc.*|podman|conmon|crun")
"""The programs of container engines, on which the cluster runs, by their name in /proc/PID/stat (at most 15 characters)."""

Pod = tuple[str, str]
"""The identity of a pod: (namespace, name)."""


@dataclass(frozen=True, slots=True)
class OtherUsage:
    """The CPU that foreign programs (neither the lab's nor the cluster's own) used on the lab's nodes during a sample.

    Attributes:
        cores: The used CPU seconds per second; None if the use cannot be seen.
        counters: Counters for the sample's record: `others/pods` (the number of foreign pods), `others/stale_pods`
            (how many of them have no new figure) and `others/window_ms` (the longest time that a figure covers).

    """

    cores: float | None
    counters: Mapping[str, int] = field(default_factory=dict[str, int])


OtherUsageSource = Callable[[Sequence[str]], Callable[[], OtherUsage]]
"""A source of the CPU that others use.

Call it with the nodes' names when a sample begins. Call the function that it returns when the sample ends.
"""


def sum_sources(*sources: OtherUsageSource) -> OtherUsageSource:
    """Return a source of CPU use that adds up several sources, each of which sees different processes.

    If one source cannot see its processes, the sum of the others is only a lower bound. Then the sum is returned only
    if it is already too much for a valid sample (`MAX_OTHERS_CORES`); otherwise it is None. On kind, for example, this
    machine's processes may already use too much, even if the user may not query the kubelets.
    """

    def begin(nodes: Sequence[str]) -> Callable[[], OtherUsage]:
        ends = [source(nodes) for source in sources]

        def end() -> OtherUsage:
            parts = [ask() for ask in ends]
            visible = [part.cores for part in parts if part.cores is not None]
            counters = {name: count for part in parts for name, count in part.counters.items()}
            conclusive = len(visible) == len(parts) or sum(visible) >= MAX_OTHERS_CORES
            return OtherUsage(sum(visible) if conclusive else None, counters)

        return end

    return begin


@dataclass(frozen=True, slots=True)
class PodCpuFigure:
    """The CPU use of a pod as its kubelet has last measured it.

    Attributes:
        at_s: The time of the measurement by the node's clock, in seconds since the epoch.
        cpu_s: The CPU seconds that the pod had used until then.

    """

    at_s: float
    cpu_s: float


def parse_figures(metrics: str) -> Mapping[Pod, PodCpuFigure]:
    """Parse the text of a kubelet's page /metrics/resource into the CPU use of each pod.

    Returns:
        (namespace, name) of the pod → its CPU figure.

    Raises:
        ValueError: A line has another form than expected.

    """
    by_pod: dict[Pod, PodCpuFigure] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in (sample for sample in family.samples if sample.name == "pod_cpu_usage_seconds_total"):
            if sample.timestamp is None or not {"namespace", "pod"} <= sample.labels.keys():
                raise ValueError(f"expected a pod's CPU, got {sample}")
            by_pod[sample.labels["namespace"], sample.labels["pod"]] = PodCpuFigure(
                float(sample.timestamp), sample.value
            )
    return by_pod


class Kubelets:
    """A source of the CPU that other people's pods use, as the kubelets of the lab's nodes report it.

    An object stores the kubelets' last figures. So use one object for all samples on a cluster.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._foreign: dict[str, bool] = {}
        self._earlier: dict[Pod, PodCpuFigure] = {}
        self._latest: dict[Pod, PodCpuFigure] = {}

    def __call__(self, nodes: Sequence[str]) -> Callable[[], OtherUsage]:
        """Read the pods' CPU figures at the beginning of a sample, and return the function to call at its end.

        That function reads the figures again and returns the CPU use in between. The use is None if the user may not
        query the kubelets, or if a kubelet does not answer or answers in an unknown form.

        Args:
            nodes: The names of the nodes.

        Raises:
            LostError: The API server does not answer.

        """
        before = self._read(nodes)

        def end() -> OtherUsage:
            after = self._read(nodes) if before is not None else None
            return OtherUsage(None) if before is None or after is None else self._sum_use(before, after)

        return end

    def _read(self, nodes: Sequence[str]) -> Mapping[Pod, PodCpuFigure] | None:
        """Read and return the CPU figures of other people's pods on some nodes; None if they cannot be read.

        The figures are also stored, for pods that will have no newer figure at the next reading.
        """
        by_pod: dict[Pod, PodCpuFigure] = {}
        try:
            for node in nodes:
                by_pod |= parse_figures(str(self._api.raw(f"/api/v1/nodes/{node}/proxy/metrics/resource")))
        except (DeniedError, RefusedError, ValueError):
            return None
        except LostError:
            # This raises LostError, too, if the API server is gone. Otherwise only a kubelet does not answer.
            self._api.raw("/version")
            return None
        if new := {namespace for namespace, _ in by_pod} - self._foreign.keys():
            ours = {item["metadata"]["name"] for item in self._api.list("v1", "Namespace", labels=RUN_LABEL)}
            self._foreign |= {
                namespace: namespace not in ours and SYSTEM.fullmatch(namespace) is None for namespace in new | ours
            }
        by_pod = {pod: figure for pod, figure in by_pod.items() if self._foreign[pod[0]]}
        newer = {pod for pod, latest in self._latest.items() if pod in by_pod and by_pod[pod].at_s > latest.at_s}
        self._earlier |= {pod: self._latest[pod] for pod in newer}
        self._latest |= by_pod
        return by_pod

    def _sum_use(self, before: Mapping[Pod, PodCpuFigure], after: Mapping[Pod, PodCpuFigure]) -> OtherUsage:
        """Return the CPU use of all pods between two readings of the kubelets' figures.

        If a pod has no newer figure in the second reading, its latest known rate is used.

        Args:
            before: The figures of the first reading, by (namespace, name) of the pod.
            after: The figures of the second reading, in the same form.

        """
        cores, window_s, stale = 0.0, 0.0, 0
        for pod, end in after.items():
            start = before.get(pod)
            if start is not None and end.at_s <= start.at_s:
                stale += 1
                start = self._earlier.get(pod)
                if start is None:
                    continue  # a single figure has no rate
            span_s = LEAST_WINDOW_S if start is None else end.at_s - start.at_s
            cores += max(0.0, end.cpu_s - (start.cpu_s if start else 0.0)) / span_s
            window_s = max(window_s, span_s)
        counters = {"others/pods": len(after), "others/stale_pods": stale, "others/window_ms": round(1000 * window_s)}
        return OtherUsage(cores, counters if after else {})


def watch_host(containers: Sequence[str]) -> OtherUsageSource:
    """Return a source of the CPU that foreign processes on this machine use, for a cluster whose nodes are containers here.

    A process is foreign unless it is one of these: the lab (this process and its descendants), a process in the nodes'
    containers, the container engine, or a kernel thread. Processes inside the nodes are measured by `Kubelets`. The
    use is None if no process of a node can be seen here, because the container engine is in a virtual machine or on
    another host.

    Args:
        containers: The full ids of the containers that are the cluster's nodes.

    """

    def read_foreign_s() -> float | None:
        """Return the CPU seconds that foreign processes and their ended children have used so far; None if they cannot be seen."""
        proc, own_pid = find_host_proc()
        processes = host_processes(proc)
        foreign_s, visible = 0.0, False
        for pid, process in processes.items():
            if is_descendant(pid, (own_pid, KTHREADD), processes) or ENGINE.fullmatch(process.title):
                continue
            cgroup = read_text_if_readable(f"{proc}/{pid}/cgroup")
            if any(container in cgroup for container in containers):
                visible = True
            else:
                foreign_s += process.cpu_s
        return foreign_s if visible else None

    def begin(_: Sequence[str]) -> Callable[[], OtherUsage]:
        start_s, start = time.monotonic(), read_foreign_s()

        def end() -> OtherUsage:
            now = read_foreign_s()
            if start is None or now is None:
                return OtherUsage(None)
            return OtherUsage(max(0.0, now - start) / (time.monotonic() - start_s))

        return end

    return begin
