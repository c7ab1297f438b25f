"""Check kind `pods`: how many pods of a role run and are ready."""

from __future__ import annotations

from lab.readback.reading import Reading, compared
from lab.targets.base import System
from lab.variants import Check


def _pods(system: System, check: Check) -> Reading:
    return compared(check, str(len(system.pods(check.role))))


READERS = {"pods": _pods}
