"""A busy core: a process of ours on one CPU during one of every two spells, drawn by lot.

It ends by itself with its spell, whatever becomes of us, and is killed by its id when it is not wanted any more. It belongs to nobody
who measures, so that whatever the lab notices of it, it notices as of anybody's.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from types import TracebackType

SPELL_S = 40.0
"""Several blocks of a short sweep, so that some lie in a quiet spell and others do not: what is busy in every sample makes each of
them invalid, and then nothing is compared that could be claimed."""
BUSY = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


class Neighbour:
    """A context manager: busy on a CPU during one of every two spells, by lots. `busy_s` is how long it has been."""

    def __init__(self, cpu: int, lots: random.Random, spell_s: float = SPELL_S) -> None:
        self.busy_s = 0.0
        self._cpu, self._lots, self._spell_s = cpu, lots, spell_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neighbour", daemon=True)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            busy_first = self._lots.random() < 0.5
            for busy in (busy_first, not busy_first):
                self._spell(busy)

    def _spell(self, busy: bool) -> None:
        if not busy or self._over.is_set():
            self._over.wait(self._spell_s)
            return
        began = time.monotonic()
        argv = ["taskset", "-c", str(self._cpu), sys.executable, "-c", BUSY, str(self._spell_s)]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        try:
            while process.poll() is None and not self._over.wait(0.05):
                pass
        finally:
            process.kill()
            process.wait()
            self.busy_s += time.monotonic() - began
