"""A proxy's configuration: when it was loaded anew, and when it may still be.

    2026-11-21T21:53:12.398Z I1121 … "Configuration changes detected, backend reload required"   →   Reload
    2026-11-21T21:53:12.541Z I1121 … "Backend successfully reloaded"                             →   Reloaded

Which words tell what, each controller says of itself (`lab.systems.table.event_of`); one may tell the end of a load and not its beginning.
They write these lines for a container's first configuration, too: that is its start, no event.
Lines of a container that had begun before it was followed arrive late, so their times are the node's own; `behind_s` of any
line is its clock's distance from the lab's and the line's way, and the least of all of a node's lines is put to each.
Refuses to read anything else: a log also has a line for every request.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from lab.base import quantities
from lab.base.errors import LabError, MeasuringError
from lab.systems.table import INTERVALS, event_of
from lab.targets.cluster import objects
from lab.targets.cluster.api import Api
from lab.targets.cluster.connection import Stream

CAUGHT_UP_S = 5.0
POLL_S = 0.02
MARGIN_S = 1.0
"""For a load itself."""


class Followed:
    """One container's log, from now on or (`whole`) from its beginning, until `stop` or the container's end."""

    def __init__(
        self, api: Api, namespace: str, pod: str, container: str, container_id: str, node: str, whole: bool
    ) -> None:
        self._api, self.pod, self._place = api, pod, (namespace, pod, container)
        self.container_id, self.node = container_id, node
        self.told: list[tuple[float, str]] = []
        """(when it was written, by the node's clock; event) of every line that tells one."""
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
        try:
            if not ended:
                self._catch_up()
        except LabError as error:
            self.fault = self.fault or error.fault
        finally:
            self.end()
        if self.fault and not ended:
            place = f"log of pod {self._place[0]}/{self._place[1]}"
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
        while last > self._last and not self.fault:
            if time.monotonic() > deadline:
                self.fault = f"its last line was not read within {CAUGHT_UP_S:.0f} s"
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
        event = event_of(words.decode(errors="replace"))
        if event is not None and not self._starting:
            self.told.append((written_s, event))
        elif event == "Reloaded":
            self._starting = False


def pending_s(manifests: Iterable[Mapping[str, Any]]) -> float:
    """Seconds from the proxy's readiness until no load is due; 0 where the proxy has no such interval.

    A router that has one loads its first configuration as soon as it has seen every Route, and handles what arrives meanwhile (the
    same Routes again, the backend's endpoints when they are ready) in one more load, a reload interval later. That one
    closes idle keep-alive connections, which a generator counts as errors. Seen with openshift/router release-4.22: with
    5 s, 15 s and 120 s exactly two loads, and a backend that was not ready at the first is not answered for until the second.
    """
    found = [
        seconds
        for obj in manifests
        if objects.role(obj) == "proxy"
        for container in objects.pod_spec(obj)["containers"]
        for item in container.get("env", [])
        if item["name"] in INTERVALS and (seconds := quantities.seconds(str(item.get("value", "")))) is not None
    ]
    return max(found) + MARGIN_S if found else 0.0
