"""The dataclasses for a pod with its containers, probes and volumes, which `deployments.py` reads from a Deployment."""

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
        kind: the way of probing: `httpGet`, `tcpSocket` or `exec`.
        port: the container port that the probe connects to; 0 for an `exec` probe.
        path: the path that an `httpGet` probe requests; empty for other kinds.
        headers: the request headers of an `httpGet` probe.
        command: the command of an `exec` probe; empty for other kinds.
        initial_delay_s: the seconds before the first probe.
        period_s: the seconds between two probes.
        timeout_s: the seconds after which a probe without an answer counts as failed.
        successes: the number of successes in a row that make the container healthy.
        failures: the number of failures in a row that make the container unhealthy.
        grace_s: the seconds that the container gets to end after the probe failed; None = the pod's `grace_s`.

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
        name: the volume's name in the pod.
        source: the kind and name of the object with the volume's files; None for an emptyDir.
        items: key of that object → file name in the volume; empty = every key is a file of that name.
        size: the size limit of an emptyDir, such as `260Mi`; empty = no limit.
        memory: whether an emptyDir is in memory instead of on the node's disk.

    """

    name: str
    source: tuple[Literal["ConfigMap", "Secret"], str] | None = None
    items: Mapping[str, str] = field(default_factory=dict[str, str])
    size: str = ""
    memory: bool = False

    @property
    def on_disk(self) -> bool:
        """True if a pod's volume is an emptyDir on the node's disk; False for an emptyDir in memory, a ConfigMap or a Secret."""
        return self.source is None and not self.memory


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod, as its manifest describes it.

    Attributes:
        place: the container's place in the manifest, for error messages.
        ports: name of a container port → its number. A port without a name has its number as text for a key.
        limits: resource (such as `cpu`) → limit, as the manifest has it.
        uid: the user id that the container runs with.
        gid: the group id that the container runs with.
        pre_stop: the command of the container's preStop hook; empty = it has none.
        host_ports: container port → port of the node that leads to it.

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
        """The repository of a container's image (`docker.io/library/nginx` for the image `docker.io/library/nginx:1.29`)."""
        head, _, tail = self.image.split("@")[0].rpartition("/")
        return f"{head}/{tail.split(':')[0]}" if head else tail.split(":")[0]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a Deployment, as the lab has read it from the manifest.

    Attributes:
        name: the pod's name, `DEPLOYMENT-NUMBER`; empty in a Deployment's template.
        place: the Deployment of the pod, for error messages.
        role: the value of the label `lab/role`: `proxy`, `backend` or `balancer`.
        sysctls: name → value of the kernel settings in the pod's network namespace.
        grace_s: the seconds that the pod has to end, from its preStop hook on.
        volumes: name → volume.
        init: the init containers, in their order.
        host_network: whether the pod uses the node's own network.
        shares_cpus: whether the pod may have more workers than CPUs.

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
        """The name of the Deployment to which a pod belongs, such as `proxy` for the pod `proxy-0`."""
        return self.name.rpartition("-")[0]

    @property
    def host_ports(self) -> Mapping[int, int]:
        """The ports of the node that a pod uses: number of a container port → number of the node's port.

        For a pod with hostNetwork, each container port is also the node's port of the same number.
        """
        if self.host_network:
            return {port: port for container in self.containers for port in container.ports.values()}
        return {inner: outer for container in self.containers for inner, outer in container.host_ports.items()}

    def excludes(self, other: Pod) -> bool:
        """Return whether two pods cannot run on one node, because both use the same port of the node."""
        return bool({*self.host_ports.values()} & {*other.host_ports.values()})

    def port(self, port: int | str) -> int:
        """Return the number of a container port of the pod, which may be given by its name.

        Args:
            port: the name of the port, or its number, which is returned unchanged.

        Raises:
            UsageError: when no container has a port of that name.

        """
        if isinstance(port, int):
            return port
        numbers = {name: number for container in self.containers for name, number in container.ports.items()}
        refuse_unknown(port, numbers, self.place, f"no container port is called {port!r}")
        return numbers[port]
