"""Check kinds `pods` and `budget`: how many pods of a role run and are ready, and how many of them a drain must leave."""

from __future__ import annotations

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.readback.reading import ABSENT, Reading, compared, given, joined


def _pods(system: System, check: Check) -> Reading:
    return compared(check, str(len(system.pods(check.role))))


def _budget(system: System, check: Check) -> Reading:
    """All budgets over the role's pods must agree; `absent` where there is none, or none says this."""
    name = given(check, "name")
    found = [str(budget["spec"].get(name, ABSENT)) for budget in system.budgets(check.role)]
    return compared(check, joined(found) if found else ABSENT)


READERS = {"pods": _pods, "budget": _budget}
