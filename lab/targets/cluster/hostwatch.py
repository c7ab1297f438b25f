"""Who else works on this machine, where the cluster's nodes are containers on it (kind): the host's own /proc tells.

Beside the lab (this process and its descendants), the nodes' containers, the container engine and kernel threads,
every process is somebody else's; what runs inside the nodes, the kubelets tell of (`lab.targets.cluster.kubelet`).
Refuses to say anything where no process of the nodes can be seen: an engine in a virtual machine or on another host.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab.targets.cluster.sampling import Elsewhere, Others
from lab.targets.common.sampler import KTHREADD, TICK_S, host_proc, parse_stat

ENGINE = re.compile(r"dockerd|containerd|containerd-shim.*|docker-proxy|docker-init|runc.*|podman|conmon|crun")
"""Programs of container engines, by the name in /proc/PID/stat (15 characters): they carry the cluster."""


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    start: int
    title: str
    cpu_s: float
    """Its own and that of children it has waited for."""


def others(nodes: Sequence[str]) -> Others:
    """`nodes`: ids of the nodes' containers, as the engine tells them in full."""
    host = _Host(nodes)

    def begin(_: Sequence[str]) -> Callable[[], Elsewhere]:
        start_s, start = time.monotonic(), host.foreign_s()

        def end() -> Elsewhere:
            now = host.foreign_s()
            if start is None or now is None:
                return Elsewhere(None)
            return Elsewhere(max(0.0, now - start) / (time.monotonic() - start_s))

        return end

    return begin


class _Host:
    """Remembers whose a process is, so that /proc/PID/cgroup is read once of each."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._in_node: dict[tuple[int, int], bool] = {}

    def foreign_s(self) -> float | None:
        """CPU seconds so far of everybody else's processes, their ended children included; None = cannot be seen."""
        proc, own = host_proc()
        processes = _processes(proc)
        alive = {(pid, process.start) for pid, process in processes.items()}
        self._in_node = {key: inside for key, inside in self._in_node.items() if key in alive}
        foreign_s, seen = 0.0, False
        for pid, process in processes.items():
            if _below(pid, (own, KTHREADD), processes) or ENGINE.fullmatch(process.title):
                continue
            if self._inside(proc, pid, process.start):
                seen = True
            else:
                foreign_s += process.cpu_s
        return foreign_s if seen else None

    def _inside(self, proc: str, pid: int, start: int) -> bool:
        key = (pid, start)
        if key not in self._in_node:
            try:
                with open(f"{proc}/{pid}/cgroup") as handle:
                    text = handle.read()
            except OSError:
                return False  # it ended while we looked
            self._in_node[key] = any(node in text for node in self._nodes)
        return self._in_node[key]


def _processes(proc: str) -> Mapping[int, _Process]:
    found: dict[int, _Process] = {}
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/stat", "rb") as handle:
                title, fields = parse_stat(handle.read())
        except OSError:
            continue  # it ended while we looked
        cpu_s = sum(map(int, fields[11:15])) * TICK_S
        found[int(name)] = _Process(int(fields[1]), int(fields[19]), title, cpu_s)
    return found


def _below(pid: int, roots: Sequence[int], processes: Mapping[int, _Process]) -> bool:
    while pid in processes:
        if pid in roots:
            return True
        pid = processes[pid].parent
    return False
