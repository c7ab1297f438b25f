"""The log of events in a system while it is measured, such as a pod's deletion or a proxy's reload, by the lab's wall clock.

This module interprets nothing: `lab.records.outcomes` decides which event means an outage or a reload. The kinds are the same on every
target, so that a single reader serves them all:

    Begin, End          the disruption itself, as the lab did it (source `lab`): just before it does anything; once it is undone
    Change              change number `object` was handed to the system, which may take a while to accept it (the detail states how
                        long, as `routes accepted after 0.0123 s`); the detail's first word names how answers show it:
                        `endpoints` (a server port of 9000 + object or more), `routes` (a prefix of object or more), `status`
                        (a good answer instead of none); with any other word answers do not show it
    Created, Started    a pod was made; its container runs (detail: `restart N` from the second time on)
    Ready, NotReady     a pod's readiness as the endpoints see it
    Deleted             a pod's deletion was requested: from now on it terminates
    EvictionRefused     a PodDisruptionBudget did not allow it; it is tried again
    Killing             a container is ordered to end; detail names the reason and the grace period
    Exited              a container ended or was killed; detail states how
    Gone                the pod is no more
    Probe               an attempt: detail is `readiness 0.0031 ok` or `liveness 1.0004 no answer within 1 s`
    Unhealthy           a failed attempt, as the kubelet reports it
    Endpoints           the number of ready endpoints (detail) of Service `object`
    Reload, Reloaded    the proxy was ordered to load its configuration anew; it serves the new one
    Held, Cut           long-lived connection `object` was opened; it ended too early (detail: `websocket …`, `download …`)
    Refused             such a connection could not be opened
    Transfer            a large body was over: detail is `upload 10485760 bytes 1.2031 s first 1.1913 s status 200`, both times
                        from connecting on, the second until the answer's first byte; without an answer it is `first - status 0`
                        and the reason
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import polars as pl

FIRST_PORT = 9000
"""The first of the ports by which answers show changes of endpoints: change k is port FIRST_PORT + k."""


@dataclass(frozen=True, slots=True)
class Event:
    """A single event that happened to a system under load, such as a pod's deletion or a proxy's reload.

    Attributes:
        at_s: The time in seconds since the epoch, by the lab's clock.
        source: Who reported it: `lab` (its own action), `kubelet`, `api` or `proxy`.
        role: The role of the pod concerned: `proxy`, `backend` or empty.
        object: The pod, the Service or the number that the event is about.
        kind: The kind of event, such as `Ready` (the module lists them).
        detail: More about the event, in the form that its kind defines.

    """

    at_s: float
    source: str
    role: str
    object: str
    kind: str
    detail: str = ""


@dataclass(slots=True, eq=False)
class EventLog:
    """A log of events (what happened to a system under load), to which any thread may add.

    Attributes:
        events: The events in the order in which they were added; the list is live, so later events appear in it.

    """

    events: list[Event] = field(default_factory=list[Event])

    def add(
        self,
        source: str,
        kind: str,
        object: str = "",  # noqa: A002 - the column's name
        detail: str = "",
        role: str = "",
        at_s: float | None = None,
    ) -> None:
        """Add an event to the log.

        Args:
            source: Who reports it: `lab`, `kubelet`, `api` or `proxy`.
            kind: The kind of event, such as `Ready` (the module lists them).
            object: The pod, the Service or the number that the event is about.
            detail: More about the event, in the form that its kind defines.
            role: `proxy`, `backend` or empty.
            at_s: The time in seconds since the epoch, by the lab's clock; None = now.

        """
        self.events.append(Event(time.time() if at_s is None else at_s, source, role, object, kind, detail))


EVENTS_SCHEMA = {
    "at_s": pl.Float64,  # seconds since the epoch, by the lab's clock
    "source": pl.String,
    "role": pl.String,
    "object": pl.String,
    "kind": pl.String,
    "detail": pl.String,
}
"""The columns of events.parquet, whose rows are in the order of time."""
