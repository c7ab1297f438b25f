"""Where a system runs: one module or package per target, found by what they carry; `base` holds the protocol they keep."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    """Every target by name; each is imported when it is asked for."""
    return _Targets()


class _Targets(Mapping[str, "Target"]):
    """By the names of the modules that set a `TARGET`, which is looked up in their text: importing one takes a while."""

    def __init__(self) -> None:
        self._names = [found.name for found in pkgutil.iter_modules(__path__) if _is_one(found)]

    def __getitem__(self, name: str) -> Target:
        if name not in self._names:
            raise KeyError(name)
        return importlib.import_module(f"{__name__}.{name}").TARGET

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _is_one(found: pkgutil.ModuleInfo) -> bool:
    here = Path(__file__).parent
    file = here / found.name / "__init__.py" if found.ispkg else here / f"{found.name}.py"
    return "\nTARGET = " in file.read_text(encoding="utf-8")
