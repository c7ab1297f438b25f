"""A time limit for every pytest test: one that hangs fails, and prints the line that it was at and the processes that it had started.

The limits are far beyond what a test takes on a busy machine. They end what would never end; they judge no speed.
"""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

EVERYDAY_S = 300.0
"""Several times the longest wait inside a test (`support.waiting`, a minute)."""
LIMITS_S = {"long": 14_400.0, "committed": 1800.0, "inside": 1800.0, "measures": 1800.0, "slow": 900.0}
"""Seconds by a test's marker; the first that it has counts. All of `just test --all` takes some 40 minutes."""
MARKER = "ends_within"
"""`@pytest.mark.ends_within(SECONDS)`: a limit of a test's own."""
AGAIN_S = 10.0
"""The alarm comes again after this time, should the test, or what it cleans up with, go on waiting."""
FINAL_S = 120.0
"""A test that no alarm stops for so long waits inside of C: all threads' stacks are printed, and pytest ends."""


def limit_s(item: pytest.Item) -> float:
    """Return how many seconds each phase of a test (setup, call, teardown) may take."""
    if (own := item.get_closest_marker(MARKER)) is not None:
        return float(own.args[0])
    return next((limit for lane, limit in LIMITS_S.items() if item.get_closest_marker(lane)), EVERYDAY_S)


def _hook(phase: str) -> Callable[[pytest.Item], Iterator[None]]:
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def limited(item: pytest.Item) -> Iterator[None]:
        with _limited(item, phase):
            yield

    return limited


pytest_runtest_setup, pytest_runtest_call, pytest_runtest_teardown = map(_hook, ("setup", "test", "teardown"))
"""Limited are the fixtures that a test is the first to want, the test itself, and what its fixtures clean up."""


@contextmanager
def _limited(item: pytest.Item, phase: str) -> Iterator[None]:
    seconds = limit_s(item)

    def stop(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"the {phase} did not end within {seconds:g} s: it waited at the line above{_children()}")

    before = signal.signal(signal.SIGALRM, stop)
    faulthandler.dump_traceback_later(
        seconds + FINAL_S, exit=True, file=item.config.stash.get(fault_handler_stderr_fd_key, 2)
    )
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def _children() -> str:
    """Return the processes that the test has started and that still run, as text; empty where there are none."""
    running: list[str] = []
    for child in psutil.Process().children(recursive=True):
        try:
            running.append(f"{child.pid} ({child.status()}) {' '.join(child.cmdline())}")
        except psutil.Error:  # it has ended meanwhile
            continue
    return "; processes that it had started: " + ", ".join(running) if running else ""
