"""Where a system runs: one module or package per target, found by what they carry; `base` holds the protocol they keep."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from lab.targets.base import Target

_in_use: list[Target] = []


def chosen(name: str, context: str | None) -> Target:
    """The target of that name at that context (None = it has none); `close` is its end."""
    target = targets()[name].at(context)
    _in_use.append(target)
    return target


def close() -> None:
    """Give back what the chosen targets took."""
    while _in_use:
        _in_use.pop().close()


@cache
def targets() -> Mapping[str, Target]:
    """Every target by name. A module with an instance named `TARGET` is one."""
    names = [found.name for found in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {module.TARGET.name: module.TARGET for module in modules if hasattr(module, "TARGET")}
