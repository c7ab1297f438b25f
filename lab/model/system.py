"""What may be done to a system that is up, and asked of it, whatever target it runs on: all that a disturbance uses."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol

from lab.model.endpoint import ClockOffset, Endpoint, HowToEnd, Response, Role
from lab.model.events import Event


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
