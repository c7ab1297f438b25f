"""What a pod is here: its containers, probes and volumes, read from a Deployment by `deployments.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab.base.errors import refuse_unknown

ProbeKind = Literal["httpGet", "tcpSocket", "exec"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A liveness, readiness or startup probe. `port` may be a container port's name until the container is known."""

    kind: ProbeKind
    port: int
    path: str
    headers: Mapping[str, str]
    command: tuple[str, ...]
    initial_delay_s: int
    period_s: int
    timeout_s: int
    successes: int
    failures: int
    grace_s: int | None


@dataclass(frozen=True, slots=True)
class Mount:
    volume: str
    path: str
    sub_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Volume:
    """An emptyDir, or the files of a ConfigMap or a Secret (`source`: kind and name; `items`: key → file; empty = all).

    Of an emptyDir: `size` is its limit; `memory` says that it is asked for in memory and not on the node's disk.
    """

    name: str
    source: tuple[Literal["ConfigMap", "Secret"], str] | None = None
    items: Mapping[str, str] = field(default_factory=dict[str, str])
    size: str = ""
    memory: bool = False

    @property
    def on_disk(self) -> bool:
        """An emptyDir lies on the node's disk unless it asks for memory."""
        return self.source is None and not self.memory


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    place: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    ports: Mapping[str, int]
    limits: Mapping[str, str]
    privileged: bool
    uid: int
    gid: int
    pre_stop: tuple[str, ...]
    startup: Probe | None
    readiness: Probe | None
    liveness: Probe | None
    host_ports: Mapping[int, int] = field(default_factory=dict[int, int])
    """Container port → port of the node."""

    @property
    def repository(self) -> str:
        """The image without registry tag and digest."""
        name = self.image.split("@")[0]
        head, _, tail = name.rpartition("/")
        return f"{head}/{tail.split(':')[0]}" if head else tail.split(":")[0]


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    namespace: str
    place: str
    role: str
    labels: Mapping[str, str]
    sysctls: Mapping[str, str]
    grace_s: int
    volumes: Mapping[str, Volume]
    init: tuple[Container, ...]
    containers: tuple[Container, ...]
    host_network: bool = False
    shares_cpus: bool = False
    """It may have more workers than CPUs."""

    @property
    def deployment(self) -> str:
        """Its name, of which the pod's is made."""
        return self.name.rpartition("-")[0]

    @property
    def host_ports(self) -> Mapping[int, int]:
        """Container port → port of the node, which it has alone; of hostNetwork all are."""
        if self.host_network:
            return {port: port for container in self.containers for port in container.ports.values()}
        return {inner: outer for container in self.containers for inner, outer in container.host_ports.items()}

    def excludes(self, other: Pod) -> bool:
        """Both cannot be on one node, because of its ports."""
        return bool({*self.host_ports.values()} & {*other.host_ports.values()})

    def port(self, port: int | str) -> int:
        """A number as it is, a name as the container port it names."""
        if isinstance(port, int):
            return port
        named = {name: number for container in self.containers for name, number in container.ports.items()}
        refuse_unknown(port, named, self.place, f"no container port is called {port!r}")
        return named[port]
