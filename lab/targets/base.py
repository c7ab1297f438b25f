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
    """The approximate seconds to bring up a variant or a pair, for forecasts until a run has shown the real time."""
    sides: Sequence[Side]
    """The sides of a pair on which systems can be up at once; with two sides the target can measure pairs."""

    def at(self, context: str | None) -> Target:
        """Return the same target at a kubeconfig context.

        Args:
            context: The context; None = no context.

        Raises:
            UsageError: The target needs a context and there is none, or it takes none and there is one.

        """
        ...

    def check(self) -> None:
        """Check the prerequisites of the target, before any system is started.

        On a cluster this also takes the lease, which keeps other labs away, and starts the pod for load generators.

        Raises:
            UsageError: A prerequisite is missing.

        """
        ...

    def installed(self, generator: Generator) -> Installed | None:
        """Return a load generator as it is installed where the load comes from; None if it is not installed there.

        Call it only after `check`.
        """
        ...

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        """Return where the load of each load point will go, by the point's name; start nothing.

        The endpoints have the right hosts and TLS. Their address is known only once the system is up.

        Raises:
            UsageError: This target cannot realise the variant, or serve one of the points.

        """
        ...

    def makes_new_workers(self, variant: Variant) -> bool:
        """Return whether a reload starts new worker processes of the variant's proxy; True without a proxy.

        Only such a variant can be measured on several generations of workers (the processes between two reloads).
        """
        ...

    def unpaired(self, variant: Variant) -> str:
        """Return why this variant cannot be up at the same time as another one (as a pair); empty if it can."""
        ...

    def enter(self, argv: Sequence[str]) -> int | None:
        """Run the lab's command again inside the namespaces that the target needs, and return its exit status.

        Args:
            argv: The arguments of `python -m lab`.

        Returns:
            The exit status; None if this process can measure, because it is inside or the target has no namespaces.

        """
        ...

    def facts(self) -> Mapping[str, str]:
        """Return what the target adds to the run's facts (versions of proxies, modes)."""
        ...

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        """Return facts about the variants' programs that come neither from this machine nor from an image.

        The facts are descriptions with versions, by name.
        """
        ...

    def close(self) -> None:
        """Give back what `check` took, such as a cluster's lease; further calls do nothing."""
        ...

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        """Return the numbers of the CPUs to which each role is pinned; empty where roles are not pinned.

        Where roles are not pinned, `Observation.cores` shows how busy the CPUs were.
        """
        ...

    def generator_cpus(self) -> int | None:
        """Return the number of CPUs that a load generator may use; None = unknown.

        Call it only after `check`.
        """
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
            meanwhile: A function that is called once, after the proxy was started and before the wait for its
                readiness. An error in the function ends the bring-up.

        Raises:
            MeasuringError: The variant does not come up.
            LostError: No variant can come up any more, for example because the cluster is gone.

        """
        ...
