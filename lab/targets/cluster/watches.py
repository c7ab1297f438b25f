"""Every change of one kind of object in one namespace, in order, each with the time at which it arrived here.

    {"type": "MODIFIED", "object": {"metadata": {"name": "proxy-5f", …}}}   →   told(at_s, "MODIFIED", {"metadata": …})

A watch that ends is taken up again by its last resourceVersion, so nothing is missing; but what came meanwhile has no
time of its own. Refuses to pass over that: `stop` raises when it was blind for longer than BLIND_S, when the server no
longer knows what came after (410), and when a last look shows something that the watch has not told.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from lab.base.errors import LabError, MeasuringError
from lab.targets.cluster.api import Api, Object
from lab.targets.cluster.connection import Stream

BLIND_S = 0.2
CAUGHT_UP_S = 5.0
POLL_S = 0.02
Told = Callable[[float, str, Object], None]
"""(seconds since the epoch, LISTED at the beginning or ADDED, MODIFIED, DELETED, the object): called in the watch's thread."""


class Watched:
    """From `start` to `stop`."""

    def __init__(self, api: Api, api_version: str, kind: str, namespace: str, told: Told) -> None:
        self._api, self._what, self._told = api, (api_version, kind, namespace), told
        self._versions: dict[str, int] = {}
        self._since = ""
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._fault = ""
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind}", daemon=True)

    def start(self) -> None:
        """What is there is told as LISTED, in the caller's thread. LabError when it may not be listed."""
        items, self._since = self._api.listed(*self._what)
        for item in items:
            self._take(time.time(), "LISTED", item)
        self._thread.start()

    def stop(self) -> None:
        """MeasuringError when something may be missing; LabError when the last look fails."""
        try:
            self._fault = self._fault or self._behind()
        finally:
            self.end()
        if self._fault:
            remedy = "see whether the API server was overloaded; the sample is to be measured again"
            raise MeasuringError(f"watch of {self._what[1]} in {self._what[2]}", self._fault, remedy)

    def end(self) -> None:
        """Without a last look: for one that was never started, too."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        if self._thread.ident is not None:
            self._thread.join(CAUGHT_UP_S)

    def _run(self) -> None:
        """The thread: a fault is told by `stop`, a traceback would reach the user."""
        try:
            blind_since = time.monotonic()
            while not self._stopped.is_set() and not self._fault:
                try:
                    stream = self._stream = self._api.watch(*self._what, self._since)
                except OSError as error:
                    if time.monotonic() - blind_since > CAUGHT_UP_S:
                        self._fault = f"broke: {error}"
                    self._stopped.wait(POLL_S)
                    continue
                if (blind_s := time.monotonic() - blind_since) > BLIND_S:
                    self._fault = f"saw nothing for {blind_s:.1f} s"
                if self._stopped.is_set() or self._fault:  # `end` may have come while it was opened
                    stream.close()
                with suppress(OSError):  # it is taken up again
                    for line in stream.lines():
                        self._read(time.time(), line)
                blind_since = time.monotonic()
        except LabError as error:
            self._fault = error.fault
        except Exception as error:  # noqa: BLE001
            self._fault = f"{type(error).__name__}: {error}"

    def _read(self, at_s: float, line: bytes) -> None:
        """MeasuringError for one that tells why the server ends it."""
        if not line.strip():
            return
        change = json.loads(line)
        kind, found = change["type"], change["object"]
        if kind == "ERROR":
            words = found.get("message") or found.get("reason") or found
            raise MeasuringError(self._what[1], f"ended by the server: {words}")
        self._since = found["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._take(at_s, kind, found)

    def _take(self, at_s: float, kind: str, found: Object) -> None:
        uid = found["metadata"]["uid"]
        self._versions[uid] = int(found["metadata"]["resourceVersion"])
        if kind == "DELETED":
            del self._versions[uid]
        self._told(at_s, kind, found)

    def _behind(self) -> str:
        """What a last look shows that the watch does not tell in time; empty when it has told all."""
        items, version = self._api.listed(*self._what)
        wanted = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in items}
        deadline = time.monotonic() + CAUGHT_UP_S
        behind: list[str] = []
        while time.monotonic() < deadline and not self._fault:
            known, up_to = dict(self._versions), int(self._since)
            behind = [uid for uid, wants in wanted.items() if known.get(uid, up_to) < wants]
            behind += [uid for uid, has in known.items() if uid not in wanted and has <= int(version)]
            if not behind:
                return ""
            time.sleep(POLL_S)
        return self._fault or f"has not told of {len(behind)} changes within {CAUGHT_UP_S:.0f} s"
