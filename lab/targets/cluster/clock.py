"""What a container's clock is ahead of the lab's: date(1) there, between two looks at the clock here.

The answer was given somewhere in the round trip, so its middle is wrong by half the round trip at most; of several the
shortest says it best (Cristian, 1989). Both clocks may drift apart later: to be asked before and after a sample.
"""

from __future__ import annotations

import time
from subprocess import CompletedProcess
from typing import Protocol

from lab.base.errors import MeasuringError
from lab.model.endpoint import ClockOffset

TRIES = 12


class Asked(Protocol):
    """A shell in the container: `lab.targets.cluster.shell.Shell`."""

    @property
    def place(self) -> str: ...
    def script(self, text: str, timeout_s: float = ...) -> CompletedProcess[str]: ...


def offset(shell: Asked, tries: int = TRIES) -> ClockOffset:
    """MeasuringError where date(1) tells no fractions of a second."""
    found: list[tuple[float, float]] = []
    for _ in range(tries):
        before_s = time.time()
        said = shell.script("date +%s.%N").stdout.strip()
        after_s = time.time()
        try:
            there_s = float(said)
        except ValueError:
            remedy = "its image needs a date(1) that knows %N (coreutils)"
            raise MeasuringError(shell.place, f"does not tell its clock: {said!r}", remedy) from None
        found.append(((after_s - before_s) / 2, there_s - (before_s + after_s) / 2))
    error_s, offset_s = min(found)
    return ClockOffset(offset_s, error_s)
