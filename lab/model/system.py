"""The interface of a running system on any target (this machine or a cluster): to load it, observe it and read its settings.

The actions that disrupt it are in `lab.model.disturbance`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from lab.model.disturbance import Disturbable
from lab.model.endpoint import Endpoint, GeneratorsOutput, Role
from lab.model.leftovers import Leftovers
from lab.model.load import GeneratorLoad
from lab.model.pairs import Renewed
from lab.model.sweeps import LoadPoint

if TYPE_CHECKING:
    from lab.model.usage import Observation


class Watch(AbstractContextManager["Watch"], Protocol):
    """A context manager around a measurement that observes the CPU, memory and counters of a system."""

    def observation(self) -> Observation:
        """Return the CPU, memory and counters that were observed inside the `with` block; call it only after the block."""
        ...


class System(Disturbable, Protocol):
    """The interface of a running system on any target (machine or cluster): to load and observe it and read its settings.

    Every method raises MeasuringError if the system refuses.
    """

    def endpoint(self, point: LoadPoint) -> Endpoint:
        """Return the address that the load of a load point is sent to.

        Raises:
            UsageError: The system does not serve the point's TLS mode or number of routes.

        """
        ...

    def held(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[Callable[[], subprocess.Popen[bytes]]]:
        """Prepare the start of a load generator, so that it can be started without delay.

        The arguments are those of `popen`. Everything that the start needs is set up when the `with` block begins. If
        the generator is never started, nothing is left behind.

        Returns:
            A context manager that yields the function which starts the generator.

        """
        ...

    def generate(self, load: GeneratorLoad, files: Mapping[str, str]) -> GeneratorsOutput:
        """Run `load.generators` generators at once, each in a separate place such as a pod, and return their outputs.

        A call is allowed only if the target has accepted the load point, and only inside the `with` block of `watch`.
        The watch then begins to count when the generators begin.

        Args:
            load: The load of all generators together.
            files: The files that a generator needs: name → text.

        """
        ...

    def shape(self, link_mbit: float | None, delay_ms: float = 0.0) -> None:
        """Limit the bandwidth of the client's link in both directions, and lengthen its round trips.

        A repeated call with equal values has no effect.

        Args:
            link_mbit: The limit in Mbit/s; None removes it.
            delay_ms: The added time of a round trip in milliseconds; 0 removes it.

        Raises:
            MeasuringError: The limit or the delay does not take effect.

        """

    def watch(self) -> Watch:
        """Return a context manager that observes CPU, memory and counters of all roles ("proxy", …) inside its `with` block.

        The counters include those of the method `counters`.
        """
        ...

    def counters(self) -> Mapping[str, int]:
        """Return the counters that this target can read outside a `watch`, as `role/name` → count so far.

        A sample records their increase. On a cluster, the result has only the proxy's own counts (`proxy/…`); those of
        containers are in `watch` alone. Where they exist, the counters are:

        - `client/rx_bytes`, `client/tx_bytes`: bytes on the wire
        - `proxy/requests`: HTTP requests, as the proxy itself counts them; `proxy/requests_h2`: the HTTP/2 requests
          among them
        - `proxy/tls_handshakes`: all TLS handshakes; `proxy/tls_resumed`: the handshakes that resumed a session
        - `<role>/cpu_periods`, `<role>/cpu_throttled_periods`, `<role>/cpu_throttled_us`: of containers with a CPU
          limit; if pods may change, also of those that may get one
        - `<role>/memory_limit_hits`: of containers with a memory limit
        - `node/…`: the kernel's counters of the node's network namespace, if a load balancer's node is between client
          and proxy
        """
        ...

    def gauges(self) -> Mapping[str, float]:
        """Return values that the proxy reports of itself now, as `role/name` → value. Some targets cannot read them all.

        - `proxy/config_bytes`: the size of configuration and maps
        - `proxy/load_s`: the seconds from the proxy's last start or reload until it served
        - `proxy/workers`: the number of workers or threads that run in all its pods
        """
        ...

    def leftovers(self) -> Leftovers:
        """Return what earlier loads have left in the system, such as sockets in TIME_WAIT and old worker processes.

        The first call, and the first call after `renew`, determines what the proxy's usual number of processes is. The
        field `unseen` of the result names each place that could not be examined.
        """
        ...

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the PodDisruptionBudgets that now apply to the pods of a role ("proxy", …), as Kubernetes objects."""
        ...

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap as it is in the cluster now, key → text; empty if the ConfigMap does not exist."""
        ...

    def processes(self, role: Role) -> list[int]:
        """Return a number for each running process of a role ("proxy", "backend", …), child processes included.

        The numbers identify processes, so that a later call shows which are new. For processes on this machine they are
        the process ids.
        """
        ...

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the first container of the first pod of a role ("proxy", …), and return the completed process.

        The command sees the container's network, mounts and /proc.
        """
        ...

    def ask(self, role: Role, port: int, path: str) -> str:
        """Send a GET request to the loopback address of the first pod of a role ("proxy", …); return the answer's body.

        Raises:
            OSError: There is no answer.

        """
        ...

    def renew(self) -> Renewed:
        """Reload the proxy with an unchanged configuration, so that it replaces its worker processes.

        The method returns as soon as only new workers serve. A call is allowed only if the target's `check_variant` has
        accepted a load point with several worker generations (the workers between two reloads).

        Raises:
            MeasuringError: The proxy starts no new workers, or the old ones do not end.

        """
        ...

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """Return a mapping for each pod that exists now, for the run's record.

        On a cluster, a mapping has the pod's role, node, images with their digests, and restarts. With an API server
        but without a cluster, it is the Pod object. The list is empty on a target without an API server.
        """
        ...

    def unapplied(self) -> Sequence[str]:
        """Return a text for each setting in the manifests that this target did not apply, such as a memory limit.

        Even one such setting makes the samples invalid. The list is empty if all settings were applied.
        """
        ...

    def log_tail(self) -> str:
        """Return the last lines that proxy and backend have logged, as one text with a heading for each container or pod.

        Locally these are the last lines of the error output, on a cluster those of the pods' logs.
        """
        ...
