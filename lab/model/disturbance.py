"""What is done to a system while a load runs: the keys that every kind of disturbance has, and what it may use of a system.

Refuses to know the kinds: whoever validates a table hands in those that there are (`known`).
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar, Protocol

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo

from lab.base.errors import did_you_mean
from lab.base.validation import Record, faults
from lab.model.endpoint import ClockOffset, Endpoint, HowToEnd, Response, Role
from lab.model.events import Event, EventLog

Manifests = Sequence[Mapping[str, Any]]
_KINDS = "kinds of disturbances"


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


class Disturbance(Record, strict=True):
    """What every kind has. Each is a subclass with a field `kind`, and a row of `lab.disturbances.DISTURBANCES`."""

    host: ClassVar[str | None] = None
    """The host that the load asks for, where it is not the variant's own first."""
    awaited: ClassVar[frozenset[int]] = frozenset()
    """Statuses that are the right answer as long as it has not been done: they are no failures, and 2xx shows that it has."""
    loads_client: ClassVar[bool] = False
    """Whether it works in the client's place itself: how busy its CPUs are says nothing then, requests sent late do."""

    at_s: float = Field(default=5.0, ge=1, le=3600, description="when it begins, after the load began")

    @property
    def lasts_s(self) -> float:
        """How long after `at_s` it may still matter, about: the load must last longer."""
        return self.acts_s + 1

    @property
    def acts_s(self) -> float:
        """How long it acts from `at_s` on, recovery not included: latency `during` is of this time where it did not say End
        (control runs, and kinds that have nothing to undo). What is done in a moment acts until the system has recovered.
        """
        raise NotImplementedError

    @property
    def fixtures(self) -> tuple[str, ...]:
        """Components of manifests/fixtures that every variant of the run is laid over with."""
        return ()

    @property
    def prepared(self) -> tuple[object, ...]:
        """What there is before and beside the load: points that differ in it have control runs of their own."""
        return self.host, self.fixtures

    def vet(self, manifests: Manifests) -> None:
        """UsageError, or NotMeasurableError, for a variant that this cannot be done to. Pure."""

    def prepare(self, context: DisturbanceContext) -> None:
        """Before the load, in control runs too: what must be there in both. MeasuringError."""

    def disturb(self, context: DisturbanceContext) -> None:
        """In a thread beside the load, from `at_s` on; not in control runs. MeasuringError. `context.wait` raises OverError at the load's end.

        It says Begin before it does anything, and End once that is undone, before it waits for the recovery.
        """
        raise NotImplementedError


class OverError(Exception):
    """The load has ended: what is still to be done would not be seen."""


@dataclass(slots=True)
class DisturbanceContext:
    """What a disturbance may use: the system, the log, and the time since the load began (`now_s`, seconds)."""

    system: Disturbable
    log: EventLog
    manifests: Manifests
    folder: Path
    """A scratch folder of its own, for what `Disturbable.popen` starts beside the load."""
    find: Callable[[str], str]
    """Where a generator is installed in the client's place, by its name. MeasuringError when it is not."""
    beside: ExitStack = field(default_factory=ExitStack)
    """What `prepare` puts here goes on beside the load, in control runs too, and ends with it."""
    over: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began

    def wait(self, seconds: float) -> None:
        """OverError when the load ends before that."""
        if self.over.wait(max(0.0, seconds)):
            raise OverError

    def wait_until(self, at_s: float) -> None:
        self.wait(at_s - self.now_s)

    def say(self, kind: str, object: str = "", detail: str = "", role: str = "") -> None:  # noqa: A002 - the column's name
        """One event, as the lab did it, now."""
        self.log.add("lab", kind, object, detail, role)

    def change(self, number: int, way: str, objects: Manifests, role: str = "") -> None:
        """Apply `objects` as change `number`, which answers show by `way` (`lab.model.events`); its time is from before the system has it."""
        at_s, began = time.time(), time.monotonic()
        self.system.apply(objects)
        took_s = time.monotonic() - began
        self.log.add("lab", "Change", str(number), f"{way} accepted after {took_s:.4f} s", role, at_s)


def known(kinds: Mapping[str, type[Disturbance]]) -> dict[str, Any]:
    """The context for `model_validate` and the like, by which tables of these kinds are found, by name."""
    return {_KINDS: kinds}


def parsed(value: object, kinds: Mapping[str, type[Disturbance]]) -> object:
    """A table with a `kind` as that kind's model; anything else as it is, for pydantic to refuse."""
    if not isinstance(value, Mapping):
        return value
    name = value.get("kind")
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"disturbance.kind: unknown kind {name!r}: {did_you_mean(str(name), kinds)}")
    kind = kinds[name]
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        said = "; ".join(f"disturbance.{fault}" for fault in faults(error, kind))
        raise ValueError(said) from None


def _parsed(value: object, info: ValidationInfo) -> object:
    if isinstance(value, Mapping) and _KINDS not in (info.context or {}):
        raise LookupError("a table of a disturbance is validated with the context that `known` gives")
    return parsed(value, (info.context or {}).get(_KINDS, {}))


AnyDisturbance = Annotated[SerializeAsAny[Disturbance], BeforeValidator(_parsed)]
"""A disturbance of any kind that was handed in, as the table that it was written as or as itself."""
