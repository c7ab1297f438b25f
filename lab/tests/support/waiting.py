"""Waiting for what happens by itself: as long as a busy machine may take, and no longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0


def until(
    condition: Callable[[], bool], what: str | Callable[[], str] = "did not happen in time", seconds: float = PATIENCE_S
) -> float:
    """Seconds that it took. AssertionError with `what` when it does not; a function of what is the case then is asked then."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, what() if callable(what) else what
        time.sleep(0.01)
    return time.monotonic() - began
