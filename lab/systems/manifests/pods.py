"""The records of a pod with its containers, probes and volumes, which `deployments.py` reads from a Deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab.base.errors import refuse_unknown

ProbeKind = Literal["httpGet", "tcpSocket", "exec"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A liveness, readiness or startup probe of a container.

    Attributes:
        kind: how it probes.
        port: the container port that it connects to; 0 for an `exec` probe.
        path: the path that an `httpGet` probe requests; empty for the others.
        headers: the request headers of an `httpGet` probe.
        command: the command of an `exec` probe; empty for the others.
        initial_delay_s: the seconds before the first probe.
        period_s: the seconds between two probes.
        timeout_s: the seconds after which a probe has failed.
        successes: the successes in a row that change the state to healthy.
        failures: the failures in a row that change the state to unhealthy.
        grace_s: the seconds that the container has to end after the probe failed; None = as the pod's own.

    """

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
class VolumeMount:
    """A volume mounted in a container.

    Attributes:
        volume: the name of the pod's volume.
        path: the absolute path in the container, without a slash at the end.
        sub_path: the part of the volume that is mounted; empty = the volume's root.
        read_only: whether the container may not write there.

    """

    volume: str
    path: str
    sub_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of a pod: an emptyDir, or the files of a ConfigMap or a Secret.

    Attributes:
        name: its name in the pod.
        source: the kind and name of the object with its files; None for an emptyDir.
        items: key of the source → file; empty = every key is a file of that name.
        size: the size limit of an emptyDir, such as `260Mi`; empty = no limit.
        memory: whether an emptyDir lies in memory and not on the node's disk.

    """

    name: str
    source: tuple[Literal["ConfigMap", "Secret"], str] | None = None
    items: Mapping[str, str] = field(default_factory=dict[str, str])
    size: str = ""
    memory: bool = False

    @property
    def on_disk(self) -> bool:
        """The fact that the volume is an emptyDir on the node's disk, which it is unless it requests memory."""
        return self.source is None and not self.memory


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod, as its manifest describes it.

    Attributes:
        place: where it stands in the manifest, for error messages.
        ports: port name, or the number as text where it has no name → container port.
        limits: resource → limit, as written.
        pre_stop: the command of its preStop hook; empty = it has none.
        host_ports: container port → port of the node.

    """

    name: str
    place: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[VolumeMount, ...]
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

    @property
    def repository(self) -> str:
        """The image's repository, without tag and digest."""
        name = self.image.split("@")[0]
        head, _, tail = name.rpartition("/")
        return f"{head}/{tail.split(':')[0]}" if head else tail.split(":")[0]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a Deployment.

    Attributes:
        name: `<deployment>-<n>`; empty in a Deployment's template.
        place: the Deployment that it stands in, for error messages.
        role: the value of the label `lab/role`: proxy, backend or balancer.
        grace_s: the seconds that it has to end, from its preStop hook on.
        init: the init containers, in their order.
        host_network: whether it uses the node's own network.
        shares_cpus: whether it may have more workers than CPUs.

    """

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

    @property
    def deployment(self) -> str:
        """The name of its Deployment, which the pod's name begins with."""
        return self.name.rpartition("-")[0]

    @property
    def host_ports(self) -> Mapping[int, int]:
        """The ports of the node that the pod occupies, by container port; with hostNetwork, all its ports."""
        if self.host_network:
            return {port: port for container in self.containers for port in container.ports.values()}
        return {inner: outer for container in self.containers for inner, outer in container.host_ports.items()}

    def excludes(self, other: Pod) -> bool:
        """Return whether the two pods cannot be on one node, because both occupy the same port of it."""
        return bool({*self.host_ports.values()} & {*other.host_ports.values()})

    def port(self, port: int | str) -> int:
        """Return the number of a port: a number as it is, a name as the container port of that name.

        Raises:
            UsageError: when no container port has that name.

        """
        if isinstance(port, int):
            return port
        numbers = {name: number for container in self.containers for name, number in container.ports.items()}
        refuse_unknown(port, numbers, self.place, f"no container port is called {port!r}")
        return numbers[port]
