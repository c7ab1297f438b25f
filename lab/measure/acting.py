"""A disturbance in a thread of its own beside the load: when it begins, and why it did not happen as asked."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import LabError, LostError
from lab.model.disturbance import Disturbance, DisturbanceContext, OverError

POLL_S = 0.01
JOIN_S = 30.0
"""For a disturbance to end once the load has: what it still does must not reach the next measurement."""


@dataclass(slots=True)
class Acting:
    """One that acts, and its `fault` (empty = it happened as asked)."""

    disturbance: Disturbance
    context: DisturbanceContext
    done: bool = False
    fault: str = ""
    lost: LostError | None = None
    defect: BaseException | None = None
    thread: threading.Thread | None = None
    told: Path | None = None
    """Where the generator's log goes: the load has begun when its first line is there."""

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name="disturbance", daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """After the load, however it ended: LostError and defects come out here."""
        self.context.over.set()
        if self.thread is None:
            return
        self.thread.join(JOIN_S)
        if self.thread.is_alive():
            self.fault = f"still busy {JOIN_S:g} s after the load's end"
        if self.lost or self.defect:
            raise self.lost or self.defect or RuntimeError
        if not self.done and not self.fault:
            self.fault = "the load was over before it was done"

    def _run(self) -> None:
        try:
            self._await_load()
            self.context.wait_until(self.disturbance.at_s)
            self.disturbance.disturb(self.context)
            self.done = True
        except OverError:
            pass
        except LostError as error:
            self.lost = error
        except LabError as error:
            self.fault = str(error)
        except BaseException as error:  # noqa: BLE001 - a defect of ours, raised where the run is
            self.defect = error

    def _await_load(self) -> None:
        """A generator takes a second and more to begin, on a busy machine: what is done counts from its first request."""
        assert self.told is not None
        while not (self.told.exists() and self.told.stat().st_size):
            self.context.wait(POLL_S)
        self.context.began = time.monotonic()
