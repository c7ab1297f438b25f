"""When a proxy loaded its configuration anew: from the lines that its own controller writes.

    2026-11-21T21:53:12.398Z I1121 … "Configuration changes detected, backend reload required"   →   Reload
    2026-11-21T21:53:12.541Z I1121 … "Backend successfully reloaded"                             →   Reloaded
    2026-11-21T21:53:12.541Z I1121 … "router reloaded" logger="template" output=" - Checking …"   →   Reloaded

OKD's router writes its line when the new HAProxy answers, and none when it begins: there is a Reloaded and no Reload.
Both write these lines for a container's first configuration, too: that is its start, no event.
Lines of a container that had begun before it was followed arrive late, so their times are the node's own; `behind_s` of any
line is its clock's distance from the lab's and the line's way, and the least of all of a node's lines is put to each.
Refuses to read anything else: a log also has a line for every request.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lab.base.errors import LabError, MeasuringError
from lab.targets.cluster.connection import Stream

SAID: Mapping[bytes, str] = {
    b'"Configuration changes detected, backend reload required"': "Reload",
    b'"Backend successfully reloaded"': "Reloaded",
    b'"router reloaded"': "Reloaded",
}
CAUGHT_UP_S = 5.0
POLL_S = 0.02


class Asked(Protocol):
    """What is needed of `lab.targets.cluster.api.Api`."""

    def follow(self, namespace: str, pod: str, container: str, since: str) -> Stream: ...
    def log(
        self, namespace: str, pod: str, container: str, lines: int, previous: bool = ..., times: bool = ...
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Told:
    """A line that is an event: when it was written, by the node's clock."""

    written_s: float
    kind: str
    pod: str


def kind(line: bytes) -> str | None:
    """Of the event that a line tells, or None."""
    return next((event for words, event in SAID.items() if words in line), None)


class Followed:
    """One container's log, from now on or (`whole`) from its beginning, until `stop` or the container's end."""

    def __init__(
        self, api: Asked, namespace: str, pod: str, container: str, container_id: str, node: str, whole: bool
    ) -> None:
        self._api, self._place = api, (namespace, pod, container)
        self.container_id, self.node = container_id, node
        self.told: list[Told] = []
        self.behind_s = math.inf
        self.fault = ""
        """Why it ended before `stop`: no fault of anybody's when the container ended."""
        self._stream: Stream | None = None
        self._last = "" if whole else self._newest()
        self._starting = whole
        """What was read is its first configuration's still."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{pod}", daemon=True)
        self._thread.start()

    def stop(self, ended: bool) -> None:
        """`ended`: the container is known to have ended. MeasuringError when lines may be missing."""
        place = f"log of pod {self._place[0]}/{self._place[1]}"
        try:
            if not ended and not self.fault:
                self._catch_up()
        except LabError as error:
            self.fault = self.fault or error.fault
        finally:
            self.end()
        if self.fault and not ended:
            raise MeasuringError(place, self.fault, "the sample is to be measured again; `kubectl logs -f` shows more")

    def end(self) -> None:
        """Without a last look."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        self._thread.join(CAUGHT_UP_S)

    def _catch_up(self) -> None:
        """Until the line that is the last now was read."""
        last, deadline = self._newest(), time.monotonic() + CAUGHT_UP_S
        while last > self._last:
            if time.monotonic() > deadline:
                self.fault = self.fault or f"its last line was not read within {CAUGHT_UP_S:.0f} s"
            if self.fault:
                return
            time.sleep(POLL_S)

    def _newest(self) -> str:
        """The time of the last line that was written; empty when there is none."""
        return self._api.log(*self._place, lines=1, times=True).split(" ", 1)[0].strip()

    def _run(self) -> None:
        """The thread."""
        try:
            stream = self._stream = self._api.follow(*self._place, self._last)
            if self._stopped.is_set():  # `end` came while it was opened
                stream.close()
            for line in stream.lines():
                self._read(time.time(), line)
            self.fault = "" if self._stopped.is_set() else "ended while its container ran"
        except (OSError, LabError) as error:
            self.fault = f"cannot be followed: {error}"
        except Exception as error:  # noqa: BLE001  # told by `stop`: a traceback would reach the user
            self.fault = f"{type(error).__name__}: {error}"

    def _read(self, at_s: float, line: bytes) -> None:
        written, _, words = line.partition(b" ")
        stamp = written.decode("ascii", "replace")
        if stamp <= self._last:
            return  # of the second in which following began
        self._last = stamp
        written_s = datetime.fromisoformat(stamp).timestamp()
        self.behind_s = min(self.behind_s, at_s - written_s)
        event = kind(words)
        if event is not None and not self._starting:
            self.told.append(Told(written_s, event, self._place[1]))
        elif event == "Reloaded":
            self._starting = False


def loading_s(log: str) -> float | None:
    """From the last Reload to the Reloaded after it, of a log with times; None where it tells none."""
    began: float | None = None
    took: float | None = None
    for line in log.splitlines():
        stamp, _, words = line.partition(" ")
        event = kind(words.encode())
        if event == "Reload":
            began = datetime.fromisoformat(stamp).timestamp()
        elif event == "Reloaded" and began is not None:
            took, began = datetime.fromisoformat(stamp).timestamp() - began, None
    return took
