"""The base class of all disruptions of a system under load, such as a killed pod, and the interface of that system.

A sweep's file describes a disruption by a table with its kind. The kinds are not known here: a caller that validates such a table
passes their classes (`make_validation_context`).
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
    """The interface of a context manager that records what happens to a system inside its `with` block.

    It records what the system itself reports, such as pods that become ready.
    """

    def events(self) -> Sequence[Event]:
        """Return all recorded events, timed by the lab's clock; call it only after the `with` block.

        Raises:
            MeasuringError: Some events may be missing.

        """
        ...

    def notes(self) -> Sequence[str]:
        """Return remarks for readers of the recorded events; call it only after the `with` block."""
        ...


class Disturbable(Protocol):
    """The interface of a running system that can be disrupted: its addresses, its pods, and the actions on them.

    The actions that change the system (`recorder` and all methods after it) are only allowed if it was started with
    `changing`. They leave it changed, so nothing else is measured on it afterwards. Every method raises MeasuringError
    if the system refuses.
    """

    def entry(self) -> Endpoint:
        """Return the address that clients use: that of the proxy, or of the backend in a system without a proxy."""
        ...

    def backend_endpoint(self) -> Endpoint:
        """Return the backend's own address, which bypasses the proxy.

        The canary is a checked request through the proxy. Its answer must equal the one from this address.
        """
        ...

    def pod_address(self, role: Role) -> str:
        """Return the IP address of the first pod of a role ("proxy", "backend", …).

        Helpers that `spawn` starts listen on this address, not on that of a Service.
        """
        ...

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a GET request from the client's side on a new connection, and return the answer.

        The body of the answer is returned as it came, without decompression.

        Args:
            endpoint: The address and the host.
            path: The path.
            timeout_s: The timeout in seconds.
            headers: Further headers by name.

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
        """Start a load generator on the client's side, on the CPUs that are reserved for it.

        On this machine, the generator runs in a new session. Of the user's environment it has only PATH and TMPDIR. If
        the client's side is a pod, the generator has the pod's environment. Then the returned process represents the
        generator in the pod, and killing the returned process ends the generator, too.

        Args:
            argv: The command.
            cwd: The folder in which it starts. If the client's side is a pod, a new folder in the pod replaces it.
            stdout: The file for its output.
            stderr: The file for its error output.
            files: The files to create in the folder first: name → text.

        """
        ...

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a helper process in the network and on the CPUs of a role ("proxy", …), such as a server for round trips.

        The helper ends when the system ends, at the latest.
        """
        ...

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the running and ready pods of a role ("proxy", …) as Kubernetes objects (`metadata`, `spec`, …).

        The objects have the values that are in force, which may differ from the variant's manifests.
        """
        ...

    def restarts(self) -> Mapping[str, int]:
        """Return the number of restarts of each container since its pod was started, by `pod/container`."""
        ...

    def recorder(self) -> Recorder:
        """Return a context manager that records events: of pods, endpoints, probes, restarts and reloads.

        `lab.model.events` lists the kinds of events.
        """
        ...

    def clock(self) -> ClockOffset:
        """Measure how far the generator machine's clock is ahead of the lab's clock now."""
        ...

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """End the role's first pod, and return as soon as the request was made.

        The pod's Deployment creates a replacement. A crash is different: it only kills the first container, which the
        kubelet restarts in that pod.

        Args:
            role: The role of the pod, such as "proxy".
            how: "delete", "evict" (as `kubectl drain` does) or "crash" (SIGKILL).

        Returns:
            False if a PodDisruptionBudget refused the eviction; the caller may try again. Otherwise True.

        """
        ...

    def scale(self, role: Role, replicas: int) -> None:
        """Change the number of pods of a role ("proxy", …), and return as soon as the request was made."""

    def roll(self, role: Role) -> None:
        """Replace the pods of a role ("proxy", …) by a rolling update of its Deployment to an unchanged pod template.

        The method returns as soon as the request was made.
        """

    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop the processes of the role's first pod with SIGSTOP, or let them continue.

        On a cluster these are the processes of the pod's first container, except PID 1.

        Args:
            role: The role of the pod, such as "proxy".
            frozen: True to stop the processes, False to let stopped processes continue.

        """

    def squeeze(self, role: Role, cpu: str | None) -> None:
        """Limit the CPU of the first container of the role's running pods.

        Args:
            role: The role of the pods, such as "proxy".
            cpu: The limit in Kubernetes' form (`20m`); None restores the manifests' limit.

        """

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or change Routes, Ingresses, Services and EndpointSlices; return when the API has accepted them.

        The proxy may begin to serve them later: that delay is what is measured.
        """


class Disturbance(Record, strict=True):
    """The base class of all kinds of disruptions, with their common settings and methods.

    Each kind is a subclass with a field `kind` (its name), and is listed in `lab.disturbances.DISTURBANCES`.
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
        """The approximate time during which the disruption can affect requests, in seconds from its beginning.

        The beginning is `at_s` after the load's beginning. The load must last at least as long as both times together.
        """
        return self.acts_s + 1

    @property
    def acts_s(self) -> float:
        """The number of seconds, from its beginning, for which the disruption counts as acting.

        The latencies of this time are reported as the latencies "during" the disruption, if the log of events does not
        show its end. Control runs (the load without the disruption) and the kind `new-route` have no event for the end.
        A momentary disruption, such as a killed pod, counts as acting until the system should have recovered.
        """
        raise NotImplementedError

    @property
    def fixtures(self) -> tuple[str, ...]:
        """The names of the kustomize components in manifests/fixtures that this disruption needs, such as `answers`.

        They are added to the manifests of every variant of a run.
        """
        return ()

    @property
    def prepared(self) -> tuple[object, ...]:
        """The host that the load requests, and the additional manifests (`fixtures`): the needs of this disruption as one key.

        A control run is the load without the disruption. Load points with equal loads share one only if these keys are
        equal, too.
        """
        return self.host, self.fixtures

    def vet(self, manifests: Manifests) -> None:
        """Check that this disruption can be applied to a variant, by the variant's manifests alone.

        Args:
            manifests: The Kubernetes objects of the variant.

        Raises:
            UsageError: The variant and the disruption do not fit.
            NotMeasurableError: This machine or target cannot show the effect.

        """

    def prepare(self, context: DisturbanceContext) -> None:
        """Set up, before the load, what disrupted runs and their control runs (without the disruption) both need.

        Raises:
            MeasuringError: It could not be set up.

        """

    def disturb(self, context: DisturbanceContext) -> None:
        """Disrupt the system, in a thread during the load; in control runs (without disruption) it is not called.

        The method is called `at_s` seconds after the load's beginning. It logs the event Begin before it changes
        anything. If it undoes its changes, it logs the event End as soon as they are undone. Otherwise it logs End when
        the system should have recovered; only the kind `new-route` logs no End.

        Raises:
            MeasuringError: The disruption could not be carried out.
            LoadEndedError: The load ended first; `context.wait` raises this error.

        """
        raise NotImplementedError


