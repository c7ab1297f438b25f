"""Is the knob really set? Each check of a variant is compared with the running system, before a sample counts.

Knows no target: everything is asked through `System`, mostly by commands inside the role's container. One file per
family of checks, found by its `READERS`. Refuses to fail silently: what cannot be read is not ok, with the reason.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType

from lab.base.files import own_faults
from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.readback.nginx import directives as directives
from lab.targets.readback.nginx import dump as dump
from lab.targets.readback.reading import ABSENT as ABSENT
from lab.targets.readback.reading import Reader, Reading, UnreadableError


@cache
def readers() -> Mapping[str, Reader]:
    """Check kind → its reader, from every file in this folder."""
    return {kind: reader for module in _modules() for kind, reader in getattr(module, "READERS", {}).items()}


def spoken(check: Check) -> str:
    """One check as a sentence's worth of words: by its file's `SPOKEN`, where its kind has a form there."""
    forms = {kind: form for module in _modules() for kind, form in getattr(module, "SPOKEN", {}).items()}
    context = f" in {check.context}" if check.context else ""
    form = forms.get(check.kind, "{kind}: {name}{context}")
    what = form.format(kind=check.kind, name=check.name, context=context, port=check.port, process=check.process)
    often = "" if check.times is None else f", {check.times} times"
    return f"{check.role}: {what} = {check.value}{often}"


@cache
def _modules() -> Sequence[ModuleType]:
    return [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]


def read_back(system: System, checks: Sequence[Check]) -> list[Reading]:
    """One reading per check, in their order. Never raises for what it finds, or fails to find, in the system.

    StoreError when this machine lacks what the asking takes (space, descriptors, memory): the knob is not to blame.
    """
    readings = []
    for check in checks:
        try:
            with own_faults("read-back"):
                readings.append(readers()[check.kind](system, check))
        except UnreadableError as error:
            readings.append(Reading(check, "unreadable", ok=False, detail=str(error)))
        except (ValueError, LookupError, StopIteration, OSError) as error:  # garbage in the answer
            readings.append(Reading(check, "unreadable", ok=False, detail=f"{type(error).__name__}: {error}"))
    return readings
