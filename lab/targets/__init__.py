"""Where a system runs: the table of the targets; `base` holds the protocol that each of them keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from lab.base.errors import refuse_unknown
from lab.model.names import DEFAULT_TARGET

if TYPE_CHECKING:
    from lab.targets.base import Target

_in_use: list[Target] = []


def _apiserver() -> Target:
    from lab.targets.apiserver.target import ApiserverTarget

    return ApiserverTarget()


def _kind() -> Target:
    from lab.targets.kind import TARGET

    return TARGET


def _local() -> Target:
    from lab.targets.local.target import LocalTarget

    return LocalTarget()


def _remote() -> Target:
    from lab.targets.remote import TARGET

    return TARGET


TARGETS: Mapping[str, Callable[[], Target]] = {
    "apiserver": _apiserver,
    "kind": _kind,
    "local": _local,
    "remote": _remote,
}
"""Name as in `--target` → what makes the target. Its modules are imported only then: that takes a while."""


@cache
def target_named(name: str) -> Target:
    """Return the one target of that name."""
    return TARGETS[name]()


def chosen(name: str, context: str | None) -> Target:
    """The target of that name at that context (None = it has none); `close` is its end."""
    target = target_named(name).at(context)
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
