"""The base of all disruptions of a system under load: the keys of every kind, and the interface to the system.

The kinds themselves are not known here: the caller that validates a table passes them in (`make_validation_context`).
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo

from lab.base.errors import did_you_mean
from lab.base.validation import Record, format_faults
from lab.model.endpoint import ClockOffset, Endpoint, HowToEnd, Response, Role

if TYPE_CHECKING:
    from lab.model.events import Event, EventLog

Manifests = Sequence[Mapping[str, Any]]
_KINDS = "kinds of disturbances"


class Recorder(AbstractContextManager["Recorder"], Protocol):
    """A context manager around a measurement that records what happens to the system, as the system reports it."""

    def events(self) -> Sequence[Event]:
        """Return all events by the lab's clock; call it after the context only.

        Raises:
            MeasuringError: Some events may be missing.

        """
        ...

    def notes(self) -> Sequence[str]:
        """Return remarks for readers of the events; call it after the context only."""
        ...


class Disturbable(Protocol):
    """A variant that is up and answering, with the actions that disrupt it.

    The actions that change it (from `recorder` on) are only allowed on a system that was brought up with `changing`. They leave it
    changed: nothing else is measured on it afterwards. All methods raise MeasuringError when they are refused.
    """

    def entry(self) -> Endpoint:
        """Return the address that clients use: the proxy, or the backend where there is no proxy."""
        ...

    def backend_endpoint(self) -> Endpoint:
        """Return the address of the backend itself, with whose answer the canary (a checked request) is compared."""
        ...

    def pod_address(self, role: Role) -> str:
        """Return the IP address of the role's first pod, where `spawn` starts its helpers; not that of a Service."""
        ...

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request from the client's side on a new connection and return the answer; `body` as it came.

        Raises:
            OSError: There is no answer.

        """
        ...

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a generator on the client's side, on the generator's CPUs.

        It has a separate session and the lab's environment. When the returned process is killed, the process that it represents ends too.

        Args:
            argv: The command.
            cwd: The folder that it starts in; a scratch folder replaces it where the client's side is on another machine.
            stdout: The file for its output.
            stderr: The file for its error output.
            files: Texts by file name, which are put into that folder.

        """
        ...

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a helper (a round-trip server) next to a role, on the role's CPUs.

        The helper ends with the system at the latest.
        """
        ...

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the running, ready pods of a role in Kubernetes' form (`spec`, …), as they are really in force."""
        ...

    def restarts(self) -> Mapping[str, int]:
        """Return how often each container was restarted since bring-up, by its name."""
        ...

    def recorder(self) -> Recorder:
        """Return a recorder of pods, endpoints, probes, restarts and reloads from now on (see `lab.model.events`)."""
        ...

    def clock(self) -> ClockOffset:
        """Measure how far the generator's clock is ahead of the lab's clock now."""
        ...

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """End the role's first pod, and return when the request was made.

        Its Deployment makes another at once, which starts when it can. A crash only ends the pod's first container, which the kubelet
        restarts in the same pod.

        Returns:
            False when a PodDisruptionBudget refused an eviction (an event records it); the caller may try again.

        """
        ...

    def scale(self, role: Role, replicas: int) -> None:
        """Scale the role's Deployment, and return when the request was made."""

    def roll(self, role: Role) -> None:
        """Request a rolling update of the role's Deployment to the same containers, by its strategy, and return."""

    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop (SIGSTOP) the processes of the role's first pod, or continue what was stopped.

        On a cluster these are the processes of the pod's first container, except its PID 1.
        """

    def squeeze(self, role: Role, cpu: str | None) -> None:
        """Limit the CPU of the first container of the role's running pods.

        Args:
            role: The role of the pods.
            cpu: The limit in Kubernetes' form (`20m`); None restores the manifests' limit.

        """

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or change Routes, Ingresses, Services and EndpointSlices; return when the system has accepted them.

        The proxy may serve them later; when it does is what is measured.
        """


