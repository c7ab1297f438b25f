"""What is done to a system while a load runs: the keys that every kind of disturbance has, and what it may use.

Refuses to know the kinds: whoever validates a table hands in those that there are (`known`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo

from lab.base.errors import did_you_mean
from lab.base.validation import Record, faults
from lab.model.events import EventLog
from lab.model.system import Disturbable

Manifests = Sequence[Mapping[str, Any]]
_KINDS = "kinds of disturbances"


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
