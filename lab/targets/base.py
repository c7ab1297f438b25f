"""What every target can do. The run loop knows only these two protocols, so tests hand it fakes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from lab.generators import Generator, Installed
from lab.model.endpoint import ClockOffset, Endpoint, HowToEnd, Ran, Response, Role
from lab.model.events import Event
from lab.model.load import Load
from lab.model.sweeps import Point
from lab.model.usage import Observation
from lab.model.variants.variants import Variant


class Watch(Protocol):
    """A context manager around the measuring: looks at the system at both ends and meanwhile."""

    def __enter__(self) -> Watch: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def observation(self) -> Observation:
        """What was seen between both ends; only afterwards."""
        ...


class Recorder(Protocol):
    """A context manager around the measuring: what happens to the system meanwhile, from the system itself."""

    def __enter__(self) -> Recorder: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def events(self) -> Sequence[Event]:
        """All that was seen, by the lab's clock; only afterwards. MeasuringError when some may be missing."""
        ...

    def notes(self) -> Sequence[str]:
        """What a reader of the events must know of them; only afterwards."""
        ...


class System(Protocol):
    """One variant, up and answering.

    What a disturbance does to it (from `recorder` on) may be asked of a system that was brought up with `changing` only,
    and leaves it changed: nothing else is measured on it afterwards. All of it raises MeasuringError when refused.
    """

    def entry(self) -> Endpoint:
        """Where clients go: the proxy, or the backend where there is none."""
        ...

    def endpoint(self, point: Point) -> Endpoint:
        """Where this point's load goes. UsageError if the system cannot serve the point (TLS mode, routes)."""
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
        """Start a generator in the client's place, on the generator's CPUs, in a session of its own.

        `files`, by name, lie in the folder that it starts in: `cwd`, or, where the client's place is on another machine,
        a scratch folder there. When the process that this returns is killed, what it stands for ends as well.
        """
        ...

    def generate(self, load: Load, files: Mapping[str, str]) -> Ran:
        """One load made by `load.generators` at once, each in a place of its own; only where the target let the point pass."""
        ...

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a helper (a round-trip server) in the place and on the CPUs of a role; it ends with the system at the latest."""
        ...

    def shape(self, link_mbit: float | None) -> None:
        """Shape the client's link in both directions, None = not at all; idempotent. MeasuringError if it does not take."""
        ...

    def watch(self) -> Watch:
        """CPU, memory and counters of every role, from now on; `counters` are among them."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Cumulative counts that the target knows beside the kernel's, by `role/name`; a sample records their increase.

        Where they exist: `client/rx_bytes`, `client/tx_bytes` (on the wire), `proxy/tls_handshakes` (all) and
        `proxy/tls_resumed`, and of containers with a CPU limit, `<role>/cpu_periods`, `<role>/cpu_throttled_periods`,
        `<role>/cpu_throttled_us`; of those with a memory limit `<role>/memory_limit_hits`.
        """
        ...

    def gauges(self) -> Mapping[str, float]:
        """What the system says of itself now, by `role/name`, where the target can tell.

        `proxy/config_bytes`: configuration and maps; `proxy/load_s`: from the proxy's last start or reload until it served.
        """
        ...

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """The running, ready pods of a role as Kubernetes would show them (`spec`, …), from what is really in force."""
        ...

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """The PodDisruptionBudgets over the role's pods as Kubernetes would show them (`metadata`, `spec`), from what is in force."""
        ...

    def processes(self, role: Role) -> list[int]:
        """What tells the processes apart that make up a role now, children included; on this machine, their ids."""
        ...

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside the first container of the role's first pod (its network, mounts and /proc)."""
        ...

    def restarts(self) -> Mapping[str, int]:
        """Container → times it was restarted since bring-up."""
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

    # -- what disturbances do, and see ------------------------------------------------------------------

    def recorder(self) -> Recorder:
        """Pods, endpoints, probes, restarts and reloads from now on (`lab.events` has the kinds)."""
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
        ...

    def roll(self, role: Role) -> None:
        """A rolling update of the role's Deployment to the same containers, by its strategy. Returns when it was asked for."""
        ...

    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop (SIGSTOP) or continue every process of the role's first pod."""
        ...

    def squeeze(self, role: Role, cpu: str | None) -> None:
        """A CPU limit (`20m`) for the first container of the role's pods while they run; None = as the manifests say."""
        ...

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or change Routes, Ingresses, Services and EndpointSlices; returns when the system has accepted them.

        When the proxy serves them is its own affair, and what is measured.
        """
        ...


class Target(Protocol):
    name: str
    bring_up_s: float
    """How long a variant takes to come up here, about: for forecasts, until a run has shown it."""

    def at(self, context: str | None) -> Target:
        """The same target at a kubeconfig context. UsageError where it needs one and there is none, or the other way round."""
        ...

    def check(self) -> None:
        """UsageError when a prerequisite is missing; no system has been started.

        On a cluster the lab takes its place there: its lease, and the generator's pod.
        """
        ...

    def installed(self, generator: Generator) -> Installed | None:
        """The generator as it is found in the client's place; only after `check`."""
        ...

    def check_variant(self, variant: Variant, points: Sequence[Point]) -> Mapping[str, Endpoint]:
        """UsageError when this target cannot realise the variant or serve one of the points; starts nothing.

        Point → where its load will go: hosts and TLS are right, the address is known only once the system is up.
        """
        ...

    def enter(self, argv: Sequence[str]) -> int | None:
        """Go on inside the target's own process tree, if it has one: the exit status of `python -m lab argv` there.

        None when this process is where the run belongs (already inside, or no such tree).
        """
        ...

    def facts(self) -> Mapping[str, str]:
        """What the target adds to the run's facts (versions of proxies, modes)."""
        ...

    def close(self) -> None:
        """Give back what `check` took. Idempotent."""
        ...

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        """The CPUs each role is pinned to; empty where roles are not pinned (then `Observation.cores` tells how busy they were)."""
        ...

    def up(self, variant: Variant, changing: bool = False) -> AbstractContextManager[System]:
        """Bring the variant up and wait until it is ready; tear it down at exit.

        `changing`: pods and routes may come and go (`System.end_pod` and the like): clients reach the proxy through a
        Service's address that stays.

        MeasuringError when it does not come up, LostError when nothing else will either.
        """
        ...
