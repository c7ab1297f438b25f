"""What every target can do. The run loop knows only these two protocols, so tests hand it fakes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

from lab.sweeps import Point
from lab.variants import Variant

Role = Literal["proxy", "backend", "generator", "lab"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the load goes: a URL without path, and the Host header the routes expect."""

    base_url: str
    host: str


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    headers: Mapping[str, str]


class System(Protocol):
    """One variant, up and answering."""

    def entry(self) -> Endpoint:
        """Where clients go: the proxy, or the backend where there is none."""
        ...

    def endpoint(self, point: Point) -> Endpoint:
        """Where this point's load goes. UsageError if the system cannot serve the point (TLS mode, routes)."""
        ...

    def backend_endpoint(self) -> Endpoint:
        """The backend itself, for the canary's truth."""
        ...

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float) -> Response:
        """One request from the client's place. Raises OSError."""
        ...

    def popen(self, argv: Sequence[str], cwd: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a generator in the client's place, on the generator's CPUs, in a session of its own."""
        ...

    def processes(self, role: Role) -> list[int]:
        """Process ids (as this process sees them) that make up a role now, children included."""
        ...

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside the first container of the role's first pod (its network, mounts and /proc)."""
        ...

    def restarts(self) -> Mapping[str, int]:
        """Container → times it was restarted since bring-up."""
        ...

    def unapplied(self) -> Sequence[str]:
        """What the manifests ask for and this target did not apply (for example a memory limit): each makes samples invalid."""
        ...

    def log_tail(self) -> str:
        """The last lines of the proxy's and backend's error output."""
        ...


class Target(Protocol):
    name: str

    def check(self) -> None:
        """UsageError when a prerequisite is missing; nothing has been started."""
        ...

    def check_variant(self, variant: Variant, points: Sequence[Point]) -> None:
        """UsageError when this target cannot realise the variant or serve one of the points; starts nothing."""
        ...

    def enter(self, argv: Sequence[str]) -> int | None:
        """Go on inside the target's own process tree, if it has one: the exit status of `python -m lab argv` there.

        None when this process is where the run belongs (already inside, or no such tree).
        """
        ...

    def facts(self) -> Mapping[str, str]:
        """What the target adds to the run's facts (versions of proxies, modes)."""
        ...

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        """The CPUs each role is pinned to."""
        ...

    def up(self, variant: Variant) -> AbstractContextManager[System]:
        """Bring the variant up and wait until it is ready; tear it down at exit. MeasuringError when it does not come up."""
        ...
