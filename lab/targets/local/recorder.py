"""What happened to a local system between two moments, in the words of `lab.model.events`: its control's log and its kubelet's.

The kubelet knows containers, `control` knows pods: what a container's readiness meant for its pod is said by `control`
alone. Everything is in one process, so all times are by the lab's own clock as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from lab.model.events import Event, EventLog
from lab.model.system import Recorder
from lab.targets.local import runner

_KINDS = frozenset({"Started", "Exited", "Killing", "Unhealthy", "Probe"})
"""Kinds of the kubelet's that are the same in `lab.model.events`."""

_ENDS = {"Stopped": "within its grace period", "Killed": "SIGKILL: its grace period was over"}
"""How a container ended that was told to."""


class LocalRecorder:
    """`role`: pod → role. `check`: MeasuringError when something that should have happened did not."""

    def __init__(
        self, kubelet: runner.Log, log: EventLog, roles: Callable[[], Mapping[str, str]], check: Callable[[], None]
    ) -> None:
        self._kubelet, self._log, self._roles, self._check = kubelet, log, roles, check
        self._ends: list[tuple[int, int]] = []

    def __enter__(self) -> Recorder:
        self._mark()
        return self

    def __exit__(self, *_: object) -> None:
        self._mark()

    def events(self) -> Sequence[Event]:
        self._check()
        (kubelet, log), (kubelet_end, log_end) = self._ends
        roles = self._roles()
        told = [translated(event, roles) for event in self._kubelet.events[kubelet:kubelet_end]]
        return [*self._log.events[log:log_end], *(event for event in told if event is not None)]

    def notes(self) -> Sequence[str]:
        return []

    def _mark(self) -> None:
        self._ends.append((len(self._kubelet.events), len(self._log.events)))


def translated(event: runner.Event, roles: Mapping[str, str]) -> Event | None:
    """A line of the kubelet's log; None where it has no meaning beyond its container."""
    kind, detail = event.kind, event.detail
    if kind in _ENDS:
        kind, detail = "Exited", _ENDS[kind]
    elif kind not in _KINDS:
        return None
    at_s = datetime.fromisoformat(event.wall).timestamp()
    return Event(at_s, "kubelet", roles.get(event.pod, ""), event.pod, kind, detail)
