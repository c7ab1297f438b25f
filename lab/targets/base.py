"""The protocol `Target`, which every place where the lab can measure implements: this machine or a Kubernetes cluster.

The code that runs the measurements uses only this protocol and the protocol `System`. So tests can replace both by
fakes.
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
from lab.model.variants.variants import Variant


def do_nothing() -> None:
    """Do nothing; this is the default for a parameter that takes a function."""


class Target(Protocol):
    """A place where a variant can be started, put under load and measured: this machine, or a Kubernetes cluster.

    Methods that have a body here suit a target that needs no namespaces of this machine, pins nothing to CPUs, and gets all
    programs from container images.
    """

    name: str
    bring_up_s: float
    """The approximate seconds to bring up a variant or a pair, for forecasts until a run has shown the real time."""
    sides: Sequence[Side]
    """The sides of a pair on which systems can be up at once; with two sides the target can measure pairs."""

    def check(self) -> None:
        """Check the prerequisites of the target; call this before any system is started.

        On a cluster this also acquires a lease, so that no other process of the lab measures there, and starts the pod
        for load generators.

        Raises:
            UsageError: A prerequisite is missing.

        """
        ...

    def installed(self, generator: Generator) -> Installed | None:
        """Return the program (path and version) of a load generator on the machine, or in the pod, that sends the load.

        The result is None if the generator is not installed there. Call this only after `check`.
        """
        ...

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        """Check that the variant can be measured here, and return the endpoint to which each load will go.

        Nothing is started. The endpoints contain host names in place of IP addresses, which are known only once the
        system is up.

        Args:
            variant: The variant.
            points: The load points (the loads of a sweep).

        Returns:
            Name of the load point → endpoint.

        Raises:
            UsageError: This target cannot run the variant, or cannot serve one of the points.

        """
        ...

    def makes_new_workers(self, variant: Variant) -> bool:
        """Return whether a reload of the variant's proxy starts new worker processes; True if there is no proxy.

        Only then can the variant be measured on several worker generations (the worker processes between two reloads).
        """
        ...

    def unpaired(self, variant: Variant) -> str:
        """Return the reason why this variant cannot be up at the same time as another variant (as a pair); empty if it can."""
        ...

    def enter(self, argv: Sequence[str]) -> int | None:
        """Run the lab's command again inside the namespaces that the target needs, unless this process can measure already.

        Args:
            argv: The arguments of `python -m lab`.

        Returns:
            The exit status of the command that was run. None if nothing was run: this process is already inside the
            namespaces, or the target needs none.

        """
        return None

    def facts(self) -> Mapping[str, str]:
        """Return the facts that describe this target in a run's record: name → text, such as the version of a proxy."""
        ...

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        """Return facts about programs that the variants run and that the lab has fetched or built itself.

        Such programs come neither from this machine's installation nor from a container image.

        Returns:
            Name of the fact → a description with versions; empty if there are no such programs.

        """
        return {}

    def close(self) -> None:
        """Release everything that `check` has acquired, such as a cluster's lease; further calls do nothing."""
        ...

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        """Return the numbers of the CPUs to which each role (such as `proxy`) is pinned; empty if no role is pinned.

        Without pinning, `Observation.cores` shows how busy the CPUs were.
        """
        return {}

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
        """Bring a variant up, and return a context manager: it yields the system once it is ready, and removes it at exit.

        Args:
            variant: The variant.
            changing: Whether pods and routes may change while the variant is up, by `System.end_pod` and the like.
                Then clients reach the proxy through a Service, whose address stays.
            side: `left` or `right`, if two variants are up at once (a pair). A variant that is up alone is on the left.
            meanwhile: A function that is called once during the bring-up: before the wait for readiness, or, on a
                cluster of several nodes, when this variant answers. An error in the function ends the bring-up.

        Raises:
            MeasuringError: The variant does not come up.
            LostError: No variant can come up any more, for example because the cluster is gone.

        """
        ...
