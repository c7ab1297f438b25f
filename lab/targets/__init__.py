"""The targets where a system can run, by name; `base` holds the protocol that each of them implements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from lab.base.errors import refuse_unknown
from lab.model.names import DEFAULT_TARGET

if TYPE_CHECKING:
    from lab.targets.base import Target

TARGETS = ("apiserver", "kind", "local", "remote")
"""The names that `--target` takes."""

_in_use: list[Target] = []


@cache
def _get_target(name: str) -> Target:
    """Return the only target of a name; its modules are imported now, because that takes a while."""
    if name == "local":
        from lab.targets.local.target import LocalTarget

        return LocalTarget()
    if name == "apiserver":
        from lab.targets.apiserver.target import ApiserverTarget

        return ApiserverTarget()
    from lab.targets.clusters import KIND, REMOTE

    return KIND if name == "kind" else REMOTE


def choose_target(name: str, context: str | None) -> Target:
    """Return the target of a name at a kubeconfig context (None = no context); `close_targets` ends its use."""
    target = _get_target(name).at(context)
    _in_use.append(target)
    return target


def enter_target(name: str | None, context: str | None, argv: Sequence[str]) -> Target | int:
    """Return a target inside its namespaces; outside of them, run the command there and return its exit status.

    A target without namespaces is returned at once.

    Args:
        name: The name of the target; None means the default target.
        context: The kubeconfig context; None = no context.
        argv: The arguments of the lab's command.

    Raises:
        UsageError: There is no target of this name.

    """
    name = DEFAULT_TARGET if name is None else name
    refuse_unknown(name, TARGETS, "--target", f"unknown target '{name}'")
    target = choose_target(name, context)
    status = target.enter(argv)
    return target if status is None else status


def close_targets() -> None:
    """Give back what the chosen targets took."""
    while _in_use:
        _in_use.pop().close()
