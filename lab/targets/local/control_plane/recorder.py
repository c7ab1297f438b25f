"""What happened to a local system between two moments, in the words of `lab.model.events`.

The kubelet knows containers, `control` knows pods: what a container's readiness meant for its pod is said by `control`
alone. Everything is in one process, so all times are by the lab's own clock as they are.
Apart from both, as it reads nothing but the log that they write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lab.model.events import Event, EventLog
from lab.model.system import Recorder
from lab.targets.local.kubelet.runner import CONTAINER

_KINDS = frozenset({"Started", "Exited", "Killing", "Unhealthy", "Probe"})
"""Kinds of a container's that are the same in `lab.model.events`."""

_ENDS = {"Stopped": "within its grace period", "Killed": "SIGKILL: its grace period was over"}
"""How a container ended that was told to."""


class LocalRecorder:
    """`check`: MeasuringError when something that should have happened did not."""

    def __init__(self, log: EventLog, check: Callable[[], None]) -> None:
        self._log, self._check = log, check
        self._ends: list[int] = []

    def __enter__(self) -> Recorder:
        self._ends.append(len(self._log.events))
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.append(len(self._log.events))

    def events(self) -> Sequence[Event]:
        self._check()
        return [told for event in self._log.events[slice(*self._ends)] if (told := translated(event)) is not None]

    def notes(self) -> Sequence[str]:
        return []


def translated(event: Event) -> Event | None:
    """A line of the log; None where it has no meaning beyond its container."""
    if event.source != CONTAINER:
        return event
    kind = "Exited" if event.kind in _ENDS else event.kind
    return (
        replace(event, source="kubelet", kind=kind, detail=_ENDS.get(event.kind, event.detail))
        if kind in _KINDS
        else None
    )
