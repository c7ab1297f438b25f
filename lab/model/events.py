"""What happened to a system while it was measured: who said it, of what, when. One clock: the lab's wall clock.

Refuses to interpret: which event means an outage or a reload is `lab.records.outcomes`' affair. The kinds are the same on every
target, so that one reader serves them all:

    Begin, End          the disturbance itself, as the lab did it (source `lab`): just before it does anything; once it is undone
    Change              change number `object` was handed to the system, which may take a while to accept it (the detail says how
                        long, as `routes accepted after 0.0123 s`); the detail's first word says how answers show it:
                        `endpoints` (a server port of 9000 + object or more), `routes` (a prefix of object or more), `status`
                        (a good answer instead of none); any other word: they do not
    Created, Started    a pod was made; its container runs (detail: `restart N` from the second time on)
    Ready, NotReady     a pod's readiness as the endpoints see it
    Deleted             its deletion was asked for: from now on it terminates
    EvictionRefused     a PodDisruptionBudget did not allow it; it is tried again
    Killing             a container is told to end; detail says why and with which grace period
    Exited              a container ended by itself or was killed; detail says how
    Gone                the pod is no more
    Probe               one attempt: detail is `readiness 0.0031 ok` or `liveness 1.0004 no answer within 1 s`
    Unhealthy           a failed attempt, as the kubelet reports it
    Endpoints           of Service `object`; detail is how many are ready
    Reload, Reloaded    the proxy was told to load its configuration anew; it serves the new one
    Held, Cut           long-lived connection `object` was opened; it ended before it was to (detail: `websocket …`, `download …`)
    Refused             such a connection could not be opened
    Transfer            one large body was over: detail is `upload 10485760 bytes 1.2031 s first 1.1913 s status 200`, both times
                        from connecting on, the second until the answer's first byte; where none came it is `first - status 0`,
                        and why
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

FIRST_PORT = 9000
"""Of the ports by which answers show changes of endpoints: change k is port FIRST_PORT + k."""


@dataclass(frozen=True, slots=True)
class Event:
    """`source`: lab (what it did itself), kubelet, api, proxy. `role`: proxy, backend or empty. `object`: a pod, a Service, a number."""

    at_s: float
    source: str
    role: str
    object: str
    kind: str
    detail: str = ""


class EventLog:
    """Events as they come, from any thread."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(
        self,
        source: str,
        kind: str,
        object: str = "",  # noqa: A002 - the column's name
        detail: str = "",
        role: str = "",
        at_s: float | None = None,
    ) -> None:
        """One event; of now, unless it was at another time."""
        self._events.append(Event(time.time() if at_s is None else at_s, source, role, object, kind, detail))

    def extend(self, events: Iterable[Event]) -> None:
        self._events.extend(events)

    @property
    def events(self) -> Sequence[Event]:
        """In the order in which they were told; it grows."""
        return self._events


EVENTS_SCHEMA = {
    "at_s": pl.Float64,  # seconds since the epoch, by the lab's clock
    "source": pl.String,
    "role": pl.String,
    "object": pl.String,
    "kind": pl.String,
    "detail": pl.String,
}
"""Columns of events.parquet, in the order of time."""
