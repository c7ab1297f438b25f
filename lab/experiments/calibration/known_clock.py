"""The kernel's clock as the known server reads it: when bytes arrived, and being woken at a moment. Standard library only.

Both are nanoseconds of CLOCK_REALTIME, which is the clock of arrivals. A step of it is seen by the lab, which marks the measurement.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress

from lab.experiments.calibration.known_behaviour import SECOND

SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; Python has no name for it."""
CLOCK_REALTIME, TFD_TIMER_ABSTIME, TFD_NONBLOCK = 0, 1, 0o4000
"""time.h and sys/timerfd.h; Python knows them from 3.13 on."""


class Timer:
    """A timerfd on CLOCK_REALTIME: readable at a moment, to the precision of the kernel's high-resolution timers."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = int(self._libc.timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def at(self, moment_ns: int) -> None:
        """Wake at this moment, at once where it has passed, and no longer at the one before."""
        when = struct.pack("qqqq", 0, 0, *divmod(moment_ns, SECOND))
        if self._libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, when, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def read(self) -> None:
        with suppress(BlockingIOError):  # it was set anew meanwhile
            os.read(self.fd, 8)


def nanoseconds(timespec: bytes) -> int:
    """Of a struct timespec, as SO_TIMESTAMPNS gives it."""
    seconds, nanoseconds = struct.unpack("qq", timespec)
    return int(seconds) * SECOND + int(nanoseconds)
