"""Disturbances: what is done to a system while a load runs. One file per kind, found by globbing this folder.

A kind is a `Disturbance` with its own keys: the table `[disturbance]` of a sweep, or `disturbance = {…}` of one of its
points. It acts through `DisturbanceContext` only, so that a kind works on every target that can do what it asks for. Refuses to judge
what came of it: that is `lab.records.outcomes`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from lab.model.disturbance import Disturbance


@cache
def kinds() -> Mapping[str, type[Disturbance]]:
    """Every kind in this folder by name."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {module.KIND.model_fields["kind"].default: module.KIND for module in modules if hasattr(module, "KIND")}
