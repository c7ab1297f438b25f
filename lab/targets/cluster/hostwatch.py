"""Who else works on this machine, where the cluster's nodes are containers on it (kind): the host's own /proc tells.

Beside the lab (this process and its descendants), the nodes' containers, the container engine and kernel threads,
every process is somebody else's; what runs inside the nodes, the kubelets tell of (`lab.targets.cluster.kubelet`).
Refuses to say anything where no process of the nodes can be seen: an engine in a virtual machine or on another host.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from lab.targets.cluster.sampling import Elsewhere
from lab.targets.common.sampler import KTHREADD, descends, host_proc, host_processes

ENGINE = re.compile(r"dockerd|containerd|containerd-shim.*|docker-proxy|docker-init|runc.*|podman|conmon|crun")
"""Programs of container engines, by the name in /proc/PID/stat (15 characters): they carry the cluster."""


class HostWatch:
    """What `ClusterWatch` asks. It remembers whose a process is, so that /proc/PID/cgroup is read once of each.

    `nodes`: ids of the nodes' containers, as the engine tells them in full.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._in_node: dict[tuple[int, int], bool] = {}

    def __call__(self, _: Sequence[str]) -> Callable[[], Elsewhere]:
        start_s, start = time.monotonic(), self._foreign_s()

        def end() -> Elsewhere:
            now = self._foreign_s()
            if start is None or now is None:
                return Elsewhere(None)
            return Elsewhere(max(0.0, now - start) / (time.monotonic() - start_s))

        return end

    def _foreign_s(self) -> float | None:
        """CPU seconds so far of everybody else's processes, their ended children included; None = cannot be seen."""
        proc, own = host_proc()
        processes = host_processes(proc)
        alive = {(pid, process.start) for pid, process in processes.items()}
        self._in_node = {key: inside for key, inside in self._in_node.items() if key in alive}
        foreign_s, seen = 0.0, False
        for pid, process in processes.items():
            if descends(pid, (own, KTHREADD), processes) or ENGINE.fullmatch(process.title):
                continue
            if self._inside(proc, pid, process.start):
                seen = True
            else:
                foreign_s += process.cpu_s
        return foreign_s if seen else None

    def _inside(self, proc: str, pid: int, start: int) -> bool:
        key = (pid, start)
        if key not in self._in_node:
            with suppress(OSError), open(f"{proc}/{pid}/cgroup") as handle:  # it may end meanwhile
                text = handle.read()
                self._in_node[key] = any(node in text for node in self._nodes)
        return self._in_node.get(key, False)