class LoadEndedError(Exception):
    """The error that the load ended before the disruption was complete, so that its rest could not be observed."""


@dataclass(slots=True)
class DisturbanceContext:
    """The objects that a disruption works with: the system, the log of events, and the time since the load began."""

    system: Disturbable
    log: EventLog
    manifests: Manifests
    folder: Path
    """A scratch folder for the outputs of what `Disturbable.popen` starts during the load."""
    find: Callable[[str], str]
    """A function that returns the path of a generator on the client's side, or raises MeasuringError without one."""
    background: ExitStack = field(default_factory=ExitStack)
    """The stack for what `prepare` starts: it runs during the load, in control runs too, and ends with it."""
    over: threading.Event = field(default_factory=threading.Event)
    """The flag that the load has ended."""
    began: float = field(default_factory=time.monotonic)
    """The time at which the load began, by `time.monotonic`."""

    @property
    def now_s(self) -> float:
        """The time since the load began, in seconds."""
        return time.monotonic() - self.began

    def wait(self, seconds: float) -> None:
        """Wait for a number of seconds; raise LoadEndedError if the load ends first."""
        if self.over.wait(max(0.0, seconds)):
            raise LoadEndedError

    def wait_until(self, at_s: float) -> None:
        """Wait until `at_s` seconds after the load began; raise LoadEndedError if the load ends first."""
        self.wait(at_s - self.now_s)

    def say(self, kind: str, object: str = "", detail: str = "", role: str = "") -> None:  # noqa: A002 - the column's name
        """Log an event with the current time and the source `lab`.

        Args:
            kind: The kind of event, such as `Begin` (`lab.model.events` lists them).
            object: The pod, Service or number that the event is about.
            detail: More about the event, in the form that its kind defines.
            role: "proxy", "backend" or empty.

        """
        self.log.add("lab", kind, object, detail, role)

    def change(self, number: int, way: str, objects: Manifests, role: str = "") -> None:
        """Apply Kubernetes objects, and log an event Change with the time just before they were applied.

        Args:
            number: The number of the change, by which answers can be matched with it.
            way: The word for how answers show the change: `endpoints`, `routes` or `status` (see `lab.model.events`).
            objects: The objects to create or change.
            role: "proxy", "backend" or empty.

        """
        at_s, began = time.time(), time.monotonic()
        self.system.apply(objects)
        took_s = time.monotonic() - began
        self.log.add("lab", "Change", str(number), f"{way} accepted after {took_s:.4f} s", role, at_s)


def make_validation_context(kinds: Mapping[str, type[Disturbance]]) -> dict[str, Any]:
    """Return the pydantic validation context that makes tables of these kinds of disruptions valid.

    Args:
        kinds: The class of each kind of disruption, by the kind's name.

    """
    return {_KINDS: kinds}


def parse_disruption(value: object, kinds: Mapping[str, type[Disturbance]]) -> object:
    """Convert a table such as `{"kind": "outage", …}` into a disruption: an instance of the class of this kind.

    A value that is not a table is returned unchanged. Pydantic then accepts an instance, and reports anything else.

    Args:
        value: The table, as read from a file.
        kinds: The class of each kind of disruption, by the kind's name.

    Raises:
        ValueError: The kind is unknown, or the table does not fit its class.

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
