"""The protocol of every target.

The run loop knows only this protocol and the protocol of a system that is up, so tests can give it fakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from lab.generators import Generator, Installed
from lab.model.endpoint import Endpoint, Role
from lab.model.pairs import Side
from lab.model.sweeps import LoadPoint
from lab.model.system import System as System
from lab.model.system import Watch as Watch
from lab.model.variants.variants import Variant


def do_nothing() -> None:
    """Do nothing: the default where a caller passes no function."""


class Target(Protocol):
    """A place where a variant can be brought up and measured."""

    name: str
    bring_up_s: float
    """The approximate seconds to bring up a variant, or a pair, here: for forecasts, until a run has shown them."""
    sides: Sequence[Side]
    """The sides on which systems can be up at once: two support pairing."""

    def at(self, context: str | None) -> Target:
        """Return the same target at a kubeconfig context.

        Args:
            context: The context; None = no context.

        Raises:
            UsageError: The target needs a context and there is none, or it takes none and there is one.

        """
        ...

    def check(self) -> None:
        """Check the prerequisites; no system has been started then.

        On a cluster the lab takes its place there: its lease, and the generator's pod.

        Raises:
            UsageError: A prerequisite is missing.

        """
        ...

    def installed(self, generator: Generator) -> Installed | None:
        """Return a generator as it is installed in the client's place; None if it is not. Only after `check`."""
        ...

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        """Return where the load of each point will go, by the point's name; start nothing.

        Hosts and TLS are right; the address is known only once the system is up.

        Raises:
            UsageError: This target cannot realise the variant, or serve one of the points.

        """
        ...

    def makes_new_workers(self, variant: Variant) -> bool:
        """Return whether a reload makes new workers of the variant's proxy; True where it has no proxy.

        Only such a variant can be measured on several generations of workers.
        """
        ...

    def unpaired(self, variant: Variant) -> str:
        """Return why the variant and another cannot be up at once on two sides; empty where they can."""
        ...

    def enter(self, argv: Sequence[str]) -> int | None:
        """Run the lab's command inside the target's own process tree, if it has one, and return its exit status.

        None means that the run belongs in this process: it is already inside, or there is no such tree.

        Args:
            argv: The arguments of `python -m lab`.

        """
        ...

    def facts(self) -> Mapping[str, str]:
        """Return what the target adds to the run's facts (versions of proxies, modes)."""
        ...

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        """Return facts of what these variants run that is neither the machine's own nor an image of their manifests.

        The facts are descriptions with versions, by name.
        """
        ...

    def close(self) -> None:
        """Give back what `check` took. Idempotent."""
        ...

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        """Return the CPUs to which each role is pinned; empty where roles are not pinned.

        Then `Observation.cores` shows how busy the CPUs were.
        """
        ...

    def generator_cpus(self) -> int | None:
        """Return the number of CPUs that a generator may run on; None = unknown. Only after `check`."""
        ...

    def up(
        self,
        variant: Variant,
        changing: bool = False,
        side: Side = "left",
        meanwhile: Callable[[], object] = do_nothing,
    ) -> AbstractContextManager[System]:
        """Bring the variant up and wait until it is ready; tear it down at exit.

        Args:
            variant: The variant.
            changing: Whether pods and routes may come and go (`System.end_pod` and the like); then clients reach the
                proxy through a Service's address that stays.
            side: The side of a pair; a solo variant is on the left.
            meanwhile: Called once, when the proxy has been started and before it is waited for; its error ends the
                bring-up.

        Raises:
            MeasuringError: The variant does not come up.
            LostError: Nothing else will come up either.

        """
        ...