class Disturbance(Record, strict=True):
    """The keys and the interface that every kind of disruption has.

    Each kind is a subclass with a field `kind`, and a row of `lab.disturbances.DISTURBANCES`.
    """

    host: ClassVar[str | None] = None
    """The host that the load requests, where it is not the first of the variant."""
    awaited: ClassVar[frozenset[int]] = frozenset()
    """The statuses that do not count as failures until the disruption has been done, as a 2xx answer shows."""
    loads_client: ClassVar[bool] = False
    """Whether the disruption works on the client's side, too.

    Busy CPUs there are then no proof that the generator was overloaded; requests that were sent late are.
    """

    at_s: float = Field(default=5.0, ge=1, le=3600, description="when it begins, after the load began")

    @property
    def lasts_s(self) -> float:
        """The approximate seconds for which a disruption may matter from its beginning (`at_s`) on.

        The load must last longer than until then.
        """
        return self.acts_s + 1

    @property
    def acts_s(self) -> float:
        """The seconds for which a disruption acts from its beginning (`at_s`) on, without the system's recovery.

        The latencies "during" a disruption cover this time where no event End was logged: in control runs, and for kinds that have nothing
        to undo. A momentary disruption acts until the system has recovered.
        """
        raise NotImplementedError

    @property
    def fixtures(self) -> tuple[str, ...]:
        """The components of manifests/fixtures that a disruption adds to every variant of the run."""
        return ()

    @property
    def prepared(self) -> tuple[object, ...]:
        """The key of the state that a disruption's `prepare` sets up: its host and fixtures.

        Load points with different keys have separate control runs (the same load without the disruption).
        """
        return self.host, self.fixtures

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant that this disruption cannot be applied to, by its manifests alone.

        Raises:
            UsageError: The variant and the disruption do not fit.
            NotMeasurableError: This machine or target cannot show it.

        """

    def prepare(self, context: DisturbanceContext) -> None:
        """Set up what control runs and disrupted runs both need, before the load.

        Raises:
            MeasuringError: It could not be set up.

        """

    def disturb(self, context: DisturbanceContext) -> None:
        """Disrupt the system from `at_s` on, in a thread during the load; not called in control runs.

        It logs the event Begin before it does anything, and End once everything is undone, before it waits for the recovery.
        `context.wait` raises LoadEndedError at the load's end.

        Raises:
            MeasuringError: It could not be done.

        """
        raise NotImplementedError


class LoadEndedError(Exception):
    """The error that the load has ended: the rest of a disruption would not be observed."""


@dataclass(slots=True)
class DisturbanceContext:
    """The objects that a disruption may use: the system, the log, and the time since the load began."""

    system: Disturbable
    log: EventLog
    manifests: Manifests
    folder: Path
    """A scratch folder for the outputs of what `Disturbable.popen` starts during the load."""
    find: Callable[[str], str]
    """A function that returns the path of a generator on the client's side, or raises MeasuringError without one."""
    beside: ExitStack = field(default_factory=ExitStack)
    """The stack for what `prepare` starts: it runs during the load, in control runs too, and ends with it."""
    over: threading.Event = field(default_factory=threading.Event)
    """The flag that the load has ended."""
    began: float = field(default_factory=time.monotonic)
    """The time at which the load began, by `time.monotonic`."""

    @property
    def now_s(self) -> float:
        """The seconds since the load began."""
        return time.monotonic() - self.began

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds, or raise LoadEndedError when the load ends first."""
        if self.over.wait(max(0.0, seconds)):
            raise LoadEndedError

    def wait_until(self, at_s: float) -> None:
        """Wait until this many seconds after the load began, or raise LoadEndedError when the load ends first."""
        self.wait(at_s - self.now_s)

    def say(self, kind: str, object: str = "", detail: str = "", role: str = "") -> None:  # noqa: A002 - the column's name
        """Log an event of now, with the lab as its source."""
        self.log.add("lab", kind, object, detail, role)

    def change(self, number: int, way: str, objects: Manifests, role: str = "") -> None:
        """Apply objects as a numbered change, and log the change with the time just before the system received it.

        Args:
            number: The number of the change.
            way: The word that names how answers show the change (see `lab.model.events`).
            objects: The manifests.
            role: The role for the event.

        """
        at_s, began = time.time(), time.monotonic()
        self.system.apply(objects)
        took_s = time.monotonic() - began
        self.log.add("lab", "Change", str(number), f"{way} accepted after {took_s:.4f} s", role, at_s)


def make_validation_context(kinds: Mapping[str, type[Disturbance]]) -> dict[str, Any]:
    """Return the validation context (for `model_validate` and the like) that makes these kinds of tables valid.

    Args:
        kinds: The classes of disruptions, by the name of their kind.

    """
    return {_KINDS: kinds}


def parse_disruption(value: object, kinds: Mapping[str, type[Disturbance]]) -> object:
    """Return a table with a `kind` as an instance of that kind's class.

    A value that is no table returns unchanged, for pydantic to check.

    Raises:
        ValueError: The kind is unknown, or the table does not fit it.

    """
    if not isinstance(value, Mapping):
        return value
    name = value.get("kind")
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"disturbance.kind: unknown kind {name!r}: {did_you_mean(str(name), kinds)}")
    kind = kinds[name]
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        message = "; ".join(f"disturbance.{fault}" for fault in format_faults(error, kind))
        raise ValueError(message) from None


def _parse_in_context(value: object, info: ValidationInfo) -> object:
    if isinstance(value, Mapping) and _KINDS not in (info.context or {}):
        raise LookupError("a table of a disturbance is validated with the context that `make_validation_context` gives")
    return parse_disruption(value, (info.context or {}).get(_KINDS, {}))


AnyDisturbance = Annotated[SerializeAsAny[Disturbance], BeforeValidator(_parse_in_context)]
"""A disruption of any kind that the context knows, from its table or from an instance."""
