"""What an API server tells as it happens, each with the time at which it arrived here: every change of one kind of object in one namespace, and
the lines of one container's log that tell a reload.

    {"type": "MODIFIED", "object": {"metadata": {"name": "proxy-5f", …}}}                       →   told(at_s, "MODIFIED", {"metadata": …})
    2026-11-21T21:53:12.398Z I1121 … "Configuration changes detected, backend reload required"   →   Reload
    2026-11-21T21:53:12.541Z I1121 … "Backend successfully reloaded"                             →   Reloaded

A watch that ends is taken up again by its last resourceVersion, so nothing is missing; but what came meanwhile has no time of its own.
Refuses to pass over that: `stop` raises when it was blind for longer than BLIND_S, when the server no longer knows what came after (410), and
when a last look shows something that was not told.

Which words of a log tell what, each controller says of itself (`lab.systems.table.event_of`). They write them for a container's first
configuration, too: that is its start, no event. Lines of a container that had begun before it was followed arrive late, so their times are the
node's own; `behind_s` of any line is its clock's distance from the lab's and the line's way, and the least of all of a node's lines is put to each.
"""

from __future__ import annotations

import json
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from lab.base.errors import LabError, MeasuringError
from lab.systems.table import event_of
from lab.targets.cluster.api import Api, Object, until
from lab.targets.cluster.connection import Stream

BLIND_S = 0.2
CAUGHT_UP_S = 5.0
POLL_S = 0.02
Told = Callable[[float, str, Object], None]
"""(seconds since the epoch, LISTED at the beginning or ADDED, MODIFIED, DELETED, the object): called in the watch's thread."""


class Following(ABC):
    """A thread that reads what goes on until `end`. `fault`: why it ended before."""

    def __init__(self, name: str) -> None:
        self.fault = ""
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def end(self) -> None:
        """Without a last look: for one that was never started, too."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        if self._thread.ident is not None:
            self._thread.join(CAUGHT_UP_S)

    @abstractmethod
    def _follow(self) -> None: ...

    def _run(self) -> None:
        """The thread: a fault is told by `stop`, a traceback would reach the user."""
        try:
            self._follow()
        except LabError as error:
            self.fault = error.fault
        except Exception as error:  # noqa: BLE001
            self.fault = f"{type(error).__name__}: {error}"


class Watched(Following):
    """Objects, from `start` to `stop`."""

    def __init__(self, api: Api, api_version: str, kind: str, namespace: str, told: Told) -> None:
        super().__init__(f"watch-{kind}")
        self._api, self._what, self._told = api, (api_version, kind, namespace), told
        self._versions: dict[str, int] = {}
        self._since = ""

    def start(self) -> None:
        """What is there is told as LISTED, in the caller's thread. LabError when it may not be listed."""
        items, self._since = self._api.listed(*self._what)
        for item in items:
            self._take(time.time(), "LISTED", item)
        self._thread.start()

    def stop(self) -> None:
        """MeasuringError when something may be missing; LabError when the last look fails."""
        try:
            items, version = self._api.listed(*self._what)
            wanted = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in items}

            def missing() -> list[str]:
                """What the last look shows and the watch has not told."""
                known, up_to = dict(self._versions), int(self._since)
                unseen = [uid for uid, wants in wanted.items() if known.get(uid, up_to) < wants]
                return unseen + [uid for uid, has in known.items() if uid not in wanted and has <= int(version)]

            if not until(lambda: self.fault or not missing(), CAUGHT_UP_S, POLL_S):
                self.fault = f"has not told of {len(missing())} changes within {CAUGHT_UP_S:.0f} s"
        finally:
            self.end()
        if self.fault:
            remedy = "see whether the API server was overloaded; the sample is to be measured again"
            raise MeasuringError(f"watch of {self._what[1]} in {self._what[2]}", self.fault, remedy)

    def _follow(self) -> None:
        blind_since = time.monotonic()
        while not self._stopped.is_set() and not self.fault:
            try:
                stream = self._stream = self._api.watch(*self._what, self._since)
            except OSError as error:
                if time.monotonic() - blind_since > CAUGHT_UP_S:
                    self.fault = f"broke: {error}"
                self._stopped.wait(POLL_S)
                continue
            if (blind_s := time.monotonic() - blind_since) > BLIND_S:
                self.fault = f"saw nothing for {blind_s:.1f} s"
            if self._stopped.is_set() or self.fault:  # `end` may have come while it was opened
                stream.close()
            with suppress(OSError):  # it is taken up again
                for line in filter(bytes.strip, stream.lines()):
                    change, at_s = json.loads(line), time.time()
                    kind, found = change["type"], change["object"]
                    if kind == "ERROR":
                        words = found.get("message") or found.get("reason") or found
                        raise MeasuringError(self._what[1], f"ended by the server: {words}")
                    self._since = found["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._take(at_s, kind, found)
            blind_since = time.monotonic()

    def _take(self, at_s: float, kind: str, found: Object) -> None:
        uid = found["metadata"]["uid"]
        self._versions[uid] = int(found["metadata"]["resourceVersion"])
        if kind == "DELETED":
            del self._versions[uid]
        self._told(at_s, kind, found)


class Followed(Following):
    """One container's log, from now on or (`whole`) from its beginning, until `stop` or the container's end."""

    def __init__(
        self, api: Api, namespace: str, pod: str, container: str, container_id: str, node: str, whole: bool
    ) -> None:
        super().__init__(f"log-{pod}")
        self._api, self.pod, self._place = api, pod, (namespace, pod, container)
        self.container_id, self.node = container_id, node
        self.told: list[tuple[float, str]] = []
        """(when it was written, by the node's clock; event) of every line that tells one."""
        self.behind_s = math.inf
        self._last = "" if whole else self._newest()
        self._starting = whole
        """What was read is its first configuration's still."""
        self._thread.start()

    def stop(self, ended: bool) -> None:
        """`ended`: the container is known to have ended. MeasuringError when lines may be missing."""
        try:
            if not ended:
                last = self._newest()
                if not until(lambda: self.fault or last <= self._last, CAUGHT_UP_S, POLL_S):
                    self.fault = f"its last line was not read within {CAUGHT_UP_S:.0f} s"
        except LabError as error:
            self.fault = self.fault or error.fault
        finally:
            self.end()
        if self.fault and not ended:
            place = f"log of pod {self._place[0]}/{self._place[1]}"
            raise MeasuringError(place, self.fault, "the sample is to be measured again; `kubectl logs -f` shows more")

    def _newest(self) -> str:
        """The time of the last line that was written; empty when there is none."""
        return self._api.log(*self._place, lines=1, times=True).split(" ", 1)[0].strip()

    def _follow(self) -> None:
        try:
            stream = self._stream = self._api.follow(*self._place, self._last)
            if self._stopped.is_set():  # `end` came while it was opened
                stream.close()
            for line in stream.lines():
                self._read(time.time(), line)
            self.fault = "" if self._stopped.is_set() else "ended while its container ran"
        except (OSError, LabError) as error:
            self.fault = f"cannot be followed: {error}"

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
