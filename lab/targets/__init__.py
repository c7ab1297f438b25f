"""Where a system runs: the names of the targets; `base` holds the protocol that each of them keeps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from lab.base.errors import refuse_unknown
from lab.model.names import DEFAULT_TARGET

if TYPE_CHECKING:
    from lab.targets.base import Target

TARGETS = ("apiserver", "kind", "local", "remote")
"""Names as in `--target`."""

_in_use: list[Target] = []


@cache
def _target(name: str) -> Target:
    """The one target of that name. Its modules are imported only now: that takes a while."""
    if name == "local":
        from lab.targets.local.target import LocalTarget

        return LocalTarget()
    if name == "apiserver":
        from lab.targets.apiserver.target import ApiserverTarget

        return ApiserverTarget()
    from lab.targets.clusters import KIND, REMOTE

    return KIND if name == "kind" else REMOTE


def chosen(name: str, context: str | None) -> Target:
    """The target of that name at that context (None = it has none); `close` is its end."""
    target = _target(name).at(context)
    _in_use.append(target)
    return target


def entered(name: str | None, context: str | None, argv: Sequence[str]) -> Target | int:
    """The target of that name (None: the default one), where the lab runs inside its namespaces, if it has some; else the exit status of that command there."""
    name = DEFAULT_TARGET if name is None else name
    refuse_unknown(name, TARGETS, "--target", f"unknown target '{name}'")
    target = chosen(name, context)
    status = target.enter(argv)
    return target if status is None else status


def close() -> None:
    """Give back what the chosen targets took."""
    while _in_use:
        _in_use.pop().close()
