"""What is measured, read back and recorded of a system that is up, on any target, beside what may be done to it (`lab.model.disturbance`)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol

from lab.model.disturbance import Disturbable
from lab.model.endpoint import Endpoint, Ran, Role
from lab.model.leftovers import Leftovers
from lab.model.load import Load
from lab.model.pairs import Renewed
from lab.model.sweeps import Point
from lab.model.usage import Observation


class Watch(AbstractContextManager["Watch"], Protocol):
    """Around the measuring: looks at the system at both ends and meanwhile."""

    def observation(self) -> Observation:
        """What was seen between both ends; only afterwards."""
        ...


class System(Disturbable, Protocol):
    """One variant, up and answering: what is measured, read back and recorded of it. All of it raises MeasuringError when refused."""

    def endpoint(self, point: Point) -> Endpoint:
        """Where this point's load goes. UsageError if the system cannot serve the point (TLS mode, routes)."""
        ...

    def held(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[Callable[[], subprocess.Popen[bytes]]]:
        """As `popen`, which is what calling it does: whatever has to be made for it before is made now, or begun. Not called, nothing is left."""
        ...

    def generate(self, load: Load, files: Mapping[str, str]) -> Ran:
        """One load made by `load.generators` at once, each in a place of its own; only where the target let the point pass.

        Within a `watch`, for which only what is seen from their beginning on counts.
        """
        ...

    def shape(self, link_mbit: float | None) -> None:
        """Shape the client's link in both directions, None = not at all; idempotent. MeasuringError if it does not take."""
        ...

    def watch(self) -> Watch:
        """CPU, memory and counters of every role, from now on; `counters` are among them."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Cumulative counts that the target knows beside the kernel's, by `role/name`; a sample records their increase.

        Where they exist: `client/rx_bytes`, `client/tx_bytes` (on the wire), `proxy/requests` (HTTP, as the proxy itself
        counts them) and `proxy/requests_h2` (those of them by HTTP/2), `proxy/tls_handshakes` (all) and `proxy/tls_resumed`, and of containers with a CPU limit, `<role>/cpu_periods`, `<role>/cpu_throttled_periods`,
        `<role>/cpu_throttled_us`; of those with a memory limit `<role>/memory_limit_hits`.
        """
        ...

    def gauges(self) -> Mapping[str, float]:
        """What the system says of itself now, by `role/name`, where the target can tell.

        `proxy/config_bytes`: configuration and maps; `proxy/load_s`: from the proxy's last start or reload until it served;
        `proxy/workers`: workers or threads that run, counted, of all its pods.
        """
        ...

    def leftovers(self) -> Leftovers:
        """Look at what earlier loads have left in the system now. Its processes at the first look, and at the first after `renew`, are its
        ordinary ones. A place that cannot be looked at is in `unseen`.
        """
        ...

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """The PodDisruptionBudgets over the role's pods as Kubernetes would show them (`metadata`, `spec`), from what is in force."""
        ...

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap as it is in force now; empty where there is no such ConfigMap."""
        ...

    def processes(self, role: Role) -> list[int]:
        """What tells the processes apart that make up a role now, children included; on this machine, their ids."""
        ...

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside the first container of the role's first pod (its network, mounts and /proc)."""
        ...

    def ask(self, role: Role, port: int, path: str) -> str:
        """What the role's first pod answers to a GET on its own loopback. Raises OSError."""
        ...

    def renew(self) -> Renewed:
        """Have the proxy make new workers by a reload of its own, of the configuration that it has; returns when they alone serve.

        MeasuringError where it makes none, or the old ones do not end. Only where `check_variant` let a point with several generations pass.
        """
        ...

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """What came up, for the record: per pod its role, node, images with digests, restarts; empty where no pod is."""
        ...

    def unapplied(self) -> Sequence[str]:
        """What the manifests ask for and this target did not apply (for example a memory limit): each makes samples invalid."""
        ...

    def log_tail(self) -> str:
        """The last lines of the proxy's and backend's error output."""
        ...
