"""What a steady load and a disturbed one do differently around the same measuring: the protocol, and what passes to and fro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from lab.measure.canary import Canary
from lab.measure.validity import Fault
from lab.model.endpoint import Endpoint
from lab.model.load import Load, Result
from lab.model.usage import Observation
from lab.targets.common.process import Ended


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A load that was made, and everything that was seen of it."""

    endpoint: Endpoint
    """Where the canaries go."""
    load: Load
    ended: Ended
    seen: Observation
    result: Result | None
    """What the generator reported; None: nothing, and `faults` say why."""
    faults: Sequence[Fault]
    cores: Mapping[str, float | None]
    """How busy the CPUs of proxy and generator were; None: not seen."""
    first: Canary
    """Before the load."""
    generator_cpus: int | None = None
    """How many it may use; None: not known."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a load comes to: all that speaks against it, and what its sample says beside the measurements."""

    faults: Sequence[Fault]
    notes: Sequence[str] = ()
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    events: pl.DataFrame | None = None
    """Of a disturbed load: EVENTS_SCHEMA."""


class Regime(Protocol):
    """One sample's: its methods are called in this order, once each."""

    def prepare(self, lasting: ExitStack) -> tuple[Mapping[str, Any], Sequence[Fault]]:
        """Before anything is asked of the system: columns of the sample, and why it cannot go on. What `lasting` holds ends with the load."""
        ...

    def asked(self, endpoint: Endpoint) -> Endpoint:
        """Where the load goes, of a system whose canary goes to `endpoint`."""
        ...

    def run(self, warm_up: Callable[[], object], load: Callable[[], Ended], folder: Path) -> tuple[Ended, Observation]:
        """Warm up, then load while the system is watched. `folder`: where the generator's output goes."""
        ...

    def findings(self, run: LoadRun) -> Findings:
        """After the load."""
        ...
