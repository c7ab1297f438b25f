"""The interface of a system that is up, on any target: to measure it, read settings back and record its state.

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
    """A context manager around a measurement that observes the system at both ends and in between."""

    def observation(self) -> Observation:
        """Return what was observed between both ends; call it after the context only."""
        ...


class System(Disturbable, Protocol):
    """A variant that is up and answering. All methods raise MeasuringError when they are refused."""

    def endpoint(self, point: LoadPoint) -> Endpoint:
        """Return the address of this point's load.

        Raises:
            UsageError: The system cannot serve the point (TLS mode, routes).

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
        """Prepare the start of a generator, and return a context manager with the function that starts it.

        The arguments are those of `popen`. Everything that the start needs is made, or begun, before the function is called. If the
        function is never called, nothing is left behind.
        """
        ...

    def generate(self, load: GeneratorLoad, files: Mapping[str, str]) -> GeneratorsOutput:
        """Make one load with `load.generators` generators at once, each in a separate place.

        It is allowed only where the target has accepted the load point, and within a `watch`. The watch counts only what happens from the
        generators' beginning on.

        Args:
            load: The load of all generators together.
            files: The text of each file that a generator needs, by file name.

        """
        ...

    def shape(self, link_mbit: float | None) -> None:
        """Shape the client's link in both directions (idempotent); None removes the limit.

        Raises:
            MeasuringError: The limit does not take effect.

        """
        ...

    def watch(self) -> Watch:
        """Return a watch of CPU, memory and counters of every role, from now on; `counters` are among them."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Return the cumulative counts that the target knows in addition to the kernel's, by `role/name`.

        A sample records their increase. Where they exist, they are:

        - `client/rx_bytes`, `client/tx_bytes`: bytes on the wire
        - `proxy/requests`: HTTP requests, as the proxy itself counts them; `proxy/requests_h2`: those of them by HTTP/2
        - `proxy/tls_handshakes`: all TLS handshakes; `proxy/tls_resumed`: those that resumed a session
        - `<role>/cpu_periods`, `<role>/cpu_throttled_periods`, `<role>/cpu_throttled_us`: of containers with a CPU limit
        - `<role>/memory_limit_hits`: of containers with a memory limit
        """
        ...

    def gauges(self) -> Mapping[str, float]:
        """Return what the system reports of itself now, by `role/name`, where the target can read it.

        - `proxy/config_bytes`: the size of configuration and maps
        - `proxy/load_s`: the seconds from the proxy's last start or reload until it served
        - `proxy/workers`: the number of workers or threads that run in all its pods
        """
        ...

    def leftovers(self) -> Leftovers:
        """Look at what earlier loads have left in the system now.

        The proxy's processes that the first look finds count as the ordinary ones; so do those of the first look after `renew`. A place
        that cannot be looked at is in `unseen`.
        """
        ...

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the PodDisruptionBudgets in force over the role's pods, in Kubernetes' form (`metadata`, `spec`)."""
        ...

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap as it is in force now; empty where there is no such ConfigMap."""
        ...

    def processes(self, role: Role) -> list[int]:
        """Return numbers that identify the processes of a role now, children included; on this machine, their ids."""
        ...

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside the first container of the role's first pod (its network, mounts and /proc)."""
        ...

    def ask(self, role: Role, port: int, path: str) -> str:
        """Return the answer of the role's first pod to a GET on its loopback.

        Raises:
            OSError: There is no answer.

        """
        ...

    def renew(self) -> Renewed:
        """Reload the proxy's unchanged configuration, so that it makes new workers; return when only they serve.

        It is allowed only where `check_variant` accepted a point with several generations.

        Raises:
            MeasuringError: The proxy makes no new workers, or the old ones do not end.

        """
        ...

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """Return a record of each pod that came up: role, node, images with digests, restarts; empty without pods."""
        ...

    def unapplied(self) -> Sequence[str]:
        """Return the requests of the manifests that this target did not apply (for example a memory limit).

        Each of them makes samples invalid.
        """
        ...

    def log_tail(self) -> str:
        """Return the last lines of the proxy's and backend's error output."""
        ...
