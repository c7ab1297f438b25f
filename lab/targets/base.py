"""What every target can do. The run loop knows only this protocol and that of a system that is up, so tests hand it fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from lab.generators import Generator, Installed
from lab.model.endpoint import Endpoint, Role
from lab.model.pairs import Side
from lab.model.sweeps import Point
from lab.model.system import System as System
from lab.model.system import Watch as Watch
from lab.model.variants.variants import Variant


def nothing() -> None:
    """What is done where nobody asks for more."""


class Target(Protocol):
    name: str
    bring_up_s: float
    """How long a variant, or a pair of them, takes to come up here, about: for forecasts, until a run has shown it."""
    sides: Sequence[Side]
    """Where systems can be up at once: two bear pairs."""

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

    def makes_new_workers(self, variant: Variant) -> bool:
        """Return whether a reload makes new workers of the variant's proxy; True where it has no proxy.

        Only such a variant can be measured on several generations of workers.
        """
        ...

    def unpaired(self, variant: Variant) -> str:
        """Why it and another cannot be up at once, where two can; empty where they can."""
        ...

    def enter(self, argv: Sequence[str]) -> int | None:
        """Go on inside the target's own process tree, if it has one: the exit status of `python -m lab argv` there.

        None when this process is where the run belongs (already inside, or no such tree).
        """
        ...

    def facts(self) -> Mapping[str, str]:
        """What the target adds to the run's facts (versions of proxies, modes)."""
        ...

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        """Facts of what these run that is neither the machine's own nor their manifests' images: name → what, with versions."""
        ...

    def close(self) -> None:
        """Give back what `check` took. Idempotent."""
        ...

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        """The CPUs each role is pinned to; empty where roles are not pinned (then `Observation.cores` tells how busy they were)."""
        ...

    def generator_cpus(self) -> int | None:
        """On how many CPUs a generator may run; None: not known. Only after `check`."""
        ...

    def up(
        self,
        variant: Variant,
        changing: bool = False,
        side: Side = "left",
        meanwhile: Callable[[], object] = nothing,
    ) -> AbstractContextManager[System]:
        """Bring the variant up and wait until it is ready; tear it down at exit.

        `changing`: pods and routes may come and go (`System.end_pod` and the like): clients reach the proxy through a
        Service's address that stays. `side`: where it is of two that are up at once; alone it is on the left.
        `meanwhile`: called once, when the proxy has been started and before it is waited for; what it raises ends the bring-up.

        MeasuringError when it does not come up, LostError when nothing else will either.
        """
        ...
