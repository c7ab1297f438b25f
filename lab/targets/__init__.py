"""The targets (places where a benchmarked system can run), by name: `local`, `apiserver`, `kind` and `remote`.

The module `lab.targets.base` defines the protocol that every target implements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from lab.base.errors import refuse_if, refuse_unknown
from lab.model.names import DEFAULT_TARGET

if TYPE_CHECKING:
    from lab.targets.base import Target

TARGETS = ("apiserver", "kind", "local", "remote")
"""The names that the option `--target` accepts."""

_in_use: list[Target] = []


@cache
def _get_target(name: str, context: str | None) -> Target:
    """Return the target called `local`, `apiserver`, `kind` or `remote`; a second call returns the same object.

    Nothing is connected yet. The modules of a target are imported only when the target is requested, because the import
    takes a while.

    Args:
        name: The name of the target.
        context: The name of the kubeconfig context; None = no context.

    Raises:
        UsageError: The target needs a context and `context` is None. Or the target accepts no context and `context`
            names one.

    """
    if name == "remote":
        from lab.targets.clusters import make_remote

        return make_remote(context)
    own = "belongs to --target remote; --target kind has a cluster of its own"
    fault = own if name == "kind" else f"the {name} target has no cluster"
    refuse_if(context is not None, "--context", fault, "leave it out, or name --target remote")
    if name == "kind":
        from lab.targets.clusters import KIND

        return KIND
    if name == "apiserver":
        from lab.targets.apiserver.target import ApiserverTarget

        return ApiserverTarget()
    from lab.targets.local.target import LocalTarget

    return LocalTarget()


def choose_target(name: str, context: str | None) -> Target:
    """Return the target called `name` for the kubeconfig context `context`, and remember it for `close_targets`.

    Args:
        name: The name of the target, one of TARGETS.
        context: The name of the kubeconfig context; None = no context.

    Raises:
        UsageError: The target needs a context and `context` is None. Or the target accepts no context and `context`
            names one.

    """
    target = _get_target(name, context)
    _in_use.append(target)
    return target


def enter_target(name: str | None, context: str | None, argv: Sequence[str]) -> Target | int:
    """Return the chosen target if this process can measure on it; otherwise run the whole command inside new namespaces.

    A target such as `local` can measure only inside separate Linux namespaces. If this process is outside them, the
    lab's command is run again in a child process inside new namespaces.

    Args:
        name: The name of the target; None means the default target.
        context: The name of the kubeconfig context; None = no context.
        argv: The arguments of the lab's command, for the child process.

    Returns:
        The target if this process can measure on it. Otherwise the exit status of the child process, which has done
        all the work.

    Raises:
        UsageError: There is no target of this name.

    """
    name = DEFAULT_TARGET if name is None else name
    refuse_unknown(name, TARGETS, "--target", f"unknown target '{name}'")
    target = choose_target(name, context)
    status = target.enter(argv)
    return target if status is None else status


def close_targets() -> None:
    """Close every target that `choose_target` has returned; this releases, for example, a cluster's lease."""
    while _in_use:
        _in_use.pop().close()
