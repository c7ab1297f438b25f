"""What may be done to a system that is up (all that a disturbance uses), and what is measured, read back and recorded of it, on any target."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from lab.model.endpoint import ClockOffset, Endpoint, HowToEnd, Ran, Response, Role
from lab.model.events import Event
from lab.model.leftovers import Leftovers
from lab.model.load import Load
from lab.model.pairs import Renewed
from lab.model.usage import Observation

if TYPE_CHECKING:  # sweeps name disturbances, which are done to a system
    from lab.model.sweeps import Point


class Recorder(AbstractContextManager["Recorder"], Protocol):
    """Around the measuring: what happens to the system meanwhile, from the system itself."""

    def events(self) -> Sequence[Event]:
        """All that was seen, by the lab's clock; only afterwards. MeasuringError when some may be missing."""
        ...

    def notes(self) -> Sequence[str]:
        """What a reader of the events must know of them; only afterwards."""
        ...


class Disturbable(Protocol):
    """One variant, up and answering, and what can be done to it.

    What changes it (from `recorder` on) may be asked of a system that was brought up with `changing` only, and leaves it
    changed: nothing else is measured on it afterwards. All of it raises MeasuringError when refused.
    """

    def entry(self) -> Endpoint:
        """Where clients go: the proxy, or the backend where there is none."""
        ...

    def backend_endpoint(self) -> Endpoint:
        """The backend itself, for the canary's truth."""
        ...

    def pod_address(self, role: Role) -> str:
        """The IP address of the role's first pod itself, which `spawn` starts its helpers in; no Service's."""
        ...

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        """One request from the client's place, on a connection of its own; `body` as it came. Raises OSError."""
        ...

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a generator in the client's place, on the generator's CPUs, in a session of its own and an environment of the lab's.

        `files`, by name, lie in the folder that it starts in: `cwd`, or, where the client's place is on another machine,
        a scratch folder there. When the process that this returns is killed, what it stands for ends as well.
        """
        ...

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a helper (a round-trip server) in the place and on the CPUs of a role; it ends with the system at the latest."""
        ...

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """The running, ready pods of a role as Kubernetes would show them (`spec`, …), from what is really in force."""
        ...

    def restarts(self) -> Mapping[str, int]:
        """Container → times it was restarted since bring-up."""
        ...

    def recorder(self) -> Recorder:
        """Pods, endpoints, probes, restarts and reloads from now on (`lab.model.events` has the kinds)."""
        ...

    def clock(self) -> ClockOffset:
        """Measured now."""
        ...

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """End the role's first pod. Its Deployment makes another at once, which starts when it can. Returns when it was asked for.

        False: an eviction was refused by a PodDisruptionBudget (an event says so); the caller may try again.
        """
        ...

    def scale(self, role: Role, replicas: int) -> None:
        """Of the role's Deployment. Returns when it was asked for."""

    def roll(self, role: Role) -> None:
        """A rolling update of the role's Deployment to the same containers, by its strategy. Returns when it was asked for."""

    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop (SIGSTOP) or continue every process of the role's first pod."""

    def squeeze(self, role: Role, cpu: str | None) -> None:
        """A CPU limit (`20m`) for the first container of the role's pods while they run; None = as the manifests say."""

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or change Routes, Ingresses, Services and EndpointSlices; returns when the system has accepted them.

        When the proxy serves them is its own affair, and what is measured.
        """


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
